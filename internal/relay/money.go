package relay

import (
	"weir/internal/event"
	"weir/internal/llm"
	"weir/internal/route"
)

// Ledger keeps account of what calls cost and holds them to ceilings. It is safe for concurrent use.
type Ledger interface {
	// Hold holds the most that a call may cost back from every ceiling it counts against. refused says why the call may not
	// be made: of kind limited where it is the key's own ceiling, else of kind none. Then hold is nil.
	Hold(c Charge) (hold Hold, refused *llm.Error)
}

// Hold is what was held back for one call. Exactly one of its methods must be called, once.
type Hold interface {
	// Settle books what the call used under a purpose of event.Record, and returns its cost in nano-dollars, negative where
	// that is not known.
	Settle(used event.Tokens, purpose string) (nanos int64)
	// Cancel books nothing.
	Cancel()
}

// Charge says who wants to make a call of which step, and what it may use.
type Charge struct {
	Caller  *llm.Caller
	Step    *route.Step
	In, Out int64 // tokens at most, as far as that can be told before
}

// What a cost is booked as.
const (
	forClient     = "client"
	forDisconnect = "disconnect" // the client left; the vendor's meter ran all the same
)

// usualOut is what an answer is taken to need where the client sets no limit.
const usualOut = 1024

// mediaOut is what one image or piece of sound is taken to need, in tokens.
const mediaOut = 8192

// hold holds back what a call of the step may cost; nil where nobody keeps account.
func (x *run) hold(s *route.Step) (Hold, *llm.Error) {
	if x.Ledger == nil || x.req.Op == llm.Count { // counting is free
		return nil, nil
	}
	c := Charge{Caller: x.caller, Step: s, In: int64(x.req.Shape.TokensEst)}
	if x.req.Op.Generates() {
		c.Out = x.req.Shape.MaxTokens
		if c.Out <= 0 {
			c.Out = usualOut
		}
		if w := int64(x.Pools[s.Pool].ContextWindow()); w > 0 {
			c.Out = min(c.Out, w)
		}
		if n := x.req.Choices; n > 1 && c.Out <= (1<<62)/n {
			c.Out *= n
		}
	}
	if x.req.Op.Passes() { // sound and images: what they use is told at the end, if at all
		c.Out = mediaOut * max(x.req.Choices, 1)
	}
	return x.Ledger.Hold(c)
}

// settle books the cost of an attempt: of an answer, of one that broke off while the client had some of it, and of one that
// the client left while the backend worked. An attempt that another follows costs the client nothing (C153).
func (x *run) settle(h Hold, err error) {
	e := llm.AsError(err)
	purpose := forClient
	switch {
	case err == nil:
	case e.Kind == llm.Canceled && e.Sent:
		purpose = forDisconnect
	case !x.committed:
		if h != nil {
			h.Cancel()
		}
		return
	}
	if h == nil {
		return
	}
	if purpose == forDisconnect && x.rec.Tokens.In < 0 { // nothing of an answer was seen; the prompt is what the vendor reads first
		x.usage(llm.NoUsage, 0)
	}
	x.rec.Purpose = purpose
	x.rec.Cost = h.Settle(x.rec.Tokens, purpose)
}

// usage takes what the answer said of its tokens, or Weir's own count, marked as one, for what it did not say or cannot be:
// a prompt has a token at least, an answer that was seen has some, no window holds millions. What is more than the request's
// own bytes can be is kept, for a vendor bills files and searches of its own too, and is marked as well.
func (x *run) usage(u llm.Usage, events int64) {
	const (
		hidden = 16 << 10 // tokens that a vendor or an image may add
		most   = 1 << 22
	)
	t := event.Tokens{In: u.In, Out: u.Out, Cached: u.Cached, Reasoning: u.Reasoning, Written: u.Written}
	shape := &x.rec.Shape
	switch {
	case t.In <= 0 || t.In > most:
		t.In, t.Cached, t.Written, t.Estimated = int64(shape.TokensEst), -1, -1, true
	case t.In > 2*int64(shape.Bytes)+hidden*int64(1+shape.Images):
		t.Estimated = true
	}
	if x.req.Op.Generates() && (t.Out < 0 || t.Out == 0 && events > 0 || t.Out > most) { // a content event is about a token
		t.Out, t.Reasoning, t.Estimated = events, -1, true
	}
	if max(t.Cached, 0)+max(t.Written, 0) > t.In {
		t.Cached, t.Written, t.Estimated = -1, -1, true
	}
	x.rec.Tokens = t
}
