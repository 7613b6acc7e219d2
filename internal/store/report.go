package store

import (
	"context"
	"database/sql"
	"time"
)

// Outline says how much there is to report of a period.
type Outline struct {
	Requests int64
	First    time.Time // of the earliest request or fact; zero where there is none
}

// since narrows requests to those from ?1 on. They are read in the order of the table, which is that of time but for a
// clock that was set: to look each up by the index of times costs four times as much.
const since = "id >= (SELECT min(id) FROM requests INDEXED BY requests_time WHERE time >= ?1) AND +time >= ?1"

// Outline counts the requests that began at or after from; a zero from is all that is kept.
func (s *Store) Outline(ctx context.Context, from time.Time) (o Outline, err error) {
	db, err := s.queries()
	if err != nil {
		return o, err
	}
	var request, fact sql.NullInt64
	err = db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM requests WHERE time >= ?1),
		(SELECT min(time) FROM requests WHERE time >= ?1), (SELECT min(time) FROM facts WHERE time >= ?1)`, startOf(from)).Scan(&o.Requests, &request, &fact)
	if err != nil {
		return o, s.wrap("counting events of", err)
	}
	o.First = when(request)
	if t := when(fact); o.First.IsZero() || !t.IsZero() && t.Before(o.First) {
		o.First = t
	}
	return o, nil
}

// Work is what the requests of a period asked of one model of one pool. Counting tokens is no such work.
type Work struct {
	Pool, Model              string
	Requests                 int64
	In, Out, Cached, Written int64 // tokens: sums of those that are known
}

// Work sums up the requests since a moment by the pool and model that answered, most requests first.
func (s *Store) Work(ctx context.Context, from time.Time) ([]Work, error) {
	var all []Work
	err := s.rows(ctx, `SELECT pool, model, count(*), coalesce(sum(tokens_in), 0), coalesce(sum(tokens_out), 0),
			coalesce(sum(tokens_cached), 0), coalesce(sum(tokens_written), 0)
		FROM requests WHERE `+since+` AND pool IS NOT NULL AND op IS NOT 'count' GROUP BY pool, model ORDER BY 3 DESC, 1, 2`, func(rows *sql.Rows) error {
		var w Work
		err := rows.Scan(&w.Pool, str{&w.Model}, &w.Requests, &w.In, &w.Out, &w.Cached, &w.Written)
		all = append(all, w)
		return err
	}, startOf(from))
	return all, s.wrap("summing the work in", err)
}

// WalkRequests calls f for each request since a moment, in the order in which they ended. The row is f's until it returns;
// it lacks what no report needs: dialect, alias, key, session, tag, version, trace and shape. An error of f ends the walk
// and is returned. Long walks keep no writer waiting.
func (s *Store) WalkRequests(ctx context.Context, from time.Time, f func(*Request) error) error {
	var r Request
	texts := []*string{&r.Request, &r.Op, &r.Class, &r.Route, &r.Tier, &r.Pool, &r.Backend, &r.Model, &r.Served, &r.Kind, &r.Message, &r.Reroute, &r.Attempts}
	durations := []*time.Duration{&r.Queue, &r.First, &r.Total, &r.Overhead}
	numbers := []*int64{&r.TokensIn, &r.TokensOut, &r.TokensCached, &r.TokensWritten, &r.Cost}
	values := make([]any, 2+len(texts)+len(durations)+len(numbers)) // a scanner for each column would cost as much as the query
	into := make([]any, len(values))
	for i := range values {
		into[i] = &values[i]
	}
	err := s.rows(ctx, `SELECT time, coalesce(status, 0), request, op, class, route, tier, pool, backend, model, served, kind, message, reroute, attempts,
			queue, first, total, overhead, tokens_in, tokens_out, tokens_cached, tokens_written, cost
		FROM requests WHERE `+since+` ORDER BY id`, func(rows *sql.Rows) error {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		rest := values[2:]
		for i, to := range texts {
			*to, _ = rest[i].(string) // what is NULL, or odd, is empty
		}
		for i, to := range durations {
			*to = max(-1, time.Duration(number(rest[len(texts)+i]))*time.Microsecond)
		}
		for i, to := range numbers {
			*to = number(rest[len(texts)+len(durations)+i])
		}
		r.Time, r.Status = time.UnixMicro(number(values[0])), int(number(values[1]))
		return f(&r)
	}, startOf(from))
	return s.wrap("reading requests of", err)
}

// number is a column's number; -1 where it is NULL.
func number(v any) int64 {
	if n, ok := v.(int64); ok {
		return n
	}
	return -1
}

// WalkFacts calls f for each fact since a moment, oldest first, and before these for what happened earlier to pools
// (health, alert): it may last. The row is f's until it returns. An error of f ends the walk and is returned.
func (s *Store) WalkFacts(ctx context.Context, from time.Time, f func(*Fact) error) error {
	err := s.rows(ctx, "SELECT id, "+factColumns+" FROM facts WHERE time >= ? OR event IN ('health', 'alert') ORDER BY time, id", func(rows *sql.Rows) error {
		fact, err := scanFact(rows)
		if err != nil {
			return err
		}
		return f(&fact)
	}, startOf(from))
	return s.wrap("reading facts of", err)
}

// startOf is a moment as the tables have it; a zero one is before all.
func startOf(from time.Time) int64 {
	if from.IsZero() {
		return -1 << 63
	}
	return from.UnixMicro()
}
