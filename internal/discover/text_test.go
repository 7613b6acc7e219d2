package discover

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	yaml "go.yaml.in/yaml/v4"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// written is a config as the user's Weir reads it; unknown fields are faults.
type written struct {
	Listen, Admin, Data string
	Backends            map[string]struct {
		URL, Server, Tier, Key string
		Outside                bool
	}
	Pools map[string]struct {
		Backend     string
		Cap, Window int
		Models      []string
	}
	Routes  map[string]struct{ Steps []string }
	Aliases map[string]string
}

func parse(t *testing.T, text string) written {
	t.Helper()
	var w written
	d := yaml.NewDecoder(bytes.NewReader([]byte(text)))
	d.KnownFields(true)
	if err := d.Decode(&w); err != nil {
		t.Fatalf("the config does not parse: %v\n%s", err, text)
	}
	return w
}

// sound checks what every config must fulfil: each name leads somewhere.
func sound(t *testing.T, w written) {
	t.Helper()
	for name, p := range w.Pools {
		if _, there := w.Backends[p.Backend]; !there || p.Cap < 1 || len(p.Models) == 0 {
			t.Errorf("pool %s = %+v", name, p)
		}
	}
	for name, r := range w.Routes {
		for _, s := range r.Steps {
			pool, model, _ := strings.Cut(s, "/")
			p, there := w.Pools[pool]
			if !there || !strings.Contains("|"+strings.Join(p.Models, "|")+"|", "|"+model+"|") {
				t.Errorf("route %s: step %q leads nowhere", name, s)
			}
		}
	}
	for alias, route := range w.Aliases {
		if _, there := w.Routes[route]; !there {
			t.Errorf("alias %s leads to no route %q", alias, route)
		}
	}
}

func server(addr string, k Kind, models ...Model) Server {
	return Server{Addr: addr, Own: true, Kind: k, Models: models}
}

func results() map[string]Result {
	qwen4 := Model{ID: "qwen3-4b", Window: 4096, Params: 4e9, Loaded: true}
	qwen32 := Model{ID: "Qwen/Qwen3-32B-AWQ", Window: 32768, Params: 32e9, Loaded: true}
	nomic := Model{ID: "nomic-embed-text:latest", Use: Embedding, Params: 137e6}
	llama := server("127.0.0.1:8080", LlamaCPP, qwen4)
	llama.Version, llama.Slots = "b1-80fb11a", 2
	ollama := server("127.0.0.1:11434", Ollama, Model{ID: "tiny:latest", Params: 1e9}, Model{ID: "gemma3:12b", Params: 12e9}, nomic)
	ollama.Version, ollama.Left = "0.17.4", []string{"gpt-oss:120b-cloud: runs on machines of ollama.com, not here"}
	away := server("gpu-box.lan:8000", VLLM, qwen32)
	away.Own = false
	openai := Cloud{Name: "openai", Env: "OPENAI_API_KEY", URL: "https://api.openai.com/v1"}
	router := Cloud{Name: "openrouter", Env: "OPENROUTER_API_KEY", URL: "https://openrouter.ai/api/v1"}
	claude := Cloud{Name: "anthropic", Env: "ANTHROPIC_API_KEY", URL: "https://api.anthropic.com"}
	return map[string]Result{
		"simulated":   {},
		"one_llama":   {Servers: []Server{llama}},
		"ollama":      {Servers: []Server{ollama}},
		"all_tiers":   {Servers: []Server{llama, ollama, server("127.0.0.1:8000", VLLM, qwen32)}, Clouds: []Cloud{openai, router, claude}},
		"another_box": {Servers: []Server{llama, away}},
		"loading":     {Servers: []Server{{Addr: "127.0.0.1:8080", Own: true, Kind: LlamaCPP, State: Loading}}},
		"locked":      {Servers: []Server{{Addr: "127.0.0.1:8080", Own: true, Kind: LlamaCPP, State: Locked}, server("127.0.0.1:11434", Ollama)}},
		"only_cloud":  {Clouds: []Cloud{router}},
		"only_openai": {Clouds: []Cloud{openai}},
		"only_embeddings": {Servers: []Server{server("127.0.0.1:8081", LlamaCPP, nomic),
			server("127.0.0.1:8080", OpenAI, Model{ID: "bge-m3", Use: Embedding}, Model{ID: "bge-reranker", Use: Rerank})}},
		"windows": {Servers: []Server{server("127.0.0.1:1234", LMStudio, Model{ID: "a-8b", Window: 16384, Loaded: true}, Model{ID: "b-4b", Window: 8192, Loaded: true}, Model{ID: "c"}),
			server("127.0.0.1:8000", SGLang, Model{ID: "d", Window: 65536}, Model{ID: "e", Window: 32768})}},
		"equals": {Servers: []Server{llama, server("127.0.0.1:8081", LlamaCPP, qwen4), server("127.0.0.1:9000", OpenAI, Model{ID: "x"})}},
	}
}

