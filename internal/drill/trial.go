package drill

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/internal/config"
	"weir/internal/sim"
)

// outcome is what must become of a request.
type outcome uint8

const (
	next   outcome = iota // another step answers; where there is none, a proper error
	fine                  // the first step answers all the same
	broken                // streamed: what came and one error; whole: as next
	theirs                // the client's own fault: an error, and no other step
)

// fault is one row of the catalogue: what goes wrong, and what must become of it.
type fault struct {
	id   string
	name string
	do   behave // how the servers that fail answer; nil: well
	way  way    // what happens on the way to them
	all  bool   // every step fails, not the first alone

	must   outcome
	status []int                                   // of the error; empty: 502
	codes  []string                                // one of these; empty: any. Weir's own, not asked of other gateways
	tries  int                                     // at one step; 0: one
	cost   func(config.Limits, bool) time.Duration // what one failing step may take; nil: nothing
	maybe  bool                                    // another step's answer, or an error, will do as well
	pad    int                                     // bytes of the prompt
	tools  bool                                    // the client offers a tool
	direct bool                                    // the client asks for the first step alone
	heavy  bool                                    // takes much memory
	here   bool                                    // needs a gateway in this process
	needs  func(l *lane, stream bool) string       // why it cannot apply; nil or empty: it can
	play   func(ctx context.Context, t *trial)     // nil: asked once and judged
	then   func(ctx context.Context, t *trial)     // after a judged request
}

// from is the read at which a panicky connection panics: amid the stream, or within a whole answer.
func (f *fault) from(stream bool) int {
	if stream {
		return 5
	}
	return 3
}

// missing says why a fault cannot be brought to a lane; empty: it can.
func (f *fault) missing(l *lane, stream bool) string {
	if f.all && len(l.steps) == 1 {
		return "the route has one step: the same as the first alone"
	}
	if f.needs != nil {
		return f.needs(l, stream)
	}
	return ""
}

// trial is one case under way, and the verdict.
type trial struct {
	*rig
	fault    *fault
	stream   bool
	begun    time.Time
	views    []*view
	faults   []string
	na       string
	saw      string
	attempts int
	took     time.Duration
}

func (t *trial) failf(format string, args ...any) {
	t.faults = append(t.faults, fmt.Sprintf(format, args...))
}

// late notes a time over its bound.
func (t *trial) late(what string, took, bound time.Duration) {
	if took > bound {
		t.failf("I4: %s took %v, the bound is %v", what, took.Round(time.Millisecond), bound)
	}
}

// slack is what a busy machine may add to any time.
const slack = 400 * time.Millisecond

// ask sends a request to the lane, or to its first step alone, and keeps what was seen.
func (t *trial) ask(ctx context.Context, direct bool) *view {
	v := t.send(ctx, t.request(direct))
	t.views = append(t.views, v)
	return v
}

func (t *trial) request(direct bool) ask {
	a := ask{model: t.lane.model, stream: t.stream, tools: t.fault.tools, pad: t.fault.pad}
	if direct {
		a.model = t.lane.direct()
	}
	return a
}

// play asks once and judges, or does what the fault says.
func (t *trial) play(ctx context.Context) {
	if t.fault.play != nil {
		t.fault.play(ctx, t)
		return
	}
	v := t.ask(ctx, t.fault.direct)
	t.tell(v)
	t.judge(v)
	if t.fault.then != nil && len(t.faults) == 0 {
		t.fault.then(ctx, t)
	}
}

// tell makes v the answer that the table shows.
func (t *trial) tell(v *view) {
	t.saw, t.took = v.saw(), v.took
	t.attempts = len(t.calls(false))
	if t.ways != nil {
		t.attempts += t.ways.failed()
	}
}

