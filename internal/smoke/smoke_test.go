package smoke

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
	"weir/internal/sim"
)

// bench is one simulated server and what asks it directly: what Weir makes of answers on their way is app's to test.
type bench struct {
	server *sim.Server
	client *http.Client
	bodies []string // of the requests, in order
}

func newBench(t *testing.T, s sim.Script) *bench {
	t.Helper()
	net := sim.NewNet()
	b := &bench{server: sim.New(sim.Options{Name: "a", Script: s}), client: &http.Client{Transport: &http.Transport{DialContext: net.DialContext}}}
	l, err := net.Listen("a.sim:80")
	if err != nil {
		t.Fatal(err)
	}
	b.server.StartOn(t, l)
	t.Cleanup(b.client.CloseIdleConnections)
	return b
}

// spoken is content: what has some, and no role chunk.
var spoken = regexp.MustCompile(`"content":"[^"]`)

// ask is an Ask with no Weir between.
func (b *bench) ask(ctx context.Context, r *Request) (a Answer) {
	b.bodies = append(b.bodies, string(r.Body))
	a = Answer{First: -1, In: -1, Out: -1, Cost: -1}
	path := "/v1/chat/completions"
	if r.Op == llm.Embeddings {
		path = "/v1/embeddings"
	}
	q, err := http.NewRequestWithContext(ctx, "POST", "http://a.sim"+path, bytes.NewReader(r.Body))
	if err != nil {
		panic(err)
	}
	q.Header.Set("Content-Type", "application/json")
	begun := time.Now()
	resp, err := b.client.Do(q)
	if err != nil {
		a.Err = llm.Errorf(llm.Refused, "the model's server does not answer")
		return a
	}
	defer resp.Body.Close()
	last := time.Time{}
	buf := make([]byte, 32<<10)
	for err == nil {
		var n int
		n, err = resp.Body.Read(buf)
		if n > 0 && spoken.Match(buf[:n]) {
			if a.First < 0 {
				a.First = time.Since(begun)
			} else {
				a.Gap = max(a.Gap, time.Since(last))
			}
			last = time.Now()
		}
		a.Body = append(a.Body, buf[:n]...)
	}
	if err != io.EOF {
		a.Err = llm.Errorf(llm.Stalled, "the answer broke off")
	}
	if resp.StatusCode >= 300 {
		a.Err = refusal(resp.StatusCode, a.Body)
	}
	return a
}

func refusal(status int, body []byte) *llm.Error {
	var e struct{ Error struct{ Message string } }
	_ = json.Unmarshal(body, &e)
	kind := llm.Refused
	switch status {
	case 400, 501:
		kind = llm.Invalid
	case 429:
		kind = llm.Busy
	case 503:
		kind = llm.Unavailable
	}
	return llm.Errorf(kind, "%s", e.Error.Message)
}

// target is one that can do all.
func target() *Target {
	return &Target{Pool: "a", Model: "m", Long: 600, First: 15 * time.Second, Idle: 30 * time.Second}
}

// well answers everything as it should.
var well = sim.Behaviour{Tool: "call", Chunks: 60}

// verdicts are those of a report, as "case verdict".
func verdicts(r *Report) (list []string) {
	for _, s := range r.Results {
		list = append(list, string(s.Case)+" "+string(s.Verdict))
	}
	return list
}

func all(v string) (list []string) {
	for _, c := range Cases {
		list = append(list, string(c)+" "+v)
	}
	return list
}

// but returns the verdicts with those of some cases changed.
func but(list []string, changes ...string) []string {
	for _, c := range changes {
		name, _, _ := strings.Cut(c, " ")
		list[slices.IndexFunc(list, func(s string) bool { return strings.HasPrefix(s, name+" ") })] = c
	}
	return list
}

