package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"modernc.org/sqlite"
)

// Result codes of SQLite; the low byte of an extended code.
const (
	codeBusy    = 5
	codeLocked  = 6
	codeCorrupt = 11
	codeNotADB  = 26
)

func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

func isBusy(err error) bool    { c := code(err); return c == codeBusy || c == codeLocked }
func isCorrupt(err error) bool { c := code(err); return c == codeCorrupt || c == codeNotADB }

// errMarked says that a run before this one met damage. Opening alone would not: it reads little of the file, and
// reading all of it takes seconds.
var errMarked = errors.New("the last run found the file damaged")

func (s *Store) marker() string { return s.path + ".damaged" }

// markDamaged leaves a mark for the next start, and says so loudly, once.
func (s *Store) markDamaged(cause error) {
	if !s.opts.KeepCorrupt {
		return
	}
	s.marked.Do(func() {
		err := os.WriteFile(s.marker(), []byte(cause.Error()+"\n"), 0o600)
		s.log.Error("store is damaged: events are lost until Weir is restarted; then the file is kept aside and a new one begun",
			"path", s.path, "err", errors.Join(cause, err))
	})
}

// damage looks where damage is cheap to see: a mark of an earlier run, and the roots of the tables.
func (s *Store) damage(ctx context.Context) error {
	if _, err := os.Stat(s.marker()); err == nil {
		return errMarked
	}
	if _, err := s.oldest(ctx); err != nil {
		return err
	}
	_, err := s.readKeys(ctx)
	return err
}

// startAnew keeps the damaged file aside under a name with the time and opens a new one, with the keys where the old
// file still gives them. Nothing of the old file is ever overwritten.
func (s *Store) startAnew(ctx context.Context, cause error) error {
	if !s.opts.KeepCorrupt {
		return cause
	}
	saved, keysErr := s.readKeys(ctx)
	s.db.Close()
	s.db = nil
	aside, err := keepAside(s.path)
	if err != nil {
		return fmt.Errorf("store %s is damaged and cannot be kept aside: %w", s.path, err)
	}
	if err := prepare(filepath.Dir(s.path), s.path); err != nil {
		return err
	}
	if err := s.openAndMigrate(ctx); err != nil {
		return err
	}
	if err := s.writeKeys(ctx, saved); err != nil {
		return err
	}
	if err := os.Remove(s.marker()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.log.Error("store was damaged: kept aside, a new one begun", "path", s.path, "aside", aside, "keys_saved", len(saved),
		"keys_err", keysErr, "err", cause)
	return nil
}

// keepAside renames the file and its companions.
func keepAside(path string) (string, error) {
	aside := path + ".corrupt-" + time.Now().UTC().Format("20060102T150405.000")
	if _, err := os.Lstat(aside); err == nil {
		return "", fmt.Errorf("%s exists already", aside)
	}
	for _, ext := range []string{"-wal", "-shm"} { // first: a new file must never meet the old one's log
		if err := os.Rename(path+ext, aside+ext); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return aside, os.Rename(path, aside)
}
