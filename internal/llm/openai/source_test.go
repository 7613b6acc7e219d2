package openai

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
)

// noted writes deltas as short words.
func noted(list *[]string) func(*llm.Delta) {
	return func(d *llm.Delta) {
		w := ""
		switch d.Kind {
		case llm.DeltaStart:
			w = fmt.Sprintf("start %s %s", d.ID, d.Model)
		case llm.DeltaText:
			w = "text " + string(d.Text)
		case llm.DeltaThinking:
			w = "thinking " + string(d.Text)
		case llm.DeltaSignature:
			w = "signature " + string(d.Text)
		case llm.DeltaSealed:
			w = fmt.Sprintf("sealed %s %s", d.Name, d.Text)
		case llm.DeltaRefusal:
			w = "refusal " + string(d.Text)
		case llm.DeltaCall:
			w = fmt.Sprintf("call %d %s %s %v", d.Call, d.ID, d.Name, d.Custom)
			if strings.HasPrefix(string(d.ID), "call_") && len(d.ID) == 31 {
				w = fmt.Sprintf("call %d * %s %v", d.Call, d.Name, d.Custom)
			}
		case llm.DeltaInput:
			w = fmt.Sprintf("input %d %s", d.Call, d.Text)
		case llm.DeltaFinish:
			w = fmt.Sprintf("finish %d %s", d.Stop, d.Sequence)
		case llm.DeltaUsage:
			w = fmt.Sprintf("usage %v", d.Usage)
		case llm.DeltaPrefill:
			w = fmt.Sprintf("prefill %v %d", d.Prefill, d.PromptN)
		case llm.DeltaDone:
			w = "done"
		}
		*list = append(*list, strings.TrimSpace(w))
	}
}

// readAll gives a source a stream and returns its deltas; an error is the last of them.
func readAll(stream string) (list []string) {
	s := Dialect{}.Source()
	var f llm.Frames
	for in := []byte(stream); len(in) > 0; {
		n := copy(f.Space(), in)
		in = in[n:]
		f.Took(n)
		for {
			e, ok := f.Next()
			if !ok {
				break
			}
			if e.Empty {
				continue
			}
			if err := s.Event(&e, noted(&list)); err != nil {
				return append(list, failure(err))
			}
		}
	}
	return list
}

func failure(err error) string {
	if f, ok := errors.AsType[*llm.Fault](err); ok {
		return "fault " + string(f.Data)
	}
	return "error " + llm.KindOf(err).String()
}

