package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestResolveFillsInWhatTheServerAndTierSay is the table that the documentation of the defaults is checked against.
func TestResolveFillsInWhatTheServerAndTierSay(t *testing.T) {
	type defaults struct {
		Stream, Usage, Null, Developer string
		IdleConn, Connect, Idle        time.Duration
		Outside                        bool
	}
	const s = time.Second
	tests := map[string]struct {
		server, tier string
		want         defaults
	}{
		"no server is openai, in the cloud":        {"", "cloud", defaults{"auto", "ask", "keep", "keep", 90 * s, 5 * s, 30 * s, true}},
		"llama.cpp on the floor":                   {"llamacpp", "floor", defaults{"always", "ask", "empty", "keep", 4 * s, 2 * s, 60 * s, false}},
		"llama.cpp on the GPU":                     {"llamacpp", "gpu", defaults{"always", "ask", "empty", "keep", 4 * s, 2 * s, 30 * s, false}},
		"ollama on the floor":                      {"ollama", "floor", defaults{"always", "ask", "keep", "system", 90 * s, 2 * s, 60 * s, false}},
		"vllm, which uvicorn serves":               {"vllm", "gpu", defaults{"always", "ask", "keep", "system", 4 * s, 2 * s, 30 * s, false}},
		"sglang, which uvicorn serves":             {"sglang", "gpu", defaults{"always", "ask", "keep", "system", 4 * s, 2 * s, 30 * s, false}},
		"lmstudio, which refuses null":             {"lmstudio", "gpu", defaults{"always", "ask", "empty", "system", 4 * s, 2 * s, 30 * s, false}},
		"tgi, not known to count usage in streams": {"tgi", "cloud", defaults{"always", "leave", "empty", "system", 90 * s, 5 * s, 30 * s, true}},
		"localai": {"localai", "floor", defaults{"always", "leave", "keep", "system", 90 * s, 2 * s, 60 * s, false}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := Default()
			b := &Backend{Server: test.server, Tier: test.tier}
			c.Backends = map[string]*Backend{"b": b}
			c.Resolve()
			got := defaults{b.Stream, b.Usage, b.NullContent, b.Developer, b.IdleConn.D(), b.Limits.Connect.D(), b.Limits.Idle.D(), *b.Outside}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			again := *b
			c.Resolve()
			if diff := cmp.Diff(again, *b); diff != "" {
				t.Errorf("resolving again changes it (-first +second):\n%s", diff)
			}
		})
	}
}

func TestResolveKeepsWhatIsSet(t *testing.T) {
	c := Default()
	c.Limits.Connect, c.Limits.Idle = Duration(time.Second), Duration(7*time.Second)
	inside := false
	c.Backends = map[string]*Backend{
		"own": {
			Server: "llamacpp", Tier: "cloud", Outside: &inside, Stream: "auto", Usage: "leave", NullContent: "keep", Developer: "system",
			IdleConn: Duration(time.Minute), Limits: Limits{Connect: Duration(3 * time.Second)},
		},
	}
	c.Resolve()
	want := &Backend{
		Server: "llamacpp", Tier: "cloud", Outside: &inside, Stream: "auto", Usage: "leave", NullContent: "keep", Developer: "system",
		IdleConn: Duration(time.Minute), Limits: Limits{Connect: Duration(3 * time.Second), Idle: Duration(7 * time.Second)},
		Dialect: "openai", Proxy: "none", MaxTokens: "keep", Base64: "keep",
		Reasoning: "reasoning_content", SystemTurns: "user", Attribution: "strip",
	}
	if diff := cmp.Diff(want, c.Backends["own"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEveryServerHasItsDefaults(t *testing.T) {
	for _, server := range fieldNamed(t, "server").enum {
		if _, ok := servers[server]; !ok {
			t.Errorf("server %s has no defaults", server)
		}
	}
}

// fieldNamed returns a field of Backend.
func fieldNamed(t *testing.T, key string) field {
	t.Helper()
	for _, f := range fieldsOf(backendType) {
		if f.key == key {
			return f
		}
	}
	t.Fatalf("no field %s", key)
	return field{}
}

func TestLimitsOrTakesTheFirstThatIsSet(t *testing.T) {
	step := Limits{FirstContent: 1}
	route := Limits{FirstContent: 2, Idle: 2}
	pool := Limits{FirstContent: 3, Idle: 3, Total: 3, Connect: 3}
	top := Limits{Connect: 4, FirstContent: 4, Idle: 4, Total: 4, Answer: 4, Wait: 4, SwapWait: 4}
	want := Limits{Connect: 3, FirstContent: 1, Idle: 2, Total: 3, Answer: 4, Wait: 4, SwapWait: 4}
	if got := step.Or(route).Or(pool).Or(top); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestBaseLeavesOutTheVersion(t *testing.T) {
	for url, want := range map[string]string{
		"http://127.0.0.1:8080":        "http://127.0.0.1:8080",
		"http://127.0.0.1:8080/":       "http://127.0.0.1:8080",
		"http://127.0.0.1:8080/v1":     "http://127.0.0.1:8080",
		"http://127.0.0.1:8080/v1/":    "http://127.0.0.1:8080",
		"https://openrouter.ai/api/v1": "https://openrouter.ai/api",
		"https://a.example/dev1":       "https://a.example/dev1",
		"sim://cloud":                  "sim://cloud",
	} {
		if got := (&Backend{URL: url}).Base(); got != want {
			t.Errorf("base of %s is %s, want %s", url, got, want)
		}
	}
}

func TestPoolSendsTheIDThatItsBackendKnows(t *testing.T) {
	some := &Pool{Models: []Model{{ID: "glm-5"}, {ID: "glm-4.9", ServedAs: "glm-5"}}}
	any := &Pool{Models: []Model{{ID: "a", ServedAs: "b"}, {ID: "*"}}}
	tests := map[string]struct {
		pool     *Pool
		id, want string
		ok       bool
	}{
		"an id":                    {some, "glm-5", "glm-5", true},
		"an id that collapses":     {some, "glm-4.9", "glm-5", true},
		"an id that is not served": {some, "glm-6", "", false},
		"any id":                   {any, "x/y", "x/y", true},
		"a named id beside any":    {any, "a", "b", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got, ok := test.pool.Sent(test.id); got != test.want || ok != test.ok {
				t.Errorf("got %q, %v; want %q, %v", got, ok, test.want, test.ok)
			}
		})
	}
}

func TestStepSplitsAtTheFirstSlash(t *testing.T) {
	for use, want := range map[string][2]string{
		"pool": {"pool", ""}, "pool/model": {"pool", "model"}, "pool/*": {"pool", "*"}, "pool/vendor/model": {"pool", "vendor/model"},
	} {
		if pool, model := (Step{Use: use}).Split(); pool != want[0] || model != want[1] {
			t.Errorf("%s splits into %q and %q, want %q", use, pool, model, want)
		}
	}
}

func TestBesideStartsAtTheFolderOfTheFile(t *testing.T) {
	for _, test := range []struct{ file, path, want string }{
		{"/etc/weir/weir.yaml", "./data", "/etc/weir/data"},
		{"/etc/weir/weir.yaml", "/var/lib/weir", "/var/lib/weir"},
		{"weir.yaml", "data", "data"},
		{"", "./data", "./data"},
		{"/etc/weir/weir.yaml", "", ""},
	} {
		if got := (&Config{File: test.file}).Beside(test.path); got != test.want {
			t.Errorf("%s beside %s is %s, want %s", test.path, test.file, got, test.want)
		}
	}
}
