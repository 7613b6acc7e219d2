// Package server is the public listener's HTTP side: routes, keys, limits on what comes in, one record per request, and
// errors in the client's dialect.
package server

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/event"
	"weir/internal/key"
	"weir/internal/llm"
)

// Relay carries a decoded request to an answer. Its error has not been told to the client yet.
type Relay interface {
	Serve(ctx context.Context, r *llm.Request, c *llm.Caller, rec *event.Record, out llm.Client) error
	Models(c *llm.Caller) []llm.Listed
	// Keeps returns how long the responses of a model's route are kept, 0 for not at all, and whether it is a local one.
	Keeps(model string, c *llm.Caller) (keep time.Duration, local bool)
}

// Dialect reads the requests of one API and writes its errors.
type Dialect interface {
	Name() string
	Decode(op llm.Op, body []byte, maxDepth int) (*llm.Request, error)
	// Status returns the HTTP status for e, which clients of this API know how to take.
	Status(e *llm.Error) int
	// AppendError appends the body of an HTTP error.
	AppendError(dst []byte, e *llm.Error) []byte
	// AppendStreamError appends the one event that ends a stream in which nothing was sent yet.
	AppendStreamError(dst []byte, e *llm.Error) []byte
	// AppendPing appends what keeps a waiting stream alive.
	AppendPing(dst []byte) []byte
}

// Options are what a server needs. All fields must be set but Keys.
type Options struct {
	Relay        Relay
	OpenAI       Dialect
	Anthropic    Dialect
	Responses    Dialect
	Keeper       Keeper
	Keys         *key.Set // nil: no key is asked for
	Emit         func(event.Event)
	Log          *slog.Logger
	Hosts        []string // accepted beside the loopback names; "*" for all
	Trusted      []netip.Prefix
	MaxBody      int64
	MaxDepth     int
	Bounds       Bounds
	Uploads      string        // folder for the files of large forms; empty: that of the system
	BodyTimeout  time.Duration // in which body bytes must keep coming
	WriteTimeout time.Duration // that a client may take for one write
	Hop          string        // this instance, in X-Weir-Hop
	Trace        bool          // make a trace where the client brings none
	Sample       float64       // share of those that is exported
}

// Server answers on the public listener. It is safe for concurrent use.
type Server struct {
	Options
	routes   map[string]endpoint
	hosts    map[string]bool
	any      bool
	draining atomic.Bool
	halted   atomic.Bool
	active   sync.WaitGroup
	running  atomic.Int64
	born     time.Time
	guard    key.Guard
}

type endpoint struct {
	method  string
	serve   func(*Server, *exchange) error
	dialect Dialect // nil: openai
}

// New returns a server. It starts nothing.
func New(o Options) *Server {
	s := &Server{Options: o, hosts: map[string]bool{}, born: time.Now()}
	for _, h := range o.Hosts {
		s.any = s.any || h == "*"
		s.hosts[strings.ToLower(h)] = true
	}
	post := func(op llm.Op, d Dialect) endpoint { return endpoint{http.MethodPost, infer(op), d} }
	form := func(op llm.Op) endpoint { return endpoint{http.MethodPost, media(op), s.OpenAI} }
	s.routes = map[string]endpoint{
		"/v1/chat/completions":       post(llm.Chat, s.OpenAI),
		"/v1/completions":            post(llm.Completions, s.OpenAI),
		"/v1/embeddings":             post(llm.Embeddings, s.OpenAI),
		"/v1/rerank":                 post(llm.Rerank, s.OpenAI),
		"/v1/messages":               post(llm.Chat, s.Anthropic),
		"/v1/messages/count_tokens":  post(llm.Count, s.Anthropic),
		"/v1/responses":              post(llm.Chat, s.Responses),
		"/v1/responses/input_tokens": post(llm.Count, s.Responses),
		"/v1/audio/speech":           post(llm.Audio, s.OpenAI),
		"/v1/audio/transcriptions":   form(llm.Audio),
		"/v1/audio/translations":     form(llm.Audio),
		"/v1/images/generations":     post(llm.Images, s.OpenAI),
		"/v1/images/edits":           form(llm.Images),
		"/v1/images/variations":      form(llm.Images),
		"/v1/models":                 {http.MethodGet, (*Server).models, nil},
	}
	return s
}

