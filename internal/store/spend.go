package store

import (
	"context"
	"database/sql"
)

// spendNewest is how many days of spending are kept however old they are, so that a clock which jumped far ahead deletes
// no running month.
const spendNewest = 40

// Spend is what was spent in one day, by one key or pool or in total, for one purpose. Amounts are nano-dollars.
type Spend struct {
	Day      int64  // days since 1970, UTC
	Scope    string // key, pool, total
	Name     string // of the key or pool; empty for the total
	Purpose  string // client, disconnect, probe, judge, triage, helper; unsettled: of calls that never came to an end
	Cost     int64
	Reserved int64 // of calls that had not ended when this was written
	Requests int64
	Unpriced int64 // of these, at an unknown price
}

// Spending reads all that is kept, by day, scope, name and purpose. It reads beside a running Weir.
func (s *Store) Spending(ctx context.Context) ([]Spend, error) {
	var all []Spend
	const query = "SELECT day, scope, name, purpose, cost, reserved, requests, unpriced FROM spend ORDER BY day, scope, name, purpose"
	err := s.rows(ctx, query, func(rows *sql.Rows) error {
		var r Spend
		err := rows.Scan(&r.Day, &r.Scope, &r.Name, &r.Purpose, &r.Cost, &r.Reserved, &r.Requests, &r.Unpriced)
		all = append(all, r)
		return err
	})
	return all, s.wrap("reading what was spent from", err)
}

// PutSpending writes the rows in place of older ones of the same day, scope, name and purpose, in one transaction: all or
// none. A row of nothing is deleted.
func (s *Store) PutSpending(ctx context.Context, rows []Spend) error {
	return s.wrap("writing what was spent to", s.inTx(ctx, func(tx *sql.Tx) error {
		put, err := tx.PrepareContext(ctx, "INSERT OR REPLACE INTO spend (day, scope, name, purpose, cost, reserved, requests, unpriced) VALUES (?,?,?,?,?,?,?,?)")
		if err != nil {
			return err
		}
		defer put.Close()
		for i := range rows {
			if r := &rows[i]; r.Cost == 0 && r.Reserved == 0 && r.Requests == 0 {
				_, err = tx.ExecContext(ctx, "DELETE FROM spend WHERE day = ? AND scope = ? AND name = ? AND purpose = ?", r.Day, r.Scope, r.Name, r.Purpose)
			} else {
				_, err = put.ExecContext(ctx, r.Day, r.Scope, r.Name, r.Purpose, r.Cost, r.Reserved, r.Requests, r.Unpriced)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
}

// PruneSpending deletes the days before a day, but not the last 40 on which something was spent, and returns the
// first day that is kept; 0 where there is none.
func (s *Store) PruneSpending(ctx context.Context, before int64) (first int64, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		const old = "DELETE FROM spend WHERE day < ? AND day < (SELECT min(day) FROM (SELECT DISTINCT day FROM spend ORDER BY day DESC LIMIT ?))"
		if _, err := tx.ExecContext(ctx, old, before, spendNewest); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, "SELECT coalesce(min(day), 0) FROM spend").Scan(&first)
	})
	return first, s.wrap("pruning what was spent in", err)
}
