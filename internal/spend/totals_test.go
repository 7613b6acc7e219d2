package spend

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/config"
)

func TestAllThatWasSpent(t *testing.T) {
	w := newWorld(t)
	w.SetCeilings(Ceilings{Total: config.Ceiling{Month: 1000}, Pools: map[string]config.Ceiling{"idle": {Day: 5}, "b": {}}})
	for _, c := range []Charge{{Key: "k", Pool: "p"}, {Key: "a", KeyDay: 9, Pool: "p", Price: unit, Most: Usage{In: 4}}} {
		h, _ := w.Reserve(c)
		h.Settle(Usage{In: 3}, "client")
	}
	day, month := time.Date(2026, 12, 2, 0, 0, 0, 0, time.UTC), time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	totals := func(scope, name string, s Sum, dayCeiling, monthCeiling int64) Totals {
		d, m := s, s
		d.Ceiling, d.Until, m.Ceiling, m.Until = dayCeiling, day, monthCeiling, month
		return Totals{Scope: scope, Name: name, Day: d, Month: m}
	}
	want := []Totals{
		totals(Total, "", Sum{Spent: 3, Requests: 2, Unpriced: 1}, 0, 1000),
		totals(Pool, "idle", Sum{}, 5, 0),
		totals(Pool, "p", Sum{Spent: 3, Requests: 2, Unpriced: 1}, 0, 0),
		totals(Key, "a", Sum{Spent: 3, Requests: 1}, 9, 0),
		totals(Key, "k", Sum{Requests: 1, Unpriced: 1}, 0, 0),
	}
	if d := cmp.Diff(want, w.All()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got, want := w.Totals(Key, "nobody"), totals(Key, "nobody", Sum{}, 0, 0); got != want {
		t.Errorf("%+v", got)
	}
	w.clock.set("2027-01-01 00:00:00")
	if got := w.All(); len(got) != 3 || got[0].Month.Spent != 0 { // total, idle, and a, whose ceiling is known
		t.Errorf("in a new month: %+v", got)
	}
}
