// Package sim is a scriptable, fallible inference server, and the referee of tests. It
// speaks OpenAI's and Anthropic's APIs as several servers speak them, misbehaves exactly as its script says,
// and records every attempt that reaches it: when it came, with what, what was answered,
// and when the peer left. It uses no time but package time's and no blocking but channels
// and connections, so it also runs on the in-memory Net inside a testing/synctest bubble.
package sim

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxBody bounds a request's body: a larger one is answered 413.
const maxBody = 256 << 20

// keptBodies bounds the bodies in the record, all together.
const keptBodies = 256 << 20

// Options says how a Server is set up. The zero value is a healthy OpenAI-like server.
type Options struct {
	Name   string // begins every nonce; "sim" when empty. Give each server its own.
	Script Script

	// Choose picks the behaviour of a call; nil from it means the script's. A call's
	// own wish (header X-Sim, or member x_sim of the body) goes first.
	Choose func(Attempt) *Behaviour

	Simulated    bool          // every answer carries X-Weir-Simulated: true
	Control      bool          // serve the paths under /_sim/
	KeepBody     int           // bytes of each request's body kept; 0 is 1 MiB
	KeepAttempts int           // attempts kept; 0 is 10,000
	Idle         time.Duration // idle connections are closed after this; 0 is never
	Log          *slog.Logger  // one line per attempt at debug level; nil is none
}

// Server is one simulated server. It is an http.Handler, and Serve gives it a listener of
// its own. It is safe for concurrent use. In a synctest bubble, make it inside the bubble.
type Server struct {
	opt   Options
	http  http.Server
	done  chan struct{} // closed by Close
	fault error         // of the first script
	busy  sync.WaitGroup
	conn  atomic.Int64 // numbers the connections

	mu        sync.Mutex // guards the fields below
	closed    bool
	url       string
	script    Script
	scriptSet time.Time
	slots     chan struct{} // nil: no limit
	place     map[string]int
	attempts  []*Attempt
	bodyBytes int
	sequence  int
	arrived   int
	active    int
	byModel   map[string]count
	changed   chan struct{} // closed at each change
	hijacked  map[net.Conn]bool
}

// connection is what a Server knows of one of its connections.
type connection struct {
	id       int64
	requests atomic.Int64
}

type connKey struct{}

// New returns a Server. When opt.Script has faults, Start and Serve fail with them and
// ServeHTTP answers nothing but them.
func New(opt Options) *Server {
	if opt.Name == "" {
		opt.Name = "sim"
	}
	if opt.KeepBody == 0 {
		opt.KeepBody = 1 << 20
	}
	if opt.KeepAttempts == 0 {
		opt.KeepAttempts = 10_000
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		opt: opt, done: make(chan struct{}), changed: make(chan struct{}),
		place: map[string]int{}, byModel: map[string]count{}, hijacked: map[net.Conn]bool{},
	}
	s.http.Handler = s
	s.http.IdleTimeout = opt.Idle
	s.http.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.http.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, &connection{id: s.conn.Add(1)})
	}
	s.fault = s.SetScript(opt.Script)
	return s
}

// SetScript replaces the script at once: attempts that run keep the behaviour they began
// with, sequences start anew, and loading times count from now.
func (s *Server) SetScript(script Script) error {
	if err := script.Check(); err != nil {
		return fmt.Errorf("sim script: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if script.Slots != cap(s.slots) {
		s.slots = nil
		if script.Slots > 0 {
			s.slots = make(chan struct{}, script.Slots)
		}
	}
	s.script, s.scriptSet = script, time.Now()
	clear(s.place)
	return nil
}

// Set replaces the behaviour of one model (or path, or "*"), and leaves the rest of the script.
func (s *Server) Set(model string, behaviours ...Behaviour) error {
	s.mu.Lock()
	script := s.script
	s.mu.Unlock()
	on := map[string]Sequence{model: behaviours}
	for k, v := range script.On {
		if k != model {
			on[k] = v
		}
	}
	script.On = on
	return s.SetScript(script)
}

// Serve answers on l until Close; it then returns nil.
func (s *Server) Serve(l net.Listener) error {
	if s.fault != nil {
		return s.fault
	}
	s.mu.Lock()
	s.url = "http://" + l.Addr().String()
	s.mu.Unlock()
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("sim: serve on %s: %w", l.Addr(), err)
	}
	return nil
}

// TB is what Start needs of a testing.TB.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// Start serves on a free port of 127.0.0.1 until the test ends, and returns s.
func (s *Server) Start(t TB) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("sim: %v", err)
	}
	return s.StartOn(t, l)
}

// StartOn serves on l until the test ends, and returns s.
func (s *Server) StartOn(t TB, l net.Listener) *Server {
	t.Helper()
	if s.fault != nil {
		_ = l.Close()
		t.Fatalf("%v", s.fault)
	}
	s.mu.Lock()
	s.url = "http://" + l.Addr().String()
	s.mu.Unlock()
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		_ = l.Close() // Serve may not have had it yet
		<-served
	})
	return s
}

