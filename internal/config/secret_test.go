package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

const canary = "canary-0123456789-secret-value"

func TestSecretIsReadByReference(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "plain", canary)
	write(t, dir, "unix", canary+"\n")
	write(t, dir, "windows", canary+"\r\n")
	write(t, dir, "two", canary+"\n\n")
	write(t, dir, "empty", "\n")
	write(t, dir, "long", strings.Repeat("x", maxSecret+1))
	write(t, dir, "unexpanded", "${KEY}\n")
	t.Setenv("WEIR_TEST_KEY", canary)
	t.Setenv("WEIR_TEST_QUOTES", `a"b'c$2a$10$`)
	t.Setenv("WEIR_TEST_SPACES", "   ")
	tests := map[string]struct{ ref, want, err string }{
		"a variable": {ref: "${env:WEIR_TEST_KEY}", want: canary},
		"quotes and dollars in a variable are kept":  {ref: "${env:WEIR_TEST_QUOTES}", want: `a"b'c$2a$10$`},
		"a file without a newline":                   {ref: "${file:plain}", want: canary},
		"a file's trailing newline is trimmed":       {ref: "${file:unix}", want: canary},
		"a trailing CRLF is trimmed":                 {ref: "${file:windows}", want: canary},
		"an absolute file":                           {ref: "${file:" + filepath.Join(dir, "unix") + "}", want: canary},
		"a second newline is refused":                {ref: "${file:two}", err: "holds a line break"},
		"an empty file is refused":                   {ref: "${file:empty}", err: "empty"},
		"a variable of spaces is refused":            {ref: "${env:WEIR_TEST_SPACES}", err: "is empty"},
		"an unset variable is named":                 {ref: "${env:WEIR_TEST_UNSET}", err: "the environment variable WEIR_TEST_UNSET is not set"},
		"a missing file is named":                    {ref: "${file:absent}", err: "absent cannot be read"},
		"a folder is refused":                        {ref: "${file:.}", err: "no regular file"},
		"a device is refused":                        {ref: "${file:/dev/zero}", err: "no regular file"},
		"a large file is refused":                    {ref: "${file:long}", err: "larger than 64KiB"},
		"a reference inside a file is a placeholder": {ref: "${file:unexpanded}", err: "placeholder"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := NewSecret(test.ref, dir)
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.Value()
			if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %q, %v; want %q, %q", got, err, test.want, test.err)
			}
		})
	}
}

