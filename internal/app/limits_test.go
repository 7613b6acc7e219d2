package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/event"
	"weir/internal/key"
	"weir/internal/llm"
	"weir/internal/server"
	"weir/internal/sim"
)

// rates are the headers of an answer that tell of limits.
func (r *reply) rates() map[string]string {
	found := map[string]string{}
	for name := range r.header {
		if strings.Contains(strings.ToLower(name), "ratelimit") {
			found[name] = r.header.Get(name)
		}
	}
	return found
}

// used is a behaviour that says so of its tokens.
func used(in, out int) sim.Behaviour {
	return sim.Behaviour{Text: "ok", Usage: fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, in, out, in+out)}
}

// S43: clients learn what their key has left in the headers of their own API, and nothing of what the vendor's say.
func TestWhatAKeyHasLeft(t *testing.T) {
	for _, client := range apis {
		t.Run(client.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := used(2, 3)
				b.Headers = map[string]string{"x-ratelimit-limit-requests": "9999", "x-ratelimit-remaining-tokens": "9999", "anthropic-ratelimit-tokens-limit": "9999"}
				g := begin(t, setup{yaml: bridge(chatAPI, ""), sims: map[string]sim.Script{"s1": {On: map[string]sim.Sequence{"m": {b}}}, "s2": {}}})
				if r := g.post(client.path, client.ask("alone", false)); len(r.rates()) > 0 {
					t.Errorf("a key without limits: %v", r.rates())
				}
				bearer := "Bearer " + g.newKey(key.Spec{Name: "a", RPM: 2, TPM: 5000})
				other := "Bearer " + g.newKey(key.Spec{Name: "b", RPM: 2})
				guess := int64(4 + 1024) // the prompt, and an answer of unsaid length
				switch client {
				case messagesAPI:
					guess = 6 + 1000
				case responsesAPI:
					guess = 5 + 1024
				}
				want := func(requests, tokens int64) map[string]string {
					all := map[string]string{}
					for i, l := range [][2]int64{{2, requests}, {5000, tokens}} {
						what := []string{"Requests", "Tokens"}[i]
						if client == messagesAPI {
							all["Anthropic-Ratelimit-"+what+"-Limit"], all["Anthropic-Ratelimit-"+what+"-Remaining"] = fmt.Sprint(l[0]), fmt.Sprint(l[1])
							all["Anthropic-Ratelimit-"+what+"-Reset"] = time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
							continue
						}
						all["X-Ratelimit-Limit-"+what], all["X-Ratelimit-Remaining-"+what] = fmt.Sprint(l[0]), fmt.Sprint(l[1])
						all["X-Ratelimit-Reset-"+what] = "1m0s"
					}
					return all
				}
				for i, stream := range []bool{true, false} {
					r := g.post(client.path, client.ask("alone", stream), "Authorization", bearer)
					if d := cmp.Diff(want(int64(1-i), 5000-guess-int64(i)*5), r.rates()); r.status != 200 || d != "" {
						t.Errorf("call %d: status %d, headers (-want +got):\n%s", i, r.status, d)
					}
				}
				r := g.post(client.path, client.ask("alone", true), "Authorization", bearer)
				if d := cmp.Diff(want(0, 4990), r.rates()); r.status != 429 || d != "" || r.header.Get("Retry-After") != "60" {
					t.Errorf("one too many: status %d, Retry-After %q, headers (-want +got):\n%s", r.status, r.header.Get("Retry-After"), d)
				}
				if r := g.post(client.path, client.ask("alone", true), "Authorization", other); r.status != 200 || len(r.rates()) != 3 { // S07
					t.Errorf("another key: status %d, %v", r.status, r.rates())
				}
				time.Sleep(20 * time.Second)
				r = g.post(client.path, `{"model":`, "Authorization", bearer)
				if reset := r.rates()["X-Ratelimit-Reset-Requests"]; r.status != 429 || client != messagesAPI && reset != "40s" {
					t.Errorf("later: status %d, reset %q", r.status, reset)
				}
			})
		})
	}
}

