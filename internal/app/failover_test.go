package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/sim"
)

// way is how a request goes in the tests of failover: streamed or not, the answer assembled from a stream (always) or as
// the client asked, over one, two or three steps. Of one step it fails; of more all but the last fail.
type way struct {
	mode   string
	steps  int
	stream bool
}

func (w way) String() string {
	return fmt.Sprintf("%s, %d steps, stream %v", w.mode, w.steps, w.stream)
}

// whole reports whether the upstream answers in one piece.
func (w way) whole() bool { return w.mode == "asked" && !w.stream }

// ways are all of them.
func ways() (list []way) {
	for _, mode := range []string{"always", "asked"} {
		for n := 1; n <= 3; n++ {
			list = append(list, way{mode, n, true}, way{mode, n, false})
		}
	}
	return list
}

// id names the way's route, and with a number behind it the pool of a step.
func (w way) id() string {
	if w.stream {
		return fmt.Sprintf("%s-%d-s", w.mode, w.steps)
	}
	return fmt.Sprintf("%s-%d-w", w.mode, w.steps)
}

// waysYAML has the servers s1 and s2, which fail, and ok, and for every way a route over pools of its own, so that none
// has too many failures for its breaker. scheme is that of s1 and s2; member are further members of their backends; more
// are lines at the top.
func waysYAML(scheme, member string, more ...string) string {
	var backends, pools, routes, aliases strings.Builder
	pool := func(name, server, stream string) {
		s, own := scheme, member
		if server == "ok" {
			s, own = "http", ""
		}
		fmt.Fprintf(&backends, "  %s: {url: \"%s://%s.sim\", tier: gpu, stream: %s%s}\n", name, s, server, stream, own)
		fmt.Fprintf(&pools, "  %s: {backend: %s, cap: 8, models: [m]}\n", name, name)
	}
	for _, w := range ways() {
		stream := map[string]string{"always": "always", "asked": "as_asked"}[w.mode]
		var steps []string
		for i := range w.steps {
			name, server := fmt.Sprintf("%s-%d", w.id(), i+1), fmt.Sprintf("s%d", i+1)
			if w.steps > 1 && i == w.steps-1 {
				server = "ok"
			}
			pool(name, server, stream)
			steps = append(steps, name+"/m")
		}
		fmt.Fprintf(&routes, "  %s: {steps: [%s]}\n", w.id(), strings.Join(steps, ", "))
		fmt.Fprintf(&aliases, "  to-%[1]s: %[1]s\n", w.id())
	}
	pool("judge", "s1", "always")
	top := "limits: {first_content: 2s, answer: 2s, idle: 3s, wait: 5s}\n"
	return strings.Join(append(more, ""), "\n") + top + "backends:\n" + backends.String() + "pools:\n" + pools.String() + "routes:\n" + routes.String() + "aliases:\n" + aliases.String()
}

// waysSims gives s1 and s2 the behaviour b, none where b is nil: then nobody listens there.
func waysSims(b *sim.Behaviour) map[string]sim.Script {
	m := map[string]sim.Script{"ok": {On: map[string]sim.Sequence{"m": {{Text: "healthy {nonce}"}}}}}
	if b != nil {
		for _, s := range []string{"s1", "s2"} {
			m[s] = sim.Script{On: map[string]sim.Sequence{"m": {*b}}}
		}
	}
	return m
}

// askWay asks the way's alias; more are members of the body.
func (g *gateway) askWay(w way, more ...string) *reply {
	g.t.Helper()
	return g.post("/v1/chat/completions", strings.Replace(chatBody(w.stream, more...), "oai-m", "to-"+w.id(), 1))
}

// askFor asks for a model by its name and reads the answer.
func (g *gateway) askFor(model string, stream bool, more ...string) *reply {
	g.t.Helper()
	return g.post("/v1/chat/completions", strings.Replace(chatBody(stream, more...), "oai-m", model, 1))
}

// callsOf counts the calls that a server got for one request.
func (g *gateway) callsOf(server, id string) (n int) {
	if s := g.sims[server]; s != nil {
		for _, a := range s.Calls("") {
			if a.Header.Get("X-Request-Id") == id {
				n++
			}
		}
	}
	return n
}

// probesAt counts the return probes that a server got.
func (g *gateway) probesAt(server string) (n int) {
	for _, a := range g.sims[server].Calls("") {
		if strings.HasPrefix(a.Header.Get("X-Request-Id"), "probe_") {
			n++
		}
	}
	return n
}

