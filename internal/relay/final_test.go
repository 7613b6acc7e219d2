package relay

import (
	"strings"
	"testing"
	"time"

	"weir/internal/llm"
	"weir/internal/pool"
	"weir/internal/route"
)

// What a client is told when every step failed: design §3, below the failure table.
func TestTheFailureThatAClientIsTold(t *testing.T) {
	type f struct {
		kind   llm.Kind
		reason string // why it was not called; empty: it was
		after  time.Duration
	}
	const sec = time.Second
	for name, c := range map[string]struct {
		failed []f
		want   llm.Kind
		after  time.Duration
	}{
		"one step":                                        {[]f{{llm.Slow, "", 0}}, llm.Slow, 0},
		"the first step's":                                {[]f{{llm.Slow, "", 0}, {llm.Refused, "", 0}}, llm.Slow, 0},
		"busy ends sooner":                                {[]f{{llm.Slow, "", 0}, {llm.Busy, "", 20 * sec}}, llm.Busy, 20 * sec},
		"loading ends sooner, too":                        {[]f{{llm.Slow, "", 0}, {llm.Loading, "", 5 * sec}}, llm.Loading, 5 * sec},
		"full ends sooner, too":                           {[]f{{llm.Refused, "", 0}, {llm.Full, "", sec}}, llm.Full, sec},
		"the soonest of those":                            {[]f{{llm.Busy, "", 20 * sec}, {llm.Full, "", sec}, {llm.Loading, "", 5 * sec}}, llm.Full, sec},
		"a pause counts as what asked for it (C077)":      {[]f{{llm.Busy, pool.OutPaused, 29 * sec}}, llm.Busy, 29 * sec},
		"all out":                                         {[]f{{llm.None, pool.OutTraffic, 7 * sec}, {llm.Gone, pool.OutGone, 0}}, llm.None, 7 * sec},
		"out and failed":                                  {[]f{{llm.None, pool.OutTraffic, 7 * sec}, {llm.Refused, "", 0}}, llm.Refused, 0},
		"too long where nothing larger failed":            {[]f{{llm.TooLong, "", 0}, {llm.TooLong, "window", 0}}, llm.TooLong, 0},
		"a larger window that failed says more (C095)":    {[]f{{llm.TooLong, "", 0}, {llm.Slow, "", 0}}, llm.Slow, 0},
		"busy, then too small a window (C095)":            {[]f{{llm.Busy, "", 9 * sec}, {llm.TooLong, "", 0}}, llm.Busy, 9 * sec},
		"unavailable by pause alone is that no step can":  {[]f{{llm.Unavailable, pool.OutPaused, 4 * sec}}, llm.None, 4 * sec},
		"denied everywhere, and no step is called at all": {[]f{{llm.Denied, pool.OutDenied, 0}}, llm.None, 5 * sec},
	} {
		t.Run(name, func(t *testing.T) {
			x := &run{route: &route.Route{Name: "r"}}
			var failed []failure
			for i, one := range c.failed {
				s := &route.Step{Pool: "p" + string(rune('1'+i)), Model: "m"}
				failed = append(failed, failure{s, &llm.Error{Kind: one.kind, Msg: "x", RetryAfter: one.after}, one.reason, one.after})
			}
			e := llm.AsError(x.final(failed))
			if e.Kind != c.want || e.RetryAfter != c.after {
				t.Errorf("got %v after %v, want %v after %v", e.Kind, e.RetryAfter, c.want, c.after)
			}
			if len(failed) > 1 {
				for _, f := range failed {
					if !strings.Contains(e.Msg, f.step.Name()) {
						t.Errorf("%q does not name %s", e.Msg, f.step.Name())
					}
				}
			}
		})
	}
}

func TestTheLastStepIsTheOneThatRestsTheShortest(t *testing.T) {
	out := func(reason string, d time.Duration) failure {
		return failure{&route.Step{}, &llm.Error{RetryAfter: d}, reason, d}
	}
	list := []failure{out(pool.OutTraffic, 9*time.Second), out(pool.OutTraffic, 3*time.Second), out(pool.OutDenied, 0)}
	if got := last(list); got != 1 {
		t.Errorf("got %d, want 1", got)
	}
	if got := last([]failure{out(pool.OutDenied, 0), out(pool.OutGone, 0), out(pool.OutPaused, time.Second)}); got != -1 {
		t.Errorf("by force although it is out for another reason: %d", got)
	}
	if got := last(append(list, failure{&route.Step{}, &llm.Error{Kind: llm.Slow}, "", 0})); got != -1 {
		t.Errorf("by force although a step was called: %d", got)
	}
}