// C102: five at once that will use 60 of 100 tokens each: one runs, and the refused ones count for nothing.
func TestC102TokensAtTheGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := used(5, 55)
		b.FirstDelay = time.Second
		g := begin(t, setup{sims: oai(b)})
		g.key = g.newKey(key.Spec{Name: "a", RPM: 3, TPM: 100})
		ask := func() *reply { return g.chat(true, `"max_tokens":56`) }
		var mu sync.Mutex
		status := map[int]int{}
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				r := ask()
				mu.Lock()
				defer mu.Unlock()
				status[r.status]++
				if r.status == 429 && r.header.Get("Retry-After") != "60" {
					t.Errorf("Retry-After %q", r.header.Get("Retry-After"))
				}
			})
		}
		all.Wait()
		if d := cmp.Diff(map[int]int{200: 1, 429: 4}, status); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if n := len(g.sim().Calls("")); n != 1 {
			t.Errorf("%d calls reached the upstream", n)
		}
		time.Sleep(59 * time.Second) // and the first was a second before
		if r := ask(); r.status != 200 {
			t.Errorf("a minute later: %d %s", r.status, r.body)
		}
	})
}

// What was reserved is given back where nothing was used, and counting tokens uses none.
func TestTokensThatWereNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{quiet: true, sims: oai(sim.Behaviour{Status: 500})})
		g.key = g.newKey(key.Spec{Name: "a", TPM: 2000})
		left := func() string { return g.get("/v1/models").rates()["X-Ratelimit-Remaining-Tokens"] }
		for name, ask := range map[string]func() *reply{
			"a backend that fails": func() *reply { return g.chat(true) },
			"a name that is not known": func() *reply {
				return g.post("/v1/chat/completions", strings.Replace(chatBody(true), "oai-m", "nobody", 1))
			},
			"a body that is broken": func() *reply { return g.post("/v1/chat/completions", `{"model":`) },
			"a boundary":            func() *reply { return g.post("/v1/chat/completions", chatBody(false), "X-Weir-Boundary", "moon") },
			"a count": func() *reply {
				return g.post("/v1/messages/count_tokens", `{"model":"oai-m","messages":[{"role":"user","content":"hi"}]}`)
			},
		} {
			if r := ask(); left() != "2000" {
				t.Errorf("after %s (%d) %s of 2000 are left", name, r.status, left())
			}
		}
		if err := g.sim().Set("oai-m", used(20, 30)); err != nil {
			t.Fatal(err)
		}
		g.chat(false).text()
		if got := left(); got != "1950" {
			t.Errorf("after 50 %s of 2000 are left", got)
		}
		if r := g.chat(false, `"max_tokens":1990`); r.status != 429 || !strings.Contains(r.failed().Message, "2000 tokens per minute") {
			t.Errorf("%d %s", r.status, r.body)
		}
		if r := g.chat(false, `"max_tokens":1946`); r.status != 200 {
			t.Errorf("what fits exactly: %d %s", r.status, r.body)
		}
		large := g.newKey(key.Spec{Name: "full", TPM: 1})
		for i, want := range []int{200, 429} {
			if r := g.post("/v1/chat/completions", chatBody(false), "Authorization", "Bearer "+large); r.status != want {
				t.Errorf("call %d of a limit below every call: %d", i+1, r.status)
			}
		}
		if r := g.post("/v1/messages/count_tokens", `{"model":"oai-m","messages":[{"role":"user","content":"hi"}]}`, "Authorization", "Bearer "+large); r.status != 200 {
			t.Errorf("a count in a full window: %d %s", r.status, r.body)
		}
	})
}

// limitsOf is a relay that notes who calls.
type limitsOf struct {
	server.Relay
	saw *llm.Caller
}

func (l limitsOf) Serve(ctx context.Context, r *llm.Request, c *llm.Caller, rec *event.Record, out llm.Client) error {
	*l.saw = *c
	return l.Relay.Serve(ctx, r, c, rec, out)
}

func TestCeilingsGoWithTheCaller(t *testing.T) {
	g := begin(t, setup{sims: oai(sim.Behaviour{})})
	var saw llm.Caller
	g.app.server.Relay = limitsOf{g.app.server.Relay, &saw}
	g.key = g.newKey(key.Spec{Name: "a", SpendDay: 5_000_000_000, SpendMonth: 7_000_000_000})
	if g.chat(false).text(); saw.SpendDay != 5_000_000_000 || saw.SpendMonth != 7_000_000_000 {
		t.Errorf("got %+v", saw)
	}
}

