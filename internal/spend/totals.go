package spend

import (
	"cmp"
	"slices"
	"time"
)

// Totals are what was spent of one scope and name, in the day and month that it is now.
type Totals struct {
	Scope, Name string // key, pool, total; empty for the total
	Day, Month  Sum
}

// Sum is what was spent in one period. Amounts are nano-dollars.
type Sum struct {
	Spent, Held int64 // Held for calls that run
	Ceiling     int64 // 0: none. Of a key: as it was at its last call
	Requests    int64
	Unpriced    int64 // of these, at an unknown price
	Until       time.Time
}

// Left is what may still be spent and is not held, at least 0; −1 where there is no ceiling.
func (s Sum) Left() int64 {
	if s.Ceiling <= 0 {
		return -1
	}
	return max(0, s.Ceiling-plus(s.Spent, s.Held))
}

// Totals returns what was spent by a key or pool or, with an empty name, in total; zeros where that is not known of.
func (b *Book) Totals(scope, name string) Totals {
	date := dateOf(b.now())
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.total
	switch scope {
	case Key:
		s = b.keys[name]
	case Pool:
		s = b.pools[name]
	}
	if s == nil {
		s = newSheet(scope, name)
	}
	return s.totals(date)
}

// All returns what was spent in total, then by each pool and by each key that has a ceiling or did anything in this month,
// each by name.
func (b *Book) All() []Totals {
	date := dateOf(b.now())
	b.mu.Lock()
	defer b.mu.Unlock()
	all := []Totals{b.total.totals(date)}
	for _, sheets := range []map[string]*sheet{b.pools, b.keys} {
		from := len(all)
		for _, s := range sheets {
			t := s.totals(date)
			if m := t.Month; m.Requests > 0 || m.Held > 0 || m.Ceiling > 0 || t.Day.Ceiling > 0 {
				all = append(all, t)
			}
		}
		slices.SortFunc(all[from:], func(a, b Totals) int { return cmp.Compare(a.Name, b.Name) })
	}
	return all
}

func (s *sheet) totals(date int64) Totals {
	d := &day{month: s.months[monthOf(date)]}
	if s.days[date] != nil {
		d = s.days[date]
	}
	if d.month == nil {
		d.month = &sum{}
	}
	return Totals{
		Scope: s.scope, Name: s.name,
		Day:   d.sum.total(int64(s.ceiling.Day), ends(date, Day)),
		Month: d.month.total(int64(s.ceiling.Month), ends(date, Month)),
	}
}

func (s *sum) total(ceiling int64, until time.Time) Sum {
	return Sum{Spent: s.spent, Held: s.held, Ceiling: max(ceiling, 0), Requests: s.requests, Unpriced: s.unpriced, Until: until}
}
