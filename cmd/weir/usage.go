package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"
	"unicode/utf8"

	"weir/internal/config"
	"weir/internal/event"
	"weir/internal/store"
)

// Usage is the word that sums up what was used, and what it cost. It reads the store beside a running Weir.
type Usage struct {
	configFlag
	By    string `help:"What to sum by: key, tag, session, model, tier, pool, route or day (of UTC)." enum:"key,tag,session,model,tier,pool,route,day" default:"key" placeholder:"WORD"`
	Since string `help:"Only the last so long, such as 24h or 7d." default:"24h" placeholder:"TIME"`
	Key   string `help:"Only requests under this key: its name or prefix." placeholder:"NAME"`
	Limit int    `help:"At most so many lines: the costliest, of days the newest. The total has all." default:"50" placeholder:"N"`
	JSON  bool   `name:"json" help:"Print JSON."`
}

// Help shows how it is used.
func (Usage) Help() string {
	return `LEFT are requests whose clients left before the end, ESTIMATED those whose tokens Weir counted itself. A cost is exact; it is
unknown where pools have no price, and "≥" where some have none. Requests are counted as long as events are kept.

Example:
  weir usage --by key --since 24h
  weir usage --by tag --since 7d --json
  weir usage --by session --key laptop --limit 10
  weir usage --by day --since 30d`
}

// Run sums up and prints.
func (c *Usage) Run(ctx context.Context, std *Streams) error {
	q, err := c.query(time.Now())
	if err != nil {
		return err
	}
	dir, err := c.dataFolder()
	if err != nil {
		return err
	}
	st, err := store.Open(ctx, dir, store.Options{ReadOnly: true})
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("nothing was recorded yet: %w", err)
	}
	if err != nil {
		return err
	}
	defer st.Close()
	groups, err := st.Usage(ctx, q)
	if err != nil {
		return err
	}
	s := summary{by: c.By, since: q.Since, groups: groups}
	for i := range groups {
		s.total.Add(&groups[i])
	}
	if s.more = len(groups) - c.Limit; s.more > 0 {
		s.groups = groups[:c.Limit]
		if c.By == "day" { // they come in their order
			s.groups = groups[s.more:]
		}
	}
	if c.JSON {
		return s.printJSON(std.Out)
	}
	s.print(std.Out)
	return nil
}

func (c *Usage) query(now time.Time) (store.UsageQuery, error) {
	q := store.UsageQuery{By: c.By, Key: c.Key}
	since, err := span("--since", c.Since)
	switch {
	case err != nil:
		return q, err
	case c.Limit < 1:
		return q, usageError("--limit: must be at least 1")
	}
	if since > 0 {
		q.Since = now.Add(-since)
	}
	return q, nil
}

// summary is what was used: the groups to show, and the total of all.
type summary struct {
	by     string
	since  time.Time
	groups []store.Usage
	more   int // groups that are not shown, if above zero
	total  store.Usage
}

func (s *summary) print(w io.Writer) {
	if s.total.Requests == 0 {
		fmt.Fprintln(w, "no request matches")
		return
	}
	rows := [][]string{{strings.ToUpper(s.by), "REQUESTS", "FAILED", "LEFT", "IN", "CACHED", "OUT", "ESTIMATED", "COST", "SHARE"}}
	for i := range s.groups {
		u := &s.groups[i]
		rows = append(rows, s.cells(event.Escape(or(u.Name, "-")), u))
	}
	rows = append(rows, s.cells("total", &s.total))
	alignRight(rows)
	printTable(w, rows)
	if s.more > 0 {
		fmt.Fprintf(w, "%d more are in the total; --limit shows them\n", s.more)
	}
	if s.total.DisconnectCost > 0 {
		fmt.Fprintf(w, "%s of the cost is for answers whose clients left\n", usd(s.total.DisconnectCost))
	}
}

