package app

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/admin"
	"weir/internal/event"
	"weir/internal/sim"
	"weir/internal/store"
)

// The admin API is behind the token of a file that its owner alone may read; a change leaves an audit row.
func TestAdminAPI(t *testing.T) {
	g := begin(t, setup{sims: oai(sim.Behaviour{Text: "hello"})})
	data := g.cfg.Beside(g.cfg.Data)
	info, err := os.Stat(filepath.Join(data, admin.TokenFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the token's file: %v, %v; want mode 0600", info, err)
	}
	token, err := admin.Token(data)
	if err != nil {
		t.Fatal(err)
	}
	auth := []string{"Authorization", "Bearer " + token}
	for name, headers := range map[string][]string{
		"no token": {"Authorization", ""}, "a client's key": {}, "half a token": {"Authorization", "Bearer " + token[:20]}, "a token as Basic": {"Authorization", "Basic " + token},
	} {
		for _, path := range []string{"/api/v1/status", "/api/v1/drain"} {
			r := g.do(t.Context(), "POST", g.admin+path, strings.NewReader("{}"), headers...)
			if r.status != 401 || r.header.Get("WWW-Authenticate") == "" || strings.Contains(string(r.body), token) {
				t.Errorf("%s at %s: %d %s", name, path, r.status, r.body)
			}
		}
	}
	g.chat(true).text()
	var s admin.Status
	if r := g.get(g.admin+"/api/v1/status", auth...); r.status != 200 || json.Unmarshal(r.body, &s) != nil {
		t.Fatalf("%d %s", r.status, r.body)
	}
	if !s.Ready || s.Keys != 1 || s.Version != "test" || s.Simulated || s.Listen != g.app.Addr().String() || len(s.Pools) != 1 || s.Pools[0].Cap != 64 || s.Pools[0].InFlight != 0 || !slices.Equal(s.Pools[0].Backends, []string{"a"}) {
		t.Errorf("status %+v", s)
	}
	for path, want := range map[string]int{"/api/v1/status": 405, "/api/v1/nope": 404, "/api/v1%2Fstatus": 404} {
		if r := g.do(t.Context(), "DELETE", g.admin+path, nil, auth...); r.status != want {
			t.Errorf("DELETE %s: %d, want %d", path, r.status, want)
		}
	}
	if r := g.get(g.admin+"/api/v1/status", append([]string{"Host", "evil.test"}, auth...)...); r.status != 421 {
		t.Errorf("a foreign host with the token: %d", r.status)
	}
	if r := g.do(t.Context(), "POST", g.admin+"/api/v1/drain", nil, auth...); r.status != 202 {
		t.Errorf("drain: %d %s", r.status, r.body)
	}
	g.runEnds()
	st, err := store.Open(t.Context(), data, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	rows, err := st.Facts(t.Context(), store.Query{Event: string(event.Audit)})
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(rows, func(f store.Fact) bool { return f.To == "drain" }); i < 0 || !strings.Contains(rows[i].Actor, "127.0.0.1") {
		t.Errorf("audit rows %+v", rows)
	}
	if again, err := admin.Token(data); err != nil || again != token {
		t.Errorf("the token changed: %v", err)
	}
}

// One row per request is in the store once Weir has stopped, with its attempts; none holds a text.
func TestRowsOfRequests(t *testing.T) {
	g := begin(t, setup{yaml: steps(2), sims: scripts(&sim.Behaviour{Status: 500}, &sim.Behaviour{Text: "canary-answer"})})
	r := g.chat(true, `"user":"canary-prompt"`)
	r.text()
	g.settle()
	g.stop()
	st, err := store.Open(t.Context(), g.cfg.Beside(g.cfg.Data), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	rows, err := st.Requests(t.Context(), store.Query{Request: r.id()})
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	row := rows[0]
	var attempts []event.Attempt
	if err := json.Unmarshal([]byte(row.Attempts), &attempts); err != nil || len(attempts) != 2 || attempts[0].Kind != "refused" || attempts[1].Backend != "s2" {
		t.Errorf("attempts %s, %v", row.Attempts, err)
	}
	if row.Pool != "s2" || row.Reroute != "fallback" || row.Key != "test" || row.TokensOut != 1 || row.Status != 200 || row.Cost >= 0 || !row.Stream {
		t.Errorf("row %+v", row)
	}
	everything := fmt.Sprintf("%+v", row)
	for _, l := range g.lines.all() {
		everything += l.Raw
	}
	if strings.Contains(everything, "canary") || strings.Contains(everything, g.key) {
		t.Errorf("a text or key was recorded: %s", everything)
	}
}

// series returns the samples of a scrape by name and labels.
func (g *gateway) series() map[string]string {
	g.t.Helper()
	r := g.get(g.admin+"/metrics", "Authorization", "")
	if r.status != 200 {
		g.t.Fatalf("metrics: %d", r.status)
	}
	out := map[string]string{}
	for _, line := range strings.Split(string(r.body), "\n") {
		if name, value, ok := strings.Cut(line, "} "); ok && !strings.HasPrefix(line, "#") {
			out[name+"}"] = value
		} else if name, value, ok := strings.Cut(line, " "); ok && !strings.HasPrefix(line, "#") {
			out[name] = value
		}
	}
	return out
}

// Metrics need no secret on loopback, count what happened, and no client can add to their number (F65, S14).
func TestMetrics(t *testing.T) {
	g := begin(t, setup{yaml: steps(2), sims: scripts(&sim.Behaviour{Status: 500}, &sim.Behaviour{Text: "a b c"})})
	for range 3 {
		g.chat(true).text()
	}
	g.post("/v1/chat/completions", strings.Replace(chatBody(false), "oai-m", "nope-0", 1)).failed()
	before := g.series()
	for i := range 300 {
		name := fmt.Sprintf("canary-%d", i)
		g.post("/v1/chat/completions", strings.Replace(chatBody(false), "oai-m", name, 1), "X-Weir-Tag", name, "User-Agent", name)
	}
	after := g.series()
	if len(after) != len(before) {
		t.Errorf("%d series before 300 unknown names, %d after", len(before), len(after))
	}
	text := fmt.Sprint(after)
	for _, want := range []string{
		`weir_slots_limit{pool="s1",tier="gpu"}:8`, `weir_slots_in_use{pool="s2",tier="gpu"}:0`, `weir_requests_running:0`, `weir_queue_depth{pool="s1",tier="gpu"}:0`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the scrape", want)
		}
	}
	if strings.Contains(text, "canary") || regexp.MustCompile(`\btest\b.*key`).MatchString(text) {
		t.Error("a client's name is a label")
	}
	counted := 0
	for name, v := range after {
		if strings.Contains(name, `pool="s2"`) && strings.HasSuffix(strings.SplitN(name, "{", 2)[0], "_total") && v == "3" {
			counted++
		}
	}
	if counted == 0 {
		t.Errorf("no counter of pool s2 stands at 3: %v", after)
	}
}

// The prefill rate is learnt from the server's timings, else from the first content of a long prompt; it is told by the
// API and is there after a restart.
func TestPrefillRateIsLearntAndKept(t *testing.T) {
	long := strings.Repeat("word ", 8000) // 40,000 bytes, about 10,000 tokens
	body := `{"model":"oai-m","stream":true,"messages":[{"role":"user","content":"` + long + `"}]}`
	for _, c := range []struct {
		name, server string
		b            sim.Behaviour
		low, high    float64
	}{
		{"from the first content", "openai", sim.Behaviour{HeaderDelay: 20 * time.Second}, 450, 550},
		{"from timings", "llamacpp", sim.Behaviour{FirstDelay: 20 * time.Second}, 450, 550},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{data: data, yaml: oneBackend(", server: " + c.server), sims: map[string]sim.Script{
					"a": {Server: sim.Flavour(c.server), On: map[string]sim.Sequence{"oai-m": {c.b}}},
				}})
				if rate, measured := g.app.graph.pools["a"].Rate.Value(); measured || rate != 400 {
					t.Errorf("before: %v, measured %v", rate, measured)
				}
				r := g.post("/v1/chat/completions", body)
				r.text() // 20 s to the first content, over the limit of 15 s: the known prefill is added
				g.settle()
				token, _ := admin.Token(data)
				var s admin.Status
				if r := g.get(g.admin+"/api/v1/status", "Authorization", "Bearer "+token); json.Unmarshal(r.body, &s) != nil || !s.Pools[0].Measured || s.Pools[0].Prefill < c.low || s.Pools[0].Prefill > c.high {
					t.Errorf("status: %+v", s.Pools)
				}
				if got := g.series()[`weir_prefill_tokens_per_second{pool="a",source="measured",tier="gpu"}`]; got == "" {
					t.Error("the measured rate is no metric")
				}
			})
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{data: data, quiet: true, edit: nil, yaml: strings.Replace(oneBackend(""), "aliases", "auth: {keys: \"off\"}\naliases", 1)})
				if rate, measured := g.app.graph.pools["a"].Rate.Value(); !measured || rate < c.low || rate > c.high {
					t.Errorf("after a restart: %v, measured %v", rate, measured)
				}
			})
		})
	}
}
