package app

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/config"
	"weir/internal/event"
	"weir/internal/key"
	"weir/internal/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setup says what a test needs. Backends stand in the YAML as http://NAME.sim, and each NAME has its script here; what
// has none refuses connections. On the network in memory everything runs in a testing/synctest bubble too.
type setup struct {
	yaml  string                  // without listen, admin and data; empty: oneBackend("")
	sims  map[string]sim.Script   // by NAME
	other map[string]http.Handler // backends that are no simulated servers, by NAME; in memory only
	data  string                  // the data folder; empty: a new one
	real  bool                    // loopback sockets in place of the network in memory
	log   slog.Handler            // nil: silent
	edit  func(*config.Config)    // after the defaults
	tls   bool                    // the client speaks https and does not look at the certificate
	today func() time.Time        // the calendar of what is spent; nil: the clock's
	quiet bool                    // the test breaks what the referee checks at the end, and says why
	// refuse fails dials of the gateway's own; it gets the address and may block until ctx ends; nil is no refusal.
	refuse func(ctx context.Context, addr string) error
}

// oneBackend is a configuration of one backend a with the model oai-m; more are members of the backend, such as
// ", stream: always".
func oneBackend(more string) string {
	return `
backends:
  a: {url: "http://a.sim", tier: gpu` + more + `}
pools:
  a: {backend: a, cap: 64, models: [oai-m, emb]}
aliases: {oai-m: a/oai-m, emb: a/emb}
`
}

// kinds of upstream behind which each stream case must hold: the client streams, the answer is assembled from a stream,
// the answer comes whole.
var kindsOfAnswer = []struct {
	name   string
	yaml   string
	stream bool
}{
	{"streamed to the client", oneBackend(", stream: as_asked"), true},
	{"assembled from a stream", oneBackend(", stream: always"), false},
	{"asked whole", oneBackend(", stream: as_asked"), false},
}

// oai is the script of one model oai-m.
func oai(b ...sim.Behaviour) map[string]sim.Script {
	return map[string]sim.Script{"a": {On: map[string]sim.Sequence{"oai-m": b}}}
}

// gateway is one running App with its simulated servers and one client.
type gateway struct {
	t       *testing.T
	app     *App
	cfg     *config.Config
	net     *sim.Net // nil on real sockets
	sims    map[string]*sim.Server
	client  *http.Client
	dial    func(context.Context, string, string) (net.Conn, error)
	url     string // of the public listener
	admin   string // of the admin listener
	key     string
	lines   *lines
	ended   chan error // what Run returned
	stopped bool
	quiet   bool
}

