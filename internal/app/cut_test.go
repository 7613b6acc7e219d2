package app

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/sim"
)

// long reports whether the long sweeps run (make test-long).
func long() bool { return os.Getenv("WEIR_LONG") != "" }

// known is what a client knows of one choice.
type known struct{ reasoning, text, call, finish string }

func (k known) plus(d known) known {
	return known{k.reasoning + d.reasoning, k.text + d.text, k.call + d.call, k.finish + d.finish}
}

// cutStream is a stream of about 4 KiB that holds all that a stream can, with what is known after each event.
type cutStream struct {
	body   string
	events []cutEvent
}

// cutEvent says where an event's line and its blank line end in the stream, and what a client knows then.
type cutEvent struct {
	line, end int
	known     known
}

func newCutStream() *cutStream {
	s := &cutStream{}
	var k known
	add := func(delta, finish string, d known) {
		if finish != "null" {
			finish = `"` + finish + `"`
		}
		s.event(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":`+delta+`,"finish_reason":`+finish+`}]}`, &k, d)
	}
	add(`{"role":"assistant","content":""}`, "null", known{})
	for _, w := range []string{"north ", "or ", "south? "} {
		add(`{"reasoning_content":"`+w+`"}`, "null", known{reasoning: w})
	}
	for _, w := range []string{"a ", "北京 🌍 ", "tail ", strings.Repeat("long ", 150), "b ", "c "} {
		add(`{"content":"`+w+`"}`, "null", known{text: w})
	}
	add(`{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"weather","arguments":""}}]}`, "null", known{call: "call_1 weather"})
	for _, w := range []string{`{"city":`, `"Köln",`, `"days":[1,2`, `,3]}`} {
		add(`{"tool_calls":[{"index":0,"function":{"arguments":`+quoted(w)+`}}]}`, "null", known{call: w})
	}
	add(`{}`, "tool_calls", known{finish: "tool_calls"})
	s.event(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":14,"total_tokens":17}}`, &k, known{})
	s.event("[DONE]", &k, known{})
	return s
}

func quoted(s string) string { return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"` }

func (s *cutStream) event(data string, k *known, d known) {
	*k = k.plus(d)
	s.body += "data: " + data
	e := cutEvent{line: len(s.body), known: *k}
	s.body += "\n\n"
	e.end = len(s.body)
	s.events = append(s.events, e)
}

// within returns what a client may know when the stream was cut after n bytes: at least the events that were whole, at
// most also one whose line was whole; after a reset less may have arrived.
func (s *cutStream) within(n int, how string) (list []known) {
	list = append(list, known{})
	for _, e := range s.events {
		if e.line > n {
			break
		}
		if e.end <= n && how != "rst" {
			list = list[:0]
		}
		list = append(list, e.known)
	}
	return list
}

// F20, F28, I2, I5, I6: wherever and however a stream is cut, a client gets the next step's answer, or whole events and
// then one error; a cut after the finish may also be a whole answer. Nothing that was cut looks finished.
func TestF20CutAtEveryByte(t *testing.T) {
	s := newCutStream()
	if len(s.body) < 3<<10 || len(s.body) > 5<<10 {
		t.Fatalf("the stream has %d bytes", len(s.body))
	}
	step := max(1, len(s.body)/64)
	if long() {
		step = 1
	}
	for _, how := range []string{"fin", "end", "rst"} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, stream %v", how, stream), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := begin(t, setup{yaml: steps(2), sims: scripts(&sim.Behaviour{}, &sim.Behaviour{Text: "from the second"})})
					for n := 0; n <= len(s.body) && !t.Failed(); n += step {
						g.cutAt(s, n, how, stream)
						time.Sleep(3 * time.Minute) // longer than any penalty: the first step is tried again each time
					}
				})
			})
		}
	}
}

