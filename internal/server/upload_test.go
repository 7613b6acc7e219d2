package server

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"weir/internal/llm"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// C121: up to a bound an upload lies in memory, beyond it in a file that has no name and is gone with its owner.
func TestUploadsAreKept(t *testing.T) {
	for _, c := range []struct {
		name          string
		length, bytes int
		file          bool
	}{
		{"small and announced", 1000, 1000, false},
		{"small and not announced", -1, 1000, false},
		{"as large as memory may be", inMemory, inMemory, false},
		{"a byte more, announced", inMemory + 1, inMemory + 1, true},
		{"a byte more, not announced", -1, inMemory + 1, true},
		{"large and not announced", -1, 5 << 20, true},
		{"empty", 0, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			u, err := newUpload(dir, int64(c.length))
			if err != nil {
				t.Fatal(err)
			}
			defer u.Close()
			want := bytes.Repeat([]byte("0123456789abcde\n"), c.bytes/16+1)[:c.bytes]
			for rest := want; len(rest) > 0; {
				n := min(len(rest), 60_000)
				if _, err := u.Write(rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			got, err := io.ReadAll(io.NewSectionReader(u, 0, int64(u.size)))
			if err != nil || !bytes.Equal(got, want) || u.size != c.bytes {
				t.Errorf("%d bytes read back, size %d, %v; want %d", len(got), u.size, err, c.bytes)
			}
			if (u.file != nil) != c.file || c.file && u.mem != nil {
				t.Errorf("in a file %v beside %d bytes in memory, want %v", u.file != nil, len(u.mem), c.file)
			}
			if !c.file {
				return
			}
			if info, err := u.file.Stat(); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
			if list := names(t, dir); runtime.GOOS == "linux" && len(list) > 0 {
				t.Errorf("while it is open the folder holds %v", list)
			}
			u.Close()
			u.Close()
			if list := names(t, dir); len(list) > 0 {
				t.Errorf("the folder still holds %v", list)
			}
			if _, err := u.ReadAt(make([]byte, 1), 0); llm.KindOf(err) != llm.Internal {
				t.Errorf("reading it after its end: %v", err)
			}
		})
	}
}

// A disk that takes no more is a failure of this side, told without its paths.
func TestUploadsThatCannotBeKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	u, err := newUpload(dir, -1)
	if err == nil {
		_, err = u.Write(make([]byte, inMemory+1))
	}
	if e := llm.AsError(err); e.Kind != llm.Internal || !strings.Contains(e.Msg, "its disk") || strings.Contains(e.Msg, dir) {
		t.Errorf("got %v", err)
	}
	if _, err := newUpload(dir, inMemory+1); llm.KindOf(err) != llm.Internal {
		t.Errorf("announced: %v", err)
	}
}

func TestUploadsOfAnEarlierRunAreSwept(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"upload-1.tmp", "upload-xyz.tmp", "weir.db", "upload-1.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := SweepUploads(dir); err != nil {
		t.Fatal(err)
	}
	if list := names(t, dir); len(list) != 2 || !strings.HasSuffix(list[0], "upload-1.txt") || !strings.HasSuffix(list[1], "weir.db") {
		t.Errorf("left: %v", list)
	}
	if err := SweepUploads(filepath.Join(dir, "nowhere")); err != nil {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// A form reads the same for each attempt, but for the model's name.
func TestFormsGoUpWithAnotherModel(t *testing.T) {
	for name, fields := range map[string][]field{
		"in memory": {{"file", "a.wav", "RIFF"}, {name: "model", value: "m"}, {name: "language", value: "en"}},
		"in a file": {{"file", "a.wav", strings.Repeat("RIFF", inMemory)}, {name: "model", value: "m"}, {name: "language", value: "en"}},
	} {
		body := made(t, fields...)
		u, err := newUpload(t.TempDir(), -1)
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		if _, err := u.Write(body); err != nil {
			t.Fatal(err)
		}
		f, err := scan(edge, body, 60_000)
		if err != nil {
			t.Fatal(err)
		}
		form := llm.Form{From: u, Size: u.size, Model: f.where}
		for _, model := range []string{"m", "openai/whisper-large-v3", ""} {
			r, size := form.With(model)
			got, err := io.ReadAll(r)
			want := bytes.Replace(body, []byte("\r\n\r\nm\r\n"), []byte("\r\n\r\n"+model+"\r\n"), 1)
			if err != nil || !bytes.Equal(got, want) || size != int64(len(want)) {
				t.Errorf("%s, model %q: %d bytes, size %d, want %d; %v", name, model, len(got), size, len(want), err)
			}
		}
	}
}
