package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/llm"
)

// asker takes slots in goroutines of its own and writes down who got one, in turn.
type asker struct {
	t     *testing.T
	s     *Slots
	holds time.Duration // how long a slot is kept

	mu    sync.Mutex // guards the fields below; nobody writes once all are settled
	order []string
	fails map[string]error
}

func newAsker(t *testing.T, capacity, size int) *asker {
	return &asker{t: t, s: NewSlots(capacity, size), fails: map[string]error{}}
}

// fill takes all slots.
func (a *asker) fill() {
	a.t.Helper()
	for range a.s.Usage().Cap {
		if err := a.s.Acquire(a.t.Context(), 0, 0); err != nil {
			a.t.Fatal(err)
		}
	}
}

// asks begins to wait.
func (a *asker) asks(name string, priority int, wait time.Duration) {
	go func() {
		err := a.s.Acquire(a.t.Context(), priority, wait)
		a.mu.Lock()
		if err != nil {
			a.fails[name] = err
		} else {
			a.order = append(a.order, name)
		}
		a.mu.Unlock()
		if err != nil {
			return
		}
		time.Sleep(a.holds)
		a.s.Release()
	}()
	synctest.Wait()
}

// F49: the slots are taken and the queue is free: who comes waits, is served first come first served inside a priority,
// and the wait that is told is the true one.
func TestF49WaitsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(2, 1)
		p.Slots.Resize(2, 100)
		type served struct {
			key, n        int
			queued, truly time.Duration
		}
		var mu sync.Mutex
		var got []served
		var last [3]int // of each key
		for i := range 60 {
			key := i % 3
			last[key]++
			n := last[key]
			begun := time.Now()
			go func() {
				l, err := p.Acquire(t.Context(), Need{Priority: key, Wait: time.Hour})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				got = append(got, served{key, n, l.Queued, time.Since(begun)})
				mu.Unlock()
				time.Sleep(time.Second)
				l.Done(nil)
			}()
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		var next [3]int
		for _, s := range got {
			if next[s.key]++; s.n != next[s.key] {
				t.Errorf("key %d: %d is served as number %d", s.key, s.n, next[s.key])
			}
			if s.queued != s.truly {
				t.Errorf("key %d, %d: told a wait of %v, it was %v", s.key, s.n, s.queued, s.truly)
			}
		}
		if len(got) != 60 || got[2].key != 2 || got[59].key != 0 {
			t.Errorf("%d are served, from %+v to %+v", len(got), got[2], got[len(got)-1])
		}
	})
}

// F50: at ten times what there is room for, who finds the queue full is told so at once, and when to come again.
func TestF50FullAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(4, 1)
		p.Slots.Resize(4, 8)
		l, err := p.Acquire(t.Context(), Need{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second) // how long calls take
		l.Done(nil)
		var full atomic.Int64
		for range 120 {
			go func() {
				begun := time.Now()
				l, err := p.Acquire(t.Context(), Need{Wait: time.Hour})
				if err == nil {
					time.Sleep(6 * time.Second)
					l.Done(nil)
					return
				}
				full.Add(1)
				if e := llm.AsError(err); e.Kind != llm.Full || time.Since(begun) != 0 || e.RetryAfter != 12*time.Second {
					t.Errorf("got %v after %v, to come again after %v; want full at once, again after 12s", err, time.Since(begun), e.RetryAfter)
				}
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if u := p.Slots.Usage(); full.Load() != 108 || u.Full != 108 || u.Held+u.Waiting != 0 {
			t.Errorf("%d are refused, %+v; want 108", full.Load(), u)
		}
	})
}

// F51: who waits longer than the limit is refused at the limit.
func TestF51LateAtTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(1, 1)
		l, err := p.Acquire(t.Context(), Need{})
		if err != nil {
			t.Fatal(err)
		}
		for _, wait := range []time.Duration{time.Millisecond, time.Second, 20 * time.Second} {
			begun := time.Now()
			_, err := p.Acquire(t.Context(), Need{Wait: wait})
			if took := time.Since(begun); llm.KindOf(err) != llm.Full || took != wait || llm.AsError(err).RetryAfter < time.Second {
				t.Errorf("got %v after %v, want full after %v", err, took, wait)
			}
		}
		l.Done(nil)
		if u := p.Slots.Usage(); u.Late != 3 || u.Full != 0 || u.Held+u.Waiting != 0 {
			t.Errorf("got %+v", u)
		}
	})
}