func (s *summary) cells(name string, u *store.Usage) []string {
	cells := []string{name}
	for _, n := range []int64{u.Requests, u.Failed, u.Disconnects, u.TokensIn, u.TokensCached, u.TokensOut, u.Estimated} {
		cells = append(cells, fmt.Sprint(n))
	}
	share := "-"
	if part, ok := s.share(u); ok {
		share = fmt.Sprintf("%.1f%%", 100*part)
	}
	return append(cells, costText(u), share)
}

// share is a group's part of all known cost.
func (s *summary) share(u *store.Usage) (float64, bool) {
	if s.total.Cost == 0 || !costKnown(u) {
		return 0, false
	}
	return float64(u.Cost) / float64(s.total.Cost), true
}

// costKnown reports whether any of a group's cost is: nothing that was used costs nothing.
func costKnown(u *store.Usage) bool { return u.Unpriced == 0 || u.Priced > 0 }

func costText(u *store.Usage) string {
	switch {
	case !costKnown(u):
		return "unknown"
	case u.Unpriced > 0:
		return fmt.Sprintf("≥ %s (%d unpriced)", usd(u.Cost), u.Unpriced)
	}
	return usd(u.Cost)
}

// usd writes nano-dollars with six decimals, and less than the last of them exactly: what is not zero never looks like it.
func usd(nanos int64) string {
	const micro = 1000
	if nanos >= micro {
		nanos = (nanos + micro/2) / micro * micro
	}
	return "$" + config.USD(nanos).String()
}

// alignRight pads all cells but those of the first column on their left.
func alignRight(rows [][]string) {
	for column := 1; column < len(rows[0]); column++ {
		width := 0
		for _, row := range rows {
			width = max(width, utf8.RuneCountInString(row[column]))
		}
		for _, row := range rows {
			row[column] = strings.Repeat(" ", width-utf8.RuneCountInString(row[column])) + row[column]
		}
	}
}

// usageJSON is one group, or the total, for programs. What is unknown is null.
type usageJSON struct {
	Name        *string      `json:"name"`
	Requests    int64        `json:"requests"`
	Failed      int64        `json:"failed"`
	Disconnects int64        `json:"disconnects"`
	Tokens      tokensJSON   `json:"tokens"`
	Cost        *json.Number `json:"cost_usd"` // exact; of those at a known price
	LeftCost    *json.Number `json:"disconnects_cost_usd"`
	Unpriced    int64        `json:"unpriced"`
	Share       *float64     `json:"share"`
}

type tokensJSON struct {
	In        int64 `json:"in"`
	Cached    int64 `json:"cached"`
	Out       int64 `json:"out"`
	Estimated int64 `json:"estimated_requests"`
}

func (s *summary) printJSON(w io.Writer) error {
	out := struct {
		By     string      `json:"by"`
		Since  *time.Time  `json:"since"`
		Groups []usageJSON `json:"groups"`
		More   int         `json:"more"`
		Total  usageJSON   `json:"total"`
	}{By: s.by, Since: known(s.since.UTC()), Groups: []usageJSON{}, More: max(s.more, 0), Total: s.json(&s.total)}
	for i := range s.groups {
		out.Groups = append(out.Groups, s.json(&s.groups[i]))
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

func (s *summary) json(u *store.Usage) usageJSON {
	out := usageJSON{
		Requests: u.Requests, Failed: u.Failed, Disconnects: u.Disconnects, Unpriced: u.Unpriced,
		Tokens: tokensJSON{In: u.TokensIn, Cached: u.TokensCached, Out: u.TokensOut, Estimated: u.Estimated},
	}
	if u.Name != "" {
		out.Name = &u.Name
	}
	if costKnown(u) {
		cost, left := json.Number(config.USD(u.Cost).String()), json.Number(config.USD(u.DisconnectCost).String())
		out.Cost, out.LeftCost = &cost, &left
	}
	if part, ok := s.share(u); ok {
		out.Share = &part
	}
	return out
}
