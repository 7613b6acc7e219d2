package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
)

// outcome is what a client and the record get of one upstream stream.
type outcome struct {
	Out   string
	Fault string // the upstream's error object
	Kind  string // of another error
	Seen  llm.Seen
}

var generated = regexp.MustCompile(`"(chatcmpl-|cmpl-|call_)[A-Z2-7]{26}"`)

// play feeds the pieces of a stream, each in one read, and then the end of the body. Generated ids are made the same.
func play(s llm.Stream, pieces ...[]byte) (o outcome) {
	var err error
	var out []byte
	for _, p := range pieces {
		for len(p) > 0 && err == nil {
			n := copy(s.Space(), p)
			p = p[n:]
			var b []byte
			b, err = s.Feed(n)
			out = append(out, b...)
		}
	}
	if err == nil {
		var b []byte
		b, err = s.End()
		out = append(out, b...)
	}
	o.Out, o.Seen = generated.ReplaceAllString(string(out), `"$1*"`), *s.Seen()
	if f, ok := errors.AsType[*llm.Fault](err); ok {
		o.Fault = string(f.Data)
	} else if err != nil {
		o.Kind = llm.KindOf(err).String()
	}
	return o
}

const (
	asStream = `{"model":"m","stream":true,"messages":[{}]}`
	asUsage  = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{}]}`
	asWhole  = `{"model":"m","messages":[{}]}`
)

// frame gives chunks what all good ones have.
const frame = `"id":"c1","object":"chat.completion.chunk","created":7,"model":"up",`

func lines(payloads ...string) string {
	var b strings.Builder
	for _, p := range payloads {
		b.WriteString("data: " + p + "\n\n")
	}
	return b.String()
}

func delta(d string) string {
	return `{` + frame + `"choices":[{"index":0,"delta":` + d + `,"finish_reason":null}]}`
}

func finish(reason string) string {
	return `{` + frame + `"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

const usage = `{` + frame + `"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`

// streams are transcripts by name: what came, and what must go to the client.
var streams = []struct {
	name, ask, in string
	want          outcome
}{
	{"whole events go on as they were", asStream,
		lines(delta(`{"role":"assistant","content":""}`), delta(`{"content":"a"}`), delta(`{"content":"b\u00e9\n"}`), finish("stop"), "[DONE]"),
		outcome{Out: lines(delta(`{"role":"assistant","content":""}`), delta(`{"content":"a"}`), delta(`{"content":"b\u00e9\n"}`), finish("stop"), "[DONE]")}},
	{"other fields of an event and comments between go on, comments before content do not", asStream,
		": waiting\n\n: OPENROUTER\n\nid: 1\ndata:" + delta(`{"content":"a"}`) + "\n\n: ping\n\n" + lines(finish("stop")) + ": bye\n\ndata: [DONE]\n\n: late\n\n",
		outcome{Out: "id: 1\ndata:" + delta(`{"content":"a"}`) + "\n\n: ping\n\n" + lines(finish("stop")) + ": bye\n\ndata: [DONE]\n\n"}},
	{"C024 a proper end in the middle of an answer", asStream, lines(delta(`{"content":"one two"}`)),
		outcome{Out: lines(delta(`{"content":"one two"}`)), Kind: "stalled"}},
	{"F23 an end mark without a finish", asStream, lines(delta(`{"content":"one two"}`), "[DONE]"),
		outcome{Out: lines(delta(`{"content":"one two"}`)), Kind: "stalled"}},
	{"an empty finish_reason is none", asStream, lines(strings.Replace(delta(`{"content":"a"}`), "null", `""`, 1)),
		outcome{Out: lines(strings.Replace(delta(`{"content":"a"}`), "null", `""`, 1)), Kind: "stalled"}},
	{"C027 a finish without an end mark", asStream, lines(delta(`{"content":"ok"}`), finish("stop")),
		outcome{Out: lines(delta(`{"content":"ok"}`), finish("stop"), "[DONE]")}},
	{"F26 data after the end, and a second end", asStream, lines(delta(`{"content":"a"}`), finish("stop"), "[DONE]", delta(`{"content":"b"}`), "[DONE]") + "data: {broken\n\n",
		outcome{Out: lines(delta(`{"content":"a"}`), finish("stop"), "[DONE]")}},
	{"C010 no empty line at the end", asStream, lines(delta(`{"content":"a"}`)) + "data: " + finish("stop"),
		outcome{Out: lines(delta(`{"content":"a"}`), finish("stop"), "[DONE]")}},
	{"C010 an end mark without its line", asStream, lines(delta(`{"content":"a"}`), finish("stop")) + "data: [DONE]",
		outcome{Out: lines(delta(`{"content":"a"}`), finish("stop"), "[DONE]")}},
	{"C010 half an event at the end", asStream, lines(delta(`{"content":"a"}`)) + `data: {"cho`,
		outcome{Out: lines(delta(`{"content":"a"}`)), Kind: "stalled"}},
	{"C010 half an event after the finish tells nothing", asStream, lines(delta(`{"content":"a"}`), finish("stop")) + "data: " + delta(`{"content":"b"}`)[:130],
		outcome{Out: lines(delta(`{"content":"a"}`), finish("stop"), "[DONE]")}},
	{"C010 a finish in half an event is none", asStream, lines(delta(`{"content":"a"}`)) + "data: " + strings.TrimSuffix(finish("stop"), "}"),
		outcome{Out: lines(delta(`{"content":"a"}`)), Kind: "stalled"}},
	{"C011 every kind of line end", asStream,
		"data: " + delta(`{"content":"a"}`) + "\r\n\r\ndata: " + delta(`{"content":"b"}`) + "\r\rdata: " + delta(`{"content":"c"}`) + "\n\r\n" + lines(finish("stop"), "[DONE]"),
		outcome{Out: lines(delta(`{"content":"a"}`), delta(`{"content":"b"}`), delta(`{"content":"c"}`), finish("stop"), "[DONE]")}},
	{"C017 characters of several bytes", asStream, "\ufeff" + lines(delta(`{"content":"北京 🌍"}`), finish("stop")),
		outcome{Out: lines(delta(`{"content":"北京 🌍"}`), finish("stop"), "[DONE]")}},
	{"C025 JSON over several data lines", asStream,
		"data: {" + frame + "\ndata: \"choices\":[{\"index\":0,\ndata: \"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\n",
		outcome{Out: lines(`{`+frame+` "choices":[{"index":0, "delta":{"content":"Hi"},"finish_reason":"stop"}]}`, "[DONE]")}},
	{"C018 a usage chunk with empty choices", asUsage, lines(finish("stop"), usage, "[DONE]"), outcome{Out: lines(finish("stop"), usage, "[DONE]")}},
	{"C018 a usage chunk without choices", asUsage, lines(finish("stop"), strings.Replace(usage, `"choices":[],`, "", 1), "[DONE]"),
		outcome{Out: lines(finish("stop"), `{"choices":[],`+frame+`"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`, "[DONE]")}},
	{"C018 a usage chunk with null choices", asUsage, lines(finish("stop"), strings.Replace(usage, `[]`, "null", 1), "[DONE]"), outcome{Out: lines(finish("stop"), usage, "[DONE]")}},
	{"C018 a usage chunk of nothing else", asUsage, lines(finish("stop"), `{"usage":{"prompt_tokens":3,"completion_tokens":1}}`),
		outcome{Out: lines(finish("stop"), `{"id":"c1","created":7,"object":"chat.completion.chunk","choices":[],"model":"shown","usage":{"prompt_tokens":3,"completion_tokens":1}}`, "[DONE]")}},
	{"the usage chunk is hidden from who did not ask", asStream, lines(delta(`{"content":"a"}`), finish("stop"), usage, "[DONE]"),
		outcome{Out: lines(delta(`{"content":"a"}`), finish("stop"), "[DONE]")}},
	{"usage beside choices is no usage chunk", asStream, lines(`{` + frame + `"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`),
		outcome{Out: lines(`{`+frame+`"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`, "[DONE]")}},
	{"C161 reasoning under any name goes on", asStream,
		lines(delta(`{"role":"assistant","reasoning":"a"}`), delta(`{"reasoning":"b"}`), delta(`{"reasoning_content":"c","content":""}`), finish("stop")),
		outcome{Out: lines(delta(`{"role":"assistant","reasoning":"a"}`), delta(`{"reasoning":"b"}`), delta(`{"reasoning_content":"c","content":""}`), finish("stop"), "[DONE]")}},
	{"C165 ids and times that change become one", asStream,
		lines(`{"id":"x1","created":0,"object":"chat.completion.chunk","model":"/models/foo.gguf","choices":[{"index":0,"delta":{"content":"a"}}]}`,
			`{"id":"x2","created":9,"model":"up","choices":[{"index":0,"delta":{"content":"b"}}]}`,
			`{"created":8,"object":"","model":"","id":null,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`),
		outcome{Out: lines(`{"id":"x1","created":946684800,"object":"chat.completion.chunk","model":"shown","choices":[{"index":0,"delta":{"content":"a"}}]}`,
			`{"object":"chat.completion.chunk","id":"x1","created":946684800,"model":"up","choices":[{"index":0,"delta":{"content":"b"}}]}`,
			`{"created":946684800,"object":"chat.completion.chunk","model":"shown","id":"x1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, "[DONE]")}},
	{"C165 no id at all", asStream, lines(`{"choices":[{"delta":{"content":"a"}}]}`, `{"id":"late","choices":[{ "delta":{},"finish_reason":"stop"}]}`),
		outcome{Out: lines(`{"id":"chatcmpl-*","created":946684800,"object":"chat.completion.chunk","model":"shown","choices":[{"index":0,"delta":{"content":"a"}}]}`,
			`{"created":946684800,"object":"chat.completion.chunk","model":"shown","id":"chatcmpl-*","choices":[{"index":0, "delta":{},"finish_reason":"stop"}]}`, "[DONE]")}},
	{"choices that lack an index are numbered by their place", asStream,
		lines(`{` + frame + `"choices":[{"delta":{"content":"a"},"finish_reason":"stop"},{"index":null,"delta":{"content":"b"},"finish_reason":"stop"}, { } ]}`),
		outcome{Out: lines(`{` + frame + `"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"},{"index":1,"delta":{"content":"b"},"finish_reason":"stop"}, {"index":2 } ]}`), Kind: "stalled"}},
	{"C158 several choices, each with its own finish", asUsage,
		lines(`{`+frame+`"choices":[{"index":1,"delta":{"content":"b"},"logprobs":{"content":[{"token":"b"}]}}]}`, `{`+frame+`"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`),
		outcome{Out: lines(`{`+frame+`"choices":[{"index":1,"delta":{"content":"b"},"logprobs":{"content":[{"token":"b"}]}}]}`, `{`+frame+`"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`), Kind: "stalled"}},
	{"C009 an error as the first event", asStream, lines(`{"error":{"object":"error","message":"The model is not multimodal.","type":"BadRequestError","param":null,"code":400}}`, "[DONE]"),
		outcome{Fault: `{"error":{"object":"error","message":"The model is not multimodal.","type":"BadRequestError","param":null,"code":400}}`}},
	{"C009 a flat error", asStream, lines(`{"object":"error","message":"m","type":"BadRequestError","param":null,"code":400}`),
		outcome{Fault: `{"object":"error","message":"m","type":"BadRequestError","param":null,"code":400}`}},
	{"an event with the name error", asStream, lines(delta(`{"content":"a"}`)) + "event: error\ndata: {\"message\":\"m\"}\n\n",
		outcome{Out: lines(delta(`{"content":"a"}`)), Fault: `{"message":"m"}`}},
	{"an error after content: what came before goes out", asStream, lines(delta(`{"content":"a"}`), `{"error":"boom"}`, delta(`{"content":"b"}`)),
		outcome{Out: lines(delta(`{"content":"a"}`)), Fault: `{"error":"boom"}`}},
	{"C009 error null is no error", asStream, lines(`{"error":null,` + finish("stop")[1:]), outcome{Out: lines(`{"error":null,`+finish("stop")[1:], "[DONE]")}},
	{"an event that is not JSON", asStream, lines(delta(`{"content":"a"}`), `{"choices":[{"delta":{"content":"b"`, finish("stop")),
		outcome{Out: lines(delta(`{"content":"a"}`)), Kind: "stalled"}},
	{"an event that is JSON but no object", asStream, lines(delta(`{"content":"a"}`), `[]`), outcome{Out: lines(delta(`{"content":"a"}`)), Kind: "stalled"}},
	{"no choice ever", asStream, lines("[DONE]"), outcome{Kind: "refused"}},
	{"no event ever", asStream, ": hi\n\n", outcome{Kind: "refused"}},
	{"nothing", asStream, "", outcome{Kind: "refused"}},
	{"an empty object", asStream, lines(`{ }`, finish("stop")),
		outcome{Out: lines(`{"id":"chatcmpl-*","created":946684800,"object":"chat.completion.chunk","choices":[],"model":"shown" }`,
			strings.NewReplacer(`"c1"`, `"chatcmpl-*"`, `:7,`, `:946684800,`).Replace(finish("stop")), "[DONE]")}},
	{"empty data lines", asStream, "data\n\ndata:  \n\n" + lines(finish("stop")), outcome{Out: lines(finish("stop"), "[DONE]")}},
	{"progress that the client asked for itself goes on", asStream, lines(`{`+frame+`"choices":[],"prompt_progress":{"total":9,"processed":4}}`, finish("stop")),
		outcome{Out: lines(`{`+frame+`"choices":[],"prompt_progress":{"total":9,"processed":4}}`, finish("stop"), "[DONE]")}},
	{"a proper finish without content is an answer", asStream, lines(finish("stop")), outcome{Out: lines(finish("stop"), "[DONE]")}},
}

func TestStreamsGoOnMended(t *testing.T) {
	for _, c := range streams {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // times are made by a clock that stands
				r := decode(t, llm.Chat, c.ask)
				start := func() llm.Stream { return Dialect{}.Stream(r, "shown") }
				in := []byte(c.in)
				whole := play(start(), in)
				got := whole
				got.Seen = llm.Seen{}
				if d := cmp.Diff(c.want, got); d != "" {
					t.Fatal(d)
				}
				for i := range in {
					if got := play(start(), in[:i], in[i:]); got != whole {
						t.Fatalf("split at %d: %s", i, cmp.Diff(whole, got))
					}
				}
				if got := play(start(), slices.Collect(slices.Chunk(in, 1))...); got != whole {
					t.Fatalf("byte by byte: %s", cmp.Diff(whole, got))
				}
				for _, p := range payloads(t, got.Out) {
					if p != "[DONE]" && !json.Valid([]byte(p)) {
						t.Errorf("%s is not valid JSON", p)
					}
				}
			})
		})
	}
}

