// Package relay carries one request through its plan: find the route, make the plan, try its steps, pass the answer on.
// It is the only package that knows the whole walk, and it reads from top to bottom.
package relay

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"weir/internal/event"
	"weir/internal/llm"
	"weir/internal/pool"
	"weir/internal/route"
)

// Graph is everything that a configuration builds for the walk. It is read-only.
type Graph struct {
	Table       *route.Table
	Pools       map[string]*pool.Pool
	Generations int           // per client request
	CommitAfter time.Duration // headers and comments go to streaming clients after this time without content
	Version     string
	Trace       bool   // make a trace where the client brings none
	Ledger      Ledger // nil: nobody keeps account of what is spent
	Loops       *Loops // nil: nobody looks for loops

	// Tokens estimates a prompt for a model where no server counts it.
	Tokens func(c *llm.Conversation, model string) (int, error)
}

// Relay serves requests on the current graph. It is safe for concurrent use.
type Relay struct {
	graph atomic.Pointer[Graph]
	emit  func(event.Event)
}

// New returns a relay on g that emits its events with emit, which must not block.
func New(g *Graph, emit func(event.Event)) *Relay {
	r := &Relay{emit: emit}
	r.graph.Store(g)
	return r
}

// Shift makes g current. Running requests finish on the graph they began with.
func (r *Relay) Shift(g *Graph) { r.graph.Store(g) }

// Models lists the names that c may ask for.
func (r *Relay) Models(c *llm.Caller) []llm.Listed {
	var list []llm.Listed
	for _, id := range r.graph.Load().Table.IDs() {
		if c.Allows(id.Name) && (id.Local || !c.Local) {
			list = append(list, llm.Listed{Name: id.Name, OwnedBy: id.OwnedBy})
		}
	}
	return list
}

// Keeps returns how long the responses of the route that model stands for are kept for c, 0 for not at all, and whether
// that route never leaves the machines you own.
func (r *Relay) Keeps(model string, c *llm.Caller) (keep time.Duration, local bool) {
	found, ok := r.graph.Load().Table.Find(model)
	if !ok || !c.Allows(model) {
		return 0, false
	}
	return found.Keep, found.Local
}

// run is one request under way.
type run struct {
	*Graph
	emit   func(event.Event)
	req    *llm.Request
	caller *llm.Caller
	rec    *event.Record
	out    llm.Client
	route  *route.Route
	steps  []route.Step
	first  string // the step that was to answer

	generations int
	window      int  // a prompt was too long for this many tokens: only larger windows are tried
	committed   bool // content has left: no other step may follow
	told        bool // the repairs of the history are recorded
}

// Serve carries req through its plan and sends the answer to out. It fills in rec. An error is an *llm.Error that has
// not been told to the client yet; the caller writes it, before or after headers have left.
func (r *Relay) Serve(ctx context.Context, req *llm.Request, c *llm.Caller, rec *event.Record, out llm.Client) error {
	x := &run{Graph: r.graph.Load(), emit: r.emit, req: req, caller: c, rec: rec, out: out}
	rec.Version = x.Version
	if err := x.plan(); err != nil {
		return err
	}
	if req.Op == llm.Count {
		return x.count(ctx, &x.steps[0])
	}
	if err := x.loops(ctx); err != nil {
		return err
	}
	if req.Stream {
		out.Patience(x.CommitAfter)
	}
	err := x.try(ctx)
	if err != nil && !x.committed {
		x.tried()
	}
	return err
}

// loops slows or refuses a request that its session has sent again and again.
func (x *run) loops(ctx context.Context) error {
	if x.Loops == nil || !x.req.Op.Generates() {
		return nil
	}
	seen, did, err := x.Loops.Check(ctx, x.caller.Key, x.caller.Session, x.req.Body)
	if did != Passed {
		reason := "slowed"
		if did == Refused {
			reason = "refused"
		}
		x.emit(event.Event{Name: event.Loop, Route: x.rec.Route, Reason: reason, // without its request: it is kept like what happens to pools
			Detail: fmt.Sprintf("key %s, session %s: the same request %d times, at last %s", x.caller.Key, x.caller.Session, seen, x.req.ID)})
	}
	return err
}

// plan finds the route and the steps that are left for this request.
func (x *run) plan() error {
	var ok bool
	x.route, ok = x.Table.Find(x.req.Model)
	if !ok || !x.caller.Allows(x.req.Model) {
		return x.unknown()
	}
	x.rec.Route = x.route.Name
	var skipped []route.Skip
	x.steps, skipped = x.route.Plan(route.Need{Op: x.req.Op, Model: x.req.Model, Local: x.caller.Local})
	if x.req.Op != llm.Count { // what no server counts is estimated
		x.steps, skipped = x.able(skipped)
	}
	for _, s := range skipped {
		x.skip(&s.Step, s.Reason, nil)
	}
	x.emit(event.Event{Name: event.Routing, Request: x.req.ID, Alias: x.rec.Alias, Route: x.route.Name, Detail: names(x.steps)})
	if len(x.steps) == 0 {
		return x.none(skipped)
	}
	x.first = x.steps[0].Name()
	return nil
}