// For each case something that fails it, and what cannot be asked.
func TestVerdicts(t *testing.T) {
	in := func(status int, message string) sim.Behaviour {
		return sim.Behaviour{Status: status, Error: json.RawMessage(fmt.Sprintf(`{"message":%q}`, message))}
	}
	rest := but(all("untested"), "short failed")
	for name, c := range map[string]struct {
		do     sim.Sequence
		edit   func(*Target)
		want   []string
		detail string // of one result at least
	}{
		"a good server passes all":                         {do: sim.Sequence{well}, want: all("passed")},
		"a model that must be made to call":                {do: sim.Sequence{{Chunks: 60}}, want: all("passed"), detail: "only when made to"},
		"no usage is told":                                 {do: sim.Sequence{{Tool: "call", Chunks: 60, Usage: "none"}}, want: all("passed"), detail: "no usage"},
		"thinking that its limit cuts is life":             {do: sim.Sequence{{Reasoning: "hm", Empty: true, Finish: "length", Tool: "never"}}, want: but(all("passed"), "tools failed"), detail: "while it thought"},
		"an empty answer":                                  {do: sim.Sequence{{Empty: true, Tool: "call"}}, want: but(all("failed"), "tools passed"), detail: "empty"},
		"a wrong finish":                                   {do: sim.Sequence{{Finish: "content_filter", Chunks: 60}}, want: all("failed"), detail: `"content_filter"`},
		"a stop where the limit cut":                       {do: sim.Sequence{{Tool: "call", Chunks: 60, Finish: "stop"}}, want: but(all("passed"), "truncation failed", "tools failed"), detail: "should be length"},
		"a narrated call (F72)":                            {do: sim.Sequence{{Tool: "narrate", Chunks: 60}}, want: but(all("passed"), "tools failed"), detail: "wrote the call as text"},
		"a call as text (C043)":                            {do: sim.Sequence{{Tool: "tags", Chunks: 60}}, want: but(all("passed"), "tools failed"), detail: "wrote the call as text"},
		"a wrong name":                                     {do: sim.Sequence{{Tool: "wrong_name", Chunks: 60}}, want: but(all("passed"), "tools failed"), detail: "not offered"},
		"arguments against the schema":                     {do: sim.Sequence{{Tool: "bad_args", Chunks: 60}}, want: but(all("passed"), "tools failed"), detail: "do not fit"},
		"arguments that break off":                         {do: sim.Sequence{{Tool: "cut_args", Chunks: 60}}, want: but(all("passed"), "tools failed"), detail: "no JSON"},
		"arguments that are none":                          {do: sim.Sequence{{Tool: "not_json", Chunks: 60}}, want: but(all("passed"), "tools failed"), detail: "no JSON"},
		"a cut stream":                                     {do: sim.Sequence{{Times: 2, Chunks: 60}, {Chunks: 60, Cut: &sim.Cut{After: 900, How: "rst"}}, well}, want: but(all("passed"), "streaming failed"), detail: "broke off"},
		"a stream that ends without a finish":              {do: sim.Sequence{{Times: 2, Chunks: 60}, {Chunks: 60, SSE: sim.SSE{NoFinish: true}}, well}, want: but(all("passed"), "streaming failed"), detail: "without a finish reason"},
		"a stream without its end mark":                    {do: sim.Sequence{{Times: 2, Chunks: 60}, {Chunks: 60, SSE: sim.SSE{NoDone: true}}, well}, want: but(all("passed"), "streaming failed"), detail: "end mark"},
		"events after the end mark":                        {do: sim.Sequence{{Times: 2, Chunks: 60}, {Chunks: 60, SSE: sim.SSE{AfterDone: true}}, well}, want: but(all("passed"), "streaming failed"), detail: "after the end mark"},
		"a late first content":                             {do: sim.Sequence{{Times: 2, Chunks: 60}, {Chunks: 60, FirstDelay: 20 * time.Second}, well}, want: but(all("passed"), "streaming failed"), detail: "first content came after 20s"},
		"a gap":                                            {do: sim.Sequence{{Times: 2, Chunks: 60}, {Chunks: 3, Gap: 40 * time.Second}, well}, want: but(all("passed"), "streaming failed"), detail: "silent for 40s"},
		"a server that cuts long prompts and says nothing": {do: sim.Sequence{{Chunks: 60}, {Chunks: 60, Usage: `{"prompt_tokens":128,"completion_tokens":60,"total_tokens":188}`}, well}, want: but(all("passed"), "long failed"), detail: "128 tokens"},
		"a 5xx ends it at the first":                       {do: sim.Sequence{{Status: 500}}, want: rest},
		"a 5xx later ends that case":                       {do: sim.Sequence{{Times: 3, Chunks: 60}, {Status: 500}, well}, want: but(all("passed"), "tools failed")},
		"a hang ends in time":                              {do: sim.Sequence{{Hang: true}}, want: rest, detail: "no end within 2m0s"},
		"unavailable once is asked again":                  {do: sim.Sequence{{Status: 503}, well}, want: all("passed")},
		"unavailable twice is a failure":                   {do: sim.Sequence{{Status: 503, Times: 2}, well}, want: rest},
		"busy once is asked again":                         {do: sim.Sequence{{Status: 429}, well}, want: all("passed")},
		"busy twice says nothing of the config":            {do: sim.Sequence{{Status: 429}}, want: all("untested"), detail: "busy both times"},
		"a server that takes no tools": {do: sim.Sequence{{Times: 3, Chunks: 60}, in(400, "registry/x does not support tools"), {Chunks: 60}}, want: but(all("passed"), "tools n/a"),
			detail: "does not support tools"},
		"a server without its flag for tools": {do: sim.Sequence{{Times: 3, Chunks: 60}, in(500, "tools param requires --jinja flag"), {Chunks: 60}}, want: but(all("passed"), "tools n/a")},
		"a refusal that is none of these":     {do: sim.Sequence{in(400, "temperature is not supported")}, want: rest, detail: "temperature"},
		"out by hand":                         {do: sim.Sequence{well}, edit: func(g *Target) { g.Untested = "out by hand" }, want: all("untested"), detail: "out by hand"},
		"what the config says cannot be done": {do: sim.Sequence{well}, edit: func(g *Target) { g.Skip = map[Case]string{Tools: "smoke.skip", Long: "smoke.skip"} }, want: but(all("passed"), "tools n/a", "long n/a")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, sim.Script{On: map[string]sim.Sequence{"*": c.do}})
				g := target()
				if c.edit != nil {
					c.edit(g)
				}
				r := Run(t.Context(), Options{Targets: []*Target{g}, Ask: b.ask})
				if diff := cmp.Diff(c.want, verdicts(r)); diff != "" {
					t.Errorf("verdicts (-want +got):\n%s%+v", diff, r.Results)
				}
				if text := fmt.Sprint(r.Results); !strings.Contains(text, c.detail) {
					t.Errorf("no detail says %q: %v", c.detail, text)
				}
				if bad := r.Err() != nil; bad != slices.ContainsFunc(c.want, func(s string) bool { return strings.HasSuffix(s, " failed") }) {
					t.Errorf("Err() is %v", r.Err())
				}
			})
		})
	}
}

