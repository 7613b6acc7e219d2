package backend

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

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
	Trace    string      // traceparent; empty: none
	Heard    func(Rates) // told of the limits that an answer or a refusal names; nil: nobody
	Fresh    bool        // on a connection that was not used before
	Local    bool        // the request may not leave the machines you own: a backend outside refuses it
}

// Answer is an upstream's answer under way. It is used by one goroutine, which must call Close exactly once.
type Answer struct {
	Status int
	Header Header
	Lost   []string // what the backend's dialect has no place for, by its place in the client's request

	b      *Backend
	to     *spoken
	own    bool // in the client's own dialect
	call   *Call
	stream llm.Stream
	passed passed // in place of stream
	head   head
	body   io.Reader    // the head's, unpacked
	cause  func() error // why the call's context ended
	flight flight
	watch  watch
	sent   *sentBody
	done   bool   // the body was read to its end
	served string // the model that served, where a header says so; empty: the answer itself does
	first  time.Duration
	begun  time.Time
}

var (
	errFirst = errors.New("no first content within the limit")
	errIdle  = errors.New("silence beyond the idle limit")
	errTotal = errors.New("longer than the total limit")
)

// Call sends the request and returns the answer once its head is there and is a success. Errors are *llm.Error; their
// Sent says whether the upstream may have worked on it. ctx ends the call at any time. A local call of a backend outside,
// or through a proxy on another machine, is of kind None with the code boundary, and not a byte of it has left.
func (b *Backend) Call(ctx context.Context, c *Call) (*Answer, error) {
	if c.Local {
		ctx = localContext(ctx)
	}
	if err := b.inside(ctx); err != nil {
		return nil, err
	}
	stream, plain := b.Streams(c.Request, c.Model), b.noBase64.Load() || b.Target.Base64 == "float"
	a, err := b.call(ctx, c, stream)
	if c.Request.Op == llm.Count && llm.KindOf(err) == llm.Gone {
		b.noCount.Store(true)
	}
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
	if a.to = b.tongue(c.Request); a.to == nil {
		return nil, &llm.Error{Kind: llm.Invalid, Op: "backend.Call", Code: "unsupported_endpoint", Param: "model",
			Msg: "this model does not take " + c.Request.Op.String() + " requests of this API"}
	}
	a.own = a.to.Name() == c.Request.Dialect
	ctx, cancel := context.WithCancelCause(ctx)
	a.cause = func() error { return context.Cause(ctx) }
	o, err := a.outgoing(stream)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	limits := c.Limits
	if !stream {
		limits.FirstContent = limits.Answer
	}
	a.watch.start(limits, cancel)
	a.head, err = b.send(ctx, o, &a.flight)
	if err != nil {
		err = a.failure(err)
		a.Close()
		return nil, err
	}
	if err := a.open(stream); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// outgoing is one request; nothing of the client's headers goes up but what stands here.
type outgoing struct {
	to     *spoken
	pass   *passing // nil: the request line of op
	op     llm.Op
	query  string
	lines  []llm.Header // of the dialect
	stream bool
	id     string
	hops   string // Weirs passed before
	trace  string
	key    string // value of the header that carries it; empty: none
	fresh  bool
	body   *sentBody
}

// outgoing writes the request as the backend wants it.
func (a *Answer) outgoing(stream bool) (*outgoing, error) {
	b, c := a.b, a.call
	t := b.Target
	t.Model, t.Quoted, t.Stream, t.Sampling = c.Model, c.Quoted, stream, c.Sampling
	t.Progress = t.Progress && stream && !c.Request.Stream
	if b.noBase64.Load() {
		t.Base64 = "float"
	}
	var err error
	if a.sent, err = a.write(&t); err != nil {
		return nil, err
	}
	key, err := b.key()
	if err != nil {
		return nil, &llm.Error{Kind: llm.Denied, Op: "backend.Call", Msg: "Weir's key for the model's server cannot be read", Err: err}
	}
	return &outgoing{to: a.to, pass: a.to.passes(c.Request, b.Agent), op: c.Request.Op, query: a.to.query(c.Request), lines: a.to.lines(c.Request), stream: stream, id: c.Request.ID, hops: c.Request.Hops, trace: c.Trace, key: key, body: a.sent, fresh: c.Fresh}, nil
}

// write writes the body for the target: the client's bytes with what must change, or a translation of them.
func (a *Answer) write(t *llm.Target) (*sentBody, error) {
	r := a.call.Request
	if r.Form != nil {
		return newForm(r.Form, t.Model), nil
	}
	if a.own {
		edits, err := a.to.Edits(r, t)
		if e, ok := errors.AsType[*llm.Error](err); ok {
			return nil, e
		} else if err != nil {
			return nil, &llm.Error{Kind: llm.Internal, Op: "backend.Call", Msg: "the request could not be written for the model's server", Err: err}
		}
		return newBody(r, edits), nil
	}
	c, err := r.Speaks.Conversation(r)
	if err != nil {
		return nil, err
	}
	if notes := c.Mend(); r.Repair == nil {
		r.Repair = &llm.Repair{Notes: notes}
	}
	body, err := a.to.Compose(c, r, t)
	if err != nil {
		return nil, err
	}
	a.Lost = c.Lost
	return &sentBody{bytes: body}, nil
}

// open appends the request line and the headers that never change.
func (o *outgoing) open(dst []byte) []byte {
	if o.pass != nil {
		return o.pass.open(dst)
	}
	head := o.to.heads[o.op]
	if o.query == "" {
		return append(dst, head...)
	}
	end := bytes.Index(head, []byte(" HTTP/1.1\r\n"))
	dst = append(append(append(dst, head[:end]...), '?'), o.query...)
	return append(dst, head[end:]...)
}

func (o *outgoing) accept() string {
	switch {
	case o.pass != nil:
		return "*/*"
	case o.stream:
		return "text/event-stream"
	}
	return "application/json, text/event-stream"
}

func (b *Backend) hops(o *outgoing) string {
	if o.hops == "" {
		return b.Hop
	}
	return o.hops + ", " + b.Hop
}

func (b *Backend) keyHeader() string {
	switch {
	case b.Options.Header != "":
		return b.Options.Header
	case b.Dialect.Name() == "anthropic":
		return "X-Api-Key"
	}
	return "Authorization"
}

// key returns the value of the header that carries the key; empty when there is none.
func (b *Backend) key() (string, error) {
	if b.Key == nil {
		return "", nil
	}
	key, err := b.Key()
	if strings.ContainsFunc(key, unicode.IsControl) { // it would end the header, and begin another
		return "", errors.New("the key holds a line break or another control character")
	}
	if err != nil || !strings.EqualFold(b.keyHeader(), "Authorization") {
		return key, err
	}
	return "Bearer " + key, nil
}

// open judges the head of the answer.
func (a *Answer) open(stream bool) error {
	r := &a.head
	a.Status, a.Header, a.body = r.status, r.header, r.body
	if a.call.Heard != nil {
		if said, ok := ReadRates(r.header); ok {
			a.call.Heard(said)
		}
	}
	a.served = a.b.served(r.header)
	packed := a.inflate()
	if r.status < 200 || r.status > 299 {
		var body []byte
		if packed == nil {
			body, _ = io.ReadAll(io.LimitReader(a.body, maxFault))
		}
		return a.b.classify(r.status, r.header, body)
	}
	if packed != nil {
		return packed
	}
	if a.call.Request.Op.Passes() {
		return a.passable()
	}
	kind, _, _ := mime.ParseMediaType(r.header.Get("Content-Type"))
	if stream && (kind == "text/event-stream" || kind == "") {
		if r := a.call.Request; a.own {
			a.stream = a.to.Stream(r, a.call.Model)
		} else {
			a.stream = llm.Translated(a.to.Source(), r.Speaks.Writer(r, a.call.Model), r.Stream)
		}
		return nil
	}
	if kind != "application/json" && !strings.HasSuffix(kind, "+json") && kind != "" && kind != "text/plain" {
		return &llm.Error{Kind: llm.Refused, Op: "backend.Call", Upstream: r.status, Sent: true,
			Msg: "the model's server answered with " + clean(kind) + " in place of JSON; is something else listening there?"}
	}
	return nil
}

// IsStream reports whether the answer comes piece by piece, with Next; else Whole returns it.
func (a *Answer) IsStream() bool { return a.stream != nil }

// Seen tells what the stream has shown so far.
func (a *Answer) Seen() *llm.Seen {
	seen := a.stream.Seen()
	if a.served != "" {
		seen.Served = a.served
	}
	return seen
}

// First returns the time from the call to the first content, negative before it.
func (a *Answer) First() time.Duration { return a.first }

// Took returns the time since the call.
func (a *Answer) Took() time.Duration { return time.Since(a.begun) }

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
	late := a.watch.cause()
	if a.stream != nil && a.stream.Seen().Finished && (late != nil || a.cause() == nil) {
		return io.EOF // what was lost is the end mark: the client must not get a finish and then an error
	}
	if late != nil {
		return late
	}
	if cause := a.cause(); cause != nil {
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
	body, err := readAll(a.body, a.head.length)
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
	var out []byte
	var seen llm.Seen
	if a.own {
		out, seen, err = a.to.Whole(r, a.call.Model, body, encode)
	} else {
		out, seen, err = llm.TranslateWhole(a.to.Source(), r.Speaks.Writer(r, a.call.Model), body)
	}
	if err != nil {
		return nil, seen, a.fault(err)
	}
	if a.served != "" {
		seen.Served = a.served
	}
	if r.Stream {
		return nil, seen, &llm.Error{Kind: llm.Refused, Op: "backend.Whole", Upstream: a.Status, Sent: true,
			Msg: "the model's server answered in one piece although a stream was asked for"}
	}
	return out, seen, nil
}

// Close ends the call and frees its connection: for reuse where the answer was read to its end, else by closing it.
func (a *Answer) Close() {
	if a.head.body != nil {
		if a.stream != nil && a.stream.Seen().Done && !a.done {
			// The end mark came; the end of the body usually follows in the same packet.
			a.watch.drain()
			var rest [64]byte
			for i := 0; i < 16 && !a.done; i++ {
				_, err := a.body.Read(rest[:])
				a.done = err != nil
			}
		}
		a.head.body.Close()
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

// sentBody is the body as it goes up. Transport may read it after it has given up on a request, so it is recycled only
// once it is known to be written.
type sentBody struct {
	bytes   []byte
	form    io.Reader // in place of bytes: size of them, to be read once
	size    int64
	request *llm.Request // whose own bytes they are, nil when they are a changed copy
	pooled  *[]byte
	written atomic.Bool
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