// judge holds an answer against what must become of the fault.
func (t *trial) judge(v *view) {
	for _, w := range v.wrong {
		t.failf("%s", w)
	}
	if v.err != nil {
		t.failf("the client got no answer: %v", v.err)
		return
	}
	switch t.fault.must {
	case fine:
		if t.fault.maybe && (v.errors > 0 || v.whole() && !t.hit(v.server())) {
			t.other(v)
		} else {
			t.answered(v, true)
		}
	case theirs:
		t.rejected(v)
		t.untouched()
	case broken:
		switch {
		case !t.stream || t.fault.maybe && v.text == "" || t.fault.maybe && v.whole() && !t.hit(v.server()):
			t.other(v)
		default:
			t.cutOff(v)
		}
	case next:
		t.other(v)
	}
	t.bounds(v)
}

// hit reports whether a server is one of those that fail.
func (t *trial) hit(server string) bool { return t.fault.all || t.cfg == nil || t.lane.group[server] }

// answered checks a whole answer, of the first step or of another one.
func (t *trial) answered(v *view, first bool) {
	switch {
	case !v.whole():
		t.failf("no whole answer: %s", v.saw())
	case v.text != "" && !v.exact():
		t.failf("I6: the answer is %.80q", v.text)
	case v.server() != "" && t.hit(v.server()) != first:
		t.failf("the answer came from %s", v.server())
	}
}

// other checks that another step answered, or, where there is none, a proper error.
func (t *trial) other(v *view) {
	if t.cfg != nil && !t.fault.all && !t.fault.direct && t.lane.spare() != nil {
		t.answered(v, false)
		return
	}
	t.rejected(v)
	if t.fault.direct {
		t.untouched()
	}
}

// rejected checks a proper error before headers were sent, with status, code and what to do next.
func (t *trial) rejected(v *view) {
	if !v.refused() {
		t.failf("no proper error: %s", v.saw())
		return
	}
	want := t.fault.status
	if len(want) == 0 {
		want = []int{502}
	}
	if t.cfg == nil {
		if t.fault.must == theirs != (v.status >= 400 && v.status < 500 && v.status != 429) || v.status == 401 || v.status == 403 {
			t.failf("status %d", v.status)
		}
		return
	}
	if !slices.Contains(want, v.status) {
		t.failf("status %d, want one of %v", v.status, want)
	}
	if len(t.fault.codes) > 0 && !slices.Contains(t.fault.codes, v.code) {
		t.failf("code %q, want one of %q", v.code, t.fault.codes)
	}
	if (v.header.Get("X-Should-Retry") == "false") == (v.retryAfter() >= 0) {
		t.failf("X-Should-Retry is %q and Retry-After %q: exactly one must tell the client what to do", v.header.Get("X-Should-Retry"), v.header.Get("Retry-After"))
	}
}

// cutOff checks a stream that broke: what came, exactly one error, nothing that looks whole.
func (t *trial) cutOff(v *view) {
	switch {
	case v.whole():
		t.failf("I2: a truncated answer looks whole: %.80q", v.text)
	case !v.broken():
		t.failf("I2: not exactly one error after the text: %s", v.saw())
	case v.cut == nil && t.cfg != nil:
		t.failf("the stream ended with an error, and its connection is passed off as done")
	}
	var servers []string
	for name := range t.sims {
		if t.hit(name) {
			servers = append(servers, name)
		}
	}
	if !v.prefixed(servers) && !t.fault.tools {
		t.failf("I6: the client got %.80q, which is not how the answer begins", v.text)
	}
}

// untouched checks that no other step was asked.
func (t *trial) untouched() {
	if n := len(t.calls(false)) - len(t.calls(true)); n > 0 && !t.fault.all {
		t.failf("I3: %d calls to other steps", n)
	}
}

