package backend

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/llm"
	"weir/internal/llm/anthropic"
	"weir/internal/llm/openai"
)

// goesUp are all headers that an upstream ever sees (S20, S46).
var goesUp = []string{
	"User-Agent", "Content-Type", "Content-Length", "Accept", "X-Weir-Hop", "X-Request-Id", "Traceparent", "Authorization", "X-Api-Key",
	"Anthropic-Version", "Anthropic-Beta",
}

// overheard is a connection that keeps what is written to it.
type overheard struct {
	net.Conn
	bytes.Buffer
}

func (h *overheard) Write(p []byte) (int, error)        { return h.Buffer.Write(p) }
func (h *overheard) Read([]byte) (int, error)           { return 0, net.ErrClosed }
func (h *overheard) Close() error                       { return nil }
func (h *overheard) SetDeadline(time.Time) error        { return nil }
func (h *overheard) SetReadDeadline(time.Time) error    { return nil }
func (h *overheard) LocalAddr() net.Addr                { return nil }
func (h *overheard) RemoteAddr() net.Addr               { return nil }
func (h *overheard) SetWriteDeadline(t time.Time) error { return nil }

// FuzzSentHead gives a call whatever a client's headers could hold: the upstream reads one request, with headers of the
// list alone and the body as it was.
func FuzzSentHead(f *testing.F) {
	f.Add("a, b", "req_1", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "2023-06-01", "x-2025,y", "beta=true", true)
	f.Add("a\r\nX-Evil: 1", "\r\n\r\nGET / HTTP/1.1", "\n", "v\r\nHost: evil", "b\x00", "beta=true", false)
	f.Add("é", " ", "\t", ":", "", "", true)
	f.Fuzz(func(t *testing.T, hops, id, trace, version, beta, query string, native bool) {
		var d Dialect = openai.Dialect{}
		if native {
			d = anthropic.Dialect{}
		}
		b, err := New(Options{Name: "b", URL: "http://u.example", Dialect: d, Key: func() (string, error) { return "k-123", nil }, Connect: time.Second, IdleConn: time.Second, Agent: "weir/test", Hop: "me"})
		if err != nil {
			t.Fatal(err)
		}
		if query != "beta=true" {
			query = "" // the server lets no other through
		}
		r := &llm.Request{ID: id, Op: llm.Chat, Dialect: d.Name(), Hops: hops, Query: query, Body: []byte(`{"model":"m"}`),
			Up: []llm.Header{{Name: "anthropic-version", Value: version}, {Name: "anthropic-beta", Value: beta}}}
		to := b.tongue(r)
		o := &outgoing{to: to, op: r.Op, id: r.ID, hops: r.Hops, trace: trace, key: "k-123", query: to.query(r), lines: to.lines(r), body: &sentBody{bytes: r.Body}}
		conn := new(overheard)
		if err := b.plain.write(&wire{Conn: conn}, o); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(&conn.Buffer)
		got, err := http.ReadRequest(in)
		if err != nil {
			if strings.ContainsFunc(hops+id+trace+version+beta, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return // net/http refuses such values at the door already
			}
			t.Fatalf("the upstream cannot read it: %v", err)
		}
		for name, values := range got.Header {
			if !slices.Contains(goesUp, name) || len(values) != 1 {
				t.Errorf("%s: %q goes up", name, values)
			}
		}
		body := make([]byte, len(r.Body)+1)
		if n, _ := got.Body.Read(body); string(body[:n]) != string(r.Body) || in.Buffered() > 0 || got.Host != "u.example" || got.URL.Path != d.Path(llm.Chat) {
			t.Errorf("%s %s at %s with %q, and %d bytes behind it", got.Method, got.URL, got.Host, body[:n], in.Buffered())
		}
	})
}
