package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/config"
	"weir/internal/sim"
)

// broken is one row of faults.md's during: a stream that goes wrong once content was there.
type broken struct {
	name  string
	b     sim.Behaviour
	text  string // that a streaming client has by then; "": none, so that the next step answers
	kind  string // of the failed attempt
	code  string // in the one error of the stream, and of the answer where one step is all
	alone int    // the status of that answer
	took  time.Duration
	whole string // what an answer in one piece makes of it: empty: kind, "ok": nothing is wrong with it, "none": there is no such thing
}

// F21–F24, F28: after the first content there is one error and no finish, no other step, and the connection is not passed
// off as done; before it, and for clients who get one answer, the next step answers.
func TestF21ToF28DuringTheAnswer(t *testing.T) {
	const quick = 50 * time.Millisecond
	three := []string{"one ", "two ", "three"}
	stall := func(after int) sim.Behaviour {
		return sim.Behaviour{Deltas: three, Cut: &sim.Cut{After: after, Of: "chunks", How: "stall"}}
	}
	told := func(after int, body string) sim.Behaviour {
		return sim.Behaviour{Deltas: three, StreamError: &sim.StreamError{After: after, Error: []byte(body)}}
	}
	const e429, e529, e500 = `{"message":"slow down","code":429}`, `{"message":"Overloaded","type":"overloaded_error"}`, `{"message":"engine died","code":500}`
	for _, f := range []broken{
		{"F21 silence before the first of three", stall(0), "", "slow", "upstream_slow", 504, 2*time.Second + 250*time.Millisecond, ""},
		{"F21 silence after one of three", stall(1), "one ", "stalled", "upstream_stalled", 504, 3*time.Second + 250*time.Millisecond, "none"},
		{"F21 silence after two of three", stall(2), "one two ", "stalled", "upstream_stalled", 504, 3*time.Second + 250*time.Millisecond, "none"},
		{"F22 a broken line amid good ones", sim.Behaviour{Deltas: three, Insert: []sim.Insert{{After: 1, Raw: "data: {\"cho\n\n"}}}, "one ", "stalled", "incomplete_stream", 504, quick, "ok"},
		{"F22 a broken line first", sim.Behaviour{Deltas: three, Insert: []sim.Insert{{Raw: "data: {\"cho\n\n"}}}, "", "stalled", "incomplete_stream", 504, quick, "ok"},
		{"F23 no terminal event", sim.Behaviour{Deltas: three, SSE: sim.SSE{NoFinish: true, NoDone: true}}, "one two three", "stalled", "incomplete_stream", 504, quick, "ok"},
		{"F23 an end mark without a finish", sim.Behaviour{Deltas: three, SSE: sim.SSE{NoFinish: true}}, "one two three", "stalled", "incomplete_stream", 504, quick, "ok"},
		{"F24 429 after one", told(1, e429), "one ", "busy", "upstream_busy", 429, 350 * time.Millisecond, ""},
		{"F24 529 after two", told(2, e529), "one two ", "busy", "upstream_busy", 429, 350 * time.Millisecond, ""},
		{"F24 500 after one", told(1, e500), "one ", "refused", "upstream_refused", 502, quick, ""},
		{"F24 429 first", told(0, e429), "", "busy", "upstream_busy", 429, 350 * time.Millisecond, ""},
		{"F24 500 first", told(0, e500), "", "refused", "upstream_refused", 502, quick, ""},
		{"F16 a reset after one", sim.Behaviour{Deltas: three, Cut: &sim.Cut{After: 1, Of: "chunks", How: "rst"}}, "one ", "stalled", "incomplete_stream", 504, quick, "ok"},
	} {
		t.Run(f.name, f.run)
	}
}

func (f *broken) run(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: waysYAML("http", ""), sims: waysSims(&f.b)})
		for range 2 {
			for _, w := range ways() {
				if w.whole() && f.whole == "none" {
					continue
				}
				if f.once(t, g, w); t.Failed() {
					t.Logf("in the way: %v", w)
					return
				}
				g.forget()
			}
			g.rest()
		}
	})
}

func (f *broken) once(t *testing.T, g *gateway, w way) {
	t.Helper()
	start := time.Now()
	r := g.askWay(w)
	took, e := time.Since(start), g.end(r.id())
	if most := f.took * time.Duration(max(1, w.steps-1)); took > most {
		t.Errorf("I4: %v, want at most %v", took, most)
	}
	switch {
	case w.whole() && f.whole == "ok":
		if got := r.text(); got != "one two three" || len(e.Attempts) != 1 {
			t.Errorf("text %q: %s", got, e.Raw)
		}
	case w.stream && f.text != "":
		if fail := r.broke(f.text); fail.Code != f.code {
			t.Errorf("code %v, want %s", fail.Code, f.code)
		}
		if e.Kind != f.kind || e.Status != 200 || len(e.Attempts) != 1 || len(g.sims["ok"].Calls(""))+len(g.sims["s2"].Calls("")) > 0 || len(g.skips(r.id())) > 0 {
			t.Errorf("I3: another step after content: %s", e.Raw)
		}
	case w.steps == 1:
		if fail := r.failed(); r.status != f.alone || fail.Code != f.code || e.Kind != f.kind {
			t.Errorf("%d %s: %s", r.status, r.body, e.Raw)
		}
	default:
		if got := r.text(); !strings.HasPrefix(got, "healthy ") || !slices.Equal(g.skips(r.id())[:1], []string{fmt.Sprintf("failed %s-1/m %s", w.id(), f.kind)}) {
			t.Errorf("text %q, skipped %q", got, g.skips(r.id()))
		}
	}
}

