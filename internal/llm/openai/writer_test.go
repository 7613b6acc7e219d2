package openai

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
)

// made are the parts of an answer that differ from run to run.
var made = regexp.MustCompile(`"created":\d+|chatcmpl-[A-Z2-7]{26}`)

// write gives a writer some deltas and returns what the client gets, each chunk of a stream without its frame.
func write(r *llm.Request, deltas ...llm.Delta) string {
	w := Dialect{}.Writer(r, "shown")
	var out []byte
	for i := range deltas {
		w.Put(&deltas[i])
		if r.Stream {
			out = append(out, w.Take()...)
		}
	}
	out = append(out, w.End()...)
	text := made.ReplaceAllStringFunc(string(out), func(s string) string {
		if s[0] == '"' {
			return `"created":1`
		}
		return "made"
	})
	text = strings.ReplaceAll(text, `{"id":"i","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":`, "")
	return strings.ReplaceAll(text, `,"finish_reason":null}]}`, "")
}

var (
	begins = llm.Delta{Kind: llm.DeltaStart, ID: llm.Text("i"), Model: llm.Text("m")}
	done   = llm.Delta{Kind: llm.DeltaDone}
)

func piece(kind llm.DeltaKind, t string) llm.Delta { return llm.Delta{Kind: kind, Text: llm.Text(t)} }

func stops(s llm.Stop) llm.Delta { return llm.Delta{Kind: llm.DeltaFinish, Stop: s} }

func opens(n int, id, name string, custom bool) llm.Delta {
	return llm.Delta{Kind: llm.DeltaCall, Call: n, ID: llm.Text(id), Name: llm.Text(name), Custom: custom}
}

func with(n int, t string) llm.Delta {
	return llm.Delta{Kind: llm.DeltaInput, Call: n, Text: llm.Text(t)}
}

func counts(u llm.Usage) llm.Delta { return llm.Delta{Kind: llm.DeltaUsage, Usage: u} }

// all is one of everything.
var all = []llm.Delta{begins, counts(llm.Usage{In: 10, Out: 1, Cached: 4, Written: 3, Reasoning: -1}),
	piece(llm.DeltaThinking, "a"), piece(llm.DeltaThinking, "b"), piece(llm.DeltaSignature, "S"),
	{Kind: llm.DeltaSealed, Text: llm.Text("R"), Name: llm.Text("redacted")},
	piece(llm.DeltaText, `h\u00e9`), piece(llm.DeltaText, ""), piece(llm.DeltaText, "y"),
	opens(0, "1", "f", false), opens(1, "2", "c", true), with(1, "ls"), with(0, `{\"a\"`), with(0, ":1}"), opens(2, "3", "g", false),
	stops(llm.StopCalls), counts(llm.Usage{In: -1, Out: 7, Cached: -1, Written: -1, Reasoning: 2}), done}

