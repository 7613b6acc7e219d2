package store

import (
	"context"
	"database/sql"
	"time"
)

// HandOut is a pool, or one backend of it, that was taken out by hand.
type HandOut struct {
	Pool    string
	Backend string // empty: the whole pool
	Since   time.Time
	Until   time.Time // zero: until it is put back
	Why     string
	Actor   string
}

// HandOuts reads all that is out, by pool and backend. What has come to its end is still in it until it is deleted.
func (s *Store) HandOuts(ctx context.Context) ([]HandOut, error) {
	var all []HandOut
	err := s.rows(ctx, "SELECT pool, backend, since, until, why, actor FROM pools_out ORDER BY pool, backend", func(rows *sql.Rows) error {
		var o HandOut
		var since int64
		var until sql.NullInt64
		err := rows.Scan(&o.Pool, &o.Backend, &since, &until, &o.Why, &o.Actor)
		o.Since, o.Until = time.UnixMicro(since), when(until)
		all = append(all, o)
		return err
	})
	return all, s.wrap("reading pools taken out by hand of", err)
}

// PutHandOut keeps what was taken out, in place of an older row of the same pool and backend.
func (s *Store) PutHandOut(ctx context.Context, o HandOut) error {
	_, err := s.db.ExecContext(ctx, "INSERT OR REPLACE INTO pools_out (pool, backend, since, until, why, actor) VALUES (?,?,?,?,?,?)",
		o.Pool, o.Backend, o.Since.UnixMicro(), stamp(o.Until), o.Why, o.Actor)
	return s.wrap("keeping a pool taken out by hand in", err)
}

// DeleteHandOut forgets that a backend is out, or with an empty name the pool and all its backends. Nothing there to
// forget is no error.
func (s *Store) DeleteHandOut(ctx context.Context, pool, backend string) error {
	_, err := s.db.ExecContext(ctx, "DELETE FROM pools_out WHERE pool = ? AND (? = '' OR backend = ?)", pool, backend, backend)
	return s.wrap("forgetting a pool taken out by hand in", err)
}

// ExpireHandOuts forgets what has come to its end at now.
func (s *Store) ExpireHandOuts(ctx context.Context, now time.Time) error {
	_, err := s.db.ExecContext(ctx, "DELETE FROM pools_out WHERE until <= ?", now.UnixMicro())
	return s.wrap("forgetting pools taken out by hand in", err)
}

// rows calls row for each row of a query.
func (s *Store) rows(ctx context.Context, query string, row func(*sql.Rows) error, args ...any) error {
	db, err := s.queries()
	if err != nil {
		return err
	}
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
