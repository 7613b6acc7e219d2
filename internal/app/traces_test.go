package app

import (
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"weir/internal/config"
	"weir/internal/sim"
)

// collector is a fake OTLP/HTTP collector.
type collector struct {
	*httptest.Server
	mu    sync.Mutex // guards spans
	spans []*tracepb.Span
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var data tracepb.TracesData // the same bytes on the wire as an export request
		if err := proto.Unmarshal(body, &data); err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("an export of %q: %v", r.Header.Get("Content-Type"), err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, rs := range data.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				c.spans = append(c.spans, ss.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// of waits for n spans of a trace.
func (c *collector) of(trace string, n int) (list []*tracepb.Span) {
	for range 300 {
		list = nil
		c.mu.Lock()
		for _, s := range c.spans {
			if hex.EncodeToString(s.TraceId) == trace {
				list = append(list, s)
			}
		}
		c.mu.Unlock()
		if len(list) >= n {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return list
}

func attribute(s *tracepb.Span, name string) string {
	for _, a := range s.Attributes {
		if a.Key == name {
			return strings.Trim(strings.TrimPrefix(strings.TrimPrefix(a.Value.String(), "string_value:"), "int_value:"), `"`)
		}
	}
	return ""
}

// A caller's trace is continued and passed on, with one span for the request and one per attempt, and no text in them.
func TestTracesAreContinued(t *testing.T) {
	c := newCollector(t)
	yaml := steps(2, "traces: {url: \""+c.URL+"/v1/traces\"}")
	g := begin(t, setup{yaml: yaml, sims: scripts(&sim.Behaviour{Status: 500}, &sim.Behaviour{Text: "canary"}), edit: func(c *config.Config) {}})
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	r := g.post("/v1/chat/completions", chatBody(true, `"user":"canary"`), "Traceparent", "00-"+trace+"-"+parent+"-01")
	r.text()
	spans := c.of(trace, 3)
	if len(spans) != 3 {
		t.Fatalf("%d spans, want 3: %v", len(spans), spans)
	}
	server := spans[0]
	if hex.EncodeToString(server.ParentSpanId) != parent || server.Kind != tracepb.Span_SPAN_KIND_SERVER || attribute(server, "weir.request") != r.id() || attribute(server, "weir.reroute") != "fallback" {
		t.Errorf("the request's span: %v", server)
	}
	for i, name := range []string{"s1", "s2"} {
		s := spans[i+1]
		if string(s.ParentSpanId) != string(server.SpanId) || s.Kind != tracepb.Span_SPAN_KIND_CLIENT || attribute(s, "weir.backend") != name || attribute(s, "gen_ai.request.model") != "m" {
			t.Errorf("span of %s: %v", name, s)
		}
		up := g.sims[name].Calls("")[0].Header.Get("Traceparent")
		if want := "00-" + trace + "-" + hex.EncodeToString(s.SpanId) + "-01"; up != want {
			t.Errorf("%s got traceparent %q, want %q", name, up, want)
		}
	}
	if attribute(spans[1], "error.type") != "refused" || attribute(spans[2], "error.type") != "" {
		t.Errorf("kinds of the attempts: %q and %q", attribute(spans[1], "error.type"), attribute(spans[2], "error.type"))
	}
	for _, s := range spans {
		if text := s.String(); strings.Contains(text, "canary") || strings.Contains(text, g.key) {
			t.Errorf("a text or key is in a span: %s", text)
		}
	}
	if e := g.end(r.id()); e.Trace == nil || *e.Trace != trace {
		t.Errorf("event %s", e.Raw)
	}
	// Without a trace of the caller there is a new one; one that is not sampled is passed on but not exported.
	fresh := g.end(g.chat(true).id())
	if fresh.Trace == nil || len(c.of(*fresh.Trace, 3)) != 3 {
		t.Errorf("a new trace: %s", fresh.Raw)
	}
	const dark = "1af7651916cd43dd8448eb211c80319c"
	g.post("/v1/chat/completions", chatBody(true), "Traceparent", "00-"+dark+"-"+parent+"-00").text()
	if calls := g.sims["s2"].Calls(""); !strings.HasPrefix(calls[len(calls)-1].Header.Get("Traceparent"), "00-"+dark) || !strings.HasSuffix(calls[len(calls)-1].Header.Get("Traceparent"), "-00") {
		t.Errorf("traceparent of a dark trace upstream: %q", calls[len(calls)-1].Header.Get("Traceparent"))
	}
	g.settle()
	g.stop()
	if n := len(c.of(dark, 0)); n != 0 {
		t.Errorf("%d spans of a trace that is not sampled", n)
	}
}

// A collector that is gone or hangs holds up no request and no end.
func TestTracesWithoutACollector(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // nobody accepts: it hangs
	g := begin(t, setup{yaml: steps(1, "traces: {url: \"http://"+l.Addr().String()+"/v1/traces\"}"), sims: scripts(&sim.Behaviour{Text: "ok"})})
	start := time.Now()
	for range 20 {
		g.chat(true).text()
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("20 requests took %v", took)
	}
	g.settle()
	start = time.Now()
	g.stop()
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("the end took %v", took)
	}
}