// payloads returns the data of a stream that must be of plain form.
func payloads(t *testing.T, stream string) (list []string) {
	t.Helper()
	if stream != "" && !strings.HasSuffix(stream, "\n\n") {
		t.Errorf("the stream ends in the middle of an event: %q", stream)
	}
	for _, event := range strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		for _, line := range strings.Split(event, "\n") {
			if v, ok := strings.CutPrefix(line, "data:"); ok {
				list = append(list, strings.TrimPrefix(v, " "))
			}
		}
	}
	return list
}

func TestEachReadIsForwardedAtOnce(t *testing.T) { // C003, C026
	s := Dialect{}.Stream(decode(t, llm.Chat, asStream), "shown")
	for _, step := range []struct{ read, want string }{
		{lines(delta(`{"content":"a"}`))[:30], ""},
		{lines(delta(`{"content":"a"}`))[30:], lines(delta(`{"content":"a"}`))},
		{lines(delta(`{"content":"b"}`), delta(`{"content":"c"}`)) + "data", lines(delta(`{"content":"b"}`), delta(`{"content":"c"}`))},
		{lines(delta(`{"content":"d"}`))[4:], lines(delta(`{"content":"d"}`))},
	} {
		n := copy(s.Space(), step.read)
		out, err := s.Feed(n)
		if err != nil || string(out) != step.want {
			t.Errorf("after %q: got %q, %v, want %q", step.read, out, err, step.want)
		}
	}
}

