package app

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/sim"
)

// failedAttempt checks that the request is recorded as failed, against backend a.
func (g *gateway) failedAttempt(r *reply, kind string) {
	g.t.Helper()
	e := g.end(r.id())
	if e.Kind != kind {
		g.t.Errorf("the end event has kind %q, want %q: %s", e.Kind, kind, e.Raw)
	}
	if len(e.Attempts) == 0 || e.Attempts[0].Kind != kind || e.Attempts[0].Backend != "a" {
		g.t.Errorf("the attempt at a is not recorded as %s: %s", kind, e.Raw)
	}
}

// C003: a reset after "Hel" is an error frame, whatever breaks the connection and wherever.
func TestC003UpstreamResetIsAnErrorFrame(t *testing.T) {
	example := func(content string) string {
		return "HTTP/1.1 200 OK\ncontent-type: text/event-stream\n\n" +
			`data: {"choices":[{"index":0,"delta":{"role":"assistant",` + content + `},"finish_reason":null}]}` + "\n\n"
	}
	cut := func(after int, of, how string) sim.Behaviour {
		return sim.Behaviour{Deltas: []string{"Hel", "lo ", "you"}, Cut: &sim.Cut{After: after, Of: of, How: how}}
	}
	for _, c := range []struct {
		name string
		b    sim.Behaviour
		text string // that the client has before the error; "": none, so the status is still free
	}{
		{"the example", sim.Transcript(example(`"content":"Hel"`) + "<RST>"), "Hel"},
		{"reset before content", cut(0, "chunks", "rst"), ""},
		{"reset after the first delta", cut(1, "chunks", "rst"), "Hel"},
		{"reset after two deltas", cut(2, "chunks", "rst"), "Hello "},
		{"reset amid a delta", cut(600, "bytes", "rst"), "Hel"},
		{"closed after the first delta", cut(1, "chunks", "fin"), "Hel"},
		{"closed just before the finish", sim.Transcript(example(`"content":"all of it"`) + "<FIN>"), "all of it"},
	} {
		for _, k := range kindsOfAnswer[:2] {
			t.Run(c.name+", "+k.name, func(t *testing.T) {
				g := begin(t, setup{yaml: k.yaml, sims: oai(c.b)})
				r := g.chat(k.stream)
				if k.stream && c.text != "" {
					if f := r.broke(c.text); f.Code != "incomplete_stream" {
						t.Errorf("code %v", f.Code)
					}
					g.failedAttempt(r, "stalled")
					return
				}
				if f := r.failed(); r.status != 502 && r.status != 504 || strings.Contains(f.Message, "127.0.0.1") {
					t.Errorf("status %d, message %q", r.status, f.Message)
				}
				if c.text == "" {
					g.failedAttempt(r, "refused")
				} else {
					g.failedAttempt(r, "stalled")
				}
			})
		}
	}
	for _, how := range []string{"rst", "fin"} {
		t.Run("a whole answer cut by "+how, func(t *testing.T) {
			g := begin(t, setup{yaml: kindsOfAnswer[2].yaml, sims: oai(cut(100, "bytes", how))})
			r := g.chat(false)
			if r.failed(); r.status != 502 {
				t.Errorf("status %d, want 502", r.status)
			}
			g.failedAttempt(r, "refused")
		})
	}
}

// C005: what upstream says of its encoding, its length and its connection is never copied.
func TestC005BodyHeadersAreRecomputed(t *testing.T) {
	headers := map[string]string{
		"Keep-Alive": "timeout=5", "Connection": "X-Private", "X-Private": "1", "Proxy-Connection": "close", "Upgrade": "h2c",
		"Trailer": "X-Sum", "Set-Cookie": "a=b", "Server": "upstream", "Alt-Svc": `h3=":1"`,
	}
	for _, k := range kindsOfAnswer {
		t.Run(k.name, func(t *testing.T) {
			g := begin(t, setup{yaml: k.yaml, sims: oai(
				sim.Behaviour{Gzip: "ok", Text: "it is packed"}, sim.Behaviour{Text: "plain", Headers: headers}, sim.Behaviour{Gzip: "cut", Text: "torn"},
			)})
			for _, want := range []string{"it is packed", "plain"} {
				r := g.chat(k.stream)
				if got := r.text(); got != want {
					t.Errorf("text %q, want %q", got, want)
				}
				for h := range headers {
					if v := r.header.Get(h); v != "" {
						t.Errorf("the upstream's %s: %s reached the client", h, v)
					}
				}
			}
			if s := g.chat(k.stream).said(); s.failure == nil {
				t.Error("a torn gzip body passed as an answer")
			}
		})
	}
}

