package app

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/admin"
	"weir/internal/key"
	"weir/internal/sim"
)

// publicRoutes and adminRoutes are all that the two listeners have, by path, with the method.
var (
	publicRoutes = map[string]string{
		"/v1/chat/completions": "POST", "/v1/completions": "POST", "/v1/embeddings": "POST", "/v1/rerank": "POST", "/v1/models": "GET", "/v1/models/": "GET",
		"/v1/messages": "POST", "/v1/messages/count_tokens": "POST", "/v1/responses": "POST", "/v1/responses/input_tokens": "POST", "/v1/responses/": "GET",
		"/v1/audio/speech": "POST", "/v1/audio/transcriptions": "POST", "/v1/audio/translations": "POST",
		"/v1/images/generations": "POST", "/v1/images/edits": "POST", "/v1/images/variations": "POST",
		"/": "GET", "/livez": "GET", "/readyz": "GET",
	}
	adminRoutes = map[string]string{"/livez": "GET", "/readyz": "GET", "/metrics": "GET", "/api/v1/status": "GET", "/api/v1/drain": "POST",
		"/api/v1/pools": "GET", "/api/v1/pools/out": "POST", "/api/v1/pools/in": "POST",
		"/api/v1/caps": "GET", "/api/v1/caps/confirm": "POST", "/api/v1/caps/undo": "POST"}
)

// openRoutes answer without a secret, on both listeners or on the admin listener alone (metrics, which is on loopback).
var openRoutes = []string{"/", "/livez", "/readyz", "/metrics"}

// S04, API9: the tables above hold every path that stands in the code, so that a new route cannot be forgotten here.
func TestEveryRouteIsInTheTables(t *testing.T) {
	for dir, table := range map[string]map[string]string{"../server": publicRoutes, "../admin": adminRoutes} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					if s, err := strconv.Unquote(l.Value); err == nil && strings.HasPrefix(s, "/") && !strings.Contains(s, " ") && s != "/v1" {
						found[s] = true
					}
				}
				return true
			})
		}
		if got, want := slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(table)); !slices.Equal(got, want) {
			t.Errorf("%s names the paths %v; the table of this test has %v", dir, got, want)
		}
	}
}

// role is who asks, and what it gets for the model far, which is outside and no alias of the narrow key.
type role struct {
	name, token string
	far         int
}

// gets returns the status that the role gets at a route of the public listener.
func (r *role) gets(path string) int {
	switch {
	case slices.Contains(openRoutes, path):
		return 200
	case r.far == 401:
		return 401
	case path == "/v1/models":
		return 200
	case path == "/v1/models/" && r.far == 503, path == "/v1/responses/": // no such model for it; nothing is kept
		return 404
	case strings.HasPrefix(path, "/v1/responses") && r.far == 503: // what its clients take for final
		return 429
	case formRoutes[path]:
		return 415
	case (path == "/v1/audio/speech" || path == "/v1/images/generations") && r.far == 200: // the server behind has no such path
		return 502
	}
	return r.far
}

// formRoutes take no JSON.
var formRoutes = map[string]bool{
	"/v1/audio/transcriptions": true, "/v1/audio/translations": true, "/v1/images/edits": true, "/v1/images/variations": true,
}

// S04, S24, API5: every role at every route of both listeners, each with its own method, others, and a foreign host.
func TestRolesAtEveryRoute(t *testing.T) {
	g := begin(t, setup{yaml: manyModels, sims: map[string]sim.Script{"in": {}, "out": {}}})
	token, err := admin.Token(g.cfg.Beside(g.cfg.Data))
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []role{
		{"nobody", "", 401}, {"a wrong key", "weir_" + strings.Repeat("0", 52), 401}, {"the admin token", token, 401}, {"any key", g.key, 200},
		{"a key of one alias", g.newKey(key.Spec{Name: "one", Aliases: []string{"coder"}}), 404}, {"a local key", g.newKey(key.Spec{Name: "near", Boundary: key.Local}), 503},
	} {
		for path, method := range publicRoutes {
			at := path
			if strings.HasSuffix(path, "s/") {
				at += "far"
			}
			g.try(who, g.url+at, method, who.gets(path))
		}
		for path, method := range adminRoutes {
			want := 401
			switch takesBody := method == "POST" && path != "/api/v1/drain"; {
			case takesBody && who.token == token:
				want = 400 // it comes as far as the body, which is none
			case slices.Contains(openRoutes, path) || who.token == token:
				want = 200
			}
			if path != "/api/v1/drain" || who.token != token { // that one would end the test; TestAdminAPI has it
				g.try(who, g.admin+path, method, want)
			}
		}
	}
	if !g.app.server.Ready() {
		t.Error("some role could drain Weir")
	}
}