func TestSecretFileIsReadAgainWhenItChanges(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "key", "first-value\n")
	s, err := NewSecret("${file:key}", dir)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		if got, err := s.Value(); err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	expect("first-value")
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}

	write(t, dir, "key", "other-value\n") // the same size
	if err := os.Chtimes(file, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	expect("first-value") // neither time nor size changed: not read

	if err := os.Chtimes(file, time.Time{}, info.ModTime().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	expect("other-value")

	write(t, dir, "key", "a longer value than before\n")
	expect("a longer value than before")

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Value(); err == nil || got != "" {
		t.Errorf("got %q, %v after the file went; want an error", got, err)
	}
}

func TestUnchangedSecretCostsNoRead(t *testing.T) {
	s, err := NewSecret("${file:key}", filepath.Dir(write(t, t.TempDir(), "key", canary)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Value(); err != nil {
		t.Fatal(err)
	}
	allocs := testing.AllocsPerRun(100, func() {
		if _, err := s.Value(); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 4 {
		t.Errorf("%v allocations a call, want those of one stat", allocs)
	}
}

// TestS09PlaceholdersAreNoSecrets lists what is refused, and near it what is not.
func TestS09PlaceholdersAreNoSecrets(t *testing.T) {
	tests := map[string]bool{
		"changeme": true, "CHANGE_ME": true, "change-me": true, "your-api-key-here": true, "your_key": true, "<key>": true, "<YOUR KEY>": true,
		"xxxxxxxx": true, "sk-xxxx": true, "sk-...": true, "todo": true, "placeholder": true, "${KEY}": true, "$KEY": true, "password": true,
		"api_key": true, "my-api-key": true, "insert key here": true, "***": true, "replace-me": true,
		"sk-abcdef0123456789": false, "EMPTY": false, "local": false, "not-needed": false, "yourself-7f": false, "todo-list-91": false,
		"xxy": false, "$2a$10$N9qo8uLOickgx2ZMRZoMye": false, "passwordless-9": false,
	}
	for value, refused := range tests {
		t.Run(value, func(t *testing.T) {
			t.Setenv("WEIR_TEST_KEY", value)
			s, err := NewSecret("${env:WEIR_TEST_KEY}", "")
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.Value()
			if (err != nil) != refused {
				t.Errorf("refused: %v (%v), want %v", err != nil, err, refused)
			}
			if err != nil && (got != "" || value != "placeholder" && strings.Contains(err.Error(), value)) {
				t.Errorf("the value is shown: %q, %v", got, err)
			}
		})
	}
}

func TestNewSecretTakesWholeReferencesOnly(t *testing.T) {
	for _, ref := range []string{
		"", canary, "${KEY}", "$KEY", "${KEY:-x}", "${env:}", "${env:A B}", "${env:A}x", "x${env:A}", "${env:A}\n", "${env:A:-x}",
		"${file:}", "${file:a}b", "${FILE:a}", "${file:a\nb}", "${file:${env:A}}", "$${env:A}",
	} {
		if s, err := NewSecret(ref, ""); err == nil || !s.IsZero() {
			t.Errorf("%q is taken for a reference", ref)
		} else if ref == canary && strings.Contains(err.Error(), ref) {
			t.Errorf("the error shows the literal: %v", err)
		}
	}
}

// TestS08SecretFilesOpenToOthers: readable by others is a warning, writable by others a fault.
func TestS08SecretFilesOpenToOthers(t *testing.T) {
	const text = `
backends:
  floor: {url: "http://127.0.0.1:9001", tier: floor, key: "${file:floor.key}"}
pools:
  small: {backend: floor, cap: 1, models: [tiny]}
`
	tests := map[os.FileMode]struct{ warning, fault string }{
		0o400: {}, 0o600: {}, 0o640: {}, 0o440: {}, 0o700: {},
		0o644: {warning: "mode 0644"}, 0o660: {warning: "mode 0660"}, 0o604: {warning: "mode 0604"}, 0o444: {warning: "mode 0444"},
		0o666: {fault: "mode 0666"}, 0o602: {fault: "mode 0602"},
	}
	for mode, test := range tests {
		t.Run(fmt.Sprintf("%04o", mode), func(t *testing.T) {
			file := home(t, text)
			if err := os.Chmod(filepath.Join(filepath.Dir(file), "floor.key"), mode); err != nil {
				t.Fatal(err)
			}
			_, warnings, err := Load(file)
			if (err != nil) != (test.fault != "") || err != nil && !strings.Contains(err.Error(), test.fault) {
				t.Errorf("got fault %v, want %q", err, test.fault)
			}
			if (len(warnings) > 0) != (test.warning != "") || len(warnings) > 0 && !strings.Contains(warnings[0].Error(), test.warning) {
				t.Errorf("got warnings %v, want %q", warnings, test.warning)
			}
		})
	}
}

// TestS10NoFormOfAConfigShowsASecret prints a configuration that holds secrets, read and unread, in every way there is.
func TestS10NoFormOfAConfigShowsASecret(t *testing.T) {
	file := home(t, `
backends:
  a: {url: "http://127.0.0.1:9001", tier: floor, key: "${file:floor.key}"}
  b: {url: "http://127.0.0.1:9002", tier: floor, key: "${env:WEIR_TEST_KEY}"}
pools:
  small: {backends: [a, b], cap: 1, models: [tiny]}
`)
	c, _, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	key := c.Backends["a"].Key
	if value, err := key.Value(); err != nil || !strings.Contains(value, "canary") {
		t.Fatalf("the secret was not read: %v", err)
	}
	var out bytes.Buffer
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	out.Write(text)
	for _, x := range []any{c, *c, c.Backends, c.Backends["a"], *c.Backends["a"], key, &key, []Secret{key}, map[string]Secret{"k": key}} {
		fmt.Fprintf(&out, "%v %+v %#v %s %q %x %X %d\n", x, x, x, x, x, x, x, x)
		data, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(data)
		data, err = yaml.Dump(x)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(data)
		slog.New(slog.NewTextHandler(&out, nil)).Info("config", "x", x)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("config", "x", x)
	}
	for _, form := range []string{"canary", fmt.Sprintf("%x", "canary"), fmt.Sprintf("%X", "canary"), "99 97 110 97 114 121"} {
		if i := strings.Index(out.String(), form); i >= 0 {
			t.Errorf("a secret is shown as %s: …%s…", form, out.String()[max(0, i-100):min(out.Len(), i+40)])
		}
	}
	if !strings.Contains(out.String(), hidden) {
		t.Errorf("%s is nowhere: the test prints no secret at all", hidden)
	}
}