// C009: an error object as the first event of a 200 is a real HTTP error; after content it is the one in-stream error.
func TestC009ErrorInA200Stream(t *testing.T) {
	for _, c := range []struct {
		name, error string
		status      int
		message     string
	}{
		{"the example", `{"error":{"object":"error","message":"The model is not multimodal.","type":"BadRequestError","param":null,"code":400}}`, 400, "The model is not multimodal."},
		{"a code as text", `{"error":{"message":"bad value","type":"BadRequestError","code":"400"}}`, 400, "bad value"},
		{"a flat error", `{"object":"error","message":"bad value","type":"BadRequestError","param":null,"code":400}`, 400, "bad value"},
		{"a type alone", `{"error":{"message":"bad value","type":"invalid_request_error"}}`, 400, "bad value"},
		{"too long", `{"error":{"message":"The input (9000 tokens) is longer than the model's context length (8192 tokens).","code":400}}`, 400, "The input (9000 tokens) is longer than the model's context length (8192 tokens)."},
		{"a failure of the server", `{"error":{"message":"out of memory","type":"InternalServerError","code":500}}`, 502, "out of memory"},
		{"text alone", `{"error":"it broke"}`, 502, "it broke"},
	} {
		for _, k := range kindsOfAnswer {
			t.Run(c.name+", "+k.name, func(t *testing.T) {
				first := sim.Behaviour{Events: []string{c.error, "[DONE]"}}
				if k.name == "asked whole" {
					first = sim.Behaviour{Headers: map[string]string{"Content-Type": "application/json"}, Body: sim.Bytes(c.error), Status: 200}
				}
				g := begin(t, setup{yaml: k.yaml, sims: oai(first)})
				r := g.chat(k.stream)
				if f := r.failed(); r.status != c.status || f.Message != c.message {
					t.Errorf("status %d, message %q; want %d, %q", r.status, f.Message, c.status, c.message)
				}
			})
		}
	}
	t.Run("after content", func(t *testing.T) {
		g := begin(t, setup{sims: oai(sim.Behaviour{Deltas: []string{"one ", "two"}, StreamError: &sim.StreamError{After: 1, Done: true}})})
		r := g.chat(true)
		if f := r.broke("one "); !strings.Contains(f.Message, "overloaded") {
			t.Errorf("message %q", f.Message)
		}
	})
	t.Run("a null error beside choices is none", func(t *testing.T) {
		for _, k := range kindsOfAnswer[:2] {
			g := begin(t, setup{yaml: k.yaml, sims: oai(sim.Transcript(`data: {"error":null,"choices":[{"index":0,"delta":{"content":"fine"},"finish_reason":"stop"}]}

data: [DONE]

`))})
			if got := g.chat(k.stream).text(); got != "fine" {
				t.Errorf("%s: text %q", k.name, got)
			}
		}
	})
	t.Run("an overload goes to the next step", func(t *testing.T) {
		for _, k := range kindsOfAnswer[:2] {
			g := begin(t, setup{yaml: steps(2), sims: map[string]sim.Script{
				"s1": {On: map[string]sim.Sequence{"m": {{StreamError: &sim.StreamError{Done: true}}}}}, "s2": {On: map[string]sim.Sequence{"m": {{Text: "from the second"}}}},
			}})
			if got := g.chat(k.stream).text(); got != "from the second" {
				t.Errorf("%s: text %q", k.name, got)
			}
		}
	})
}