func TestUntouchedEventsAreNotCopied(t *testing.T) {
	s := Dialect{}.Stream(decode(t, llm.Chat, asStream), "shown")
	in := lines(delta(`{"content":"a"}`), delta(`{"content":"b"}`))
	space := s.Space()
	out, err := s.Feed(copy(space, in))
	if err != nil || string(out) != in || &out[0] != &space[0] {
		t.Errorf("got %q, %v: not the very bytes that were read", out, err)
	}
	for range 10 { // the buffers and the memo have their size
		_, _ = s.Feed(copy(s.Space(), in))
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = s.Feed(copy(s.Space(), in)) }); n > 0 {
		t.Errorf("a read of known chunks takes %v allocations", n)
	}
}

func TestStreamTellsWhatItSaw(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     llm.Seen
	}{
		{"a role is no content", lines(delta(`{"role":"assistant","content":""}`)), llm.Seen{Served: "up", Usage: llm.NoUsage}},
		{"null members are no content", lines(delta(`{"role":"assistant","content":null,"refusal":null,"tool_calls":[]}`)), llm.Seen{Served: "up", Usage: llm.NoUsage}},
		{"text", lines(delta(`{"content":"a"}`), delta(`{"content":"b"}`), delta(`{"content":""}`)), llm.Seen{Content: true, Events: 2, Served: "up", Usage: llm.NoUsage}},
		{"reasoning", lines(delta(`{"reasoning_content":"a"}`)), llm.Seen{Content: true, Events: 1, Served: "up", Usage: llm.NoUsage}},
		{"a tool call", lines(delta(`{"tool_calls":[{"index":0}]}`)), llm.Seen{Content: true, Events: 1, Served: "up", Usage: llm.NoUsage}},
		{"a finish without content", lines(finish("stop")), llm.Seen{Content: true, Finished: true, Served: "up", Usage: llm.NoUsage}},
		{"the end", lines(delta(`{"content":"a"}`), finish("stop"), usage, "[DONE]"),
			llm.Seen{Content: true, Finished: true, Done: true, Events: 1, Served: "up", Usage: llm.Usage{In: 3, Out: 1, Cached: -1, Reasoning: -1, Written: -1}}},
		{"details of usage", lines(finish("stop"), `{"usage":{"prompt_tokens":30,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":10},"completion_tokens_details":{"reasoning_tokens":5}}}`),
			llm.Seen{Content: true, Finished: true, Served: "up", Usage: llm.Usage{In: 30, Out: 20, Cached: 10, Reasoning: 5, Written: -1}}},
		{"usage that is absurd is unknown", lines(finish("stop"), `{"usage":{"prompt_tokens":-3,"completion_tokens":99999999999999,"prompt_tokens_details":null,"completion_tokens_details":7}}`),
			llm.Seen{Content: true, Finished: true, Served: "up", Usage: llm.NoUsage}},
		{"usage that is no object", lines(finish("stop"), `{"usage":7}`), llm.Seen{Content: true, Finished: true, Served: "up", Usage: llm.NoUsage}},
		{"timings", lines(`{"timings":{"cache_n":2,"prompt_n":100,"prompt_per_second":50.5,"predicted_n":4},` + finish("stop")[1:]),
			llm.Seen{Content: true, Finished: true, Served: "up", Usage: llm.Usage{In: 102, Out: 4, Cached: 2, Reasoning: -1, Written: -1}, PromptN: 100, Prefill: 50.5}},
		{"usage stands above timings", lines(`{"usage":{"prompt_tokens":7,"completion_tokens":8},"timings":{"cache_n":2,"prompt_n":1,"predicted_n":4},` + finish("stop")[1:]),
			llm.Seen{Content: true, Finished: true, Served: "up", Usage: llm.Usage{In: 7, Out: 8, Cached: -1, Reasoning: -1, Written: -1}, PromptN: 1}},
		{"progress that grows", lines(`{` + frame + `"choices":[],"prompt_progress":{"total":9,"cache":0,"processed":4}}`), llm.Seen{Progress: true, Served: "up", Usage: llm.NoUsage}},
		{"progress that says nothing", lines(`{` + frame + `"choices":[],"prompt_progress":null}`), llm.Seen{Served: "up", Usage: llm.NoUsage}},
		{"who answered, by the first chunk that says it", lines(`{"choices":[{"delta":{"content":"a"}}]}`, delta(`{"content":"a"}`), `{"model":"other","choices":[]}`),
			llm.Seen{Content: true, Events: 2, Served: "up", Usage: llm.NoUsage}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, ask := range []string{asUsage, asWhole} {
				s := Dialect{}.Stream(decode(t, llm.Chat, ask), "shown")
				if _, err := s.Feed(copy(s.Space(), c.in)); err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(c.want, *s.Seen()); d != "" {
					t.Errorf("%s: %s", ask, d)
				}
			}
		})
	}
}

