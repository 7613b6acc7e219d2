package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"
	"time"
)

// Query narrows what Requests, Facts and their counts return. Zero fields do not narrow.
type Query struct {
	Request string    // the whole id of a request
	Event   string    // facts: this event. Requests: reroute (has a reason) or skip (a step was not called)
	Reason  string    // reroute reason, or a fact's reason
	Kind    string    // kind of failure
	Key     string    // requests: the key's name or prefix
	Session string    // requests: of this conversation
	Tag     string    // requests: with this label
	Since   time.Time // at or after
	Limit   int       // at most so many, the newest; 0 means 1,000

	Follow bool  // only rows after After, and where there are more than Limit the oldest of them
	After  int64 // a row number; 0 is before the first
}

const defaultLimit = 1000

// Requests returns the newest rows that match, oldest first.
func (s *Store) Requests(ctx context.Context, q Query) ([]Request, error) {
	where, args := q.requests()
	var all []Request
	err := s.each(ctx, "requests", requestColumns, where, args, q, func(rows *sql.Rows) error {
		r, err := scanRequest(rows)
		all = append(all, r)
		return err
	})
	return all, err
}

// Facts returns the newest rows that match, oldest first.
func (s *Store) Facts(ctx context.Context, q Query) ([]Fact, error) {
	where, args := q.facts()
	var all []Fact
	err := s.each(ctx, "facts", factColumns, where, args, q, func(rows *sql.Rows) error {
		f, err := scanFact(rows)
		all = append(all, f)
		return err
	})
	return all, err
}

// CountRequests counts the rows that match, without a limit.
func (s *Store) CountRequests(ctx context.Context, q Query) (int64, error) {
	where, args := q.requests()
	return s.count(ctx, "requests", where, args)
}

// CountFacts counts the rows that match, without a limit.
func (s *Store) CountFacts(ctx context.Context, q Query) (int64, error) {
	where, args := q.facts()
	return s.count(ctx, "facts", where, args)
}

// LastRows are the newest row numbers of requests and facts: where following begins.
func (s *Store) LastRows(ctx context.Context) (requests, facts int64, err error) {
	db, err := s.queries()
	if err != nil {
		return 0, 0, err
	}
	err = db.QueryRowContext(ctx, "SELECT (SELECT coalesce(max(id), 0) FROM requests), (SELECT coalesce(max(id), 0) FROM facts)").Scan(&requests, &facts)
	return requests, facts, s.wrap("reading events of", err)
}

func (q Query) requests() (where []string, args []any) {
	add := func(cond string, a ...any) { where, args = append(where, cond), append(args, a...) }
	switch q.Event {
	case "reroute":
		add("reroute IS NOT NULL")
	case "skip":
		add(`instr(attempts, '"sent":false') > 0`)
	}
	if q.Request != "" {
		add("request = ?", q.Request)
	}
	if q.Reason != "" {
		add("reroute = ?", q.Reason)
	}
	if q.Kind != "" {
		add("kind = ?", q.Kind)
	}
	if q.Key != "" {
		add("(key = ? OR key_id = ?)", q.Key, q.Key)
	}
	if q.Session != "" {
		add("session = ?", q.Session)
	}
	if q.Tag != "" {
		add("tag = ?", q.Tag)
	}
	return q.common(where, args)
}

func (q Query) facts() (where []string, args []any) {
	for _, c := range []struct{ column, value string }{{"event", q.Event}, {"request", q.Request}, {"reason", q.Reason}, {"kind", q.Kind}} {
		if c.value != "" {
			where, args = append(where, c.column+" = ?"), append(args, c.value)
		}
	}
	return q.common(where, args)
}

func (q Query) common(where []string, args []any) ([]string, []any) {
	if !q.Since.IsZero() {
		where, args = append(where, "time >= ?"), append(args, q.Since.UnixMicro())
	}
	if q.Follow {
		where, args = append(where, "id > ?"), append(args, q.After)
	}
	return where, args
}

func (s *Store) count(ctx context.Context, table string, where []string, args []any) (int64, error) {
	db, err := s.queries()
	if err != nil {
		return 0, err
	}
	var n int64
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM "+table+condition(where), args...).Scan(&n)
	return n, s.wrap("counting events of", err)
}