// C010: the last event needs no blank line when it is complete; an incomplete one is a truncated stream.
func TestC010LastEventWithoutBlankLine(t *testing.T) {
	const a = `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}` + "\n\n"
	const stop = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	for _, c := range []struct {
		name, body string
		whole      bool
	}{
		{"a complete event", a + stop, true},
		{"a complete event with its line's end", a + stop + "\n", true},
		{"a complete event with CR", a + stop + "\r", true},
		{"the end mark", a + stop + "\n\ndata: [DONE]", true},
		{"an incomplete event", a + `data: {"cho`, false},
		{"half a field", a + `dat`, false},
		{"an incomplete finish", a + stop[:len(stop)-1], false},
	} {
		for _, k := range kindsOfAnswer[:2] {
			t.Run(c.name+", "+k.name, func(t *testing.T) {
				g := begin(t, setup{yaml: k.yaml, sims: oai(sim.Transcript(c.body + "<END OF BODY>"))})
				r := g.chat(k.stream)
				switch {
				case c.whole:
					if got := r.text(); got != "a" {
						t.Errorf("text %q", got)
					}
				case k.stream:
					r.broke("a")
				default:
					r.failed()
				}
			})
		}
	}
}

// C011: LF, CR, CRLF and a mixture end lines; a CRLF torn by 200 ms is one; each delta is delivered at once.
func TestC011LineEndings(t *testing.T) {
	event := func(text string) string {
		return `data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"` + text + `"},"finish_reason":null}]}`
	}
	writes := func(pieces ...string) sim.Behaviour {
		return sim.Behaviour{Do: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, p := range append(pieces, strings.Replace(event("!"), "null}", `"stop"}`, 1)+"\r\n\r\n", "data: [DONE]\n\n") {
				fmt.Fprint(w, p)
				_ = http.NewResponseController(w).Flush()
				time.Sleep(200 * time.Millisecond)
			}
		}}
	}
	for _, c := range []struct {
		name string
		b    sim.Behaviour
		at   []int // steps of 200 ms at which a, b, c must have come
	}{
		{"one ending each", writes(event("a")+"\r\n\r\n", event("b")+"\r\r", event("c")+"\n\r\n"), []int{0, 1, 2}},
		{"CRLF torn in the middle", writes(event("a")+"\r", "\n\r\n"+event("b")+"\r\n\r", "\n"+event("c")+"\n\n"), []int{1, 1, 2}},
		{"CR alone", writes(event("a")+"\r", "\r", event("b")+"\r\r"+event("c")+"\r\r"), []int{1, 2, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{sims: oai(c.b)})
				start := time.Now()
				r := g.chat(true)
				if got := r.text(); got != "abc!" {
					t.Fatalf("text %q", got)
				}
				for i, want := range c.at {
					text := string('a' + rune(i))
					if got := r.when(`"content":"` + text + `"`).Sub(start); got != time.Duration(want)*200*time.Millisecond {
						t.Errorf("%s came after %v, want %v", text, got, time.Duration(want)*200*time.Millisecond)
					}
				}
			})
		})
		t.Run(c.name+", assembled", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{yaml: oneBackend(", stream: always"), sims: oai(c.b)})
				if got := g.chat(false).text(); got != "abc!" {
					t.Errorf("text %q", got)
				}
			})
		})
	}
	for _, ending := range []string{"lf", "cr", "crlf", "mixed"} {
		for _, k := range kindsOfAnswer[:2] {
			t.Run(ending+" byte by byte, "+k.name, func(t *testing.T) {
				g := begin(t, setup{yaml: k.yaml, sims: oai(sim.Behaviour{Text: "north wind", Slice: 1, SSE: sim.SSE{LineEnd: ending, BOM: true, Comments: true}})})
				if got := g.chat(k.stream).text(); got != "north wind" {
					t.Errorf("text %q", got)
				}
			})
		}
	}
}

// when returns the time at which text had come.
func (r *reply) when(text string) time.Time {
	r.t.Helper()
	end := strings.Index(string(r.body), text) + len(text)
	for i, n := range r.upTo {
		if n >= end && end >= len(text) {
			return r.at[i]
		}
	}
	r.t.Errorf("%q never came: %.300q", text, r.body)
	return time.Time{}
}

// C017: a character that is split between reads stays what it is, in text and in arguments.
func TestC017SplitCharacter(t *testing.T) {
	const text = "北京 🌍"
	for _, slice := range []int{1, 2, 3, 5} {
		for _, k := range kindsOfAnswer {
			t.Run(fmt.Sprintf("%d bytes a write, %s", slice, k.name), func(t *testing.T) {
				g := begin(t, setup{yaml: k.yaml, sims: oai(sim.Behaviour{Deltas: []string{text}, Slice: slice}, sim.Behaviour{
					Calls: []sim.Call{{Name: "weather", Arguments: `{"city":"` + text + `"}`}}, Slice: slice,
				})})
				if got := g.chat(k.stream).text(); got != text {
					t.Errorf("text %q, want %q", got, text)
				}
				s := g.chat(k.stream, `"tools":[{"type":"function","function":{"name":"weather"}}]`).said()
				if got := s.calls[0]; !strings.HasSuffix(got, `weather{"city":"`+text+`"}`) || s.finish[0] != "tool_calls" {
					t.Errorf("call %q, finish %q", got, s.finish[0])
				}
			})
		}
	}
}

