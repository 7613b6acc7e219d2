package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"
)

// maxMockBody bounds what the mock reads of one request.
const maxMockBody = 8 << 20

// mock answers like a decent OpenAI server; the model name picks what it does.
// It is safe for concurrent use.
type mock struct{ bodies sync.Pool }

func newMock() *mock {
	return &mock{bodies: sync.Pool{New: func() any { return bytes.NewBuffer(make([]byte, 0, 160<<10)) }}}
}

func runMock(ctx context.Context, args []string, _, stderr io.Writer) error {
	fs := flag.NewFlagSet("mock", flag.ContinueOnError)
	listen := fs.String("listen", "127.0.0.1:9000", "loopback address to listen on")
	if err := parseFlags(fs, args, stderr); err != nil {
		return err
	}
	debug.SetGCPercent(400) // the mock's own collections are nobody's measurement
	return serve(ctx, *listen, newMock().handler())
}

// serve listens on a loopback address until ctx ends.
func serve(ctx context.Context, addr string, h http.Handler) error {
	if err := onLoopback(addr); err != nil {
		return usageError{err}
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: h}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// onLoopback refuses every address that is not on this machine's loopback.
func onLoopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("address %q: %w", addr, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("address %q is not a loopback IP address; the benchmark talks to nothing else", addr)
	}
	return nil
}

func (m *mock) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", m.chat)
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","created":1780000000,"owned_by":"bench"}]}`, modelPlain)
	})
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"status":"ok"}`)
	})
	return mux
}

func (m *mock) chat(w http.ResponseWriter, r *http.Request) {
	a, err := m.read(r)
	if err != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"error":{"message":%q,"type":"invalid_request_error","param":null,"code":null}}`, err)
		return
	}
	if a.stream {
		stream(w, r, a)
		return
	}
	out := answer(a.model)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(out)))
	_, _ = w.Write(out)
}

// asked is what the mock looks at in a request.
type asked struct {
	model         string
	stream, usage bool
}

// read keeps the body's buffer no longer than it must: a thousand open streams
// would hold a thousand of them.
func (m *mock) read(r *http.Request) (asked, error) {
	buf := m.bodies.Get().(*bytes.Buffer)
	defer m.bodies.Put(buf)
	buf.Reset()
	if _, err := buf.ReadFrom(io.LimitReader(r.Body, maxMockBody)); err != nil {
		return asked{}, err
	}
	body := buf.Bytes()
	model, ok := modelOf(body)
	if !ok {
		return asked{}, errors.New("you must provide a model")
	}
	return asked{model: model, stream: isTrue(body, "stream"), usage: isTrue(body, "include_usage")}, nil
}

// stream writes one flush per event, as model servers do.
func stream(w http.ResponseWriter, r *http.Request, a asked) {
	s, f := parseModel(a.model), newFrames(a.model)
	var tick <-chan time.Time
	if s.pause > 0 {
		t := time.NewTicker(s.pause)
		defer t.Stop()
		tick = t.C
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	rc := http.NewResponseController(w)
	send := func(b []byte) bool {
		_, err := w.Write(b)
		return err == nil && rc.Flush() == nil
	}
	out := f.appendRole(make([]byte, 0, 1<<10))
	if !send(out) {
		return
	}
	for i := range s.chunks {
		if tick != nil {
			select {
			case <-tick:
			case <-r.Context().Done():
				return
			}
		}
		if out = f.appendContent(out[:0], i); !send(out) {
			return
		}
	}
	send(f.appendEnd(out[:0], s.chunks, a.usage))
}

// member returns what follows the colon of the first member with this name, or
// nil. It needs no JSON decoder, which would make the mock the bottleneck for
// bodies of 131 KB: inside a string the quotes would be escaped, so the pattern
// can only be a member's name.
func member(body []byte, name string) []byte {
	quoted := `"` + name + `"`
	for {
		i := bytes.Index(body, []byte(quoted))
		if i < 0 {
			return nil
		}
		body = bytes.TrimLeft(body[i+len(quoted):], " \t\r\n")
		if len(body) > 0 && body[0] == ':' {
			return bytes.TrimLeft(body[1:], " \t\r\n")
		}
	}
}

func modelOf(body []byte) (string, bool) {
	v, ok := bytes.CutPrefix(member(body, "model"), []byte(`"`))
	if !ok {
		return "", false
	}
	i := bytes.IndexByte(v, '"')
	if i < 0 {
		return "", false
	}
	return string(v[:i]), true
}

func isTrue(body []byte, name string) bool {
	return bytes.HasPrefix(member(body, name), []byte("true"))
}
