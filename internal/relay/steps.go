package relay

import (
	"context"
	"slices"
	"strings"
	"time"

	"weir/internal/llm"
	"weir/internal/pool"
	"weir/internal/route"
)

// failure is a step that did not answer, and why.
type failure struct {
	step   *route.Step
	err    *llm.Error
	reason string // why it was not called; empty: it was
	ends   time.Duration
}

// how is the manner of an attempt.
type how struct {
	force bool // although live traffic has taken the pool out: it is the last step there is
	fresh bool // on a new connection: a used one was closed under the request
	later int  // steps behind this one
}

// try goes through the steps until one has answered or none is left. A pool that is out is passed over; where every one
// is, and one of them by live traffic alone, that one is tried all the same.
func (x *run) try(ctx context.Context) error {
	if err := x.fit(); err != nil {
		return err
	}
	var failed []failure
	for i := range x.steps {
		s := &x.steps[i]
		if f, out := x.passed(s); out {
			failed = append(failed, f)
			continue
		}
		done, err := x.take(ctx, s, how{later: len(x.steps) - i - 1}, &failed)
		if done {
			return err
		}
	}
	if i := last(failed); i >= 0 {
		s := failed[i].step
		failed = slices.Delete(failed, i, i+1) // what comes of it now counts instead
		if done, err := x.take(ctx, s, how{force: true}, &failed); done {
			return err
		}
	}
	return x.final(failed)
}

// take tries one step. It reports whether that was the end of the request, with an answer or an error.
func (x *run) take(ctx context.Context, s *route.Step, h how, failed *[]failure) (done bool, _ error) {
	err := x.step(ctx, s, h)
	if err == nil {
		return true, nil
	}
	e := llm.AsError(err)
	if reason := uncalled(e); reason != "" {
		x.skip(s, reason, e)
		*failed = append(*failed, failure{s, e, reason, e.RetryAfter})
		return false, nil
	}
	*failed = append(*failed, failure{step: s, err: e})
	if x.committed || !e.Kind.FallsBack() {
		return true, e
	}
	x.skip(s, "failed", e)
	if e.Kind == llm.TooLong {
		x.window = max(x.window, x.Pools[s.Pool].ContextWindow(), 1)
		for i := range *failed { // those passed over before have no room either, whatever they were out for
			if f := &(*failed)[i]; f.reason != "" && x.small(f.step) {
				*f = x.tooSmall(f.step)
			}
		}
	}
	if x.generations >= x.Generations {
		return true, x.final(*failed)
	}
	return false, nil
}

// uncalled returns why nobody was called although the step was chosen: a ceiling, or the pool went out while this request was
// on its way to it; empty where somebody was.
func uncalled(e *llm.Error) string {
	switch {
	case e.Kind == llm.Limited:
		return skipSpend
	case e.Kind != llm.None:
		return ""
	case e.Code != "":
		return e.Code
	}
	return pool.OutTraffic
}

// skipSpend is the reason of a step that would cost more than a ceiling leaves.
const skipSpend = "spend"

// passed reports a step that is not to be called now, and records it.
func (x *run) passed(s *route.Step) (failure, bool) {
	if x.small(s) {
		x.skip(s, "window", nil)
		return x.tooSmall(s), true
	}
	o, out := x.Pools[s.Pool].Outage(s.Sent, time.Now())
	if !out {
		return failure{}, false
	}
	x.skip(s, o.Reason, o.Err)
	return failure{s, o.Err, o.Reason, o.Err.RetryAfter}, true
}

// small reports a step whose window is no larger than one that the prompt was too long for.
func (x *run) small(s *route.Step) bool {
	w := x.Pools[s.Pool].ContextWindow()
	return x.window > 0 && w > 0 && w <= x.window
}

func (x *run) tooSmall(s *route.Step) failure {
	return failure{s, llm.Errorf(llm.TooLong, "its window of %d tokens is too small", x.Pools[s.Pool].ContextWindow()), "window", 0}
}

// last returns which step is tried although live traffic has taken it out, -1 for none: the one that rests the shortest,
// where no step was called at all. One that was called and whose window is too small is no step for this prompt.
func last(failed []failure) int {
	best := -1
	for i := range failed {
		f := &failed[i]
		if f.reason == "" && f.err.Kind != llm.TooLong {
			return -1
		}
		if f.reason == pool.OutTraffic && (best < 0 || f.ends < failed[best].ends) {
			best = i
		}
	}
	return best
}

