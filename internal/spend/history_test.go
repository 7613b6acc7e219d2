package spend

import (
	"fmt"
	"math"
	"math/big"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/internal/config"
	"weir/internal/store"
)

// step is one step of a history. What it does not need is ignored.
type step struct {
	Do         string
	Key, Pool  string
	Price      int
	Most, Used int64 // tokens
	Day, Month int64 // ceilings
	Date       int64
	Who        int // of the calls that run
}

var (
	doings = []string{"reserve", "reserve", "reserve", "settle", "settle", "cancel", "date", "ceilings", "flush", "restart", "kill", "prune"}
	prices = []*Price{unit, unit, unit, nil, price("0", "0", "", ""), price("999999999", "999999999", "", "")}
	rates  = []int64{1_000_000, 1_000_000, 1_000_000, -1, 0, 999_999_999_000_000_000}
	dates  = []int64{20788, 20788, 20788, 20789, 20787, 20787 + 31, 20788 + 400, 20788 + 1200, -5}
)

func someStep() *rapid.Generator[step] {
	amount := rapid.OneOf(rapid.Int64Range(0, 60), rapid.SampledFrom([]int64{-1, 100, 101, 1 << 24, math.MaxInt64, math.MinInt64}))
	ceiling := rapid.SampledFrom([]int64{0, 0, 1, 99, 100, 150, 300, -1, math.MaxInt64})
	return rapid.Custom(func(t *rapid.T) step {
		return step{
			Do: rapid.SampledFrom(doings).Draw(t, "do"), Key: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "key"),
			Pool: rapid.SampledFrom([]string{"p", "q"}).Draw(t, "pool"), Price: rapid.IntRange(0, len(prices)-1).Draw(t, "price"),
			Most: amount.Draw(t, "most"), Used: amount.Draw(t, "used"), Day: ceiling.Draw(t, "day"), Month: ceiling.Draw(t, "month"),
			Date: rapid.SampledFrom(dates).Draw(t, "date"), Who: rapid.IntRange(0, 50).Draw(t, "who"),
		}
	})
}

// TestHistoriesOfSpending replays random histories of calls, dates, ceilings, restarts and kills on a Book and on a plain
// model of whole numbers without bounds, and compares after each step.
func TestHistoriesOfSpending(t *testing.T) { // F62, S43
	want, done := 6000, 0
	if os.Getenv("WEIR_LONG") != "" {
		want = 1_000_000
	}
	w := newWorld(t)
	for done < want && !t.Failed() {
		rapid.Check(t, func(rt *rapid.T) {
			list := rapid.SliceOfN(someStep(), 10, 60).Draw(rt, "steps")
			done += len(list)
			w.empty()
			m := &model{w: w, days: map[place]*tally{}, saved: map[place]*tally{}, date: dates[0], pools: map[string]config.Ceiling{}}
			w.clock.now.Store(m.date * 86400)
			w.open(w.store)
			for i, s := range list {
				if fault := m.step(s); fault != "" {
					rt.Fatalf("step %d, %+v: %s", i, s, fault)
				}
			}
		})
	}
}