// try asks with the route's method, with another, and under a foreign host.
func (g *gateway) try(who role, at, method string, want int) {
	g.t.Helper()
	body := `{"model":"far","messages":[{"role":"user","content":"hi"}],"prompt":"hi","input":"hi","query":"hi","documents":["a"],"max_tokens":9}`
	if strings.Contains(at, "/v1/responses") { // there it would be a prompt that the vendor keeps
		body = strings.Replace(body, `"prompt":"hi",`, "", 1)
	}
	ask := func(method string, headers ...string) int {
		auth := []string{"Authorization", ""}
		if who.token != "" {
			auth[1] = "Bearer " + who.token
		}
		if method == "GET" {
			return g.get(at, append(auth, headers...)...).status
		}
		return g.do(g.t.Context(), method, at, strings.NewReader(body), append(auth, headers...)...).status
	}
	if got := ask(method); got != want {
		g.t.Errorf("%s, %s %s: %d, want %d", who.name, method, at, got, want)
	}
	for _, other := range []string{"PUT", "DELETE", "PATCH", "TRACE"} {
		if got := ask(other); got < 400 && !strings.HasSuffix(at, "z") { // health tells the same whatever the method
			g.t.Errorf("%s, %s %s: %d", who.name, other, at, got)
		}
	}
	if got := ask(method, "Host", "evil.test"); got != 421 && !strings.HasSuffix(at, "z") {
		g.t.Errorf("%s, %s %s under a foreign host: %d, want 421", who.name, method, at, got)
	}
}

// S24: what is no name of this machine is refused on both listeners, whatever it looks like; what is one serves.
func TestS24Hosts(t *testing.T) {
	g := begin(t, setup{sims: oai(sim.Behaviour{})})
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:99": 200, "127.0.0.1": 200, "127.9.9.9:1": 200, "[::1]": 200, "[::1]:8484": 200, "x.localhost": 200, "localhost.": 200, "[::ffff:127.0.0.1]": 200,
		"evil.test": 421, "evil.test:8484": 421, "localhost.evil.test": 421, "127.0.0.1.evil.test": 421, "evil.test#localhost": 421, "localhost@evil.test": 421, "2130706433": 421,
		"0x7f000001": 421, "0177.0.0.1": 421, "127.1": 421, "0.0.0.0": 421, "[::]": 421, "10.0.0.1": 421, "169.254.169.254": 421, "xlocalhost": 421, "localhost..": 421, "": 421,
	} {
		for _, c := range []struct{ url, path, auth string }{{g.url, "/v1/models", g.key}, {g.url, "/", ""}, {g.admin, "/metrics", ""}} {
			x := g.wire(c.url, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", c.path, host, c.auth), 5*time.Second)
			if len(x.statuses) != 1 || x.statuses[0] != want && !(want == 421 && x.statuses[0] == 400) {
				t.Errorf("host %q at %s: %v, want %d", host, c.path, x.statuses, want)
			}
		}
	}
}