func TestConfigGoldens(t *testing.T) {
	for name, r := range results() {
		t.Run(name, func(t *testing.T) {
			got := r.Config(Layout{})
			sound(t, parse(t, got))
			file := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v; write it with -update", err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEveryGoldenHasItsResult(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) != len(results()) {
		t.Errorf("%d golden files for %d results, %v", len(files), len(results()), err)
	}
}

func TestConfigProposesTiers(t *testing.T) {
	tests := []struct {
		name string
		want map[string]string // backend → tier
		auto []string
	}{
		{"one_llama", map[string]string{"llamacpp": "floor"}, []string{"llamacpp/qwen3-4b"}},
		{"all_tiers", map[string]string{"llamacpp": "floor", "ollama": "floor", "vllm": "gpu", "openai": "cloud", "openrouter": "cloud", "anthropic": "cloud"},
			[]string{"vllm/Qwen/Qwen3-32B-AWQ", "llamacpp/qwen3-4b", "ollama/tiny:latest"}},
		{"equals", map[string]string{"llamacpp": "floor", "llamacpp-2": "floor", "local": "floor"}, []string{"llamacpp/qwen3-4b", "llamacpp-2/qwen3-4b", "local/x"}},
		{"simulated", map[string]string{"floor": "floor", "gpu": "gpu", "cloud": "cloud"}, []string{"gpu/sim-gpu", "floor/sim-floor", "cloud/sim-cloud"}},
		{"loading", map[string]string{"llamacpp": "floor"}, []string{"llamacpp/*"}},
		{"only_embeddings", map[string]string{"llamacpp": "floor", "local": "floor"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := results()[tt.name]
			w := parse(t, r.Config(Layout{}))
			got := map[string]string{}
			for name, b := range w.Backends {
				got[name] = b.Tier
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("tiers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.auto, w.Routes["auto"].Steps); diff != "" {
				t.Errorf("auto (-want +got):\n%s", diff)
			}
			if want := map[bool]string{true: "auto"}[tt.auto != nil]; r.Try() != want {
				t.Errorf("Try() = %q, want %q", r.Try(), want)
			}
		})
	}
}

func TestSimulatedOnlyWhenNothingCouldAnswer(t *testing.T) {
	want := map[string]bool{"simulated": true, "locked": true}
	for name, r := range results() {
		if got := r.Simulated(); got != want[name] {
			t.Errorf("%s: Simulated() = %v", name, got)
		}
		if got := strings.Contains(r.Config(Layout{}), `url: "sim://`); got != want[name] {
			t.Errorf("%s: a simulated backend in the config: %v", name, got)
		}
	}
}

// What stands behind a # and looks like a row must be right once the # is gone.
func TestConfigHintsWorkOnceUncommented(t *testing.T) {
	for _, name := range []string{"all_tiers", "locked"} {
		text := results()[name].Config(Layout{})
		for _, row := range []string{`cloud: {steps: ["openai/..."]}`, "cloud: cloud", `llamacpp: {url: "http://127.0.0.1:8080", server: llamacpp, tier: floor, key: "${env:LLAMACPP_KEY}"}`} {
			text = strings.Replace(text, "  # "+row, "  "+row, 1)
		}
		w := parse(t, text)
		if name == "all_tiers" && w.Aliases["cloud"] != "cloud" {
			t.Errorf("aliases = %v", w.Aliases)
		}
		if name == "locked" && w.Backends["llamacpp"].Key != "${env:LLAMACPP_KEY}" {
			t.Errorf("backends = %v", w.Backends)
		}
	}
}

func TestConfigTakesItsLayout(t *testing.T) {
	l := Layout{Listen: "[::1]:80", Admin: ":81", Data: "/var/lib/my data"}
	w := parse(t, Result{}.Config(l))
	if got := (Layout{w.Listen, w.Admin, w.Data}); got != l {
		t.Errorf("layout = %+v, want %+v", got, l)
	}
}

func TestConfigLinesAreNotTooLong(t *testing.T) {
	for name, r := range results() {
		for i, line := range strings.Split(r.Config(Layout{}), "\n") {
			if len(line) > 128 {
				t.Errorf("%s:%d: %d characters: %s", name, i+1, len(line), line)
			}
		}
	}
}

func TestKeysAreReferencesOnly(t *testing.T) { // S08
	const value = "sk-proj-0123456789abcdef"
	env := map[string]string{"OPENAI_API_KEY": value, "OPENROUTER_API_KEY": value, "ANTHROPIC_API_KEY": value}
	r, steps := new(lab).look(t, env)
	text := r.Config(Layout{})
	for _, s := range steps {
		text += s.Line
	}
	if strings.Contains(text, value) || regexp.MustCompile(`sk-`).MatchString(text) {
		t.Errorf("a key is in what is written or shown:\n%s", text)
	}
	if w := parse(t, r.Config(Layout{})); w.Backends["openai"].Key != "${env:OPENAI_API_KEY}" {
		t.Errorf("key = %q", w.Backends["openai"].Key)
	}
}

func TestCloudsReadTheEnvironment(t *testing.T) {
	tests := []struct {
		name string
		env  map[string]string
		want []string
		note string
	}{
		{"both vendors", map[string]string{"OPENAI_API_KEY": "k", "OPENROUTER_API_KEY": "k"}, []string{"openai", "openrouter"}, ""},
		{"blanks are no key", map[string]string{"OPENAI_API_KEY": " \n"}, nil, ""},
		{"a vendor of another dialect", map[string]string{"ANTHROPIC_API_KEY": "k"}, []string{"anthropic"}, ""},
		{"a key for a gateway is not sent to the vendor", map[string]string{"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://127.0.0.1:8484"}, nil, "not sent to anthropic"},
		{"a key of another host is not sent to the vendor", map[string]string{"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:8484/v1"}, nil, "not sent to openai"},
		{"the vendor's own host changes nothing", map[string]string{"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "https://API.openai.com/v1/"}, []string{"openai"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, _ := new(lab).look(t, tt.env)
			var got []string
			for _, c := range r.Clouds {
				got = append(got, c.Name)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("clouds (-want +got):\n%s", diff)
			}
			if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, tt.note) || tt.note == "" && notes != "" {
				t.Errorf("notes = %q, want %q", notes, tt.note)
			}
		})
	}
}

func TestLargestNeedsOneThatStandsOut(t *testing.T) {
	tests := []struct {
		name   string
		params []int64
		want   int
	}{
		{"none", nil, -1},
		{"one alone", []int64{70e9}, -1},
		{"the larger of two", []int64{4e9, 32e9}, 1},
		{"two equals", []int64{4e9, 4e9}, -1},
		{"a larger one after two equals", []int64{4e9, 4e9, 32e9}, 2},
		{"two equals after a smaller one", []int64{1e9, 4e9, 4e9}, -1},
		{"a known one beside an unknown one", []int64{0, 4e9}, 1},
		{"all unknown", []int64{0, 0}, -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var r Result
			for _, p := range tt.params {
				r.Servers = append(r.Servers, server("127.0.0.1:1", OpenAI, Model{ID: "m", Params: p}))
			}
			if got := r.largest(); got != tt.want {
				t.Errorf("largest() = %d, want %d", got, tt.want)
			}
		})
	}
}