// Drain makes the server not ready and refuses new requests with draining; running ones go on.
func (s *Server) Drain() { s.draining.Store(true) }

// Halt tells running requests, whose contexts are about to end, that the server and not the client is leaving.
func (s *Server) Halt() { s.halted.Store(true) }

// Ready reports whether new requests are taken.
func (s *Server) Ready() bool { return !s.draining.Load() }

// Running returns how many requests are under way.
func (s *Server) Running() int64 { return s.running.Load() }

// Wait blocks until no request is under way.
func (s *Server) Wait() { s.active.Wait() }

// exchange is one HTTP request and its answer.
type exchange struct {
	*Server
	reply
	r         *http.Request
	rec       *event.Record
	id        string
	op        llm.Op
	req       *llm.Request // nil before it is decoded
	caller    llm.Caller
	drained   bool // the body was read to its end
	admission key.Admission
	metered   *key.Key      // where it has limits per minute; else nil
	keep      time.Duration // how long the key has its responses kept
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/livez", "/readyz":
		s.leave(r, http.NewResponseController(w))
		s.health(w, r)
		return
	case "/":
		if r.Method == http.MethodHead || r.Method == http.MethodGet {
			s.leave(r, http.NewResponseController(w))
			s.root(w, r)
			return
		}
	}
	s.active.Add(1)
	s.running.Add(1)
	defer s.active.Done()
	defer s.running.Add(-1)
	x := s.begin(w, r)
	var err error
	defer func() {
		if p := recover(); p != nil {
			s.Log.Error("panic in a request", "request", x.id, "panic", p, "stack", string(debug.Stack()))
			err = &llm.Error{Kind: llm.Internal, Msg: "something went wrong inside Weir; its log holds the cause under this request's id"}
		}
		if x.end(err) {
			panic(http.ErrAbortHandler)
		}
	}()
	err = x.serve()
}

// leave bounds the time in which net/http, which waits for the rest of a body before it answers, gets it.
func (s *Server) leave(r *http.Request, rc *http.ResponseController) {
	if r.ContentLength != 0 && s.BodyTimeout > 0 {
		_ = rc.SetReadDeadline(time.Now().Add(s.BodyTimeout))
	}
}

func (s *Server) begin(w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{Server: s, r: r, id: newID(), rec: &event.Record{Start: time.Now(), Dialect: "openai", First: -1}}
	x.rec.Tokens = event.Tokens{In: -1, Out: -1, Cached: -1, Reasoning: -1, Written: -1}
	x.rec.Cost = -1
	x.rec.Remote = s.remote(r)
	x.reply.begin(w, s)
	h := w.Header()
	h["X-Weir-Request"] = []string{x.id}
	x.speak(s.spoken(r))
	x.trace()
	s.Emit(event.Event{Time: x.rec.Start, Name: event.Start, Request: x.id})
	return x
}

func (x *exchange) trace() {
	t, parent, sampled, ok := event.ParseTraceparent(x.r.Header.Get("Traceparent"))
	switch {
	case ok:
		x.rec.Trace, x.rec.Parent, x.rec.Traced = t, parent, sampled
	case x.Trace:
		x.rec.Trace, x.rec.Traced = event.NewTraceID(), x.Sample >= 1 || rand.Float64() < x.Sample
	default:
		return
	}
	x.rec.Span = event.NewSpanID()
}

// serve finds the endpoint and checks all that can be checked before a body is read.
func (x *exchange) serve() error {
	if !x.HostOK(x.r.Host) {
		e := llm.Errorf(llm.Invalid, "this Weir does not answer for the host %q; add it to hosts in its configuration", short(x.r.Host))
		e.Status, e.Code = http.StatusMisdirectedRequest, "unknown_host"
		return e
	}
	if x.draining.Load() {
		e := llm.Errorf(llm.Draining, "Weir is shutting down and takes no new requests")
		e.RetryAfter = 5 * time.Second
		return e
	}
	end, ok := x.routes[x.r.URL.Path]
	if !ok || x.r.URL.RawPath != "" {
		if rest, is := strings.CutPrefix(x.r.URL.Path, "/v1/models/"); is && rest != "" {
			end = endpoint{http.MethodGet, (*Server).model, nil}
		} else if end, ok = x.keptEndpoint(x.r); !ok {
			return x.noPath()
		}
	}
	if x.r.Method != end.method && !(x.r.Method == http.MethodHead && end.method == http.MethodGet) {
		e := llm.Errorf(llm.Invalid, "%s takes %s, not %s", x.r.URL.Path, end.method, short(x.r.Method))
		e.Status, e.Code = http.StatusMethodNotAllowed, "method_not_allowed"
		x.w.Header().Set("Allow", end.method)
		return e
	}
	if err := x.authenticate(); err != nil {
		return err
	}
	return end.serve(x.Server, x)
}

