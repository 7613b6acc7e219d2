package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"weir/internal/backend"
	"weir/internal/event"
	"weir/internal/llm"
	"weir/internal/pool"
	"weir/internal/route"
)

// attempt leases a slot, calls the backend, passes the answer on and gives the slot back.
func (x *run) attempt(ctx context.Context, s *route.Step, how how) (err error) {
	p := x.Pools[s.Pool]
	held, refused := x.hold(s)
	if refused != nil {
		return refused
	}
	x.rec.Attempts = append(x.rec.Attempts, event.Attempt{
		Pool: s.Pool, Model: s.Model, Tier: s.Tier, At: time.Since(x.rec.Start), First: -1,
	})
	a := &x.rec.Attempts[len(x.rec.Attempts)-1]
	defer func() { x.note(a, err); x.settle(held, err) }()

	lease, err := p.Acquire(ctx, pool.Need{
		Model: s.Sent, Op: x.req.Op, Priority: x.caller.Priority + x.route.Priority, Wait: s.Limits.Wait.D(), Force: how.force,
		Waiting: func(place, waiting int, guess time.Duration) { x.waits(s, a, place, waiting, guess) },
	})
	if err != nil {
		return err
	}
	defer func() { lease.Done(err) }()
	a.Backend, a.Queue = lease.Backend.Name, lease.Queued
	x.rec.Queue += lease.Queued

	ans, err := lease.Backend.Call(ctx, x.call(p, s, a, how))
	x.repaired(s)
	if err != nil {
		return err
	}
	x.lost(s, ans.Lost)
	defer ans.Close()
	a.Status = ans.Status
	if x.req.Op.Passes() {
		return x.pass(ans, &lease, s, a)
	}
	if ans.IsStream() {
		return x.live(ans, &lease, s, a, p)
	}
	return x.whole(ans, &lease, s, a)
}

// waits records that the request waits for a slot, and for how long that is expected.
func (x *run) waits(s *route.Step, a *event.Attempt, place, waiting int, guess time.Duration) {
	a.Place, a.Guess = place, guess
	x.emit(event.Event{Name: event.Queue, Request: x.req.ID, Route: x.rec.Route, Tier: s.Tier, Pool: s.Pool, Model: s.Model,
		Detail: fmt.Sprintf("place %d of %d, about %.1f s", place, waiting, guess.Seconds())})
}

// call says how the backend is to be called.
func (x *run) call(p *pool.Pool, s *route.Step, a *event.Attempt, how how) *backend.Call {
	if len(x.rec.Attempts) == 1 {
		x.rec.Overhead = time.Since(x.rec.Start) - x.rec.Queue
	}
	l := s.Limits
	prefill := p.Allowance(x.req.Shape.TokensEst)
	c := &backend.Call{
		Request: x.req, Model: s.Sent, Quoted: s.Quoted, Sampling: s.Sampling, Fresh: how.fresh, Local: x.caller.Local || x.route.Local,
		Limits: backend.Limits{
			FirstContent: l.FirstContent.D() + prefill, Idle: l.Idle.D(), Total: l.Total.D(), Answer: l.Answer.D() + prefill,
		},
	}
	if s.Outside {
		c.Heard = p.Hear
	}
	if x.rec.Trace != (event.TraceID{}) {
		a.Span = event.NewSpanID()
		c.Trace = string(event.AppendTraceparent(nil, x.rec.Trace, a.Span, x.rec.Traced))
	}
	return c
}

// lost records what the step's backend was not shown, because its API has no place for it.
func (x *run) lost(s *route.Step, what []string) {
	if len(what) > 0 {
		x.emit(event.Event{Name: event.Drop, Request: x.req.ID, Route: x.rec.Route, Tier: s.Tier, Pool: s.Pool, Model: s.Model,
			Reason: "dialect", Detail: strings.Join(what, ", ")})
	}
}

// repaired records, once for a request, what had to be mended in its history.
func (x *run) repaired(s *route.Step) {
	if x.req.Repair == nil || x.told {
		return
	}
	x.told = true
	for _, note := range x.req.Repair.Notes {
		x.emit(event.Event{Name: event.Repair, Request: x.req.ID, Route: x.rec.Route, Tier: s.Tier, Pool: s.Pool, Model: s.Model,
			Reason: "history", Detail: note})
	}
}

// note completes the attempt's entry in the record.
func (x *run) note(a *event.Attempt, err error) {
	a.Took = time.Since(x.rec.Start) - a.At
	if err == nil {
		a.Sent = true
		return
	}
	e := llm.AsError(err)
	a.Kind, a.Message, a.Sent = e.Kind.String(), e.Msg, e.Sent
	if e.Err != nil && e.Upstream != 0 {
		a.Message += " (" + e.Err.Error() + ")" // an error whose shape the table of kinds does not know yet
	}
	if e.Upstream != 0 {
		a.Status = e.Upstream
	}
}

// pause waits before the same step is tried again. It returns false when the wait asked for is too long for that, or
// the client left.
func pause(ctx context.Context, e *llm.Error) bool {
	const longest = 2 * time.Second
	d := e.RetryAfter
	switch {
	case d > longest:
		return false
	case e.Kind == llm.Stale:
		return true // the next connection is a fresh one
	case d == 0:
		d = 100*time.Millisecond + rand.N(200*time.Millisecond)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
