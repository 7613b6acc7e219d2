package app

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/config"
	"weir/internal/sim"
)

const countPath = "/v1/messages/count_tokens"

// C050: whatever shape a backend's refusal has, the client reads its own API's, with the status and the words kept.
func TestC050ForeignShapes(t *testing.T) {
	for name, c := range map[string]struct{ kind, body, says string }{
		"flat": {"application/json", `{"message":"no support"}`, "no support"}, "empty": {"application/json", "", "400"},
		"a page": {"text/html", "<html><body>Bad request</body></html>", "400"}, "text": {"application/json", `{"error":"no support"}`, "no support"},
		"OpenAI's":    {"application/json", `{"error":{"message":"no support","type":"invalid_request_error","param":null,"code":null}}`, "no support"},
		"Anthropic's": {"application/json", `{"type":"error","error":{"type":"invalid_request_error","message":"no support"},"request_id":"req_foreign"}`, "no support"},
	} {
		t.Run(name, func(t *testing.T) {
			b := sim.Behaviour{Status: 400, Headers: map[string]string{"Content-Type": c.kind}, Body: sim.Bytes(c.body), NoBody: c.body == ""}
			g := polyglot(t, b)
			for _, s := range g.sims {
				if err := s.Set(countPath, b); err != nil {
					t.Fatal(err)
				}
			}
			check := func(r *reply, f *failure) {
				t.Helper()
				if r.status != 400 || f.Type != "invalid_request_error" || !strings.Contains(f.Message, c.says) || strings.ContainsAny(f.Message, "<{") || strings.Contains(string(r.body), "req_foreign") {
					t.Errorf("%d %s", r.status, r.body)
				}
			}
			for _, client := range apis {
				for _, model := range []string{"oai-m", "ant-m", "res-m", "loc-m"} {
					for _, stream := range []bool{true, false} {
						r, got := g.talk(client, client.ask(model, stream))
						check(r, got.failure)
					}
				}
			}
			for _, model := range []string{"ant-m", "loc-m"} {
				r := g.post(countPath, `{"model":"`+model+`","messages":[{"role":"user","content":"hi"}]}`)
				check(r, r.refusedMessage())
			}
		})
	}
}

// C077: a pool that was asked for a pause answers each API in its own words, with the time that is left.
func TestC077PauseInEachShape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := polyglot(t, sim.Behaviour{Status: 429, RetryAfter: "30"})
		for _, model := range backs {
			g.talk(chatAPI, chatAPI.ask(model, false))
		}
		time.Sleep(time.Second)
		g.forget()
		for _, client := range apis {
			for _, model := range backs {
				r, got := g.talk(client, client.ask(model, true))
				if r.status != 429 || r.header.Get("Retry-After") != "29" || got.failure.Type != "rate_limit_error" {
					t.Errorf("%s: %d, Retry-After %q: %s", client.name, r.status, r.header.Get("Retry-After"), r.body)
				}
			}
		}
		for name, s := range g.sims {
			if n := len(s.Calls("")); n != 0 {
				t.Errorf("%s was called %d times in its pause", name, n)
			}
		}
	})
}