// clientCalls counts the calls that a server got for clients.
func (g *gateway) clientCalls(server string) int {
	return len(g.sims[server].Calls("")) - g.probesAt(server)
}

// rest waits until everything is forgotten that one request may leave for the next: breakers, pauses, accounts and models
// that are out, connections.
func (g *gateway) rest() {
	g.t.Helper()
	g.settle()
	time.Sleep(3 * time.Minute) // longer than any pause or penalty
	g.heal()
	g.forget()
}

// heal takes every model and account back, as a return probe does that passed.
func (g *gateway) heal() {
	for _, p := range g.app.graph.pools {
		for _, b := range p.Backends {
			p.Passed(b, "m")
		}
	}
}

// facts returns the events of a name that belong to no request, as "reason pool", in order.
func (g *gateway) facts(name string) (list []string) {
	g.t.Helper()
	time.Sleep(time.Second) // the recorder gathers
	synctest.Wait()
	for _, r := range g.lines.all() {
		if r.Event == name && r.Pool != nil {
			list = append(list, r.Reason+" "+*r.Pool)
		}
	}
	return list
}

// skips returns the skip events of a request, as "reason pool/model kind".
func (g *gateway) skips(id string) (list []string) {
	for _, r := range g.lines.all() {
		if r.Request == id && r.Event == "skip" {
			list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s/%s %s", r.Reason, *r.Pool, *r.Model, r.Kind)))
		}
	}
	return list
}

// repeats is how often a row is tried: twice, more in the long run.
func repeats(short, longer int) int {
	if long() {
		return longer
	}
	return short
}

// fault is one row of faults.md: what the failing steps do, and what must come of it.
type fault struct {
	name   string
	b      *sim.Behaviour                               // of s1 and s2; nil: nobody listens
	scheme string                                       // of s1 and s2; empty: http
	member string                                       // further members of their backends
	set    func(t *testing.T, g *gateway)               // more to be done at the start
	dial   func(ctx context.Context, addr string) error // fails dials
	kind   string                                       // of each failed attempt
	whole  string                                       // the same where the answer comes in one piece; empty: kind
	tries  int                                          // calls at each failing step's server
	repeat int                                          // attempts at each failing step; 0: as many as tries, at least 1
	status int                                          // that a client of one step sees
	code   string
	after  string        // its Retry-After; empty: x-should-retry: false
	took   time.Duration // the longest that a failing step may take
	says   string        // part of the message
	alert  string        // recorded when it is seen first
	blames bool          // the backend's health suffers
}

func (f *fault) kindOf(w way) string {
	if w.whole() && f.whole != "" {
		return f.whole
	}
	return f.kind
}

// run tries the fault in every way, twice; in the long run it does so again and again.
func (f *fault) run(t *testing.T) {
	t.Parallel()
	for range repeats(1, 100) {
		f.twice(t)
	}
}

func (f *fault) twice(t *testing.T) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		scheme := f.scheme
		if scheme == "" {
			scheme = "http"
		}
		g := begin(t, setup{yaml: waysYAML(scheme, f.member), sims: waysSims(f.b), refuse: f.dial})
		if f.set != nil {
			f.set(t, g)
		}
		for range 2 { // more would take pools out
			for _, w := range ways() {
				if f.once(t, g, w); t.Failed() {
					t.Logf("in the way: %v", w)
					return
				}
				g.forget()
			}
			f.passes(g)
		}
		f.judged(t, g)
	})
}

// passes lets the pause pass that the fault asks for, and brings back what it took out.
func (f *fault) passes(g *gateway) {
	pause := 3 * time.Second
	if len(f.after) > 1 || f.after > "2" {
		pause = 61 * time.Second
	}
	time.Sleep(pause)
	g.heal()
}

// once makes one request and checks all that it leaves.
func (f *fault) once(t *testing.T, g *gateway, w way) {
	t.Helper()
	start := time.Now()
	r := g.askWay(w)
	took, failing := time.Since(start), max(1, w.steps-1)
	if most := f.took * time.Duration(failing); took > most {
		t.Errorf("I4: the answer took %v, want at most %v", took, most)
	}
	if w.steps == 1 {
		f.refused(t, r)
	} else {
		f.rerouted(t, g, w, r)
	}
	f.referee(t, g, w, r)
	f.recorded(t, g, w, r)
}

