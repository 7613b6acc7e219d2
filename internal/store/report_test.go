package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// reported makes a store with requests at these minutes after start, in this order, each with all that a row has.
func reported(t *testing.T, start time.Time, minutes ...int) *Store {
	t.Helper()
	s := open(t, t.TempDir(), Options{})
	var rows []Request
	for i, m := range minutes {
		r := sampleRequest(i, start.Add(time.Duration(m)*time.Minute))
		r.Class, r.Kind, r.Message, r.Reroute = "code", "slow", "too slow", "fallback"
		rows = append(rows, r)
	}
	if err := s.WriteRequests(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWalkRequests(t *testing.T) {
	start := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		minutes []int
		from    time.Time
		want    []int // places in minutes
	}{
		"all that is kept":                           {[]int{0, 1, 2}, time.Time{}, []int{0, 1, 2}},
		"since a moment, which is in it":             {[]int{0, 1, 2}, start.Add(time.Minute), []int{1, 2}},
		"nothing is that new":                        {[]int{0, 1, 2}, start.Add(time.Hour), nil},
		"an empty store":                             {nil, time.Time{}, nil},
		"a clock that was set back hides nothing":    {[]int{9, 1, 2, 10}, start.Add(2 * time.Minute), []int{0, 2, 3}},
		"long ones end after those that began later": {[]int{5, 4, 6}, start.Add(5 * time.Minute), []int{0, 2}},
		"a time before 1970 is one":                  {[]int{-60 * 24 * 366 * 60, 0}, time.Time{}, []int{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s := reported(t, start, c.minutes...)
			whole, err := s.Requests(t.Context(), Query{})
			if err != nil {
				t.Fatal(err)
			}
			var got, want []Request
			for _, i := range c.want {
				r := whole[i]
				r.ID, r.Dialect, r.Alias, r.Key, r.KeyID, r.Session, r.Version = 0, "", "", "", "", "", ""
				r.Bytes, r.TokensEst, r.Messages, r.Tools, r.Stream, r.MaxTokens, r.TokensReasoning = 0, 0, 0, 0, false, 0, 0
				want = append(want, r)
			}
			if err := s.WalkRequests(t.Context(), c.from, func(r *Request) error { got = append(got, *r); return nil }); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			o, err := s.Outline(t.Context(), c.from)
			if err != nil || o.Requests != int64(len(c.want)) {
				t.Errorf("outline %+v, %v, want %d requests", o, err, len(c.want))
			}
		})
	}
}

func TestWalkEnds(t *testing.T) {
	s := reported(t, time.Now(), 0, 1)
	stop, calls := errors.New("enough"), 0
	if err := s.WalkRequests(t.Context(), time.Time{}, func(*Request) error { calls++; return stop }); !errors.Is(err, stop) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.WalkFacts(gone, time.Time{}, func(*Fact) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want canceled", err)
	}
}

func TestWalkReadsWhatIsUnknown(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	at := time.UnixMicro(77)
	unknown := Request{Time: at, Request: "r", Queue: -1, First: -1, Total: -1, Overhead: -1, TokensIn: -1, TokensOut: -1, TokensCached: -1, TokensReasoning: -1, TokensWritten: -1, Cost: -1}
	full := sampleRequest(1, at)
	if err := s.WriteRequests(t.Context(), []Request{full, unknown}); err != nil {
		t.Fatal(err)
	}
	var got Request
	if err := s.WalkRequests(t.Context(), time.Time{}, func(r *Request) error { got = *r; return nil }); err != nil {
		t.Fatal(err)
	}
	unknown.TokensReasoning = 0 // not read
	if d := cmp.Diff(unknown, got); d != "" {
		t.Error("nothing of the row before is left:", d)
	}
}

func TestWalkFacts(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	at := func(hour int) time.Time { return now.Add(time.Duration(hour) * time.Hour) }
	if err := s.WriteFacts(t.Context(), []Fact{
		{Time: at(3), Event: "audit", Detail: "new"}, {Time: at(-3), Event: "audit", Detail: "old"}, {Time: at(-2), Event: "health", Detail: "may last"},
		{Time: at(-4), Event: "alert", Detail: "may last too"}, {Time: at(0), Event: "shift", Detail: "just in"},
	}); err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := s.WalkFacts(t.Context(), now, func(f *Fact) error { got = append(got, f.Detail); return nil }); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"may last too", "may last", "just in", "new"}, got); d != "" {
		t.Error(d)
	}
	if o, err := s.Outline(t.Context(), now); err != nil || o.Requests != 0 || !o.First.Equal(now) {
		t.Errorf("outline %+v, %v, want the first fact of the period", o, err)
	}
}

func TestWork(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 30, 0, 0, time.UTC)
	got, err := spent(t, now).Work(t.Context(), now.Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	want := []Work{
		{Pool: "vendor", Model: "glm", Requests: 5, In: 351, Out: 36, Cached: 40},
		{Pool: "floor", Model: "small", Requests: 1, In: 1000, Out: 100},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
