package config

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBadFilesTellEveryFault holds C142, C143, C145, C147, S08, S09, S26 and S28: each bad file fails with the texts beside it.
func TestBadFilesTellEveryFault(t *testing.T) {
	t.Chdir(filepath.Join("testdata", "bad"))
	t.Setenv("WEIR_TEST_KEY", "env-canary-0123456789")
	t.Setenv("WEIR_TEST_EMPTY", "")
	t.Setenv("WEIR_TEST_PLACEHOLDER", "your-api-key-here")
	t.Setenv("WEIR_TEST_NEWLINE", "env-canary\"\nX-Other: 1")
	for _, file := range files(t, "*.yaml") {
		t.Run(strings.TrimSuffix(file, ".yaml"), func(t *testing.T) {
			c, warnings, err := Load(file)
			if err == nil || c != nil {
				t.Fatalf("loaded, want faults")
			}
			text := err.Error() + "\n"
			for _, w := range warnings {
				text += "warning: " + w.Error() + "\n"
			}
			for _, word := range []string{"canary", "your-api-key"} {
				if strings.Contains(text, word) {
					t.Errorf("a fault shows a secret (S10):\n%s", text)
				}
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".txt", text)
		})
	}
}

func TestGoodFilesLoadWithoutAFault(t *testing.T) {
	for _, file := range files(t, filepath.Join("testdata", "good", "*.yaml")) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c := load(t, file)
			effective, err := c.YAML()
			if err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".effective", string(effective))
		})
	}
}

// load loads a copy of a file beside everything it refers to.
func load(t *testing.T, file string) *Config {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := Load(home(t, string(text)))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return c
}

func TestEffectiveConfigReadsBackAsItself(t *testing.T) {
	for _, file := range append(files(t, filepath.Join("testdata", "good", "*.yaml")), files(t, examples)...) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c, first := parsed(t, file)
			again, report := Parse(first, file)
			if err := report.Err(); err != nil {
				t.Fatalf("the effective config has faults:\n%v\n%s", err, first)
			}
			if diff := cmp.Diff(c, again); diff != "" {
				t.Errorf("another config after reading it back (-first +again):\n%s", diff)
			}
			second, err := again.YAML()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(first), string(second)); diff != "" {
				t.Errorf("another text after reading it back (-first +second):\n%s", diff)
			}
		})
	}
}

// parsed parses a file without what it refers to, and returns it with its effective text.
func parsed(t *testing.T, file string) (*Config, []byte) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, report := Parse(text, file)
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	effective, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	return c, effective
}

func TestC147LoadsAreByteIdentical(t *testing.T) {
	good, err := os.ReadFile(filepath.Join("testdata", "good", "everything.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	bad, err := os.ReadFile(filepath.Join("testdata", "bad", "rule-step.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var first []byte
	firstFaults := ""
	for i := range 100 {
		c, report := Parse(good, "weir.yaml")
		if err := report.Err(); err != nil {
			t.Fatal(err)
		}
		text, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		_, badReport := Parse(bad, "weir.yaml")
		faults := badReport.Err().Error() + fmt.Sprint(badReport.Warnings)
		if i == 0 {
			first, firstFaults = text, faults
		}
		if !bytes.Equal(first, text) || firstFaults != faults {
			t.Fatalf("load %d differs from the first", i)
		}
	}
}

func TestUnreadableFilesAreErrorsThatNameThem(t *testing.T) {
	dir := t.TempDir()
	big := write(t, dir, "big.yaml", strings.Repeat("#", maxFile+1))
	tests := map[string]struct{ file, want string }{
		"a file that is not there": {filepath.Join(dir, "absent.yaml"), "absent.yaml: cannot be read: no such file or directory"},
		"a folder":                 {dir, "cannot be read: it is no regular file"},
		"a file that is too large": {big, "big.yaml: cannot be read: it is larger than 1MiB"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := Load(test.file)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestTextThatIsNoYAMLIsAFault(t *testing.T) {
	for name, text := range map[string]string{
		"bytes that are no UTF-8": "listen: \xff\xfe",
		"a NUL byte":              "listen: \x00",
		"UTF-16":                  "\xff\xfel\x00i\x00",
		"endless nesting":         strings.Repeat("[", 100000),
	} {
		t.Run(name, func(t *testing.T) {
			if c, report := Parse([]byte(text), "weir.yaml"); c != nil || report.Err() == nil {
				t.Errorf("parsed, want a fault")
			}
		})
	}
}

// FuzzParse looks for texts that make Parse panic, or whose effective config does not read back.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/bad/*.yaml", "testdata/good/*.yaml", examples} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range found {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, report := Parse(text, "weir.yaml")
		if c == nil {
			if report.Err() == nil {
				t.Fatal("no config and no fault")
			}
			_ = report.Err().Error()
			return
		}
		effective, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, report := Parse(effective, "weir.yaml")
		if err := report.Err(); err != nil {
			t.Fatalf("the effective config has faults:\n%v\n%s", err, effective)
		}
		second, err := again.YAML()
		if err != nil || !bytes.Equal(effective, second) {
			t.Fatalf("differs after reading it back (%v):\n%s\n%s", err, effective, second)
		}
	})
}
