package anthropic

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
)

const (
	evStart = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-x\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n"
	evBlock = "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"
	evPing  = "event: ping\ndata: {\"type\": \"ping\"}\n\n"
	evEnd   = "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n"
	evDelta = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":15}}\n\n"
	evStop  = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
)

func evText(text string) string {
	return "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"" + text + "\"}}\n\n"
}

var evWhole = evStart + evPing + evBlock + evText("北京 🌍") + evText(" \\u00e9\\\"") + evText("") + evEnd + evDelta + evStop

func streaming(stream bool) llm.Stream {
	return Dialect{}.Stream(&llm.Request{Op: llm.Chat, Stream: stream}, "shown")
}

func TestPassing(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"whole events go on byte for byte", evWhole, evWhole},
		{"unknown events and members go on", evStart + "event: novelty\ndata: {\"type\":\"novelty\", \"x\":1.0}\n\n" + evDelta + evStop, evStart + "event: novelty\ndata: {\"type\":\"novelty\", \"x\":1.0}\n\n" + evDelta + evStop},
		{"data over several lines becomes one, C025", evStart + evBlock + "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\ndata: \"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n" + evEnd + evDelta + evStop,
			evStart + evBlock + "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0, \"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n" + evEnd + evDelta + evStop},
		{"carriage returns become line feeds, C011", strings.ReplaceAll(evWhole, "\n", "\r\n"), evWhole},
		{"a missing event line is added", strings.ReplaceAll(evWhole, "event: content_block_delta\n", ""), evWhole},
		{"an event line is missing now and then", evStart + evBlock + evText("a") + strings.TrimPrefix(evText("b"), "event: content_block_delta\n") + evText("c") + evEnd + evDelta + evStop,
			evStart + evBlock + evText("a") + evText("b") + evText("c") + evEnd + evDelta + evStop},
		{"the last event lacks its empty line, C010", strings.TrimRight(evWhole, "\n"), evWhole},
		{"a missing message_stop is added, C027", strings.TrimSuffix(evWhole, evStop), evWhole},
		{"nothing follows message_stop", evWhole + evText("more") + "data: [DONE]\n\n", evWhole},
		{"a path is no model to show", strings.Replace(evWhole, "claude-x", "/models/x.gguf", 1), strings.Replace(evWhole, "claude-x", "shown", 1)},
		{"comments go on once there is content", ": early\n\n" + evStart + evBlock + evText("a") + ": late\n\n" + evEnd + evDelta + evStop, evStart + evBlock + evText("a") + ": late\n\n" + evEnd + evDelta + evStop},
		{"what breaks behind the finish does not matter", strings.TrimSuffix(evWhole, evStop) + "event: error\ndata: {\"type\":\"error\"}\n\n", evWhole},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := feed(streaming(true), []byte(tt.in), len(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPassingInAnySplit cuts the stream at every byte (C017).
func TestPassingInAnySplit(t *testing.T) {
	for _, in := range []string{evWhole, strings.ReplaceAll(evWhole, "\n", "\r\n"), strings.ReplaceAll(evWhole, "event: content_block_delta\n", "")} {
		for at := 1; at < len(in); at++ {
			s := streaming(true)
			var got []byte
			for _, p := range []string{in[:at], in[at:]} {
				out, err := s.Feed(copy(s.Space(), p))
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, out...)
			}
			out, err := s.End()
			if got = append(got, out...); err != nil || string(got) != evWhole {
				t.Fatalf("cut at %d: %v\n%s", at, err, got)
			}
		}
		if got, err := feed(streaming(true), []byte(in), 1); err != nil || string(got) != evWhole {
			t.Errorf("byte by byte: %v\n%s", err, got)
		}
	}
}

// TestSeen holds what a stream tells of the answer as a whole, passed on or assembled.
func TestSeen(t *testing.T) {
	call := "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{}}}\n\n"
	think := "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\"}}\n\n"
	cached := strings.Replace(evStart, `"input_tokens":25`, `"input_tokens":10,"cache_creation_input_tokens":20,"cache_read_input_tokens":300`, 1)
	known := llm.Usage{In: 25, Out: 1, Cached: -1, Written: -1, Reasoning: -1}
	for _, tt := range []struct {
		name, in string
		want     llm.Seen
	}{
		{"a start and a ping are no content, C065", evStart + evPing, llm.Seen{Served: "claude-x", Usage: known}},
		{"the start of a text is a sign of life", evStart + evBlock, llm.Seen{Served: "claude-x", Usage: known, Progress: true}},
		{"so is that of thinking, which may not be shown", evStart + think, llm.Seen{Served: "claude-x", Usage: known, Progress: true}},
		{"text is content", evStart + evBlock + evText("a") + evText("b"), llm.Seen{Served: "claude-x", Usage: known, Progress: true, Content: true, Events: 2}},
		{"the start of a call is content", evStart + call, llm.Seen{Served: "claude-x", Usage: known, Content: true, Events: 1}},
		{"a finish is content; totals replace what was known, C149", evStart + evDelta,
			llm.Seen{Served: "claude-x", Usage: llm.Usage{In: 25, Out: 15, Cached: -1, Written: -1, Reasoning: -1}, Content: true, Finished: true}},
		{"totals come twice, C149", evStart + strings.Replace(evDelta, `"output_tokens":15`, `"input_tokens":25,"output_tokens":8`, 1) + evDelta,
			llm.Seen{Served: "claude-x", Usage: llm.Usage{In: 25, Out: 15, Cached: -1, Written: -1, Reasoning: -1}, Content: true, Finished: true}},
		{"the cached tokens are a part of the prompt, C152", cached,
			llm.Seen{Served: "claude-x", Usage: llm.Usage{In: 330, Out: 1, Cached: 300, Written: 20, Reasoning: -1}}},
		{"the end mark", evStart + evDelta + evStop,
			llm.Seen{Served: "claude-x", Usage: llm.Usage{In: 25, Out: 15, Cached: -1, Written: -1, Reasoning: -1}, Content: true, Finished: true, Done: true}},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, stream %t", tt.name, stream), func(t *testing.T) {
				s := streaming(stream)
				if _, err := s.Feed(copy(s.Space(), tt.in)); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, *s.Seen()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestBrokenStreams holds that half an answer never looks whole (C019, C024, C065).
func TestBrokenStreams(t *testing.T) {
	const fault = `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`
	for _, tt := range []struct {
		name, in string
		fault    string
		kind     llm.Kind
	}{
		{"an error before anything, C065", "event: error\ndata: " + fault + "\n\n", fault, 0},
		{"an error after text, C065", evStart + evBlock + evText("a") + "event: error\ndata: " + fault + "\n\n", fault, 0},
		{"an error of another dialect, C019", "data: {\"error\":{\"message\":\"engine overloaded\"}}\n\n", `{"error":{"message":"engine overloaded"}}`, 0},
		{"a flat error", "data: {\"object\":\"error\",\"message\":\"x\"}\n\n", `{"object":"error","message":"x"}`, 0},
		{"an end in mid-answer, C024", evStart + evBlock + evText("a"), "", llm.Stalled},
		{"an end without a stop_reason", evStart + evBlock + evText("a") + evEnd + evStop, "", llm.Stalled},
		{"half of a finish is none, C010", evStart + evBlock + evText("a") + evEnd + evDelta[:len(evDelta)-4], "", llm.Stalled},
		{"an empty body", "", "", llm.Refused},
		{"pings alone", evPing + evPing, "", llm.Refused},
		{"something that is no JSON", evStart + "data: {]\n\n", "", llm.Stalled},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, stream %t", tt.name, stream), func(t *testing.T) {
				out, err := feed(streaming(stream), []byte(tt.in), 7)
				if f, ok := errors.AsType[*llm.Fault](err); ok && string(f.Data) != tt.fault || !ok && tt.fault != "" {
					t.Errorf("got %v with %q, want a fault with %s", err, f, tt.fault)
				} else if !ok && refusal(t, err).Kind != tt.kind {
					t.Errorf("got %v, want %v", err, tt.kind)
				}
				if bytes.Contains(out, []byte("message_stop")) {
					t.Errorf("the client was sent an end: %s", out)
				}
			})
		}
	}
}

