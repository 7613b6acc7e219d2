package key

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestRPMIsExact(t *testing.T) { // S04
	synctest.Test(t, func(t *testing.T) {
		s, k := &Set{}, &Key{Name: "a", RPM: 3, usage: &usage{}}
		admit := func() error {
			a, err := s.Admit(k, time.Now())
			a.Release()
			return err
		}
		for range 3 {
			if err := admit(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		err := admit() // at 30 s
		var e *Error
		if !errors.As(err, &e) || e.Kind != Limited || e.RetryAfter != 30*time.Second {
			t.Fatalf("got %+v, want limited for 30s", err)
		}
		time.Sleep(e.RetryAfter - time.Nanosecond)
		if admit() == nil {
			t.Error("admitted before the window had passed")
		}
		time.Sleep(time.Nanosecond)
		if err := admit(); err != nil {
			t.Errorf("at the end of the wait that was told: %v", err)
		}
		if admit() == nil {
			t.Error("one place, two admitted")
		}
	})
}

func TestConcurrentIsExact(t *testing.T) { // F62
	s, k := &Set{}, &Key{Name: "a", Concurrent: 5, usage: &usage{}}
	var mu sync.Mutex
	var held []Admission
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if a, err := s.Admit(k, time.Now()); err == nil {
				mu.Lock()
				held = append(held, a)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(held) != 5 {
		t.Fatalf("%d admitted, want 5", len(held))
	}
	held[0].Release()
	held[0].Release() // does nothing
	a, err := s.Admit(k, time.Now())
	if err != nil {
		t.Errorf("after a release: %v", err)
	}
	if _, err := s.Admit(k, time.Now()); err == nil {
		t.Error("a double release made a place")
	}
	a.Release()
}

// Admissions outlive a reload, and a key and its successor share them.
func TestCountsOutliveReloadAndRotation(t *testing.T) {
	s, st, token := fixture(t, Spec{Name: "a", Concurrent: 1})
	k, err := s.Verify(token, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Admit(k, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := Change{Store: st, Now: time.Now()}.Rotate(t.Context(), "a", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	k2, err := s.Verify(second, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admit(k2, time.Now()); err == nil {
		t.Error("rotation doubled the limit")
	}
	a.Release()
	if _, err := s.Admit(k2, time.Now()); err != nil {
		t.Errorf("after the release: %v", err)
	}
}

// TestHistoriesOfLimits compares Admit with a list of all admissions.
func TestHistoriesOfLimits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s, k := &Set{}, &Key{Name: "a", usage: &usage{}}
		k.RPM, k.Concurrent = rapid.IntRange(1, 40).Draw(rt, "rpm"), rapid.IntRange(0, 10).Draw(rt, "concurrent")
		now := time.Unix(1_790_000_000, 0)
		var held []Admission
		var times []time.Time
		rt.Repeat(map[string]func(*rapid.T){
			"admit": func(rt *rapid.T) {
				in := 0
				for _, at := range times {
					if now.Sub(at) < minute {
						in++
					}
				}
				want := (k.RPM == 0 || in < k.RPM) && (k.Concurrent == 0 || len(held) < k.Concurrent)
				a, err := s.Admit(k, now)
				if (err == nil) != want {
					rt.Fatalf("%d of %d in the window, %d of %d held: %v", in, k.RPM, len(held), k.Concurrent, err)
				}
				if err == nil {
					held, times = append(held, a), append(times, now)
				}
			},
			"release": func(rt *rapid.T) {
				if len(held) == 0 {
					rt.Skip()
				}
				held[0].Release()
				held = held[1:]
			},
			"wait":  func(rt *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(1, 30).Draw(rt, "s")) * time.Second) },
			"limit": func(rt *rapid.T) { k.RPM = rapid.IntRange(1, 40).Draw(rt, "rpm") }, // a reload may change it
		})
	})
}
