package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"
)

// Key is the row of one key. The secret itself is never here: Hash is the SHA-256 of the whole printable key.
type Key struct {
	Prefix        string // public, unique
	Name          string // several rows may share a name: a key and those it replaced
	Hash          []byte
	Aliases       []string // patterns; empty means all
	Boundary      string   // any or local
	Priority      int
	RPM           int           // 0: no limit
	TPM           int64         // 0: no limit
	Concurrent    int           // 0: no limit
	SpendDay      int64         // nano-dollars; 0: no ceiling
	SpendMonth    int64         // likewise
	KeepResponses time.Duration // 0: not at all
	Created       time.Time
	Expires       time.Time // zero: never
	Revoked       time.Time // zero: not
	RotatedUntil  time.Time // zero: not replaced
}

// Keys reads all keys, oldest first.
func (s *Store) Keys(ctx context.Context) ([]Key, error) {
	keys, err := s.readKeys(ctx)
	return keys, s.wrap("reading keys of", err)
}

// ChangeKeys reads all keys and writes what change returns, with its audit fact, in one transaction that shuts out
// other processes: two `weir keys add` never make the same name. Rows whose prefix exists are updated, others added.
// An error of change is returned as it is and nothing is written. The kept responses of a name whose keys are all revoked
// go: its next owner finds none.
func (s *Store) ChangeKeys(ctx context.Context, change func(keys []Key) (write []Key, audit Fact, err error)) error {
	var own error
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		keys, err := queryKeys(ctx, tx)
		if err != nil {
			return err
		}
		write, audit, err := change(keys)
		if err != nil {
			own = err
			return err
		}
		if err := putKeys(ctx, tx, write); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM responses WHERE key <> '' AND key NOT IN (SELECT name FROM keys WHERE revoked IS NULL)"); err != nil {
			return err
		}
		values := factValues(&audit)
		args := make([]any, len(values))
		for i, v := range values {
			args[i] = v
		}
		_, err = tx.ExecContext(ctx, insertFact, args...)
		return err
	})
	if own != nil {
		return own
	}
	return s.wrap("changing keys of", err)
}

func (s *Store) readKeys(ctx context.Context) ([]Key, error) { return queryKeys(ctx, s.db) }

func (s *Store) writeKeys(ctx context.Context, keys []Key) error {
	return s.wrap("writing keys to", s.inTx(ctx, func(tx *sql.Tx) error { return putKeys(ctx, tx, keys) }))
}

func queryKeys(ctx context.Context, q interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}) ([]Key, error) {
	rows, err := q.QueryContext(ctx, `SELECT prefix, name, hash, aliases, boundary, priority, rpm, tpm, concurrent, spend_day, spend_month, keep_responses, created, expires, revoked, rotated_until
		FROM keys ORDER BY created, prefix`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var keys []Key
	for rows.Next() {
		var k Key
		var aliases string
		var keep, created int64
		var expires, revoked, rotated sql.NullInt64
		if err := rows.Scan(&k.Prefix, &k.Name, &k.Hash, &aliases, &k.Boundary, &k.Priority, &k.RPM, &k.TPM, &k.Concurrent, &k.SpendDay, &k.SpendMonth,
			&keep, &created, &expires, &revoked, &rotated); err != nil {
			return keys, err
		}
		if err := json.Unmarshal([]byte(aliases), &k.Aliases); err != nil {
			return keys, fmt.Errorf("aliases of key %s: %w", k.Prefix, err) // never a key with more rights than it was given
		}
		k.KeepResponses = time.Duration(keep) * time.Microsecond
		k.Created, k.Expires, k.Revoked, k.RotatedUntil = time.UnixMicro(created), when(expires), when(revoked), when(rotated)
		keys = append(keys, k)
	}
	return keys, rows.Err()
}

func putKeys(ctx context.Context, tx *sql.Tx, keys []Key) error {
	for i := range keys {
		k := &keys[i]
		aliases, err := json.Marshal(k.Aliases)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO keys (prefix, name, hash, aliases, boundary, priority, rpm, tpm, concurrent, spend_day, spend_month, keep_responses, created, expires, revoked, rotated_until)
			VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)
			ON CONFLICT (prefix) DO UPDATE SET aliases = excluded.aliases, boundary = excluded.boundary, priority = excluded.priority,
				rpm = excluded.rpm, tpm = excluded.tpm, spend_day = excluded.spend_day, spend_month = excluded.spend_month, concurrent = excluded.concurrent, keep_responses = excluded.keep_responses, expires = excluded.expires, revoked = excluded.revoked,
				rotated_until = excluded.rotated_until`,
			k.Prefix, k.Name, k.Hash, string(aliases), k.Boundary, k.Priority, k.RPM, k.TPM, k.Concurrent, k.SpendDay, k.SpendMonth, k.KeepResponses.Microseconds(), k.Created.UnixMicro(),
			stamp(k.Expires), stamp(k.Revoked), stamp(k.RotatedUntil))
		if err != nil {
			return err
		}
	}
	return nil
}

func when(n sql.NullInt64) time.Time {
	if !n.Valid {
		return time.Time{}
	}
	return time.UnixMicro(n.Int64)
}
