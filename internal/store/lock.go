package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// LockFile is the name of the file in the data folder that a running Weir holds.
const LockFile = "weir.lock"

// ErrLocked is what Lock's error wraps when another process holds the data folder.
var ErrLocked = errors.New("the data folder is in use")

// Folder is the hold on a data folder. It ends with Unlock or with the process, whatever kills it.
type Folder struct{ f *os.File }

// Lock takes the data folder for this process, making it with mode 0700 where it is missing. It does not wait: when
// another process holds the folder, the error wraps ErrLocked and names that process.
func Lock(dir string) (*Folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the data folder: %w", err)
	}
	path := filepath.Join(dir, LockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the data folder: %w (it must be writable by the user who runs Weir)", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		return nil, fmt.Errorf("%w: %s is held by %s; stop that one, or set another `data:` folder", ErrLocked, dir, holder(f))
	}
	text := fmt.Sprintf("pid %d since %s\n", os.Getpid(), time.Now().UTC().Format(time.RFC3339))
	if err := errors.Join(f.Truncate(0), writeAt(f, text)); err != nil {
		f.Close()
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	return &Folder{f}, nil
}

// Unlock gives the folder back. The lock file stays: removing it would let two processes hold two files of one name.
func (l *Folder) Unlock() error {
	return errors.Join(l.f.Truncate(0), l.f.Close())
}

func holder(f *os.File) string {
	b, _ := io.ReadAll(io.LimitReader(f, 100))
	if text := strings.TrimSpace(string(b)); text != "" {
		return "another weir run (" + text + ")"
	}
	return "another process"
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// flockWait takes the lock of a file for a short time, waiting for others.
func flockWait(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
