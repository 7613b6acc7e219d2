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

func TestSlotsAreTakenAtOnceUpToTheCap(t *testing.T) {
	s := NewSlots(2, 1)
	for range 2 {
		if err := s.Acquire(t.Context(), 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Acquire(ctx, 0, 0); llm.KindOf(err) != llm.Canceled || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if got, want := s.Usage(), (Usage{Cap: 2, Live: 2, Held: 2, Own: 2, Size: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	s.Release()
	if err := s.Acquire(t.Context(), 0, 0); err != nil {
		t.Error(err)
	}
}

func TestWaitsAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(1, 1)
		if err := s.Acquire(t.Context(), 0, 0); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		err := s.Acquire(t.Context(), 0, 20*time.Second)
		if took := time.Since(begun); llm.KindOf(err) != llm.Full || took != 20*time.Second || llm.AsError(err).RetryAfter <= 0 {
			t.Errorf("got %v after %v, want full after 20s", err, took)
		}

		go func() { time.Sleep(7 * time.Second); s.Release() }()
		begun = time.Now()
		if err := s.Acquire(t.Context(), 0, 20*time.Second); err != nil || time.Since(begun) != 7*time.Second {
			t.Errorf("got %v after %v, want a slot after 7s", err, time.Since(begun))
		}

		ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, errors.New("hung up"))
		defer cancel()
		begun = time.Now()
		if err := s.Acquire(ctx, 0, 20*time.Second); llm.KindOf(err) != llm.Canceled || time.Since(begun) != 3*time.Second {
			t.Errorf("got %v after %v, want canceled after 3s", err, time.Since(begun))
		}

		done := make(chan error)
		go func() { done <- s.Acquire(t.Context(), 0, 0) }() // waits as long as the client stays
		time.Sleep(24 * time.Hour)
		begun = time.Now()
		if err := s.Acquire(t.Context(), 0, time.Hour); llm.KindOf(err) != llm.Full || time.Since(begun) != 0 {
			t.Errorf("a full queue: got %v after %v, want full at once", err, time.Since(begun))
		}
		s.Release()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got, want := s.Usage(), (Usage{Cap: 1, Live: 1, Held: 1, Own: 1, Size: 1, Full: 1, Late: 1}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

func TestQueueOfNoSize(t *testing.T) {
	s := NewSlots(1, 0)
	if err := s.Acquire(t.Context(), 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Acquire(t.Context(), 0, time.Hour); llm.KindOf(err) != llm.Full {
		t.Errorf("got %v", err)
	}
}

func TestFirstComeFirstServedInsideAPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(1, 10)
		if err := s.Acquire(t.Context(), 0, 0); err != nil {
			t.Fatal(err)
		}
		var order []string
		for i, p := range []int{0, 5, 0, -1, 5, 9, 0} {
			go func() {
				if s.Acquire(t.Context(), p, 0) == nil {
					order = append(order, fmt.Sprintf("%d/%d", p, i))
					s.Release()
				}
			}()
			synctest.Wait()
		}
		s.Release()
		synctest.Wait()
		if want := []string{"9/5", "5/1", "5/4", "0/0", "0/2", "0/6", "-1/3"}; !slices.Equal(order, want) {
			t.Errorf("got %v, want %v", order, want)
		}
	})
}

func TestBurstNeverGetsMoreThanTheCap(t *testing.T) { // C102
	for _, queue := range []int{0, 95} {
		s := NewSlots(5, queue)
		var held, peak, served, full atomic.Int64
		start := make(chan struct{})
		release := make(chan struct{})
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				<-start
				if err := s.Acquire(context.Background(), 0, 0); err != nil {
					if full.Add(1); llm.KindOf(err) != llm.Full {
						t.Error(err)
					}
					return
				}
				n := held.Add(1)
				for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
				}
				<-release
				served.Add(1)
				held.Add(-1)
				s.Release()
			})
		}
		close(start)
		for u := s.Usage(); u.Held < 5 || u.Waiting+int(u.Full) < 95; u = s.Usage() {
		}
		if u := s.Usage(); u.Held != 5 {
			t.Errorf("%d of 100 are admitted, want exactly 5", u.Held)
		}
		close(release)
		all.Wait()
		if peak.Load() > 5 || served.Load() != int64(5+queue) || full.Load() != int64(95-queue) {
			t.Errorf("queue %d: peak %d, served %d, refused %d", queue, peak.Load(), served.Load(), full.Load())
		}
		if u := s.Usage(); u.Held != 0 || u.Waiting != 0 {
			t.Errorf("left over: %+v", u)
		}
	}
}

func TestResize(t *testing.T) { // C107
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(3, 20)
		var running atomic.Int64
		for range 13 {
			go func() {
				if s.Acquire(t.Context(), 0, 0) == nil {
					running.Add(1)
				}
			}()
		}
		synctest.Wait()
		check := func(when string, want int) {
			t.Helper()
			synctest.Wait()
			if u := s.Usage(); running.Load() != int64(want) || u.Held != want {
				t.Errorf("%s: %d run (%+v), want %d", when, running.Load(), u, want)
			}
		}
		end := func() {
			synctest.Wait()
			running.Add(-1)
			s.Release()
		}
		check("at first", 3)
		s.Resize(2, 20)
		s.Resize(1, 20) // the newest value holds
		check("after the cap fell nobody is stopped", 3)
		end()
		check("one ended, nobody follows", 2)
		end()
		check("another ended, nobody follows", 1)
		end()
		check("below the cap one follows", 1)
		s.Resize(6, 20)
		check("after the cap rose all that fit come in at once", 6)
		s.Resize(0, 0)
		for range 6 {
			end()
		}
		check("a cap of zero admits nobody", 0)
		s.Resize(10, 20)
		check("and up again", 4)
		for range 4 {
			end()
		}
	})
}

func TestSlotHandedOverInTheMomentOfLeavingIsNotLost(t *testing.T) {
	for range 50 { // whether the waiter is out of the queue before the slot comes is left to chance
		synctest.Test(t, func(t *testing.T) {
			s := NewSlots(1, 1)
			if err := s.Acquire(t.Context(), 0, 0); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var err error
			go func() { err = s.Acquire(ctx, 0, time.Minute) }()
			synctest.Wait()
			cancel()
			s.Release()
			synctest.Wait()
			if u := s.Usage(); (err == nil) != (u.Held == 1) || u.Waiting != 0 {
				t.Fatalf("got %v with %+v: the slot is held by nobody, or by two", err, u)
			}
		})
	}
}
