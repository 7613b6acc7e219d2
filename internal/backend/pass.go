package backend

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/url"
	"strings"
	"time"

	"weir/internal/llm"
)

// unread finds a file of the client's that a server could not read and called that its own fault, some even with a 200.
var unread = lazily(`(?i)(failed|unable|not able|could not|cannot|error) (to )?(read|load|decode|open|decoding|reading|loading|opening) (the )?(wav|audio|image|mask|input file|media|uploaded)|(invalid|unsupported|unrecognized|unknown) (audio|image|media|file)( file)? ?(format|type|data|codec)`)

// passing is how a call goes up whose operation has several paths and kinds of body.
type passing struct {
	url   *url.URL
	kind  string // Content-Type
	agent string
}

// passer returns the dialect in which a request that passes is sent, which is the client's own; nil: the backend does not
// speak it.
func (b *Backend) passer(r *llm.Request) *spoken {
	for i := range b.spoken {
		if s := &b.spoken[i]; s.Name() == r.Dialect && s.urls[llm.Chat] != nil {
			return s
		}
	}
	return nil
}

// passes says how r goes up, nil for an operation with a path of its own.
func (s *spoken) passes(r *llm.Request, agent string) *passing {
	if !r.Op.Passes() {
		return nil
	}
	u := s.base
	u.Path += r.Path
	p := &passing{url: &u, kind: "application/json", agent: agent}
	if r.Form != nil {
		p.kind = r.Form.Type
	}
	return p
}

// open appends the request line and the headers that stand in every call.
func (p *passing) open(dst []byte) []byte {
	return fmt.Appendf(dst, "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nContent-Type: %s\r\n",
		p.url.RequestURI(), p.url.Host, p.agent, p.kind)
}

// at returns where a call goes, and the kind of its body.
func (o *outgoing) at() (*url.URL, string) {
	if o.pass != nil {
		return o.pass.url, o.pass.kind
	}
	return o.to.urls[o.op], "application/json"
}

// newForm returns the body of a multipart call: the client's, with the model's id.
func newForm(f *llm.Form, model string) *sentBody {
	s := &sentBody{}
	s.form, s.size = f.With(model)
	return s
}

// length returns how many bytes are sent.
func (s *sentBody) length() int64 {
	if s.form != nil {
		return s.size
	}
	return int64(len(s.bytes))
}

// reader returns what is sent. A form can be read once.
func (s *sentBody) reader() io.Reader {
	if s.form != nil {
		return s.form
	}
	return bytes.NewReader(s.bytes)
}

// ours reports that a body could not be read on this side. The upstream waits for the rest: nothing will come of it.
func ours(err error) bool {
	_, ok := errors.AsType[*llm.Error](err)
	return ok
}

// maxLook is how large a JSON answer may be that is looked at before it goes on.
const maxLook = 1 << 20

// passable checks what the head of an answer that passes tells of it.
func (a *Answer) passable() error {
	kind, params, err := mime.ParseMediaType(a.head.header.Get("Content-Type"))
	switch {
	case kind == "text/html" || kind == "application/xhtml+xml":
		return &llm.Error{Kind: llm.Refused, Op: "backend.Call", Upstream: a.Status, Sent: true,
			Msg: "the model's server answered with " + kind + "; is something else listening there?"}
	case err != nil:
		params = nil
	}
	a.passed.length = a.head.length
	if a.passed.kind = mime.FormatMediaType(kind, params); !strings.Contains(a.passed.kind, "/") {
		a.passed.kind = "application/octet-stream"
	}
	return nil
}

// passed is the state of an answer that passes.
type passed struct {
	kind   string
	length int64 // as it goes on; negative: unknown
	buf    []byte
}

// Type returns the Content-Type of an answer that passes.
func (a *Answer) Type() string { return a.passed.kind }

// Length returns the length of an answer that passes, negative where it is not known.
func (a *Answer) Length() int64 { return a.passed.length }

// Ended reports whether an answer that passes was read to its end.
func (a *Answer) Ended() bool { return a.done }

