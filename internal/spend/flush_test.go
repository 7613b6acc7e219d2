package spend

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/store"
)

func TestARestartForgetsNothing(t *testing.T) {
	each(t, func(t *testing.T, scope, period string) {
		w := newWorld(t)
		w.under(scope, period)
		w.spend(70)
		w.flush()
		w.open(w.store)
		c := w.under(scope, period)
		if c.Most.In = 31; w.allowed(c) {
			t.Error("31 were let through with 70 spent of 100")
		}
		if c.Most.In = 30; !w.allowed(c) {
			t.Error("30 were refused with 70 spent of 100")
		}
		if strings.Contains(w.log.String(), "killed") {
			t.Errorf("log: %s", w.log.String())
		}
	})
}

func TestWhatAKilledRunHeldIsSpent(t *testing.T) {
	w := newWorld(t)
	w.spend(5)
	ended, _ := w.Reserve(call(9))
	for range 2 {
		if _, r := w.Reserve(call(20)); r != nil {
			t.Fatal(r)
		}
	}
	w.flush()
	ended.Settle(Usage{In: 1}, "client") // the kill comes before this is written
	for range 2 {                        // killed again before anything was written: nothing counts twice
		w.open(w.store)
		if got := w.Totals(Key, "k").Day; got.Spent != 5+9+40 || got.Held != 0 || got.Requests != 1+3 {
			t.Errorf("%+v", got)
		}
		if log := w.log.String(); !strings.Contains(log, "calls=3 usd=0.000000049") {
			t.Errorf("log: %s", log)
		}
	}
	h, _ := w.Reserve(call(3))
	w.flush()
	h.Settle(Usage{In: 2}, "client")
	w.flush()
	w.log.Reset()
	w.open(w.store)
	if got := w.Totals(Key, "k").Day; got.Spent != 5+9+40+2 || w.log.Len() > 0 {
		t.Errorf("%+v, log: %s", got, w.log.String())
	}
	rows, _ := w.store.Spending(t.Context())
	for _, r := range rows {
		if r.Reserved != 0 {
			t.Errorf("still reserved: %+v", r)
		}
	}
}

func TestWhatAKilledRunHeldIsWrittenAsSpent(t *testing.T) {
	w := newWorld(t)
	if _, r := w.Reserve(call(7)); r != nil {
		t.Fatal(r)
	}
	w.flush()
	w.open(w.store)
	w.flush()
	rows, err := w.store.Spending(t.Context())
	want := store.Spend{Day: 20788, Scope: Total, Purpose: "unsettled", Cost: 7, Requests: 1}
	if len(rows) != 3 || rows[2] != want || err != nil {
		t.Errorf("%+v, %v", rows, err)
	}
}

func TestACleanEndLeavesNothingHeld(t *testing.T) {
	w := newWorld(t)
	h, _ := w.Reserve(call(9))
	w.flush()
	h.Cancel()
	w.flush()
	if rows, err := w.store.Spending(t.Context()); len(rows) > 0 || err != nil {
		t.Errorf("%v, %v", rows, err)
	}
}

