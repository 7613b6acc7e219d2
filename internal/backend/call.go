package backend

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/llm"
)

// Limits bound one call. Zero means no bound.
type Limits struct {
	FirstContent time.Duration // from the call to the first content, a known prefill included
	Idle         time.Duration // silence after that
	Total        time.Duration
	Answer       time.Duration // in place of FirstContent where the answer comes whole
}

// Call is one attempt at a request.
type Call struct {
	Request  *llm.Request
	Model    string // the id that the backend knows
	Quoted   []byte // the same as JSON
	Sampling []llm.Sampling
	Limits   Limits
	Trace    string // traceparent; empty: none
}

// Answer is an upstream's answer under way. It is used by one goroutine, which must call Close exactly once.
type Answer struct {
	Status int
	Header http.Header
	Served string // set by Whole; streams tell it in Seen

	b      *Backend
	call   *Call
	stream llm.Stream
	resp   *http.Response
	body   io.Reader
	watch  watch
	sent   *sentBody
	done   bool // the body was read to its end
	first  time.Duration
	begun  time.Time
}

var (
	errFirst = errors.New("no first content within the limit")
	errIdle  = errors.New("silence beyond the idle limit")
	errTotal = errors.New("longer than the total limit")
)

// Call sends the request and returns the answer once its head is there and is a success. Errors are *llm.Error; their
// Sent says whether the upstream may have worked on it. ctx ends the call at any time.
func (b *Backend) Call(ctx context.Context, c *Call) (*Answer, error) {
	stream, plain := b.Streams(c.Request, c.Model), b.noBase64.Load() || b.Target.Base64 == "float"
	a, err := b.call(ctx, c, stream)
	if err == nil || c.Request.Stream || llm.KindOf(err) != llm.Invalid {
		return a, err
	}
	// What Weir asked for beyond the client's request may be what was refused: remember it and ask plainly. What counts is
	// how this call was made: another one may have learnt it meanwhile.
	switch msg := llm.AsError(err).Msg; {
	case b.Stream == "auto" && stream && strings.Contains(msg, "stream"):
		b.noStream.Store(c.Model, true)
		return b.call(ctx, c, false)
	case c.Request.Op == llm.Embeddings && !plain && strings.Contains(msg, "base64"):
		b.noBase64.Store(true)
		return b.call(ctx, c, false)
	}
	return a, err
}

func (b *Backend) call(ctx context.Context, c *Call, stream bool) (*Answer, error) {
	a := &Answer{b: b, call: c, begun: time.Now(), first: -1}
	ctx, cancel := context.WithCancelCause(ctx)
	req, err := a.request(ctx, stream)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	limits := c.Limits
	if !stream {
		limits.FirstContent = limits.Answer
	}
	a.watch.start(limits, cancel)
	a.resp, err = b.transport.RoundTrip(req)
	if err != nil {
		err = a.failure(ctx, err)
		a.Close()
		return nil, err
	}
	if err := a.open(stream); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// request builds the upstream request; nothing of the client's headers goes up but what stands here.
func (a *Answer) request(ctx context.Context, stream bool) (*http.Request, error) {
	b, c := a.b, a.call
	t := b.Target
	t.Model, t.Quoted, t.Stream, t.Sampling = c.Model, c.Quoted, stream, c.Sampling
	t.Progress = t.Progress && stream && !c.Request.Stream
	if b.noBase64.Load() {
		t.Base64 = "float"
	}
	edits, err := b.Dialect.Edits(c.Request, &t)
	if err != nil {
		return nil, &llm.Error{Kind: llm.Internal, Op: "backend.Call", Msg: "the request could not be written for the model's server", Err: err}
	}
	a.sent = newBody(c.Request, edits)
	h := make(http.Header, 8)
	h["Content-Type"], h["Accept"] = jsonType, anyType
	if stream {
		h["Accept"] = streamType
	}
	h["User-Agent"], h["X-Weir-Hop"] = b.agent, b.hop
	values := make([]string, 0, 3) // one array for the headers of this call alone
	set := func(name, value string) {
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	}
	if c.Request.Hops != "" {
		set("X-Weir-Hop", c.Request.Hops+", "+b.Hop)
	}
	if c.Request.ID != "" {
		set("X-Request-Id", c.Request.ID)
	}
	if c.Trace != "" {
		set("Traceparent", c.Trace)
	}
	if err := b.authorize(h); err != nil {
		return nil, err
	}
	req := b.requests[c.Request.Op].WithContext(httptrace.WithClientTrace(ctx, a.sent.trace()))
	req.Header = h
	// NopCloser over a bytes.Reader is what Transport knows as being in memory: head and body leave in one write.
	// GetBody stays nil: with it a POST could be sent twice behind our back.
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(a.sent.bytes)), int64(len(a.sent.bytes))
	return req, nil
}