func TestProgressIsLifeOnlyWhileItGrows(t *testing.T) {
	s := Dialect{}.Stream(decode(t, llm.Chat, asWhole), "shown")
	for _, step := range []struct {
		processed int
		want      bool
	}{{1, true}, {1, false}, {5, true}, {4, false}, {5, false}, {6, true}} {
		s.Seen().Progress = false
		in := lines(fmt.Sprintf(`{`+frame+`"choices":[],"prompt_progress":{"processed":%d}}`, step.processed))
		if _, err := s.Feed(copy(s.Space(), in)); err != nil || s.Seen().Progress != step.want {
			t.Errorf("at %d: got %v (%v), want %v", step.processed, s.Seen().Progress, err, step.want)
		}
	}
}

// forget makes the memo of a stream forget its frame.
func forget(s llm.Stream) {
	switch s := s.(type) {
	case *passing:
		s.lead = s.lead[:0]
	case *assembly:
		s.lead = s.lead[:0]
	}
}

// playSlowly is play with one event a read and a memo that never remembers.
func playSlowly(s llm.Stream, events []string) (o outcome) {
	slow := forgetful{s}
	var pieces [][]byte
	for _, e := range events {
		pieces = append(pieces, []byte(e))
	}
	return play(slow, pieces...)
}