// bounds holds attempts and time against what is allowed (I3, I4).
func (t *trial) bounds(v *view) {
	tries, perPool := max(t.fault.tries, 1), map[string]int{}
	if t.cfg == nil {
		t.late("the answer", v.took, playMost)
		if n := len(t.calls(true)); n > 3 && n > tries {
			t.failf("I3: %d attempts", n)
		}
		return
	}
	for _, a := range t.calls(true) {
		perPool[a.Model]++
	}
	var bound time.Duration
	same := map[string]int{}
	for i := range t.lane.steps {
		s := &t.lane.steps[i]
		if !t.lane.sound(s) || t.fault.all {
			same[s.sent]++
			bound += time.Duration(tries-1) * 300 * time.Millisecond
			if t.fault.cost != nil {
				bound += t.fault.cost(s.limits, t.stream || t.streams(s)) * time.Duration(tries)
			}
		}
	}
	for model, n := range perPool {
		if steps := max(same[model], 1); n > tries*steps {
			t.failf("I3: %d calls for %s, at most %d are allowed", n, model, tries*steps)
		}
	}
	t.late("the answer", v.took, bound+slack)
}

// streams reports whether the step is called for a stream although the client wants none.
func (t *trial) streams(s *step) bool { return t.cfg.Backends[s.backends[0]].Stream != "as_asked" }

// settle waits until nothing is under way any more, here and at the servers (I1, I8).
func (t *trial) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for name, s := range t.sims {
		if err := s.WaitQuiet(ctx); err != nil {
			t.failf("I8: %d attempts are active at server %s when all is over", s.Active(), name)
		}
	}
	for t.app != nil {
		list, err := t.pools(ctx)
		busy := slices.IndexFunc(list, func(p poolState) bool { return p.InFlight+p.Waiting != 0 })
		switch {
		case err != nil:
			t.failf("I1: the pools do not come to rest: %v", err)
			return
		case busy < 0:
			return
		case ctx.Err() == nil:
			time.Sleep(5 * time.Millisecond)
			continue
		}
		t.failf("I1: pool %s has %d slots held and %d waiting when all is over", list[busy].Name, list[busy].InFlight, list[busy].Waiting)
		return
	}
}

// referee checks what must hold after every case, once the gateway has ended: one end for each start (I2), generations
// as the servers saw them (I3), sane counts (I9), no secret anywhere (I11).
func (t *trial) referee() {
	if t.app == nil {
		return
	}
	facts, bad := t.lines.facts()
	if bad > 0 {
		t.failf("%d event lines cannot be read", bad)
	}
	starts, ends := map[string]int{}, map[string]int{}
	for _, f := range facts {
		switch f.Event {
		case "start":
			starts[f.Request]++
		case "end":
			ends[f.Request]++
			for _, n := range []*int64{f.Tokens.In, f.Tokens.Out} {
				if n != nil && (*n < 0 || *n > 1_000_000) {
					t.failf("I9: %d tokens are booked", *n)
				}
			}
		}
	}
	for id, n := range starts {
		if n != 1 || ends[id] != 1 {
			t.failf("I2: request %s has %d starts and %d ends", id, n, ends[id])
		}
	}
	generations := map[string]int{}
	for _, a := range t.calls(false) {
		if !refusal(&a) {
			generations[a.Header.Get("X-Request-Id")]++
		}
	}
	for _, n := range generations {
		if n > t.cfg.Attempts.Generations {
			t.failf("I3: %d generations for one request, at most %d are allowed", n, t.cfg.Attempts.Generations)
		}
	}
	t.secrets()
}

// refusal reports an attempt that the server did not work on.
func refusal(a *sim.Attempt) bool {
	return a.Status >= 300 && a.Status < 500 || a.Status == 503 || a.Status == 529
}

// secrets looks for keys and addresses of this side in what clients and event lines hold (I11).
func (t *trial) secrets() {
	if t.lines.contains(canary) {
		t.failf("I11: an event line holds the key of a backend")
	}
	for _, v := range t.views {
		for _, secret := range []string{canary, domain, "127.0.0.1"} {
			if strings.Contains(string(v.body), secret) || strings.Contains(fmt.Sprint(v.header), secret) {
				t.failf("I11: the client got %q", secret)
			}
		}
	}
}
