package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"go.uber.org/goleak"

	"weir/internal/llm"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// decode decodes a request for a message that must be right.
func decode(t testing.TB, body string) *llm.Request {
	t.Helper()
	r, err := Dialect{}.Decode(llm.Chat, []byte(body), 100)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

// refusal returns the error that err must be.
func refusal(t *testing.T, err error) *llm.Error {
	t.Helper()
	e, ok := errors.AsType[*llm.Error](err)
	if !ok {
		t.Fatalf("got %v, want an *llm.Error", err)
	}
	return e
}

// feed passes body through s in pieces of size bytes and returns what goes to the client, the end included.
func feed(s llm.Stream, body []byte, size int) ([]byte, error) {
	var out []byte
	for len(body) > 0 && !s.Seen().Done {
		n := copy(s.Space(), body[:min(size, len(body))])
		body = body[n:]
		p, err := s.Feed(n)
		out = append(out, p...)
		if err != nil {
			return out, err
		}
	}
	p, err := s.End()
	return append(out, p...), err
}

// golden runs f over the archives of a folder: f gets the files of one and returns what the file "want" is to hold.
func golden(t *testing.T, folder string, f func(t *testing.T, in map[string]string) string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.txtar"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no archives in %s: %v", folder, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			in := map[string]string{}
			at := -1
			for i, file := range a.Files {
				in[file.Name] = string(bytes.TrimSuffix(file.Data, []byte("\n")))
				if file.Name == "want" {
					at = i
				}
			}
			got := f(t, in)
			if *update {
				if at < 0 {
					a.Files, at = append(a.Files, txtar.File{Name: "want"}), len(a.Files)
				}
				a.Files[at].Data = []byte(got + "\n")
				if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(in["want"], got); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
		})
	}
}

// indented returns JSON for people to read, numbers kept as they are.
func indented(t *testing.T, raw []byte) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		t.Fatalf("not JSON: %v\n%s", err, raw)
	}
	return out.String()
}
