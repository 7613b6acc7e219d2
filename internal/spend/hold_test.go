package spend

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/config"
	"weir/internal/store"
)

func TestCeilingsAreExact(t *testing.T) { // F62
	each(t, func(t *testing.T, scope, period string) {
		w := newWorld(t)
		c := w.under(scope, period)
		w.spend(60)
		for _, tt := range []struct {
			name string
			most int64
			want bool
		}{{"one under", 39, true}, {"exact", 40, true}, {"one over", 41, false}, {"far over", 1 << 40, false}} {
			c.Most.In = tt.most
			if got := w.allowed(c); got != tt.want {
				t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
			}
		}
		c.Most.In = 30
		h, _ := w.Reserve(c) // what is held counts as what is spent
		c.Most.In = 11
		if w.allowed(c) {
			t.Error("11 were let through with 60 spent and 30 held of 100")
		}
		h.Settle(Usage{In: 29}, "client")
		if !w.allowed(c) {
			t.Error("11 were refused with 89 spent of 100")
		}
	})
}

func TestOneUnitIsLeftForOneOfAHundred(t *testing.T) { // F62, C102
	each(t, func(t *testing.T, scope, period string) {
		w := newWorld(t)
		c := w.under(scope, period)
		w.spend(99)
		if got := w.race(100, c); got != 1 {
			t.Errorf("%d passed, want 1", got)
		}
	})
}

func TestWhatMayBeUsedIsHeldFromTheStart(t *testing.T) { // C102: five that use 60 of 100
	w := newWorld(t)
	c := w.under(Key, Day)
	c.Most = Usage{In: 20, Out: 40}
	if got := w.race(5, c); got != 1 {
		t.Errorf("%d passed, want 1", got)
	}
}

func TestACallLargerThanTheCeilingNeedsAllOfIt(t *testing.T) {
	w := newWorld(t)
	c := w.under(Key, Day)
	c.Most.In = 1 << 62
	h, r := w.Reserve(c)
	if r != nil {
		t.Fatalf("the first was refused: %v", r)
	}
	if w.allowed(c) {
		t.Error("a second one was let through beside it")
	}
	h.Settle(Usage{In: 1}, "client")
	if w.allowed(c) {
		t.Error("it was let through with 1 spent")
	}
	w.clock.set("2026-12-02 00:00:00")
	if !w.allowed(c) {
		t.Error("it was refused on an empty day")
	}
}

func TestWhatCostsNothingOrIsUnknownIsNeverRefused(t *testing.T) {
	w := newWorld(t)
	c := w.under(Total, Day)
	w.spend(100)
	for name, p := range map[string]*Price{"unknown": nil, "free": price("0", "0", "", "")} {
		c.Price, c.Most = p, Usage{In: 1 << 50, Out: 1 << 50}
		if !w.allowed(c) {
			t.Errorf("%s was refused", name)
		}
	}
	c.Price, c.Most = unit, Usage{} // a price, but nobody knows of how many tokens
	if w.allowed(c) {
		t.Error("a priced call passed at the ceiling")
	}
}

func TestTheTruthIsBooked(t *testing.T) {
	w := newWorld(t)
	c := w.under(Pool, Day)
	c.Most.In = 50
	h, _ := w.Reserve(c)
	if got, known := h.Settle(Usage{In: 200}, "client"); got != 200 || !known {
		t.Errorf("%d, %v", got, known)
	}
	if w.allowed(call(1)) {
		t.Error("a call passed after the ceiling was overspent")
	}
	if got := w.Totals(Pool, "p").Day; got.Spent != 200 || got.Held != 0 || got.Left() != 0 || got.Requests != 1 {
		t.Errorf("%+v", got)
	}
}

