package spend

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/config"
)

func TestWarningsAreToldOnce(t *testing.T) {
	each(t, func(t *testing.T, scope, period string) {
		w := newWorld(t)
		w.under(scope, period)
		spend := func(n int64) {
			h, r := w.Reserve(w.under(scope, period))
			if r != nil {
				t.Fatal(r)
			}
			h.Settle(Usage{In: n}, "client")
		}
		expect := func(what string, want ...int) {
			t.Helper()
			var got []int
			for _, x := range w.told {
				if x.Scope != scope || x.Period != period || x.Ceiling != 100 || x.Until.IsZero() {
					t.Errorf("%s: %+v", what, x)
				}
				got = append(got, x.Percent)
			}
			w.told = nil
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s: (-want +got):\n%s", what, d)
			}
		}
		spend(49)
		expect("49 of 100")
		spend(1)
		expect("50", 50)
		spend(29)
		expect("79")
		w.flush()
		w.open(w.store)
		spend(0)
		expect("79 after a restart")
		spend(21)
		expect("100 at once", 100)
		if w.allowed(w.under(scope, period)) {
			t.Error("passed at the ceiling")
		}
		expect("a refusal")
		w.flush()
		w.open(w.store)
		if w.allowed(w.under(scope, period)) {
			t.Error("passed at the ceiling after a restart")
		}
		expect("a refusal after a restart")
		w.clock.set("2027-01-01 00:00:00")
		spend(80)
		expect("a new period", 80)
	})
}

func TestANewCeilingIsToldOfAgain(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		ceiling config.USD
		spend   int64
		want    []int
	}{
		{100, 80, []int{80}},
		{200, 10, nil},         // 90: 50 % of both was told
		{200, 70, []int{80}},   // 160
		{150, 0, []int{100}},   // at the refusal, for it is below what is spent
		{150, 0, nil},          // once
		{1000, 440, []int{50}}, // 600
		{0, 1000, nil},
	} {
		w.SetCeilings(Ceilings{Total: config.Ceiling{Day: tt.ceiling}})
		w.told = nil
		if h, r := w.Reserve(call(max(tt.spend, 1))); r == nil {
			h.Settle(Usage{In: tt.spend}, "client")
		}
		var got []int
		for _, x := range w.told {
			got = append(got, x.Percent)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("ceiling %d: (-want +got):\n%s", tt.ceiling, d)
		}
	}
}

func TestWhoIsToldMayAskTheBook(t *testing.T) {
	w := newWorld(t)
	w.under(Total, Day)
	var got int64
	w.tell = func(Warning) { got = w.Totals(Total, "").Day.Spent } // would wait for ever under the lock
	w.spend(60)
	if got != 60 {
		t.Errorf("%d", got)
	}
}