// S43: neither limit of a minute is forgotten by a restart.
func TestLimitsSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := t.TempDir()
		start := func() *gateway { return begin(t, setup{data: data, sims: oai(used(20, 30))}) }
		g := start()
		few, small := g.newKey(key.Spec{Name: "few", RPM: 2}), g.newKey(key.Spec{Name: "small", TPM: 100})
		for _, token := range []string{few, few, small} {
			g.post("/v1/chat/completions", chatBody(false, `"max_tokens":90`), "Authorization", "Bearer "+token).text()
		}
		g.finish()
		g = start()
		for name, token := range map[string]string{"requests": few, "tokens": small} {
			if r := g.post("/v1/chat/completions", chatBody(false, `"max_tokens":90`), "Authorization", "Bearer "+token); r.status != 429 {
				t.Errorf("%s after the restart: %d", name, r.status)
			}
		}
		time.Sleep(time.Minute)
		for _, token := range []string{few, small} {
			g.post("/v1/chat/completions", chatBody(false, `"max_tokens":90`), "Authorization", "Bearer "+token).text()
		}
	})
}

// F62: a clock that is set changes nothing of the tokens of a minute.
func TestF62SetClocksMoveNoTokens(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		g := begin(t, setup{sims: oai(sim.Behaviour{})})
		token, now := g.newKey(key.Spec{Name: "few", TPM: 100}), time.Now()
		k, err := g.app.Keys().Verify(token, now)
		if err != nil {
			t.Fatal(err)
		}
		reserved := func(n int64, at time.Time) bool {
			a, err := g.app.Keys().Admit(k, at)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Release()
			return a.Reserve(n, at) == nil
		}
		if !reserved(100, now) {
			t.Fatal("the first is refused")
		}
		set := stepped(t, now, step)
		if reserved(1, set) || reserved(1, set.Add(59*time.Second)) {
			t.Errorf("a step of %v opens the window", step)
		}
		if !reserved(100, set.Add(61*time.Second)) {
			t.Errorf("a step of %v holds the window shut", step)
		}
	}
}

// twoAtATime checks that a key of two requests at a time has none running: two streams run, and a third is refused.
func (g *gateway) twoAtATime(after string) {
	g.t.Helper()
	ctx, cancel := context.WithCancel(g.t.Context())
	defer cancel()
	var open []io.Closer
	for i, want := range []int{200, 200, 429} {
		resp, err := g.open(ctx, "POST", "/v1/chat/completions", strings.NewReader(strings.Replace(chatBody(true), "oai-m", "long", 1)))
		if err != nil {
			g.t.Fatal(err)
		}
		if resp.StatusCode != want {
			body, _ := io.ReadAll(resp.Body)
			g.t.Errorf("after %s: request %d of two at a time: %d %s", after, i+1, resp.StatusCode, body)
		}
		open = append(open, resp.Body)
	}
	for _, c := range open {
		c.Close()
	}
	time.Sleep(time.Second)
}

// limitYAML has a model that streams for a while beside the one that the test spoils.
const limitYAML = `
limits: {wait: 5s}
backends:
  a: {url: "http://a.sim", tier: gpu}
  long: {url: "http://long.sim", tier: gpu}
pools:
  a: {backend: a, cap: 1, models: [oai-m, emb]}
  long: {backend: long, cap: 8, models: [long]}
aliases: {oai-m: a/oai-m, emb: a/emb, long: long/long}
`

func limitSims() map[string]sim.Script {
	return map[string]sim.Script{"a": {}, "long": {On: map[string]sim.Sequence{"long": {{Endless: true, Gap: time.Second}}}}}
}