// final chooses what the client is told: the failure that ends soonest; else, where no step was called, that none can
// be; else the first step's. A prompt that was too long for some is told only where nothing larger was left to fail.
func (x *run) final(failed []failure) error {
	var soon, first, long, limited *llm.Error
	larger := false // a step that may have room is there, only not now
	for i := range failed {
		e := failed[i].err
		switch e.Kind {
		case llm.Busy, llm.Full, llm.Loading:
			if soon == nil || e.RetryAfter < soon.RetryAfter {
				soon = e
			}
		case llm.TooLong:
			if failed[i].reason == "" && long == nil {
				long = e
			}
		case llm.Limited:
			limited, larger = e, true
		default:
			larger = larger || failed[i].reason != ""
			if first == nil && failed[i].reason == "" {
				first = e
			}
		}
	}
	switch {
	case soon != nil:
		return explained(soon, failed)
	case first != nil:
		return explained(first, failed)
	case long != nil && !larger:
		return explained(long, failed)
	case limited != nil: // of all that stands in the way the key's own ceiling is what its holder can change
		return explained(limited, failed)
	}
	return x.nothing(failed)
}

// explained adds to an error what became of the other steps.
func explained(e *llm.Error, failed []failure) error {
	if len(failed) < 2 {
		return e
	}
	c := *e
	c.Msg += " (steps: " + list(failed) + ")"
	return &c
}

func list(failed []failure) string {
	var b strings.Builder
	for i := range failed {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(failed[i].step.Name() + " ")
		if failed[i].reason == skipSpend || failed[i].reason == pool.OutHand {
			b.WriteString(failed[i].reason + " (" + failed[i].err.Msg + ")")
		} else if failed[i].reason != "" {
			b.WriteString(failed[i].reason)
		} else {
			b.WriteString(failed[i].err.Kind.String())
		}
	}
	return b.String()
}

// nothing says that no step could be called, why, and when the first of them may be.
func (x *run) nothing(failed []failure) error {
	e := llm.Errorf(llm.None, "no step of route %q can serve this request now: %s", x.route.Name, list(failed))
	for _, f := range failed {
		if d := f.err.RetryAfter; d > 0 && (e.RetryAfter == 0 || d < e.RetryAfter) {
			e.RetryAfter = d
		}
	}
	if e.RetryAfter == 0 {
		e.RetryAfter = 5 * time.Second // the return probes begin so
	}
	return e
}

// Estimates of a prompt's tokens are good to a fifth; beyond half as much again they are certain.
const (
	likelyOver  = 1.1
	certainOver = 1.5
)

// fit leaves out the steps whose window is too small by the estimate where a larger one is there, and refuses a prompt
// that is certain to be too long for every step, before a slot is taken.
func (x *run) fit() error {
	est := float64(x.req.Shape.TokensEst)
	largest, unknown := 0, false
	for i := range x.steps {
		w := x.Pools[x.steps[i].Pool].ContextWindow()
		largest, unknown = max(largest, w), unknown || w == 0
	}
	if largest == 0 {
		return nil
	}
	if !unknown && est > float64(largest)*certainOver {
		e := llm.Errorf(llm.TooLong, "the prompt has about %d tokens, and the largest context window of route %q has %d; shorten the conversation",
			int(est), x.route.Name, largest)
		e.Param, e.Prompt, e.Window = "messages", int(est), largest
		return e
	}
	keep := x.steps[:0:len(x.steps)]
	for i := range x.steps {
		w := x.Pools[x.steps[i].Pool].ContextWindow()
		if w > 0 && est > float64(w)*likelyOver && (w < largest || unknown) {
			x.skip(&x.steps[i], "window", nil)
			continue
		}
		keep = append(keep, x.steps[i])
	}
	x.steps = keep
	return nil
}

// step tries one step, and once more after a pause where its failure allows that and the pool's budget has room.
func (x *run) step(ctx context.Context, s *route.Step, h how) error {
	e := x.once(ctx, s, h)
	if e == nil {
		return nil
	}
	if x.committed || !e.Kind.Retries() || e.Sent && x.generations+kept(e, h) >= x.Generations {
		return e
	}
	if e.Kind == llm.Stale {
		h.fresh = true
	} else {
		health := x.Pools[s.Pool].Health
		if !health.Retry(time.Now()) {
			return e
		}
		defer health.Retried()
	}
	if !pause(ctx, e) {
		return e
	}
	switch again := x.once(ctx, s, h); {
	case again == nil:
		return nil
	case uncalled(again) != "":
		return e // the pool went out meanwhile, or the money: what was told before says more
	default:
		return again
	}
}

// kept returns how many generations a retry must leave: one for each step behind, which are worth more than the same step
// again. A stale connection is none of the step's failures.
func kept(e *llm.Error, h how) int {
	if e.Kind == llm.Stale {
		return 0
	}
	return h.later
}

// once makes one attempt and counts it as a generation where the upstream may have worked.
func (x *run) once(ctx context.Context, s *route.Step, h how) *llm.Error {
	err := x.attempt(ctx, s, h)
	if err == nil {
		return nil
	}
	e := llm.AsError(err)
	if e.Sent {
		x.generations++
	}
	return e
}
