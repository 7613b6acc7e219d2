package backend

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// plain speaks HTTP/1.1 to one backend without TLS: the machines you own, where the volume is. The caller's goroutine
// writes and reads itself, so that a call costs no hand-over between goroutines; net/http's Transport needs two more and
// a handful of channels. It sends a request once and never again; what follows a failure is decided above. It is safe
// for concurrent use.
type plain struct {
	dial    func(ctx context.Context) (net.Conn, error)
	keep    time.Duration // how long an unused connection is kept
	most    int           // unused connections kept
	backend *Backend
	mu      sync.Mutex  // guards the fields below
	idle    []*wire     // most recently used last
	reaper  *time.Timer // nil while idle is empty
	closed  bool
}

// wire is one connection, used by one call at a time.
type wire struct {
	net.Conn
	peek  func() bool // reports a connection that is quiet and open; nil where that cannot be told
	buf   []byte      // what was read and not used is buf[at:end]
	at    int
	end   int
	calls int
	since time.Time // when it became idle
}

// flight is what became of a request, for the judgement of a failure.
type flight struct {
	got     bool // there was a connection
	reused  bool // that had been used before
	begun   bool // the upstream may have seen some of the request
	replied bool // it said something
}

// head is the head of an answer, and its body.
type head struct {
	status int
	header Header
	length int64 // of the body; negative: unknown
	body   body
}

// Header finds a header by its name; empty when there is none.
type Header interface{ Get(name string) string }

// body is an answer's body. Close frees the connection: for reuse when the body was read to its end.
type body interface {
	Read(p []byte) (int, error)
	Close() error
}

const (
	wireBuffer = 4 << 10
	oneWrite   = 16 << 10 // a body of up to this size leaves in one write with its head
)

// send sends o and reads the head of the answer, whose body must be closed. Nothing reads o.body afterwards.
func (p *plain) send(ctx context.Context, o *outgoing, f *flight) (head, error) {
	w, err := p.take(ctx, o.fresh)
	if err != nil {
		return head{}, err
	}
	f.got, f.reused = true, w.calls > 0
	w.calls++
	cancel := context.AfterFunc(ctx, func() { _ = w.SetDeadline(past) })
	fail := func(err error) (head, error) {
		cancel()
		w.Close()
		return head{}, err
	}
	f.begun = true
	// An upstream may refuse before it has read all of the body: what it says counts more than the failed write.
	werr := p.write(w, o)
	if ours(werr) {
		return fail(werr)
	}
	h, err := w.head()
	f.replied = w.end > 0 || err == nil
	if err != nil {
		return fail(errors.Join(err, werr))
	}
	r := &plainBody{p: p, w: w, cancel: cancel, keep: h.keep && werr == nil, left: h.length, chunked: h.chunked, begin: true}
	if h.length == 0 && !h.chunked {
		r.done = true
	}
	return head{status: h.status, header: h, length: h.length, body: r}, nil
}

// past is a deadline that ends every read and write at once.
var past = time.Unix(1, 0)

// write sends head and body, in one write where the body is not large.
func (p *plain) write(w *wire, o *outgoing) error {
	buf := heads.Get().(*[]byte)
	defer heads.Put(buf)
	b := o.open((*buf)[:0])
	line := func(name, value string) {
		if value != "" && !strings.ContainsAny(value, "\r\n\x00") { // net/http let none in; here it would be another header
			b = append(append(append(append(b, name...), ": "...), value...), "\r\n"...)
		}
	}
	line("Accept", o.accept())
	line("X-Weir-Hop", p.backend.hops(o))
	line("X-Request-Id", o.id)
	line("Traceparent", o.trace)
	for _, h := range o.lines {
		line(h.Name, h.Value)
	}
	line(p.backend.keyHeader(), o.key)
	b = strconv.AppendInt(append(b, "Content-Length: "...), o.body.length(), 10)
	b = append(b, "\r\n\r\n"...)
	if o.body.form != nil {
		*buf = b
		if _, err := w.Conn.Write(b); err != nil {
			return err
		}
		_, err := io.Copy(w.Conn, o.body.form)
		return err
	}
	if len(o.body.bytes) <= oneWrite {
		b = append(b, o.body.bytes...)
		*buf = b
		_, err := w.Conn.Write(b)
		return err
	}
	*buf = b
	parts := net.Buffers{b, o.body.bytes}
	_, err := parts.WriteTo(w.Conn)
	return err
}

var heads = sync.Pool{New: func() any { return new([]byte) }}

// take returns an idle connection that is still alive, or a new one; a new one in any case where fresh asks for it.
func (p *plain) take(ctx context.Context, fresh bool) (*wire, error) {
	if err := p.backend.inside(ctx); err != nil {
		return nil, err
	}
	for !fresh {
		p.mu.Lock()
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			break
		}
		w := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		if time.Since(w.since) < p.keep && (w.peek == nil || w.peek()) {
			return w, nil
		}
		w.Close()
	}
	c, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	return &wire{Conn: c, peek: peeker(c), buf: make([]byte, wireBuffer)}, nil
}

// give takes a connection back whose last answer was read to its end.
func (p *plain) give(w *wire) {
	w.since = time.Now()
	p.mu.Lock()
	if p.closed || len(p.idle) >= p.most {
		p.mu.Unlock()
		w.Close()
		return
	}
	p.idle = append(p.idle, w)
	if p.reaper == nil {
		p.reaper = time.AfterFunc(p.keep, p.reap)
	}
	p.mu.Unlock()
}

// reap closes the connections that were not used for too long, and looks again while there are others.
func (p *plain) reap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.idle) && time.Since(p.idle[n].since) >= p.keep {
		p.idle[n].Close()
		n++
	}
	p.idle = append(p.idle[:0], p.idle[n:]...)
	clear(p.idle[len(p.idle):cap(p.idle)])
	if len(p.idle) == 0 {
		p.reaper = nil
		return
	}
	p.reaper.Reset(max(p.keep-time.Since(p.idle[0].since), time.Millisecond))
}

// close closes the unused connections and every other one once its call has ended.
func (p *plain) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, w := range p.idle {
		w.Close()
	}
	p.idle = nil
	if p.reaper != nil {
		p.reaper.Stop()
		p.reaper = nil
	}
}
