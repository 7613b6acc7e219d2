package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// spent makes a store with requests of every kind that accounts tell apart. now is the time of the newest.
func spent(t *testing.T, now time.Time) *Store {
	t.Helper()
	none := Request{Time: now, Status: 200, TokensIn: -1, TokensOut: -1, TokensCached: -1, TokensReasoning: -1, TokensWritten: -1, Cost: -1}
	row := func(change func(*Request)) Request {
		r := none
		r.Request = "req"
		change(&r)
		return r
	}
	used := func(r *Request, in, cached, out, cost int64) {
		r.Op, r.Pool, r.Tier, r.Model, r.Route = "chat", "vendor", "cloud", "glm", "code"
		r.TokensIn, r.TokensCached, r.TokensOut, r.Cost = in, cached, out, cost
	}
	s := open(t, t.TempDir(), Options{})
	err := s.WriteRequests(t.Context(), []Request{
		row(func(r *Request) {
			used(r, 100, 40, 10, 1_000_000_001)
			r.Key, r.KeyID, r.Tag, r.Session = "a", "aaaaaaaa", "ci", "s1"
		}),
		row(func(r *Request) { used(r, 200, -1, 20, 2); r.Key, r.TokensEstimated, r.Session = "a", true, "s1" }),
		// The client left: its cost is booked apart.
		row(func(r *Request) { used(r, 50, -1, 5, 7); r.Key, r.Kind, r.Session = "a", "canceled", "s2" }),
		// At an unknown price, with tokens, and as an answer that has none.
		row(func(r *Request) {
			used(r, 1000, -1, 100, -1)
			r.Key, r.Pool, r.Tier, r.Model = "b", "floor", "floor", "small"
		}),
		row(func(r *Request) { used(r, -1, -1, -1, -1); r.Key, r.Op = "b", "audio" }),
		// A price of zero is known.
		row(func(r *Request) { used(r, 1, -1, 1, 0); r.Key = "b" }),
		// Nothing was used: refused, failed before an answer, counted, left while waiting.
		row(func(r *Request) { r.Status, r.Kind = 401, "unauthorized" }),
		row(func(r *Request) { r.Op, r.Key, r.Status, r.Kind, r.Route = "chat", "a", 504, "slow", "code" }),
		row(func(r *Request) { used(r, 5000, -1, -1, -1); r.Op, r.Key, r.TokensEstimated = "count", "a", true }),
		row(func(r *Request) { r.Op, r.Key, r.Kind = "chat", "c", "canceled" }),
		// Long ago.
		row(func(r *Request) { used(r, 7, 7, 7, 7); r.Key, r.Time = "old", now.Add(-48*time.Hour) }),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestUsage(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 30, 0, 0, time.UTC)
	s := spent(t, now)
	day := now.Add(-24 * time.Hour)
	a := Usage{Name: "a", Requests: 5, Failed: 1, Disconnects: 1, TokensIn: 350, TokensCached: 40, TokensOut: 35, Estimated: 1, Cost: 1_000_000_010, DisconnectCost: 7, Priced: 3}
	b := Usage{Name: "b", Requests: 3, TokensIn: 1001, TokensOut: 101, Priced: 1, Unpriced: 2}
	old := Usage{Name: "old", Requests: 1, TokensIn: 7, TokensCached: 7, TokensOut: 7, Cost: 7, Priced: 1}
	for name, c := range map[string]struct {
		q    UsageQuery
		want []Usage
	}{
		"by key":                   {UsageQuery{By: "key", Since: day}, []Usage{a, b, {Name: "c", Requests: 1, Disconnects: 1}, {Requests: 1, Failed: 1}}},
		"by key, all that is kept": {UsageQuery{By: "key"}, []Usage{a, old, b, {Name: "c", Requests: 1, Disconnects: 1}, {Requests: 1, Failed: 1}}},
		"of one key by session": {UsageQuery{By: "session", Since: day, Key: "a"}, []Usage{
			{Name: "s1", Requests: 2, TokensIn: 300, TokensCached: 40, TokensOut: 30, Estimated: 1, Cost: 1_000_000_003, Priced: 2},
			{Name: "s2", Requests: 1, Disconnects: 1, TokensIn: 50, TokensOut: 5, Cost: 7, DisconnectCost: 7, Priced: 1},
			{Requests: 2, Failed: 1},
		}},
		"of a key by its prefix": {UsageQuery{By: "tag", Key: "aaaaaaaa"}, []Usage{
			{Name: "ci", Requests: 1, TokensIn: 100, TokensCached: 40, TokensOut: 10, Cost: 1_000_000_001, Priced: 1},
		}},
		"of a key that is none": {UsageQuery{By: "key", Key: `x' OR '1'='1`}, nil},
		"days in their order": {UsageQuery{By: "day"}, []Usage{
			{Name: "2026-11-29", Requests: 1, TokensIn: 7, TokensCached: 7, TokensOut: 7, Cost: 7, Priced: 1},
			{Name: "2026-12-01", Requests: 10, Failed: 2, Disconnects: 2, TokensIn: 1351, TokensCached: 40, TokensOut: 136, Estimated: 1,
				Cost: 1_000_000_010, DisconnectCost: 7, Priced: 4, Unpriced: 2},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := s.Usage(t.Context(), c.q)
			if d := cmp.Diff(c.want, got); d != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, d)
			}
		})
	}
	if _, err := s.Usage(t.Context(), UsageQuery{By: "key; DROP TABLE requests"}); err == nil {
		t.Error("usage by a column of the caller's making")
	}
}

