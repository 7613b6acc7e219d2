package key

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// counted is what a window must hold, as a plain list.
type counted struct {
	at time.Duration
	n  int64
}

func sumOf(list []counted, now time.Duration) (sum int64) {
	for _, c := range list {
		if now-c.at < minute {
			sum += c.n
		}
	}
	return sum
}

// check compares a window with its list. An exact one holds what the list holds; a coarse one no less, and no more than what
// stood in the list a grain ago.
func check(t interface{ Fatalf(string, ...any) }, w *window, list []counted, now time.Duration, coarse bool) {
	w.pass(now)
	want := sumOf(list, now)
	if w.sum != want && (!coarse || w.sum < want || w.sum > sumOf(list, now-grain)) {
		t.Fatalf("at %v it holds %d, want %d", now, w.sum, want)
	}
	var sum int64
	for i, e := range w.list[w.head:] {
		sum += e.n
		if i > 0 && e.at <= w.list[w.head+i-1].at || now-e.at >= minute || e.n < 0 {
			t.Fatalf("at %v entry %d is %+v", now, i, e)
		}
	}
	if sum != w.sum {
		t.Fatalf("entries of %d, sum %d", sum, w.sum)
	}
}

// TestHistoriesOfWindows compares windows with plain lists, whatever is added, changed and awaited.
func TestHistoriesOfWindows(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var w window
		var list []counted
		now := 2 * minute
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				n := rapid.Int64Range(1, 50).Draw(rt, "n")
				w.add(n, now, false)
				list = append(list, counted{now, n})
			},
			"change": func(rt *rapid.T) {
				if len(list) == 0 {
					rt.Skip()
				}
				c := &list[rapid.IntRange(0, len(list)-1).Draw(rt, "which")]
				if c.n == 0 {
					rt.Skip() // it is settled once
				}
				n := rapid.Int64Range(0, 100).Draw(rt, "n")
				w.change(c.at, n-c.n)
				c.n = n
			},
			"wait": func(rt *rapid.T) {
				limit := rapid.Int64Range(1, 200).Draw(rt, "limit")
				n := rapid.Int64Range(1, limit).Draw(rt, "n")
				after := w.wait(n, limit, now)
				if fits := sumOf(list, now)+n <= limit; fits != (after == 0) {
					rt.Fatalf("%d more under %d beside %d: wait %v", n, limit, sumOf(list, now), after)
				}
				if after > 0 && (sumOf(list, now+after)+n > limit || sumOf(list, now+after-1)+n <= limit) {
					rt.Fatalf("%v is not the end of the wait", after)
				}
			},
			"reset": func(rt *rapid.T) {
				if d := w.reset(now); sumOf(list, now+d) != 0 || d > 0 && sumOf(list, now+d-1) == 0 {
					rt.Fatalf("%v is not when nothing is left", d)
				}
			},
			"pass": func(rt *rapid.T) { now += time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(rt, "time")) },
			"":     func(rt *rapid.T) { check(rt, &w, list, now, false) },
		})
	})
}

// FuzzWindow does the same with a byte for each step, and many more entries.
func FuzzWindow(f *testing.F) {
	f.Add([]byte{1, 2, 3, 0x80, 0x41, 0xff}, false)
	f.Add([]byte("a window of many entries, some of which are changed"), true)
	f.Fuzz(func(t *testing.T, steps []byte, coarse bool) {
		var w window
		var list []counted
		now, repeat := 2*minute, 1
		if coarse {
			repeat = 200
		}
		for _, b := range steps {
			switch n := int64(b & 0x3f); b >> 6 {
			case 0, 1:
				for range repeat {
					w.add(n+1, now, coarse)
					list = append(list, counted{now, n + 1})
					now += time.Duration(b&0xf) * 300 * time.Microsecond
				}
			case 2:
				if i := len(list) - 1 - int(n); i >= 0 && list[i].n > 0 {
					w.change(list[i].at, n-list[i].n)
					list[i].n = n
				}
			case 3:
				now += time.Duration(n) * time.Second
			}
			check(t, &w, list, now, coarse)
		}
	})
}

// A window of many tiny requests stays small.
func TestWindowsStayBounded(t *testing.T) {
	var w window
	now := 2 * minute
	for i := range 1_000_000 {
		w.add(1, now, true)
		if i%3 == 0 {
			w.add(1, now+1, true)
			w.change(now+1, -1)
		}
		now += 100 * time.Microsecond // 100 s in all
		w.pass(now)
	}
	if n := cap(w.list); n > 4*(many+int(minute/grain)) {
		t.Errorf("it has room for %d entries", n)
	}
	var refused window // requests that came and were refused leave nothing
	for range 1000 {
		refused.add(1, now, false)
		refused.change(now, -1)
		now++
	}
	if n := cap(refused.list); n > 1 {
		t.Errorf("refused requests left room for %d entries", n)
	}
}

