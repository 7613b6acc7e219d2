package spend

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"weir/internal/config"
	"weir/internal/store"
)

// What a ceiling is of.
const (
	Key   = "key"
	Pool  = "pool"
	Total = "total"
)

// How long a ceiling holds. Days and months are those of UTC, by the wall clock.
const (
	Day   = "day"
	Month = "month"
)

// Store keeps the counters: *store.Store does.
type Store interface {
	Spending(ctx context.Context) ([]store.Spend, error)
	PutSpending(ctx context.Context, rows []store.Spend) error
	PruneSpending(ctx context.Context, before int64) (first int64, err error)
}

// Options say how a Book is opened.
type Options struct {
	Store Store
	// Warn is told when 50, 80 or 100 % of a ceiling were spent. It runs on a request's way, with no lock held: it must not
	// block. nil: nobody is told.
	Warn func(Warning)
	// Log takes what an operator must know of the store; nil is silent.
	Log *slog.Logger
	// Now is the wall clock; nil is time.Now.
	Now func() time.Time
}

// Ceilings are those of the configuration. Those of keys come with each call.
type Ceilings struct {
	Total config.Ceiling
	Pools map[string]config.Ceiling
}

// Warning says that a part of a ceiling is spent. Each percentage is told once in a period, the highest alone where one call
// reaches several; a restart does not tell again.
type Warning struct {
	Scope, Name    string // key, pool, total; empty for the total
	Period         string // day, month
	Percent        int    // 50, 80, 100
	Spent, Ceiling int64  // nano-dollars
	Until          time.Time
}

// Book keeps account of what calls cost. All methods are safe for concurrent use; one lock makes what is held and booked
// exact.
type Book struct {
	store Store
	tell  func(Warning)
	log   *slog.Logger
	now   func() time.Time

	writing sync.Mutex // held while the store is written; mu is taken under it, never the other way round
	failing bool       // guarded by writing
	first   int64      // day of the store, guarded by writing

	mu    sync.Mutex // guards the fields below, and all sheets, days and holds; nothing blocks under it
	keys  map[string]*sheet
	pools map[string]*sheet
	total *sheet
	dirty []*day
	since time.Time // of the oldest change that is not in the store; zero: all is
	later time.Time // of the oldest change since the last write began
}

// Open reads what was spent. What was held by a run that was killed counts as spent in full, for its vendor may have billed
// it, under the purpose "unsettled"; the log says so. The store must outlive the Book. Call Flush after the last call.
func Open(ctx context.Context, o Options) (*Book, error) {
	b := &Book{
		store: o.Store, tell: o.Warn, log: o.Log, now: o.Now,
		keys: map[string]*sheet{}, pools: map[string]*sheet{}, total: newSheet(Total, ""),
	}
	if b.tell == nil {
		b.tell = func(Warning) {}
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if b.now == nil {
		b.now = time.Now
	}
	rows, err := b.store.Spending(ctx)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.load(rows)
	return b, nil
}

func (b *Book) load(rows []store.Spend) {
	var calls, amount int64
	for i := range rows {
		r := &rows[i]
		s := b.sheet(r.Scope, r.Name)
		if s == nil {
			continue
		}
		d := s.at(r.Day)
		recovered := d.load(r)
		if recovered == 0 {
			continue
		}
		b.mark(d)
		if s == b.total {
			calls, amount = plus(calls, max(r.Requests, 0)), plus(amount, recovered)
		}
	}
	if amount > 0 {
		b.log.Warn("calls of a run that was killed count as spent in full: their vendor may have billed them", "calls", calls, "usd", config.USD(amount).String())
	}
}

// SetCeilings replaces the ceilings of the pools and of the total at once. What is held already stays held.
func (b *Book) SetCeilings(c Ceilings) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total.ceiling = c.Total
	for _, s := range b.pools {
		s.ceiling = config.Ceiling{}
	}
	for name, ceiling := range c.Pools {
		if s := b.sheet(Pool, name); s != nil {
			s.ceiling = ceiling
		}
	}
}

// sheet returns the sheet of a scope and name; nil where there is no such scope, or no name where one is needed.
func (b *Book) sheet(scope, name string) *sheet {
	var all map[string]*sheet
	switch {
	case scope == Total:
		return b.total
	case name == "":
		return nil
	case scope == Key:
		all = b.keys
	case scope == Pool:
		all = b.pools
	default:
		return nil
	}
	s := all[name]
	if s == nil {
		s = newSheet(scope, name)
		all[name] = s
	}
	return s
}

// mark notes that the store must be told of a day.
func (b *Book) mark(d *day) {
	if d.dirty {
		return
	}
	d.dirty = true
	b.dirty = append(b.dirty, d)
	if b.later.IsZero() {
		b.later = time.Now() // never the wall clock of Options, which may jump
		if b.since.IsZero() {
			b.since = b.later
		}
	}
}
