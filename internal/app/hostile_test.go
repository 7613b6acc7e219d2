package app

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/config"
	"weir/internal/sim"
)

// S15: whatever a client writes into a name stays inside one line of the events.
func TestEventLinesCannotBeForged(t *testing.T) {
	g := begin(t, setup{sims: oai(sim.Behaviour{})})
	for _, name := range []string{"a\nb", "x\r\n{\"event\":\"end\"}", "\x1b[31mred\x1b[0m", "\u202ertl", "\u2028line", "q\"},{\"a\":\"", "\\u0000", "\u0000", strings.Repeat("long", 1000)} {
		body := strings.Replace(chatBody(false), `"oai-m"`, jsonText(name), 1)
		r := g.post("/v1/chat/completions", body, "User-Agent", "evil \"agent\"")
		r.failed()
		e := g.end(r.id())
		if e.Status != 404 || strings.ContainsAny(e.Raw, "\x1b\r\x00") || strings.Contains(e.Raw, "\u2028") || strings.Contains(e.Raw, "\u202e") || len(e.Raw) > 4096 {
			t.Errorf("%q: event %q", name, e.Raw)
		}
	}
	for _, e := range g.lines.faults {
		t.Error(e)
	}
}

// S16, S17, S19: deep, doubled and oversized input is refused at once.
func TestHostileBodiesAndHeaders(t *testing.T) {
	g := begin(t, setup{sims: oai(sim.Behaviour{})})
	messages := `"messages":[{"role":"user","content":"hi"}]`
	for name, body := range map[string]string{
		"depth 100,000":            `{"model":"oai-m","x":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "," + messages + "}",
		"depth 100,000 in objects": `{"model":"oai-m","x":` + strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000) + "," + messages + "}",
		"depth never closed":       `{"model":"oai-m","x":` + strings.Repeat("[", 100_000),
		"a member twice":           `{"model":"oai-m","stream":true,"stream":false,` + messages + "}",
		"twice by escape":          `{"model":"oai-m","mod\u0065l":"emb",` + messages + "}",
		"twice by case":            `{"model":"oai-m","Model":"emb",` + messages + "}",
		"a role twice":             `{"model":"oai-m","messages":[{"role":"user","role":"system","content":"hi"}]}`,
		"bytes that are no UTF-8":  `{"model":"oai-m","messages":[{"role":"user","content":"` + "\xff\xfe" + `"}]}`,
		"half a surrogate":         `{"model":"oai-m","messages":[{"role":"user","content":"\ud800"}]}x`,
		"a control character":      "{\"model\":\"oai-m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\x01b\"}]}",
		"NaN":                      `{"model":"oai-m","temperature":NaN,` + messages + "}",
		"a comment":                `{/* */"model":"oai-m",` + messages + "}",
		"a byte order mark":        "\ufeff{\"model\":\"oai-m\"," + messages + "}",
	} {
		start := time.Now()
		r := g.post("/v1/chat/completions", body)
		if r.failed(); r.status != 400 || len(r.body) > 2048 || time.Since(start) > time.Second {
			t.Errorf("%s: after %v %d %.300s", name, time.Since(start), r.status, r.body)
		}
	}
	many := strings.Repeat("a=b&", 100_000)
	for name, request := range map[string]string{
		"100,000 query parameters": "GET /v1/models?" + many + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"a header of 1 MiB":        "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nCookie: " + strings.Repeat("a=b; ", 200_000) + "\r\n\r\n",
		"100,000 headers":          "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("X: 1\r\n", 100_000) + "\r\n",
	} {
		if status, _ := g.raw(request); status != 431 && status != 400 {
			t.Errorf("%s: %d", name, status)
		}
	}
	if n := len(g.sim().Calls("")); n != 0 {
		t.Errorf("%d refused requests went upstream", n)
	}
}

// S22: a request with doubtful framing never becomes two.
func TestNoSmuggling(t *testing.T) {
	g := begin(t, setup{sims: oai(sim.Behaviour{Text: "ok"})})
	body := chatBody(false)
	head := "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer " + g.key + "\r\n"
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	for name, request := range map[string]string{
		"two lengths that differ":     head + fmt.Sprintf("Content-Length: %d\r\nContent-Length: 3\r\n\r\n%s", len(body), body),
		"a list of lengths":           head + fmt.Sprintf("Content-Length: %d, 3\r\n\r\n%s", len(body), body),
		"a signed length":             head + fmt.Sprintf("Content-Length: +%d\r\n\r\n%s", len(body), body),
		"a negative length":           head + "Content-Length: -1\r\n\r\n" + body,
		"a length in hex":             head + "Content-Length: 0x10\r\n\r\n" + body,
		"a space before the colon":    head + fmt.Sprintf("Content-Length : %d\r\n\r\n%s", len(body), body),
		"an unknown coding":           head + "Transfer-Encoding: xchunked\r\n\r\n" + chunked,
		"two codings":                 head + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunked,
		"chunked twice":               head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked,
		"a tab in the coding":         head + "Transfer-Encoding: \tchun ked\r\n\r\n" + chunked,
		"a chunk size with a sign":    head + "Transfer-Encoding: chunked\r\n\r\n+" + chunked,
		"a chunk size that overflows": head + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n" + body,
		"a chunk without its end":     head + "Transfer-Encoding: chunked\r\n\r\n" + strings.Replace(chunked, "}\r\n0", "}XX0", 1),
		"a NUL in a header":           head + "X-A: a\x00b\r\nContent-Length: 2\r\n\r\n{}",
		"a bare CR in a header":       head + "X-A: a\rContent-Length: 2\r\n\r\n{}",
		"no colon":                    head + "nonsense\r\n\r\n",
		"two hosts":                   strings.Replace(head, "Host: localhost", "Host: localhost\r\nHost: evil.test", 1) + "\r\n",
		"no host":                     strings.Replace(head, "Host: localhost\r\n", "", 1) + "\r\n",
	} {
		g.forget()
		status, rest := g.raw(request)
		if status < 400 || status == 500 || len(g.sim().Calls("")) > 0 {
			t.Errorf("%s: %d %.200q, %d calls upstream", name, status, rest, len(g.sim().Calls("")))
		}
	}
	g.forget()
	if status, _ := g.raw(head + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + chunked); status != 200 || len(g.sim().Calls("")) != 1 {
		t.Errorf("a proper chunked request: %d, %d calls upstream", status, len(g.sim().Calls("")))
	}
}

// S23, S52: no spelling of a path reaches what is the admin listener's, and debug paths are nowhere.
func TestNoPathAroundTheListeners(t *testing.T) {
	g := begin(t, setup{sims: oai(sim.Behaviour{})})
	spell := func(path string) []string {
		dots := "/v1/models/.." + path
		return []string{path, "/" + path, "/." + path, dots, "/v1/../.." + path, strings.ToUpper(path), path + "/", path + ".", path + ";a=b", path + "%00", path + "%20",
			strings.Replace(path, "/", "%2f", 2), strings.Replace(path, "a", "%61", 1), "/v1/models/%2e%2e" + path, "/%2e%2e" + path, strings.ReplaceAll(path, "/", "\\"), path + "?x=/v1/models", path + "%2f..%2fmetrics"}
	}
	for _, path := range []string{"/metrics", "/api/v1/status", "/api/v1/drain", "/debug/pprof/", "/debug/vars", "/_sim/attempts"} {
		for _, at := range []string{g.url, g.admin} {
			for _, p := range spell(path) {
				if _, err := url.Parse(at + p); err != nil || !strings.HasPrefix(p, "/") {
					continue
				}
				// The key of a client, as anyone who calls has it; on the admin listener it opens nothing.
				r := g.do(t.Context(), "GET", at+p, nil)
				open := at == g.admin && (p == "/metrics" || strings.HasPrefix(p, "/metrics?"))
				if !open && (r.status == 200 || strings.Contains(string(r.body), "weir_slots") || strings.Contains(string(r.body), "goroutine")) {
					t.Errorf("GET %s: %d %.100q", at+p, r.status, r.body)
				}
			}
		}
	}
	if !g.app.server.Ready() {
		t.Error("a request drained Weir")
	}
}

// S29, S30: who dribbles headers, or speaks HTTP/2 in the clear, is cut at the header timeout; an address has a bound of
// connections where one is set.
func TestSlowAndManyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{sims: oai(sim.Behaviour{}), edit: func(c *config.Config) { c.Server.MaxPerAddress = 4 }})
		for name, text := range map[string]string{
			"nothing": "", "half a request line": "POST /v1/ch", "headers without an end": "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-A: ",
			"HTTP/2 in the clear": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		} {
			c, err := g.dial(t.Context(), "tcp", "127.0.0.1:8484")
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			go func() {
				_, _ = io.WriteString(c, text)
				for text != "" && !strings.HasPrefix(text, "PRI") {
					time.Sleep(time.Second)
					if _, err := io.WriteString(c, "a"); err != nil {
						return
					}
				}
			}()
			got, _ := io.ReadAll(c)
			if took := time.Since(start); took > 10*time.Second+100*time.Millisecond || strings.Contains(string(got), " 200 ") {
				t.Errorf("%s: after %v the answer is %.100q", name, took, got)
			}
			c.Close()
		}
		time.Sleep(2 * time.Second)
		var held []io.Closer
		refused := 0
		for range 6 {
			c, err := g.dial(t.Context(), "tcp", "127.0.0.1:8484")
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, c)
			_, _ = io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
			if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
				refused++
			}
		}
		if refused != 2 {
			t.Errorf("%d of 6 connections were refused, want 2 beyond the bound of 4", refused)
		}
		for _, c := range held {
			c.Close()
		}
		time.Sleep(time.Second)
		if r := g.get("/livez"); r.status != 200 {
			t.Errorf("after they left: %d", r.status)
		}
	})
}

// S31: a client that stops reading is gone after the write timeout; its slot is free and the upstream is told.
func TestSlowReaderIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{sims: oai(sim.Behaviour{Endless: true, Gap: time.Millisecond, Deltas: []string{strings.Repeat("x", 8192)}, SSE: sim.SSE{}})})
		resp, err := g.open(t.Context(), "POST", "/v1/chat/completions", strings.NewReader(chatBody(true)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		start := time.Now()
		for g.app.server.Running() > 0 && time.Since(start) < 5*time.Minute {
			time.Sleep(time.Second)
		}
		g.settle()
		if took := time.Since(start); took > time.Minute || g.sim().Calls("")[0].End != sim.Left {
			t.Errorf("after %v the call upstream is %s", took, g.sim().Calls("")[0].End)
		}
		if e := g.end(resp.Header.Get("X-Weir-Request")); e.Kind != "canceled" {
			t.Errorf("event %s", e.Raw)
		}
	})
}
