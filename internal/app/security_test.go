package app

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/key"
	"weir/internal/sim"
	"weir/internal/store"
)

// logged keeps everything that the log says, at debug level.
type logged struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) handler() slog.Handler {
	return slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug})
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// C133: Weir never fetches an address that a client names, and follows no redirect of a backend.
func TestC133NoAddressOfAClientIsFetched(t *testing.T) {
	g := begin(t, setup{sims: map[string]sim.Script{
		"a":      {On: map[string]sim.Sequence{"oai-m": {{Text: "seen"}, {Text: "seen"}, {Redirect: "http://inside.sim/v1/chat/completions"}, {Redirect: "http://inside.sim/", Status: 302}, {Redirect: "http://[::1]:80/", Status: 308}}}},
		"inside": {},
	}})
	loop := sim.New(sim.Options{Name: "loop"}).StartOn(t, g.listen("[::1]:80"))
	for _, url := range []string{"http://inside.sim/cat.png", "file:///etc/passwd", "http://0x7f000001/", "http://[::ffff:127.0.0.1]/", "http://[::1]/"} {
		body := fmt.Sprintf(`{"model":"oai-m","messages":[{"role":"user","content":[{"type":"text","text":"what?"},{"type":"image_url","image_url":{"url":%q}}]}]}`, url)
		if r := g.post("/v1/chat/completions", body); r.status == 200 && !bytes.Contains(last(g.sim()), []byte(url)) {
			t.Errorf("the URL %s was not passed on: %s", url, last(g.sim()))
		}
	}
	for range 3 {
		if r := g.chat(true); r.status != 502 || strings.Contains(string(r.body), "inside") {
			t.Errorf("a redirect was answered with %d %s", r.status, r.body)
		}
	}
	if n, m := len(g.sims["inside"].Attempts()), len(loop.Attempts()); n+m != 0 {
		t.Errorf("%d requests reached an address that nobody configured", n+m)
	}
}

