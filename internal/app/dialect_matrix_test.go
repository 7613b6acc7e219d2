package app

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"weir/internal/event"
	"weir/internal/sim"
)

// bridge is a configuration of a backend s1 that speaks b, and of a route over it and a healthy s2 that speaks Chat
// Completions. The alias alone has no second step.
func bridge(b *api, more string) string {
	return `
backends:
  s1: {url: "http://s1.sim", tier: gpu, ` + b.yaml + more + `}
  s2: {url: "http://s2.sim", tier: gpu}
pools:
  s1: {backend: s1, cap: 8, models: [m]}
  s2: {backend: s2, cap: 8, models: [m]}
routes:
  way: {steps: [s1/m, s2/m]}
aliases: {way: way, alone: s1/m}
`
}

// waysToAsk are the client's wish and what Weir asks the backend for.
var waysToAsk = []struct {
	name   string
	stream bool // to the client
	yaml   string
	whole  bool // from the backend
}{
	{"streamed", true, ", stream: as_asked", false},
	{"assembled", false, ", stream: always", false},
	{"whole", false, ", stream: as_asked", true},
}

// across runs f for each pair of a client's API and a backend's, in a bubble.
func across(t *testing.T, f func(t *testing.T, client, back *api)) {
	for _, client := range apis {
		for _, back := range apis {
			t.Run(client.name+" to "+back.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { f(t, client, back) })
			})
		}
	}
}

// breakage is a way in which an answer of "one two three" breaks.
type breakage struct {
	name string
	b    sim.Behaviour
	kind string // that the attempt is recorded as; empty: the answer is whole
	text string // that a streaming client has before the error
	live bool   // it is of streams alone
}

// inStream are the error objects that a backend's API puts into a stream, by the kind that they mean.
var inStream = map[*api]map[string]string{
	chatAPI: {
		"busy": `{"message":"slow down","code":429}`, "full": `{"message":"Overloaded","type":"overloaded_error"}`,
		"unavailable": `{"message":"engine overloaded","type":"server_error","code":503}`, "refused": `{"message":"engine died","code":500}`,
	},
	messagesAPI: {
		"busy": `{"type":"rate_limit_error","message":"slow down"}`, "full": `{"type":"overloaded_error","message":"Overloaded"}`,
		"refused": `{"type":"api_error","message":"engine died"}`,
	},
	responsesAPI: {
		"busy": `{"code":"rate_limit_exceeded","message":"slow down"}`, "full": `{"code":"server_is_overloaded","message":"Overloaded"}`,
		"refused": `{"code":"server_error","message":"engine died"}`,
	},
}

// torn is an event of each API that is no JSON.
var torn = map[*api]string{
	chatAPI:      "data: {\"cho\n\n",
	messagesAPI:  "event: content_block_delta\ndata: {\"type\":\n\n",
	responsesAPI: "event: response.output_text.delta\ndata: {\"type\":\"resp\n\n",
}