// C105: however a request fails, its key has its place back.
func TestC105KeysGetTheirPlacesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: limitYAML, sims: limitSims(), quiet: true})
		g.key = g.newKey(key.Spec{Name: "two", Concurrent: 2, RPM: 10_000, TPM: 10_000_000})
		g.app.server.Bounds = server.Bounds{Choices: 4}
		whole := g.app.server.Relay
		chat := func(body string) func() { return func() { g.post("/v1/chat/completions", body) } }
		for name, c := range map[string]struct {
			b   sim.Behaviour
			ask func()
		}{
			"malformed JSON":         {sim.Behaviour{}, chat(`{"model":"oai-m"`)},
			"an unknown model":       {sim.Behaviour{}, chat(strings.Replace(chatBody(true), "oai-m", "nobody", 1))},
			"a wrong role":           {sim.Behaviour{}, chat(strings.Replace(chatBody(true), `"user"`, "5", 1))},
			"a bound":                {sim.Behaviour{}, chat(chatBody(true, `"n":5`))},
			"another type":           {sim.Behaviour{}, func() { g.post("/v1/chat/completions", chatBody(true), "Content-Type", "text/plain") }},
			"a bad boundary":         {sim.Behaviour{}, func() { g.post("/v1/chat/completions", chatBody(true), "X-Weir-Boundary", "moon") }},
			"no such path":           {sim.Behaviour{}, func() { g.get("/v1/nothing") }},
			"no such response":       {sim.Behaviour{}, func() { g.get("/v1/responses/resp_none") }},
			"the list of models":     {sim.Behaviour{}, func() { g.get("/v1/models") }},
			"an upstream 500":        {sim.Behaviour{Status: 500}, chat(chatBody(true))},
			"an upstream 429":        {sim.Behaviour{Status: 429}, chat(chatBody(false))},
			"an upstream that hangs": {sim.Behaviour{Hang: true}, chat(chatBody(true))},
			"a reset amid a stream":  {sim.Behaviour{Chunks: 5, Gap: time.Second, Cut: &sim.Cut{After: 2, Of: "chunks", How: "rst"}}, chat(chatBody(true))},
			"a panic": {sim.Behaviour{}, func() {
				g.app.server.Relay = trap{whole, "relay"}
				g.chat(true)
				g.app.server.Relay = whole
			}},
			"a body that stops": {sim.Behaviour{}, func() {
				r, w := io.Pipe()
				go func() { _, _ = w.Write([]byte(`{"model":"oai-m",`)); w.CloseWithError(errors.New("gone")) }()
				if resp, err := g.open(t.Context(), "POST", "/v1/chat/completions", r); err == nil {
					resp.Body.Close()
				}
			}},
		} {
			if err := g.sim().Set("oai-m", c.b); err != nil {
				t.Fatal(err)
			}
			for range 10 {
				c.ask()
			}
			g.twoAtATime(name)
		}
	})
}

// C106: whatever the endpoint, neither whole answers nor clients who leave keep a place of their key.
func TestC106KeysGetTheirPlacesBack(t *testing.T) {
	bodies := map[string]string{
		"/v1/chat/completions": `"messages":[{"role":"user","content":"hi"}]`, "/v1/completions": `"prompt":"hi"`,
		"/v1/messages": `"max_tokens":50,"messages":[{"role":"user","content":"hi"}]`, "/v1/responses": `"input":"hi"`, "/v1/embeddings": `"input":"hi"`,
	}
	for _, path := range slices.Sorted(maps.Keys(bodies)) {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{yaml: limitYAML, sims: limitSims(), quiet: true})
				free := g.key
				g.key = g.newKey(key.Spec{Name: "two", Concurrent: 2, TPM: 10_000_000})
				for _, stream := range []bool{true, false} {
					body := fmt.Sprintf(`{"model":"oai-m","stream":%v,%s}`, stream, bodies[path])
					if path == "/v1/embeddings" {
						body = `{"model":"oai-m",` + bodies[path] + "}"
					}
					ask := func() {
						ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
						defer cancel()
						if resp, err := g.open(ctx, "POST", path, strings.NewReader(body)); err == nil {
							g.read(resp)
						}
						time.Sleep(100 * time.Millisecond)
					}
					for _, c := range []struct {
						name string
						b    sim.Behaviour
						busy bool
					}{
						{"whole answers", sim.Behaviour{Text: "ok"}, false}, {"leaving before the first byte", sim.Behaviour{Hang: true}, false},
						{"leaving amid an answer", sim.Behaviour{Endless: true, Gap: time.Second}, false}, {"leaving the queue", sim.Behaviour{Hang: true}, true},
					} {
						if err := g.sim().Set("oai-m", c.b); err != nil {
							t.Fatal(err)
						}
						ctx, leave := context.WithCancel(t.Context())
						var other sync.WaitGroup
						if c.busy {
							other.Go(func() {
								if resp, err := g.open(ctx, "POST", "/v1/chat/completions", strings.NewReader(chatBody(true)), "Authorization", "Bearer "+free); err == nil {
									g.read(resp)
								}
							})
							time.Sleep(time.Millisecond)
						}
						for range 5 {
							ask()
						}
						leave()
						other.Wait()
						g.twoAtATime(fmt.Sprintf("%s, stream %v", c.name, stream))
					}
				}
			})
		})
	}
}