// F62, S43: amounts below zero and beyond all sense neither wrap nor pass.
func TestF62AbsurdAmounts(t *testing.T) {
	for _, n := range []int64{0, -1, math.MinInt64, math.MaxInt64, 1 << 31, 1<<63 - 2} {
		s, k := &Set{}, &Key{Name: "a", TPM: maxTPM, usage: &usage{}}
		now := time.Unix(1_790_000_000, 0)
		for range 10 {
			a, err := s.Admit(k, now)
			if err != nil {
				t.Fatal(err)
			}
			_ = a.Reserve(n, now)
			a.Settle(n)
			a.Release()
			if l := k.Standing(now).Tokens; l.Remaining < 0 || l.Remaining > l.Limit || k.usage.tokens.sum < 0 {
				t.Fatalf("after %d: %+v, sum %d", n, l, k.usage.tokens.sum)
			}
			now = now.Add(time.Millisecond)
		}
		for _, tk := range []Tokens{
			{Prompt: n, Max: n, Choices: n, Generates: true, In: -1, Out: -1, Sent: true, Answered: true},
			{Prompt: 1, Generates: true, In: n, Out: n, Sent: true, Answered: true}, {Prompt: n, In: n, Out: -1, Sent: true},
		} {
			if e, u := tk.Estimate(), tk.Used(); e < 0 || e > most || u < 0 || u > most {
				t.Errorf("%+v: estimate %d, used %d", tk, e, u)
			}
		}
	}
	for _, spec := range []Spec{
		{Name: "a", TPM: -1}, {Name: "a", TPM: math.MaxInt64}, {Name: "a", TPM: maxTPM + 1}, {Name: "a", SpendDay: -1}, {Name: "a", SpendDay: math.MinInt64},
		{Name: "a", SpendMonth: math.MaxInt64}, {Name: "a", SpendMonth: maxSpend + 1}, {Name: "a", RPM: math.MinInt64}, {Name: "a", Concurrent: math.MaxInt64},
	} {
		if spec.check(time.Now()) == nil {
			t.Errorf("%+v is taken", spec)
		}
	}
	if err := (&Spec{Name: "a", TPM: maxTPM, SpendDay: maxSpend, SpendMonth: maxSpend}).check(time.Now()); err != nil {
		t.Error(err)
	}
}

func TestWhatARequestUses(t *testing.T) {
	for name, c := range map[string]struct {
		tokens         Tokens
		estimate, used int64
	}{
		"prompt and the longest answer":                {Tokens{Prompt: 10, Max: 50, Generates: true, In: 12, Out: 8, Sent: true, Answered: true}, 60, 20},
		"an answer of unsaid length":                   {Tokens{Prompt: 10, Generates: true, In: 12, Out: 8, Sent: true, Answered: true}, 1034, 20},
		"of several answers each":                      {Tokens{Prompt: 10, Max: 50, Choices: 3, Generates: true, In: 12, Out: 8, Sent: true, Answered: true}, 160, 20},
		"an embedding has no answer":                   {Tokens{Prompt: 10, Max: 50, In: 12, Out: -1, Sent: true, Answered: true}, 10, 12},
		"refused before any call":                      {Tokens{Prompt: 10, Max: 50, Generates: true, In: -1, Out: -1}, 60, 0},
		"refused before any call, with a guess":        {Tokens{Prompt: 10, Max: 50, Generates: true, In: 10, Out: 0}, 60, 0},
		"no backend answered":                          {Tokens{Prompt: 10, Max: 50, Generates: true, In: -1, Out: -1, Sent: true}, 60, 0},
		"an answer that says nothing of its use":       {Tokens{Prompt: 10, Max: 50, Generates: true, In: -1, Out: -1, Sent: true, Answered: true}, 60, 60},
		"broken off when the prompt alone was counted": {Tokens{Prompt: 10, Max: 50, Generates: true, In: 90, Out: -1, Sent: true}, 60, 90},
		"more than was asked for":                      {Tokens{Prompt: 10, Max: 50, Generates: true, In: 100, Out: 100, Sent: true, Answered: true}, 60, 200},
	} {
		t.Run(name, func(t *testing.T) {
			if e, u := c.tokens.Estimate(), c.tokens.Used(); e != c.estimate || u != c.used {
				t.Errorf("estimate %d, used %d, want %d, %d", e, u, c.estimate, c.used)
			}
		})
	}
}

func TestWindowEdges(t *testing.T) {
	t.Run("what has just left is not changed, nor what came after it", func(t *testing.T) {
		var w window
		at := 2 * minute
		w.add(5, at, false)
		w.add(7, at+1, false)
		w.pass(at + minute)
		if w.change(at, 100); w.sum != 7 {
			t.Errorf("sum %d, want 7", w.sum)
		}
		if w.change(at+1, 100); w.sum != 107 {
			t.Errorf("sum %d, want 107", w.sum)
		}
	})
	t.Run("merged entries leave late, not early, and take changes of all their parts", func(t *testing.T) {
		var w window
		var list []counted
		now := 2 * minute
		for range 2 * many { // two in each grain
			w.add(1, now, true)
			list = append(list, counted{now, 1})
			now += grain / 2
		}
		if n := len(w.list); n > many+many/2+2 {
			t.Errorf("%d entries", n)
		}
		for i := many; i < len(list); i += 3 {
			w.change(list[i].at, 4)
			list[i].n += 4
		}
		for now = list[0].at + minute - 1; w.sum > 0; now += time.Millisecond {
			check(t, &w, list, now, true)
		}
	})
	t.Run("who took the time first may be counted second", func(t *testing.T) {
		s, k := &Set{}, &Key{Name: "a", RPM: 2, TPM: 10, usage: &usage{}}
		now := time.Unix(1_790_000_000, 0)
		for _, at := range []time.Time{now, now.Add(-time.Second)} {
			if _, err := once(s, k, 1, at); err != nil {
				t.Fatal(err)
			}
		}
		check(t, &k.usage.requests, []counted{{2 * minute, 2}}, 2*minute, false)
		check(t, &k.usage.tokens, []counted{{2 * minute, 2}}, 2*minute, false)
	})
}
