package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestFaultsOfMessagesAndResponses holds that each fault of Chat is one of the younger
// APIs too, in their own shapes.
func TestFaultsOfMessagesAndResponses(t *testing.T) {
	abc := []string{"aa", "bb", "cc"}
	both := func(checks ...func(heard) error) [2]func(heard) error {
		return [2]func(heard) error{all(checks...), all(checks...)}
	}
	const (
		overload  = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"simulated: the engine is overloaded, please try again later\"},\"request_id\":\"req_sim-000001\"}\n\n"
		failed    = "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"id\":\"resp_sim-000001\",\"object\":\"response\",\"status\":\"failed\""
		anthropic = `{"type":"error","error":{"type":"%s"`
		own       = `{"error":{"message":`
	)
	tests := []struct {
		name  string
		b     Behaviour
		whole bool
		check [2]func(heard) error // of Messages, of Responses
	}{
		{"a cut body (F20)", Behaviour{Cut: &Cut{After: 100}}, false, both(bodyLen(100), endsBy(io.ErrUnexpectedEOF))},
		{"a cut body in one piece", Behaviour{Cut: &Cut{After: 100}}, true, both(bodyLen(100), endsBy(io.ErrUnexpectedEOF))},
		{"a reset (C003)", Behaviour{Cut: &Cut{After: 100, How: "rst"}}, false, both(bodyLen(100), endsBy(syscall.ECONNRESET))},
		{"a cut after chunks with a proper end (C024)", Behaviour{Deltas: abc, Cut: &Cut{After: 2, Of: "chunks", How: "end"}}, false, both(holds("aa"), holds("bb"), lacks("cc"), lacks("message_stop"), lacks("response.completed"), endsBy(nil))},
		{"a cut before the first chunk", Behaviour{Deltas: abc, Cut: &Cut{Of: "chunks"}}, false, [2]func(heard) error{
			all(holds("message_start"), lacks("text_delta"), endsBy(io.ErrUnexpectedEOF)), all(holds("response.created"), lacks("text.delta"), endsBy(io.ErrUnexpectedEOF))}},
		{"a dropped request (F16)", Behaviour{Drop: "fin"}, false, both(endsBy(io.ErrUnexpectedEOF))},
		{"429 with Retry-After (F07)", Behaviour{Status: 429, RetryAfter: "5"}, false, [2]func(heard) error{
			all(status(429), header("Retry-After", "5"), header("Request-Id", "req_sim-000001"), starts(fmt.Sprintf(anthropic, "rate_limit_error"))),
			all(status(429), header("Retry-After", "5"), starts(own), holds("rate_limit_exceeded"))}},
		{"503", Behaviour{Status: 503}, true, [2]func(heard) error{all(status(503), starts(fmt.Sprintf(anthropic, "api_error"))), all(status(503), starts(own))}},
		{"529 (F10)", Behaviour{Status: 529}, false, [2]func(heard) error{all(status(529), starts(fmt.Sprintf(anthropic, "overloaded_error"))), all(status(529), holds("overloaded_error"))}},
		{"401", Behaviour{Status: 401}, false, [2]func(heard) error{all(status(401), starts(fmt.Sprintf(anthropic, "authentication_error"))), all(status(401), starts(own))}},
		{"413", Behaviour{Status: 413}, false, [2]func(heard) error{all(status(413), starts(fmt.Sprintf(anthropic, "request_too_large"))), all(status(413), starts(own))}},
		{"a scripted error object", Behaviour{Status: 402, Error: json.RawMessage(`{"message":"no credit"}`)}, false, [2]func(heard) error{
			holds(`{"type":"error","error":{"message":"no credit"},"request_id":"req_sim-000001"}`), holds(`{"error":{"message":"no credit"}}`)}},
		{"loading (F35)", Behaviour{Loading: time.Hour}, false, [2]func(heard) error{all(status(503), starts(fmt.Sprintf(anthropic, "api_error"))), all(status(503), holds("model_loading"))}},
		{"a context that is too small (C083)", Behaviour{Context: 1}, false, [2]func(heard) error{
			all(status(400), holds(`"type":"invalid_request_error","message":"prompt is too long: `), holds(" tokens > 1 maximum")),
			all(status(400), holds(`"param":"input","code":"context_length_exceeded"`))}},
		{"a context that is too small, told in the stream", Behaviour{Context: 1, ContextStatus: 200}, false, [2]func(heard) error{
			all(status(200), starts("event: error\n"), lacks("[DONE]")), all(status(200), starts(`data: {"error":`), lacks("[DONE]"))}},
		{"an overload as the first event (C009)", Behaviour{StreamError: &StreamError{}}, false, [2]func(heard) error{starts(overload), starts(failed)}},
		{"an overload behind the opening", Behaviour{StreamError: &StreamError{Opened: true}}, false, [2]func(heard) error{
			all(starts("event: message_start"), endsWith(overload), lacks("content_block")), all(starts("event: response.created"), holds(failed), lacks("output_item"))}},
		{"an overload after content (F24)", Behaviour{Deltas: abc, StreamError: &StreamError{After: 2}}, false, [2]func(heard) error{
			all(holds("bb"), endsWith(overload), lacks("cc"), lacks("message_stop")), all(holds("bb"), holds(failed), lacks("cc"), holds(`"error":{"code":"server_error"`))}},
		{"an error event of a script's own", Behaviour{StreamError: &StreamError{After: 1, Event: "error", Error: json.RawMessage(`{"type":"x","code":"rate_limit_exceeded","message":"slow"}`)}}, false, [2]func(heard) error{
			holds(`{"type":"error","error":{"type":"x","code":"rate_limit_exceeded","message":"slow"},`),
			holds("event: error\ndata: {\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"slow\",\"param\":null,\"sequence_number\":5}")}},
		{"an overload in a 200 that is not streamed", Behaviour{StreamError: &StreamError{}}, true, [2]func(heard) error{
			all(status(200), starts(fmt.Sprintf(anthropic, "overloaded_error"))), all(status(200), holds(`"status":"failed"`), holds(`"error":{"code":"server_error"`))}},
		{"a bad line amid good ones (F22)", Behaviour{Insert: []Insert{{After: 1, Raw: "data: {\"ty\n\n"}}}, false, both(holds("\n\ndata: {\"ty\n\n"))},
		{"no reason for the end (F23)", Behaviour{SSE: SSE{NoFinish: true}}, false, [2]func(heard) error{all(lacks("message_delta"), holds("message_stop")), lacks("response.completed")}},
		{"no end (C027)", Behaviour{SSE: SSE{NoDone: true}}, false, [2]func(heard) error{all(holds("message_delta"), lacks("message_stop")), lacks("response.completed")}},
		{"the end twice (F26)", Behaviour{SSE: SSE{Twice: true}}, false, [2]func(heard) error{
			all(times("event: message_delta\n", 2), times("event: message_stop\n", 2)), times("event: response.completed\n", 2)}},
		{"content behind the end (F26)", Behaviour{SSE: SSE{AfterDone: true}}, false, both(holds("after the end"))},
		{"no names of events", Behaviour{SSE: SSE{NoEvent: true}}, false, both(lacks("event: "), starts("data: {"))},
		{"no space", Behaviour{SSE: SSE{NoSpace: true}}, false, both(starts("event:"), lacks("event: "), lacks("data: "))},
		{"CR ends the lines", Behaviour{SSE: SSE{LineEnd: "cr"}}, false, both(lacks("\n"), holds("\rdata: {"))},
		{"CRLF ends the lines", Behaviour{SSE: SSE{LineEnd: "crlf"}}, false, both(holds("\r\ndata: {"), holds("}\r\n\r\nevent: "))},
		{"JSON over several lines", Behaviour{SSE: SSE{Multiline: true}}, false, both(holds("\ndata: {\ndata:  \"type\""))},
		{"an open end (C010)", Behaviour{SSE: SSE{OpenEnd: true}}, false, both(endsWith("}"), endsBy(nil))},
		{"the events of a script", Behaviour{Events: []string{`{"type":"made_up"}`, `[1]`}}, false, both(func(h heard) error {
			return want("body", h.body, "event: made_up\ndata: {\"type\":\"made_up\"}\n\ndata: [1]\n\n")
		})},
		{"a page of HTML (F11)", Behaviour{HTML: true}, false, both(status(200), header("Content-Type", "text/html; charset=utf-8"))},
		{"a redirect (F13)", Behaviour{Redirect: "http://127.0.0.1:1/x"}, false, both(status(307))},
		{"gzip", Behaviour{Gzip: "ok"}, false, both(header("Content-Encoding", "gzip"))},
		{"a bomb", Behaviour{Gzip: "bomb"}, true, both(header("Content-Encoding", "gzip"))},
		{"a line without an end (F30)", Behaviour{LineBytes: 1 << 16}, false, [2]func(heard) error{starts("event: content_block_delta\ndata: "), starts("event: response.output_text.delta\ndata: ")}},
		{"another pool's model", Behaviour{Model: "other"}, false, both(holds(`"model":"other"`), lacks(`"model":"m"`))},
		{"no ids (C165)", Behaviour{IDs: "none"}, true, [2]func(heard) error{starts(`{"type":"message"`), starts(`{"object":"response"`)}},
		{"missing members (C165)", Behaviour{Omit: []string{"type", "object", "role"}}, true, both(lacks(`"object":"response"`), lacks(`"role":"assistant","model"`))},
		{"usage that is partial (F32)", Behaviour{Usage: "partial"}, false, both(holds(`"usage":{"output_tokens":`), lacks("input_tokens"))},
		{"usage that is negative (F32)", Behaviour{Usage: "negative"}, false, both(holds(`"input_tokens":-`))},
		{"usage that is huge (F32)", Behaviour{Usage: "huge"}, true, both(holds(`"input_tokens":9223372036854775808`))},
		{"usage that is nonsense (F32)", Behaviour{Usage: `{"input_tokens":"?"}`}, false, both(holds(`"usage":{"input_tokens":"?"}`))},
		{"usage that grows", Behaviour{Deltas: abc, Usage: "every"}, false, [2]func(heard) error{
			all(times("event: message_delta\n", 4), holds(`"stop_reason":null,"stop_sequence":null},"usage":{`), holds(`"output_tokens":2}`), holds(`"output_tokens":3}`)), holds("response.completed")}},
		{"tokens from a cache", Behaviour{Cached: 3, CacheWrite: 2, Usage: ""}, true, [2]func(heard) error{
			holds(`"cache_creation_input_tokens":2,"cache_read_input_tokens":3,`), holds(`"input_tokens_details":{"cached_tokens":3,"cache_write_tokens":2}`)}},
		{"thinking that is hidden", Behaviour{Reasoning: "hm", ReasoningField: "redacted"}, false, [2]func(heard) error{all(holds(`{"type":"redacted_thinking","data":"sig_`), lacks("thinking_delta")), holds("summary")}},
		{"calls without ids (C039)", Behaviour{Tool: "no_id"}, false, [2]func(heard) error{holds(`{"type":"tool_use","name":"weather"`), lacks("call_id")}},
		{"calls whose id is null (C039)", Behaviour{Tool: "null_id"}, false, [2]func(heard) error{holds(`"id":null`), holds(`"call_id":null`)}},
		{"calls without places (C037)", Behaviour{Tool: "no_index"}, false, [2]func(heard) error{lacks(`"index"`), lacks(`"output_index":1`)}},
		{"calls in one place (C034)", Behaviour{Tool: "index_zero"}, false, [2]func(heard) error{all(times("content_block_start\"", 2), lacks(`"index":1`)), lacks(`"output_index":1`)}},
		{"arguments that are no JSON (F28)", Behaviour{Tool: "not_json"}, false, [2]func(heard) error{holds(`"partial_json":"{city: P"`), holds(`"arguments":"{city: Paris"`)}},
		{"arguments that are no JSON, in one piece", Behaviour{Tool: "not_json"}, true, [2]func(heard) error{holds(`"input":{"INVALID_JSON":"{city: Paris"}`), holds(`"arguments":"{city: Paris"`)}},
		{"refused streams", Behaviour{Refuse: []string{"stream"}}, false, both(status(400), holds("stream is not supported"))},
		{"a Go function", Behaviour{Do: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418) }}, false, both(status(418))},
	}
	for i, d := range dialects {
		for _, tt := range tests {
			t.Run(d.path+"/"+tt.name, func(t *testing.T) {
				s := New(Options{Script: Script{Server: d.flavour, On: map[string]Sequence{"m": {tt.b}}}}).Start(t)
				h := rawAsk(t, s, d.path, fmt.Sprintf(`{"model":"m","stream":%v,%s,%s}`, !tt.whole, d.ask, d.tools))
				if err := tt.check[i](h); err != nil {
					t.Errorf("%v\nheard %d %v %q, %v", err, h.status, h.header, h.body[:min(len(h.body), 3000)], h.err)
				}
				if err := s.WaitQuiet(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

func TestPingsOfMessagesAreEvents(t *testing.T) { // C076
	synctest.Test(t, func(t *testing.T) {
		b := Behaviour{FirstDelay: 35 * time.Second, Ping: 10 * time.Second, Text: "late"}
		w := newWorld(t, Options{Script: Script{Server: Anthropic, On: map[string]Sequence{"m": {b}}}})
		_, stream, err := w.ask(t, "/v1/messages", `{"model":"m","stream":true,`+dialects[0].ask+`}`)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(stream, "event: ping\ndata: {\"type\":\"ping\"}\n\n"); got != 4 || strings.Contains(stream, ": ping\n\n") {
			t.Errorf("%d pings in %q, want the one at the start and 3", got, stream)
		}
	})
}

func TestBothAPIsSeeThePeerLeave(t *testing.T) {
	for _, d := range dialects {
		for name, b := range map[string]Behaviour{
			"from a hang": {Hang: true}, "from an endless stream (F31)": {Endless: true},
			"from a stall (F21)":       {Cut: &Cut{After: 2, Of: "chunks", How: "stall"}},
			"from a ghost (F43)":       {Gap: time.Second, Chunks: 61, Ghost: true},
			"while it waits in a line": {HeaderDelay: time.Minute},
		} {
			t.Run(d.path+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, Options{Script: Script{Server: d.flavour, Slots: 1, On: map[string]Sequence{"m": {b}}}})
					ctx, start := t.Context(), time.Now()
					resp, err := w.post(t, withTimeout(t, ctx, 5*time.Second), d.path, `{"model":"m","stream":true,`+d.ask+`}`)
					if err == nil {
						_, err = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
					if err == nil {
						t.Error("the answer ended")
					}
					if err := w.WaitQuiet(ctx); err != nil {
						t.Fatal(err)
					}
					a := w.Calls("m")[0]
					took := 5 * time.Second
					if b.Ghost {
						took = time.Minute
					}
					if a.End != Left || a.Left.Sub(start) != 5*time.Second || a.Ended.Sub(start) != took {
						t.Errorf("%s: left after %v, ended after %v, want 5s and %v", a.End, a.Left.Sub(start), a.Ended.Sub(start), took)
					}
				})
			})
		}
	}
}

func TestEndlessTextIsInPieces(t *testing.T) {
	for _, d := range dialects {
		s := New(Options{Script: Script{Server: d.flavour, On: map[string]Sequence{"m": {{Text: "a b ", Endless: true, Gap: time.Millisecond, Cut: &Cut{After: 5, Of: "chunks"}}}}}}).Start(t)
		h := rawAsk(t, s, d.path, `{"model":"m","stream":true,`+d.ask+`}`)
		if !strings.Contains(h.body, `"on and on (4) "`) || strings.Contains(h.body, "(5)") || !errors.Is(h.err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v\n%s", d.path, h.err, h.body)
		}
	}
}