// toolList is a list of n tools in the form of an API, of so many bytes at least.
func toolList(client *api, n, size int) string {
	one := map[*api]string{
		chatAPI: `{"type":"function","function":{"name":"t%d","parameters":{}}}`, messagesAPI: `{"name":"t%d","input_schema":{"type":"object"}}`,
		responsesAPI: `{"type":"function","name":"t%d","parameters":{}}`,
	}[client]
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(one, i))
	}
	list := "[" + strings.Join(all, ",")
	return list + strings.Repeat(" ", max(0, size-len(list)-1)) + "]"
}

// S44: at each bound a request passes as it is; one more is refused, or lowered where that is what the bound does.
func TestS44Bounds(t *testing.T) {
	type row struct {
		client *api
		path   string // empty: the API's
		more   string // members
		param  string // of the refusal; empty: it passes
		sent   string // member that the backend is sent; empty: more
	}
	completions := "/v1/completions"
	rows := []row{
		{chatAPI, "", `"max_tokens":100`, "", ""}, {chatAPI, "", `"max_tokens":101`, "", `"max_tokens":100`},
		{chatAPI, "", `"max_tokens": 999999999999999999 `, "", `"max_tokens": 100 `}, {chatAPI, "", `"max_tokens":-1`, "", `"max_tokens":100`},
		{chatAPI, "", `"max_tokens":9223372036854775808`, "max_tokens", ""}, {chatAPI, "", `"max_tokens":null`, "", ""},
		{chatAPI, "", `"max_completion_tokens":100`, "", ""}, {chatAPI, "", `"max_completion_tokens":101`, "", `"max_completion_tokens":100`},
		{chatAPI, "", `"max_tokens":50,"max_completion_tokens":101`, "", `"max_tokens":50,"max_completion_tokens":100`},
		{chatAPI, "", `"n_predict":101`, "", `"n_predict":100`}, {chatAPI, "", `"n_predict":"101"`, "n_predict", ""},
		{chatAPI, "", `"N_predict":101`, "N_predict", ""}, {chatAPI, "", `"thinking":{"max_tokens":5000}`, "", ""},
		{messagesAPI, "", `"max_tokens":100`, "", ""}, {messagesAPI, "", `"max_tokens":101`, "", `"max_tokens":100`},
		{messagesAPI, "", `"max_tokens":101,"thinking":{"type":"disabled","budget_tokens":5000}`, "", `"max_tokens":100,"thinking":{"type":"disabled","budget_tokens":5000}`},
		{responsesAPI, "", `"max_output_tokens":100`, "", ""}, {responsesAPI, "", `"max_output_tokens":101`, "", `"max_output_tokens":100`},
		{responsesAPI, "", `"max_output_tokens":-1`, "", `"max_output_tokens":100`},
		{chatAPI, completions, `"max_tokens":100`, "", ""}, {chatAPI, completions, `"max_tokens":101`, "", `"max_tokens":100`},

		{chatAPI, "", `"n":2`, "", ""}, {chatAPI, "", `"n":3`, "n", ""}, {chatAPI, "", `"n_cmpl":3`, "n_cmpl", ""},
		{chatAPI, completions, `"best_of":2`, "", ""}, {chatAPI, completions, `"best_of":3`, "best_of", ""},

		{chatAPI, "", `"top_logprobs":5,"logprobs":true`, "", ""}, {chatAPI, "", `"top_logprobs":6`, "top_logprobs", ""},
		{chatAPI, "", `"top_logprobs":"6"`, "top_logprobs", ""}, {chatAPI, "", `"top_logprobs":6.0`, "top_logprobs", ""}, {chatAPI, "", `"top_logprobs":-1`, "top_logprobs", ""},
		{chatAPI, "", `"Top_Logprobs":6`, "Top_Logprobs", ""}, {chatAPI, "", `"top_logprobs":null,"logprobs":false`, "", ""},
		{chatAPI, "", `"prompt_logprobs":6`, "prompt_logprobs", ""}, {chatAPI, "", `"n_probs":6`, "n_probs", ""},
		{responsesAPI, "", `"top_logprobs":5`, "", ""}, {responsesAPI, "", `"top_logprobs":6`, "top_logprobs", ""},
		{chatAPI, completions, `"logprobs":5`, "", ""}, {chatAPI, completions, `"logprobs":6`, "logprobs", ""},

		{chatAPI, "", `"functions":[{"name":"a"},{"name":"b"}]`, "", ""}, {chatAPI, "", `"functions":[{"name":"a"},{"name":"b"},{"name":"c"}]`, "functions", ""},
	}
	for _, client := range apis {
		rows = append(rows, row{client, "", `"tools":` + toolList(client, 2, 0), "", ""}, row{client, "", `"tools":` + toolList(client, 3, 0), "tools", ""},
			row{client, "", `"tools":` + toolList(client, 1, 300), "", ""}, row{client, "", `"tools":` + toolList(client, 1, 301), "tools", ""})
	}
	for _, c := range rows {
		if c.path == "" {
			c.path = c.client.path
		}
		t.Run(fmt.Sprintf("%s %.60s", c.path, c.more), func(t *testing.T) {
			g := begin(t, setup{yaml: bridge(c.client, ", stream: as_asked"), quiet: true, sims: map[string]sim.Script{"s1": {Server: c.client.server}, "s2": {}}})
			g.app.server.Bounds = server.Bounds{MaxTokens: 100, Choices: 2, Tools: 2, ToolBytes: 300, TopLogprobs: 5}
			body := strings.Replace(c.client.ask("alone", false, c.more), `,"max_tokens":1000`, "", 1)
			switch {
			case c.path == completions:
				body = `{"model":"alone","prompt":"hi",` + c.more + `}`
			case c.client == messagesAPI && !strings.Contains(c.more, "max_tokens"):
				body = strings.Replace(body, "{", `{"max_tokens":50,`, 1)
			}
			r := g.post(c.path, body)
			calls := g.sims["s1"].Calls("")
			if c.param != "" {
				var e struct {
					Error struct{ Param, Message string }
				}
				err := json.Unmarshal(r.body, &e)
				if told := e.Error.Param == c.param || c.client == messagesAPI && strings.Contains(e.Error.Message, c.param); r.status != http.StatusBadRequest || err != nil || !told || len(calls) > 0 {
					t.Errorf("status %d, %d calls: %s; want the refusal of %s", r.status, len(calls), r.body, c.param)
				}
				return
			}
			if c.sent == "" {
				c.sent = c.more
			}
			if r.status != 200 || len(calls) != 1 || !strings.Contains(string(calls[0].Body), c.sent) {
				t.Fatalf("status %d %.300s; sent %+v, want %s", r.status, r.body, calls, c.sent)
			}
		})
	}
}