// cutAt asks once, cuts the first step's stream after n bytes, and checks what the client got.
func (g *gateway) cutAt(s *cutStream, n int, how string, stream bool) {
	g.t.Helper()
	if err := g.sims["s1"].Set("m", sim.Behaviour{Body: sim.Bytes(s.body), Cut: &sim.Cut{After: n, How: how}}); err != nil {
		g.t.Fatal(err)
	}
	r := g.chat(stream, `"tools":[{"type":"function","function":{"name":"weather"}}]`)
	a := r.said()
	got := known{a.reasoning[0], a.texts[0], a.calls[0], a.finish[0]}
	may := s.within(n, how)
	first, last := may[0], may[len(may)-1]
	failed := a.failure != nil
	switch {
	case failed && r.status != 200:
		g.t.Errorf("%s after %d bytes: an error with status %d although another step was there: %s", how, n, r.status, r.body)
	case got.text == "from the second":
		if stream && first != (known{}) || !stream && how == "end" && first.finish != "" {
			g.t.Errorf("%s after %d bytes: the second step answered although the client had content, or the answer was whole", how, n)
		}
	case failed == (got.finish != ""):
		g.t.Errorf("%s after %d bytes: failed is %v and the finish is %q: want exactly one end: %s", how, n, failed, got.finish, r.body)
	case !failed && last.finish == "":
		g.t.Errorf("%s after %d bytes: what was cut looks whole: %s", how, n, r.body)
	case failed && how == "end" && first.finish != "":
		g.t.Errorf("%s after %d bytes: a whole answer without its end mark was refused: %s", how, n, r.body)
	default:
		if !contains(may, got) {
			g.t.Errorf("%s after %d bytes: the client knows %+v, want one of %+v", how, n, got, may)
		}
	}
}

func contains(list []known, k known) bool {
	for _, l := range list {
		if l == k {
			return true
		}
	}
	return false
}

// I2: what breaks after the finish was lost behind a whole answer: no client gets a finish and then an error.
func TestNothingAfterTheFinishIsAnError(t *testing.T) {
	const behind = 1 << 40 // every end
	const chunk = `data: {"choices":[{"index":0,"delta":{"content":"whole"},"finish_reason":null}]}` + "\n\n" +
		`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	for name, b := range map[string]sim.Behaviour{
		"a lost connection": {Body: chunk, Cut: &sim.Cut{After: behind, How: "fin"}},
		"a reset":           {Body: chunk, Cut: &sim.Cut{After: behind, How: "rst"}},
		"silence":           {Body: chunk, Cut: &sim.Cut{After: behind, How: "stall"}},
		"half an event":     {Body: chunk + "data: {\"choi", Cut: &sim.Cut{After: behind, How: "fin"}},
		"a broken event":    {Body: chunk + "data: {\"choices\":[}\n\ndata: [DONE]\n\n"},
		"an error event":    {Body: chunk + "data: {\"error\":{\"message\":\"too late\",\"code\":500}}\n\n"},
		"all in one write":  {Body: chunk + "data: {\"error\":{\"message\":\"too late\",\"code\":500}}\n\n", SSE: sim.SSE{OneBlob: true}},
	} {
		for _, k := range kindsOfAnswer[:2] {
			t.Run(name+", "+k.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b.Fill = true
					g := begin(t, setup{yaml: k.yaml, sims: oai(b)})
					r := g.chat(k.stream)
					if got := r.text(); got != "whole" {
						t.Errorf("text %q", got)
					}
					if e := g.end(r.id()); e.Kind != "" || e.Attempts[0].Kind != "" {
						t.Errorf("recorded as a failure: %s", e.Raw)
					}
				})
			})
		}
	}
	t.Run("of several choices one may not have begun", func(t *testing.T) {
		g := begin(t, setup{sims: oai(sim.Behaviour{Body: chunk, Fill: true, Cut: &sim.Cut{After: behind, How: "fin"}})})
		if s := g.chat(true, `"n":2`).said(); s.failure == nil || s.done {
			t.Error("one choice of two passed as a whole answer")
		}
	})
}

// A finish that comes again is told once, and a server that writes one into every chunk has not ended by it (F26).
func TestFinishThatComesAgain(t *testing.T) {
	const behind = 1 << 40 // every end
	chunk := func(text, finish string) string {
		return `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"` + text + `"},"finish_reason":` + finish + `}]}` + "\n\n"
	}
	eager := chunk("one ", `"stop"`) + chunk("two ", `"stop"`) + chunk("three", `"stop"`)
	for _, k := range kindsOfAnswer[:2] {
		t.Run(k.name, func(t *testing.T) {
			g := begin(t, setup{yaml: k.yaml, sims: oai(sim.Behaviour{Text: "once", SSE: sim.SSE{Twice: true}}, sim.Behaviour{Body: sim.Bytes(eager)},
				sim.Behaviour{Body: sim.Bytes(eager[:len(eager)-20]), Cut: &sim.Cut{After: behind, How: "fin"}})})
			for _, want := range []string{"once", "one two three"} {
				if got := g.chat(k.stream).text(); got != want {
					t.Errorf("text %q, want %q", got, want)
				}
			}
			if s := g.chat(k.stream).said(); s.failure == nil || s.done {
				t.Error("a cut answer passed as whole")
			}
		})
	}
}
