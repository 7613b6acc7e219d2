package app

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/config"
	"weir/internal/key"
	"weir/internal/sim"
)

// Every refusal is OpenAI's error object with its own status and code, says what to do, goes nowhere upstream and is
// an event like any other request.
func TestEveryRefusalHasItsShape(t *testing.T) {
	g := begin(t, setup{sims: oai(sim.Behaviour{}), edit: func(c *config.Config) { c.Server.MaxBody = 4096 }})
	limited := g.newKey(key.Spec{Name: "limited", RPM: 1})
	narrow := g.newKey(key.Spec{Name: "narrow", Aliases: []string{"emb"}})
	const chat, ok = "/v1/chat/completions", `{"model":"oai-m","messages":[{"role":"user","content":"hi"}]}`
	g.post(chat, ok, "Authorization", "Bearer "+limited).text()
	g.forget()
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		code, param, message     string // message: a part of it
	}{
		{"an empty body", "POST", chat, ``, nil, 400, "invalid_request", "", "empty"},
		{"no object", "POST", chat, `[]`, nil, 400, "invalid_request", "", "JSON object"},
		{"broken JSON", "POST", chat, `{"model":"oai-m",}`, nil, 400, "invalid_json", "", "not valid JSON"},
		{"text after the object", "POST", chat, ok + `{}`, nil, 400, "invalid_json", "", "not valid JSON"},
		{"a member twice", "POST", chat, `{"model":"oai-m","model":"emb","messages":[{"role":"user","content":"hi"}]}`, nil, 400, "invalid_request", "model", "twice"},
		{"no model", "POST", chat, `{"messages":[{"role":"user","content":"hi"}]}`, nil, 400, "invalid_request", "model", "GET /v1/models"},
		{"a model that is no text", "POST", chat, `{"model":7,"messages":[{"role":"user","content":"hi"}]}`, nil, 400, "invalid_request", "model", "string"},
		{"no messages", "POST", chat, `{"model":"oai-m"}`, nil, 400, "invalid_request", "messages", "missing"},
		{"no prompt", "POST", "/v1/completions", `{"model":"oai-m"}`, nil, 400, "invalid_request", "prompt", "missing"},
		{"no input", "POST", "/v1/embeddings", `{"model":"emb"}`, nil, 400, "invalid_request", "input", "missing"},
		{"no query", "POST", "/v1/rerank", `{"model":"emb"}`, nil, 400, "invalid_request", "query", "missing"},
		{"a stream that is no flag", "POST", chat, `{"model":"oai-m","stream":"yes","messages":[{"role":"user","content":"hi"}]}`, nil, 400, "invalid_request", "stream", "true or false"},
		{"no key", "POST", chat, ok, []string{"Authorization", ""}, 401, "invalid_api_key", "", "Bearer"},
		{"an unknown model", "POST", chat, strings.Replace(ok, "oai-m", "oai-n", 1), nil, 404, "model_not_found", "model", "near it: oai-m"},
		{"a model that the key may not use", "POST", chat, ok, []string{"Authorization", "Bearer " + narrow}, 404, "model_not_found", "model", "GET /v1/models"},
		{"an unknown model by name", "GET", "/v1/models/nope", ``, nil, 404, "model_not_found", "model", "GET /v1/models"},
		{"an unknown path", "POST", "/v1/images", ok, nil, 404, "unknown_path", "", "/v1/images"},
		{"a path without /v1", "POST", "/chat/completions", ok, nil, 404, "unknown_path", "", "ends in /v1"},
		{"an escaped path", "POST", "/v1%2Fchat/completions", ok, nil, 404, "unknown_path", "", "nothing"},
		{"the wrong method", "GET", chat, ``, nil, 405, "method_not_allowed", "", "POST"},
		{"the wrong method for a list", "DELETE", "/v1/models", ``, nil, 405, "method_not_allowed", "", "GET"},
		{"a body over the limit", "POST", chat, strings.Repeat(" ", 4097), nil, 413, "request_too_large", "", "4096"},
		{"a packed body", "POST", chat, ok, []string{"Content-Encoding", "gzip"}, 415, "unsupported_encoding", "", "compressed"},
		{"a form", "POST", chat, ok, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "unsupported_content_type", "", "application/json"},
		{"a foreign host", "POST", chat, ok, []string{"Host", "evil.test"}, 421, "unknown_host", "", "evil.test"},
		{"too many requests", "POST", chat, ok, []string{"Authorization", "Bearer " + limited}, 429, "rate_limit_exceeded", "", ""},
		{"a loop through eight Weirs", "POST", chat, ok, []string{"X-Weir-Hop", "a, b, c, d, e, f, g, h"}, 508, "loop", "", "8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var body io.Reader
			if c.body != "" || c.method == "POST" {
				body = strings.NewReader(c.body)
			}
			r := g.do(t.Context(), c.method, c.path, body, c.headers...)
			f := r.failed()
			param := ""
			if f.Param != nil {
				param = *f.Param
			}
			if r.status != c.status || f.Code != c.code || param != c.param || !strings.Contains(f.Message, c.message) {
				t.Errorf("got %d %s; want %d, code %s, param %q, message with %q", r.status, r.body, c.status, c.code, c.param, c.message)
			}
			if c.status == 405 && r.header.Get("Allow") == "" {
				t.Error("405 without Allow")
			}
			if e := g.end(r.id()); e.Status != c.status || e.Kind == "" || e.Message == nil || *e.Message != f.Message {
				t.Errorf("event %s", e.Raw)
			}
		})
	}
	if n := len(g.sim().Calls("")); n != 0 {
		t.Errorf("%d refused requests went upstream", n)
	}
}