// C137: every wrong key is told the same, in the API's own shape, and nothing of it.
func TestC137WrongKeysInEachShape(t *testing.T) {
	g := polyglot(t)
	for _, c := range []struct{ method, path, kind string }{
		{"POST", messagesAPI.path, "authentication_error"}, {"POST", countPath, "authentication_error"}, {"GET", "/v1/models", "authentication_error"},
		{"POST", responsesAPI.path, "authentication_error"}, {"POST", chatAPI.path, "authentication_error"},
	} {
		seen := map[string]bool{}
		for _, key := range [][]string{
			{"Authorization", ""}, {"Authorization", "Bearer "}, {"Authorization", "Bearer wrong-key-ABCDEF"}, {"Authorization", "", "X-Api-Key", "wrong-key-ABCDEF"},
			{"Authorization", "Bearer ключ\"'"}, {"Authorization", "Bearer " + strings.Repeat("x", 8<<10)},
		} {
			var body io.Reader
			if c.method == "POST" {
				body = strings.NewReader(messagesAPI.ask("oai-m", false))
			}
			r := g.do(t.Context(), c.method, c.path, body, append(key, "Anthropic-Version", "2023-06-01")...)
			if strings.Contains(string(r.body), "ABCDEF") || r.status != 401 || r.header.Get("X-Should-Retry") != "false" {
				t.Errorf("%s %q: %d %s", c.path, key[1], r.status, r.body)
			}
			var e struct{ Error *failure }
			if json.Unmarshal(r.body, &e) != nil || e.Error == nil || e.Error.Type != c.kind {
				t.Errorf("%s: %s", c.path, r.body)
			}
			seen[strings.ReplaceAll(string(r.body), r.id(), "ID")] = true
		}
		if len(seen) != 1 {
			t.Errorf("%s: %d different answers: %v", c.path, len(seen), seen)
		}
	}
	for _, header := range []string{"X-Api-Key", "Authorization"} {
		value := g.key
		if header == "Authorization" {
			value = "Bearer " + value
		}
		for _, client := range apis {
			if r := g.post(client.path, client.ask("oai-m", false), "Authorization", "", header, value); r.status != 200 {
				t.Errorf("%s by %s: %d %s", client.name, header, r.status, r.body)
			}
		}
	}
}

// C121: a body over the limit is 413 in each API's shape, by its length or as soon as it is exceeded.
func TestC121TooLargeInEachShape(t *testing.T) {
	g := begin(t, setup{yaml: tongues, sims: map[string]sim.Script{"c": {}}, edit: func(c *config.Config) { c.Server.MaxBody = 64 << 10 }})
	for _, client := range apis {
		for _, chunked := range []bool{false, true} {
			body := client.ask("oai-m", false, `"metadata":{"a":"`+strings.Repeat("x", 64<<10)+`"}`)
			var from io.Reader = strings.NewReader(body)
			if chunked {
				from = io.MultiReader(from)
			}
			r := g.do(t.Context(), "POST", client.path, from)
			got := r.told(client).failure
			want := "invalid_request_error"
			if client == messagesAPI {
				want = "request_too_large"
			} else if got.Code != "request_too_large" {
				t.Errorf("%s: code %v", client.name, got.Code)
			}
			if r.status != 413 || got.Type != want || !strings.Contains(got.Message, "65536") {
				t.Errorf("%s, chunked %v: %d %s", client.name, chunked, r.status, r.body)
			}
		}
		if r := g.post(client.path, client.ask("oai-m", false, `"metadata":{"a":"`+strings.Repeat("x", 33<<10)+`"}`)); r.status != 200 {
			t.Errorf("%s, 33 KiB: %d %s", client.name, r.status, r.body)
		}
	}
}

// A full queue is 529 on Messages; what is 503 elsewhere is 429 on Responses, and says why.
func TestFullInEachShape(t *testing.T) {
	g := begin(t, setup{yaml: strings.Replace(tongues, "c: {backend: c, cap: 8", "c: {backend: c, cap: 1, queue: 0", 1),
		sims: map[string]sim.Script{"c": {On: map[string]sim.Sequence{"m": {{Hang: true}, {}}}}}})
	stop := g.whileOneHangs()
	for _, c := range []struct {
		client *api
		status int
		says   string
	}{{chatAPI, 503, ""}, {messagesAPI, 529, ""}, {responsesAPI, 429, "sent as 429 and not 503"}} {
		r, got := g.talk(c.client, c.client.ask("oai-m", true))
		if r.status != c.status || got.failure.Type != "overloaded_error" || !strings.Contains(got.failure.Message, c.says) || r.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", c.client.name, r.status, r.body)
		}
		if e := g.end(r.id()); e.Status != c.status || e.Kind != "full" {
			t.Errorf("%s: %s", c.client.name, e.Raw)
		}
	}
	stop()
	t.Run("no step at all", func(t *testing.T) {
		yaml := strings.Replace(tongues, "aliases:", "routes:\n  near: {steps: [c/m]}\naliases:", 1)
		yaml = strings.Replace(strings.Replace(yaml, `c.sim", tier: gpu`, `c.sim", tier: cloud`, 1), "{m: c/m", "{near: near, m: c/m", 1)
		g := begin(t, setup{yaml: yaml})
		for client, status := range map[*api]int{chatAPI: 503, messagesAPI: 503, responsesAPI: 429} {
			r, got := g.talk(client, client.ask("near", false), "X-Weir-Boundary", "local")
			if r.status != status || got.failure.Type != "overloaded_error" || !strings.Contains(got.failure.Message, "is outside") || r.header.Get("X-Should-Retry") != "false" {
				t.Errorf("%s: %d %s", client.name, r.status, r.body)
			}
		}
	})
}

