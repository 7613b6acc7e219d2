package discover

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLookTellsServersApartByWhatTheyAnswer(t *testing.T) {
	tests := []struct {
		name  string
		pages pages
		want  Server
		line  string
	}{
		{"llama.cpp with one model", llamaSingle,
			Server{Kind: LlamaCPP, Version: "b1-80fb11a", Slots: 2, Models: []Model{{ID: "qwen3-4b", Window: 4096, Params: 4022468096, Loaded: true}}},
			"llama.cpp b1-80fb11a, 1 model"},
		{"llama.cpp as a router", llamaRouter,
			Server{Kind: LlamaCPP, Version: "b1-80fb11a", Router: true, Models: []Model{
				{ID: "qwen3-8b", Window: 8192, Params: 8190735360, Loaded: true}, {ID: "gemma-3-1b", Params: 1e9}, {ID: "broken", Failed: true}}},
			"llama.cpp router b1-80fb11a, 3 models"},
		{"llama.cpp while it loads", llamaLoading, Server{Kind: LlamaCPP, State: Loading}, "llama.cpp, loading its model"},
		{"llama.cpp that wants a key", llamaLocked, Server{Kind: LlamaCPP, State: Locked}, "llama.cpp, wants a key"},
		{"Ollama, without the models that are not here", ollamaThree,
			Server{Kind: Ollama, Version: "0.17.4", Models: []Model{
				{ID: "gemma3:12b", Window: 16384, Params: 12.2e9, Loaded: true}, {ID: "tiny:latest", Params: 1.2e9},
				{ID: "nomic-embed-text:latest", Use: Embedding, Params: 137e6}},
				Left: []string{"gpt-oss:120b-cloud: runs on machines of ollama.com, not here", "faraway:latest: runs on machines of ollama.com, not here"}},
			"Ollama 0.17.4, 3 models"},
		{"Ollama with nothing", ollamaEmpty, Server{Kind: Ollama, Version: "0.17.4"}, "Ollama 0.17.4, no models"},
		{"vLLM", vllmOne,
			Server{Kind: VLLM, Version: "0.12.1", Models: []Model{{ID: "Qwen/Qwen3-32B-AWQ", Window: 32768, Params: 32e9, Loaded: true}}},
			"vLLM 0.12.1, 1 model"},
		{"SGLang", sglangOne,
			Server{Kind: SGLang, Models: []Model{{ID: "zai/glm-9b", Window: 65536, Params: 9e9, Loaded: true}}},
			"SGLang, 1 model"},
		{"SGLang with an embedding model that says so itself", sglangVectors,
			Server{Kind: SGLang, Models: []Model{{ID: "vectors", Use: Embedding, Loaded: true}}},
			"SGLang, 1 model"},
		{"LM Studio", studioNew,
			Server{Kind: LMStudio, Models: []Model{
				{ID: "qwen/qwen3-4b", Window: 8192, Params: 4e9, Loaded: true}, {ID: "openai/gpt-oss-20b", Params: 20e9},
				{ID: "text-vectors-v1.5", Use: Embedding}}},
			"LM Studio, 3 models"},
		{"LM Studio before 0.4", studioOld,
			Server{Kind: LMStudio, Models: []Model{{ID: "phi-4", Window: 4096, Loaded: true}}},
			"LM Studio, 1 model"},
		{"a plain OpenAI-compatible one", plainOne,
			Server{Kind: OpenAI, Models: []Model{{ID: "house-model"}}}, "OpenAI-compatible server, 1 model"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var l lab
			f := l.serve(tt.pages)
			r, steps := l.look(t, nil, f.addr)
			tt.want.Addr, tt.want.Own = f.addr, true
			if diff := cmp.Diff([]Server{tt.want}, r.Servers); diff != "" {
				t.Errorf("servers (-want +got):\n%s", diff)
			}
			if got, want := steps[0].Line, "looking at "+f.addr+" ... "+tt.line; got != want {
				t.Errorf("line = %q, want %q", got, want)
			}
		})
	}
}

