package pool

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/llm"
)

func newPool(capacity, backends int) *Pool {
	o := Options{Name: "p", Slots: NewSlots(capacity, 10), Rate: NewRate("floor", 0)}
	for range backends {
		o.Backends = append(o.Backends, new(backend.Backend))
	}
	return New(o)
}

func TestLeaseGoesToTheBackendWithTheFewestCalls(t *testing.T) {
	p := newPool(100, 3)
	held := map[*backend.Backend]int{}
	var leases []Lease
	for range 30 {
		l, err := p.Acquire(t.Context(), Need{})
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, l)
		held[l.Backend]++
	}
	for _, b := range p.Backends {
		if held[b] != 10 {
			t.Errorf("a backend has %d of 30 calls, want 10", held[b])
		}
	}
	for i := range leases {
		if leases[i].Backend == p.Backends[1] {
			leases[i].Done(nil)
		}
	}
	for range 10 { // the one that became free fills up first
		l, err := p.Acquire(t.Context(), Need{})
		if err != nil || l.Backend != p.Backends[1] {
			t.Fatalf("the call went to a busy backend (%v)", err)
		}
	}
}

func TestBackendsTakeTurnsWhenAllAreFree(t *testing.T) {
	p := newPool(1, 3)
	got := map[*backend.Backend]int{}
	for range 30 {
		l, err := p.Acquire(t.Context(), Need{})
		if err != nil {
			t.Fatal(err)
		}
		got[l.Backend]++
		l.Done(nil)
	}
	for _, b := range p.Backends {
		if got[b] != 10 {
			t.Errorf("a backend had %d of 30 calls, want 10", got[b])
		}
	}
}

func TestDoneGivesBackOnce(t *testing.T) {
	p := newPool(2, 1)
	l, err := p.Acquire(t.Context(), Need{})
	if err != nil {
		t.Fatal(err)
	}
	l.Done(errors.New("boom"))
	l.Done(nil)
	if u := p.Slots.Usage(); u.Held != 0 {
		t.Errorf("got %+v", u)
	}
	var none Lease
	none.Done(nil)
}

func TestAcquireFails(t *testing.T) {
	p := newPool(1, 1)
	if _, err := p.Acquire(t.Context(), Need{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Acquire(ctx, Need{Wait: time.Hour}); llm.KindOf(err) != llm.Canceled {
		t.Errorf("got %v", err)
	}
	if _, err := p.Acquire(t.Context(), Need{Wait: time.Nanosecond}); llm.KindOf(err) != llm.Full {
		t.Errorf("got %v", err)
	}
	if n := p.members[0].held.Load(); n != 1 {
		t.Errorf("a failed wait counts as a call: %d", n)
	}
}

func TestManyLeasesAtOnceLeaveNothing(t *testing.T) {
	p := newPool(4, 2)
	p.Slots.Resize(4, 1000)
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			l, err := p.Acquire(context.Background(), Need{})
			if err != nil {
				t.Error(err)
				return
			}
			l.Done(nil)
		})
	}
	all.Wait()
	if u := p.Slots.Usage(); u.Held != 0 || p.members[0].held.Load() != 0 || p.members[1].held.Load() != 0 {
		t.Errorf("left over: %+v", u)
	}
}

func TestRateBeginsWithItsTiersGuess(t *testing.T) {
	for _, c := range []struct {
		tier  string
		known float64
		want  time.Duration // for 4,000 tokens
	}{
		{"floor", 0, 40 * time.Second}, {"gpu", 0, 10 * time.Second}, {"cloud", 0, time.Second},
		{"floor", 1000, 4 * time.Second},
		{"nowhere", 0, 400 * time.Second},
		{"floor", 1e-9, 400 * time.Second}, {"floor", math.Inf(1), 40 * time.Millisecond}, {"floor", math.NaN(), 40 * time.Second}, {"floor", -5, 40 * time.Second},
	} {
		r := NewRate(c.tier, c.known)
		if got := r.Allowance(4000); got != c.want {
			t.Errorf("%s, known %v: got %v, want %v", c.tier, c.known, got, c.want)
		}
		if _, measured := r.Value(); measured != (c.known > 0) {
			t.Errorf("%s, known %v: measured %v", c.tier, c.known, measured)
		}
		if got := r.Allowance(0); got != 0 {
			t.Errorf("nothing takes %v", got)
		}
	}
}

func TestRateLearns(t *testing.T) {
	r := NewRate("floor", 0)
	r.Learn(63, 5000) // too short a prompt
	r.Learn(1000, 0)
	r.Learn(1000, -1)
	r.Learn(1000, math.NaN())
	if v, measured := r.Value(); v != 100 || measured {
		t.Fatalf("after nothing of use: %v, %v", v, measured)
	}
	if _, ok := r.Unsaved(); ok {
		t.Error("a guess is saved")
	}
	r.Learn(64, 800)
	if v, measured := r.Value(); v != 800 || !measured {
		t.Errorf("the first measurement: got %v, %v, want 800", v, measured)
	}
	if v, ok := r.Unsaved(); v != 800 || !ok {
		t.Errorf("unsaved: got %v, %v", v, ok)
	}
	if _, ok := r.Unsaved(); ok {
		t.Error("it is saved twice")
	}
	r.Learn(64, 1600)
	if v, _ := r.Value(); v != 900 {
		t.Errorf("the second: got %v, want 900", v)
	}
	if v, ok := r.Unsaved(); v != 900 || !ok {
		t.Errorf("after a move by an eighth: %v, %v", v, ok)
	}
	r.Learn(64, 910)
	if _, ok := r.Unsaved(); ok {
		t.Error("a move by less than a twentieth is saved")
	}
	for range 200 {
		r.Learn(64, math.Inf(1))
	}
	if v, _ := r.Value(); v > mostRate {
		t.Errorf("an absurd measurement is believed: %v", v)
	}
	for range 200 {
		r.Learn(64, 1e-9)
	}
	if v, _ := r.Value(); v < leastRate || r.Allowance(1000) > 100*time.Second {
		t.Errorf("an absurd measurement is believed: %v", v)
	}
}

func TestPoolLearnsAndAllows(t *testing.T) {
	p := newPool(1, 1)
	p.Learn(1000, 500)
	if got := p.Allowance(1000); got != 2*time.Second {
		t.Errorf("got %v, want 2s", got)
	}
}