// refused checks the error that a client of one step gets.
func (f *fault) refused(t *testing.T, r *reply) {
	t.Helper()
	e := r.failed()
	if r.status != f.status || f.code != "" && e.Code != f.code || r.header.Get("Retry-After") != f.after {
		t.Errorf("got %d, Retry-After %q, %s; want %d %s, Retry-After %q", r.status, r.header.Get("Retry-After"), r.body, f.status, f.code, f.after)
	}
	if !strings.Contains(e.Message, f.says) {
		t.Errorf("message %q, want … %s …", e.Message, f.says)
	}
	if s := string(r.body); strings.Contains(s, ".sim") || strings.Contains(s, "127.0.0.1") {
		t.Errorf("I11: the error tells an address: %s", s)
	}
}

// rerouted checks the answer of the last step.
func (f *fault) rerouted(t *testing.T, g *gateway, w way, r *reply) {
	t.Helper()
	calls := g.sims["ok"].Calls("m")
	if len(calls) != 1 || r.text() != "healthy "+calls[0].Nonce { // I7
		t.Errorf("text %.100q of %d calls at the healthy server", r.body, len(calls))
	}
	for h, want := range map[string]string{
		"X-Weir-Reroute": "fallback from " + w.id() + "-1/m", "X-Weir-Pool": fmt.Sprintf("%s-%d", w.id(), w.steps), "X-Weir-Route": w.id(),
		"X-Should-Retry": "", "Retry-After": "",
	} {
		if got := r.header.Get(h); got != want {
			t.Errorf("%s: %q, want %q", h, got, want)
		}
	}
}

// referee counts what the servers saw of the request.
func (f *fault) referee(t *testing.T, g *gateway, w way, r *reply) {
	t.Helper()
	second := 0
	if n := g.callsOf("ok", r.id()); w.steps == 1 && n != 0 || w.steps > 1 && n != 1 {
		t.Errorf("the healthy server saw %d calls", n)
	}
	if w.steps == 3 {
		second = f.tries
	}
	if a, b := g.callsOf("s1", r.id()), g.callsOf("s2", r.id()); a != f.tries || b != second {
		t.Errorf("I3: s1 saw %d calls and s2 %d, want %d and %d", a, b, f.tries, second)
	}
}

// recorded checks the events of the request.
func (f *fault) recorded(t *testing.T, g *gateway, w way, r *reply) {
	t.Helper()
	e, kind := g.end(r.id()), f.kindOf(w)
	want := []string{"start", "routing"}
	var skips, kinds []string
	each := f.repeat
	if each == 0 {
		each = max(1, f.tries)
	}
	for i := range max(1, w.steps-1) {
		want = append(want, "skip:failed")
		skips = append(skips, fmt.Sprintf("failed %s-%d/m %s", w.id(), i+1, kind))
		for range each {
			kinds = append(kinds, kind)
		}
	}
	if w.steps > 1 {
		want, kinds = append(want, "reroute:fallback"), append(kinds, "")
	}
	if got := g.events(r.id()); !slices.Equal(got, append(want, "end")) {
		t.Errorf("events %v, want %v", got, append(want, "end"))
	}
	if got := g.skips(r.id()); !slices.Equal(got, skips) {
		t.Errorf("skipped %q, want %q", got, skips)
	}
	var got []string
	for _, a := range e.Attempts {
		got = append(got, a.Kind)
		if a.Kind != "" && a.Message == "" {
			t.Errorf("the attempt at %s failed without words: %s", a.Pool, e.Raw)
		}
	}
	if !slices.Equal(got, kinds) || r.header.Get("X-Weir-Attempts") != fmt.Sprint(len(kinds)) {
		t.Errorf("attempts %q (header %s), want %q", got, r.header.Get("X-Weir-Attempts"), kinds)
	}
	if w.steps == 1 && (e.Kind != kind || e.Status != r.status) {
		t.Errorf("want the kind %s: %s", kind, e.Raw)
	}
	if f.alert != "" {
		if list := g.facts("alert"); !slices.Contains(list, f.alert+" "+w.id()+"-1") {
			t.Errorf("alerts %q, want %s", list, f.alert)
		}
	}
}

// judged checks whether the fault lowers the backend's health (I12): six in a row take it out, or never do.
func (f *fault) judged(t *testing.T, g *gateway) {
	t.Helper()
	for range 6 {
		g.askFor("judge/m", true).failed()
		f.passes(g)
	}
	if list := g.facts("health"); slices.Contains(list, "ejected judge") != f.blames || !f.blames && len(list) > 0 {
		t.Errorf("I12: health events %q: want an ejection: %v", list, f.blames)
	}
}
