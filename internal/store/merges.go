package store

import (
	"context"
	"database/sql"
	"time"
)

// Merge says that the calls of one pool are served by another one.
type Merge struct {
	Asked    string    // pool
	Serving  string    // pool
	Vendor   string    // the host of both
	State    string    // learnt, confirmed, undone
	Time     time.Time // of the last change
	Evidence string    // human words: what was asked, what the answers named
}

// Merges reads all merges, undone ones too, by the pool that was asked.
func (s *Store) Merges(ctx context.Context) ([]Merge, error) {
	var all []Merge
	err := s.rows(ctx, "SELECT asked, serving, vendor, state, time, evidence FROM merges ORDER BY asked", func(rows *sql.Rows) error {
		var m Merge
		var at int64
		err := rows.Scan(&m.Asked, &m.Serving, &m.Vendor, &m.State, &at, &m.Evidence)
		m.Time = time.UnixMicro(at)
		all = append(all, m)
		return err
	})
	return all, s.wrap("reading merges of", err)
}

// PutMerge keeps a merge, in place of an older one of the same asked pool.
func (s *Store) PutMerge(ctx context.Context, m Merge) error {
	_, err := s.db.ExecContext(ctx, "INSERT OR REPLACE INTO merges (asked, serving, vendor, state, time, evidence) VALUES (?,?,?,?,?,?)",
		m.Asked, m.Serving, m.Vendor, m.State, m.Time.UnixMicro(), m.Evidence)
	return s.wrap("keeping a merge in", err)
}

// DeleteMerge forgets the merge of an asked pool. Nothing there to forget is no error.
func (s *Store) DeleteMerge(ctx context.Context, asked string) error {
	_, err := s.db.ExecContext(ctx, "DELETE FROM merges WHERE asked = ?", asked)
	return s.wrap("forgetting a merge in", err)
}
