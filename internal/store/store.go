// Package store keeps what Weir must remember in one SQLite file of its data folder: a row per request, facts without
// a request, keys, prefill rates, small settings, and the responses that a key or route says are kept. Nothing else in
// it holds prompts or answers, and nothing holds secrets: of a key only its hash. Words such as `weir keys` open the
// same file beside a running Weir (WAL, busy timeout).
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver named "sqlite"
)

// File is the name of the SQLite file in the data folder.
const File = "weir.db"

const (
	busyTimeout = 2 * time.Second
	walLimit    = 32 << 20 // the write-ahead log is cut back to this size after a checkpoint
)

// Options say how a store is opened. The zero value opens it for reading and writing.
type Options struct {
	// ReadOnly opens an existing file for queries alone: it is neither created nor migrated.
	ReadOnly bool
	// KeepCorrupt moves a file that is not a usable database aside and starts a new one, saving the keys where they
	// can still be read. Only the holder of the data folder's Lock may ask for it.
	KeepCorrupt bool
	// Log takes warnings and errors; nil is silent.
	Log *slog.Logger
	// Keep is the age and MaxSize the bytes beyond which Run deletes the oldest events; zero means 30 days and 1 GiB. Kept
	// responses do not count.
	Keep    time.Duration
	MaxSize int64
}

// Store is an open file. All methods are safe for concurrent use. Writes share one connection, so that DataVersion
// changes only with writes of other processes.
type Store struct {
	path string
	opts Options
	log  *slog.Logger
	db   *sql.DB     // one connection: all writes, and DataVersion
	info os.FileInfo // of the file that is open

	marked  sync.Once
	inserts *inserts // owned by whoever holds db's connection

	mu     sync.Mutex // guards the field below
	reader *sql.DB    // opened at the first query
}

// Open opens the store in dir, which is made with mode 0700 where it is missing; the file has mode 0600. A file of an
// older Weir is migrated, one of a newer Weir is refused. The caller must Close the store.
func Open(ctx context.Context, dir string, opts Options) (*Store, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Keep <= 0 {
		opts.Keep = 30 * 24 * time.Hour
	}
	if opts.MaxSize <= 0 {
		opts.MaxSize = 1 << 30
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	s := &Store{path: filepath.Join(dir, File), opts: opts, log: opts.Log}
	if opts.ReadOnly {
		if err := s.openExisting(ctx); err != nil {
			return nil, err
		}
		return s, nil
	}
	if err := prepare(dir, s.path); err != nil {
		return nil, err
	}
	err = s.openAndMigrate(ctx)
	if err == nil && opts.KeepCorrupt {
		err = s.damage(ctx)
	}
	if isCorrupt(err) || errors.Is(err, errMarked) {
		err = s.startAnew(ctx, err)
	}
	if err == nil {
		s.info, err = os.Stat(s.path)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Path is the store's file.
func (s *Store) Path() string { return s.path }

// Close gives the file back. Calls that are running end first.
func (s *Store) Close() error {
	s.mu.Lock()
	dbs := []*sql.DB{s.reader, s.db}
	s.reader = nil
	s.mu.Unlock()
	errs := []error{s.closeInserts()}
	for _, db := range dbs {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

func (s *Store) closeInserts() error {
	if s.db == nil {
		return nil
	}
	conn, err := s.db.Conn(context.Background())
	if err != nil {
		return nil // closed before
	}
	defer conn.Close()
	return conn.Raw(func(dc any) error {
		in := s.inserts
		s.inserts = nil
		if in == nil || in.conn != dc { // those of a connection that is gone went with it
			return nil
		}
		return in.close()
	})
}

// DataVersion is a number that differs from its last value when another process has changed the file since. Changes
// made through this Store do not move it.
func (s *Store) DataVersion(ctx context.Context) (int64, error) {
	var v int64
	if err := s.db.QueryRowContext(ctx, "PRAGMA data_version").Scan(&v); err != nil {
		return 0, s.wrap("looking for changes", err)
	}
	return v, nil
}

// prepare makes the folder and the file with narrow modes, so that SQLite never makes a wider one.
func prepare(dir, path string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the data folder: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("opening the store: %w (the data folder must be writable by the user who runs Weir)", err)
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Mode().Perm()&0o077 != 0 {
		if err := f.Chmod(0o600); err != nil {
			return fmt.Errorf("store %s can be read by others, and its mode cannot be changed: %w", path, err)
		}
	}
	return nil
}

func (s *Store) openExisting(ctx context.Context) error {
	if _, err := os.Stat(s.path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("there is no store at %s yet: `weir run` or `weir keys add` makes it: %w", s.path, fs.ErrNotExist)
		}
		return fmt.Errorf("opening the store: %w", err)
	}
	db, err := openDB(s.path, "query_only(1)")
	if err != nil {
		return err
	}
	s.db = db
	v, err := userVersion(ctx, db)
	if err == nil {
		err = s.checkVersion(v, true)
	}
	if err != nil {
		db.Close()
		return s.wrap("opening", err)
	}
	return nil
}

func (s *Store) openAndMigrate(ctx context.Context) error {
	db, err := openDB(s.path, "auto_vacuum(incremental)", "journal_mode(WAL)", "synchronous(normal)",
		"secure_delete(on)", // a response that is deleted is gone from the file
		fmt.Sprintf("journal_size_limit(%d)", walLimit))
	if err != nil {
		return err
	}
	s.db = db
	v, err := userVersion(ctx, db)
	if err != nil {
		return s.wrap("opening", err)
	}
	if v == schemaVersion {
		return nil
	}
	if err := s.checkVersion(v, false); err != nil {
		return err
	}
	if err := migrate(ctx, s.path, db); err != nil {
		return s.wrap("migrating", err)
	}
	return nil
}

// openDB opens path with one connection. Pragmas run in order on it; the busy timeout comes first.
func openDB(path string, pragmas ...string) (*sql.DB, error) {
	q := url.Values{"_txlock": {"immediate"}, "mode": {"rw"}}
	q.Add("_pragma", fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()))
	for _, p := range pragmas {
		q.Add("_pragma", p)
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

// queries gives the connection for reading, so that a long query never keeps the writer waiting.
func (s *Store) queries() (*sql.DB, error) {
	if s.opts.ReadOnly {
		return s.db, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader == nil {
		db, err := openDB(s.path, "query_only(1)")
		if err != nil {
			return nil, err
		}
		db.SetConnMaxIdleTime(time.Minute) // a connection's cache is memory
		s.reader = db
	}
	return s.reader, nil
}

// wrap says which store and, where it is known, what to do.
func (s *Store) wrap(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case isBusy(err):
		return fmt.Errorf("%s store %s: another process holds it for longer than %v: %w", doing, s.path, busyTimeout, err)
	case isCorrupt(err):
		s.markDamaged(err)
		return fmt.Errorf("%s store %s: the file is damaged; the next start of `weir run` keeps it aside and begins a new one: %w", doing, s.path, err)
	}
	return fmt.Errorf("%s store %s: %w", doing, s.path, err)
}