// C137: every wrong key gets the same 401, and nothing of it is kept anywhere.
func TestC137WrongKeysLookTheSame(t *testing.T) {
	const canary = "wrong-key-ABCDEF"
	logs := new(logged)
	g := begin(t, setup{sims: oai(sim.Behaviour{}), log: logs.handler()})
	revoked := g.newKey(key.Spec{Name: "revoked"})
	expired := g.newKey(key.Spec{Name: "expired", Expires: time.Now().Add(time.Millisecond)})
	if _, err := (key.Change{Store: g.app.Store(), Now: time.Now()}).Revoke(t.Context(), "revoked"); err != nil {
		t.Fatal(err)
	}
	if err := g.app.Keys().Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond)
	want := ""
	for name, headers := range map[string][]string{
		"no key":                    {"Authorization", ""},
		"an empty bearer":           {"Authorization", "Bearer "},
		"a wrong bearer":            {"Authorization", "Bearer " + canary},
		"a wrong x-api-key":         {"Authorization", "", "X-Api-Key", canary},
		"another scheme":            {"Authorization", "Basic " + canary},
		"the right key as Basic":    {"Authorization", "Basic " + g.key},
		"quotes":                    {"Authorization", `Bearer "` + canary + `' OR 1=1 --`},
		"letters beyond ASCII":      {"Authorization", "Bearer schlüssel-" + canary + "-鍵"},
		"bytes that are no UTF-8":   {"Authorization", "Bearer \xff\xfe" + canary},
		"60 KiB":                    {"Authorization", "Bearer " + strings.Repeat(canary, 60<<10/len(canary))},
		"two keys that differ":      {"X-Api-Key", canary},
		"a good key and one letter": {"Authorization", "Bearer " + g.key + "x"},
		"a good key without one":    {"Authorization", "Bearer " + g.key[:len(g.key)-1]},
		"a good key in capitals":    {"Authorization", "Bearer " + strings.ToUpper(g.key)},
		"a revoked key":             {"Authorization", "Bearer " + revoked},
		"an expired key":            {"Authorization", "Bearer " + expired},
		"a cookie":                  {"Authorization", "", "Cookie", "key=" + g.key},
	} {
		for _, path := range []string{"/v1/models", "/v1/models/oai-m"} {
			r := g.get(path, headers...)
			if r.failed(); r.status != 401 || r.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s: status %d %s", name, r.status, r.body)
			}
			if want == "" {
				want = string(r.body)
			}
			if string(r.body) != want {
				t.Errorf("%s: the body %s differs from %s", name, r.body, want)
			}
		}
	}
	if r := g.get("/v1/models?key="+g.key, "Authorization", ""); r.status != 401 {
		t.Errorf("a key in the query opens: %d", r.status)
	}
	// What is no HTTP never reaches Weir's own code; it must still not be echoed.
	for name, line := range map[string]string{
		"NUL": "Authorization: Bearer " + canary + "\x00", "a newline": "Authorization: Bearer a\r\n " + canary, "1 MiB": "Authorization: Bearer " + strings.Repeat(canary, 1<<16),
		"two headers": "Authorization: Bearer " + canary + "\r\nAuthorization: Bearer " + g.key,
	} {
		status, body := g.raw("GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + line + "\r\n\r\n")
		if status != 400 && status != 401 && status != 431 || strings.Contains(body, canary) {
			t.Errorf("%s: %d %.200q", name, status, body)
		}
	}
	g.settle()
	g.stop()
	everything := logs.String() + want
	for _, e := range g.lines.all() {
		everything += e.Raw
	}
	st, err := store.Open(t.Context(), g.cfg.Beside(g.cfg.Data), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	rows, err := st.Requests(t.Context(), store.Query{})
	if err != nil || len(rows) < 34 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	everything += fmt.Sprintf("%+v", rows)
	for _, secret := range []string{"ABCDEF", g.key, revoked, expired, g.key[len(g.key)-12:]} {
		if strings.Contains(everything, secret) {
			t.Errorf("%q stands in the log, the events, the store or the answer", secret)
		}
	}
}

// Both ways to send a key work, and together when they agree; guessing from one address is slowed, good keys are not.
func TestKeysAndGuessing(t *testing.T) {
	g := begin(t, setup{sims: oai(sim.Behaviour{})})
	for _, headers := range [][]string{{}, {"Authorization", "", "X-Api-Key", g.key}, {"X-Api-Key", g.key}, {"Authorization", "bearer " + g.key}} {
		if r := g.get("/v1/models", headers...); r.status != 200 {
			t.Errorf("%q: %d", headers[:len(headers)/2], r.status)
		}
	}
	statuses := map[int]int{}
	for range 120 { // S06
		statuses[g.get("/v1/models", "Authorization", "Bearer nope").status]++
	}
	if statuses[401] < 90 || statuses[401] > 101 || statuses[429] < 19 {
		t.Errorf("120 bad keys were answered %v", statuses)
	}
	if r := g.get("/v1/models"); r.status != 200 {
		t.Errorf("a good key is refused after bad ones from its address: %d", r.status)
	}
}

// C138: what a page in a browser can send to a local server does nothing.
func TestC138BrowserRequests(t *testing.T) {
	for _, auth := range []string{"on", "off"} {
		g := begin(t, setup{yaml: "auth: {keys: " + auth + "}\n" + oneBackend(""), sims: oai(sim.Behaviour{})})
		if auth == "off" {
			g.key = ""
			g.chat(false).text() // without a key it serves
			g.forget()
		}
		const chat = "/v1/chat/completions"
		for name, c := range map[string]struct {
			method, path string
			headers      []string
			status       int
		}{
			"a link":               {"GET", chat + "?model=oai-m&prompt=hi", nil, 405},
			"a form":               {"POST", chat, []string{"Content-Type", "text/plain"}, 415},
			"a form with charset":  {"POST", chat, []string{"Content-Type", "text/plain; charset=application/json"}, 415},
			"no type":              {"POST", chat, []string{"Content-Type", ""}, 415},
			"rebinding":            {"POST", chat, []string{"Host", "evil.test"}, 421},
			"rebinding by a link":  {"GET", "/v1/models", []string{"Host", "evil.test:8484"}, 421},
			"localhost as a label": {"POST", chat, []string{"Host", "localhost.evil.test"}, 421},
			"a preflight":          {"OPTIONS", chat, []string{"Origin", "https://evil.test", "Access-Control-Request-Method", "POST"}, 405},
			"admin: a link":        {"GET", g.admin + "/api/v1/drain", nil, 401},
			"admin: a form":        {"POST", g.admin + "/api/v1/drain", []string{"Content-Type", "text/plain"}, 401},
			"admin: an origin":     {"POST", g.admin + "/api/v1/drain", []string{"Origin", "https://evil.test"}, 403},
			"admin: a fetch":       {"POST", g.admin + "/api/v1/drain", []string{"Sec-Fetch-Site", "cross-site"}, 403},
			"admin: rebinding":     {"GET", g.admin + "/metrics", []string{"Host", "evil.test"}, 421},
			"admin: a preflight":   {"OPTIONS", g.admin + "/api/v1/status", []string{"Origin", "https://evil.test", "Access-Control-Request-Method", "GET"}, 401},
		} {
			r := g.do(t.Context(), c.method, c.path, strings.NewReader(chatBody(false)), c.headers...)
			if r.status != c.status {
				t.Errorf("auth %s, %s: %d %s, want %d", auth, name, r.status, r.body, c.status)
			}
			for h := range r.header {
				if strings.HasPrefix(h, "Access-Control-") || h == "Set-Cookie" {
					t.Errorf("auth %s, %s: the answer has %s", auth, name, h)
				}
			}
		}
		if n := len(g.sim().Calls("")); n != 0 || !g.app.server.Ready() {
			t.Errorf("auth %s: %d calls went upstream; ready %v", auth, n, g.app.server.Ready())
		}
	}
}

// C139: address and key of a call come from the configuration alone.
func TestC139ClientCannotChooseTheUpstream(t *testing.T) {
	g := begin(t, setup{sims: map[string]sim.Script{"a": {}, "evil": {}}})
	meta := sim.New(sim.Options{Name: "meta"}).StartOn(t, g.listen("169.254.169.254:80"))
	local := sim.New(sim.Options{Name: "local"}).StartOn(t, g.listen("127.0.0.1:9"))
	for _, field := range []string{
		`"api_base":"http://127.0.0.1:9/"`, `"base_url":"http://169.254.169.254/"`, `"api_key":"x"`, `"extra_headers":{"x-a":"b"}`, `"API_BASE":"http://127.0.0.1:9/"`,
	} {
		r := g.chat(false, field)
		name := strings.Trim(strings.SplitN(field, ":", 2)[0], `"`)
		if r.status == 200 && name == "API_BASE" {
			continue // an unknown member is passed on to the one configured backend
		}
		if f := r.failed(); r.status != 400 || f.Param == nil || *f.Param != name {
			t.Errorf("%s: %d %s", field, r.status, r.body)
		}
	}
	g.forget()
	headers := []string{
		"X-Portkey-Custom-Host", "http://evil.sim", "X-Base-Url", "http://evil.sim", "X-Upstream", "http://evil.sim", "X-Forwarded-Host", "evil.sim",
		"X-Original-Url", "/admin", "Idempotency-Key", "1", "Cookie", "a=b", "X-Forwarded-For", "10.1.2.3", "Proxy-Authorization", "Basic eA==", "X-Custom", "1",
		"Openai-Organization", "org", "Te", "trailers", "User-Agent", "client/1.0", "X-Api-Key", g.key,
	}
	g.post("/v1/chat/completions", chatBody(false), headers...).text()
	up := g.sim().Calls("")[0].Header
	allowed := map[string]bool{"Host": true, "Content-Type": true, "Content-Length": true, "Accept": true, "Accept-Encoding": true, "User-Agent": true, "X-Weir-Hop": true, "X-Request-Id": true, "Traceparent": true}
	for h, v := range up {
		if !allowed[h] {
			t.Errorf("the client's or a new header went up: %s: %v", h, v)
		}
	}
	if up.Get("Host") != "a.sim" || !strings.HasPrefix(up.Get("User-Agent"), "weir/") {
		t.Errorf("upstream got Host %q and User-Agent %q", up.Get("Host"), up.Get("User-Agent"))
	}
	if n := len(g.sims["evil"].Attempts()) + len(meta.Attempts()) + len(local.Attempts()); n != 0 {
		t.Errorf("%d requests reached an address that a client named", n)
	}
}

// C140: no two keys are taken for each other, and a key that another process revokes is out within a second.
func TestC140KeysAreWholeAndRevokedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{sims: map[string]sim.Script{"a": {}}})
		narrow := g.newKey(key.Spec{Name: "narrow", Aliases: []string{"emb"}})
		use := func(token string) int {
			return g.post("/v1/chat/completions", chatBody(false), "Authorization", "Bearer "+token).status
		}
		if got, want := []int{use(g.key), use(narrow)}, []int{200, 404}; got[0] != want[0] || got[1] != want[1] {
			t.Fatalf("statuses %v, want %v", got, want)
		}
		half := len(g.key) / 2
		for name, token := range map[string]string{
			"the first half of one, the second of the other": narrow[:half] + g.key[half:],
			"the first 20 letters":                           g.key[:20] + narrow[20:],
			"the last 20 letters":                            narrow[:len(narrow)-20] + g.key[len(g.key)-20:],
			"both, one after the other":                      narrow + g.key,
			"a comma":                                        narrow + "," + g.key,
		} {
			if got := use(token); got != 401 {
				t.Errorf("%s: %d, want 401", name, got)
			}
		}
		other, err := store.Open(t.Context(), g.cfg.Beside(g.cfg.Data), store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if _, err := (key.Change{Store: other, Now: time.Now()}).Revoke(context.WithoutCancel(t.Context()), "test"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := use(g.key); got != 401 {
			t.Errorf("a key revoked by another process a second ago: %d, want 401", got)
		}
		if got := use(narrow); got != 404 {
			t.Errorf("the other key: %d, want 404", got)
		}
		// A key made by another process works within a second too.
		token, _, err := key.Change{Store: other, Now: time.Now()}.Add(t.Context(), key.Spec{Name: "new", Concurrent: 1})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := use(token); got != 200 {
			t.Errorf("a key made by another process: %d, want 200", got)
		}
	})
}