type forgetful struct{ llm.Stream }

func (f forgetful) Feed(n int) ([]byte, error) {
	forget(f.Stream)
	return f.Stream.Feed(n)
}

// randomStream makes the events of a random stream: long runs of chunks of one frame, broken by all that servers do.
func randomStream(r *rand.Rand, completions bool) (events []string) {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	text := func() string {
		return pick("a", "b ", `\n`, `\"`, `\\`, `\u00e9`, `\ud83c`, `\udf0d`, "北", "🌍", "", "}", `]}`, `"}],`+"x", "data: ")
	}
	text = func(old func() string) func() string {
		return func() string {
			for {
				if t := old(); json.Valid([]byte(`"` + t + `"`)) {
					return t
				}
			}
		}
	}(text)
	head := pick(frame, frame, frame, `"id":"c1","created":7,"model":"up","system_fingerprint":"fp",`, `"model":"/m/x.gguf",`, ``)
	tail := pick("", "", `,"usage":null`, `,"service_tier":"default","obfuscation":"xyz"`)
	index := pick(`"index":0,`, `"index":0,`, `"index":0,`, "", `"index":1,`)
	member := pick("content", "content", "reasoning_content", "reasoning", "refusal")
	end := pick("\n\n", "\n\n", "\n\n", "\r\n\r\n", "\r\r")
	for range 1 + r.IntN(30) {
		if r.IntN(12) == 0 {
			member = pick("content", "reasoning_content", "x")
		}
		if r.IntN(20) == 0 {
			head = pick(frame, `"id":"c2","object":"chat.completion.chunk","created":8,"model":"other",`)
		}
		if r.IntN(20) == 0 {
			index = pick(`"index":0,`, `"index":1,`)
		}
		choice := index + `"delta":{"` + member + `":"` + text() + `"},"finish_reason":null`
		if completions {
			choice = index + `"text":"` + text() + `","logprobs":null,"finish_reason":null`
		}
		switch r.IntN(16) {
		case 0:
			choice = index + `"delta":{"role":"assistant","content":` + pick("null", `""`, `"a"`) + `}`
		case 1:
			choice = index + `"delta":{"tool_calls":[{"index":` + pick("0", "1") + `,"id":` + pick("null", `"a"`, `"b"`) + `,"function":{"name":"f","arguments":"` + text() + `"}}]}`
		case 2:
			choice = index + `"delta":{"content":"` + text() + `"},"logprobs":{"content":[{"token":"t","bytes":[1]}]},"stop_reason":` + pick("null", "5")
		case 3:
			choice = index + `"delta":{"content":"` + text() + `","reasoning":"` + text() + `"}`
		case 4:
			events = append(events, ": ping"+end)
		case 5:
			choice = index + `"text":"` + text() + `"`
		case 7:
			choice = index + `"delta":{"content":[{"type":"thinking","x":"` + text() + `"}]}`
		case 6:
			choice = index + `"delta":{"annotations":[1` + pick("", ",2") + `]}`
		}
		event := "data: {" + head + `"choices":[{` + choice + "}]" + tail + "}"
		if r.IntN(30) == 0 {
			event = strings.Replace(event, `"choices"`, "\ndata: \"choices\"", 1)
		}
		events = append(events, event+end)
	}
	for i := range 2 {
		if r.IntN(10) > 0 {
			events = append(events, fmt.Sprintf(`data: {%s"choices":[{"index":%d,"delta":{},"finish_reason":"stop"}]%s}%s`, head, i, tail, end))
		}
	}
	if r.IntN(2) == 0 {
		events = append(events, "data: "+usage+end)
	}
	if r.IntN(2) == 0 {
		events = append(events, "data: [DONE]"+end)
	}
	return events
}