// F24: an overload inside a stream cannot make Weir loop: one second later it does nothing any more.
func TestF24NoLoopAfterAnOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: steps(1), sims: scripts(&sim.Behaviour{StreamError: &sim.StreamError{Error: []byte(`{"message":"slow down","code":429}`)}})})
		for range 50 {
			g.chat(true).failed()
		}
		n := len(g.sims["s1"].Calls(""))
		time.Sleep(10 * time.Second)
		if got := len(g.sims["s1"].Calls("")); got != n || n > 100 || g.app.server.Running() != 0 {
			t.Errorf("%d calls, then %d; %d requests run", n, got, g.app.server.Running())
		}
	})
}

// F25: who asks for one pool's model by its id has one step: no other is tried, before content or after it.
func TestF25OneStepAlone(t *testing.T) {
	for name, b := range map[string]sim.Behaviour{
		"refused":         {Status: 500},
		"cut":             {Deltas: []string{"one ", "two"}, Cut: &sim.Cut{After: 1, Of: "chunks", How: "rst"}},
		"cut, no content": {Cut: &sim.Cut{Of: "chunks", How: "fin"}},
		"an error event":  {Deltas: []string{"one ", "two"}, StreamError: &sim.StreamError{After: 1, Error: []byte(`{"code":500,"message":"x"}`)}},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, stream %v", name, stream), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					g := begin(t, setup{yaml: steps(3), sims: scripts(&b, &sim.Behaviour{}, &sim.Behaviour{})})
					for range 2 {
						r := g.askFor("s1/m", stream)
						if r.said().failure == nil {
							t.Errorf("no error: %s", r.body)
						}
						if e := g.end(r.id()); len(e.Attempts) != 1 || g.callsOf("s1", r.id()) != 1 {
							t.Errorf("%s", e.Raw)
						}
					}
					if n := len(g.sims["s2"].Calls("")) + len(g.sims["s3"].Calls("")); n != 0 {
						t.Errorf("%d calls at other steps", n)
					}
				})
			})
		}
	}
}

// F26: what comes after the end, or a second end, is dropped.
func TestF26NothingAfterTheEnd(t *testing.T) {
	for name, sse := range map[string]sim.SSE{
		"twice": {Twice: true}, "content after the end": {AfterDone: true}, "both": {Twice: true, AfterDone: true}, "in one write": {Twice: true, AfterDone: true, OneBlob: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{yaml: waysYAML("http", ""), sims: waysSims(&sim.Behaviour{Deltas: []string{"one ", "two"}, SSE: sse})})
				for range 2 {
					for _, w := range ways() {
						r := g.askWay(w)
						if got := r.text(); got != "one two" || r.header.Get("X-Weir-Attempts") != "1" {
							t.Errorf("%v: text %q", w, got)
						}
						if e := g.end(r.id()); e.Kind != "" || e.Attempts[0].Kind != "" {
							t.Errorf("%v: %s", w, e.Raw)
						}
					}
				}
			})
		})
	}
}

// F28: arguments of a tool call that are cut amid their JSON are never half a call: an error in the stream, the next
// step's answer, or 502. A model that ends properly with broken arguments has answered.
func TestF28ArgumentsCutShort(t *testing.T) {
	const stream = `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"weather","arguments":"{\"city\":"}}]},"finish_reason":null}]}` + "\n\n"
	const whole = `{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"weather","arguments":"{\"ci`
	const rest = `ty\":\"Bonn\"}"}}]},"finish_reason":"tool_calls"}]}`
	const tools = `"tools":[{"type":"function","function":{"name":"weather"}}]`
	for _, how := range []string{"fin", "rst", "end", "stall"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{yaml: waysYAML("http", ""), sims: waysSims(&sim.Behaviour{})})
				for range 2 {
					for _, w := range ways() {
						b := sim.Behaviour{Body: stream, Fill: true, Cut: &sim.Cut{After: 1 << 40, How: how}}
						if w.whole() {
							b = sim.Behaviour{Body: whole + rest, Headers: map[string]string{"Content-Type": "application/json"}, Cut: &sim.Cut{After: len(whole), How: how}}
						}
						for _, s := range []string{"s1", "s2"} {
							if err := g.sims[s].Set("m", b); err != nil {
								t.Fatal(err)
							}
						}
						r := g.askWay(w, tools)
						switch s := r.said(); {
						case w.stream:
							if s.failure == nil || len(s.finish) > 0 || s.calls[0] != `c1 weather{"city":` {
								t.Errorf("%v: call %q, finish %v, failure %+v", w, s.calls[0], s.finish, s.failure)
							}
						case w.steps == 1:
							if s.failure == nil || r.status != 502 && r.status != 504 || len(s.calls) > 0 {
								t.Errorf("%v: %d %s", w, r.status, r.body)
							}
						case !strings.HasPrefix(s.texts[0], "healthy"):
							t.Errorf("%v: %d %s", w, r.status, r.body)
						}
					}
					g.rest()
				}
			})
		})
	}
}

