package store

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Version is one accepted text of the configuration.
type Version struct {
	Number int64 // rises, is never used again
	Time   time.Time
	Sum    string // SHA-256 of Text, in hex
	Text   []byte
	Author string
	Note   string // how it came, and the author's words
	Smoke  string // JSON of the smoke result; empty: there was none
}

// mostVersions are kept; older ones go when another comes.
const mostVersions = 1000

// AddVersion keeps a version and returns its number; the one in v is ignored.
func (s *Store) AddVersion(ctx context.Context, v Version) (number int64, err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, s.wrap("keeping a version in", err)
	}
	defer tx.Rollback() // does nothing once it is committed
	r, err := tx.ExecContext(ctx, "INSERT INTO versions (time, sum, text, author, note, smoke) VALUES (?,?,?,?,?,?)",
		v.Time.UnixMicro(), v.Sum, v.Text, v.Author, v.Note, v.Smoke)
	if err == nil {
		number, err = r.LastInsertId()
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, "DELETE FROM versions WHERE id <= ?", number-mostVersions)
	}
	if err == nil {
		err = tx.Commit()
	}
	return number, s.wrap("keeping a version in", err)
}

// DropVersion forgets a version that never came into force. Its number is not used again.
func (s *Store) DropVersion(ctx context.Context, number int64) error {
	_, err := s.db.ExecContext(ctx, "DELETE FROM versions WHERE id = ?", number)
	return s.wrap("forgetting a version in", err)
}

// SetSmoke keeps what the smoke test of a version found, as JSON.
func (s *Store) SetSmoke(ctx context.Context, number int64, smoke string) error {
	_, err := s.db.ExecContext(ctx, "UPDATE versions SET smoke = ? WHERE id = ?", smoke, number)
	return s.wrap("keeping a smoke result in", err)
}

// Versions lists all versions without their texts, the oldest first.
func (s *Store) Versions(ctx context.Context) ([]Version, error) {
	var all []Version
	err := s.rows(ctx, "SELECT id, time, sum, NULL, author, note, smoke FROM versions ORDER BY id", func(rows *sql.Rows) error {
		v, err := scanVersion(rows)
		all = append(all, v)
		return err
	})
	return all, s.wrap("reading versions of", err)
}

// ErrNoVersion says that there is no version of that number.
var ErrNoVersion = errors.New("there is no such version")

// Version reads one version, with its text. The error is ErrNoVersion where there is none.
func (s *Store) Version(ctx context.Context, number int64) (v Version, err error) {
	err = ErrNoVersion
	fault := s.rows(ctx, "SELECT id, time, sum, text, author, note, smoke FROM versions WHERE id = ?", func(rows *sql.Rows) error {
		v, err = scanVersion(rows)
		return err
	}, number)
	if fault != nil {
		return v, s.wrap("reading a version of", fault)
	}
	return v, err
}

func scanVersion(rows *sql.Rows) (Version, error) {
	var v Version
	var at int64
	err := rows.Scan(&v.Number, &at, &v.Sum, &v.Text, &v.Author, &v.Note, &v.Smoke)
	v.Time = time.UnixMicro(at)
	return v, err
}