// S44: the lower limit goes up whatever the pair of APIs, and counts as what was asked.
func TestS44LoweredTokensInEveryPair(t *testing.T) {
	across(t, func(t *testing.T, client, back *api) {
		g := begin(t, setup{yaml: bridge(back, ""), sims: map[string]sim.Script{"s1": {Server: back.server}, "s2": {}}})
		g.app.server.Bounds = server.Bounds{MaxTokens: 100}
		more := map[*api]string{chatAPI: `"max_completion_tokens":101`, messagesAPI: `"temperature":1`, responsesAPI: `"max_output_tokens":101`}[client]
		r, told := g.talk(client, client.ask("alone", true, more))
		calls := g.sims["s1"].Calls("")
		if told.failure != nil || len(calls) != 1 {
			t.Fatalf("%+v, %d calls", told.failure, len(calls))
		}
		var sent struct {
			A int `json:"max_tokens"`
			B int `json:"max_completion_tokens"`
			C int `json:"max_output_tokens"`
		}
		if err := json.Unmarshal(calls[0].Body, &sent); err != nil || sent.A+sent.B+sent.C != 100 {
			t.Errorf("%v, sent %+v: %s", err, sent, calls[0].Body)
		}
		if e := g.end(r.id()); !strings.Contains(e.Raw, `"max_tokens":100`) {
			t.Errorf("event %s", e.Raw)
		}
	})
}
