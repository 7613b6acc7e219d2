// Package agents_test plays to a Weir in this process what real agents sent to one: the records that
// scripts/test-agents --record makes of Claude Code, Codex and opencode.
package agents_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/app"
	"weir/internal/config"
	"weir/internal/key"
	"weir/internal/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorded is one agent's task of two steps.
type recorded struct {
	Agent    string
	Version  string
	Requests []request
}

type request struct {
	Method  string
	Path    string
	Headers []string // NAME: VALUE
	Body    json.RawMessage
}

// left matches ‹N›, which stands for N characters of text that was not kept.
var left = regexp.MustCompile(`‹\d+›`)

// load reads a record and puts text where some was left out.
func load(t *testing.T, file string) *recorded {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const words = "The river is quiet today, and so are its banks. "
	data = left.ReplaceAllFunc(data, func(mark []byte) []byte {
		n, err := strconv.Atoi(strings.Trim(string(mark), "‹›"))
		if err != nil {
			t.Fatal(err)
		}
		return []byte(strings.Repeat(words, n/len(words)+1)[:n])
	})
	var r recorded
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return &r
}

// backends are the servers behind Weir: a local one that takes function tools in Chat Completions and little else, and
// one of each other dialect, all as strict as the real ones.
var backends = map[string]struct {
	script sim.Script
	server string // in Weir's configuration
	path   string // where it is asked
}{
	"llama.cpp": {sim.Script{Server: sim.LlamaCPP, APIs: []sim.API{sim.Chat}}, "server: llamacpp", "/v1/chat/completions"},
	"Messages":  {sim.Script{Server: sim.Anthropic}, "server: anthropic", "/v1/messages"},
	"Responses": {sim.Script{Server: sim.OpenAI, APIs: []sim.API{sim.Responses}}, "dialect: responses", "/v1/responses"},
}

// gateway is a Weir in front of one simulated agent's model.
type gateway struct {
	url, key string
	sim      *sim.Server
	client   *http.Client
}

// begin runs a Weir until the test ends.
func begin(t *testing.T, script sim.Script, server string) *gateway {
	t.Helper()
	script.On = map[string]sim.Sequence{"coder": {{Agent: true}}}
	g := &gateway{sim: sim.New(sim.Options{Script: script}).Start(t), client: &http.Client{Transport: &http.Transport{}}}
	cfg, report := config.Parse([]byte(`
listen: 127.0.0.1:0
admin: 127.0.0.1:0
backends: {local: {url: "`+g.sim.URL()+`", `+server+`, tier: gpu}}
pools: {local: {backend: local, cap: 4, models: [coder]}}
aliases: {coder: local/coder}
`), filepath.Join(t.TempDir(), "weir.yaml"))
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	a, err := app.New(t.Context(), app.Options{Config: cfg, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Run(t.Context()) }() // the context ends before the clean-up
	t.Cleanup(func() {
		g.client.CloseIdleConnections()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	g.url = "http://" + a.Addr().String()
	g.key, _, err = key.Change{Store: a.Store(), Actor: "test", Now: time.Now()}.Add(t.Context(), key.Spec{Name: "agent"})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Keys().Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g
}

// send sends one request as it was recorded and returns the answer's body.
func (g *gateway) send(t *testing.T, r request) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), r.Method, g.url+r.Path, bytes.NewReader(r.Body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range r.Headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, strings.TrimSpace(strings.Replace(value, "KEY", g.key, 1)))
	}
	resp, err := g.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s, %v: %s", r.Method, r.Path, resp.Status, err, body)
	}
	if got := resp.Header.Get("Content-Type"); r.Method == http.MethodPost && !strings.HasPrefix(got, "text/event-stream") {
		t.Errorf("the answer is of type %q, want a stream", got)
	}
	return body
}

// TestRecordedAgents holds that each agent gets, in its own dialect and whatever the backend speaks, first a call of its
// tool and then, once it has sent the result, an answer that has understood it.
func TestRecordedAgents(t *testing.T) {
	files, err := filepath.Glob("recorded/*.json")
	if err != nil || len(files) != 3 {
		t.Fatalf("%d records, want 3 (%v)", len(files), err)
	}
	for name, b := range backends {
		for _, file := range files {
			r := load(t, file)
			t.Run(r.Agent+" to "+name, func(t *testing.T) {
				g := begin(t, b.script, b.server)
				g.play(t, r)
				for _, a := range g.sim.Calls("") {
					if a.Path != b.path || a.Status != http.StatusOK {
						t.Errorf("the backend answered %s with %d, want %s and 200", a.Path, a.Status, b.path)
					}
					if name == "llama.cpp" && bytes.Contains(a.Body, []byte("x-anthropic-billing-header")) {
						t.Error("the changing line at the head of the prompt reached a local server: its prefix cache is spoilt")
					}
				}
			})
		}
	}
}

// play sends an agent's requests one after the other. An id of a call is the one of the answer that was given now.
func (g *gateway) play(t *testing.T, r *recorded) {
	t.Helper()
	var last answer
	steps := 0
	for i, req := range r.Requests {
		if req.Method != http.MethodPost {
			g.send(t, req)
			continue
		}
		asked := shapeOf(t, req)
		if asked.callID != "" {
			req.Body = bytes.ReplaceAll(req.Body, []byte(`"`+asked.callID+`"`), []byte(`"`+last.callID+`"`))
		}
		got := readers[asked.path](t, g.send(t, req))
		switch {
		case !asked.tools:
			if got.text == "" || got.callID != "" {
				t.Errorf("request %d: got %+v, want a text", i, got)
			}
		case asked.callID == "":
			if got.callID == "" || got.tool != asked.shell || !strings.Contains(got.args, "echo "+sim.AgentWord) {
				t.Fatalf("request %d: got %+v, want a call of %s", i, got, asked.shell)
			}
			steps++
		default:
			if got.callID != "" || !strings.Contains(got.text, "The tool said:") || !strings.Contains(got.text, sim.AgentWord) {
				t.Errorf("request %d: got %+v, want a text that names the result", i, got)
			}
			steps++
		}
		last = got
	}
	if steps != 2 {
		t.Errorf("%d steps were made, want 2", steps)
	}
}
