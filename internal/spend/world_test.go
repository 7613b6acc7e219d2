package spend

import (
	"bytes"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/config"
	"weir/internal/store"
)

// unit costs a nano-dollar a token, in and out.
var unit = price("0.001", "0.001", "", "")

// clock is a wall clock that can be set.
type clock struct{ now atomic.Int64 }

func (c *clock) set(text string) {
	t, err := time.Parse("2006-01-02 15:04:05", text)
	if err != nil {
		panic(err)
	}
	c.now.Store(t.Unix())
}

func (c *clock) Now() time.Time { return time.Unix(c.now.Load(), 0) }

// world is a Book with its store and clock, and what it told.
type world struct {
	*Book
	t     *testing.T
	store *store.Store
	clock clock
	told  []Warning
	log   bytes.Buffer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s, err := store.Open(t.Context(), t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	w := &world{t: t, store: s}
	w.clock.set("2026-12-01 10:00:00")
	w.open(s)
	return w
}

// open begins a new Book, as a start of Weir does.
func (w *world) open(s Store) {
	w.t.Helper()
	b, err := Open(w.t.Context(), Options{
		Store: s, Now: w.clock.Now, Warn: func(x Warning) { w.told = append(w.told, x) },
		Log: slog.New(slog.NewTextHandler(&w.log, nil)),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.Book = b
}

func (w *world) flush() {
	w.t.Helper()
	if err := w.Flush(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// call is one of key k and pool p that may cost most.
func call(most int64) Charge {
	return Charge{Key: "k", Pool: "p", Price: unit, Most: Usage{In: most}}
}

// spend makes a call that costs n.
func (w *world) spend(n int64) {
	w.t.Helper()
	h, r := w.Reserve(call(n))
	if r != nil {
		w.t.Fatalf("refused: %v", r)
	}
	if got, known := h.Settle(Usage{In: n}, "client"); got != n || !known {
		w.t.Fatalf("cost %d, %v, want %d", got, known, n)
	}
}

// allowed tries a call that may cost most, and books nothing.
func (w *world) allowed(c Charge) bool {
	w.t.Helper()
	h, r := w.Reserve(c)
	if r == nil {
		h.Cancel()
	}
	return r == nil
}

// under is a call under one ceiling of 100, which the world is told of where it is none of a key.
func (w *world) under(scope, period string) Charge {
	c := call(1)
	limit := config.Ceiling{Day: 100}
	if period == Month {
		limit = config.Ceiling{Month: 100}
	}
	switch scope {
	case Key:
		c.KeyDay, c.KeyMonth = int64(limit.Day), int64(limit.Month)
	case Pool:
		w.SetCeilings(Ceilings{Pools: map[string]config.Ceiling{"p": limit}})
	case Total:
		w.SetCeilings(Ceilings{Total: limit})
	}
	return c
}

// each runs a test for each scope and period.
func each(t *testing.T, test func(t *testing.T, scope, period string)) {
	for _, scope := range []string{Key, Pool, Total} {
		for _, period := range []string{Day, Month} {
			t.Run(scope+" "+period, func(t *testing.T) { test(t, scope, period) })
		}
	}
}

// race tries a call n times at once and returns how many were let through; none of them ends.
func (w *world) race(n int, c Charge) (passed int) {
	var wait sync.WaitGroup
	var count atomic.Int64
	begin := make(chan struct{})
	for range n {
		wait.Go(func() {
			<-begin
			if _, r := w.Reserve(c); r == nil {
				count.Add(1)
			}
		})
	}
	close(begin)
	wait.Wait()
	return int(count.Load())
}

func BenchmarkReserve(b *testing.B) {
	s, err := store.Open(b.Context(), b.TempDir(), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	book, err := Open(b.Context(), Options{Store: s})
	if err != nil {
		b.Fatal(err)
	}
	c := Charge{Key: "k", KeyDay: 1 << 60, KeyMonth: 1 << 60, Pool: "p", Price: unit, Most: Usage{In: 2000, Out: 1000}}
	limit := config.Ceiling{Day: 1 << 60, Month: 1 << 60}
	book.SetCeilings(Ceilings{Total: limit, Pools: map[string]config.Ceiling{"p": limit}})
	b.ReportAllocs()
	for b.Loop() {
		h, r := book.Reserve(c)
		if r != nil {
			book.since = time.Time{} // nobody writes here
			continue
		}
		h.Settle(Usage{In: 2000, Out: 100, Cached: 1000}, "client")
	}
}
