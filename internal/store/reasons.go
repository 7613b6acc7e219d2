package store

import (
	"context"
	"database/sql"
)

// ReasonCount is how many rows of one pool have one reason.
type ReasonCount struct {
	Pool   string // that answered, or that the fact is about; empty: none
	Reason string // empty: none
	Count  int64
}

// RequestReasons counts the requests that match by pool and reason of their reroute, most first, without a limit.
func (s *Store) RequestReasons(ctx context.Context, q Query) ([]ReasonCount, error) {
	where, args := q.requests()
	return s.reasons(ctx, "requests", "reroute", where, args)
}

// FactReasons counts the facts that match by pool and reason, most first, without a limit.
func (s *Store) FactReasons(ctx context.Context, q Query) ([]ReasonCount, error) {
	where, args := q.facts()
	return s.reasons(ctx, "facts", "reason", where, args)
}

func (s *Store) reasons(ctx context.Context, table, column string, where []string, args []any) ([]ReasonCount, error) {
	text := "SELECT pool, " + column + ", count(*) FROM " + table + condition(where) + " GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2"
	var all []ReasonCount
	err := s.rows(ctx, text, func(rows *sql.Rows) error {
		var c ReasonCount
		err := rows.Scan(str{&c.Pool}, str{&c.Reason}, &c.Count)
		all = append(all, c)
		return err
	}, args...)
	return all, s.wrap("counting events of", err)
}