// A pool of embeddings is found out by what its server says, and then has no chat to fail.
func TestEmbeddingsAreNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		no := sim.Behaviour{Status: 501, Error: json.RawMessage(`{"message":"This server is started with --embedding and does not support chat"}`)}
		b := newBench(t, sim.Script{On: map[string]sim.Sequence{"*": {no, {Dimensions: 64}}}})
		r := Run(t.Context(), Options{Targets: []*Target{target()}, Ask: b.ask})
		want := but(all("n/a"), "short passed")
		if diff := cmp.Diff(want, verdicts(r)); diff != "" || !strings.Contains(r.Results[0].Detail, "64 numbers") {
			t.Errorf("verdicts (-want +got):\n%s%+v", diff, r.Results)
		}
	})
}

// Pools are asked at the same time, one request at a time in each; the one who watches hears of each case twice, in turn.
func TestOneRequestAtATimeInAPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := well
		slow.FirstDelay = time.Second
		b := newBench(t, sim.Script{On: map[string]sim.Sequence{"*": {slow}}})
		targets := []*Target{target(), {Pool: "a", Model: "n", Long: 600}, {Pool: "b", Model: "m", Long: 600}}
		begun, told := 0, 0
		ask := func(ctx context.Context, r *Request) Answer {
			return (&bench{server: b.server, client: b.client}).ask(ctx, r)
		}
		r := Run(t.Context(), Options{Targets: targets, Ask: ask, Begun: func(*Target, Case) { begun++ }, Told: func(Result) { told++ }})
		if r.Passed != 15 || begun != 15 || told != 15 {
			t.Errorf("%d passed, %d begun, %d told, want 15 of each: %+v", r.Passed, begun, told, r.Results)
		}
		for _, a := range b.server.Calls("") {
			if a.InFlight > 1 {
				t.Errorf("%d calls of %s at once", a.InFlight, a.Model)
			}
		}
		if got := time.Duration(r.Took * float64(time.Second)); got < 10*time.Second || got > 12*time.Second {
			t.Errorf("it took %v, want a second for each of ten calls of the fuller pool", got)
		}
	})
}

