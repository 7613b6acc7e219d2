package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
)

// assembled plays a stream for a client who wants one answer.
func assembled(t *testing.T, op llm.Op, in string) outcome {
	t.Helper()
	ask := asWhole
	if op == llm.Completions {
		ask = `{"model":"m","prompt":"a"}`
	}
	return play(Dialect{}.Stream(decode(t, op, ask), "shown"), []byte(in))
}

// answer is an assembled chat answer around one message.
func answer(message, reason string) string {
	return `{"object":"chat.completion","id":"c1","created":7,"model":"up","choices":[{"index":0,"message":` + message + `,"logprobs":null,"finish_reason":"` + reason + `"}]}`
}

func calls(deltas ...string) string {
	var list []string
	for _, d := range deltas {
		list = append(list, delta(`{"tool_calls":[`+d+`]}`))
	}
	return lines(append(list, finish("tool_calls"), "[DONE]")...)
}

func withCalls(list string) string {
	return answer(`{"role":"assistant","content":null,"tool_calls":[`+list+`]}`, "tool_calls")
}

func TestAssemble(t *testing.T) {
	for _, c := range []struct {
		name string
		op   llm.Op // 0: chat
		in   string
		want string
	}{
		{"text", 0, lines(delta(`{"role":"assistant","content":""}`), delta(`{"content":"a"}`), delta(`{"content":"b"}`), delta(`{"content":" \u00e9\n"}`), finish("stop"), usage, "[DONE]"),
			`{"object":"chat.completion","id":"c1","created":7,"model":"up","choices":[{"index":0,"message":{"role":"assistant","content":"ab \u00e9\n"},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`},
		{"nothing but a finish", 0, lines(finish("stop")), answer(`{"role":"assistant","content":null}`, "stop")},
		{"an empty text is no null", 0, lines(delta(`{"content":null}`), delta(`{"content":""}`), finish("stop")), answer(`{"content":"","role":"assistant"}`, "stop")},
		{"a pair of surrogates split over two chunks", 0, lines(delta(`{"role":"assistant","content":"\ud83c"}`), delta(`{"content":"\udf0d"}`), finish("stop")),
			answer(`{"role":"assistant","content":"\ud83c\udf0d"}`, "stop")},
		{"C161 reasoning under two names", 0, lines(delta(`{"role":"assistant","reasoning":"a"}`), delta(`{"reasoning":"b"}`), delta(`{"reasoning_content":"c","content":""}`), delta(`{"content":"ok"}`), finish("stop")),
			answer(`{"role":"assistant","reasoning":"ab","reasoning_content":"c","content":"ok"}`, "stop")},
		{"exact numbers and unknown members", 0,
			lines(`{`+frame+`"seed":12345678901234567890,"service_tier":null,"choices":[{"index":0,"delta":{"content":"a","score":1.50},"stop_reason":null,"x":[1]}]}`,
				`{`+frame+`"service_tier":"default","prompt_progress":{"processed":1},"obfuscation":"zz","timings":{"prompt_ms":1.2300},"choices":[{"index":0,"delta":{},"finish_reason":"stop","stop_reason":128001,"x":null}]}`),
			`{"object":"chat.completion","id":"c1","created":7,"model":"up","seed":12345678901234567890,"service_tier":"default","timings":{"prompt_ms":1.2300},"choices":[{"index":0,"message":{"content":"a","score":1.50,"role":"assistant"},"logprobs":null,"stop_reason":128001,"x":[1],"finish_reason":"stop"}]}`},
		{"lists grow", 0, lines(delta(`{"role":"assistant","annotations":[ {"a":1} ]}`), delta(`{"annotations":[]}`), delta(`{"annotations":[{"b":2},3]}`), finish("stop")),
			answer(`{"role":"assistant","annotations":[{"a":1},{"b":2},3],"content":null}`, "stop")},
		{"thinking in parts, then text", 0, lines(delta(`{"role":"assistant","content":[{"type":"thinking","x":1}]}`), delta(`{"content":"a"}`), delta(`{"content":"b\n"}`), finish("stop")),
			answer(`{"role":"assistant","content":[{"type":"thinking","x":1},{"type":"text","text":"ab\n"}]}`, "stop")},
		{"text, then parts", 0, lines(delta(`{"role":"assistant","content":"a"}`), delta(`{"content":"b"}`), delta(`{"content":[{"type":"x"}]}`), delta(`{"content":"c"}`), finish("stop")),
			answer(`{"role":"assistant","content":[{"type":"text","text":"ab"},{"type":"x"},{"type":"text","text":"c"}]}`, "stop")},
		{"logprobs", 0, lines(`{`+frame+`"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-0.10,"top_logprobs":[]}],"refusal":null}}]}`,
			`{`+frame+`"choices":[{"index":0,"delta":{"content":"b"},"logprobs":null}]}`,
			`{`+frame+`"choices":[{"index":0,"delta":{},"logprobs":{"content":[{"token":"b"}]},"finish_reason":"length"}]}`),
			strings.Replace(answer(`{"content":"ab","role":"assistant"}`, "length"), `"logprobs":null`, `"logprobs":{"content":[{"token":"a","logprob":-0.10,"top_logprobs":[]},{"token":"b"}],"refusal":null}`, 1)},
		{"C158 two choices, the second first", 0,
			lines(`{`+frame+`"choices":[{"index":1,"delta":{"role":"assistant","content":"x"}}]}`, delta(`{"role":"assistant","content":"a"}`), `{`+frame+`"choices":[{"index":1,"delta":{"content":"y"},"finish_reason":"length"},{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}`),
			`{"object":"chat.completion","id":"c1","created":7,"model":"up","choices":[{"index":0,"message":{"role":"assistant","content":"ab"},"logprobs":null,"finish_reason":"stop"},{"index":1,"message":{"role":"assistant","content":"xy"},"logprobs":null,"finish_reason":"length"}]}`},
		{"choices without an index", 0, lines(`{` + frame + `"choices":[{"delta":{"content":"a"},"finish_reason":"stop"},{"delta":{"content":"b"},"finish_reason":"stop"}]}`),
			`{"object":"chat.completion","id":"c1","created":7,"model":"up","choices":[{"index":0,"message":{"content":"a","role":"assistant"},"logprobs":null,"finish_reason":"stop"},{"index":1,"message":{"content":"b","role":"assistant"},"logprobs":null,"finish_reason":"stop"}]}`},
		{"C165 the first valid id, time and name; no path", 0, lines(`{"id":"","created":0,"model":"/models/foo.gguf","choices":[]}`, `{"id":"x1","created":9,"model":"other","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`),
			`{"id":"x1","created":9,"model":"shown","object":"chat.completion","choices":[{"index":0,"message":{"content":"a","role":"assistant"},"logprobs":null,"finish_reason":"stop"}]}`},
		{"C165 none of them", 0, lines(`{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}`),
			`{"id":"chatcmpl-*","created":946684800,"model":"shown","object":"chat.completion","choices":[{"index":0,"message":{"content":"a","role":"assistant"},"logprobs":null,"finish_reason":"stop"}]}`},

		{"a tool call in pieces", 0, calls(`{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}`, `{"index":0,"function":{"arguments":"{\"x\":"}}`, `{"index":0,"id":null,"type":null,"function":{"name":null,"arguments":"1}"}}`),
			withCalls(`{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}`)},
		{"two calls at once, their pieces mixed", 0, calls(`{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}},{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{"}}`,
			`{"index":1,"function":{"arguments":"}"}}`, `{"index":0,"function":{"arguments":"[]"}}`),
			withCalls(`{"id":"a","type":"function","function":{"name":"f","arguments":"[]"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}`)},
		{"C034 all calls carry index 0", 0, calls(`{"index":0,"id":"call_a","type":"function","function":{"name":"read","arguments":"{\"p\":"}}`, `{"index":0,"function":{"arguments":"\"a\"}"}}`,
			`{"index":0,"id":"call_b","type":"function","function":{"name":"read","arguments":"{\"p\":"}}`, `{"index":0,"function":{"arguments":"\"b\"}"}}`),
			withCalls(`{"id":"call_a","type":"function","function":{"name":"read","arguments":"{\"p\":\"a\"}"}},{"id":"call_b","type":"function","function":{"name":"read","arguments":"{\"p\":\"b\"}"}}`)},
		{"C037 no index, told by id", 0, calls(`{"id":"a","type":"function","function":{"name":"f","arguments":""}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}`, `{"id":"a","function":{"arguments":"{\"x\":1}"}}`),
			withCalls(`{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}`)},
		{"C037 neither id nor index: told by place", 0, calls(`{"function":{"name":"f","arguments":"{"}},{"function":{"name":"g","arguments":"["}}`, `{"function":{"arguments":"}"}},{"function":{"arguments":"]"}}`),
			withCalls(`{"id":"call_*","function":{"name":"f","arguments":"{}"},"type":"function"},{"id":"call_*","function":{"name":"g","arguments":"[]"},"type":"function"}`)},
		{"C037 arguments alone go on with the call opened last", 0, calls(`{"function":{"name":"f","arguments":""}}`, `{"function":{"arguments":"1"}}`, `{"function":{"name":"g","arguments":""}}`, `{"function":{"arguments":"2"}}`),
			withCalls(`{"id":"call_*","function":{"name":"f","arguments":"1"},"type":"function"},{"id":"call_*","function":{"name":"g","arguments":"2"},"type":"function"}`)},
		{"an id that comes late", 0, calls(`{"index":0,"function":{"name":"f","arguments":"{"}}`, `{"index":0,"id":"late","function":{"arguments":"}"}}`),
			withCalls(`{"id":"late","type":"function","function":{"name":"f","arguments":"{}"}}`)},
		{"C039 no id at all", 0, calls(`{"index":0,"id":null,"type":"function","function":{"name":"f","arguments":"{}"}}`), withCalls(`{"id":"call_*","type":"function","function":{"name":"f","arguments":"{}"}}`)},
		{"null calls before the real ones", 0, lines(delta(`{"role":"assistant","content":null,"tool_calls":null}`)) + calls(`{"index":0,"id":"a","function":null}`, `{"index":0,"function":{"name":"f"}}`),
			withCalls(`{"id":"a","type":"function","function":{"name":"f","arguments":""}}`)},
		{"arguments as an object are spelled out", 0, calls(`{"index":0,"id":"a","function":{"name":"f","arguments":{"x":"\u00e9"}}}`), withCalls(`{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":\"\\u00e9\"}"}}`)},
		{"unknown members of a call", 0, calls(`{"index":0,"id":"a","extra_content":{"sig":"x"},"function":{"name":"f","arguments":"{}"}}`),
			withCalls(`{"id":"a","extra_content":{"sig":"x"},"type":"function","function":{"name":"f","arguments":"{}"}}`)},
		{"a custom tool's input in pieces", 0, calls(`{"index":0,"id":"a","type":"custom","custom":{"name":"sql","input":"SEL"}}`, `{"index":0,"custom":{"input":"ECT"}}`),
			withCalls(`{"id":"a","type":"custom","custom":{"name":"sql","input":"SELECT"}}`)},
		{"a call that is no object is left out", 0, calls(`7`), answer(`{"role":"assistant","content":null}`, "tool_calls")},

		{"a legacy completion", llm.Completions,
			lines(`{"id":"c1","object":"text_completion","created":7,"model":"up","choices":[{"index":0,"text":"a","logprobs":{"tokens":["a"],"token_logprobs":[-0.10],"top_logprobs":[{"a":-0.1}],"text_offset":[0]},"finish_reason":null}]}`,
				`{"id":"c1","object":"text_completion","created":7,"model":"up","choices":[{"index":0,"text":"b","logprobs":{"tokens":["b"],"token_logprobs":[-0.2],"top_logprobs":[{"b":-0.2}],"text_offset":[1]},"finish_reason":"length"}]}`),
			`{"object":"text_completion","id":"c1","created":7,"model":"up","choices":[{"index":0,"text":"ab","logprobs":{"tokens":["a","b"],"token_logprobs":[-0.10,-0.2],"top_logprobs":[{"a":-0.1},{"b":-0.2}],"text_offset":[0,1]},"finish_reason":"length"}]}`},
		{"a legacy completion without text", llm.Completions, lines(`{"id":"c1","created":7,"model":"up","choices":[{"index":0,"text":null,"finish_reason":"stop"}]}`),
			`{"object":"text_completion","id":"c1","created":7,"model":"up","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}]}`},
		{"a legacy completion without an id", llm.Completions, lines(`{"created":7,"choices":[{"text":"a","finish_reason":"stop"}]}`),
			`{"object":"text_completion","id":"cmpl-*","created":7,"model":"shown","choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":"stop"}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				op := c.op
				if op == 0 {
					op = llm.Chat
				}
				got := assembled(t, op, c.in)
				if got.Fault != "" || got.Kind != "" {
					t.Fatalf("got %s%s", got.Fault, got.Kind)
				}
				if !sameJSON(t, got.Out, c.want) {
					t.Errorf("got  %s\nwant %s", got.Out, c.want)
				}
				for _, number := range []string{"-0.10", "1.50", "1.2300", "12345678901234567890"} {
					if strings.Contains(c.want, number) && !strings.Contains(got.Out, number) {
						t.Errorf("the number %s has changed in %s", number, got.Out)
					}
				}
			})
		})
	}
}

// sameJSON compares two texts as values, numbers by their digits. A member that stands twice is a fault.
func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	return cmp.Equal(valueOf(t, a), valueOf(t, b))
}

func valueOf(t *testing.T, text string) (v any) {
	t.Helper()
	s := llm.NewScanner([]byte(text), 100)
	var once func() error
	once = func() error {
		switch s.Peek() {
		case '{':
			var names llm.Names
			return s.Members(func(name []byte) error {
				if err := names.Add(&s, name); err != nil {
					return err
				}
				return once()
			})
		case '[':
			return s.Elements(func(int) error { return once() })
		}
		_, err := s.Value()
		return err
	}
	if err := once(); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func TestAssembleFails(t *testing.T) {
	for _, c := range []struct {
		name, in    string
		kind, fault string
	}{
		{"C024 no finish", lines(delta(`{"content":"a"}`)), "stalled", ""},
		{"no finish of one of two choices", lines(`{`+frame+`"choices":[{"index":1,"delta":{"content":"a"}}]}`, finish("stop")), "stalled", ""},
		{"no choice", lines("[DONE]"), "refused", ""},
		{"nothing", "", "refused", ""},
		{"a broken event", lines(delta(`{"content":"a"}`), `{"cho`, finish("stop")), "stalled", ""},
		{"C010 half an event at the end, finish included", lines(delta(`{"content":"a"}`)) + "data: " + strings.TrimSuffix(finish("stop"), "}"), "stalled", ""},
		{"an error in the middle", lines(delta(`{"content":"a"}`), `{"error":{"message":"m"}}`), "", `{"error":{"message":"m"}}`},
		{"an error at the end without its line", lines(delta(`{"content":"a"}`)) + `data: {"error":{"message":"m"}}`, "", `{"error":{"message":"m"}}`},
		{"an event with the name error", "event: error\ndata: {\"message\":\"m\"}\n\n", "", `{"message":"m"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := assembled(t, llm.Chat, c.in)
			if got.Out != "" || got.Kind != c.kind || got.Fault != c.fault {
				t.Errorf("got %q, kind %q, fault %q, want kind %q, fault %q", got.Out, got.Kind, got.Fault, c.kind, c.fault)
			}
		})
	}
	t.Run("half an event after the finish adds nothing", func(t *testing.T) {
		got := assembled(t, llm.Chat, lines(delta(`{"role":"assistant","content":"a"}`), finish("stop"))+"data: "+strings.TrimSuffix(delta(`{"content":"b"}`), "}"))
		if want := answer(`{"role":"assistant","content":"a"}`, "stop"); !sameJSON(t, got.Out, want) {
			t.Errorf("got %s, want %s", got.Out, want)
		}
	})
}

func TestAnswerHasABound(t *testing.T) { // C007-like: endless
	s := Dialect{}.Stream(decode(t, llm.Chat, asWhole), "shown")
	event := []byte(lines(delta(`{"content":"` + strings.Repeat("x", 1<<20) + `"}`)))
	for i := range 300 {
		for p := event; len(p) > 0; {
			n := copy(s.Space(), p)
			p = p[n:]
			if _, err := s.Feed(n); err != nil {
				if llm.KindOf(err) != llm.Stalled || i < 60 {
					t.Errorf("after %d MiB: %v", i, err)
				}
				return
			}
		}
	}
	t.Error("300 MiB were taken")
}

// reference gathers chunks the plain way: with maps, by the rules that clients follow.
type reference struct {
	top     map[string]json.RawMessage
	choices map[int]*refChoice
	usage   json.RawMessage
}

type refChoice struct {
	finish  json.RawMessage
	message map[string][]json.RawMessage
	logs    map[string][]json.RawMessage
	extra   map[string]json.RawMessage
	calls   []map[string]any
}

func object0(t *testing.T, raw []byte) (m map[string]json.RawMessage) {
	t.Helper()
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return m
}

func (r *reference) add(t *testing.T, chunk string) {
	for name, v := range object0(t, []byte(chunk)) {
		null := string(v) == "null"
		switch name {
		case "choices":
			var list []json.RawMessage
			if err := json.Unmarshal(v, &list); err != nil {
				t.Fatal(err)
			}
			for _, c := range list {
				r.choice(t, object0(t, c))
			}
		case "usage":
			if !null {
				r.usage = v
			}
		case "object":
		case "id", "created", "model":
			if r.top[name] == nil {
				r.top[name] = v
			}
		default:
			if r.top[name] == nil || !null {
				r.top[name] = v
			}
		}
	}
}

func (r *reference) choice(t *testing.T, c map[string]json.RawMessage) {
	var index int
	_ = json.Unmarshal(c["index"], &index)
	g := r.choices[index]
	if g == nil {
		g = &refChoice{message: map[string][]json.RawMessage{}, logs: map[string][]json.RawMessage{}, extra: map[string]json.RawMessage{}}
		r.choices[index] = g
	}
	for name, v := range c {
		switch name {
		case "index":
		case "finish_reason":
			if string(v) != "null" {
				g.finish = v
			}
		case "logprobs":
			if string(v) != "null" {
				for k, v := range object0(t, v) {
					g.logs[k] = append(g.logs[k], v)
				}
			}
		case "delta":
			for k, v := range object0(t, v) {
				if k != "tool_calls" {
					g.message[k] = append(g.message[k], v)
					continue
				}
				var list []map[string]any
				if err := json.Unmarshal(v, &list); err != nil {
					t.Fatal(err)
				}
				for _, d := range list {
					g.call(d)
				}
			}
		default:
			if g.extra[name] == nil || string(v) != "null" {
				g.extra[name] = v
			}
		}
	}
}

// call follows deltas that have an index, as OpenAI's own do.
func (g *refChoice) call(d map[string]any) {
	i := int(d["index"].(float64))
	for len(g.calls) <= i {
		g.calls = append(g.calls, map[string]any{"type": "function", "function": map[string]any{"arguments": ""}})
	}
	c := g.calls[i]
	if id, ok := d["id"].(string); ok {
		c["id"] = id
	}
	f := d["function"].(map[string]any)
	to := c["function"].(map[string]any)
	if name, ok := f["name"].(string); ok {
		to["name"] = name
	}
	if args, ok := f["arguments"].(string); ok {
		to["arguments"] = to["arguments"].(string) + args
	}
}

// joined joins pieces by their kind: texts in their escaped form, so that halves of a character find each other.
func joined(pieces []json.RawMessage) json.RawMessage {
	var out []byte
	for _, p := range pieces {
		switch {
		case string(p) == "null":
			if out == nil {
				out = p
			}
		case len(out) > 0 && out[0] == p[0] && p[0] == '"':
			out = append(append(out[:len(out)-1:len(out)-1], p[1:len(p)-1]...), '"')
		case len(out) > 0 && out[0] == p[0] && p[0] == '[' && len(out) > 2 && len(p) > 2:
			out = append(append(append(out[:len(out)-1:len(out)-1], ','), p[1:len(p)-1]...), ']')
		case len(out) > 0 && out[0] == p[0] && p[0] == '[' && len(p) == 2:
		default:
			out = bytes.Clone(p)
		}
	}
	return out
}

func (r *reference) answer() string {
	out := map[string]any{"object": "chat.completion"}
	for k, v := range r.top {
		out[k] = v
	}
	if r.usage != nil {
		out["usage"] = r.usage
	}
	var list []any
	for _, i := range slices.Sorted(maps.Keys(r.choices)) {
		g := r.choices[i]
		m := map[string]any{"role": "assistant", "content": nil}
		for k, v := range g.message {
			m[k] = joined(v)
		}
		m["role"] = "assistant"
		if g.calls != nil {
			m["tool_calls"] = g.calls
		}
		c := map[string]any{"index": i, "message": m, "finish_reason": g.finish, "logprobs": nil}
		for k, v := range g.extra {
			c[k] = v
		}
		if len(g.logs) > 0 {
			logs := map[string]json.RawMessage{}
			for k, v := range g.logs {
				logs[k] = joined(v)
			}
			c["logprobs"] = logs
		}
		list = append(list, c)
	}
	out["choices"] = list
	b, err := json.Marshal(out)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// chunks makes a random, well-formed answer in chunks.
func chunks(r *rand.Rand) (list []string) {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	text := func() string {
		return pick("a", "b ", `\n`, `\"`, `\\`, `\u00e9`, `\ud83c\udf0d`, "北", "🌍", "", "]}", `x\ty`)
	}
	n, opened := 1+r.IntN(3), map[int]int{}
	for range 2 + r.IntN(40) {
		var choices []string
		for i := range n {
			if n > 1 && r.IntN(2) == 0 {
				continue
			}
			body := `"` + pick("content", "content", "content", "reasoning", "refusal", "x_new") + `":"` + text() + `"`
			switch r.IntN(12) {
			case 0:
				body = `"role":"assistant","content":` + pick(`""`, "null")
			case 1:
				// Both halves of a character, in two chunks.
				list = append(list, fmt.Sprintf(`{%s"choices":[{"index":%d,"delta":{"content":"\ud83d"}}]}`, frame, i),
					fmt.Sprintf(`{%s"choices":[{"index":%d,"delta":{"content":"\ude00"}}]}`, frame, i))
				continue
			case 2, 3:
				call := r.IntN(opened[i] + 1)
				if call == opened[i] {
					opened[i]++
					body = fmt.Sprintf(`"tool_calls":[{"index":%d,"id":"call%d","type":"function","function":{"name":"f%d","arguments":"%s"}}]`, call, call, call, text())
				} else {
					body = fmt.Sprintf(`"tool_calls":[{"index":%d,"function":{"arguments":"%s"}}]`, call, text())
				}
			case 4:
				body = `"list":[` + pick("", "1", `2,{"a":[3]}`) + `]`
			case 5:
				body = `"number":` + pick("1.50", "12345678901234567890", "true", `{"o":1}`)
			}
			choice := fmt.Sprintf(`{"index":%d,"delta":{%s}`, i, body)
			if r.IntN(4) == 0 {
				choice += `,"logprobs":` + pick("null", `{"content":[{"token":"`+text()+`","logprob":-0.10}],"refusal":null}`)
			}
			if r.IntN(6) == 0 {
				choice += `,"stop_reason":` + pick("null", "7", `"s"`)
			}
			choices = append(choices, choice+`,"finish_reason":null}`)
		}
		top := pick("", "", "", `"system_fingerprint":"fp",`, `"system_fingerprint":null,`, `"x":{"y":1.0},`, `"usage":null,`)
		list = append(list, `{`+frame+top+`"choices":[`+strings.Join(choices, ",")+`]}`)
	}
	for i := range n {
		list = append(list, fmt.Sprintf(`{%s"choices":[{"index":%d,"delta":{},"finish_reason":"%s"}]}`, frame, i, pick("stop", "length", "tool_calls")))
	}
	if r.IntN(2) == 0 {
		list = append(list, usage)
	}
	return list
}

func TestAssemblyEqualsAReferenceOfMaps(t *testing.T) {
	const rounds = 800
	for seed := range uint64(rounds) {
		list := chunks(rand.New(rand.NewPCG(seed, 10)))
		ref := reference{top: map[string]json.RawMessage{}, choices: map[int]*refChoice{}}
		for _, c := range list {
			ref.add(t, c)
		}
		got := assembled(t, llm.Chat, lines(append(list, "[DONE]")...))
		if got.Kind != "" || got.Fault != "" {
			t.Fatalf("seed %d: %s%s", seed, got.Kind, got.Fault)
		}
		if want := ref.answer(); !sameJSON(t, got.Out, want) {
			t.Fatalf("seed %d: %s", seed, cmp.Diff(valueOf(t, want), valueOf(t, got.Out)))
		}
	}
}
