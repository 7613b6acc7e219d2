package app

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/config"
	"weir/internal/sim"
)

// C142: a reference is never sent literally: its value goes up, read again when it changes; without a value nothing does.
func TestC142SecretsGoUpAsValues(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "secret")
	write(t, file, []byte("from-$2a$10-file\r\n"), time.Unix(1, 0))
	t.Setenv("WEIR_TEST_KEY", `a${b}$$"c"`)
	t.Setenv("WEIR_TEST_EMPTY", "")
	for _, c := range []struct{ name, more, header, want string }{
		{"a variable", `, key: "${env:WEIR_TEST_KEY}"`, "Authorization", `Bearer a${b}$$"c"`},
		{"a file", `, key: "${file:` + file + `}"`, "Authorization", "Bearer from-$2a$10-file"},
		{"in a header of its own", `, key: "${env:WEIR_TEST_KEY}", key_header: x-api-key`, "X-Api-Key", `a${b}$$"c"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := begin(t, setup{yaml: oneBackend(c.more), sims: oai(sim.Behaviour{})})
			g.chat(false).text()
			up := g.sim().Calls("")[0].Header
			if got := up.Get(c.header); got != c.want {
				t.Errorf("%s upstream: %q, want %q", c.header, got, c.want)
			}
			if c.header != "Authorization" && up.Get("Authorization") != "" {
				t.Errorf("Authorization went up too: %q", up.Get("Authorization"))
			}
		})
	}
	t.Run("a file that changes", func(t *testing.T) {
		g := begin(t, setup{yaml: oneBackend(`, key: "${file:` + file + `}"`), sims: oai(sim.Behaviour{})})
		g.chat(false).text()
		write(t, file, []byte("the-new-one"), time.Unix(2, 0))
		for range 30 {
			if g.chat(false).text(); g.sim().Calls("")[len(g.sim().Calls(""))-1].Header.Get("Authorization") == "Bearer the-new-one" {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Error("1.5 s after the file changed the old key still goes up")
	})
	for name, more := range map[string]string{
		"unset": `, key: "${env:WEIR_TEST_UNSET}"`, "empty": `, key: "${env:WEIR_TEST_EMPTY}"`, "no file": `, key: "${file:` + file + `.none}"`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "weir.yaml")
			if err := os.WriteFile(path, []byte(oneBackend(more)), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := config.Load(path); err == nil || !strings.Contains(err.Error(), "backends.a.key") || !strings.Contains(err.Error(), "weir.yaml:3") {
				t.Errorf("at the start: %v", err)
			}
			// It can also go away later: then nothing is sent, and the client does not hear which variable it was.
			g := begin(t, setup{yaml: oneBackend(more), sims: oai(sim.Behaviour{})})
			r := g.chat(false)
			if f := r.failed(); r.status != 502 || f.Code != "upstream_denied" || strings.Contains(f.Message, "WEIR_TEST") || len(g.sim().Attempts()) != 0 {
				t.Errorf("%d %s, %d calls upstream", r.status, r.body, len(g.sim().Attempts()))
			}
		})
	}
}

// C145: every endpoint works with every kind of backend that the configuration allows.
func TestC145EveryPairWorks(t *testing.T) {
	for _, server := range []string{"openai", "llamacpp", "ollama", "vllm", "sglang", "lmstudio", "tgi", "localai"} {
		for _, stream := range []string{"", "always", "auto", "as_asked"} {
			more := ", server: " + server
			if stream != "" {
				more += ", stream: " + stream
			}
			flavour := sim.Flavour(server)
			if server == "tgi" || server == "localai" {
				flavour = ""
			}
			g := begin(t, setup{yaml: oneBackend(more), sims: map[string]sim.Script{"a": {Server: flavour}}})
			for _, c := range []struct{ path, body string }{
				{"/v1/chat/completions", chatBody(false)}, {"/v1/chat/completions", chatBody(true)},
				{"/v1/completions", `{"model":"oai-m","prompt":"hi"}`}, {"/v1/completions", `{"model":"oai-m","prompt":"hi","stream":true}`},
			} {
				if r := g.post(c.path, c.body); r.text() == "" {
					t.Errorf("%s %s: %s %s: %s", server, stream, c.path, c.body, r.body)
				}
			}
			for _, c := range []struct{ path, body, want string }{
				{"/v1/embeddings", `{"model":"emb","input":["a","b"]}`, "data"}, {"/v1/rerank", `{"model":"emb","query":"q","documents":["a","b"]}`, "results"},
			} {
				r := g.post(c.path, c.body)
				if list, _ := object(t, r.body)[c.want].([]any); r.status != 200 || len(list) != 2 {
					t.Errorf("%s %s: %s: %d %s", server, stream, c.path, r.status, r.body)
				}
			}
		}
	}
}

// C147: the table of names is the same at every start.
func TestC147NamesAreTheSameAtEveryStart(t *testing.T) {
	var first []string
	led := ""
	for i := range 10 {
		g := begin(t, setup{yaml: manyModels, sims: map[string]sim.Script{"in": {}, "out": {}}})
		got := g.get("/v1/models").names()
		way := ""
		for _, name := range append(slices.Clone(got), "claude-x", "gpt-x", "any/x") {
			r, _ := g.app.graph.table.Find(name)
			way += name + "=" + r.Steps[0].Name() + ";"
		}
		if i == 0 {
			first, led = got, way
		}
		if diff := cmp.Diff(first, got); diff != "" || led != way {
			t.Errorf("start %d (-first +now):\n%s\n%s\n%s", i, diff, led, way)
		}
	}
}

// A folder is one Weir's: a second one is refused, and so is an address beyond loopback without a key.
func TestStartIsRefused(t *testing.T) {
	g := begin(t, setup{sims: oai(sim.Behaviour{})})
	_, err := tryBegin(t, setup{data: g.cfg.Beside(g.cfg.Data)})
	if err == nil || !strings.Contains(err.Error(), "weir") {
		t.Errorf("a second Weir on the same folder: %v", err)
	}
	_, err = tryBegin(t, setup{real: true, edit: func(c *config.Config) { c.Listen, c.Hosts = "0.0.0.0:0", []string{"*"} }})
	if err == nil || !strings.Contains(err.Error(), "weir keys add") {
		t.Errorf("beyond loopback without a key: %v", err)
	}
	busy := begin(t, setup{real: true, sims: oai(sim.Behaviour{})})
	addr := busy.app.Addr().String()
	_, err = tryBegin(t, setup{real: true, edit: func(c *config.Config) { c.Listen = addr }})
	if err == nil || !strings.Contains(err.Error(), addr+" is in use") {
		t.Errorf("a port in use: %v", err)
	}
}

// What `weir run` writes for what it finds is a configuration; the simulated one serves all its aliases and says that
// it is simulated, here and in every answer.
func TestDiscoveredConfigurations(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "discover", "testdata", "*.yaml"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if c, report := config.Parse(text, file); report.Err() != nil || len(c.Pools) == 0 {
			t.Errorf("%s: %v", file, report.Err())
		}
		if filepath.Base(file) != "simulated.yaml" {
			continue
		}
		g := begin(t, setup{yaml: string(text)})
		for _, alias := range []string{"auto", "floor", "gpu", "cloud"} {
			for _, stream := range []bool{true, false} {
				r := g.post("/v1/chat/completions", strings.Replace(chatBody(stream), "oai-m", alias, 1))
				if text := r.text(); !strings.Contains(text, "simulated") || r.header.Get("X-Weir-Simulated") != "true" {
					t.Errorf("%s: %q, headers %v", alias, text, r.header)
				}
				if tier := r.header.Get("X-Weir-Tier"); alias != "auto" && tier != alias {
					t.Errorf("%s was served by tier %s", alias, tier)
				}
			}
		}
	}
}