// empty takes everything out of the store.
func (w *world) empty() {
	rows, err := w.store.Spending(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for i, r := range rows {
		rows[i] = store.Spend{Day: r.Day, Scope: r.Scope, Name: r.Name, Purpose: r.Purpose}
	}
	if err := w.store.PutSpending(w.t.Context(), rows); err != nil {
		w.t.Fatal(err)
	}
}

// place is one day of one scope and name.
type place struct {
	scope, name string
	date        int64
}

// tally is what stands there.
type tally struct {
	spent, held                    big.Int
	calls, open, unpriced, counted int64
}

// running is a call.
type running struct {
	hold   *Hold
	places []place
	price  int
	amount *big.Int
}

type model struct {
	w           *world
	days, saved map[place]*tally // now, and as the store has them
	date        int64
	total       config.Ceiling
	pools       map[string]config.Ceiling
	run         []running
}

func (m *model) step(s step) string {
	switch s.Do {
	case "reserve":
		if fault := m.reserve(s); fault != "" {
			return fault
		}
	case "settle", "cancel":
		if len(m.run) > 0 {
			i := s.Who % len(m.run)
			r := m.run[i]
			m.run = slices.Delete(m.run, i, i+1)
			if fault := m.end(r, s); fault != "" {
				return fault
			}
		}
	case "date":
		m.date = s.Date
		m.w.clock.now.Store(m.date*86400 + 86399)
	case "ceilings":
		m.total, m.pools = config.Ceiling{Day: config.USD(s.Day)}, map[string]config.Ceiling{s.Pool: {Month: config.USD(s.Month)}}
		m.w.SetCeilings(Ceilings{Total: m.total, Pools: m.pools})
	case "prune": // of fewer than 40 days nothing goes
		m.w.prune(m.w.t.Context())
	case "flush":
		m.flush()
	case "restart":
		for _, r := range m.run {
			m.end(r, step{Do: "cancel"})
		}
		m.flush()
		m.reopen()
	case "kill":
		m.reopen()
	}
	return m.compare()
}

func (m *model) flush() {
	m.w.flush()
	m.saved = map[place]*tally{}
	for p, t := range m.days {
		c := &tally{calls: t.calls, open: t.open, unpriced: t.unpriced, counted: t.counted}
		c.spent.Set(&t.spent)
		c.held.Set(&t.held)
		m.saved[p] = c
	}
}

// reopen begins with what was saved, where all that was held is spent.
func (m *model) reopen() {
	m.w.open(m.w.store)
	m.w.SetCeilings(Ceilings{Total: m.total, Pools: m.pools})
	m.days, m.run = map[place]*tally{}, nil
	for p, t := range m.saved {
		n := m.at(p)
		n.spent.Add(&t.spent, &t.held)
		n.counted, n.unpriced = t.counted+t.open, t.unpriced
	}
}

func (m *model) at(p place) *tally {
	if m.days[p] == nil {
		m.days[p] = &tally{}
	}
	return m.days[p]
}

// sums are those of a scope and name on its date, and in the month of it.
func (m *model) sums(scope, name string, date int64) (day, month tally) {
	in := time.Unix(date*86400, 0).UTC()
	for p, t := range m.days {
		if p.scope != scope || p.name != name {
			continue
		}
		for _, to := range []struct {
			sum *tally
			is  bool
		}{{&day, p.date == date}, {&month, time.Unix(p.date*86400, 0).UTC().Format("2006-01") == in.Format("2006-01")}} {
			if to.is {
				to.sum.spent.Add(&to.sum.spent, &t.spent)
				to.sum.held.Add(&to.sum.held, &t.held)
				to.sum.counted += t.counted
				to.sum.unpriced += t.unpriced
			}
		}
	}
	return day, month
}

func (m *model) reserve(s step) string {
	rate := rates[s.Price]
	most := new(big.Int)
	if rate > 0 {
		cost, _ := bigCost(Usage{In: s.Most}, rate, rate, rate, rate)
		most.SetInt64(max(cost, 1))
	}
	c := Charge{Key: s.Key, KeyDay: s.Day, KeyMonth: s.Month, Pool: s.Pool, Price: prices[s.Price], Most: Usage{In: s.Most}}
	h, got := m.w.Reserve(c)
	want := m.refused(c, most)
	if have := fmt.Sprintf("%+v", got); got == nil != (want == "") || got != nil && got.Scope+" "+got.Period != want {
		return fmt.Sprintf("refused %s, want %q", have, want)
	}
	if got != nil {
		return ""
	}
	r := running{hold: h, places: []place{{Pool, s.Pool, m.date}, {Total, "", m.date}}, price: s.Price, amount: most}
	if s.Key != "" {
		r.places = append(r.places, place{Key, s.Key, m.date})
	}
	_, total := m.sums(Total, "", m.date)
	if room := new(big.Int).Sub(big.NewInt(math.MaxInt64), &total.held); room.Cmp(most) < 0 {
		r.amount = room
	}
	for _, p := range r.places {
		if t := m.at(p); r.amount.Sign() > 0 {
			t.held.Add(&t.held, r.amount)
			t.open++
		}
	}
	m.run = append(m.run, r)
	return ""
}

// refused names the scope and period that do not let a call through.
func (m *model) refused(c Charge, most *big.Int) string {
	if most.Sign() == 0 {
		return ""
	}
	for _, of := range []struct {
		scope, name string
		day, month  int64
	}{{Key, c.Key, c.KeyDay, c.KeyMonth}, {Pool, c.Pool, int64(m.pools[c.Pool].Day), int64(m.pools[c.Pool].Month)}, {Total, "", int64(m.total.Day), int64(m.total.Month)}} {
		if of.scope == Key && of.name == "" {
			continue
		}
		day, month := m.sums(of.scope, of.name, m.date)
		for _, p := range []struct {
			name    string
			sum     *tally
			ceiling int64
		}{{Month, &month, of.month}, {Day, &day, of.day}} {
			ceiling := big.NewInt(p.ceiling)
			need := new(big.Int).Set(most)
			if need.Cmp(ceiling) > 0 {
				need.Set(ceiling)
			}
			need.Add(need, &p.sum.spent).Add(need, &p.sum.held)
			if p.ceiling > 0 && need.Cmp(ceiling) > 0 {
				return of.scope + " " + p.name
			}
		}
	}
	return ""
}

// end settles a call, or cancels it.
func (m *model) end(r running, s step) string {
	for _, p := range r.places {
		if t := m.at(p); r.amount.Sign() > 0 {
			t.held.Sub(&t.held, r.amount)
			t.open--
		}
	}
	if s.Do == "cancel" {
		r.hold.Cancel()
		return ""
	}
	rate := rates[r.price]
	want, known := bigCost(Usage{In: s.Used}, rate, rate, rate, rate)
	if got, ok := r.hold.Settle(Usage{In: s.Used}, "client"); got != want || ok != known {
		return fmt.Sprintf("cost %d, %v, want %d, %v", got, ok, want, known)
	}
	for _, p := range r.places {
		t := m.at(p)
		t.spent.Add(&t.spent, big.NewInt(want))
		t.counted++
		if !known {
			t.unpriced++
		}
	}
	return ""
}

func (m *model) compare() string {
	for _, of := range [][2]string{{Key, "a"}, {Key, "b"}, {Pool, "p"}, {Pool, "q"}, {Total, ""}} {
		got := m.w.Totals(of[0], of[1])
		day, month := m.sums(of[0], of[1], m.date)
		for _, p := range []struct {
			name string
			got  Sum
			want tally
		}{{"day", got.Day, day}, {"month", got.Month, month}} {
			want := Sum{Spent: bounded(&p.want.spent), Held: bounded(&p.want.held), Requests: p.want.counted, Unpriced: p.want.unpriced, Ceiling: p.got.Ceiling, Until: p.got.Until}
			if p.got != want {
				return fmt.Sprintf("%s %s, %s: %+v, want %+v", of[0], of[1], p.name, p.got, want)
			}
		}
	}
	return ""
}

func bounded(n *big.Int) int64 {
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}