// C018: a usage chunk without choices is mended for who asked for usage, hidden from who did not, and recorded.
func TestC018UsageChunk(t *testing.T) {
	for _, usage := range []string{`{"usage":`, `{"choices":[],"usage":`, `{"choices":null,"usage":`} {
		b := sim.Transcript(`data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}

data: ` + usage + `{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}

data: [DONE]

`)
		for _, asked := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s asked %v", usage, asked), func(t *testing.T) {
				g := begin(t, setup{sims: oai(b)})
				r := g.chat(true, fmt.Sprintf(`"stream_options":{"include_usage":%v}`, asked))
				s := r.said()
				if last := s.chunks[len(s.chunks)-1]; asked && (s.usage["prompt_tokens"] != 3.0 || last["choices"] == nil || len(last["choices"].([]any)) != 0) {
					t.Errorf("the last chunk is %v, want usage and an empty list of choices", last)
				}
				if !asked && s.usage != nil {
					t.Errorf("usage %v reached a client who did not ask", s.usage)
				}
				if e := g.end(r.id()); *e.Tokens.In != 3 || *e.Tokens.Out != 1 || e.Tokens.Estimated {
					t.Errorf("recorded tokens: %s", e.Raw)
				}
			})
		}
		t.Run(usage+" assembled", func(t *testing.T) {
			g := begin(t, setup{yaml: oneBackend(", stream: always"), sims: oai(b)})
			r := g.chat(false)
			if s := r.said(); s.usage["total_tokens"] != 4.0 || s.texts[0] != "a" {
				t.Errorf("answer %s", r.body)
			}
		})
	}
	t.Run("Weir asks for usage itself and keeps the other options", func(t *testing.T) {
		g := begin(t, setup{sims: oai(sim.Behaviour{Text: "a b"})})
		r := g.chat(true, `"stream_options":{"continuous":1}`)
		if s := r.said(); s.usage != nil {
			t.Errorf("usage %v reached a client who did not ask", s.usage)
		}
		body := string(g.sim().Calls("")[0].Body)
		if !strings.Contains(body, `"stream_options":{"include_usage":true,"continuous":1}`) {
			t.Errorf("upstream got %s", body)
		}
		if e := g.end(r.id()); *e.Tokens.Out != 2 || e.Tokens.Estimated {
			t.Errorf("recorded tokens: %s", e.Raw)
		}
	})
}

// C024: a clean end without a finish_reason is a truncated answer.
func TestC024CleanEndWithoutFinish(t *testing.T) {
	for _, c := range []struct{ name, path, body, text string }{
		{"the example", "/v1/chat/completions", `data: {"choices":[{"index":0,"delta":{"content":"one two"},"finish_reason":null}]}`, "one two"},
		{"with the end mark", "/v1/chat/completions", `data: {"choices":[{"index":0,"delta":{"content":"one two"},"finish_reason":null}]}` + "\n\ndata: [DONE]", "one two"},
		{"one choice of two", "/v1/chat/completions", `data: {"choices":[{"index":0,"delta":{"content":"one two"},"finish_reason":null},{"index":1,"delta":{"content":"x"},"finish_reason":"stop"}]}`, ""},
		{"a completion", "/v1/completions", `data: {"choices":[{"index":0,"text":"one two","finish_reason":null}]}`, "one two"},
	} {
		for _, k := range kindsOfAnswer[:2] {
			t.Run(c.name+", "+k.name, func(t *testing.T) {
				g := begin(t, setup{yaml: k.yaml, sims: oai(sim.Transcript(c.body + "\n\n<END OF BODY>"))})
				body := fmt.Sprintf(`{"model":"oai-m","prompt":"hi","messages":[{"role":"user","content":"hi"}],"stream":%v}`, k.stream)
				r := g.post(c.path, body)
				s := r.said()
				if s.failure == nil || s.failure.Code != "incomplete_stream" || s.done {
					t.Errorf("a truncated answer passed as whole: %s", r.body)
				}
				if k.stream && c.text != "" {
					r.broke(c.text)
				}
				g.failedAttempt(r, "stalled")
			})
		}
	}
}