// TestAssembly holds the message that a stream makes for a client who did not ask for one.
func TestAssembly(t *testing.T) {
	golden(t, "assembly", func(t *testing.T, in map[string]string) string {
		body := in["stream"] + "\n\n"
		got, err := feed(streaming(false), []byte(body), len(body))
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{1, 13} {
			again, err := feed(streaming(false), []byte(body), size)
			if err != nil || madeID.ReplaceAllString(string(again), "") != madeID.ReplaceAllString(string(got), "") {
				t.Errorf("in pieces of %d: %v\n%s", size, err, again)
			}
		}
		return madeID.ReplaceAllString(indented(t, got), "${1}_MADE")
	})
}

func TestWhole(t *testing.T) {
	const ok = `{"id":"msg_1","type":"message","role":"assistant","model":"claude-x", "content":[{"type":"text","text":"a"}],"stop_reason":"end_turn","x":1.0,"usage":{"input_tokens":10,"cache_read_input_tokens":5,"output_tokens":2}}`
	for _, tt := range []struct {
		name, in, want string
		op             llm.Op
	}{
		{"an answer goes on byte for byte", ok, ok, llm.Chat},
		{"a path is no model to show", strings.Replace(ok, "claude-x", "./x.gguf", 1), strings.Replace(ok, "claude-x", "shown", 1), llm.Chat},
		{"what is missing is added", `{ "content":[]}`, `{"id":"msg_MADE","type":"message","model":"shown", "content":[]}`, llm.Chat},
		{"a count goes on", `{"input_tokens": 12}`, `{"input_tokens": 12}`, llm.Count},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, seen, err := Dialect{}.Whole(&llm.Request{Op: tt.op}, "shown", []byte(tt.in), false)
			if err != nil {
				t.Fatal(err)
			}
			if got := madeID.ReplaceAllString(string(got), "${1}_MADE"); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if strings.Contains(tt.in, "usage") && seen.Usage != (llm.Usage{In: 15, Out: 2, Cached: 5, Written: -1, Reasoning: -1}) {
				t.Errorf("usage is %+v", seen.Usage)
			}
		})
	}
}

func TestWholeRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		op       llm.Op
		fault    bool
	}{
		{"an empty body", " ", llm.Chat, false},
		{"no JSON", "<html>", llm.Chat, false},
		{"no content", `{"id":"x"}`, llm.Chat, false},
		{"an error object", `{"type":"error","error":{"type":"api_error","message":"x"}}`, llm.Chat, true},
		{"a count without a number", `{"tokens":1}`, llm.Count, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := Dialect{}.Whole(&llm.Request{Op: tt.op}, "shown", []byte(tt.in), false)
			if _, ok := errors.AsType[*llm.Fault](err); ok != tt.fault {
				t.Errorf("got %v, want a fault: %t", err, tt.fault)
			} else if !ok && refusal(t, err).Kind != llm.Refused {
				t.Errorf("got %v", err)
			}
		})
	}
}