// begin starts servers and App, makes a key, and checks the invariants when the test ends.
func begin(t *testing.T, s setup) *gateway {
	t.Helper()
	g, err := tryBegin(t, s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// tryBegin is begin for tests that want to see New refuse.
func tryBegin(t *testing.T, s setup) (*gateway, error) {
	t.Helper()
	g := &gateway{t: t, sims: map[string]*sim.Server{}, lines: newLines(), ended: make(chan error, 1), quiet: s.quiet}
	o := Options{Version: "test", Events: g.lines, Today: s.today}
	if s.log != nil {
		o.Log = slog.New(s.log)
	}
	if s.yaml == "" {
		s.yaml = oneBackend("")
	}
	g.network(&o, &s)
	c, report := config.Parse([]byte(s.yaml), filepath.Join(t.TempDir(), "weir.yaml"))
	if err := report.Err(); err != nil {
		return nil, err
	}
	if c.Listen, c.Admin = "127.0.0.1:0", "127.0.0.1:0"; s.data != "" {
		c.Data = s.data
	}
	if s.edit != nil {
		s.edit(c)
	}
	o.Config, g.cfg = c, c
	var err error
	if g.app, err = New(t.Context(), o); err != nil {
		return nil, err
	}
	g.url, g.admin = "http://"+g.app.Addr().String(), "http://"+g.app.AdminAddr().String()
	if s.tls {
		g.url = "https" + strings.TrimPrefix(g.url, "http")
	}
	go func() { g.ended <- g.app.Run(context.WithoutCancel(t.Context())) }()
	t.Cleanup(g.finish)
	name := "test"
	if s.data != "" {
		name += rand.Text() // the folder may have a key of an earlier run
	}
	g.key = g.newKey(key.Spec{Name: name})
	return g, nil
}

// network starts the simulated servers and makes dialer and client.
func (g *gateway) network(o *Options, s *setup) {
	g.t.Helper()
	g.dial = new(net.Dialer).DialContext
	if !s.real {
		g.net = sim.NewNet()
		g.dial, o.Dial = g.net.DialContext, g.net.DialContext
		o.Listener, o.Admin = g.listen("127.0.0.1:8484"), g.listen("127.0.0.1:8485")
	}
	if dial := g.dial; s.refuse != nil {
		o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if err := s.refuse(ctx, addr); err != nil {
				return nil, err
			}
			return dial(ctx, network, addr)
		}
	}
	for name, script := range s.sims {
		server := sim.New(sim.Options{Name: name, Script: script})
		if s.real {
			server.Start(g.t)
			s.yaml = strings.ReplaceAll(s.yaml, "http://"+name+".sim", server.URL())
		} else {
			server.StartOn(g.t, g.listen(name+".sim:80"))
		}
		g.sims[name] = server
	}
	for name, h := range s.other {
		g.serve(g.listen(name+".sim:80"), h)
	}
	g.client = &http.Client{Transport: &http.Transport{
		DialContext: g.dial, DisableCompression: true, MaxIdleConnsPerHost: 64, TLSClientConfig: anyCertificate(),
	}}
}

func (g *gateway) listen(addr string) net.Listener {
	g.t.Helper()
	l, err := g.net.Listen(addr)
	if err != nil {
		g.t.Fatal(err)
	}
	return l
}

// serve answers on l until the test ends.
func (g *gateway) serve(l net.Listener, h http.Handler) {
	s := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	g.t.Cleanup(func() { s.Close(); <-done })
}

// sim returns the server of the name a, which most tests have alone.
func (g *gateway) sim() *sim.Server { return g.sims["a"] }

// forget makes the servers forget what has been, once none of it is under way.
func (g *gateway) forget() {
	g.t.Helper()
	g.settle()
	for _, s := range g.sims {
		s.Reset()
	}
}

// newKey makes a key and returns its token.
func (g *gateway) newKey(s key.Spec) string {
	g.t.Helper()
	ctx := g.t.Context()
	token, _, err := key.Change{Store: g.app.Store(), Actor: "test", Now: time.Now()}.Add(ctx, s)
	if err != nil {
		g.t.Fatal(err)
	}
	if err := g.app.Keys().Reload(ctx); err != nil {
		g.t.Fatal(err)
	}
	return token
}

// finish checks the invariants and stops the App.
func (g *gateway) finish() {
	g.t.Helper()
	if !g.stopped {
		g.settle()
		g.stop()
	}
	g.client.CloseIdleConnections()
	if !g.quiet {
		g.referee()
	}
}

// settle waits until nothing is under way any more, at the gateway and at every server (I1, I8: within 2 s).
func (g *gateway) settle() {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(g.t.Context()), 2*time.Second)
	defer cancel()
	idle := make(chan struct{})
	go func() { g.app.server.Wait(); close(idle) }()
	select {
	case <-idle:
	case <-ctx.Done():
		g.t.Errorf("I8: %d requests are under way 2 s after the test's end", g.app.server.Running())
		g.app.Halt()
		<-idle
	}
	for name, s := range g.sims {
		if err := s.WaitQuiet(ctx); err != nil {
			g.t.Errorf("I8: %d attempts are active at server %s 2 s after the test's end", s.Active(), name)
		}
	}
	for name, p := range g.app.graph.pools {
		u := p.Slots.Usage()
		for n := 0; n < 250 && u.Held+u.Waiting > 0; n++ { // a return probe may hold one for its time
			time.Sleep(100 * time.Millisecond)
			u = p.Slots.Usage()
		}
		if u.Held != 0 || u.Waiting != 0 {
			g.t.Errorf("I1: pool %s has %d slots held and %d waiting when all is quiet", name, u.Held, u.Waiting)
		}
	}
	if n := g.app.server.Running(); n != 0 {
		g.t.Errorf("I1: %d requests are counted as running when all is quiet", n)
	}
}

