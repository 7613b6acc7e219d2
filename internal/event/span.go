package event

import (
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// vocabulary is one version of OpenTelemetry's names for GenAI. They stand here and nowhere else.
type vocabulary struct {
	schema                                 string
	operation, provider, requested, served string
	maxTokens, stream, session, firstChunk string
	in, out, cached, reasoning             string
}

// vocabularies are the versions that the setting traces.genai may name. What spans carry of 0.1 differs from 1.41 in
// its schema alone so far: what was renamed are metrics, and the attribute of cache writes, which nobody reports yet.
var vocabularies = map[string]vocabulary{
	"1.41": {
		schema:    "https://opentelemetry.io/schemas/1.41.0",
		operation: "gen_ai.operation.name", provider: "gen_ai.provider.name", requested: "gen_ai.request.model", served: "gen_ai.response.model",
		maxTokens: "gen_ai.request.max_tokens", stream: "gen_ai.request.stream", session: "gen_ai.conversation.id",
		firstChunk: "gen_ai.response.time_to_first_chunk",
		in:         "gen_ai.usage.input_tokens", out: "gen_ai.usage.output_tokens",
		cached: "gen_ai.usage.cache_read.input_tokens", reasoning: "gen_ai.usage.reasoning.output_tokens",
	},
	"0.1": {
		schema:    "https://opentelemetry.io/schemas/1.45.0", // the version it was built on
		operation: "gen_ai.operation.name", provider: "gen_ai.provider.name", requested: "gen_ai.request.model", served: "gen_ai.response.model",
		maxTokens: "gen_ai.request.max_tokens", stream: "gen_ai.request.stream", session: "gen_ai.conversation.id",
		firstChunk: "gen_ai.response.time_to_first_chunk",
		in:         "gen_ai.usage.input_tokens", out: "gen_ai.usage.output_tokens",
		cached: "gen_ai.usage.cache_read.input_tokens", reasoning: "gen_ai.usage.reasoning.output_tokens",
	},
}

// operations are the values of the operation's name, by Record.Op; one that is missing is used as it is.
var operations = map[string]string{"completions": "text_completion"}

// appendSpans appends the server span of a request and one client span per attempt that was sent or refused.
func (t *Traces) appendSpans(spans []*tracepb.Span, e *Event) []*tracepb.Span {
	r := e.Record
	op := or(operations[r.Op], r.Op)
	server := t.span(r, r.Span, r.Parent, tracepb.Span_SPAN_KIND_SERVER, strings.TrimSpace(op+" "+r.Alias), r.Start, r.Total)
	server.Attributes = t.serverAttributes(e, op)
	server.Status = failed(r.Kind, r.Message)
	spans = append(spans, server)
	last := answered(r)
	for i := range r.Attempts {
		a := &r.Attempts[i]
		if a.Span == (SpanID{}) {
			continue
		}
		s := t.span(r, a.Span, r.Span, tracepb.Span_SPAN_KIND_CLIENT, strings.TrimSpace(op+" "+a.Model), r.Start.Add(a.At), a.Took)
		s.Attributes = t.attemptAttributes(r, a, op, i == last)
		s.Status = failed(a.Kind, a.Message)
		spans = append(spans, s)
	}
	return spans
}

func (t *Traces) span(r *Record, id, parent SpanID, kind tracepb.Span_SpanKind, name string, start time.Time, took time.Duration) *tracepb.Span {
	s := &tracepb.Span{
		TraceId: r.Trace[:], SpanId: append([]byte(nil), id[:]...), Kind: kind, Name: valid(name), Flags: sampledFlag,
		StartTimeUnixNano: uint64(start.UnixNano()), EndTimeUnixNano: uint64(start.Add(max(took, 0)).UnixNano()),
	}
	if parent != (SpanID{}) {
		s.ParentSpanId = append([]byte(nil), parent[:]...)
	}
	return s
}

func (t *Traces) serverAttributes(e *Event, op string) attributes {
	r, w := e.Record, t.words
	a := attributes{}.text(w.operation, op).text(w.requested, r.Alias).text(w.served, r.Served).text(w.session, r.Session).
		text("weir.request", e.Request).text("weir.route", r.Route).text("weir.tier", r.Tier).text("weir.pool", r.Pool).
		text("weir.reroute", r.Reroute).text("weir.class", r.Class).text("weir.tag", r.Tag).
		number("http.response.status_code", int64(r.Status)).number("weir.attempts", int64(len(r.Attempts))).
		seconds("weir.queue", r.Queue).seconds("weir.overhead", r.Overhead)
	if r.Cost >= 0 {
		a = a.float("weir.cost_usd", float64(r.Cost)/1e9)
	}
	return a.text("error.type", r.Kind)
}

func (t *Traces) attemptAttributes(r *Record, a *Attempt, op string, answered bool) attributes {
	w, provider := t.words, a.Backend
	if t.opts.Provider != nil {
		provider = t.opts.Provider(a.Backend)
	}
	set := attributes{}.text(w.operation, op).text(w.provider, provider).text(w.requested, a.Model).text(w.served, a.Served).
		text(w.session, r.Session).text("weir.pool", a.Pool).text("weir.backend", a.Backend).text("weir.tier", a.Tier).
		seconds("weir.queue", a.Queue).seconds(w.firstChunk, a.First).flag(w.stream, r.Shape.Stream)
	if a.Status != 0 {
		set = set.number("http.response.status_code", int64(a.Status))
	}
	if r.Shape.MaxTokens > 0 {
		set = set.number(w.maxTokens, r.Shape.MaxTokens)
	}
	if answered {
		set = set.count(w.in, r.Tokens.In).count(w.out, r.Tokens.Out).count(w.cached, r.Tokens.Cached).count(w.reasoning, r.Tokens.Reasoning)
	}
	return set.text("error.type", a.Kind)
}

// answered is the attempt whose tokens the record counts: the last one that has no kind, or -1.
func answered(r *Record) int {
	for i := len(r.Attempts) - 1; i >= 0; i-- {
		if r.Attempts[i].Kind == "" {
			return i
		}
	}
	return -1
}

func failed(kind, message string) *tracepb.Status {
	if kind == "" {
		return nil
	}
	return &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: valid(message)}
}

// valid makes text that protobuf takes.
func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// attributes is a list that leaves out what is unknown.
type attributes []*commonpb.KeyValue

func (a attributes) text(name, v string) attributes {
	if v == "" {
		return a
	}
	return append(a, &commonpb.KeyValue{Key: name, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: valid(v)}}})
}

func (a attributes) number(name string, v int64) attributes {
	return append(a, &commonpb.KeyValue{Key: name, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: v}}})
}

func (a attributes) count(name string, v int64) attributes {
	if v < 0 {
		return a
	}
	return a.number(name, v)
}

func (a attributes) float(name string, v float64) attributes {
	return append(a, &commonpb.KeyValue{Key: name, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: v}}})
}

func (a attributes) seconds(name string, d time.Duration) attributes {
	if d < 0 {
		return a
	}
	return a.float(name, d.Seconds())
}

func (a attributes) flag(name string, v bool) attributes {
	return append(a, &commonpb.KeyValue{Key: name, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: v}}})
}
