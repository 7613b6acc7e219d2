package store

import (
	"context"
	"database/sql"
	"time"
)

// Recent is what a request of the last moments counts against the limits of its key.
type Recent struct {
	Time      time.Time
	Key       string // the name
	Op        string
	Kind      string
	TokensIn  int64 // negative: unknown
	TokensOut int64
	TokensEst int64 // of the prompt
	MaxTokens int64 // 0: not given
	Sent      bool  // a backend may have worked on it
}

// Recent returns the requests that keys made since a moment, oldest first; those of the future too, which a clock that was
// set back has left. It is for the start: it waits for the writer.
func (s *Store) Recent(ctx context.Context, since time.Time) ([]Recent, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT time, key, op, kind, tokens_in, tokens_out,
			json_extract(shape, '$.tokens_est'), json_extract(shape, '$.max_tokens'), instr(attempts, '"sent":true') > 0
		FROM requests WHERE time > ? AND key IS NOT NULL ORDER BY time`, since.UnixMicro())
	if err != nil {
		return nil, s.wrap("reading recent requests of", err)
	}
	defer rows.Close()
	var all []Recent
	for rows.Next() {
		var r Recent
		var at int64
		var sent sql.NullBool
		if err := rows.Scan(&at, &r.Key, str{&r.Op}, str{&r.Kind}, num{&r.TokensIn, -1}, num{&r.TokensOut, -1}, num{&r.TokensEst, 0},
			num{&r.MaxTokens, 0}, &sent); err != nil {
			return all, s.wrap("reading recent requests of", err)
		}
		r.Time, r.Sent = time.UnixMicro(at), sent.Bool
		all = append(all, r)
	}
	return all, s.wrap("reading recent requests of", rows.Err())
}
