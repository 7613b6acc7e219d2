package server

import (
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"weir/internal/llm"
)

// infer returns the endpoint of an operation: read, decode, hand over.
func infer(op llm.Op) func(*Server, *exchange) error {
	return func(s *Server, x *exchange) error {
		x.op = op
		x.rec.Op = op.String()
		body, err := x.read()
		if err != nil {
			return err
		}
		req, err := x.dialect.Decode(op, body, s.MaxDepth)
		if err != nil {
			recycle(body)
			return err
		}
		req.Recycles(recycle)
		if req, err = x.bound(req); err != nil {
			return err
		}
		if op.Passes() { // its answer is of its own kind: nothing may be sent before it
			req.Path, req.Stream = x.r.URL.Path, false
		}
		if req, err = x.recall(req); err != nil {
			return err
		}
		return x.hand(req)
	}
}

// hand gives a request that was read to the relay.
func (x *exchange) hand(req *llm.Request) error {
	req.ID = x.id
	req.Hops = strings.Join(x.r.Header["X-Weir-Hop"], ", ")
	defer req.Release()
	x.req = req
	x.up(req)
	x.shape(req)
	if err := x.attribute(req); err != nil {
		return err
	}
	if err := x.reserve(req); err != nil {
		return err
	}
	return x.Relay.Serve(x.r.Context(), req, &x.caller, x.rec, &x.reply)
}

// shape notes sizes in the record, never texts.
func (x *exchange) shape(r *llm.Request) {
	x.rec.Alias = short(r.Model)
	s := r.Shape
	x.rec.Shape.Bytes, x.rec.Shape.TokensEst, x.rec.Shape.Messages = s.Bytes, s.TokensEst, s.Messages
	x.rec.Shape.Tools, x.rec.Shape.Images, x.rec.Shape.Stream, x.rec.Shape.MaxTokens = s.Tools, s.Images, s.Stream, s.MaxTokens
}

// bodies holds the memory of request bodies. Large ones are left to the garbage collector.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

const maxPooled = 1 << 20

func recycle(b []byte) {
	if cap(b) <= maxPooled {
		b = b[:0]
		bodies.Put(&b)
	}
}

// read takes the whole body into one buffer, after checking all that the headers tell of it.
func (x *exchange) read() ([]byte, error) {
	if !isJSON(x.r.Header.Get("Content-Type")) {
		return nil, x.wrongType("application/json")
	}
	if err := x.admit(); err != nil {
		return nil, err
	}
	return x.fill()
}

func isJSON(contentType string) bool {
	if contentType == "application/json" {
		return true
	}
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}

func (x *exchange) tooLarge() error {
	e := llm.Errorf(llm.Invalid, "the body is larger than the %d bytes that this Weir takes (server.max_body in its configuration)", x.MaxBody)
	e.Status, e.Code = http.StatusRequestEntityTooLarge, "request_too_large"
	x.w.Header().Set("Connection", "close") // the rest of the body is not read
	return e
}

func (x *exchange) fill() ([]byte, error) {
	held := bodies.Get().(*[]byte)
	buf := (*held)[:0]
	if want := int(min(x.r.ContentLength, x.MaxBody)) + 1; cap(buf) < want {
		buf = make([]byte, 0, max(want, 512))
	}
	if cap(buf) == 0 {
		buf = make([]byte, 0, 4096)
	}
	var due time.Time
	for {
		n, err := x.pull(buf[len(buf):cap(buf)], &due)
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > x.MaxBody:
			return nil, x.tooLarge()
		case err == io.EOF:
			_ = x.rc.SetReadDeadline(time.Time{})
			x.drained = true
			return buf, nil
		case err != nil:
			return nil, x.unread(err)
		case len(buf) == cap(buf):
			buf = append(buf, 0)[:len(buf)]
		}
	}
}

// unread says why a body could not be read.
func (x *exchange) unread(err error) error {
	if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() {
		e := llm.Errorf(llm.Invalid, "no byte of the body came within %v", x.BodyTimeout)
		e.Status, e.Code = http.StatusRequestTimeout, "body_timeout"
		x.w.Header().Set("Connection", "close")
		return e
	}
	if x.r.Context().Err() != nil || errors.Is(err, io.ErrUnexpectedEOF) {
		return &llm.Error{Kind: llm.Canceled, Msg: "the client left while sending the body", Err: err}
	}
	e := llm.Errorf(llm.Invalid, "the body could not be read: its framing is broken")
	e.Err = err
	x.w.Header().Set("Connection", "close")
	return e
}

// hop refuses a request that came round: a backend of this Weir is, at the end, this Weir.
func (x *exchange) hop(hops string) error {
	const most = 8
	list := strings.Split(hops, ",")
	for _, h := range list {
		if strings.TrimSpace(h) == x.Hop {
			e := llm.Errorf(llm.Invalid, "this request has passed this Weir before: one of its backends leads back to it")
			e.Status, e.Code = http.StatusLoopDetected, "loop"
			return e
		}
	}
	if len(list) >= most {
		e := llm.Errorf(llm.Invalid, "this request has passed %d Weirs; it goes no further", len(list))
		e.Status, e.Code = http.StatusLoopDetected, "loop"
		return e
	}
	return nil
}