func (x *exchange) noPath() error {
	e := llm.Errorf(llm.Unknown, "there is nothing at %s", short(x.r.URL.Path))
	e.Code = "unknown_path"
	if _, ok := x.routes["/v1"+x.r.URL.Path]; ok {
		e.Msg += "; the base URL of this API ends in /v1"
	}
	return e
}

// end writes the error, if one is left to tell, and the record. It reports whether the connection must be cut so that a
// broken stream does not look whole.
func (x *exchange) end(err error) (cut bool) {
	x.reply.stop()
	if !x.drained {
		x.leave(x.r, x.rc)
	}
	r := x.rec
	if err != nil {
		e := x.meant(err)
		r.Kind, r.Message, r.Status = e.Kind.String(), e.Msg, x.dialect.Status(e)
		if e.Kind == llm.Internal {
			x.Log.Error("request failed", "request", x.id, "err", err)
		}
		// Who left is told nothing, but the cut: an empty 200 would look like an answer to a client that closed one half only.
		cut = e.Kind == llm.Canceled || x.fail(x.told(e), x.req)
		if e.Kind != llm.Canceled && x.begun && cut {
			r.Status = http.StatusOK // what the client saw
		}
	} else if r.Status == 0 {
		r.Status = http.StatusOK
	}
	x.settle()
	r.Total = time.Since(r.Start)
	x.Emit(event.Event{Time: time.Now(), Name: event.End, Request: x.id, Record: r})
	return cut
}

// meant names the reason of a request that ended with its context: the server's halt, or the client.
func (x *exchange) meant(err error) *llm.Error {
	e := llm.AsError(err)
	switch {
	case x.halted.Load() && (e.Kind == llm.Canceled || x.r.Context().Err() != nil):
		return &llm.Error{Kind: llm.Draining, Msg: "Weir is shutting down; this request did not end within the time for that", RetryAfter: 5 * time.Second, Err: err}
	case e.Kind != llm.Canceled && e.Status != http.StatusRequestTimeout && errors.Is(x.r.Context().Err(), context.Canceled):
		// A read deadline that passes ends the context too: then the client is there and is told.
		return &llm.Error{Kind: llm.Canceled, Msg: "the client left", Err: err}
	}
	return e
}

// HostOK reports whether a Host header is one that this Weir answers for. It guards against rebinding: a page in a browser
// can reach a loopback listener, but only under a host name of its own.
func (s *Server) HostOK(host string) bool {
	return s.any || hostAllowed(host, s.hosts)
}

func (s *Server) root(w http.ResponseWriter, r *http.Request) {
	if !s.HostOK(r.Host) {
		w.WriteHeader(http.StatusMisdirectedRequest)
		return
	}
	w.Header()["X-Weir-Request"] = []string{newID()}
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet {
		_, _ = w.Write([]byte(`{"name":"weir","api":"/v1"}` + "\n"))
	}
}

func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	status, text := http.StatusOK, "ok\n"
	if r.URL.Path == "/readyz" && !s.Ready() {
		status, text = http.StatusServiceUnavailable, "shutting down\n"
	}
	w.Header()["X-Weir-Request"] = []string{newID()}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}

// newID returns a request id: 40 bits of time and 60 random ones, unguessable enough to tell requests apart, which is all
// it is for. Ids rise with time, so that the store's index of them grows at its end and touches few pages.
func newID() string {
	const letters = "234567abcdefghijklmnopqrstuvwxyz" // in the order of their bytes
	b := [4 + 20]byte{'r', 'e', 'q', '_'}
	t, r := uint64(time.Now().UnixMilli()), rand.Uint64()
	for i := 11; i >= 4; i-- {
		b[i] = letters[t&31]
		t >>= 5
	}
	for i := 12; i < len(b); i++ {
		b[i] = letters[r&31]
		r >>= 5
	}
	return string(b[:])
}

func short(s string) string {
	const most = 128
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "�")
}
