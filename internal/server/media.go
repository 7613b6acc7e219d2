package server

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/internal/llm"
)

// media returns the endpoint of an operation whose body is a multipart form: receive, find the model, hand over.
func media(op llm.Op) func(*Server, *exchange) error {
	return func(_ *Server, x *exchange) error {
		x.op = op
		x.rec.Op = op.String()
		up, f, err := x.receive()
		if up != nil {
			defer up.Close()
		}
		if err != nil {
			return err
		}
		if most := x.Bounds.Choices; most > 0 && f.n > most {
			return above(countPart, most, "choices")
		}
		return x.hand(&llm.Request{
			Op: op, Dialect: x.dialect.Name(), Path: x.r.URL.Path, Model: f.model, Choices: max(f.n, 1), Shape: llm.Shape{Bytes: up.size},
			Form: &llm.Form{From: up, Size: up.size, Type: f.kind, Model: f.where},
		})
	}
}

// received is a form that has come in whole.
type received struct {
	*form
	kind string
}

// receive reads a form to its end into an upload, which the caller must close even beside an error.
func (x *exchange) receive() (*upload, *received, error) {
	boundary, kind, isForm, err := boundaryOf(x.r.Header.Get("Content-Type"))
	if !isForm {
		err = x.wrongType("multipart/form-data")
	}
	if err == nil {
		err = x.admit()
	}
	if err != nil {
		return nil, nil, err
	}
	up, err := newUpload(x.Uploads, x.r.ContentLength)
	if err != nil {
		return up, nil, err
	}
	f := &received{newForm(boundary), kind}
	return up, f, x.gather(up, f.form)
}

// windows is the memory through which forms are read.
var windows = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// gather reads the body through one window: each byte is kept, and looked at until it is not needed any more.
func (x *exchange) gather(up *upload, f *form) error {
	window := windows.Get().(*[64 << 10]byte)
	defer windows.Put(window)
	held := 0
	var due time.Time
	for {
		n, err := x.pull(window[held:], &due)
		if int64(up.size+n) > x.MaxBody {
			return x.tooLarge()
		}
		if _, err := up.Write(window[held : held+n]); err != nil {
			return err
		}
		held += n
		used, ferr := f.feed(window[:held])
		if ferr != nil {
			return ferr
		}
		held = copy(window[:], window[used:held])
		switch {
		case err == io.EOF:
			_ = x.rc.SetReadDeadline(time.Time{})
			x.drained = true
			return f.end()
		case err != nil:
			return x.unread(err)
		}
	}
}

// pull reads more of the body, in the time in which some must come.
func (x *exchange) pull(p []byte, due *time.Time) (int, error) {
	if now := time.Now(); x.BodyTimeout > 0 && due.Sub(now) < x.BodyTimeout/2 {
		*due = now.Add(x.BodyTimeout)
		_ = x.rc.SetReadDeadline(*due)
	}
	return x.r.Body.Read(p)
}

// wrongType refuses a body of another kind.
func (x *exchange) wrongType(want string) error {
	e := llm.Errorf(llm.Invalid, "send the body with Content-Type: %s", want)
	e.Status, e.Code = http.StatusUnsupportedMediaType, "unsupported_content_type"
	return e
}

// admit checks what the headers tell of a body, whatever its kind.
func (x *exchange) admit() error {
	h := x.r.Header
	if enc := h.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		e := llm.Errorf(llm.Invalid, "request bodies must not be compressed (Content-Encoding: %s)", short(enc))
		e.Status, e.Code = http.StatusUnsupportedMediaType, "unsupported_encoding"
		return e
	}
	if hops := h.Values("X-Weir-Hop"); len(hops) > 0 {
		if err := x.hop(strings.Join(hops, ",")); err != nil {
			return err
		}
	}
	if x.r.ContentLength > x.MaxBody {
		return x.tooLarge()
	}
	return nil
}

// Pass begins an answer of any kind, whose bytes follow with Send as they are. A failure behind it cannot be told in any
// other way than by cutting the connection.
func (p *reply) Pass(kind string, length int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.w.Header()
	h["Content-Type"] = []string{kind}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	if length >= 0 {
		h["Content-Length"] = []string{strconv.FormatInt(length, 10)}
	}
	if strings.HasPrefix(kind, "text/event-stream") {
		h["Cache-Control"], h["X-Accel-Buffering"] = noCache, noBuffering
	}
	p.w.WriteHeader(http.StatusOK)
	p.begun, p.ended = true, true
}
