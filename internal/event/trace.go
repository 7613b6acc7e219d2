package event

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const (
	traceBatch   = 256 // records of one export
	traceTimeout = 5 * time.Second
	traceTries   = 3
	tracePause   = 500 * time.Millisecond // before the second try; doubled for the third
)

// TraceOptions set up a Traces.
type TraceOptions struct {
	URL      string                      // OTLP/HTTP endpoint, such as http://127.0.0.1:4318/v1/traces
	GenAI    string                      // vocabulary: "1.41" (also when empty) or "0.1"
	Version  string                      // of Weir
	Provider func(backend string) string // gen_ai.provider.name of a backend; nil: the backend's name
	Client   *http.Client                // nil: one without a proxy
	Log      *slog.Logger
}

// Traces is the reader that exports one server span per request and one client span per attempt over OTLP/HTTP. It
// never holds up anything else: what cannot be sent after three tries is counted and gone.
type Traces struct {
	opts   TraceOptions
	words  vocabulary
	failed atomic.Uint64
	told   time.Time // of the last warning; used by Read alone
}

var _ Reader = (*Traces)(nil)

// NewTraces makes a Traces. It sends nothing before the first Read.
func NewTraces(o TraceOptions) (*Traces, error) {
	words, ok := vocabularies[or(o.GenAI, "1.41")]
	if !ok {
		return nil, fmt.Errorf("traces: genai %q: must be 1.41 or 0.1", o.GenAI)
	}
	if o.Client == nil {
		o.Client = &http.Client{Transport: &http.Transport{MaxIdleConns: 1, IdleConnTimeout: 30 * time.Second}}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Traces{opts: o, words: words}, nil
}

// Wants tells a Recorder which facts are exported: ends of sampled requests.
func (t *Traces) Wants(e *Event) bool { return e.Name == End && e.Record != nil && e.Record.Traced }

// Failed is how many spans could not be sent.
func (t *Traces) Failed() uint64 { return t.failed.Load() }

// Read exports the batch.
func (t *Traces) Read(ctx context.Context, batch []Event) {
	for len(batch) > 0 {
		n := min(len(batch), traceBatch)
		var spans []*tracepb.Span
		for i := range batch[:n] {
			if t.Wants(&batch[i]) {
				spans = t.appendSpans(spans, &batch[i])
			}
		}
		if err := t.export(ctx, spans); err != nil {
			t.failed.Add(uint64(len(spans)))
			if time.Since(t.told) > time.Minute {
				t.opts.Log.Warn("traces could not be exported", "url", t.opts.URL, "count", len(spans), "err", err)
				t.told = time.Now()
			}
		}
		batch = batch[n:]
	}
}

func (t *Traces) export(ctx context.Context, spans []*tracepb.Span) error {
	if len(spans) == 0 {
		return nil
	}
	// TracesData has the wire form of ExportTraceServiceRequest, whose package would bring in gRPC.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: &resourcepb.Resource{Attributes: attributes{}.text("service.name", "weir").text("service.version", t.opts.Version)},
		ScopeSpans: []*tracepb.ScopeSpans{{
			SchemaUrl: t.words.schema,
			Scope:     &commonpb.InstrumentationScope{Name: "weir", Version: t.opts.Version},
			Spans:     spans,
		}},
	}}})
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		again, err := t.post(ctx, body)
		if err == nil || !again || try == traceTries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Duration(try)*tracePause + rand.N(tracePause/2)):
		}
	}
}

// post sends once and says whether another try makes sense.
func (t *Traces) post(ctx context.Context, body []byte) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, traceTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.opts.URL, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "weir/"+t.opts.Version)
	resp, err := t.opts.Client.Do(req)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is used again
	if resp.StatusCode/100 == 2 {
		return false, nil
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = true
	}
	return again, fmt.Errorf("the collector answered %s", resp.Status)
}
