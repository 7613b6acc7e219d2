package server

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"weir/internal/llm"
)

// inMemory is how much of an upload is kept there; a larger one lies in a file.
const inMemory = 1 << 20

// uploadFile is how the files of uploads are named.
const uploadFile = "upload-*.tmp"

// upload keeps the bytes of one body, in memory or in a file that nobody else sees. It is written by one goroutine, then
// read by any number. The caller must call Close.
type upload struct {
	dir  string // empty: that of the system
	mem  []byte
	file *os.File
	left string // the file's name, where it could not be taken away while open
	size int
}

// newUpload returns an upload for a body of the announced length, negative where it is not known.
func newUpload(dir string, length int64) (*upload, error) {
	u := &upload{dir: dir}
	switch {
	case length > inMemory:
		return u, u.toFile()
	case length > 0:
		u.mem = make([]byte, 0, length)
	}
	return u, nil
}

// Write keeps p.
func (u *upload) Write(p []byte) (int, error) {
	if u.file == nil && u.size+len(p) > inMemory {
		if err := u.toFile(); err != nil {
			return 0, err
		}
	}
	u.size += len(p)
	if u.file == nil {
		u.mem = append(u.mem, p...)
		return len(p), nil
	}
	if n, err := u.file.Write(p); err != nil {
		return n, unkept(err)
	}
	return len(p), nil
}

// toFile moves what has come to a file. It loses its name at once: whatever ends the process, nothing stays behind.
func (u *upload) toFile() (err error) {
	if u.file, err = os.CreateTemp(u.dir, uploadFile); err != nil {
		return unkept(err)
	}
	if os.Remove(u.file.Name()) != nil {
		u.left = u.file.Name() // a system that keeps the names of open files
	}
	if _, err = u.file.Write(u.mem); err != nil {
		return unkept(err)
	}
	u.mem = nil
	return nil
}

func unkept(err error) error {
	return &llm.Error{Kind: llm.Internal, Op: "server.upload", Err: err,
		Msg: "Weir could not keep the upload on its disk; is there room for it?"}
}

// ReadAt reads what was written.
func (u *upload) ReadAt(p []byte, off int64) (n int, err error) {
	switch {
	case u.file != nil:
		n, err = u.file.ReadAt(p, off)
	case off < int64(len(u.mem)):
		n = copy(p, u.mem[off:])
	}
	if err == nil && n < len(p) {
		err = io.EOF
	}
	if err != nil && err != io.EOF {
		err = &llm.Error{Kind: llm.Internal, Op: "server.upload", Err: err, Msg: "Weir could not read the upload back from its disk"}
	}
	return n, err
}

// Close takes the file away. A connection that still reads the upload gets an error. A second call does nothing.
func (u *upload) Close() {
	if u.file != nil {
		u.file.Close()
	}
	if u.left != "" {
		_ = os.Remove(u.left)
		u.left = ""
	}
}

// SweepUploads takes away the files of uploads that an earlier process left in dir. Nobody else may be using dir.
func SweepUploads(dir string) error {
	list, err := filepath.Glob(filepath.Join(dir, uploadFile))
	if err != nil {
		return fmt.Errorf("looking for uploads of an earlier run: %w", err)
	}
	for _, name := range list {
		if err := os.Remove(name); err != nil {
			return fmt.Errorf("an upload of an earlier run: %w", err)
		}
	}
	return nil
}