// able leaves out the steps whose backends have no such operation.
func (x *run) able(skipped []route.Skip) ([]route.Step, []route.Skip) {
	keep := x.steps[:0]
	for _, s := range x.steps {
		if x.Pools[s.Pool].Serves(x.req) {
			keep = append(keep, s)
		} else {
			skipped = append(skipped, route.Skip{Step: s, Reason: "endpoint"})
		}
	}
	return keep, skipped
}

func names(steps []route.Step) string {
	if len(steps) == 1 {
		return steps[0].Name()
	}
	var b strings.Builder
	for i := range steps {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(steps[i].Pool)
		b.WriteByte('/')
		b.WriteString(steps[i].Model)
	}
	return b.String()
}

func (x *run) unknown() error {
	e := llm.Errorf(llm.Unknown, "there is no model %q here", short(x.req.Model))
	if near := x.Table.Near(x.req.Model, x.caller.Allows); len(near) > 0 {
		e.Msg += "; near it: " + strings.Join(near, ", ")
	}
	e.Msg += "; GET /v1/models lists what this key may use"
	e.Param = "model"
	return e
}

// none says why no step was left before any was tried.
func (x *run) none(skipped []route.Skip) error {
	e := llm.Errorf(llm.None, "no step of route %q can serve this request", x.route.Name)
	e.Final = true
	if !slices.ContainsFunc(skipped, func(s route.Skip) bool { return s.Reason != "endpoint" }) {
		e = llm.Errorf(llm.Invalid, "model %q does not take %s requests", short(x.req.Model), x.req.Op) // C145
		e.Param, e.Code = "model", "unsupported_endpoint"
	}
	for i, s := range skipped {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		e.Msg += sep + s.Step.Name() + " " + why[s.Reason]
	}
	return e
}

var why = map[string]string{
	"boundary": "is outside, and this request may not leave the machines you own",
	"endpoint": "has no such operation",
	"model":    "serves another model, and the vectors, texts or images of two models cannot stand for each other",
}

// skip records a step that is not taken, or that failed.
func (x *run) skip(s *route.Step, reason string, e *llm.Error) {
	ev := event.Event{Name: event.Skip, Request: x.req.ID, Route: x.rec.Route, Tier: s.Tier, Pool: s.Pool, Model: s.Model, Reason: reason}
	if e != nil {
		ev.Kind, ev.Detail = e.Kind.String(), e.Msg
	}
	x.emit(ev)
}

// won tells the client and the record who answers. by is the pool and model that really served, where the vendor chose it.
func (x *run) won(s *route.Step, by string, simulated bool) {
	r := x.rec
	r.Tier, r.Pool, r.Model = s.Tier, s.Pool, s.Model
	x.rerouted(s, by)
	if simulated {
		x.out.Head("X-Weir-Simulated", "true")
	}
	x.out.Head("X-Weir-Tier", s.Tier)
	x.out.Head("X-Weir-Pool", s.Pool)
	x.out.Head("X-Weir-Model", s.Model)
	x.tried()
	x.out.Head("X-Weir-Overhead-Ms", strconv.FormatFloat(float64(r.Overhead.Microseconds())/1000, 'f', 3, 64))
}

// Reasons of a reroute.
const (
	rerouteFallback = "fallback" // a step before it did not answer
	rerouteCollapse = "collapse" // the pool serves that id as another model
	rerouteVendor   = "vendor"   // the vendor answered from another pool
)

// rerouted tells the client and the events why the answer is not from what was asked first; the record keeps the reason that
// the operator chose least.
func (x *run) rerouted(s *route.Step, by string) {
	var said []string
	note := func(reason, from, to, text string) {
		x.rec.Reroute = reason
		said = append(said, text)
		x.emit(event.Event{Name: event.Reroute, Request: x.req.ID, Route: x.rec.Route, Tier: s.Tier, Pool: s.Pool, Reason: reason, From: from, To: to})
	}
	name := s.Name()
	if s.Sent != s.Model {
		sent := s.Pool + "/" + s.Sent
		note(rerouteCollapse, name, sent, "collapse to "+sent)
	}
	if x.first != name {
		note(rerouteFallback, x.first, name, "fallback from "+x.first)
	}
	if by != "" {
		note(rerouteVendor, name, by, "vendor served "+by)
	}
	if len(said) > 0 {
		x.out.Head("X-Weir-Reroute", strings.Join(said, "; "))
	}
}

// tried tells the client the route and how many attempts there were, on answers and errors alike.
func (x *run) tried() {
	x.out.Head("X-Weir-Route", x.rec.Route)
	x.out.Head("X-Weir-Attempts", strconv.Itoa(len(x.rec.Attempts)))
}

func short(s string) string {
	const most = 128
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "�")
}
