package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMergesSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	at := time.UnixMicro(1_790_000_000_000_000)
	learnt := Merge{Asked: "b", Serving: "a", Vendor: "api.vendor.example", State: "learnt", Time: at, Evidence: "asked for m-b, 3 answers of 3 named m-a"}
	other := Merge{Asked: "a", Serving: "c", Vendor: "api.vendor.example", State: "undone", Time: at}
	confirmed := learnt
	confirmed.State, confirmed.Time = "confirmed", at.Add(time.Minute)
	for _, m := range []Merge{learnt, other, confirmed} {
		if err := s.PutMerge(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	s = open(t, dir, Options{})
	got, err := s.Merges(t.Context())
	if d := cmp.Diff([]Merge{other, confirmed}, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if err := s.DeleteMerge(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Merges(t.Context()); len(got) != 1 || got[0].Asked != "a" || err != nil {
		t.Errorf("after one was deleted: %v, %v", got, err)
	}
}

// The story of the merged pools: 63 reroutes in half an hour are one command to see.
func TestReroutesAreCountedByPoolAndReason(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	now := time.UnixMicro(1_790_000_000_000_000)
	var rows []Request
	add := func(n int, pool, reason string, age time.Duration) {
		for range n {
			rows = append(rows, Request{Time: now.Add(-age), Request: "r", Status: 200, Pool: pool, Reroute: reason})
		}
	}
	add(60, "a", "merged", 10*time.Minute)
	add(2, "a", "slow", 20*time.Minute)
	add(1, "b", "slow", time.Minute)
	add(7, "a", "merged", 40*time.Minute)
	add(9, "a", "", time.Minute)
	if err := s.WriteRequests(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	facts := []Fact{{Time: now, Event: "health", Pool: "a", Reason: "out"}, {Time: now, Event: "health", Pool: "a", Reason: "out"}, {Time: now, Event: "audit"}}
	if err := s.WriteFacts(t.Context(), facts); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		count func() ([]ReasonCount, error)
		want  []ReasonCount
	}{
		"reroutes of half an hour": {func() ([]ReasonCount, error) {
			return s.RequestReasons(t.Context(), Query{Event: "reroute", Since: now.Add(-30 * time.Minute)})
		}, []ReasonCount{{"a", "merged", 60}, {"a", "slow", 2}, {"b", "slow", 1}}},
		"those of one reason": {func() ([]ReasonCount, error) {
			return s.RequestReasons(t.Context(), Query{Reason: "merged"})
		}, []ReasonCount{{"a", "merged", 67}}},
		"facts": {func() ([]ReasonCount, error) { return s.FactReasons(t.Context(), Query{}) },
			[]ReasonCount{{"a", "out", 2}, {"", "", 1}}},
		"none": {func() ([]ReasonCount, error) { return s.FactReasons(t.Context(), Query{Event: "swap"}) }, nil},
	} {
		got, err := c.count()
		if d := cmp.Diff(c.want, got); d != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, d)
		}
	}
}