// URL returns the base URL of the listener, "" before Serve or Start.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.url
}

// Close ends every connection, waits for the attempts to end, and makes Serve return. It
// may be called more than once.
func (s *Server) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
	for c := range s.hijacked {
		_ = c.Close()
	}
	s.mu.Unlock()
	err := s.http.Close()
	s.busy.Wait()
	return err
}

// enter counts a request in, unless the Server is closed.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.busy.Add(1)
	return true
}

// ServeHTTP answers one request by the script and records it. It never panics but with
// http.ErrAbortHandler, where a broken connection cannot be had otherwise.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		panic(http.ErrAbortHandler)
	}
	defer s.busy.Done()
	if s.opt.Simulated {
		w.Header().Set("X-Weir-Simulated", "true")
	}
	if s.opt.Control && strings.HasPrefix(r.URL.Path, "/_sim/") {
		s.control(w, r)
		return
	}
	a := s.arrive(r)
	how := CutOff // what stays when the play ends in a panic
	defer func() {
		s.end(a, how)
		s.opt.Log.Debug("attempt ended", "id", a.ID, "path", a.Path, "model", a.Model, "status", a.Status, "end", string(how), "dur", a.Ended.Sub(a.Arrived))
	}()
	stop := context.AfterFunc(r.Context(), func() { s.peerLeft(a) })
	defer stop()

	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	q := parse(strings.TrimPrefix(r.URL.Path, "/v1"), body)
	q.header = a.Header
	if v := s.voice(a); v.anthropic() {
		w.Header().Set("Request-Id", v.requestID())
	}
	s.read(a, q)
	switch tooLarge := new(http.MaxBytesError); {
	case errors.As(err, &tooLarge):
		how = newPlayer(s, a, Behaviour{}, w, r).finish(failure(s.voice(a), fault{status: http.StatusRequestEntityTooLarge, message: "simulated: the body is too large"}))
	case err != nil:
		s.peerLeft(a)
		how = Left
	default:
		how = s.serve(w, r, a, q)
	}
}

// peerLeft records the time at which the peer was first seen to be gone.
func (s *Server) peerLeft(a *Attempt) {
	s.note(a, func(a *Attempt) {
		if a.Left.IsZero() && a.End == Running && !s.closed {
			a.Left = time.Now()
		}
	})
}

// serve finds the behaviour and the answer, and plays it.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, a *Attempt, q *request) End {
	if s.fault != nil {
		return newPlayer(s, a, Behaviour{}, w, r).finish(failure(s.voice(a), fault{status: http.StatusInternalServerError, message: s.fault.Error()}))
	}
	b, err := s.behaviour(a, q)
	if err != nil {
		return newPlayer(s, a, Behaviour{}, w, r).finish(failure(s.voice(a), badRequest("sim: "+err.Error())))
	}
	p := newPlayer(s, a, b, w, r)
	if err := p.takeSlot(); err != nil {
		return p.result(err)
	}
	defer p.settle()
	return p.finish(s.answer(r, a, q, &p.b))
}

// behaviour picks the behaviour of an attempt: its own wish, Choose, the script.
func (s *Server) behaviour(a *Attempt, q *request) (Behaviour, error) {
	var b Behaviour
	if h := a.Header.Get("X-Sim"); h != "" {
		err := b.UnmarshalJSON([]byte(h))
		return b, wrap("header X-Sim", err)
	}
	if q.Sim != nil {
		err := b.UnmarshalJSON(q.Sim)
		return b, wrap("member x_sim", err)
	}
	if s.opt.Choose != nil {
		s.mu.Lock()
		snapshot := *a
		s.mu.Unlock()
		if chosen := s.opt.Choose(snapshot); chosen != nil {
			return *chosen, chosen.Check()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := []string{a.Path}
	if a.Call() {
		keys = []string{a.Model, a.Path, "*"}
	}
	for _, key := range keys {
		if q := s.script.On[key]; len(q) > 0 {
			i := s.place[key]
			s.place[key]++
			return q.at(i), nil
		}
	}
	return b, nil
}

func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// current returns the script and when it was set.
func (s *Server) current() (Script, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.script, s.scriptSet
}

func (s *Server) flavour() Flavour {
	script, _ := s.current()
	return script.flavour()
}

// authorized reports whether a request carries the key that the script demands.
func (s *Server) authorized(r *http.Request, key string) bool {
	got := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if x := r.Header.Get("X-Api-Key"); x != "" {
		got = x
	}
	return key == "" || subtle.ConstantTimeCompare([]byte(got), []byte(key)) == 1
}

// nonce makes the text that only one attempt's answer holds.
func nonce(name string, id int) string { return fmt.Sprintf("%s-%06d", name, id) }
