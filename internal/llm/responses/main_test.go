package responses

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"go.uber.org/goleak"

	"weir/internal/llm"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// decode decodes a request that must be right.
func decode(t testing.TB, body string) *llm.Request {
	t.Helper()
	r, err := Dialect{}.Decode(llm.Chat, []byte(body), 100)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

// refusal returns the error that err must be.
func refusal(t testing.TB, err error) *llm.Error {
	t.Helper()
	e, ok := errors.AsType[*llm.Error](err)
	if !ok {
		t.Fatalf("got %v, want an *llm.Error", err)
	}
	return e
}

// golden runs f on the files of each archive in a folder of testdata and compares what it returns with the archive's file
// of the name want.
func golden(t *testing.T, folder, want string, f func(t *testing.T, file func(name string) string) string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.txtar"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no archives in testdata/%s: %v", folder, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path[:len(path)-len(".txtar")]), func(t *testing.T) {
			ar, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			file := func(name string) string {
				for _, f := range ar.Files {
					if f.Name == name {
						return string(f.Data)
					}
				}
				return ""
			}
			got := f(t, file)
			if got != "" && got[len(got)-1] != '\n' {
				got += "\n"
			}
			if *update {
				var kept []txtar.File
				for _, f := range ar.Files {
					if f.Name != want {
						kept = append(kept, f)
					}
				}
				ar.Files = append(kept, txtar.File{Name: want, Data: []byte(got)})
				if err := os.WriteFile(path, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != file(want) {
				t.Errorf("got\n%s\nwant\n%s", got, file(want))
			}
		})
	}
}