// breakages are F20 to F24 and F26, as a backend of the API has them.
func breakages(back *api) []breakage {
	const all = "one two three"
	cut := func(after int, how string) sim.Behaviour {
		return sim.Behaviour{Cut: &sim.Cut{After: after, Of: "chunks", How: how}}
	}
	list := []breakage{
		{"F20 reset before content", cut(0, "rst"), "refused", "", true},
		{"F20 closed before content", cut(0, "fin"), "refused", "", true},
		{"F20 ended before content", cut(0, "end"), "stalled", "", true},
		{"F20 reset after one", cut(1, "rst"), "stalled", "one ", true},
		{"F20 closed after one", cut(1, "fin"), "stalled", "one ", true},
		{"F20 ended after one", cut(1, "end"), "stalled", "one ", true},
		{"F20 reset after two", cut(2, "rst"), "stalled", "one two ", true},
		{"F21 silence before content", cut(0, "stall"), "slow", "", true},
		{"F21 silence after one", cut(1, "stall"), "stalled", "one ", true},
		{"F21 not a byte", sim.Behaviour{Hang: true}, "slow", "", false},
		{"F22 a bad event first", sim.Behaviour{Insert: []sim.Insert{{After: 0, Raw: torn[back]}}}, "stalled", "", true},
		{"F22 a bad event after one", sim.Behaviour{Insert: []sim.Insert{{After: 1, Raw: torn[back]}}}, "stalled", "one ", true},
		{"F23 no finish", sim.Behaviour{SSE: sim.SSE{NoFinish: true}}, "stalled", all, true},
		{"F23 no finish and no end mark", sim.Behaviour{SSE: sim.SSE{NoFinish: true, NoDone: true}}, "stalled", all, true},
		{"F23 no finish, and the last event lacks its empty line (C010)", sim.Behaviour{SSE: sim.SSE{NoFinish: true, NoDone: true, OpenEnd: true}}, "stalled", all, true},
		{"F26 the end twice", sim.Behaviour{SSE: sim.SSE{Twice: true}}, "", "", true},
		{"F26 content behind the end", sim.Behaviour{SSE: sim.SSE{AfterDone: true}}, "", "", true},
		{"a whole answer", sim.Behaviour{}, "", "", false},
		{"a reset before any byte", sim.Behaviour{Drop: "rst"}, "refused", "", false},
		{"half a body, reset", sim.Behaviour{Cut: &sim.Cut{After: 100, How: "rst"}}, "refused", "", false},
		{"half a body, closed", sim.Behaviour{Cut: &sim.Cut{After: 100, How: "fin"}}, "refused", "", false},
		{"a page", sim.Behaviour{HTML: true}, "refused", "", false},
		{"429", sim.Behaviour{Status: 429}, "busy", "", false},
		{"529", sim.Behaviour{Status: 529}, "full", "", false},
		{"503", sim.Behaviour{Status: 503}, "unavailable", "", false},
		{"500", sim.Behaviour{Status: 500}, "refused", "", false},
	}
	if back != responsesAPI {
		list = append(list, breakage{"the end mark alone is missing", sim.Behaviour{SSE: sim.SSE{NoDone: true}}, "", "", true})
	} else {
		list = append(list, breakage{"F23 no end", sim.Behaviour{SSE: sim.SSE{NoDone: true}}, "stalled", all, true})
	}
	for kind, object := range inStream[back] {
		for name, e := range map[string]sim.StreamError{"first": {}, "behind the start": {Opened: true}, "after two": {After: 2}} {
			e.Error = []byte(object)
			one := breakage{"F24 " + kind + " " + name, sim.Behaviour{StreamError: &e}, kind, "", name != "first"}
			if e.After > 0 {
				one.text = "one two "
			}
			list = append(list, one)
		}
	}
	for i := range list {
		list[i].b.Deltas = []string{"one ", "two ", "three"}
	}
	return list
}

// class is what clients of each API must be able to tell of a kind of failure. A full backend is busy, with a 529.
type class struct {
	status  int // before anything was sent
	message string
	typed   string // the type of Chat Completions, and of an HTTP error of Responses
	code    string // of a response that failed
	mail    int    // status on Messages
}

var classes = map[string]class{
	"refused":     {502, "api_error", "server_error", "server_error", 502},
	"stalled":     {504, "timeout_error", "timeout_error", "server_error", 504},
	"slow":        {504, "timeout_error", "timeout_error", "server_error", 504},
	"unavailable": {503, "overloaded_error", "overloaded_error", "server_error", 503},
	"busy":        {429, "rate_limit_error", "rate_limit_error", "rate_limit_exceeded", 429},
	"full":        {429, "overloaded_error", "overloaded_error", "rate_limit_exceeded", 529},
}

// check judges an error by its class, within a stream or before one.
func (c class) check(client *api, r *reply, f *failure) string {
	status, kind := c.status, c.typed
	if client == messagesAPI {
		status, kind = c.mail, c.message
	}
	if client == responsesAPI {
		if status == 503 {
			status = 429 // C089 as its clients take it: a 503 is answered with thirty requests
		}
		if r.isStream() {
			kind = ""
			if f.Code != c.code {
				return "the code is not " + c.code
			}
		}
	}
	if r.isStream() {
		status = http.StatusOK
	}
	if r.status != status || f.Type != kind || f.Message == "" || len(f.Message) > 600 {
		return fmt.Sprintf("want status %d and type %q", status, kind)
	}
	return ""
}

// F29 (C007, C013, C019, C065, C073, C089, C106): whatever the client speaks and whatever the backend, an answer that
// breaks before content is another step's, one that breaks later ends in one error of the client's own API with its class
// kept, and nothing that was cut looks finished.
func TestF29EveryPairBreaksWell(t *testing.T) {
	for _, way := range waysToAsk {
		t.Run(way.name, func(t *testing.T) {
			across(t, func(t *testing.T, client, back *api) {
				g := begin(t, setup{yaml: bridge(back, way.yaml), quiet: true, // one server is behind both names: more generations than one name has
					sims: map[string]sim.Script{"s1": {Server: back.server}, "s2": {On: map[string]sim.Sequence{"m": {{Text: "from the second"}}}}}})
				for _, c := range breakages(back) {
					if c.live && way.whole {
						continue
					}
					if err := g.sims["s1"].Set("m", c.b); err != nil {
						t.Fatal(err)
					}
					if !way.stream {
						c.text = ""
					}
					for _, model := range []string{"way", "alone"} {
						if fault := g.broken(client, model, &c, way.stream); fault != "" {
							t.Errorf("%s, %s: %s", c.name, model, fault)
						}
					}
					if c.kind != "" && classes[c.kind].status != 429 { // it counts against the server
						g.answerWell(6)
					}
				}
			})
		})
	}
}

