package server

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"weir/internal/llm"
)

// pingEvery is the gap between comments to a streaming client that waits: well under the 15 s that clients watch.
const pingEvery = 12 * time.Second

// reply is the client's side of one request. Everything that writes holds the lock: comments are written by a timer.
type reply struct {
	mu       sync.Mutex // guards the fields below and writes to w
	w        http.ResponseWriter
	rc       *http.ResponseController
	dialect  Dialect
	limit    time.Duration
	deadline time.Time // of the next writes, renewed when it comes near
	begun    bool      // headers have left
	sent     bool      // and more than pings
	ended    bool
	values   [10]string // of headers, one array for all their slices
	n        int
	late     []byte // headers that were named after the others had left, as JSON members
	pinger   *time.Timer
	tap      func(piece []byte, whole bool) // sees what is about to leave; nil: nobody does
}

var _ llm.Client = (*reply)(nil)

func (p *reply) begin(w http.ResponseWriter, s *Server) {
	p.w, p.limit = w, s.WriteTimeout
	p.rc = http.NewResponseController(w)
}

// Head names a response header.
func (p *reply) Head(name, value string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.begun:
		p.late = llm.AppendQuoted(append(p.late, ','), name)
		p.late = llm.AppendQuoted(append(p.late, ':'), value)
	case p.n < len(p.values):
		p.values[p.n] = value
		p.w.Header()[name] = p.values[p.n : p.n+1 : p.n+1]
		p.n++
	default:
		p.w.Header().Set(name, value)
	}
}

// Patience starts the time after which a streaming client gets headers and comments.
func (p *reply) Patience(d time.Duration) {
	if d <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pinger = time.AfterFunc(d, p.ping)
}

// ping keeps the connection alive while nothing is known yet.
func (p *reply) ping() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.pinger == nil {
		return
	}
	if !p.begun {
		p.open()
	}
	if p.write(p.dialect.AppendPing(nil)) == nil {
		p.pinger.Reset(pingEvery)
	}
}

// Begun reports whether headers have left.
func (p *reply) Begun() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun
}

var (
	eventStream = []string{"text/event-stream; charset=utf-8"}
	jsonContent = []string{"application/json"}
	noCache     = []string{"no-cache, no-transform"}
	noBuffering = []string{"no"}
)

// open sends the head of a stream with the first bytes.
func (p *reply) open() {
	h := p.w.Header()
	h["Content-Type"] = eventStream
	h["Cache-Control"] = noCache
	h["X-Accel-Buffering"] = noBuffering // proxies in front buffer otherwise
	p.w.WriteHeader(http.StatusOK)
	p.begun = true
}

// Send sends a piece of a stream at once.
func (p *reply) Send(b []byte) error {
	if p.tap != nil {
		p.tap(b, false)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pinger != nil {
		p.pinger.Stop()
		p.pinger = nil
	}
	if !p.begun {
		p.open()
	}
	p.sent = true
	return p.write(b)
}

// write writes and flushes under a deadline, so that a reader who stopped reading is noticed.
func (p *reply) write(b []byte) error {
	p.hurry()
	if _, err := p.w.Write(b); err != nil {
		return err
	}
	return p.rc.Flush()
}

// hurry sets the write deadline, anew only when half of it has passed: it costs a system call's worth of locks.
func (p *reply) hurry() {
	if p.limit <= 0 {
		return
	}
	if now := time.Now(); p.deadline.Sub(now) < p.limit/2 {
		p.deadline = now.Add(p.limit)
		_ = p.rc.SetWriteDeadline(p.deadline)
	}
}

// Last sends the end of a stream, after a comment with the headers that came too late.
func (p *reply) Last(b []byte) error {
	if p.tap != nil {
		p.tap(b, false)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if !p.begun {
		p.open()
	}
	p.hurry()
	if c := p.comment(); c != nil {
		b = append(c, b...)
	}
	_, err := p.w.Write(b)
	return err // the server flushes at the handler's end, with the end of the body in the same packet
}

// comment returns the headers that were named after the head had left, nil when there are none.
func (p *reply) comment() []byte {
	if p.late == nil {
		return nil
	}
	return append(append(append([]byte(": weir {"), p.late[1:]...), '}'), "\n\n"...)
}

// Answer sends a whole answer.
func (p *reply) Answer(body []byte) error {
	if p.tap != nil {
		p.tap(body, true)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.begun = true
	h := p.w.Header()
	h["Content-Type"] = jsonContent
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	p.hurry()
	_, err := p.w.Write(body)
	return err
}

// stop ends the comments.
func (p *reply) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pinger != nil {
		p.pinger.Stop()
		p.pinger = nil
	}
}

// fail tells the client of a failure: as an HTTP error while the status is free, else as the one last event of the
// stream of r, which is nil before it was decoded. It reports whether the connection must be cut, because a stream had
// begun.
func (p *reply) fail(e *llm.Error, r *llm.Request) (cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return true
	}
	p.ended = true
	p.hurry()
	if p.begun {
		if last := p.comment(); p.sent && r != nil && r.Broken != nil {
			_, _ = p.w.Write(r.Broken.AppendBroken(last, e))
		} else {
			_, _ = p.w.Write(p.dialect.AppendStreamError(last, e))
		}
		_ = p.rc.Flush()
		return true
	}
	p.begun = true
	h := p.w.Header()
	retryHeaders(h, e)
	body := p.dialect.AppendError(nil, e)
	h["Content-Type"] = jsonContent
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	h.Set("Cache-Control", "no-store")
	if e.Kind == llm.Unauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="weir"`)
	}
	p.w.WriteHeader(p.dialect.Status(e))
	_, _ = p.w.Write(body)
	return false
}

// retryHeaders say whether and when a client should try again. Hints stay within a minute: SDKs ignore longer ones.
func retryHeaders(h http.Header, e *llm.Error) {
	if e.IsFinal() {
		h.Set("X-Should-Retry", "false")
		return
	}
	const most = time.Minute
	d := e.RetryAfter
	if d <= 0 {
		d = time.Second
	}
	d = min(d, most)
	h.Set("Retry-After", strconv.FormatInt(max(1, int64((d+time.Second-1)/time.Second)), 10))
	h.Set("Retry-After-Ms", strconv.FormatInt(max(1, d.Milliseconds()), 10))
}