func TestAHoldEndsOnce(t *testing.T) {
	for _, tt := range []struct {
		name         string
		first, again func(*Hold)
		spent        int64
	}{
		{"settled twice", settle, settle, 3},
		{"settled and canceled", settle, (*Hold).Cancel, 3},
		{"canceled and settled", (*Hold).Cancel, settle, 0},
		{"canceled twice", (*Hold).Cancel, (*Hold).Cancel, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			other, _ := w.Reserve(call(7))
			h, _ := w.Reserve(call(5))
			tt.first(h)
			tt.again(h)
			if got := w.Totals(Total, "").Day; got.Spent != tt.spent || got.Held != 7 {
				t.Errorf("%+v", got)
			}
			other.Cancel()
		})
	}
	t.Run("by many at once", func(t *testing.T) {
		w := newWorld(t)
		h, _ := w.Reserve(call(5))
		var wait sync.WaitGroup
		for range 20 {
			wait.Go(func() { settle(h) })
		}
		wait.Wait()
		if got := w.Totals(Total, "").Day; got.Spent != 3 || got.Held != 0 || got.Requests != 1 {
			t.Errorf("%+v", got)
		}
	})
}

func settle(h *Hold) { h.Settle(Usage{In: 3}, "client") }

func TestPurposesAreKeptApart(t *testing.T) {
	w := newWorld(t)
	for i, purpose := range []string{"client", "client", "disconnect", "probe"} {
		c := call(10)
		if purpose == "probe" {
			c.Key = ""
		}
		h, _ := w.Reserve(c)
		h.Settle(Usage{In: int64(i + 1)}, purpose)
	}
	h, _ := w.Reserve(Charge{Key: "k", Pool: "p"})
	if got, known := h.Settle(Usage{In: 1}, "client"); got != 0 || known {
		t.Errorf("unpriced: %d, %v", got, known)
	}
	w.flush()
	got, err := w.store.Spending(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	row := func(scope, name, purpose string, cost, requests, unpriced int64) store.Spend {
		return store.Spend{Day: 20788, Scope: scope, Name: name, Purpose: purpose, Cost: cost, Requests: requests, Unpriced: unpriced}
	}
	want := []store.Spend{
		row(Key, "k", "client", 3, 3, 1), row(Key, "k", "disconnect", 3, 1, 0),
		row(Pool, "p", "client", 3, 3, 1), row(Pool, "p", "disconnect", 3, 1, 0), row(Pool, "p", "probe", 4, 1, 0),
		row(Total, "", "client", 3, 3, 1), row(Total, "", "disconnect", 3, 1, 0), row(Total, "", "probe", 4, 1, 0),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestPeriodsBeginAnewByUTC(t *testing.T) { // F62
	w := newWorld(t)
	c := call(1)
	c.KeyDay, c.KeyMonth = 100, 150
	for _, tt := range []struct {
		at   string
		left int64
	}{
		{"2026-12-30 23:59:59", 100},
		{"2026-12-31 00:00:00", 50}, // of the month
		{"2026-12-31 23:59:59", 0},
		{"2027-01-01 00:00:00", 100},
	} {
		w.clock.set(tt.at)
		c.Most.In = tt.left + 1
		if tt.left < 100 && w.allowed(c) {
			t.Errorf("%s: more than %d were let through", tt.at, tt.left)
		}
		if tt.left == 0 {
			continue
		}
		c.Most.In = tt.left
		h, r := w.Reserve(c)
		if r != nil {
			t.Fatalf("%s: %v", tt.at, r)
		}
		h.Settle(c.Most, "client")
	}
}

func TestDaysAndMonthsAreThoseOfUTC(t *testing.T) {
	for _, tt := range []struct {
		at                     string
		date                   int64
		first, nextDay, nextMo string
	}{
		{"1970-01-01T00:00:00Z", 0, "1970-01-01", "1970-01-02", "1970-02-01"},
		{"1969-12-31T23:59:59Z", -1, "1969-12-31", "1970-01-01", "1970-01-01"},
		{"1969-12-31T00:00:00Z", -1, "1969-12-31", "1970-01-01", "1970-01-01"},
		{"2026-12-01T23:30:00-02:00", 20789, "2026-12-02", "2026-12-03", "2027-01-01"},
		{"2028-02-29T12:00:00Z", 21243, "2028-02-29", "2028-03-01", "2028-03-01"},
	} {
		at, err := time.Parse(time.RFC3339, tt.at)
		if err != nil {
			t.Fatal(err)
		}
		d := dateOf(at)
		got := []string{begin(d).Format(time.DateOnly), ends(d, Day).Format(time.DateOnly), ends(d, Month).Format(time.DateOnly)}
		if diff := cmp.Diff([]string{tt.first, tt.nextDay, tt.nextMo}, got); d != tt.date || diff != "" {
			t.Errorf("%s: day %d, want %d (-want +got):\n%s", tt.at, d, tt.date, diff)
		}
	}
}

func TestACallCountsWhereItBegan(t *testing.T) {
	w := newWorld(t)
	w.clock.set("2026-12-31 23:59:59")
	h, _ := w.Reserve(call(50))
	w.clock.set("2027-01-01 00:00:01")
	h.Settle(Usage{In: 40}, "client")
	if got := w.Totals(Key, "k"); got.Day.Spent != 0 || got.Month.Spent != 0 {
		t.Errorf("the new year has %+v", got)
	}
	w.clock.set("2026-12-31 12:00:00")
	if got := w.Totals(Key, "k"); got.Day.Spent != 40 || got.Month.Spent != 40 || got.Month.Held != 0 {
		t.Errorf("the old year has %+v", got)
	}
}

func TestAClockThatJumpsGivesNoAllowanceTwice(t *testing.T) { // F62
	each(t, func(t *testing.T, scope, period string) {
		w := newWorld(t)
		c := w.under(scope, period)
		w.spend(100)
		for _, at := range []string{"2028-12-01 10:00:00", "1969-07-20 10:00:00"} {
			w.clock.set(at)
			w.spend(100)
			w.prune(t.Context())
			if w.allowed(c) {
				t.Errorf("%s: passed at the ceiling", at)
			}
			w.flush()
			w.prune(t.Context())
			w.open(w.store)
			c = w.under(scope, period)
			w.clock.set("2026-12-01 11:00:00")
			if w.allowed(c) {
				t.Errorf("back from %s: passed at the ceiling", at)
			}
		}
	})
}

func TestAmountsNeverOverflow(t *testing.T) { // F62, S43
	w := newWorld(t)
	dear := price("999999999", "999999999", "", "")
	all := Usage{In: 1<<63 - 1, Out: 1<<63 - 1}
	var holds []*Hold
	for range 5 {
		h, r := w.Reserve(Charge{Key: "k", Pool: "p", Price: dear, Most: all})
		if r != nil {
			t.Fatal(r)
		}
		holds = append(holds, h)
	}
	if got := w.Totals(Total, "").Month; got.Held != 1<<63-1 {
		t.Errorf("%+v", got)
	}
	c := call(1)
	c.KeyDay, c.KeyMonth = 1<<63-1, 1<<63-1
	if w.allowed(c) {
		t.Error("a call passed where everything is held")
	}
	for _, h := range holds {
		h.Settle(Usage{In: 1 << 24, Out: 1 << 24}, "client")
	}
	if got := w.Totals(Total, "").Month; got.Held != 0 || got.Spent != 1<<63-1 {
		t.Errorf("%+v", got)
	}
	if w.allowed(c) {
		t.Error("a call passed where everything is spent")
	}
	w.flush()
	w.open(w.store)
	if got := w.Totals(Total, "").Month; got.Spent != 1<<63-1 {
		t.Errorf("after a restart: %+v", got)
	}
}

func TestCeilingsChangeUnderCalls(t *testing.T) {
	w := newWorld(t)
	c := w.under(Pool, Day)
	w.spend(50)
	h, _ := w.Reserve(call(50))
	w.SetCeilings(Ceilings{Pools: map[string]config.Ceiling{"p": {Day: 10}}})
	if w.allowed(c) {
		t.Error("passed under the lower ceiling")
	}
	w.SetCeilings(Ceilings{Pools: map[string]config.Ceiling{"p": {Day: 101}}})
	if !w.allowed(c) {
		t.Error("refused under the higher one")
	}
	w.SetCeilings(Ceilings{Pools: map[string]config.Ceiling{"other": {Day: 1}, "": {Day: 1}}})
	if c.Most.In = 1 << 20; !w.allowed(c) {
		t.Error("refused without one")
	}
	h.Cancel()
}
