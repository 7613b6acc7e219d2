package relay

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weir/internal/llm"
)

// looped is what Check did, without how long it took.
type looped struct {
	Seen int
	Did  Action
	Kind string
}

func (l *Loops) ask(t *testing.T, key, session, body string) (looped, *llm.Error, time.Duration) {
	t.Helper()
	start := time.Now()
	seen, did, err := l.Check(t.Context(), key, session, []byte(body))
	got := looped{seen, did, llm.KindOf(err).String()}
	var e *llm.Error
	if err != nil {
		e = llm.AsError(err)
	}
	return got, e, time.Since(start)
}

func TestALoopIsSlowedThenRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLoops(3, 0, time.Minute, time.Second)
		want := []looped{{1, Passed, ""}, {2, Passed, ""}, {3, Slowed, ""}, {4, Slowed, ""}, {5, Slowed, ""}, {6, Refused, "limited"}, {7, Refused, "limited"}}
		var got []looped
		var last *llm.Error
		for range want {
			g, e, took := l.ask(t, "k", "s", "body")
			if want := map[Action]time.Duration{Slowed: time.Second}[g.Did]; took != want {
				t.Errorf("%+v took %v, want %v", g, took, want)
			}
			got, last = append(got, g), e
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if last.Code != "loop_detected" || last.HTTPStatus() != 429 || last.IsFinal() || last.RetryAfter != 57*time.Second ||
			!strings.Contains(last.Msg, "7 times within 1m0s") || !strings.Contains(last.Msg, "loop_guard") {
			t.Errorf("%+v", last)
		}
		// Another body, session or key is another request, and a name never runs into the next.
		for _, other := range [][3]string{{"k", "s", "body2"}, {"k", "s2", "body"}, {"k2", "s", "body"}, {"", "", "body"}, {"ks", "", "body"}} {
			if g, _, _ := l.ask(t, other[0], other[1], other[2]); g != (looped{1, Passed, ""}) {
				t.Errorf("%q: %+v", other, g)
			}
		}
		// Who waits as told is let through, and is slow still.
		time.Sleep(last.RetryAfter)
		for i, want := range []int{3, 3, 3, 4} { // at 60, 61 and 62 s one or more have left the window
			if g, _, _ := l.ask(t, "k", "s", "body"); g != (looped{want, Slowed, ""}) {
				t.Errorf("%d after the wait: %+v, want %d seen", i, g, want)
			}
		}
		time.Sleep(time.Minute)
		if g, _, _ := l.ask(t, "k", "s", "body"); g != (looped{1, Passed, ""}) {
			t.Errorf("after the window: %+v", g)
		}
	})
}

func TestALoopOfALongWindowIsToldAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLoops(1, 2, time.Hour, time.Millisecond)
		l.ask(t, "", "", "b")
		if g, e, _ := l.ask(t, "", "", "b"); g.Did != Refused || e.RetryAfter != time.Minute {
			t.Errorf("%+v, %+v", g, e)
		}
	})
}

// What was refused counts as seen until one passes.
func TestLoopsCountWhatTheyRefused(t *testing.T) {
	l := NewLoops(1, 2, time.Minute, time.Second)
	for _, c := range []struct {
		at   time.Duration
		want int
	}{{0, 1}, {1, 2}, {2, 3}, {60, 1}, {61, 2}} {
		if seen, _ := l.count(1, c.at*time.Second); seen != c.want {
			t.Errorf("at %d s: %d seen, want %d", c.at, seen, c.want)
		}
	}
}

// Who took its time first may come to the count second.
func TestLoopsCountWhatComesOutOfOrder(t *testing.T) {
	l := NewLoops(1, 2, time.Minute, time.Second)
	l.count(1, 5*time.Second)
	if _, after := l.count(1, 4*time.Second); after != time.Minute {
		t.Errorf("told %v", after)
	}
}

func TestAClientThatLeavesEndsItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLoops(1, 9, time.Hour, time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, did, err := l.Check(ctx, "", "", nil)
		if took := time.Since(start); did != Slowed || llm.KindOf(err) != llm.Canceled || took != time.Second {
			t.Errorf("%v, %v after %v", did, err, took)
		}
	})
}

func TestLoopsAreOffByDefault(t *testing.T) {
	l := NewLoops(0, 5, time.Minute, time.Minute)
	if l != nil {
		t.Fatal("a guard without slow")
	}
	body := make([]byte, 1<<20)
	if n := testing.AllocsPerRun(100, func() {
		if seen, did, err := l.Check(t.Context(), "k", "s", body); seen != 0 || did != Passed || err != nil {
			t.Fatal(seen, did, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestDefaultsOfLoops(t *testing.T) {
	l := NewLoops(4, 0, 0, 0)
	if l.refuse != 8 || l.window != 5*time.Minute || l.wait != 2*time.Second {
		t.Errorf("%d, %v, %v", l.refuse, l.window, l.wait)
	}
	if l := NewLoops(1, 1, 0, 0); l.refuse != 2 {
		t.Errorf("the first request is refused: %d", l.refuse)
	}
}

// S43: what is remembered is bounded, however many requests differ, and what comes often outlives what came once.
func TestLoopsRememberSoMuchAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLoops(1_000, 0, time.Hour, time.Second)
		for i := range 3 * loopMost {
			if i%100 == 0 {
				l.ask(t, "k", "s", "the loop")
			}
			l.ask(t, "k", "s", strconv.Itoa(i))
			if len(l.known) != l.order.Len() || len(l.known) > loopMost {
				t.Fatalf("%d known, %d in order", len(l.known), l.order.Len())
			}
		}
		if g, _, _ := l.ask(t, "k", "s", "the loop"); g.Seen != 3*loopMost/100+2 {
			t.Errorf("%+v", g)
		}
		time.Sleep(time.Hour)
		l.ask(t, "k", "s", "anew")
		if len(l.known) != 1 {
			t.Errorf("%d known after the window", len(l.known))
		}
	})
}

// In any window fewer than refuse same requests pass, whatever the history; a request is refused only while refuse-1 have
// passed within the window; and the time that it is told is right.
func TestHistoriesOfLoops(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const window = 10 * time.Second
		refuse := rapid.IntRange(2, 6).Draw(rt, "refuse")
		l := NewLoops(1_000, refuse, window, time.Second)
		var now time.Duration
		passed := map[uint64][]time.Duration{}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			now += time.Duration(rapid.IntRange(0, 4000).Draw(rt, "ms")) * time.Millisecond
			which := uint64(rapid.IntRange(1, 2).Draw(rt, "which"))
			var in []time.Duration
			for _, at := range passed[which] {
				if now-at < window {
					in = append(in, at)
				}
			}
			seen, after := l.count(which, now)
			switch {
			case after == 0 && len(in) >= refuse-1:
				rt.Fatalf("one passed beside %d", len(in))
			case after > 0 && len(in) < refuse-1:
				rt.Fatalf("one was refused beside %d", len(in))
			case after > 0 && after != window-(now-in[0]):
				rt.Fatalf("told %v", after)
			case after == 0 && seen != len(in)+1 || after > 0 && seen <= len(in):
				rt.Fatalf("seen %d beside %d", seen, len(in))
			case after == 0:
				passed[which] = append(passed[which], now)
			}
		}
	})
}

// BenchmarkLoops takes a body of 76 KB, as an agent sends it.
func BenchmarkLoops(b *testing.B) {
	l := NewLoops(1<<30, 0, time.Nanosecond, time.Second)
	body := make([]byte, 76<<10)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := l.Check(b.Context(), "key", "session", body); err != nil {
			b.Fatal(err)
		}
	}
}