func TestMemoChangesNothing(t *testing.T) {
	const rounds = 1_200
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(rounds) {
			r := rand.New(rand.NewPCG(seed, 8))
			completions := seed%4 == 0
			op, asks := llm.Chat, []string{asStream, asUsage, asWhole}
			if completions {
				op, asks = llm.Completions, []string{`{"model":"m","stream":true,"prompt":"a"}`, `{"model":"m","prompt":"a"}`}
			}
			events := randomStream(r, completions)
			for _, ask := range asks {
				req := decode(t, op, ask)
				want := playSlowly(Dialect{}.Stream(req, "shown"), events)
				in := []byte(strings.Join(events, ""))
				if got := play(Dialect{}.Stream(req, "shown"), in); got != want {
					t.Fatalf("seed %d, %s: %s\nof %s", seed, ask, cmp.Diff(want, got), in)
				}
				var pieces [][]byte
				for p := in; len(p) > 0; {
					n := 1 + r.IntN(min(len(p), 400))
					pieces, p = append(pieces, p[:n]), p[n:]
				}
				if got := play(Dialect{}.Stream(req, "shown"), pieces...); got != want {
					t.Fatalf("seed %d in pieces, %s: %s\nof %s", seed, ask, cmp.Diff(want, got), in)
				}
			}
		}
	})
}