// HEAD / answers, which clients use to see whether a base URL is alive; so do the paths of health.
func TestRootAndHealth(t *testing.T) {
	g := begin(t, setup{sims: oai(sim.Behaviour{})})
	for _, c := range []struct{ method, url string }{
		{"HEAD", g.url + "/"}, {"GET", g.url + "/"}, {"GET", g.url + "/livez"}, {"GET", g.url + "/readyz"},
		{"GET", g.admin + "/livez"}, {"GET", g.admin + "/readyz"},
	} {
		r := g.do(t.Context(), c.method, c.url, nil, "Authorization", "")
		if r.status != 200 || r.id() == "" {
			t.Errorf("%s %s: %d %q", c.method, c.url, r.status, r.body)
		}
	}
	if r := g.get("/", "Host", "evil.test"); r.status != 421 {
		t.Errorf("the root answers for a foreign host: %d", r.status)
	}
}

// A request that comes back to the Weir it left is refused with 508, and the client of the first pass sees a failure.
func TestLoopIsFound(t *testing.T) {
	g := begin(t, setup{yaml: strings.Replace(oneBackend(""), "a.sim", "weir.sim", 1)})
	hops := make(chan string, 8)
	g.serve(g.listen("weir.sim:80"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hops <- r.Header.Get("X-Weir-Hop")
		resp, err := g.open(r.Context(), "POST", "/v1/chat/completions", r.Body, "X-Weir-Hop", r.Header.Get("X-Weir-Hop"))
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer resp.Body.Close()
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	r := g.chat(false)
	if f := r.failed(); r.status != 502 && r.status != 508 || !strings.Contains(f.Message, "leads back") {
		t.Errorf("got %d %s", r.status, r.body)
	}
	if first := <-hops; first == "" || len(hops) > 0 {
		t.Errorf("the request went round: first hop %q, %d more", first, len(hops))
	}
	t.Run("other hops are passed on", func(t *testing.T) {
		g := begin(t, setup{sims: oai(sim.Behaviour{})})
		g.post("/v1/chat/completions", chatBody(true), "X-Weir-Hop", "other").text()
		if got := g.sim().Calls("")[0].Header.Get("X-Weir-Hop"); !strings.HasPrefix(got, "other, ") || len(got) < 20 {
			t.Errorf("X-Weir-Hop upstream: %q", got)
		}
	})
}

// A body that stops coming is answered 408 after the time for that; one that keeps coming slowly is not.
func TestSlowBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{sims: oai(sim.Behaviour{})})
		for _, gap := range []time.Duration{20 * time.Second, time.Minute} {
			pr, pw := io.Pipe()
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				for _, piece := range []string{chatBody(false)[:20], chatBody(false)[20:40], chatBody(false)[40:]} {
					_, _ = io.WriteString(pw, piece)
					time.Sleep(gap)
				}
				pw.Close()
			}()
			defer pr.Close()
			start := time.Now()
			r := g.do(t.Context(), "POST", "/v1/chat/completions", pr)
			if gap == time.Minute {
				if f := r.failed(); r.status != 408 || f.Code != "body_timeout" || time.Since(start) > 31*time.Second {
					t.Errorf("after %v: %d %s", time.Since(start), r.status, r.body)
				}
				pr.Close()
				<-sent
				continue
			}
			r.text()
			<-sent
		}
	})
}

// A client that leaves while it sends is no error of anyone; its event says so.
func TestClientLeavesWhileSending(t *testing.T) {
	g := begin(t, setup{sims: oai(sim.Behaviour{})})
	c, err := g.dial(t.Context(), "tcp", strings.TrimPrefix(g.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"model\"", g.key)
	time.Sleep(20 * time.Millisecond)
	c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	e, err := g.lines.wait(ctx, func(r *record) bool { return r.Event == "end" })
	if err != nil || e.Status != 499 || e.Kind != "canceled" {
		t.Errorf("%v: event %s", err, e.Raw)
	}
	if n := len(g.sim().Calls("")); n != 0 {
		t.Errorf("%d calls upstream", n)
	}
}

// raw sends bytes and returns the status line and all that follows.
func (g *gateway) raw(request string) (status int, rest string) {
	g.t.Helper()
	c, err := g.dial(g.t.Context(), "tcp", strings.TrimPrefix(g.url, "http://"))
	if err != nil {
		g.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	go func() { _, _ = io.WriteString(c, request) }()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		g.t.Fatalf("%.100q: %v", request, err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}
