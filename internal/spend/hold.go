package spend

import (
	"time"

	"weir/internal/config"
)

// Charge says what is to be called, for whom, and what it may use.
type Charge struct {
	Key              string // name; empty: nobody's, such as a probe's
	KeyDay, KeyMonth int64  // ceilings of the key, in nano-dollars; 0: none
	Pool             string
	Price            *Price // nil: unknown
	Most             Usage  // the estimated prompt, and the longest answer that is asked for
}

// Hold is what is held back for one call. Exactly one of its methods counts, the first; the others do nothing.
type Hold struct {
	b      *Book
	price  *Price
	days   [3]*day // of key, pool and total; nil where there is none
	amount int64
	ended  bool
}

// Reserve holds back the most that a call may cost from its key, its pool and the total, all or nothing: it is let through
// if what was spent, what is held and this together are at most each ceiling there is. What alone is larger than a whole
// ceiling counts as that ceiling, and so needs it for itself. A call at an unknown price, or at none, holds nothing and is
// never refused. Where the store has not taken what was spent for 10 s, priced calls under a ceiling are refused. It does
// not block. The caller must end the hold by Settle or Cancel, from any goroutine. The call counts for the day and month in
// which it began, whenever it ends.
func (b *Book) Reserve(c Charge) (*Hold, *Refusal) {
	now := b.now()
	most := c.Price.most(c.Most)
	b.mu.Lock()
	days := b.days(&c, dateOf(now))
	if most > 0 {
		if d, r := b.refuse(&days, most, now); r != nil {
			w := d.warn(nil, d.spent, d.month.spent)
			b.mu.Unlock()
			b.warn(w)
			return nil, r
		}
		most = min(most, days[2].room())
	}
	for _, d := range days {
		if d != nil {
			d.hold(most)
			if most > 0 {
				b.mark(d)
			}
		}
	}
	b.mu.Unlock()
	return &Hold{b: b, price: c.Price, days: days, amount: most}, nil
}

// days finds the days that a call counts for.
func (b *Book) days(c *Charge, date int64) (days [3]*day) {
	if s := b.sheet(Key, c.Key); s != nil {
		s.ceiling = config.Ceiling{Day: config.USD(c.KeyDay), Month: config.USD(c.KeyMonth)}
		days[0] = s.at(date)
	}
	if s := b.sheet(Pool, c.Pool); s != nil {
		days[1] = s.at(date)
	}
	days[2] = b.total.at(date)
	return days
}

// refuse returns the first day under whose ceilings most does not fit, and why. The month's comes first: it holds longer.
func (b *Book) refuse(days *[3]*day, most int64, now time.Time) (*day, *Refusal) {
	var asked, stuck bool
	for _, d := range days {
		if d == nil || d.sheet.ceiling == (config.Ceiling{}) {
			continue
		}
		if !asked {
			asked, stuck = true, b.stuck()
		}
		for _, p := range d.periods() {
			switch {
			case p.ceiling <= 0:
			case stuck:
				r := d.refusal(p, most)
				r.Unwritten, r.Until = true, now.Add(patience).UTC()
				return d, r
			case !p.sum.fits(most, p.ceiling):
				return d, d.refusal(p, most)
			}
		}
	}
	return nil, nil
}

// stuck reports whether the store has not been told for too long of what was spent.
func (b *Book) stuck() bool { return !b.since.IsZero() && time.Since(b.since) > patience }

// Settle books what the call used in truth, which may be more than was held, under a purpose of event.Record, and gives
// back what was held. It returns the cost in nano-dollars as Price.Cost does: where known is false, nanos is what is
// certain of it, and that is booked. It does not block; the second call does nothing and returns 0, false.
func (h *Hold) Settle(u Usage, purpose string) (nanos int64, known bool) {
	nanos, known = h.price.Cost(u)
	var unpriced int64
	if !known {
		unpriced = 1
	}
	b := h.b
	b.mu.Lock()
	if h.ended {
		b.mu.Unlock()
		return 0, false
	}
	h.release()
	var w []Warning
	for _, d := range h.days {
		if d != nil {
			day, month := d.spent, d.month.spent
			d.add(purpose, nanos, 1, unpriced)
			b.mark(d)
			w = d.warn(w, day, month)
		}
	}
	b.mu.Unlock()
	b.warn(w)
	return nanos, known
}

// Cancel gives back what was held and books nothing. It does nothing after Settle, or a second time.
func (h *Hold) Cancel() {
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	if !h.ended {
		h.release()
	}
}

// release needs the lock.
func (h *Hold) release() {
	h.ended = true
	for _, d := range h.days {
		if d != nil {
			d.release(h.amount)
			if h.amount > 0 {
				h.b.mark(d)
			}
		}
	}
}

// period is one of the two that each day counts in.
type period struct {
	name    string
	sum     *sum
	ceiling int64
}

func (d *day) periods() [2]period {
	return [2]period{{Month, d.month, int64(d.sheet.ceiling.Month)}, {Day, &d.sum, int64(d.sheet.ceiling.Day)}}
}

// warn appends what must be told of a day that had spent day and month before.
func (d *day) warn(to []Warning, day, month int64) []Warning {
	before := [2]int64{month, day}
	for i, p := range d.periods() {
		if percent := p.sum.warn(before[i], p.ceiling); percent > 0 {
			to = append(to, Warning{d.sheet.scope, d.sheet.name, p.name, int(percent), p.sum.spent, p.ceiling, ends(d.date, p.name)})
		}
	}
	return to
}

func (b *Book) warn(all []Warning) {
	for _, w := range all {
		b.tell(w)
	}
}