// spellings are ways to write a path that some server or proxy takes for the same.
func spellings(path string) (list []string) {
	first, rest := path[1:2], path[2:]
	hex := func(s string) string {
		var b strings.Builder
		for _, c := range []byte(s) {
			fmt.Fprintf(&b, "%%%02x", c)
		}
		return b.String()
	}
	list = []string{
		"/" + path, "//" + path, "/." + path, "/./" + path[1:], "/x/.." + path, "/x/../" + path[1:], "/v1/.." + path, "/v1/models/.." + path, "/v1/models/../.." + path, "/livez/.." + path,
		"/%2e" + path, "/%2e%2e" + path, "/x/%2e%2e" + path, "/v1/%2e%2e" + path, "/v1/models/%2e%2e/%2e%2e" + path, "/x/.%2e" + path, "/..%2f" + path[1:], "/v1/..%2f" + path[1:], "/..%5c" + path[1:],
		"/%2f" + path[1:], "/%5c" + path[1:], `\` + path[1:], "/" + hex(path[1:]), "/%25" + hex(first)[1:] + rest, "/" + hex(first) + rest, "/" + strings.ToUpper(hex(first)) + rest,
		strings.ReplaceAll(path, "/", "%2f"), strings.ReplaceAll(path, "/", "//"), strings.ReplaceAll(path, "/", "/./"), "/" + strings.ReplaceAll(path[1:], "/", "%2F"),
		path + "/", path + "//", path + "/.", path + "/..", path + "/x/..", path + ".", path + "%2e", path + ";", path + ";x=1", path + ";/..", path + "/;", path + "%3b", path + "%00", path + "%20",
		path + "%09", path + "%0a", path + ".json", path + ".html", path + "~", path + "%23", path + "%3f", path + "?", path + "?x=1", path + "??", path + "#", path + "#x", "/;x=1" + path, "/x;" + path,
		strings.ToUpper(path), strings.ToUpper(path[:2]) + rest, "/%c0%af" + path[1:], "/%c0%ae%c0%ae" + path, "/%e2%88%95" + path[1:], "/\u2044" + path[1:], "/%ef%bc%8f" + path[1:],
		"http://localhost" + path, "HTTP://LOCALHOST" + path, "http://127.0.0.1:8485" + path, "https://localhost" + path, "http://evil.test" + path, "http://user@localhost" + path, "http:/" + path, "//localhost" + path,
		"localhost" + path, path[1:], "*" + path, "/index.php" + path, "/admin" + path, "/v1" + path, "/api" + path, path + path, "/%u002f" + path[1:], "/%" + path[1:],
	}
	return list
}

// S23: no spelling of an admin path leads anywhere on the public listener; on the admin listener no spelling opens what
// needs the token; and no spelling of an API path opens without a key.
func TestS23SpellingsOfPaths(t *testing.T) {
	g := begin(t, setup{real: true, sims: oai(sim.Behaviour{})})
	tried := 0
	ask := func(base, method, target string, headers string) exchanged {
		tried++
		return g.wire(base, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\n%sConnection: close\r\nContent-Length: 0\r\n\r\n", method, target, headers), 5*time.Second)
	}
	check := func(x exchanged, what string, allowed ...int) {
		for _, s := range x.statuses {
			if !slices.Contains(append(allowed, 400, 401, 404, 405, 421, 505), s) {
				t.Errorf("%s: %d %q", what, s, x.bodies)
			}
		}
		if body := strings.Join(x.bodies, ""); strings.Contains(body, "weir_requests") || strings.Contains(body, "uptime") || strings.Contains(body, "draining") {
			t.Errorf("%s: admin content came: %.200s", what, body)
		}
	}
	for _, path := range []string{"/api/v1/status", "/api/v1/drain", "/metrics", "/api/v1/"} {
		method := "GET"
		if strings.HasSuffix(path, "drain") {
			method = "POST"
		}
		for _, s := range append(spellings(path), path) {
			check(ask(g.url, method, s, "Authorization: Bearer "+g.key+"\r\n"), "public, "+method+" "+s)
			if path != "/metrics" {
				check(ask(g.admin, method, s, ""), "admin, "+method+" "+s)
			}
		}
	}
	for _, s := range append(spellings("/v1/models"), "/v1/models") {
		check(ask(g.url, "GET", s, ""), "public without a key, GET "+s)
	}
	for _, h := range []string{"X-Original-URL", "X-Rewrite-URL", "X-HTTP-Method-Override", "X-Forwarded-Path", "X-Forwarded-Prefix"} {
		check(ask(g.url, "GET", "/", h+": /api/v1/status\r\n"), h, 200)
	}
	if tried < 600 || !g.app.server.Ready() {
		t.Errorf("%d spellings tried; ready %v", tried, g.app.server.Ready())
	}
}

// S52: there is nothing to debug with on either listener, with whatever secret.
func TestS52NoDebugEndpoints(t *testing.T) {
	g := begin(t, setup{sims: oai(sim.Behaviour{})})
	token, err := admin.Token(g.cfg.Beside(g.cfg.Data))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/profile", "/debug/pprof/symbol", "/debug/pprof/trace", "/debug/vars", "/debug/requests", "/debug/events", "/debug", "/pprof",
		"/config", "/api/v1/config", "/env", "/actuator", "/actuator/env", "/heapdump", "/.git/config", "/.env", "/server-status", "/slots", "/props", "/tools", "/models/load", "/health", "/docs", "/openapi.json",
	} {
		for _, base := range []string{g.url, g.admin} {
			for _, secret := range []string{"", g.key, token} {
				if r := g.get(base+path, "Authorization", strings.TrimSuffix("Bearer "+secret, "Bearer ")); r.status != 404 {
					t.Errorf("%s%s: %d %.200s", base, path, r.status, r.body)
				}
			}
		}
	}
	if r := g.get("/metrics"); r.status != 404 {
		t.Errorf("metrics on the public listener: %d", r.status)
	}
}
