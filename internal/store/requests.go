package store

import (
	"context"
	"database/sql/driver"
	"strconv"
	"time"
)

// Request is the row of one request: what its `end` event says. Strings that are empty, and the pointers and times
// that say so, are stored as NULL: unknown.
type Request struct {
	ID       int64 // row number, rising with time of writing; ignored when written
	Time     time.Time
	Request  string
	Op       string
	Dialect  string
	Alias    string
	Class    string
	Route    string
	Tier     string
	Pool     string
	Backend  string
	Model    string
	Served   string
	Status   int
	Kind     string
	Message  string
	Reroute  string
	Attempts string // a JSON array

	Queue    time.Duration
	First    time.Duration // negative: none
	Total    time.Duration
	Overhead time.Duration

	TokensIn        int64 // negative: unknown, as for the other tokens
	TokensOut       int64
	TokensCached    int64
	TokensReasoning int64
	TokensWritten   int64 // of the prompt, into the vendor's cache
	TokensEstimated bool
	Cost            int64 // nano-dollars; negative: unknown

	Key     string
	KeyID   string // public prefix
	Session string
	Tag     string
	Version string

	Bytes     int
	TokensEst int
	Messages  int
	Tools     int
	Images    int
	Stream    bool
	MaxTokens int64 // 0: not given
	Trace     string
}

// requestColumns are the written columns of requests after id, in the order of bindRequest.
const requestColumns = `time, request, op, dialect, alias, class, route, tier, pool, backend, model, served, status, kind, message, reroute, attempts,
	queue, first, total, overhead, tokens_in, tokens_out, tokens_cached, tokens_reasoning, tokens_written, tokens_estimated, cost,
	key, key_id, session, tag, version, trace, shape`

const (
	requestWidth = 35
	bulkRows     = 20 // rows of one INSERT: more gained nothing
)

// WriteRequests writes the rows in one transaction: all or none. 100 to 1,000 rows at a time cost least. It may wait
// for the busy timeout when another process writes. It is for a goroutine off the request's path.
func (s *Store) WriteRequests(ctx context.Context, rows []Request) error {
	if len(rows) == 0 {
		return nil
	}
	return s.wrap("writing requests to", s.inRaw(ctx, func(in *inserts) error {
		for rest := rows; len(rest) > 0; {
			n, insert := 1, in.request
			if len(rest) >= bulkRows {
				n, insert = bulkRows, in.requests
			}
			args := in.args[:n*requestWidth]
			for i := range rest[:n] {
				bindRequest(args[i*requestWidth:(i+1)*requestWidth], &rest[i])
			}
			if err := exec(insert, args); err != nil {
				return err
			}
			rest = rest[n:]
		}
		return nil
	}))
}

// bindRequest fills one row's arguments, in the order of requestColumns.
func bindRequest(a []driver.NamedValue, r *Request) {
	for i, v := range [requestWidth]driver.Value{
		r.Time.UnixMicro(), r.Request, text(r.Op), text(r.Dialect), text(r.Alias), text(r.Class), text(r.Route), text(r.Tier),
		text(r.Pool), text(r.Backend), text(r.Model), text(r.Served), int64(r.Status), text(r.Kind), text(r.Message), text(r.Reroute), text(r.Attempts),
		micros(r.Queue), micros(r.First), micros(r.Total), micros(r.Overhead),
		count(r.TokensIn), count(r.TokensOut), count(r.TokensCached), count(r.TokensReasoning), count(r.TokensWritten), flag(r.TokensEstimated), count(r.Cost),
		text(r.Key), text(r.KeyID), text(r.Session), text(r.Tag), text(r.Version), text(r.Trace), r.shape(),
	} {
		a[i].Value = v
	}
}

// shape is the JSON object of the shape column.
func (r *Request) shape() string {
	b := make([]byte, 0, 160)
	for _, f := range [...]struct {
		name string
		n    int64
	}{
		{`{"bytes":`, int64(r.Bytes)}, {`,"tokens_est":`, int64(r.TokensEst)}, {`,"messages":`, int64(r.Messages)}, {`,"tools":`, int64(r.Tools)},
		{`,"images":`, int64(r.Images)}, {`,"stream":`, flag(r.Stream)}, {`,"max_tokens":`, r.MaxTokens},
	} {
		b = strconv.AppendInt(append(b, f.name...), f.n, 10)
	}
	return string(append(b, '}'))
}

// The helpers below turn what is unknown into NULL.

func text(s string) driver.Value {
	if s == "" {
		return nil
	}
	return s
}

func micros(d time.Duration) driver.Value {
	if d < 0 {
		return nil
	}
	return d.Microseconds()
}

func count(n int64) driver.Value {
	if n < 0 {
		return nil
	}
	return n
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func stamp(t time.Time) driver.Value {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}