// F62, C102: a hundred at once where one slot is left: exactly one passes.
func TestOneSlotLeft(t *testing.T) {
	p := newPool(5, 1)
	p.Slots.Resize(5, 0)
	for range 4 {
		if _, err := p.Acquire(t.Context(), Need{}); err != nil {
			t.Fatal(err)
		}
	}
	start, got := make(chan struct{}), make(chan error)
	for range 100 {
		go func() {
			<-start
			_, err := p.Acquire(context.Background(), Need{Wait: time.Hour})
			got <- err
		}()
	}
	close(start)
	passed := 0
	for range 100 {
		if err := <-got; err == nil {
			passed++
		} else if llm.KindOf(err) != llm.Full {
			t.Error(err)
		}
	}
	if passed != 1 {
		t.Errorf("%d passed, want exactly 1", passed)
	}
}

// C105, C106: whatever ends a wait or a call, the slot is there for the next one.
func TestNothingLeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := testPool(t, 2, 2, 1, nil)
		ends := []error{nil, context.Canceled, errors.New("panic")}
		for k := llm.Invalid; k <= llm.Internal; k++ {
			ends = append(ends, failure(k))
		}
		for i := range 20 * len(ends) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%7)*300*time.Millisecond)
			go func() {
				defer cancel()
				l, err := p.Acquire(ctx, Need{Model: "m", Op: llm.Chat, Priority: i % 3, Wait: time.Duration(i%5) * 400 * time.Millisecond, Force: true})
				if err == nil {
					time.Sleep(time.Duration(i%4) * 500 * time.Millisecond)
					l.Served("other")
					l.Done(ends[i%len(ends)])
				}
			}()
			if i%50 == 0 {
				p.Slots.Dismiss(llm.Errorf(llm.None, "out"))
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if u := p.Slots.Usage(); u.Held+u.Own+u.Waiting != 0 || p.members[0].held.Load() != 0 {
			t.Errorf("left over: %+v", u)
		}
	})
}

func TestWaitingIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(2, 1)
		l, _ := p.Acquire(t.Context(), Need{})
		time.Sleep(8 * time.Second)
		l.Done(nil)
		var mu sync.Mutex
		var told []string
		need := func(priority int) Need {
			return Need{Priority: priority, Wait: time.Minute, Waiting: func(place, waiting int, guess time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, fmt.Sprint(place, " of ", waiting, " in ", guess))
			}}
		}
		var held []Lease
		for range 2 {
			l, err := p.Acquire(t.Context(), need(0))
			if err != nil || l.Place != 0 || l.Guess != 0 {
				t.Errorf("one who does not wait has place %d and guess %v, %v", l.Place, l.Guess, err)
			}
			held = append(held, l)
		}
		var got []string
		for _, priority := range []int{0, 0, 7, 3} {
			go func() {
				l, err := p.Acquire(t.Context(), need(priority))
				mu.Lock()
				got = append(got, fmt.Sprint(l.Place, " ", l.Guess, " ", llm.KindOf(err)))
				mu.Unlock()
				if err == nil {
					l.Done(nil)
				}
			}()
			synctest.Wait()
		}
		if want := []string{"1 of 1 in 4s", "2 of 2 in 8s", "1 of 3 in 4s", "2 of 4 in 8s"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
		for i := range held {
			held[i].Done(nil)
		}
		synctest.Wait()
		slices.Sort(got)
		if want := []string{"1 4s ", "1 4s ", "2 8s ", "2 8s "}; !slices.Equal(got, want) {
			t.Errorf("leases have %q, want %q", got, want)
		}
	})
}

func TestHeartbeatsNeverDelayPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, 1, 4)
		a.fill()
		for i := range 6 { // two more than there is room for
			a.asks(fmt.Sprint("heartbeat ", i), -10, time.Minute)
		}
		for i := range 3 {
			a.asks(fmt.Sprint("person ", i), 0, time.Minute)
		}
		a.asks("Weir", weirsOwn, 0)
		for _, name := range []string{"heartbeat 1", "heartbeat 2", "heartbeat 3", "heartbeat 4", "heartbeat 5", "Weir"} {
			if e := a.fails[name]; llm.KindOf(e) != llm.Full || llm.AsError(e).RetryAfter < time.Second {
				t.Errorf("%s: %v, want full", name, e)
			}
		}
		a.asks("person 3", 0, time.Minute) // puts the last heartbeat out
		a.asks("person 4", 0, time.Minute) // finds people alone
		if llm.KindOf(a.fails["heartbeat 0"]) != llm.Full || llm.KindOf(a.fails["person 4"]) != llm.Full {
			t.Errorf("got %v", a.fails)
		}
		a.s.Release()
		synctest.Wait()
		if want := []string{"person 0", "person 1", "person 2", "person 3"}; !slices.Equal(a.order, want) {
			t.Errorf("got %q, want %q", a.order, want)
		}
		if u := a.s.Usage(); u.Full != 8 || u.Late != 0 {
			t.Errorf("got %+v, want 8 refused", u)
		}
	})
}

func TestWeirsOwnCallsGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, 1, 10)
		a.holds = 2 * time.Second
		a.fill()
		a.asks("Weir", weirsOwn, 0)
		time.Sleep(time.Hour) // even then
		for i := range 8 {
			a.asks(fmt.Sprint(i), -5, 0)
		}
		a.s.Release()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(a.order) != 9 || a.order[8] != "Weir" {
			t.Errorf("got %q", a.order)
		}
	})
}

func TestNobodyStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, 1, 100)
		a.holds = time.Second
		a.fill()
		a.asks("low 1", -1, 20*time.Second)
		a.asks("low 2", -1, 20*time.Second)
		a.asks("lowest", -2, 0) // as long as its client stays
		for range 40 {          // people come as fast as they are served
			a.asks("person", 0, time.Minute)
		}
		time.Sleep(9 * time.Second)
		a.s.Release()
		time.Sleep(time.Minute)
		synctest.Wait()
		got := []int{slices.Index(a.order, "low 1"), slices.Index(a.order, "low 2"), slices.Index(a.order, "lowest")}
		// At 9 s nobody has waited long; at 11 s all three have, and go one in eight.
		if want := []int{2, 10, -1}; got[0] != want[0] || got[1] != want[1] || got[2] != 18 {
			t.Errorf("served as numbers %v, want [2 10 18]: %q", got, a.order)
		}
	})
}

func TestAShortPatienceDoesNotOvertakeInsideAPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, 1, 10)
		a.fill()
		a.asks("patient", 0, time.Hour)
		a.asks("impatient", 0, 4*time.Second)
		time.Sleep(3 * time.Second)
		a.s.Release()
		synctest.Wait()
		if want := []string{"patient", "impatient"}; !slices.Equal(a.order, want) {
			t.Errorf("got %q, want %q", a.order, want)
		}
	})
}

func TestDismissEndsAllWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, 1, 10)
		a.fill()
		out := llm.Errorf(llm.None, "taken out by hand")
		for i := range 3 {
			a.asks(fmt.Sprint(i), i, time.Hour)
		}
		a.s.Dismiss(out)
		synctest.Wait()
		for i := range 3 {
			e := llm.AsError(a.fails[fmt.Sprint(i)])
			if e.Kind != llm.None || e.Msg != out.Msg || e == out {
				t.Errorf("%d: got %v, want a copy of what was given", i, e)
			}
		}
		a.s.Release()
		if u := a.s.Usage(); u.Held != 0 || u.Waiting != 0 || u.Full != 0 || u.Late != 0 {
			t.Errorf("got %+v", u)
		}
	})
}

func TestWhoLeavesIsOutAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(1, 2)
		if err := s.Acquire(t.Context(), 0, 0); err != nil {
			t.Fatal(err)
		}
		for range 20 { // clients that leave take nobody's place
			ctx, cancel := context.WithCancelCause(t.Context())
			var err error
			go func() { err = s.Acquire(ctx, 0, time.Hour) }()
			synctest.Wait()
			gone := errors.New("hung up")
			cancel(gone)
			synctest.Wait()
			if llm.KindOf(err) != llm.Canceled || !errors.Is(err, gone) || s.Usage().Waiting != 0 {
				t.Fatalf("got %v, %+v", err, s.Usage())
			}
		}
	})
}