func FuzzStream(f *testing.F) {
	for i, c := range streams {
		f.Add([]byte(c.in), uint64(i))
	}
	for seed := range uint64(20) {
		f.Add([]byte(strings.Join(randomStream(rand.New(rand.NewPCG(seed, 8)), seed%4 == 0), "")), seed)
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		if len(in) > 1<<12 {
			return // long inputs only cost time
		}
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 9))
			for _, ask := range []string{asStream, asUsage, asWhole} {
				req := decode(t, llm.Chat, ask)
				want := play(Dialect{}.Stream(req, "shown"), in)
				var pieces [][]byte
				for p := in; len(p) > 0; {
					n := 1 + r.IntN(min(len(p), 30))
					pieces, p = append(pieces, p[:n]), p[n:]
				}
				for _, split := range [][][]byte{pieces, slices.Collect(slices.Chunk(in, 1))} {
					if got := play(Dialect{}.Stream(req, "shown"), split...); got != want {
						t.Fatalf("%s split as %q: %s", ask, split, cmp.Diff(want, got))
					}
				}
				if ask == asWhole && want.Out != "" && !json.Valid([]byte(want.Out)) {
					t.Fatalf("the answer is not valid JSON: %s", want.Out)
				}
				if ask != asWhole {
					for _, p := range payloads(t, want.Out) {
						if p = strings.TrimSpace(p); p != "" && p != "[DONE]" && !json.Valid([]byte(p)) {
							t.Fatalf("%q went out", p)
						}
					}
				}
			}
		})
	})
}
