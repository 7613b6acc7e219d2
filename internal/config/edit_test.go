package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// glm is a list of one price.
func glm(t *testing.T, in string) Prices {
	t.Helper()
	u, err := ParseUSD(in)
	if err != nil {
		t.Fatal(err)
	}
	out := 2 * u
	return Prices{AsOf: "2026-11-30", Models: map[string]*Price{"glm-5": {In: &u, Out: &out}}}
}

// newSection is how glm(t, "0.4") is written.
const newSection = "prices:\n  as_of: '2026-11-30'\n  models:\n    glm-5: {in: 0.4, out: 0.8}\n"

func TestSetPricesKeepsEverythingElse(t *testing.T) {
	const head = "# Mine.\nbackends:   # two spaces more\n  floor: {url: \"http://127.0.0.1:9001\",   tier: floor} # here\n\n"
	const tail = "pools: # capacity\n    small: {backend: floor, cap: 1, models: [tiny]}\n"
	for name, c := range map[string]struct{ text, want string }{
		"no prices yet":                            {head + tail, head + tail + "\n" + newSection},
		"an empty line at the end":                 {head + tail + "\n", head + tail + "\n" + newSection},
		"no newline at the end":                    {head + strings.TrimSuffix(tail, "\n"), head + tail + "\n" + newSection},
		"comments at the end":                      {head + tail + "# the end\n", head + tail + "# the end\n\n" + newSection},
		"an end mark":                              {head + tail + "...\n# bye\n", head + tail + "\n" + newSection + "...\n# bye\n"},
		"a block in the middle":                    {head + "# Money.\nprices:\n  as_of: 2026-01-01 # old\n  models:\n    other:\n      in: 1\n\n# Capacity.\n" + tail, head + "# Money.\n" + newSection + "\n# Capacity.\n" + tail},
		"a block at the end":                       {head + tail + "prices:\n  models:\n    other: {in: 1}\n", head + tail + newSection},
		"a block at the end without newline":       {head + tail + "prices:\n  models:\n    other: {in: 1}", head + tail + newSection},
		"in braces on one line":                    {head + "prices: {as_of: 2026-01-01, models: {other: {in: 1}}} # x\n" + tail, head + newSection + tail},
		"in braces on several lines":               {head + "prices: {\n  as_of: 2026-01-01, # a\n  models: {\n    other: {in: 1}\n  }\n}\n" + tail, head + newSection + tail},
		"a quoted key":                             {head + "\"prices\": {}\n" + tail, head + newSection + tail},
		"a comment within, before the next key":    {head + "prices:\n  models:\n    other: {in: 1}\n    # more to come\n# Capacity.\n" + tail, head + newSection + "# Capacity.\n" + tail},
		"Windows line ends":                        {crlf(head + "prices: {}\n# Capacity.\n" + tail), crlf(head + newSection + "# Capacity.\n" + tail)},
		"Windows line ends, no newline at the end": {crlf(head + strings.TrimSuffix(tail, "\n")), crlf(head + tail + "\n" + newSection)},
		"a byte order mark":                        {"\ufeff" + tail + head, "\ufeff" + tail + head + newSection},
		"a start mark":                             {"---\n" + head + tail, "---\n" + head + tail + "\n" + newSection},
		"an indented file":                         {shift(tail + "prices: {}\n" + head), shift(tail+newSection) + shift(head)},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := SetPrices([]byte(c.text), "weir.yaml", glm(t, "0.4"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			again, err := SetPrices(got, "weir.yaml", glm(t, "0.4"))
			if err != nil || string(again) != string(got) {
				t.Errorf("not the same the second time (%v):\n%s", err, again)
			}
		})
	}
}

func crlf(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") }

// shift indents every line that is not empty.
func shift(text string) string {
	out := ""
	for line := range strings.Lines(text) {
		if line != "\n" {
			out += "  "
		}
		out += line
	}
	return out
}

func TestSetPricesRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a file with a fault": {"lisen: x\n" + sample, "lisen: unknown key"},
		"a file in braces":    {`{"backends":{"floor":{"url":"http://127.0.0.1:9001","tier":"floor"}},"pools":{"small":{"backend":"floor","cap":1,"models":["tiny"]}}}`, "written in braces"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := SetPrices([]byte(c.text), "weir.yaml", glm(t, "0.4"))
			if err == nil || got != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q, %v; want an error about %q", got, err, c.want)
			}
		})
	}
	if _, err := SetPrices([]byte(sample), "weir.yaml", Prices{AsOf: "today"}); err == nil || !strings.Contains(err.Error(), "must be a day") {
		t.Errorf("got %v", err)
	}
}

func TestSaveReplacesWholeFiles(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "weir.yaml", "old")
	link := filepath.Join(dir, "link.yaml")
	if err := errors.Join(os.Chmod(file, 0o640), os.Symlink("weir.yaml", link)); err != nil {
		t.Fatal(err)
	}
	if err := Save(link, []byte("old"), []byte("new")); err != nil {
		t.Fatal(err)
	}
	check := func(want string, mode os.FileMode) {
		t.Helper()
		data, err := os.ReadFile(file)
		info, serr := os.Lstat(file)
		if err != nil || serr != nil || string(data) != want || info.Mode() != mode {
			t.Errorf("got %q, %v (%v, %v), want %q, %v", data, info.Mode(), err, serr, want, mode)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 2 {
			t.Errorf("left behind: %v", entries)
		}
	}
	check("new", 0o640)
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is none any more")
	}
	if err := Save(file, []byte("old"), []byte("newer")); err == nil || !strings.Contains(err.Error(), "meanwhile") {
		t.Errorf("a file that was changed meanwhile: got %v", err)
	}
	check("new", 0o640)
	if err := os.Chmod(file, 0o440); err != nil {
		t.Fatal(err)
	}
	if err := Save(file, []byte("new"), []byte("newer")); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("a read-only file: got %v", err)
	}
	check("new", 0o440)
}