// broken asks once and says what is wrong with what the client got.
func (g *gateway) broken(client *api, model string, c *breakage, stream bool) string {
	g.t.Helper()
	before := len(g.sims["s2"].Calls(""))
	r, got := g.talk(client, client.ask(model, stream))
	synctest.Wait()
	if u := g.app.graph.pools["s1"].Slots.Usage(); u.Held+u.Waiting != 0 { // C106
		return fmt.Sprintf("%d slots are held after the answer's end", u.Held)
	}
	fell := len(g.sims["s2"].Calls("")) - before
	what := fmt.Sprintf("text %q, finish %q, error %+v, status %d, %d calls of the second step: %.900q", got.text, got.finish, got.failure, r.status, fell, r.body)
	kind := c.kind
	if kind == "full" {
		kind = "busy"
	}
	e := g.end(r.id())
	if !slices.ContainsFunc(e.Attempts, func(a event.Attempt) bool { return a.Backend == "s1" && a.Kind == kind }) {
		return fmt.Sprintf("no attempt is recorded as %q: %.600s", kind, e.Raw)
	}
	switch {
	case c.kind == "":
		if got.text != "one two three" || got.finish == "" || fell != 0 {
			return "want the whole answer; " + what
		}
	case c.text == "" && model == "way":
		if got.text != "from the second" || got.finish == "" || fell != 1 {
			return "want the second step's answer; " + what
		}
	case got.failure == nil || got.text != c.text || fell != 0 || r.isStream() != (c.text != ""):
		return fmt.Sprintf("want %q and one error; %s", c.text, what)
	default:
		if fault := classes[c.kind].check(client, r, got.failure); fault != "" {
			return fault + "; " + what
		}
	}
	return ""
}

// F29, F20, I2, I5, I6: a stream of each API that is cut anywhere is, for a client of each, the second step's answer, or
// whole events and then one error; a cut behind the finish may be a whole answer.
func TestF29EveryPairCutAnywhere(t *testing.T) {
	const text = "one two three"
	across(t, func(t *testing.T, client, back *api) {
		whole := sim.Behaviour{Deltas: []string{"one ", "two ", "three"}}
		g := begin(t, setup{yaml: bridge(back, ", stream: always"), quiet: true,
			sims: map[string]sim.Script{"s1": {Server: back.server, On: map[string]sim.Sequence{"m": {whole}}}, "s2": {On: map[string]sim.Sequence{"m": {{Text: "from the second"}}}}}})
		g.talk(client, client.ask("alone", true))
		size := int(g.sims["s1"].Calls("")[0].BytesSent)
		step := size/23 + 1
		if long() {
			step = 1
		}
		for _, how := range []string{"fin", "end", "rst", "stall"} {
			for n := 0; n <= size+step && !t.Failed(); n += step {
				b := whole
				b.Cut = &sim.Cut{After: n, How: how}
				if err := g.sims["s1"].Set("m", b); err != nil {
					t.Fatal(err)
				}
				stream := n/step%4 != 3
				r, got := g.talk(client, client.ask("way", stream))
				switch {
				case got.text == "from the second" && got.finish != "":
				case got.finish != "" && got.text == text:
				case got.failure != nil && stream && r.isStream() && got.text != "" && strings.HasPrefix(text, got.text):
				default:
					t.Errorf("%s after %d of %d bytes, stream %v: status %d, %+v: %.900q", how, n, size, stream, r.status, got, r.body)
				}
				g.answerWell(3)
			}
		}
	})
}

// answerWell lets s1 answer n requests well, so that what failed before does not count against it.
func (g *gateway) answerWell(n int) {
	g.t.Helper()
	if err := g.sims["s1"].Set("m", sim.Behaviour{}); err != nil {
		g.t.Fatal(err)
	}
	for range n {
		if _, got := g.talk(chatAPI, chatAPI.ask("alone", false)); got.failure != nil {
			g.t.Fatalf("a healthy server is not asked: %+v", got.failure)
		}
	}
}
