package app

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/sim"
)

// tightYAML is a vendor with a ceiling of a cent, at a thousandth of a dollar a token.
const tightYAML = `
backends:
  v: {url: "http://v.sim", tier: cloud}
pools:
  v: {backend: v, cap: 200, models: [m], price: {in: 1000, out: 1000}, spend: {day: 0.01}}
aliases: {v: v/m}
`

// A client who leaves before the answer's head has the prompt booked: the vendor has read it. So asking for much and
// leaving gets past no ceiling.
func TestWhoLeavesBeforeTheHeadIsCharged(t *testing.T) {
	for name, stream := range map[string]bool{"streamed": true, "whole": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{yaml: tightYAML, sims: map[string]sim.Script{"v": {On: map[string]sim.Sequence{"m": {{Text: "x", HeaderDelay: 5 * time.Second}}}}}})
				body := strings.Replace(chatBody(stream, `"max_tokens":1`), "oai-m", "v", 1)
				for range 20 {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					if resp, err := g.open(ctx, "POST", "/v1/chat/completions", strings.NewReader(body)); err == nil {
						g.read(resp)
					}
					cancel()
					time.Sleep(time.Second)
				}
				n, day := len(g.sims["v"].Calls("")), g.app.book.Totals("pool", "v").Day
				if day.Spent == 0 || day.Unpriced != 0 || n == 20 || n == 0 {
					t.Errorf("%d of 20 calls reached the vendor, and the book says %+v", n, day)
				}
				for _, l := range g.lines.all() {
					if cost, has := nano(t, l.Raw); l.Event == "end" && l.Kind == "canceled" && (!has || cost.Sign() <= 0 || !l.Tokens.Estimated) {
						t.Errorf("recorded: %s", l.Raw)
					}
				}
			})
		})
	}
}

// What a vendor says that it read is believed where it is more than the request's own bytes: files and searches are billed too.
func TestMoreThanTheBytesIsBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: strings.Replace(tightYAML, "0.01", "100000", 1), sims: map[string]sim.Script{"v": {}}})
		must(t, g.sims["v"].Set("m", sim.Behaviour{Text: "found", Usage: `{"prompt_tokens":60000,"completion_tokens":5}`}))
		r := g.post("/v1/chat/completions", `{"model":"v","messages":[{"role":"user","content":[{"type":"text","text":"sum up"},{"type":"file","file":{"file_id":"f-123"}}]}]}`)
		if e := g.end(r.id()); *e.Tokens.In != 60000 || !e.Tokens.Estimated {
			t.Errorf("recorded %s", e.Raw)
		}
	})
}

// S43: what asks for many answers in one request is held and bounded for all of them: a list of prompts, n in a form; and
// images are held although nobody knows before what they use.
func TestManyAnswersInOneRequest(t *testing.T) {
	burst := func(g *gateway, ask func() *reply) (passed int64) {
		var ok atomic.Int64
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if ask().status == 200 {
					ok.Add(1)
				}
			})
		}
		all.Wait()
		return ok.Load()
	}
	slow := func(body string) map[string]http.Handler {
		return map[string]http.Handler{"v": &ears{does: func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(5 * time.Second)
			says(200, "application/json", body)(w, r)
		}}}
	}
	t.Run("a list of prompts is held for each", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			answer := `{"id":"x","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"a","finish_reason":"length"}],"usage":{"prompt_tokens":4,"completion_tokens":4,"total_tokens":8}}`
			g := begin(t, setup{yaml: strings.Replace(strings.Replace(tightYAML, "in: 1000", "in: 0", 1), "tier: cloud", "tier: cloud, stream: as_asked", 1), other: slow(answer)})
			if n := burst(g, func() *reply {
				return g.post("/v1/completions", `{"model":"v","max_tokens":1,"prompt":["a","b","c","d"]}`)
			}); n != 2 {
				t.Errorf("%d passed at four tokens each, want 2 under a ceiling of ten", n)
			}
		})
	})
	t.Run("a list of prompts is bounded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := begin(t, setup{yaml: tightYAML + "requests: {choices: 4}\n", other: slow(`{}`)})
			for body, want := range map[string]int{
				`"prompt":["a","b","c","d","e"]`: 400, `"prompt":["a","b","c"],"n":2`: 400, `"prompt":[[1],[2],[3],[4],[5]]`: 400, `"prompt":[1,2,3,4,5,6]`: 502,
			} {
				if r := g.post("/v1/completions", `{"model":"v","max_tokens":1,`+body+`}`); r.status != want {
					t.Errorf("%s: %d %s, want %d", body, r.status, r.body, want)
				}
			}
		})
	})
	t.Run("images", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := begin(t, setup{yaml: tightYAML, other: slow(`{"created":1,"data":[{"b64_json":"QUFB"}],"usage":{"input_tokens":1,"output_tokens":5}}`)})
			if n := burst(g, func() *reply {
				return g.post("/v1/images/edits", read(t, mediaForm("v", 100, true)), "Content-Type", formType)
			}); n != 1 {
				t.Errorf("%d passed at once, want 1", n)
			}
		})
	})
}

// S44: a limit that is lowered takes the budget for thinking with it, as the API wants it to be below; where none is left for
// that, Weir says so itself.
func TestALoweredLimitLeavesRoomForThinking(t *testing.T) {
	for most, want := range map[string]string{"8000": `"budget_tokens":7999`, "1000": ""} {
		synctest.Test(t, func(t *testing.T) {
			yaml := strings.Replace(strings.Replace(tightYAML, "tier: cloud", "tier: cloud, server: anthropic", 1), "0.01", "100", 1) + "requests: {max_tokens: " + most + "}\n"
			g := begin(t, setup{yaml: yaml, sims: map[string]sim.Script{"v": {Server: sim.Anthropic}}})
			r := g.post("/v1/messages", `{"model":"v","max_tokens":32000,"thinking":{"type":"enabled","budget_tokens":31999},"messages":[{"role":"user","content":"hi"}]}`, "anthropic-version", "2023-06-01")
			calls := g.sims["v"].Calls("")
			switch {
			case want == "":
				if r.status != 400 || !strings.Contains(string(r.body), "requests.max_tokens") || len(calls) != 0 {
					t.Errorf("most %s: %d %s", most, r.status, r.body)
				}
			case r.status != 200 || len(calls) != 1 || !strings.Contains(string(calls[0].Body), want) || !strings.Contains(string(calls[0].Body), `"max_tokens":`+most):
				t.Errorf("most %s: %d %s", most, r.status, r.body)
			}
		})
	}
}