// A look must not wake, load or change anything: only GET, never /slots, never a model's name in the request.
func TestLookAsksOnlyWhatIsSafe(t *testing.T) {
	allowed := map[string]bool{"GET " + pathModels: true}
	for _, p := range detailPaths() {
		allowed["GET "+p] = true
	}
	for _, p := range []string{"/slots", "/tokenize", "/api/show", "/health_generate"} {
		if allowed["GET "+p] {
			t.Errorf("%s is asked, but it wakes or works", p)
		}
	}
	for name, p := range map[string]pages{"router": llamaRouter, "ollama": ollamaThree, "vllm": vllmOne, "studio": studioNew} {
		var l lab
		f := l.serve(p)
		l.look(t, nil, f.addr)
		for _, got := range f.asked() {
			if !allowed[got] {
				t.Errorf("%s was asked %q", name, got)
			}
		}
	}
}

func TestLookAsksAStrangerOnlyOnce(t *testing.T) {
	var l lab
	f := l.serve(pages{"*": ok("<html>some other program</html>")})
	r, steps := l.look(t, nil, f.addr)
	if len(r.Servers) != 0 || len(f.asked()) != 1 {
		t.Errorf("servers %v after %v, want none after one question", r.Servers, f.asked())
	}
	if want := "something else answers there (status 200 to /v1/models), left out"; !strings.HasSuffix(steps[0].Line, want) {
		t.Errorf("line = %q, want it to end in %q", steps[0].Line, want)
	}
}

func TestLookLeavesOutWeirAndSimulations(t *testing.T) {
	list := plainOne[pathModels].body
	tests := []struct {
		name  string
		pages pages
		line  string
	}{
		{"a Weir that lists models", pages{pathModels: {200, list, map[string]string{headerWeir: "01J"}}}, "a Weir, which must not be its own backend; left out"},
		{"a Weir that wants a key", pages{pathModels: {401, `{"error":{"message":"no key"}}`, map[string]string{headerWeir: "01J"}}}, "a Weir, which must not be its own backend; left out"},
		{"a simulation", pages{pathModels: {200, list, map[string]string{headerSimulated: "true"}}}, "a simulation, not a model; left out"},
		{"one that shows itself on a later path only", pages{pathModels: ok(list), pathProps: {200, "{}", map[string]string{headerSimulated: "true"}}}, "a simulation, not a model; left out"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var l lab
			r, steps := l.look(t, nil, l.serve(tt.pages).addr)
			if len(r.Servers) != 0 || !strings.HasSuffix(steps[0].Line, tt.line) || steps[0].Found {
				t.Errorf("got %v and %+v, want nothing and %q", r.Servers, steps[0], tt.line)
			}
		})
	}
}

func TestLookKeepsTheOrderOfLookingAndShowsEveryLook(t *testing.T) {
	var l lab
	a, b := l.serve(llamaSingle), l.serve(vllmOne)
	const gone = "127.0.0.1:4999"
	env := map[string]string{"OPENAI_API_KEY": "secret-value-1", "ANTHROPIC_API_KEY": "secret-value-2"}
	r, steps := l.look(t, env, gone, b.addr, a.addr, b.addr)
	if len(r.Servers) != 2 || r.Servers[0].Addr != b.addr || r.Servers[1].Addr != a.addr {
		t.Fatalf("servers = %+v, want vLLM and then llama.cpp, once each", r.Servers)
	}
	found := map[string]bool{}
	for _, s := range steps {
		found[s.What] = s.Found
		if strings.Contains(s.Line, "secret-value") {
			t.Errorf("a key is shown: %q", s.Line)
		}
	}
	want := map[string]bool{gone: false, a.addr: true, b.addr: true, "OPENAI_API_KEY": true, "OPENROUTER_API_KEY": false, "ANTHROPIC_API_KEY": true}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

func TestLookNamesTheUsualServerOfAnEmptyPort(t *testing.T) {
	var steps []Step
	refuse := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") }
	_, err := Look(t.Context(), Options{Dial: refuse, Env: func(string) string { return "" }, Progress: func(s Step) { steps = append(steps, s) }})
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]string{}
	for _, s := range steps {
		lines[s.What] = s.Line
	}
	want := "looking at 127.0.0.1:11434 ... nothing there (the usual port of Ollama)"
	if got := lines["127.0.0.1:11434"]; got != want {
		t.Errorf("line = %q, want %q", got, want)
	}
	if got, want := len(steps), len(UsualPorts())+len(vendors); got != want {
		t.Errorf("%d steps, want %d", got, want)
	}
}

func TestLookEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("the user pressed ^C")
		time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
		hang := func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
		start := time.Now()
		if _, err := Look(ctx, Options{Dial: hang}); !errors.Is(err, why) {
			t.Errorf("err = %v, want %v", err, why)
		}
		if took, want := time.Since(start), 50*time.Millisecond; took != want {
			t.Errorf("took %v, want %v", took, want)
		}
	})
}

// One look over real sockets, with the dialer that users have.
func TestLookOverTCP(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(llamaSingle.handle))
	defer s.Close()
	r, err := Look(t.Context(), Options{Look: []string{s.Listener.Addr().String()}, Ports: []Port{}, Env: func(string) string { return "" }})
	if err != nil || len(r.Servers) != 1 || r.Servers[0].Kind != LlamaCPP {
		t.Errorf("got %+v, %v; want llama.cpp", r.Servers, err)
	}
}

func TestLookReadsWhatTheUserNames(t *testing.T) {
	tests := []struct {
		name, look string
		want       []target
		fault      string
	}{
		{"host and port", "10.0.0.5:8000", []target{{addr: "10.0.0.5:8000"}}, ""},
		{"a name and a port", "gpu-box.lan:8000", []target{{addr: "gpu-box.lan:8000"}}, ""},
		{"a port", "9001", []target{{addr: "127.0.0.1:9001", own: true}}, ""},
		{"a port with a colon", ":9001", []target{{addr: "127.0.0.1:9001", own: true}}, ""},
		{"localhost", "LocalHost:9001", []target{{addr: "127.0.0.1:9001", own: true}}, ""},
		{"any address of this machine", "0.0.0.0:9001", []target{{addr: "127.0.0.1:9001", own: true}}, ""},
		{"IPv6 loopback", "[::1]:9001", []target{{addr: "[::1]:9001", own: true}}, ""},
		{"IPv4 in IPv6", "[::ffff:127.0.0.1]:9001", []target{{addr: "127.0.0.1:9001", own: true}}, ""},
		{"a loopback host alone", "::1", onPorts("::1", UsualPorts()), ""},
		{"another host alone", "gpu-box", nil, "name the port too"},
		{"nothing", " ", nil, "name a host and a port"},
		{"a URL", "http://127.0.0.1:8080", nil, "without a scheme"},
		{"a port that is none", "127.0.0.1:99999", nil, "from 1 to 65535"},
		{"a signed port becomes a plain one", "127.0.0.1:+80", []target{{addr: "127.0.0.1:80", own: true}}, ""},
		{"a user in front", "me@127.0.0.1:80", nil, "neither a name nor an IP"},
		{"a zone", "[fe80::1%eth0]:80", nil, "neither a name nor an IP"},
		{"a new line", "a\nb:80", nil, "neither a name nor an IP"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Options{Look: []string{tt.look}, Ports: []Port{}}.targets()
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(target{})); diff != "" {
				t.Errorf("targets (-want +got):\n%s", diff)
			}
			if tt.fault == "" && err != nil || tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)) {
				t.Errorf("err = %v, want %q in it", err, tt.fault)
			}
		})
	}
}