func TestWriter(t *testing.T) {
	const role, end = `data: {"role":"assistant","content":""}`, "data: [DONE]"
	for _, tt := range []struct {
		name string
		r    llm.Request
		in   []llm.Delta
		want []string
	}{
		{"one of everything, in chunks", llm.Request{Stream: true}, all,
			[]string{role, `data: {"reasoning_content":"a"}`, `data: {"reasoning_content":"b"}`, `data: {"thinking_blocks":[{"type":"thinking","thinking":"ab","signature":"S"}]}`,
				`data: {"thinking_blocks":[{"type":"redacted_thinking","data":"R"}]}`, `data: {"content":"h\u00e9"}`, `data: {"content":"y"}`,
				`data: {"tool_calls":[{"index":0,"id":"1","type":"function","function":{"name":"f","arguments":""}}]}`,
				`data: {"tool_calls":[{"index":1,"id":"2","type":"custom","custom":{"name":"c","input":""}}]}`, `data: {"tool_calls":[{"index":1,"custom":{"input":"ls"}}]}`,
				`data: {"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]}`, `data: {"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}`,
				`data: {"tool_calls":[{"index":2,"id":"3","type":"function","function":{"name":"g","arguments":""}}]}`, `data: {"tool_calls":[{"index":2,"function":{"arguments":"{}"}}]}`,
				`data: {},"finish_reason":"tool_calls"}]}`, end}},
		{"one of everything, whole", llm.Request{}, all,
			[]string{`{"id":"i","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"h\u00e9y","reasoning_content":"ab",` +
				`"thinking_blocks":[{"type":"thinking","thinking":"ab","signature":"S"},{"type":"redacted_thinking","data":"R"}],"refusal":null,"tool_calls":[` +
				`{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"2","type":"custom","custom":{"name":"c","input":"ls"}},{"id":"3","type":"function","function":{"name":"g","arguments":"{}"}}]},` +
				`"logprobs":null,"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":10,"completion_tokens":7,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":3},"completion_tokens_details":{"reasoning_tokens":2}}}`}},
		{"C029 a call that was cut, whole", llm.Request{}, []llm.Delta{begins, opens(0, "1", "f", false), with(0, `{\"city`), stops(llm.StopLength)},
			[]string{`{"id":"i","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"city"}}]},"logprobs":null,"finish_reason":"length"}]}`}},
		{"usage for who asked for it", llm.Request{Stream: true, IncludeUsage: true}, []llm.Delta{begins, piece(llm.DeltaText, "a"), stops(llm.StopEnd), counts(llm.Usage{In: 2, Out: 3, Cached: -1, Reasoning: -1, Written: -1}), done},
			[]string{role + `,"finish_reason":null}],"usage":null}`, `data: {"content":"a"},"finish_reason":null}],"usage":null}`, `data: {},"finish_reason":"stop"}],"usage":null}`,
				`data: {"id":"i","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5}}`, end}},
		{"sealed thinking of the Responses kind", llm.Request{Stream: true}, []llm.Delta{begins, {Kind: llm.DeltaSealed, Text: llm.Text("E"), Name: llm.Text("encrypted")}, stops(llm.StopEnd)},
			[]string{role, `data: {"thinking_blocks":[{"type":"reasoning","encrypted_content":"E"}]}`, `data: {},"finish_reason":"stop"}]}`, end}},
		{"an answer that does not say what it is", llm.Request{}, []llm.Delta{piece(llm.DeltaRefusal, "no"), stops(llm.StopRefused)},
			[]string{`{"id":"made","object":"chat.completion","created":1,"model":"shown","choices":[{"index":0,"message":{"role":"assistant","content":null,"refusal":"no"},"logprobs":null,"finish_reason":"content_filter"}]}`}},
		{"C043 text stays text", llm.Request{Stream: true}, []llm.Delta{begins, piece(llm.DeltaText, `<tool_call>{}</tool_call>`), stops(llm.StopEnd)},
			[]string{role, `data: {"content":"<tool_call>{}</tool_call>"}`, `data: {},"finish_reason":"stop"}]}`, end}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.Split(strings.TrimSpace(write(&tt.r, tt.in...)), "\n\n")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// C046: whatever the server said, a client gets one of the documented reasons.
func TestWriterReasons(t *testing.T) {
	want := map[llm.Stop]string{0: "stop", llm.StopEnd: "stop", llm.StopSequence: "stop", llm.StopLength: "length", llm.StopWindow: "length",
		llm.StopCalls: "stop", llm.StopRefused: "content_filter", llm.StopPaused: "stop"} // a reason alone makes no call
	for s, w := range want {
		if got := write(&llm.Request{}, begins, stops(s)); !strings.Contains(got, `"finish_reason":"`+w+`"`) {
			t.Errorf("%d: %s, want %s", s, got, w)
		}
	}
	for s, w := range map[llm.Stop]string{llm.StopEnd: "tool_calls", llm.StopCalls: "tool_calls", llm.StopLength: "length", llm.StopRefused: "content_filter"} {
		if got := write(&llm.Request{}, begins, opens(0, "1", "f", false), stops(s)); !strings.Contains(got, `"finish_reason":"`+w+`"`) {
			t.Errorf("%d with a call: %s, want %s", s, got, w)
		}
	}
}

// A client who offers functions of the old kind knows no tool_calls.
func TestWriterSpeaksTheOldKind(t *testing.T) {
	for _, stream := range []string{"false", "true"} {
		r := decode(t, llm.Chat, `{"model":"m","stream":`+stream+`,"functions":[{"name":"f"}],"messages":[{"role":"user","content":"x"}]}`)
		got := write(r, begins, opens(0, "1", "f", false), with(0, "{}"), opens(1, "2", "g", false), with(1, "{}"), stops(llm.StopCalls))
		if strings.Contains(got, "tool_calls") || strings.Contains(got, `"g"`) || !strings.Contains(got, `"function_call":{"name":"f"`) || !strings.Contains(got, `"finish_reason":"function_call"`) {
			t.Errorf("stream %s: %s", stream, got)
		}
	}
}

// What a writer writes a source reads: the same deltas again.
func TestWriterAndSource(t *testing.T) {
	var want []string
	put := noted(&want)
	for i := range all {
		put(&all[i])
	}
	got := readAll(string(stream(all)))
	text := func(list []string) string {
		var b strings.Builder
		for _, w := range list {
			if !strings.HasPrefix(w, "usage") && w != "text" && w != "input 2 {}" { // an end of its own, and what is empty
				b.WriteString(w + "\n")
			}
		}
		return b.String()
	}
	if diff := cmp.Diff(text(want), text(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func stream(deltas []llm.Delta) (out []byte) {
	w := Dialect{}.Writer(&llm.Request{Stream: true}, "m")
	for i := range deltas {
		w.Put(&deltas[i])
		out = append(out, w.Take()...)
	}
	return append(out, w.End()...)
}

func TestTranslated(t *testing.T) {
	r := decode(t, llm.Chat, asWhole)
	in := lines(delta(`{"role":"assistant","content":"a"}`), delta(`{"content":"b"}`), finish("stop"), usage, "[DONE]")
	o := play(llm.Translated(Dialect{}.Source(), Dialect{}.Writer(r, "shown"), r.Stream), []byte(in))
	if !json.Valid([]byte(o.Out)) || !strings.Contains(o.Out, `"content":"ab"`) || o.Kind != "" || o.Fault != "" {
		t.Errorf("got %+v", o)
	}
	if want := (llm.Usage{In: 3, Out: 1, Cached: -1, Reasoning: -1, Written: -1}); o.Seen.Usage != want || !o.Seen.Finished || o.Seen.Served != "up" {
		t.Errorf("seen %+v", o.Seen)
	}
	if o := play(llm.Translated(Dialect{}.Source(), Dialect{}.Writer(r, "shown"), false), []byte(lines(delta(`{"content":"a"}`), "[DONE]"))); o.Kind != "stalled" {
		t.Errorf("F23 an end without a finish: %+v, want stalled", o)
	}
}