// C025: one event over several data lines is one payload and leaves as one line.
func TestC025EventOverSeveralDataLines(t *testing.T) {
	example := sim.Transcript("event: message\ndata: {\"choices\":[{\"index\":0,\ndata: \"delta\":{\"content\":\"Hi\"},\ndata:\"finish_reason\":null}]}\n\n" +
		"data: {\ndata: \"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	for _, k := range kindsOfAnswer[:2] {
		t.Run(k.name, func(t *testing.T) {
			g := begin(t, setup{yaml: k.yaml, sims: oai(example, sim.Behaviour{Text: "so many lines", SSE: sim.SSE{Multiline: true, LineEnd: "crlf"}})})
			for _, want := range []string{"Hi", "so many lines"} {
				if got := g.chat(k.stream).text(); got != want {
					t.Errorf("text %q, want %q", got, want)
				}
			}
		})
	}
}

// C026: a chunk that comes every 100 ms leaves every 100 ms, with the headers that keep proxies from buffering.
func TestC026ChunksArriveWhenSent(t *testing.T) {
	for _, b := range []sim.Behaviour{
		{Chunks: 20, ChunkSize: 30, Gap: 100 * time.Millisecond},
		{Chunks: 20, ChunkSize: 30, Gap: 100 * time.Millisecond, SSE: sim.SSE{LineEnd: "crlf"}, Model: "/models/foo.gguf"}, // rewritten ones too
	} {
		synctest.Test(t, func(t *testing.T) {
			g := begin(t, setup{sims: oai(b)})
			r := g.chat(true)
			r.text()
			late := 0
			for i := 1; i < len(r.at); i++ {
				if gap := r.at[i].Sub(r.at[i-1]); gap > 110*time.Millisecond {
					late++
				}
			}
			if took := r.at[len(r.at)-1].Sub(r.at[0]); late > 0 || len(r.at) < 20 || took < 1900*time.Millisecond {
				t.Errorf("the stream came in %d reads over %v, %d late", len(r.at), took, late)
			}
			for h, want := range map[string]string{
				"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no", "Content-Length": "",
			} {
				if got := r.header.Get(h); !strings.HasPrefix(got, want) || want == "" && got != "" {
					t.Errorf("%s: %q, want %q", h, got, want)
				}
			}
		})
	}
}

// C027: a finish without the end mark is a success; Weir adds the mark.
func TestC027FinishWithoutDone(t *testing.T) {
	for _, c := range []struct{ path, body string }{
		{"/v1/chat/completions", `data: {"choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

<END OF BODY>`},
		{"/v1/completions", `data: {"choices":[{"index":0,"text":"ok","finish_reason":null}]}

data: {"choices":[{"index":0,"text":"","finish_reason":"length"}]}

<END OF BODY>`},
	} {
		for _, k := range kindsOfAnswer[:2] {
			t.Run(c.path+", "+k.name, func(t *testing.T) {
				g := begin(t, setup{yaml: k.yaml, sims: oai(sim.Transcript(c.body))})
				r := g.post(c.path, fmt.Sprintf(`{"model":"oai-m","prompt":"hi","messages":[{"role":"user","content":"hi"}],"stream":%v}`, k.stream))
				if got := r.text(); got != "ok" {
					t.Errorf("text %q", got)
				}
				if e := g.end(r.id()); e.Kind != "" || e.Status != 200 || e.Attempts[0].Kind != "" {
					t.Errorf("recorded as a failure: %s", e.Raw)
				}
			})
		}
	}
}

// A stream that was asked for and comes as one JSON answer is no stream: the client never gets bare JSON as events.
func TestWholeAnswerToAStream(t *testing.T) {
	g := begin(t, setup{sims: oai(sim.Behaviour{
		Headers: map[string]string{"Content-Type": "application/json"}, Status: 200,
		Body: `{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}`,
	})})
	r := g.chat(true)
	if s := r.said(); s.failure == nil && (!r.isStream() || s.texts[0] != "hi" || !s.done) {
		t.Errorf("answer %d %q", r.status, r.body)
	}
}