// Begin returns the first bytes of an answer that passes, once they may go to the client: those of a JSON answer that is
// not large when it is whole and no error, and with the usage that it names. Errors are *llm.Error: none of the answer
// has left, so another step may follow.
func (a *Answer) Begin() ([]byte, llm.Usage, error) {
	p, usage := &a.passed, llm.NoUsage
	look := strings.HasPrefix(p.kind, "application/json")
	p.buf = make([]byte, 32<<10)
	n := 0
	for {
		k, err := a.take(p.buf[n:])
		n += k
		switch {
		case err == io.EOF:
			a.done = true
		case err != nil:
			return nil, usage, refusedYet(a.broken(err))
		}
		if a.done || n > 0 && !look || n >= maxLook {
			break
		}
		if n == len(p.buf) {
			p.buf = append(p.buf, make([]byte, n)...)
		}
	}
	if !a.done {
		return p.buf[:n], usage, nil
	}
	p.length = int64(n)
	if n == 0 && !strings.HasPrefix(p.kind, "text/") { // what was heard may be silence
		return nil, usage, &llm.Error{Kind: llm.Refused, Op: "backend.Begin", Upstream: a.Status, Sent: true,
			Msg: "the model's server answered with an empty body"}
	}
	if look {
		var err error
		if usage, err = a.look(p.buf[:n]); err != nil {
			return nil, usage, err
		}
	}
	return p.buf[:n], usage, nil
}

// More returns the next bytes of an answer that passes, valid until the next call; io.EOF is the end.
func (a *Answer) More() ([]byte, error) {
	n, err := a.take(a.passed.buf)
	switch {
	case err == io.EOF:
		a.done = true
	case err != nil:
		err = a.broken(err)
	}
	return a.passed.buf[:n], err
}

// take reads once, and notes the time for the limits.
func (a *Answer) take(p []byte) (int, error) {
	a.watch.wait()
	n, err := a.body.Read(p)
	a.watch.woke()
	if n > 0 && a.first < 0 {
		a.first = time.Since(a.begun)
		a.watch.content()
	}
	return n, err
}

// refusedYet makes an answer that broke off, but of which nothing has left, the same as none.
func refusedYet(err error) error {
	e := llm.AsError(err)
	if e.Kind == llm.Stalled && e.Code == "incomplete_stream" {
		e.Kind, e.Code = llm.Refused, ""
	}
	return e
}

// look reads a JSON answer: an error in it, or its usage.
func (a *Answer) look(body []byte) (llm.Usage, error) {
	usage := llm.NoUsage
	s := llm.NewScanner(body, 64)
	if s.Peek() != '{' {
		return usage, nil
	}
	fault := false
	err := s.Members(func(name []byte) error {
		at, err := s.Value()
		if err != nil {
			return err
		}
		switch v := at.Of(body); string(name) {
		case "error":
			fault = fault || v[0] == '{' || v[0] == '"'
		case "usage":
			usage = usageOf(v)
		}
		return nil
	})
	switch {
	case err != nil:
		return usage, &llm.Error{Kind: llm.Refused, Op: "backend.Begin", Upstream: a.Status, Sent: true, Err: err,
			Msg: "the model's server answered with something that is not valid JSON"}
	case fault:
		e := a.b.classifyFault(body)
		e.Sent = true
		return usage, e
	}
	return usage, nil
}

// usageOf reads the tokens of a usage, under either of their names. Seconds are no tokens.
func usageOf(v []byte) llm.Usage {
	usage := llm.NoUsage
	s := llm.NewScanner(v, 64)
	if s.Peek() != '{' {
		return usage
	}
	_ = s.Members(func(name []byte) error { // walked before: it cannot fail
		at, err := s.Value()
		if n, ok := llm.Int(at.Of(v)); ok && n >= 0 {
			switch string(name) {
			case "input_tokens", "prompt_tokens":
				usage.In = n
			case "output_tokens", "completion_tokens":
				usage.Out = n
			}
		}
		return err
	})
	return usage
}