// F31: an answer that never stops ends at the total limit, streamed as one error, else as 504 or the next step's answer.
func TestF31EndlessAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: waysYAML("http", ""), sims: waysSims(&sim.Behaviour{Endless: true, Gap: 100 * time.Millisecond}), edit: func(c *config.Config) {
			c.Limits.Total = config.Duration(10 * time.Second)
			c.Limits.Answer = config.Duration(12 * time.Second)
		}})
		for range 2 {
			for _, w := range ways() {
				if w.whole() {
					continue // held by F17: the limit on whole answers
				}
				start := time.Now()
				r := g.askWay(w)
				s, took := r.said(), time.Since(start)
				if n := time.Duration(max(1, w.steps-1)); took > n*12*time.Second+time.Second {
					t.Errorf("%v: after %v", w, took)
				}
				switch {
				case w.stream && (s.failure == nil || len(s.texts[0]) == 0 || took > 11*time.Second):
					t.Errorf("%v: after %v: %+v", w, took, s.failure)
				case !w.stream && w.steps == 1 && r.status != 504:
					t.Errorf("%v: %d %s", w, r.status, r.body)
				case !w.stream && w.steps > 1 && !strings.HasPrefix(s.texts[0], "healthy"):
					t.Errorf("%v: %.200q", w, r.body)
				}
			}
		}
	})
}

// F32, I9: absurd usage is not believed: the answer is whole, and what is recorded is an estimate, marked as one.
func TestF32AbsurdUsage(t *testing.T) {
	for _, usage := range []string{"none", "negative", "huge", "partial", `{"prompt_tokens":"many","completion_tokens":null}`, `{"prompt_tokens":1e30,"completion_tokens":-0.5}`, `{}`} {
		t.Run(usage, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{yaml: waysYAML("http", ""), sims: waysSims(&sim.Behaviour{Deltas: []string{"one ", "two"}, Usage: usage})})
				for range 2 {
					for _, w := range ways() {
						r := g.askWay(w)
						if got := r.text(); got != "one two" {
							t.Errorf("%v: text %q", w, got)
						}
						e := g.end(r.id())
						for _, n := range []*int64{e.Tokens.In, e.Tokens.Out, e.Tokens.Cached, e.Tokens.Reasoning} {
							if n != nil && (*n < 0 || *n > 1<<40) {
								t.Errorf("%v: %d tokens: %s", w, *n, e.Raw)
							}
						}
						if e.Tokens.In == nil || usage != "partial" && !e.Tokens.Estimated {
							t.Errorf("%v: want an estimate: %s", w, e.Raw)
						}
					}
				}
			})
		})
	}
}

// F30, F33, F14, I10: a line of 64 MiB, a bomb, and headers without end are stopped at their bounds.
func TestF30F33WhatIsTooLarge(t *testing.T) {
	for name, b := range map[string]sim.Behaviour{
		"F30 a line of 64 MiB": {LineBytes: 64 << 20}, "F33 a gzip bomb": {Gzip: "bomb"}, "F33 a torn gzip": {Gzip: "cut", Chunks: 2000}, "F14 headers of 64 MiB": {HeaderBytes: 64 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			g := begin(t, setup{yaml: waysYAML("http", ""), sims: waysSims(&b)})
			for _, w := range ways() {
				if w.steps == 3 {
					continue
				}
				r := g.askWay(w)
				if w.steps == 2 {
					if got := r.text(); !strings.HasPrefix(got, "healthy") {
						t.Errorf("%v: text %q", w, got)
					}
					continue
				}
				if s := r.said(); s.failure == nil || s.done {
					t.Errorf("%v: %d %.200q", w, r.status, r.body)
				}
			}
			if name == "F30 a line of 64 MiB" {
				if rose := peak(func() { g.askFor("to-always-1-s", true) }); rose > 32<<20 { // the server's own buffers are in it
					t.Errorf("the heap rose by %d MiB", rose>>20)
				}
			}
		})
	}
}