// stop ends the App and waits for it.
func (g *gateway) stop() {
	g.t.Helper()
	g.stopped = true
	g.client.CloseIdleConnections()
	g.app.Halt()
	select {
	case err := <-g.ended:
		if err != nil {
			g.t.Errorf("Run: %v", err)
		}
	case <-time.After(5 * time.Second):
		g.t.Error("Run did not return within 5 s of Halt")
	}
}

// referee checks what must hold after every test: one start and one end per request (I2), generations bounded, as the
// servers saw them (I3).
func (g *gateway) referee() {
	g.t.Helper()
	starts, ends := map[string]int{}, map[string]int{}
	for _, e := range g.lines.all() {
		switch e.Event {
		case "start":
			starts[e.Request]++
		case "end":
			ends[e.Request]++
		}
	}
	for id, n := range starts {
		if n != 1 || ends[id] != 1 {
			g.t.Errorf("I2: request %s has %d start and %d end events", id, n, ends[id])
		}
	}
	for id := range ends {
		if starts[id] == 0 {
			g.t.Errorf("I2: request %s has an end without a start", id)
		}
	}
	generations := map[string]int{}
	for _, s := range g.sims {
		for _, a := range s.Calls("") {
			if refused := a.Status >= 300 && a.Status < 500 || a.Status == 503 || a.Status == 529; !refused {
				generations[a.Header.Get("X-Request-Id")]++
			}
		}
	}
	for id, n := range generations {
		if probe := strings.HasPrefix(id, "probe_"); !probe && n > g.cfg.Attempts.Generations {
			g.t.Errorf("I3: the servers saw %d generations for request %s, at most %d are allowed", n, id, g.cfg.Attempts.Generations)
		}
	}
}

// record is one event line.
type record struct {
	Event, Request, Reason, Kind, From, To, Actor, Detail string
	Alias, Route, Tier, Pool, Backend, Model, Served      *string
	Key, Reroute, Message, Remote, Trace                  *string
	Status                                                int
	Attempts                                              []event.Attempt
	Tokens                                                struct {
		In, Out, Cached, Reasoning *int64
		Estimated                  bool
	}
	CostUSD *float64 `json:"cost_usd"`
	First   *float64 `json:"first_ms"`
	Raw     string   `json:"-"`
}

// lines takes the event lines and lets tests wait for one.
type lines struct {
	mu      sync.Mutex // guards the fields below
	rest    []byte
	records []record
	faults  []error
	more    chan struct{} // closed at each new line
}

func newLines() *lines { return &lines{more: make(chan struct{})} }

// Write takes whole or torn lines.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			break
		}
		r := record{Raw: string(line)}
		if err := json.Unmarshal(line, &r); err != nil {
			l.faults = append(l.faults, fmt.Errorf("event line %q: %w", line, err))
		}
		l.records, l.rest = append(l.records, r), rest
	}
	close(l.more)
	l.more = make(chan struct{})
	return len(p), nil
}

func (l *lines) all() []record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]record(nil), l.records...)
}

// wait returns the first record that is wanted, once it is there.
func (l *lines) wait(ctx context.Context, want func(*record) bool) (record, error) {
	for from := 0; ; {
		l.mu.Lock()
		list, more := l.records, l.more
		l.mu.Unlock()
		for ; from < len(list); from++ {
			if want(&list[from]) {
				return list[from], nil
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			return record{}, errors.New("no such event line came")
		}
	}
}

// end returns the end event of a request.
func (g *gateway) end(id string) record {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), 3*time.Second)
	defer cancel()
	r, err := g.lines.wait(ctx, func(r *record) bool { return r.Event == "end" && r.Request == id })
	if err != nil {
		g.t.Errorf("the end event of request %q: %v", id, err)
	}
	return r
}

// events returns the names of a request's events, each with its reason, in order; call end first.
func (g *gateway) events(id string) (names []string) {
	for _, r := range g.lines.all() {
		if r.Request == id {
			names = append(names, strings.TrimSuffix(r.Event+":"+r.Reason, ":"))
		}
	}
	return names
}

var _ io.Writer = (*lines)(nil)

// openFiles counts the file descriptors of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
