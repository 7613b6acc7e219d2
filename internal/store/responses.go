package store

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Response is one answer that is kept for later requests of the same key, with what it answered. It is the one thing in
// the store that holds prompts and answers, and is there only where a key or route says so.
type Response struct {
	Key     string // the name; empty where no key is asked for
	ID      string
	Local   bool // what continues from it may not leave the machines you own
	Created time.Time
	Expires time.Time
	Input   []byte // all items that were asked with
	Answer  []byte // the response object
}

// What one key may keep. Beyond it the key's oldest go, with a tenth more, so that the next ones find room.
const (
	maxResponses     = 10_000
	maxResponseBytes = 256 << 20
)

// KeepResponse writes a response, in place of one that its key has under the same id.
func (s *Store) KeepResponse(ctx context.Context, r *Response) error {
	return s.wrap("keeping a response in", s.inTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO responses (key, response, local, created, expires, size, input, answer)
			VALUES (?,?,?,?,?,?,?,?)`, r.Key, r.ID, r.Local, r.Created.UnixMicro(), r.Expires.UnixMicro(), len(r.Input)+len(r.Answer),
			r.Input, r.Answer)
		if err != nil {
			return err
		}
		return boundResponses(ctx, tx, r.Key)
	}))
}

// boundResponses deletes the oldest responses of a key that has too many.
func boundResponses(ctx context.Context, tx *sql.Tx, key string) error {
	var rows, bytes int64
	err := tx.QueryRowContext(ctx, "SELECT count(*), coalesce(sum(size), 0) FROM responses WHERE key = ?", key).Scan(&rows, &bytes)
	if err != nil || rows <= maxResponses && bytes <= maxResponseBytes {
		return err
	}
	_, err = tx.ExecContext(ctx, `DELETE FROM responses WHERE id IN (SELECT id FROM (
			SELECT id, row_number() OVER newest AS n, sum(size) OVER newest AS bytes FROM responses WHERE key = ?
			WINDOW newest AS (ORDER BY created DESC, id DESC)
		) WHERE n > ? OR n > 1 AND bytes > ?)`, key, maxResponses*9/10, maxResponseBytes*9/10)
	return err
}

// Response reads the response of a key that has not expired at now; nil where there is none.
func (s *Store) Response(ctx context.Context, key, id string, now time.Time) (*Response, error) {
	db, err := s.queries()
	if err != nil {
		return nil, s.wrap("reading a response of", err)
	}
	r := &Response{Key: key, ID: id}
	var created, expires int64
	err = db.QueryRowContext(ctx, "SELECT local, created, expires, input, answer FROM responses WHERE key = ? AND response = ? AND expires > ?",
		key, id, now.UnixMicro()).Scan(&r.Local, &created, &expires, &r.Input, &r.Answer)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, s.wrap("reading a response of", err)
	}
	r.Created, r.Expires = time.UnixMicro(created), time.UnixMicro(expires)
	return r, nil
}

// DeleteResponse deletes the response of a key. It reports whether there was one that had not expired at now.
func (s *Store) DeleteResponse(ctx context.Context, key, id string, now time.Time) (bool, error) {
	n, err := s.deleteStep(ctx, "DELETE FROM responses WHERE key = ? AND response = ? AND expires > ?", key, id, now.UnixMicro())
	return n > 0, err
}

// responseStep is how many expired responses one transaction deletes: they may be large.
const responseStep = 20

// pruneResponses deletes what has expired.
func (s *Store) pruneResponses(ctx context.Context, now time.Time) error {
	var deleted bool
	for {
		n, err := s.deleteStep(ctx, "DELETE FROM responses WHERE id IN (SELECT id FROM responses WHERE expires <= ? LIMIT ?)",
			now.UnixMicro(), responseStep)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		deleted = true
		if err := pause(ctx); err != nil {
			return err
		}
	}
	if !deleted {
		return nil
	}
	return s.vacuum(ctx)
}

// responsesSize is about how many bytes of the file kept responses take: half a page of each is empty.
func (s *Store) responsesSize(ctx context.Context) (n int64, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT coalesce(sum(size + 2048), 0) FROM responses").Scan(&n)
	return n, s.wrap("measuring", err)
}
