package event

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector is an OTLP/HTTP collector that answers with each status in turn, the last one for good.
type collector struct {
	statuses []int
	calls    int
	header   http.Header
	got      []*tracepb.TracesData
}

func (c *collector) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	c.ServeHTTP(w, req)
	return w.Result(), nil
}

func (c *collector) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	status := c.statuses[min(c.calls, len(c.statuses)-1)]
	c.calls++
	b, _ := io.ReadAll(req.Body)
	d := &tracepb.TracesData{}
	if err := proto.Unmarshal(b, d); err != nil {
		status = http.StatusBadRequest
	}
	if status == http.StatusOK {
		c.got = append(c.got, d)
	}
	c.header = req.Header
	w.WriteHeader(status)
}

func traces(t *testing.T, c *collector, o TraceOptions) *Traces {
	t.Helper()
	o.URL, o.Client, o.Version = "http://collector.example/v1/traces", &http.Client{Transport: c}, "1.2.3"
	tr, err := NewTraces(o)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestSpansOfARequest(t *testing.T) {
	for genai, schema := range map[string]string{"": "1.41.0", "1.41": "1.41.0", "0.1": "1.45.0"} {
		t.Run("genai "+genai, func(t *testing.T) {
			c := &collector{statuses: []int{200}}
			tr := traces(t, c, TraceOptions{GenAI: genai, Provider: func(b string) string { return "provider of " + b }})
			r := sampleRecord()
			tr.Read(t.Context(), []Event{{Name: End, Request: "req_1", Record: r}, {Name: Start}})
			if len(c.got) != 1 || c.header.Get("Content-Type") != "application/x-protobuf" {
				t.Fatalf("%d exports with %v", len(c.got), c.header)
			}
			scope := c.got[0].ResourceSpans[0].ScopeSpans[0]
			if want := "https://opentelemetry.io/schemas/" + schema; scope.SchemaUrl != want {
				t.Errorf("schema %s, want %s", scope.SchemaUrl, want)
			}
			spans := scope.Spans
			if len(spans) != 3 {
				t.Fatalf("%d spans, want 3", len(spans))
			}
			server, busy, ok := spans[0], spans[1], spans[2]
			for i, s := range spans {
				if string(s.TraceId) != string(r.Trace[:]) {
					t.Errorf("span %d is of another trace", i)
				}
			}
			if string(server.SpanId) != string(r.Span[:]) || string(server.ParentSpanId) != string(r.Parent[:]) || server.Kind != tracepb.Span_SPAN_KIND_SERVER {
				t.Errorf("server span: %v", server)
			}
			for i, s := range []*tracepb.Span{busy, ok} {
				if string(s.SpanId) != string(r.Attempts[i].Span[:]) || string(s.ParentSpanId) != string(r.Span[:]) || s.Kind != tracepb.Span_SPAN_KIND_CLIENT {
					t.Errorf("span of attempt %d: %v", i, s)
				}
			}
			want := map[string]string{
				"gen_ai.operation.name": "chat", "gen_ai.provider.name": "provider of vendor", "gen_ai.request.model": "kimi-k3",
				"gen_ai.response.model": "kimi-k3-0711", "gen_ai.conversation.id": "s-77", "gen_ai.request.stream": "true",
				"gen_ai.request.max_tokens": "4096", "gen_ai.response.time_to_first_chunk": "0.4000005", "gen_ai.usage.input_tokens": "1200",
				"gen_ai.usage.output_tokens": "340", "gen_ai.usage.cache_read.input_tokens": "800", "http.response.status_code": "200",
				"weir.pool": "vendor-b", "weir.backend": "vendor", "weir.tier": "cloud", "weir.queue": "0.02",
			}
			if d := cmp.Diff(want, values(ok)); d != "" {
				t.Errorf("attempt that answered (-want +got):\n%s", d)
			}
			if got := values(busy); got["error.type"] != "busy" || got["gen_ai.usage.input_tokens"] != "" || busy.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR {
				t.Errorf("attempt that failed: %v, %v", got, busy.Status)
			}
			if d := time.Duration(ok.EndTimeUnixNano - ok.StartTimeUnixNano); d != r.Attempts[1].Took {
				t.Errorf("it took %v, want %v", d, r.Attempts[1].Took)
			}
		})
	}
}

func values(s *tracepb.Span) map[string]string {
	m := map[string]string{}
	for _, a := range s.Attributes {
		switch v := a.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			m[a.Key] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			m[a.Key] = fmt.Sprint(v.IntValue)
		case *commonpb.AnyValue_DoubleValue:
			m[a.Key] = fmt.Sprint(v.DoubleValue)
		case *commonpb.AnyValue_BoolValue:
			m[a.Key] = fmt.Sprint(v.BoolValue)
		}
	}
	return m
}

func TestOnlySampledRequestsAreExported(t *testing.T) {
	c := &collector{statuses: []int{200}}
	tr := traces(t, c, TraceOptions{})
	r := sampleRecord()
	r.Traced = false
	tr.Read(t.Context(), []Event{{Name: End, Record: r}, {Name: Start}, {Name: End}})
	if c.calls != 0 {
		t.Errorf("%d exports, want none", c.calls)
	}
}

func TestACollectorThatFails(t *testing.T) {
	for _, tt := range []struct {
		name         string
		statuses     []int
		calls        int
		failed, sent int
	}{
		{"is asked again", []int{503, 429, 200}, 3, 0, 1},
		{"three times at most", []int{503}, 3, 3, 0},
		{"not when it says the request is bad", []int{400}, 1, 3, 0},
		{"and redirects are failures", []int{301}, 1, 3, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &collector{statuses: tt.statuses}
				tr := traces(t, c, TraceOptions{})
				tr.Read(t.Context(), []Event{{Name: End, Record: sampleRecord()}})
				if c.calls != tt.calls || tr.Failed() != uint64(tt.failed) || len(c.got) != tt.sent {
					t.Errorf("%d calls, %d spans failed, %d exports, want %d, %d, %d", c.calls, tr.Failed(), len(c.got), tt.calls, tt.failed, tt.sent)
				}
			})
		})
	}
}

func TestForeignTextDoesNotBreakSpans(t *testing.T) {
	c := &collector{statuses: []int{200}}
	tr := traces(t, c, TraceOptions{})
	r := sampleRecord()
	r.Alias, r.Session, r.Kind, r.Message = "\xff\xfe", "\xff", "slow", "\xff"
	tr.Read(t.Context(), []Event{{Name: End, Request: "\xff", Record: r}})
	if len(c.got) != 1 || tr.Failed() != 0 {
		t.Errorf("%d exports, %d failed", len(c.got), tr.Failed())
	}
}

func TestUnknownVocabulary(t *testing.T) {
	if _, err := NewTraces(TraceOptions{GenAI: "2"}); err == nil {
		t.Error("taken")
	}
}