// bare is a chunk without its frame.
func bare(delta, finish string) string {
	return `{"choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + `}]}`
}

func TestSource(t *testing.T) {
	tool := func(s string) string { return bare(`{"tool_calls":[`+s+`]}`, "null") }
	end := func(reason string) string { return bare("{}", `"`+reason+`"`) }
	for _, tt := range []struct {
		name string
		in   []string
		want []string
	}{
		{"text, in its own escapes", []string{delta(`{"role":"assistant","content":""}`), delta(`{"content":"a"}`), delta(`{"content":"b\u00e9\n"}`), delta(`{"content":""}`), delta(`{"content":"c"}`), finish("stop"), usage, "[DONE]"},
			[]string{"start c1 up", "text a", `text b\u00e9\n`, "text c", "finish 1", "usage {3 1 -1 -1 -1}", "done"}},
		{"C161 both names of reasoning, and neither twice", []string{bare(`{"role":"assistant","reasoning":"a"}`, "null"), bare(`{"reasoning":"b"}`, "null"), bare(`{"reasoning_content":"c","content":""}`, "null"), bare(`{"reasoning_content":"d","reasoning":"d"}`, "null"), bare(`{"content":"ok"}`, `"stop"`)},
			[]string{"start", "thinking a", "thinking b", "thinking c", "thinking d", "text ok", "finish 1"}},
		{"C034 every call has index 0", []string{tool(`{"index":0,"id":"call_a","type":"function","function":{"name":"read","arguments":"{\"p\":\"a\"}"}}`), tool(`{"index":0,"id":"call_b","type":"function","function":{"name":"read","arguments":"{\"p\":\"b\"}"}}`), end("tool_calls"), "[DONE]"},
			[]string{"start", "call 0 call_a read false", `input 0 {\"p\":\"a\"}`, "call 1 call_b read false", `input 1 {\"p\":\"b\"}`, "finish 5", "done"}},
		{"C037 no index", []string{tool(`{"id":"a","type":"function","function":{"name":"f","arguments":""}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}`), tool(`{"id":"a","function":{"arguments":"{\"x\":1}"}}`), end("tool_calls")},
			[]string{"start", "call 0 a f false", "call 1 b g false", "input 1 {}", `input 0 {\"x\":1}`, "finish 5"}},
		{"C037 arguments alone go on with the call opened last", []string{tool(`{"id":"a","function":{"name":"f"}}`), tool(`{"function":{"arguments":"{"}}`), tool(`{"function":{"arguments":"}"}}`), tool(`{"function":{"name":"g","arguments":"{}"}}`), end("stop")},
			[]string{"start", "call 0 a f false", "input 0 {", "input 0 }", "call 1 * g false", "input 1 {}", "finish 5"}},
		{"C039 no id", []string{tool(`{"index":0,"id":null,"function":{"name":"f","arguments":"{}"}}`), end("tool_calls")},
			[]string{"start", "call 0 * f false", "input 0 {}", "finish 5"}},
		{"arguments that come before the name wait", []string{tool(`{"index":0,"id":"a","function":{"arguments":"{"}}`), tool(`{"index":0,"function":{"name":"f","arguments":"}"}}`), end("tool_calls")},
			[]string{"start", "call 0 a f false", "input 0 {", "input 0 }", "finish 5"}},
		{"a call that never got a name is no tool that may be called", []string{tool(`{"index":0,"id":"a","function":{"arguments":"{}"}}`), end("tool_calls")},
			[]string{"start", "call 0 a unknown_tool false", "input 0 {}", "finish 5"}},
		{"arguments as an object, text beside calls", []string{bare(`{"content":"see","tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":{"n":1.0}}}]}`, "null"), end("stop")},
			[]string{"start", "text see", "call 0 a f false", `input 0 {\"n\":1.0}`, "finish 5"}},
		{"custom tools and the old kind", []string{tool(`{"index":0,"id":"a","type":"custom","custom":{"name":"c","input":"ls"}}`), end("tool_calls")},
			[]string{"start", "call 0 a c true", "input 0 ls", "finish 5"}},
		{"the old kind of call", []string{bare(`{"function_call":{"name":"f","arguments":""}}`, "null"), bare(`{"function_call":{"arguments":"{}"}}`, "null"), end("function_call")},
			[]string{"start", "call 0 * f false", "input 0 {}", "finish 5"}},
		{"C029 a call that was cut keeps what it has", []string{tool(`{"index":0,"id":"a","function":{"name":"w","arguments":"{\"city"}}`), end("length"), "[DONE]"},
			[]string{"start", "call 0 a w false", `input 0 {\"city`, "finish 3", "done"}},
		{"C043 a call as text stays text, and a reason makes no call", []string{bare(`{"content":"<tool_call>{\"name\":\"f\"}</tool_call>"}`, "null"), end("tool_calls")},
			[]string{"start", `text <tool_call>{\"name\":\"f\"}</tool_call>`, "finish 1"}},
		{"a refusal, a filter, and only the first choice", []string{bare(`{"refusal":"no"}`, "null"), `{"choices":[{"index":1,"delta":{"content":"other"},"finish_reason":"stop"}]}`, end("content_filter")},
			[]string{"start", "refusal no", "finish 6"}},
		{"the stop sequence, where the server says so", []string{`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop","stop_reason":"END"}]}`}, []string{"start", "text a", "finish 2 END"}},
		{"a finish in every chunk", []string{bare(`{"content":"a"}`, `"stop"`), bare(`{"content":"b"}`, `"stop"`), end("stop")}, []string{"start", "text a", "finish 1", "text b", "finish 1"}},
		{"an id and a path come once", []string{`{"id":"x","model":"/models/a.gguf","choices":[]}`, `{"id":"x","model":"/models/a.gguf","choices":[]}`, `{"id":"x","model":"m","choices":[]}`, `{"id":"x","model":"m","choices":[]}`}, []string{"start x", "start x m"}},
		{"usage with its parts", []string{`{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":30,"cache_write_tokens":10},"completion_tokens_details":{"reasoning_tokens":5}}}`}, []string{"start", "usage {100 20 30 5 10}"}},
		{"the timings of llama.cpp", []string{`{"choices":[],"timings":{"cache_n":10,"prompt_n":90,"prompt_per_second":45.5,"predicted_n":7}}`}, []string{"start", "usage {100 7 10 -1 -1}", "prefill 45.5 90"}},
		{"C051 blocks of thinking from another Weir", []string{bare(`{"reasoning_content":"ab"}`, "null"), bare(`{"thinking_blocks":[{"type":"thinking","thinking":"ab","signature":"S"}]}`, "null"), bare(`{"thinking_blocks":[{"type":"redacted_thinking","data":"R"},{"type":"reasoning","encrypted_content":"E"}]}`, "null"), bare(`{"content":"c"}`, `"stop"`)},
			[]string{"start", "thinking ab", "signature S", "sealed redacted R", "sealed encrypted E", "text c", "finish 1"}},
		{"blocks and text at once are told once", []string{bare(`{"reasoning_content":"a","thinking_blocks":[{"type":"thinking","thinking":"a","signature":null}]}`, "null"), bare(`{"thinking_blocks":[{"type":"thinking","thinking":"","signature":"S"}]}`, `"stop"`)},
			[]string{"start", "thinking a", "signature S", "finish 1"}},
		{"thinking as Mistral's models stream it", []string{bare(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"type":"text","text":"c"}]}`, `"stop"`)},
			[]string{"start", "thinking ab", "text c", "finish 1"}},
		{"an error object", []string{delta(`{"content":"a"}`), `{"error":{"message":"full"}}`}, []string{"start c1 up", "text a", `fault {"error":{"message":"full"}}`}},
		{"no JSON", []string{delta(`{"content":"a"}`), `{"choices":[`}, []string{"start c1 up", "text a", "error stalled"}},
		{"an answer that its server gave up", []string{delta(`{"content":"a"}`), finish("abort")}, []string{"start c1 up", "text a", "error stalled"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, readAll(lines(tt.in...))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSourceWhole(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []string
	}{
		{"all that an answer can hold", `{"id":"i","model":"m","choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":"hi","refusal":null,"reasoning_content":"ab","thinking_blocks":[{"type":"thinking","thinking":"a","signature":"S"},{"type":"thinking","thinking":"b","signature":"T"}],"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}},{"type":"function","function":{"name":"g","arguments":{"a":1}}}]}}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`,
			[]string{"start i m", "thinking a", "signature S", "thinking b", "signature T", "text hi", "call 0 1 f false", "input 0 {}", "call 1 * g false", `input 1 {\"a\":1}`, "finish 5", "usage {1 2 -1 -1 -1}", "done"}},
		{"an error object", `{"error":"x"}`, []string{`fault {"error":"x"}`}},
		{"no choice", `{"choices":[]}`, []string{"error refused"}},
		{"nothing", " ", []string{"error refused"}},
		{"no JSON", "<html>", []string{"error refused"}},
	} {
		var got []string
		if err := (Dialect{}).Source().Whole([]byte(tt.in), noted(&got)); err != nil {
			got = append(got, failure(err))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
