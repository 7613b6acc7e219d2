package spend

import (
	"math"
	"slices"
	"time"

	"weir/internal/config"
	"weir/internal/store"
)

// unsettled is the purpose of what is held, and of what was held when a Weir was killed.
const unsettled = "unsettled"

// sheet is what is known of one key, of one pool or of the total. The Book's lock guards it and all below.
type sheet struct {
	scope, name string
	ceiling     config.Ceiling // of a key: the one of its last call
	days        map[int64]*day
	months      map[int64]*sum
	last        *day // that was asked for
}

// sum is what was spent and is held in one day or month. It is never reset. The month is the sum of its days.
type sum struct {
	spent, held, requests, unpriced int64

	told    uint64 // the highest percentage that was told, of the ceiling against
	against int64
	loaded  bool // what stands here when the first ceiling comes was told before
}

// day is one day of a sheet.
type day struct {
	sum
	sheet *sheet
	date  int64 // days since 1970, UTC
	month *sum
	lines []line
	calls int64 // that run
	open  int64 // of these, those that hold something
	noted bool  // the store has a row of what is held
	dirty bool  // the day is in the Book's list
}

// line is one purpose of a day.
type line struct {
	purpose                  string
	cost, requests, unpriced int64
}

// dateOf is the day of a moment.
func dateOf(t time.Time) int64 {
	const length = 24 * 60 * 60
	s := t.Unix()
	d := s / length
	if s%length < 0 {
		d--
	}
	return d
}

// begin is the first moment of a day.
func begin(date int64) time.Time { return time.Unix(date*24*60*60, 0).UTC() }

// monthOf numbers the months one after the other.
func monthOf(date int64) int64 {
	y, m, _ := begin(date).Date()
	return int64(y)*12 + int64(m) - 1
}

// ends is the first moment after the day, or after its month.
func ends(date int64, period string) time.Time {
	t := begin(date)
	if period == Month {
		return time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	}
	return t.AddDate(0, 0, 1)
}

func newSheet(scope, name string) *sheet {
	return &sheet{scope: scope, name: name, days: map[int64]*day{}, months: map[int64]*sum{}}
}

// at returns the sheet's day.
func (s *sheet) at(date int64) *day {
	if s.last != nil && s.last.date == date {
		return s.last
	}
	d := s.days[date]
	if d == nil {
		number := monthOf(date)
		m := s.months[number]
		if m == nil {
			m = &sum{}
			s.months[number] = m
		}
		d = &day{sheet: s, date: date, month: m}
		s.days[date] = d
	}
	s.last = d
	return d
}

// load takes a row of the store. What was held belongs to a run that was killed: its vendor may have billed all of it.
func (d *day) load(r *store.Spend) (recovered int64) {
	d.add(r.Purpose, max(r.Cost, 0), max(r.Requests, 0), max(r.Unpriced, 0))
	recovered = max(r.Reserved, 0)
	if recovered > 0 {
		d.add(unsettled, recovered, 0, 0)
	}
	d.noted = d.noted || r.Purpose == unsettled
	d.loaded, d.month.loaded = true, true
	return recovered
}

// add books what was spent.
func (d *day) add(purpose string, cost, requests, unpriced int64) {
	i := slices.IndexFunc(d.lines, func(l line) bool { return l.purpose == purpose })
	if i < 0 {
		i = len(d.lines)
		d.lines = append(d.lines, line{purpose: purpose})
	}
	l := &d.lines[i]
	l.cost, l.requests, l.unpriced = plus(l.cost, cost), plus(l.requests, requests), plus(l.unpriced, unpriced)
	for _, s := range []*sum{&d.sum, d.month} {
		s.spent, s.requests, s.unpriced = plus(s.spent, cost), plus(s.requests, requests), plus(s.unpriced, unpriced)
	}
}

// hold begins a call and release ends it, with what it holds. The Book sees to it that no sum overflows.
func (d *day) hold(amount int64) {
	d.calls++
	if amount > 0 {
		d.open++
		d.held += amount
		d.month.held += amount
	}
}

func (d *day) release(amount int64) {
	d.calls--
	if amount > 0 {
		d.open--
		d.held -= amount
		d.month.held -= amount
	}
}

// room is how much a day of the total can hold before a sum overflows: what any key or pool holds of a month, the total
// holds too.
func (d *day) room() int64 { return math.MaxInt64 - d.month.held }

// rows appends what the store shall know of the day.
func (d *day) rows(to []store.Spend) []store.Spend {
	row := store.Spend{Day: d.date, Scope: d.sheet.scope, Name: d.sheet.name}
	held := row
	held.Purpose, held.Reserved, held.Requests = unsettled, d.held, d.open
	for _, l := range d.lines {
		if l.purpose == unsettled {
			held.Cost, held.Requests, held.Unpriced = l.cost, plus(l.requests, d.open), l.unpriced
			continue
		}
		row.Purpose, row.Cost, row.Requests, row.Unpriced = l.purpose, l.cost, l.requests, l.unpriced
		to = append(to, row)
	}
	if d.noted || held.Requests > 0 || held.Cost > 0 {
		d.noted = true
		to = append(to, held)
	}
	return to
}

// fits reports whether an amount fits under a ceiling; 0 is none. One that is larger than the whole ceiling fits where
// nothing else is.
func (s *sum) fits(amount, ceiling int64) bool {
	if ceiling <= 0 {
		return true
	}
	used := plus(s.spent, s.held)
	return used <= ceiling-min(amount, ceiling)
}

// warn returns the percentage of a ceiling that was reached now and not told before, or 0. before is what was spent before
// the last call. A new ceiling is told of again from where it stands.
func (s *sum) warn(before, ceiling int64) uint64 {
	if s.loaded {
		s.told = level(before, ceiling)
	} else if s.against != ceiling {
		s.told = min(s.told, level(before, ceiling))
	}
	s.loaded, s.against = false, ceiling
	now := level(s.spent, ceiling)
	if now <= s.told {
		return 0
	}
	s.told = now
	return now
}

// level is the highest of the told percentages that an amount reaches.
func level(amount, ceiling int64) uint64 {
	if ceiling > 0 {
		for _, p := range []uint64{100, 80, 50} {
			if reaches(amount, ceiling, p) {
				return p
			}
		}
	}
	return 0
}