func (s *Store) each(ctx context.Context, table, columns string, where []string, args []any, q Query, row func(*sql.Rows) error) error {
	db, err := s.queries()
	if err != nil {
		return err
	}
	limit := q.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	order := " ORDER BY id DESC LIMIT ?"
	if q.Follow {
		order = " ORDER BY id LIMIT ?" // following must not lose the older ones of a burst
	}
	text := "SELECT * FROM (SELECT id, " + columns + " FROM " + table + condition(where) + order + ") ORDER BY id"
	rows, err := db.QueryContext(ctx, text, append(args, limit)...)
	if err != nil {
		return s.wrap("reading events of", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return s.wrap("reading events of", err)
		}
	}
	return s.wrap("reading events of", rows.Err())
}

func condition(where []string) string {
	if len(where) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(where, " AND ")
}

// str, num, dur and shape scan a column where NULL is the unknown value.
type (
	shape struct{ to *Request }
	str   struct{ to *string }
	num   struct {
		to      *int64
		unknown int64
	}
	dur struct{ to *time.Duration }
)

// Scan stores a text.
func (s str) Scan(v any) error {
	var n sql.NullString
	err := n.Scan(v)
	*s.to = n.String
	return err
}

// Scan stores a number.
func (m num) Scan(v any) error {
	var n sql.NullInt64
	err := n.Scan(v)
	if *m.to = n.Int64; !n.Valid {
		*m.to = m.unknown
	}
	return err
}

// Scan stores microseconds.
func (d dur) Scan(v any) error {
	us := int64(-1)
	err := num{&us, -1}.Scan(v)
	*d.to = time.Duration(us) * time.Microsecond
	if us < 0 {
		*d.to = -1
	}
	return err
}

// Scan stores the members of the shape.
func (s shape) Scan(v any) error {
	var n sql.NullString
	if err := n.Scan(v); err != nil || !n.Valid {
		return err
	}
	var m struct {
		Bytes     int   `json:"bytes"`
		TokensEst int   `json:"tokens_est"`
		Messages  int   `json:"messages"`
		Tools     int   `json:"tools"`
		Images    int   `json:"images"`
		Stream    int   `json:"stream"`
		MaxTokens int64 `json:"max_tokens"`
	}
	err := json.Unmarshal([]byte(n.String), &m)
	s.to.Bytes, s.to.TokensEst, s.to.Messages, s.to.Tools, s.to.Images = m.Bytes, m.TokensEst, m.Messages, m.Tools, m.Images
	s.to.Stream, s.to.MaxTokens = m.Stream == 1, m.MaxTokens
	return err
}

func scanRequest(rows *sql.Rows) (Request, error) {
	var r Request
	var at int64
	err := rows.Scan(&r.ID, &at, &r.Request, str{&r.Op}, str{&r.Dialect}, str{&r.Alias}, str{&r.Class}, str{&r.Route}, str{&r.Tier},
		str{&r.Pool}, str{&r.Backend}, str{&r.Model}, str{&r.Served}, &r.Status, str{&r.Kind}, str{&r.Message}, str{&r.Reroute}, str{&r.Attempts},
		dur{&r.Queue}, dur{&r.First}, dur{&r.Total}, dur{&r.Overhead},
		num{&r.TokensIn, -1}, num{&r.TokensOut, -1}, num{&r.TokensCached, -1}, num{&r.TokensReasoning, -1}, num{&r.TokensWritten, -1}, &r.TokensEstimated, num{&r.Cost, -1},
		str{&r.Key}, str{&r.KeyID}, str{&r.Session}, str{&r.Tag}, str{&r.Version}, str{&r.Trace}, shape{&r})
	r.Time = time.UnixMicro(at)
	return r, err
}

func scanFact(rows *sql.Rows) (Fact, error) {
	var f Fact
	var at int64
	err := rows.Scan(&f.ID, &at, &f.Event, str{&f.Request}, str{&f.Route}, str{&f.Tier}, str{&f.Pool}, str{&f.Model}, str{&f.Kind},
		str{&f.Reason}, str{&f.From}, str{&f.To}, str{&f.Actor}, str{&f.Detail})
	f.Time = time.UnixMicro(at)
	return f, err
}