// What is stopped amid is no failure, and nothing more is asked.
func TestAStoppedRunFailsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, sim.Script{On: map[string]sim.Sequence{"*": {{Hang: true}}}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r := Run(ctx, Options{Targets: []*Target{target()}, Ask: b.ask})
		if r.Untested != 5 || len(b.bodies) != 1 {
			t.Errorf("%+v after %d requests, want five untested after one", r.Results, len(b.bodies))
		}
	})
}

// The long prompt is as long as it says, and no two are alike at their start.
func TestTheLongPrompt(t *testing.T) {
	one, two := longPrompt(2048), longPrompt(2048)
	if one[:30] == two[:30] {
		t.Errorf("two prompts begin alike: %q", one[:30])
	}
	if n := len(strings.Fields(one)); n < 1900 || n > 2200 {
		t.Errorf("the prompt has %d words, want about 2048", n)
	}
}

// What it needs is told before: the slowest pool's time, the cost of usual answers, and the most.
func TestExpect(t *testing.T) {
	dear := target()
	dear.Prefill, dear.Output = 1000, 100
	dear.Cost = func(in, out int64) (int64, bool) { return in*1000 + out*10_000, true } // 1 and 10 USD per million
	free, out := &Target{Pool: "b", Model: "m", Long: 600}, &Target{Pool: "c", Model: "m", Untested: "out"}
	got := Expect([]*Target{dear, free, out})
	want := Estimate{Calls: 10, In: 2 * 840, Out: 2 * 342, Unpriced: []string{"b/m"}, Usual: 0.00426, Most: 0.04212}
	want.Took = got.Took
	want.Secs = got.Took.Seconds()
	near := cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })
	if diff := cmp.Diff(want, got, near); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if slowest := Expect([]*Target{free}).Took; got.Took != slowest || slowest < 10*time.Second || slowest > 30*time.Second {
		t.Errorf("it is to take %v, the slowest pool alone %v", got.Took, slowest)
	}
}

// Streams of foreign bytes are read without panic, and what has no finish or end never passes.
func FuzzReadStream(f *testing.F) {
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"))
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":9,\"function\":{\"name\":\"a\"}}]}}]}\r\n\r\n:x\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r := readStream(b); r.fault == "" && (r.finish == "" || !bytes.Contains(b, []byte("[DONE]"))) {
			t.Errorf("%q passes", b)
		}
		_ = readWhole(b)
	})
}