func TestNegativeAmountsInTheStoreGiveNothing(t *testing.T) { // S43
	w := newWorld(t)
	err := w.store.PutSpending(t.Context(), []store.Spend{
		{Day: 20788, Scope: Key, Name: "k", Purpose: "client", Cost: -50, Reserved: -7, Requests: -1, Unpriced: -1},
		{Day: 20788, Scope: "planet", Name: "k", Purpose: "client", Cost: 50},
		{Day: 20788, Scope: Pool, Name: "p", Purpose: "client", Cost: 1<<63 - 1, Reserved: 1<<63 - 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.open(w.store)
	if got := w.Totals(Key, "k").Day; got.Spent != 0 || got.Held != 0 || got.Requests != 0 {
		t.Errorf("%+v", got)
	}
	if got := w.Totals(Pool, "p").Month; got.Spent != 1<<63-1 {
		t.Errorf("%+v", got)
	}
}

// broken is a store that can be told to fail or to hang.
type broken struct {
	Store
	fail atomic.Bool
	hang chan struct{}
}

func (s *broken) PutSpending(ctx context.Context, rows []store.Spend) error {
	if s.hang != nil {
		<-s.hang
	}
	if s.fail.Load() {
		return errors.New("disk full")
	}
	return s.Store.PutSpending(ctx, rows)
}

func TestAStoreThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := &broken{Store: w.store}
		s.fail.Store(true)
		w.open(s)
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() { w.Run(ctx) })
		c := w.under(Total, Day)
		w.spend(1)
		time.Sleep(9 * time.Second)
		if !w.allowed(c) {
			t.Error("refused before 10 s")
		}
		time.Sleep(2 * time.Second)
		_, r := w.Reserve(c)
		if r == nil || !r.Unwritten || r.Scope != Total || r.Until.Sub(w.clock.Now()) != patience {
			t.Errorf("after 11 s: %+v", r)
		}
		if !w.allowed(Charge{Key: "k", Pool: "p"}) {
			t.Error("an unpriced call was refused")
		}
		w.SetCeilings(Ceilings{})
		if !w.allowed(c) {
			t.Error("a call without a ceiling was refused")
		}
		w.under(Total, Day)
		s.fail.Store(false)
		time.Sleep(flushEvery)
		synctest.Wait()
		if !w.allowed(c) {
			t.Error("refused when the store was well again")
		}
		w.spend(2)
		cancel()
		wait.Wait()
		if log := w.log.String(); strings.Count(log, "cannot be written") != 1 || strings.Count(log, "written again") != 1 {
			t.Errorf("log: %s", log)
		}
		w.open(w.store)
		if got := w.Totals(Key, "k").Day; got.Spent != 3 || got.Held != 0 {
			t.Errorf("after a restart: %+v", got)
		}
		w.store.Close()
	})
}

func TestAStoreThatHangsIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := &broken{Store: w.store, hang: make(chan struct{})}
		w.open(s)
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() { w.Run(ctx) })
		c := w.under(Pool, Month)
		w.spend(1)
		time.Sleep(11 * time.Second)
		if w.allowed(c) {
			t.Error("passed although nothing was written for 11 s")
		}
		close(s.hang)
		synctest.Wait()
		if !w.allowed(c) {
			t.Error("refused when the store was well again")
		}
		cancel()
		wait.Wait()
		w.store.Close()
	})
}

func TestWhatIsSpentDuringAWriteIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := &broken{Store: w.store, hang: make(chan struct{})}
		w.open(s)
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() { w.Run(ctx) })
		c := w.under(Pool, Month)
		w.spend(1)
		time.Sleep(time.Second)
		w.spend(2) // while the first is written
		s.hang <- struct{}{}
		synctest.Wait()
		s.fail.Store(true)
		close(s.hang)
		time.Sleep(11 * time.Second)
		if w.allowed(c) {
			t.Error("passed although the second was not written for 11 s")
		}
		s.fail.Store(false)
		cancel()
		wait.Wait()
		w.store.Close()
	})
}

func TestRunWritesFourTimesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() { w.Run(ctx) })
		w.spend(5)
		time.Sleep(flushEvery + time.Millisecond)
		synctest.Wait()
		if rows, err := w.store.Spending(t.Context()); len(rows) != 3 || err != nil {
			t.Errorf("%v, %v", rows, err)
		}
		w.spend(6)
		cancel()
		wait.Wait()
		if rows, err := w.store.Spending(t.Context()); len(rows) != 3 || rows[2].Cost != 11 || err != nil {
			t.Errorf("at the end: %v, %v", rows, err)
		}
		w.store.Close()
	})
}

func TestOldDaysAreForgotten(t *testing.T) {
	w := newWorld(t)
	at := w.clock.Now().AddDate(0, 0, -450)
	for range 451 {
		w.clock.now.Store(at.Unix())
		w.spend(1)
		at = at.AddDate(0, 0, 1)
	}
	w.flush()
	w.prune(t.Context())
	rows, err := w.store.Spending(t.Context())
	if want := 3 * 401; len(rows) != want || len(w.total.days) != 401 || err != nil {
		t.Errorf("%d rows, want %d, and %d days, want 401: %v", len(rows), want, len(w.total.days), err)
	}
	w.spend(1)
	w.flush()
	w.open(w.store)
	if got := w.Totals(Total, ""); got.Day.Spent != 2 {
		t.Errorf("%+v", got)
	}
}

func TestADayThatWasForgottenBeginsAnew(t *testing.T) { // F62
	w := newWorld(t)
	w.flush() // of a day that nothing was spent on, the store knows nothing
	s := w.total
	old := s.at(20000)
	s.forget(20001)
	again := s.at(20000)
	s.at(20788)
	if again == old || s.at(20000) != again {
		t.Error("one day has two sheets")
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, Options{Store: w.store}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