// However usage is asked for, the groups add up to the same.
func TestUsageAddsUp(t *testing.T) {
	s := spent(t, time.Now())
	var want Usage
	for i, c := range usageColumns {
		groups, err := s.Usage(t.Context(), UsageQuery{By: c.by})
		if err != nil {
			t.Fatal(c.by, err)
		}
		var got Usage
		for i := range groups {
			got.Add(&groups[i])
		}
		if i == 0 {
			want = got
		}
		if got != want || got.Requests != 11 || got.Cost != 1_000_000_017 {
			t.Errorf("by %s: %+v, by key %+v", c.by, got, want)
		}
	}
}

// A day's usage is found by the index, not by a walk over a month.
func TestUsageUsesTheIndexOfTime(t *testing.T) {
	s := spent(t, time.Now())
	text, args := UsageQuery{By: "key", Since: time.Now()}.sql("key")
	rows, err := s.db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, detail)
	}
	if !slices.ContainsFunc(plan, func(d string) bool { return strings.Contains(d, "requests_time") }) {
		t.Errorf("%q", plan)
	}
}

func TestRequestsOfASessionOrATag(t *testing.T) {
	s := spent(t, time.Now())
	for _, c := range []struct {
		q    Query
		want int64
	}{{Query{Session: "s1"}, 2}, {Query{Tag: "ci"}, 1}, {Query{Session: "s2", Tag: "ci"}, 0}} {
		got, err := s.CountRequests(t.Context(), c.q)
		if err != nil || got != c.want {
			t.Errorf("%+v: %d, %v, want %d", c.q, got, err, c.want)
		}
	}
}

// BenchmarkUsage sums a day of 50,000 requests: about 0.3 s on two cores. It is for a word, never on a request's way.
func BenchmarkUsage(b *testing.B) {
	s, err := Open(b.Context(), b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	now := time.Now()
	rows := make([]Request, 50_000)
	for i := range rows {
		rows[i] = sampleRequest(i, now.Add(-time.Duration(i)*time.Second))
		rows[i].Session = fmt.Sprint("s-", i%5000)
	}
	if err := s.WriteRequests(b.Context(), rows); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Usage(b.Context(), UsageQuery{By: "session", Since: now.Add(-24 * time.Hour)}); err != nil {
			b.Fatal(err)
		}
	}
}
