package store

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Prefill is what was last measured of one backend of a pool.
type Prefill struct {
	Pool, Backend string
	Rate          float64 // prompt tokens per second
	Time          time.Time
}

// Prefills reads all rates.
func (s *Store) Prefills(ctx context.Context) ([]Prefill, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT pool, backend, rate, time FROM prefill ORDER BY pool, backend")
	if err != nil {
		return nil, s.wrap("reading prefill rates of", err)
	}
	defer rows.Close()
	var all []Prefill
	for rows.Next() {
		var p Prefill
		var at int64
		if err := rows.Scan(&p.Pool, &p.Backend, &p.Rate, &at); err != nil {
			return nil, s.wrap("reading prefill rates of", err)
		}
		p.Time = time.UnixMicro(at)
		all = append(all, p)
	}
	return all, s.wrap("reading prefill rates of", rows.Err())
}

// WritePrefills keeps the rates, replacing older ones of the same pool and backend, in one transaction.
func (s *Store) WritePrefills(ctx context.Context, rates []Prefill) error {
	return s.wrap("writing prefill rates to", s.inTx(ctx, func(tx *sql.Tx) error {
		for _, p := range rates {
			if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO prefill (pool, backend, rate, time) VALUES (?,?,?,?)",
				p.Pool, p.Backend, p.Rate, p.Time.UnixMicro()); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Meta reads a small setting; empty where it was never set.
func (s *Store) Meta(ctx context.Context, name string) (string, error) {
	var v string
	err := s.db.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = ?", name).Scan(&v)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return v, s.wrap("reading from", err)
}

// SetMeta keeps a small setting. It must not be a secret.
func (s *Store) SetMeta(ctx context.Context, name, value string) error {
	_, err := s.db.ExecContext(ctx, "INSERT OR REPLACE INTO meta (name, value) VALUES (?,?)", name, value)
	return s.wrap("writing to", err)
}
