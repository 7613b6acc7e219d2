package smoke

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"weir/internal/llm"
)

const (
	usualWithin = 2 * time.Minute
	leastPause  = time.Second
	mostPause   = 15 * time.Second
)

// asking is one case under way.
type asking struct {
	*runner
	Result
	t      *Target
	c      Case
	rest   string  // why the target's other cases are not asked; empty: they are
	restIs Verdict // and what they are for that
}

// run asks, once more where it was refused for a passing reason, and judges.
func (x *asking) run(ctx context.Context) {
	a := x.ask(ctx, llm.Chat, body(x.c, x.t, false))
	if e := failure(a); e != nil {
		x.refused(ctx, e)
		return
	}
	j := judge(x.c, x.t, &a)
	if x.c == Tools && j.mute { // a model may be shy: that it can call is shown by one that it has to make
		if b := x.ask(ctx, llm.Chat, body(x.c, x.t, true)); failure(b) == nil {
			if k := judge(x.c, x.t, &b); k.fault == "" {
				j = k
				j.note = "only when made to: " + k.note
			}
		}
	}
	if x.Verdict, x.Detail = Passed, j.note; j.fault != "" {
		x.Verdict, x.Detail = Failed, j.fault
	}
}

func failure(a Answer) *llm.Error {
	if a.Err == nil {
		return nil
	}
	return llm.AsError(a.Err)
}

// ask sends a question within the time of a case, and once more after a pause where it was refused for now.
func (x *asking) ask(ctx context.Context, op llm.Op, text []byte) Answer {
	within := x.t.Within
	if within == 0 {
		within = usualWithin
	}
	size := x.t.size(x.c)
	if x.t.Prefill > 0 {
		within += 2 * time.Duration(float64(size.in)/x.t.Prefill*float64(time.Second))
	}
	if x.t.Output > 0 {
		within += time.Duration(float64(size.out) / x.t.Output * float64(time.Second))
	}
	in, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r := &Request{Target: x.t, Case: x.c, Op: op, Body: text, Stream: x.c == Streaming && op == llm.Chat}
	a := x.once(in, r)
	if e := failure(a); e != nil && passing(e.Kind) && pause(in, e.RetryAfter) {
		a = x.once(in, r)
	}
	if failure(a) != nil && in.Err() != nil && ctx.Err() == nil {
		a.Err = llm.Errorf(llm.Slow, "no end within %v", within.Round(time.Second))
	}
	return a
}

// once sends a question and books what it took.
func (x *asking) once(ctx context.Context, r *Request) Answer {
	begun := time.Now()
	a := x.Ask(ctx, r)
	x.Took += (time.Since(begun) - a.Waited).Seconds()
	x.Waited += a.Waited.Seconds()
	x.First = max(a.First.Seconds(), 0)
	x.In += max(a.In, 0)
	x.Out += max(a.Out, 0)
	if a.Cost >= 0 {
		usd := float64(a.Cost) / 1e9
		if x.Cost != nil {
			usd += *x.Cost
		}
		x.Cost = &usd
	}
	return a
}

// passing are the failures that another moment may not have.
func passing(k llm.Kind) bool {
	return k == llm.Busy || k == llm.Loading || k == llm.Unavailable || k == llm.Full
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(min(max(d, leastPause), mostPause))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// What servers say of what they were not started or not made for.
var (
	noTools = regexp.MustCompile(`(?i)does not support tools|tools? (param|choice)\S* requires|requires? --(jinja|enable-auto-tool-choice)|tool (use|calling|calls?) (is|are) not (supported|enabled)|tools (is|are) not supported`)
	noChat  = regexp.MustCompile(`(?i)embedding|rerank|does not support (chat|generate|generation|completions?)|not a chat model|no chat template|pooling model`)
)

// refused judges a case that got no answer.
func (x *asking) refused(ctx context.Context, e *llm.Error) {
	x.Verdict, x.Detail, x.Kind = Failed, e.Msg, e.Kind.String()
	own := e.Kind == llm.Invalid || e.Kind == llm.Gone // the server says that it has no such thing
	switch {
	case ctx.Err() != nil:
		x.none(Untested, "stopped while it was asked")
	case e.Kind == llm.TooLong && x.c == Long && x.t.Window == 0:
		x.Verdict, x.Kind = NotApplicable, ""
		x.Detail = fmt.Sprintf("the window is smaller than a prompt of %d tokens (smoke.long of the pool says how long it is): %s", x.t.Long, e.Msg)
	case e.Kind == llm.Full:
		x.none(Untested, "clients had all slots: "+e.Msg)
	case e.Kind == llm.Loading:
		x.none(Untested, "not serving: "+e.Msg)
	case e.Kind == llm.Busy:
		x.none(Untested, "busy both times that it was asked: "+e.Msg)
	case e.Kind == llm.None: // out by hand, paused, or no money left for it
		x.none(Untested, e.Msg)
	case x.c == Tools && (own || e.Kind == llm.Refused) && noTools.MatchString(e.Msg):
		x.Verdict, x.Detail = NotApplicable, "its server takes no tools: "+e.Msg
	case x.c == Short && own && noChat.MatchString(e.Msg):
		x.embeds(ctx)
	case x.c == Short:
		x.rest, x.restIs = "not asked: the short case had no answer", Untested
	}
}

// none says that nobody could be asked, and that nobody needs to be for the other cases.
func (x *asking) none(v Verdict, why string) {
	x.Verdict, x.Detail = v, why
	x.rest, x.restIs = why, v
}

// embeds asks a target that has no chat for vectors: then that is what it is for, and the other cases are not for it.
func (x *asking) embeds(ctx context.Context) {
	first := x.Detail
	a := x.ask(ctx, llm.Embeddings, []byte(`{"model":`+string(llm.AppendQuoted(nil, x.t.Name()))+`,"input":"The quick brown fox."}`))
	n := dimensions(a.Body)
	if failure(a) != nil || n == 0 {
		x.Detail = fmt.Sprintf("it has no chat, and no embeddings either (say what it serves with smoke.skip of its pool): %s", first)
		x.rest, x.restIs = "not asked: the short case had no answer", Untested
		return
	}
	x.Verdict, x.Kind, x.Detail = Passed, "", fmt.Sprintf("a vector of %d numbers: it serves embeddings, not chat", n)
	x.rest, x.restIs = "it serves embeddings, not chat", NotApplicable
}