// The list of models is Anthropic's for its clients, page by page, and OpenAI's for others.
func TestModelsInEachShape(t *testing.T) {
	g := polyglot(t)
	type page struct {
		Data []struct {
			Type, ID string
			Name     string `json:"display_name"`
			Created  string `json:"created_at"`
		}
		More  bool    `json:"has_more"`
		First *string `json:"first_id"`
		Last  *string `json:"last_id"`
	}
	read := func(query string) (p page) {
		t.Helper()
		r := g.get("/v1/models"+query, "Anthropic-Version", "2026-10-21")
		if err := json.Unmarshal(r.body, &p); r.status != 200 || err != nil || r.header.Get("Request-Id") != r.id() {
			t.Fatalf("%s: %d %s, %v", query, r.status, r.body, err)
		}
		for _, m := range p.Data {
			if _, err := time.Parse(time.RFC3339, m.Created); m.Type != "model" || m.ID == "" || m.Name == "" || err != nil {
				t.Errorf("entry %+v", m)
			}
		}
		return p
	}
	ids := func(p page) (list []string) {
		for _, m := range p.Data {
			list = append(list, m.ID)
		}
		return list
	}
	all := ids(read("?limit=1000"))
	if len(all) < 10 || read("").More || len(ids(read(""))) != len(all) {
		t.Errorf("models %q", all)
	}
	var paged []string
	for after, n := "", 0; n < 20; n++ {
		p := read("?limit=3&after_id=" + after)
		paged = append(paged, ids(p)...)
		if *p.First != p.Data[0].ID || *p.Last != p.Data[len(p.Data)-1].ID {
			t.Errorf("first %q, last %q of %q", *p.First, *p.Last, ids(p))
		}
		if after = *p.Last; !p.More {
			break
		}
	}
	if diff := cmp.Diff(all, paged); diff != "" {
		t.Errorf("page by page (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(all[1:4], ids(read("?limit=3&before_id="+all[4]))); diff != "" {
		t.Errorf("before (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"0", "1001", "x"} {
		if r := g.get("/v1/models?limit="+bad, "Anthropic-Version", "2023-06-01"); r.status != 400 || r.refusedMessage().Type != "invalid_request_error" {
			t.Errorf("limit %s: %d %s", bad, r.status, r.body)
		}
	}
	if r := g.get("/v1/models/ant-m", "Anthropic-Version", "2023-06-01"); r.status != 200 || !strings.Contains(string(r.body), `"type":"model","id":"ant-m"`) {
		t.Errorf("one: %d %s", r.status, r.body)
	}
	if r := g.get("/v1/models/nothing", "Anthropic-Version", "2023-06-01"); r.status != 404 || r.refusedMessage().Type != "not_found_error" {
		t.Errorf("none: %d %s", r.status, r.body)
	}
	if r := g.get("/v1/models"); !strings.HasPrefix(string(r.body), `{"object":"list"`) || r.header.Get("Request-Id") != "" {
		t.Errorf("OpenAI's: %s", r.body)
	}
	if r := g.do(t.Context(), http.MethodHead, "/", nil, "Authorization", ""); r.status != 200 || len(r.body) != 0 {
		t.Errorf("HEAD /: %d", r.status)
	}
	if r := g.post("/v1/messages/nothing", "{}"); r.status != 404 || r.refusedMessage().Type != "not_found_error" {
		t.Errorf("an unknown path: %d %s", r.status, r.body)
	}
}

// What goes up beside the body: version, betas and query to Messages alone, the key in each API's header.
func TestHeadersForEachBackend(t *testing.T) {
	t.Setenv("WEIR_TEST_UPSTREAM", "sk-of-the-vendor-1")
	yaml := strings.ReplaceAll(tongues, "tier: gpu", `tier: gpu, key: "${env:WEIR_TEST_UPSTREAM}"`)
	sims := map[string]sim.Script{"c": {}, "m": {Server: sim.Anthropic}, "r": {}, "l": {Server: sim.LlamaCPP}}
	for name, s := range sims {
		s.Key = "sk-of-the-vendor-1"
		sims[name] = s
	}
	g := begin(t, setup{yaml: yaml, sims: sims})
	for _, client := range apis {
		for _, model := range []string{"oai-m", "ant-m", "res-m", "loc-m"} {
			r := g.post(client.path+"?beta=true", client.ask(model, false), "Anthropic-Version", "2026-10-21", "Anthropic-Beta", "one-2026-01-01,future-2027-02-03",
				"X-Secret", "of the client", "X-Claude-Code-Session-Id", "session")
			if got := r.told(client); got.failure != nil {
				t.Errorf("%s to %s: %d %s", client.name, model, r.status, r.body)
				continue
			}
			up := g.upstream(model)
			version, beta, query := "", "", ""
			if model == "ant-m" {
				version = "2023-06-01"
				if client == messagesAPI {
					version, beta, query = "2026-10-21", "one-2026-01-01,future-2027-02-03", "beta=true"
				}
			}
			if v, b := up.Header.Get("Anthropic-Version"), up.Header.Get("Anthropic-Beta"); v != version || b != beta || up.Query != query {
				t.Errorf("%s to %s: version %q, beta %q, query %q", client.name, model, v, b, up.Query)
			}
			bearer, own := up.Header.Get("Authorization"), up.Header.Get("X-Api-Key")
			if (model == "ant-m") != (own == "sk-of-the-vendor-1" && bearer == "") || (model != "ant-m") != (own == "" && bearer == "Bearer sk-of-the-vendor-1") {
				t.Errorf("%s to %s: Authorization %q, X-Api-Key %q", client.name, model, bearer, own)
			}
			if up.Header.Get("X-Secret") != "" || strings.Contains(fmt.Sprint(up.Header), g.key) {
				t.Errorf("%s to %s: the client's own headers went up: %v", client.name, model, up.Header)
			}
		}
	}
}

// The line that changes from request to request is left out for local servers, whose prefix it would break, and kept for
// Anthropic, which reads it.
func TestAttributionLine(t *testing.T) {
	const line = "x-anthropic-billing-header: cc_version=2.1.197; cc_entrypoint=sdk-cli;"
	const system = `"system":[{"type":"text","text":"` + line + `"},{"type":"text","text":"You help.","cache_control":{"type":"ephemeral"}}]`
	g := polyglot(t, sim.Behaviour{Text: "fine"})
	for model, kept := range map[string]bool{"loc-m": false, "ant-m": true, "oai-m": true} {
		if _, got := g.talk(messagesAPI, messagesAPI.ask(model, true, system)); got.text != "fine" {
			t.Errorf("%s: %+v", model, got.failure)
		}
		up := g.upstream(model)
		if strings.Contains(string(up.Body), line) != kept || !strings.Contains(string(up.Body), "You help.") {
			t.Errorf("%s, kept %v: %s", model, kept, up.Body)
		}
		if model == "ant-m" && !strings.Contains(string(up.Body), system) {
			t.Errorf("the bytes have changed: %s", up.Body)
		}
	}
}
