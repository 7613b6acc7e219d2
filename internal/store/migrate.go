package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/pressly/goose/v3"
)

// schemaVersion is the newest migration. Each migration ends with `PRAGMA user_version = N`, which is read at open in
// microseconds, so that goose runs only where there is something to do.
const schemaVersion = 4

//go:embed migrations/*.sql
var migrations embed.FS

func userVersion(ctx context.Context, db *sql.DB) (int, error) {
	var v int
	err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v)
	return v, err
}

// checkVersion refuses what this Weir cannot read.
func (s *Store) checkVersion(v int, readOnly bool) error {
	switch {
	case v > schemaVersion:
		return fmt.Errorf("store %s has schema %d, this Weir knows %d: it was written by a newer Weir; use that one, or another data folder",
			s.path, v, schemaVersion)
	case v < schemaVersion && readOnly:
		return fmt.Errorf("store %s has schema %d, this Weir needs %d: start `weir run` once to bring it up to date", s.path, v, schemaVersion)
	}
	return nil
}

// migrate brings the file up to date, one process at a time.
func migrate(ctx context.Context, path string, db *sql.DB) error {
	unlock, err := flockWait(ctx, filepath.Join(filepath.Dir(path), "migrate.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, dir, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}