var (
	jsonType   = []string{"application/json"}
	anyType    = []string{"application/json, text/event-stream"}
	streamType = []string{"text/event-stream"}
)

func (b *Backend) authorize(h http.Header) error {
	if b.Key == nil {
		return nil
	}
	key, err := b.Key()
	if err != nil {
		return &llm.Error{Kind: llm.Denied, Op: "backend.Call", Msg: "Weir's key for the model's server cannot be read", Err: err}
	}
	if b.Options.Header == "" || strings.EqualFold(b.Options.Header, "Authorization") {
		last := b.bearer.Load()
		if last == nil || last.key != key {
			last = &bearer{key, []string{"Bearer " + key}}
			b.bearer.Store(last)
		}
		h["Authorization"] = last.header
		return nil
	}
	h.Set(b.Options.Header, key)
	return nil
}

// open judges the head of the answer.
func (a *Answer) open(stream bool) error {
	r := a.resp
	a.Status, a.Header, a.body = r.StatusCode, r.Header, r.Body
	packed := a.inflate()
	if r.StatusCode < 200 || r.StatusCode > 299 {
		var body []byte
		if packed == nil {
			body, _ = io.ReadAll(io.LimitReader(a.body, maxFault))
		}
		return a.b.classify(r.StatusCode, r.Header, body)
	}
	if packed != nil {
		return packed
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if stream && (kind == "text/event-stream" || kind == "") {
		a.stream = a.b.Dialect.Stream(a.call.Request, a.call.Model)
		return nil
	}
	if kind != "application/json" && !strings.HasSuffix(kind, "+json") && kind != "" && kind != "text/plain" {
		return &llm.Error{Kind: llm.Refused, Op: "backend.Call", Upstream: r.StatusCode, Sent: true,
			Msg: "the model's server answered with " + clean(kind) + " in place of JSON; is something else listening there?"}
	}
	return nil
}

// IsStream reports whether the answer comes piece by piece, with Next; else Whole returns it.
func (a *Answer) IsStream() bool { return a.stream != nil }

// Seen tells what the stream has shown so far.
func (a *Answer) Seen() *llm.Seen { return a.stream.Seen() }

// First returns the time from the call to the first content, negative before it.
func (a *Answer) First() time.Duration { return a.first }

// Next blocks for the next read and returns what may go to the client now; it may be nothing. It is valid until the
// next call. io.EOF is the proper end: Finish has the last bytes. Other errors are *llm.Error; bytes may come with them.
func (a *Answer) Next() ([]byte, error) {
	seen := a.stream.Seen()
	if seen.Done {
		return nil, io.EOF
	}
	space := a.stream.Space()
	if space == nil {
		return nil, &llm.Error{Kind: llm.Stalled, Op: "backend.Next", Sent: true, Code: "incomplete_stream",
			Msg: "the model's server sent one event larger than Weir takes (4 MiB)"}
	}
	a.watch.wait()
	n, err := a.body.Read(space)
	a.watch.woke()
	if n > 0 {
		out, ferr := a.stream.Feed(n)
		if seen.Content && a.first < 0 {
			a.first = time.Since(a.begun)
			a.watch.content()
		}
		if seen.Progress {
			seen.Progress = false
			a.watch.progress()
		}
		if ferr != nil {
			return out, a.fault(ferr)
		}
		if err == io.EOF {
			a.done = true
			return out, io.EOF
		}
		return out, a.broken(err)
	}
	if err == io.EOF {
		a.done = true
		return nil, io.EOF
	}
	return nil, a.broken(err)
}

// Finish returns the last bytes for the client after io.EOF, or why the answer is not whole.
func (a *Answer) Finish() ([]byte, error) {
	out, err := a.stream.End()
	if err != nil {
		return out, a.fault(err)
	}
	return out, nil
}

// fault gives an error object within a stream its kind.
func (a *Answer) fault(err error) error {
	if f, ok := errors.AsType[*llm.Fault](err); ok {
		e := a.b.classifyFault(f.Data)
		e.Sent = true
		return e
	}
	return err
}

// broken gives a failed read its kind.
func (a *Answer) broken(err error) error {
	if err == nil {
		return nil
	}
	if e := a.watch.cause(); e != nil {
		return e
	}
	if cause := context.Cause(a.resp.Request.Context()); cause != nil {
		return &llm.Error{Kind: llm.Canceled, Op: "backend.Next", Msg: "the client left", Sent: true, Err: cause}
	}
	e := &llm.Error{Kind: llm.Stalled, Op: "backend.Next", Code: "incomplete_stream", Sent: true, Err: err,
		Msg: "the answer broke off: the connection to the model's server was lost"}
	if a.stream != nil && !a.stream.Seen().Content {
		e.Kind, e.Code = llm.Refused, "" // a reset before content is no answer
	}
	return e
}

// Whole reads an answer that is not a stream, to its end, and returns it as the client gets it.
func (a *Answer) Whole() ([]byte, llm.Seen, error) {
	body, err := readAll(a.body, a.resp.ContentLength)
	if err != nil {
		if errors.Is(err, errTooLarge) {
			return nil, llm.Seen{}, &llm.Error{Kind: llm.Refused, Op: "backend.Whole", Sent: true, Err: err,
				Msg: "the model's server sent an answer larger than Weir takes (64 MiB)"}
		}
		e := llm.AsError(a.broken(err))
		if e.Kind == llm.Stalled {
			e.Kind = llm.Refused // nothing has left: it is the same as no answer
		}
		return nil, llm.Seen{}, e
	}
	a.done = true
	a.first = time.Since(a.begun)
	r := a.call.Request
	encode := a.b.noBase64.Load() || a.b.Target.Base64 == "float"
	out, seen, err := a.b.Dialect.Whole(r, a.call.Model, body, encode)
	if err != nil {
		return nil, seen, a.fault(err)
	}
	if r.Stream {
		return nil, seen, &llm.Error{Kind: llm.Refused, Op: "backend.Whole", Upstream: a.Status, Sent: true,
			Msg: "the model's server answered in one piece although a stream was asked for"}
	}
	return out, seen, nil
}

// Close ends the call and frees its connection: for reuse where the answer was read to its end, else by closing it.
func (a *Answer) Close() {
	if a.resp != nil {
		if a.stream != nil && a.stream.Seen().Done && !a.done {
			// The end mark came; the end of the body usually follows in the same packet.
			a.watch.drain()
			var rest [64]byte
			for i := 0; i < 16 && !a.done; i++ {
				_, err := a.body.Read(rest[:])
				a.done = err != nil
			}
		}
		a.resp.Body.Close()
	}
	a.watch.stop()
	if a.sent != nil {
		a.sent.release()
	}
}

// Free gives the memory of the request's bytes back before the answer's end; no other attempt can follow.
func (a *Answer) Free() {
	a.sent.release()
	a.call.Request.Release()
}

// sentBody is the body as it goes up. Transport may read it after RoundTrip has returned, so it is recycled only once
// it is known to be written.
type sentBody struct {
	bytes   []byte
	request *llm.Request // whose own bytes they are, nil when they are a changed copy
	pooled  *[]byte
	conn    httptrace.GotConnInfo // which connection, and whether it was used before
	got     bool
	begun   atomic.Bool // headers were written: the upstream may have seen it
	written atomic.Bool
	replied atomic.Bool
}

var bodies = sync.Pool{New: func() any { return new([]byte) }}

const maxPooled = 1 << 20

func newBody(r *llm.Request, e *llm.Edits) *sentBody {
	if e.Empty() {
		return &sentBody{bytes: r.Body, request: r}
	}
	s := &sentBody{pooled: bodies.Get().(*[]byte)}
	s.bytes = e.Apply((*s.pooled)[:0], r)
	return s
}

func (s *sentBody) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn:              func(i httptrace.GotConnInfo) { s.conn, s.got = i, true },
		WroteHeaders:         func() { s.begun.Store(true) },
		WroteRequest:         func(i httptrace.WroteRequestInfo) { s.written.Store(i.Err == nil) },
		GotFirstResponseByte: func() { s.replied.Store(true) },
	}
}

// release recycles the buffer if the upstream has all of it. A second call does nothing.
func (s *sentBody) release() {
	switch written := s.written.Load(); {
	case s.bytes == nil:
	case s.request != nil && !written:
		s.request.Reading()
	case s.pooled != nil && written && cap(s.bytes) <= maxPooled:
		*s.pooled = s.bytes[:0]
		bodies.Put(s.pooled)
	}
	s.bytes, s.pooled, s.request = nil, nil, nil
}
