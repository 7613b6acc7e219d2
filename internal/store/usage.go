package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"
)

// usageColumns are what usage can be asked by. A day is one of UTC.
var usageColumns = []struct{ by, column string }{
	{"key", "key"}, {"tag", "tag"}, {"session", "session"}, {"model", "model"}, {"tier", "tier"}, {"pool", "pool"}, {"route", "route"},
	{"day", "strftime('%F', time / 1000000, 'unixepoch')"},
}

// UsageQuery says which requests are counted, and by what.
type UsageQuery struct {
	By    string    // key, tag, session, model, tier, pool, route or day
	Since time.Time // at or after; zero: all that is kept
	Key   string    // only requests under this key, by its name or prefix; empty: all
}

// Usage is what the requests of one group used. Tokens of requests whose number nobody knows are not in the sums.
type Usage struct {
	Name        string // empty: of requests that have none
	Requests    int64
	Failed      int64 // without the disconnects
	Disconnects int64 // whose clients left

	TokensIn, TokensCached, TokensOut int64 // cached ones are part of those in
	Estimated                         int64 // requests whose tokens Weir counted itself

	Cost           int64 // nano-dollars, of the requests at a known price
	DisconnectCost int64 // of these, the part of the disconnects
	Priced         int64 // requests at a known price
	Unpriced       int64 // requests that used something at an unknown price
}

// Add adds the numbers of o.
func (u *Usage) Add(o *Usage) {
	u.Requests += o.Requests
	u.Failed += o.Failed
	u.Disconnects += o.Disconnects
	u.TokensIn += o.TokensIn
	u.TokensCached += o.TokensCached
	u.TokensOut += o.TokensOut
	u.Estimated += o.Estimated
	u.Cost += o.Cost
	u.DisconnectCost += o.DisconnectCost
	u.Priced += o.Priced
	u.Unpriced += o.Unpriced
}

// usageSums are exact: sum() of integers is one. Counting tokens uses none. A request that no backend answered has no
// tokens and no price, and is not at an unknown one; a passed answer, such as audio, has no tokens, but a price.
const usageSums = `count(*),
	coalesce(sum(kind IS NOT NULL AND kind <> 'canceled'), 0),
	coalesce(sum(kind = 'canceled'), 0),
	coalesce(sum(CASE WHEN op IS NOT 'count' THEN tokens_in END), 0),
	coalesce(sum(CASE WHEN op IS NOT 'count' THEN tokens_cached END), 0),
	coalesce(sum(CASE WHEN op IS NOT 'count' THEN tokens_out END), 0),
	coalesce(sum(CASE WHEN op IS NOT 'count' THEN tokens_estimated END), 0),
	coalesce(sum(cost), 0) AS spent,
	coalesce(sum(CASE WHEN kind = 'canceled' THEN cost END), 0),
	count(cost),
	coalesce(sum(cost IS NULL AND op IS NOT 'count' AND (tokens_in IS NOT NULL OR kind IS NULL AND pool IS NOT NULL)), 0)`

// Usage returns what was used, by the query's groups: the costliest first, then those with most requests; days in their
// order. It reads beside a running Weir and keeps no writer waiting.
func (s *Store) Usage(ctx context.Context, q UsageQuery) ([]Usage, error) {
	i := slices.IndexFunc(usageColumns, func(c struct{ by, column string }) bool { return c.by == q.By })
	if i < 0 {
		return nil, fmt.Errorf("usage is not counted by %q", q.By)
	}
	db, err := s.queries()
	if err != nil {
		return nil, err
	}
	text, args := q.sql(usageColumns[i].column)
	rows, err := db.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, s.wrap("summing the usage in", err)
	}
	defer rows.Close()
	var all []Usage
	for rows.Next() {
		u, err := scanUsage(rows)
		if err != nil {
			return nil, s.wrap("summing the usage in", err)
		}
		all = append(all, u)
	}
	return all, s.wrap("summing the usage in", rows.Err())
}

func (q UsageQuery) sql(column string) (text string, args []any) {
	where := "WHERE true"
	if !q.Since.IsZero() {
		where, args = where+" AND time >= ?", append(args, q.Since.UnixMicro())
	}
	if q.Key != "" {
		where, args = where+" AND (key = ? OR key_id = ?)", append(args, q.Key, q.Key)
	}
	order := "spent DESC, count(*) DESC, name IS NULL, name"
	if q.By == "day" {
		order = "name"
	}
	return strings.Join([]string{"SELECT", column, "AS name,", usageSums, "FROM requests", where, "GROUP BY name ORDER BY", order}, " "), args
}

func scanUsage(rows *sql.Rows) (u Usage, err error) {
	err = rows.Scan(str{&u.Name}, &u.Requests, &u.Failed, &u.Disconnects, &u.TokensIn, &u.TokensCached, &u.TokensOut, &u.Estimated,
		&u.Cost, &u.DisconnectCost, &u.Priced, &u.Unpriced)
	return u, err
}
