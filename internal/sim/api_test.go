package sim

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// withTimeout is t's context with an end.
func withTimeout(t *testing.T, ctx context.Context, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, d)
	t.Cleanup(cancel)
	return ctx
}

func TestWhichServerHasWhichAPI(t *testing.T) {
	bodies := map[API]string{
		Chat:        `{"model":"m","messages":[{"role":"user","content":"x"}]}`,
		Completions: `{"model":"m","prompt":"x"}`,
		Embeddings:  `{"model":"m","input":"x"}`,
		Rerank:      `{"model":"m","query":"x","documents":["x"]}`,
		Messages:    `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"x"}]}`,
		CountTokens: `{"model":"m","messages":[{"role":"user","content":"x"}]}`,
		Responses:   `{"model":"m","input":"x"}`,
	}
	old := []API{Chat, Completions, Embeddings, Rerank}
	tests := []struct {
		script Script
		want   []API
	}{
		{Script{}, append(old, Responses)},
		{Script{Server: Anthropic}, []API{Messages, CountTokens}},
		{Script{Server: LlamaCPP}, append(old, Messages, CountTokens, Responses)},
		{Script{Server: Ollama}, append(old, Messages, Responses)},
		{Script{Server: VLLM}, append(old, Messages, Responses)},
		{Script{Server: SGLang}, append(old, Messages)},
		{Script{APIs: []API{Messages, Chat}}, []API{Chat, Messages}},
	}
	for _, tt := range tests {
		t.Run(string(tt.script.Server), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, Options{Script: tt.script})
				for path, api := range paths {
					status, body, err := w.ask(t, "/v1"+path, bodies[api])
					want := 404
					if slices.Contains(tt.want, api) {
						want = 200
					}
					if err != nil || status != want {
						t.Errorf("%s: %d %s %v, want %d", path, status, body, err, want)
					}
				}
				for _, a := range w.Attempts() {
					if a.API != paths[strings.TrimPrefix(a.Path, "/v1")] {
						t.Errorf("%s is recorded as %q", a.Path, a.API)
					}
				}
			})
		})
	}
}

func TestTokensAreCountedByTheirTexts(t *testing.T) {
	count := func(t *testing.T, w *world, members string) (float64, string) {
		t.Helper()
		_, body, err := w.ask(t, "/v1/messages/count_tokens", `{"model":"m",`+members+`}`)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := dig(t, body, "input_tokens").(float64)
		return n, body
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{Script: Script{Server: Anthropic, Slots: 1, Context: 50, On: map[string]Sequence{"m": {{Status: 500}}}}})
		word := strings.Repeat("x", 400)
		for name, members := range map[string]string{
			"a string":      `"messages":[{"role":"user","content":"` + word + `"}]`,
			"a block":       `"messages":[{"role":"user","content":[{"type":"text","text":"` + word + `","cache_control":{"type":"ephemeral"}}]}]`,
			"system's part": `"system":"` + word[:200] + `","messages":[{"role":"user","content":"` + word[:200] + `"}]`,
		} {
			if got, body := count(t, w, members); got != 100 {
				t.Errorf("%s counts %s, want 100", name, body)
			}
		}
		if _, body := count(t, w, `"max_tokens":5,"messages":[{"role":"user","content":"x"}]`); !strings.Contains(body, "max_tokens: Extra inputs are not permitted") {
			t.Errorf("max_tokens: %s", body)
		}
		if got := w.Calls(""); len(got) != 0 {
			t.Errorf("%d calls, want none: counting is no work", len(got))
		}
		if err := w.Set("/v1/messages/count_tokens", Behaviour{Status: 529}); err != nil {
			t.Fatal(err)
		}
		if _, body := count(t, w, `"messages":[{"role":"user","content":"x"}]`); !strings.Contains(body, "overloaded_error") {
			t.Errorf("a behaviour by path: %s", body)
		}
	})
}

func TestModelsInAnthropicsShape(t *testing.T) {
	models := []string{"claude-a", "claude-b", "claude-c"}
	tests := []struct {
		name   string
		server Flavour
		path   string
		plain  bool // no anthropic-version
		status int
		has    string
	}{
		{"all", Anthropic, "/v1/models", false, 200, `"has_more":false,"first_id":"claude-a","last_id":"claude-c"}`},
		{"a page", Anthropic, "/v1/models?limit=1&after_id=claude-a", false, 200, `{"data":[{"type":"model","id":"claude-b","display_name":"claude-b","created_at":"2026-09-21T14:13:20Z"`},
		{"more behind the page", Anthropic, "/v1/models?limit=2", false, 200, `"has_more":true,"first_id":"claude-a","last_id":"claude-b"}`},
		{"one", Anthropic, "/v1/models/claude-b", false, 200, `{"type":"model","id":"claude-b"`},
		{"one that is not", Anthropic, "/v1/models/x", false, 404, `"type":"not_found_error"`},
		{"without a version", Anthropic, "/v1/models", true, 400, "anthropic-version: header is required"},
		{"no other path", Anthropic, "/health", false, 200, ""},
		{"an unknown path", Anthropic, "/props", false, 404, `{"type":"error","error":{"type":"not_found_error"`},
		{"OpenAI's, asked so", OpenAI, "/v1/models", false, 200, `"has_more":false`},
		{"OpenAI's, not asked so", OpenAI, "/v1/models", true, 200, `{"object":"list"`},
		{"llama.cpp's whatever is asked", LlamaCPP, "/v1/models", false, 200, `"owned_by":"llamacpp"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, Options{Script: Script{Server: tt.server, Models: models}})
				status, body := w.getAs(t, tt.path, !tt.plain)
				if status != tt.status || !strings.Contains(body, tt.has) {
					t.Errorf("%d %s, want %d with %q", status, body, tt.status, tt.has)
				}
			})
		})
	}
}

func TestCachedTokensOfChat(t *testing.T) {
	b := Behaviour{Cached: 5, CacheWrite: 2}
	for flavour, want := range map[Flavour]string{
		OpenAI: `"prompt_tokens_details":{"cached_tokens":5,"cache_write_tokens":2,"audio_tokens":0}`, LlamaCPP: `"cache_n":5`, VLLM: `"cached_tokens":5`,
	} {
		s := New(Options{Script: Script{Server: flavour, On: map[string]Sequence{"m": {b}}}}).Start(t)
		if h := rawAsk(t, s, "/v1/chat/completions", askWhole); !strings.Contains(h.body, want) {
			t.Errorf("%s: %s lacks %s", flavour, h.body, want)
		}
	}
}

func TestScriptNamesItsAPIs(t *testing.T) {
	script, err := ParseScript([]byte(`{"server":"anthropic","apis":["messages"],"refuse":["late_system"]}`))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]API{Messages}, script.APIs); d != "" {
		t.Error(d)
	}
	_, err = ParseScript([]byte(`{"apis":["mesages"],"refuse":["x"],"on":{"m":{"stream_error":{"event":"y"}}}}`))
	for _, has := range []string{`apis: "mesages" is not one of`, `refuse: "x" is not one of`, `stream_error.event: "y" is not one of`} {
		if err == nil || !strings.Contains(err.Error(), has) {
			t.Errorf("error %v lacks %q", err, has)
		}
	}
}
