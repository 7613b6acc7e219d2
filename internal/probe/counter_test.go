package probe

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var often = Policy{Every: 30 * time.Second, Timeout: 10 * time.Second, Fall: 2, Rise: 1}

// letters are verdicts, and states, in the histories below.
var (
	verdicts = map[rune]Verdict{'.': Nothing, 'a': Alive, 'f': Failed, 'w': Warming, 'c': Cold}
	letters  = map[State]string{In: "I", Out: "O", IsWarming: "W", IsCold: "C"}
)

func TestStatesFollowVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		fall, rise int
		verdicts   string
		want       string // the state after each
	}{
		"one failure takes nothing out":                   {2, 1, "fafaf", "IIIII"},
		"fall failures in a row do":                       {2, 1, "ff", "IO"},
		"a fall of three takes three":                     {3, 1, "ffaffff", "IIIIIOO"},
		"a fall of one takes one":                         {1, 1, "af", "IO"},
		"one success brings it back":                      {2, 1, "ffa", "IOI"},
		"a rise of three takes three in a row":            {2, 3, "ffaafaaa", "IOOOOOOI"},
		"after a return it takes fall failures again":     {2, 1, "ffafaff", "IOIIIIO"},
		"no verdict changes nothing":                      {2, 1, "f.f.a", "IIOOI"},
		"no verdict does not end a row":                   {2, 1, "f...f", "IIIIO"},
		"loading takes it out without a failure":          {2, 1, "w", "W"},
		"loading ends a row of failures":                  {2, 1, "fwf", "IWW"},
		"what loaded is in by a success":                  {2, 1, "wwa", "WWI"},
		"what loads and then fails is out":                {2, 1, "wff", "WWO"},
		"what is out and loads stays out until a success": {2, 1, "ffwwa", "IOOOI"},
		"a model that is not loaded takes calls":          {2, 1, "cfcf", "CCCC"},
		"what was cold and fails is out":                  {2, 1, "cff", "CCO"},
		"what was cold and answers is in":                 {2, 3, "ca", "CI"},
		"what is out and is then unloaded takes calls":    {2, 1, "ffc", "IOC"},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			k := NewCounter(Policy{Every: time.Second, Timeout: time.Second / 2, Fall: c.fall, Rise: c.rise}, now, now)
			got := ""
			for _, v := range c.verdicts {
				k.Note(now, now, verdicts[v])
				got += letters[k.State]
				now = k.Next
			}
			if got != c.want {
				t.Errorf("%s made %s, want %s", c.verdicts, got, c.want)
			}
		})
	}
}

// A backend is out within fall periods and one timeout, whenever it falls silent.
func TestTheFallIsExact(t *testing.T) {
	for fall := 1; fall <= 5; fall++ {
		p := often
		p.Fall = fall
		now := time.Now()
		k := NewCounter(p, now, now)
		silent := now.Add(time.Millisecond) // a probe has just passed
		k.Note(now, now, Alive)
		for k.State != Out {
			now = k.Next
			k.Note(now, now.Add(p.Timeout), Failed)
			now = now.Add(p.Timeout)
		}
		if got, most := now.Sub(silent), time.Duration(fall)*p.Every+p.Timeout; got > most || got < most-p.Every {
			t.Errorf("fall %d: out after %v, want within %v", fall, got, most)
		}
	}
}

func TestProbesOfWhatIsOutBackOff(t *testing.T) {
	now := time.Now()
	k := NewCounter(often, now, now)
	k.Note(now, now, Failed)
	var gaps []time.Duration
	for range 9 {
		k.Note(now, now, Failed)
		gaps = append(gaps, k.Next.Sub(now))
		now = k.Next
	}
	want := []time.Duration{30, 60, 120, 240, 300, 300, 300, 300, 300}
	for i, g := range gaps {
		if w := want[i] * time.Second; g < w*8/10 || g > w*12/10 {
			t.Errorf("gap %d is %v, want %v give or take a fifth", i, g, w)
		}
	}
	k.Note(now, now, Warming)
	if g := k.Next.Sub(now); g != often.Every {
		t.Errorf("what is out and loads is asked again after %v, want %v: it comes", g, often.Every)
	}
	k.Note(now, now, Failed)
	if g := k.Next.Sub(now); g > often.Every*12/10 {
		t.Errorf("after it has loaded the gap is %v, want it to begin anew", g)
	}
}

func TestWhoLoadsForEverHasFailed(t *testing.T) {
	now := time.Now()
	k := NewCounter(often, now, now)
	begun := now
	for k.State != Out {
		k.Note(now, now, Warming)
		if now = k.Next; now.Sub(begun) > time.Hour {
			t.Fatal("still warming after an hour")
		}
	}
	if d := now.Sub(begun); d < mostWarming {
		t.Errorf("out after %v, want not before %v", d, mostWarming)
	}
}

func TestRealTrafficEndsARowOfFailures(t *testing.T) {
	now := time.Now()
	k := NewCounter(often, now, now)
	k.Note(now, now, Failed)
	k.Proved(now.Add(10*time.Second), now.Add(20*time.Second))
	if want := now.Add(10*time.Second + often.Every); !k.Next.Equal(want) {
		t.Errorf("the next probe is %v after, want a period after the proof", k.Next.Sub(now))
	}
	k.Note(k.Next, k.Next, Failed)
	if k.State != In {
		t.Error("out by one failure")
	}
}

// Whatever comes: out only by fall failures without a success between, in only by rise successes, never asked more often than
// once in a period while in, nor later than the longest gap.
func TestCounterHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{Every: rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(1, 600).Draw(t, "s")) * time.Second
		}).Draw(t, "every"), Fall: rapid.IntRange(1, 4).Draw(t, "fall"), Rise: rapid.IntRange(1, 4).Draw(t, "rise")}
		p.Timeout = p.Every / 2
		now := time.Now()
		k := NewCounter(p, now, now)
		fails, passes := 0, 0
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			begun, was, since := now, k.State, k.Since
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(p.Timeout)).Draw(t, "took")))
			v := rapid.SampledFrom([]Verdict{Nothing, Alive, Alive, Failed, Failed, Failed, Warming, Cold}).Draw(t, "v")
			k.Note(begun, now, v)
			switch v {
			case Alive:
				fails, passes = 0, passes+1
			case Failed:
				fails, passes = fails+1, 0
			case Warming, Cold:
				long := fails
				fails, passes = 0, 0
				if v == Warming && was == IsWarming && now.Sub(since) > mostWarming {
					fails = long + 1 // who loads for so long fails
				}
			}
			switch {
			case k.State == Out && was != Out && v == Failed && fails < p.Fall:
				t.Fatalf("out after %d failures in a row, want %d", fails, p.Fall)
			case k.State == Out && was != Out && v != Failed && v != Warming:
				t.Fatalf("out by the verdict %d", v)
			case k.State == In && was == Out && (v != Alive || passes < p.Rise):
				t.Fatalf("back after %d successes in a row, want %d", passes, p.Rise)
			case was != Out && k.State != Out && fails >= p.Fall:
				t.Fatalf("%d failures in a row and not out", fails)
			case k.Next.Before(now):
				t.Fatal("the next probe was due before this one ended")
			case k.State != Out && k.Next.After(begun.Add(p.Every)):
				t.Fatalf("asked again after %v, the period is %v", k.Next.Sub(begun), p.Every)
			case k.Next.Sub(now) > max(mostBackoff, p.Every)*12/10:
				t.Fatalf("not asked for %v", k.Next.Sub(now))
			}
			now = k.Next
		}
	})
}
