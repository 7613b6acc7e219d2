package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFlavoursCanBeToldApart(t *testing.T) {
	tests := []struct {
		flavour Flavour
		path    string
		status  int
		has     string
	}{
		{OpenAI, "/v1/models", 200, `"id":"big"`},
		{OpenAI, "/v1/models/big", 200, `"id":"big"`},
		{OpenAI, "/v1/models/none", 404, "no such path"},
		{OpenAI, "/props", 404, ""},
		{LlamaCPP, "/health", 200, `{"status":"ok"}`},
		{LlamaCPP, "/props", 200, `"total_slots":2`},
		{LlamaCPP, "/slots", 200, `"is_processing":false`},
		{LlamaCPP, "/v1/models", 200, `"owned_by":"llamacpp"`},
		{LlamaCPP, "/models", 200, `"n_ctx":4096`},
		{LlamaCPP, "/v1/models/big", 404, `{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}`},
		{LlamaCPP, "/", 404, "File Not Found"},
		{Ollama, "/", 200, "Ollama is running"},
		{Ollama, "/api/version", 200, `"version":"0.17.4"`},
		{Ollama, "/api/tags", 200, `"name":"big"`},
		{Ollama, "/health", 404, ""},
		{Ollama, "/v1/models", 200, `"owned_by":"library"`},
		{VLLM, "/version", 200, `"version"`},
		{VLLM, "/health", 200, ""},
		{VLLM, "/v1/models", 200, `"max_model_len":4096`},
		{SGLang, "/model_info", 200, `"model_path":"big"`},
		{SGLang, "/server_info", 200, `"context_length":4096`},
		{SGLang, "/health_generate", 200, ""},
		{LMStudio, "/api/v1/models", 200, `"loaded_instances":[{"id":"big"`},
		{LMStudio, "/api/v0/models", 200, `"state":"loaded"`},
		{LMStudio, "/v1/models", 200, `"owned_by":"organization_owner"`},
		{LMStudio, "/health", 200, "Unexpected endpoint"},
	}
	for _, tt := range tests {
		t.Run(string(tt.flavour)+tt.path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, Options{Script: Script{Server: tt.flavour, Models: []string{"big"}, Slots: 2, Context: 4096}})
				status, body := w.get(t, tt.path)
				if status != tt.status || !strings.Contains(body, tt.has) {
					t.Errorf("got %d %s, want %d with %q", status, body, tt.status, tt.has)
				}
			})
		})
	}
}

func TestContextOverflowInEachServersWords(t *testing.T) { // C083, F34
	long := strings.Repeat("word ", 400)
	tests := []struct {
		name    string
		flavour Flavour
		b       Behaviour
		stream  bool
		status  int
		has     string
	}{
		{"OpenAI", OpenAI, Behaviour{}, false, 400, `"code":"context_length_exceeded"`},
		{"llama.cpp", LlamaCPP, Behaviour{}, true, 400, `"type":"exceed_context_size_error","n_prompt_tokens":503,"n_ctx":100}`},
		{"llama.cpp as 500", LlamaCPP, Behaviour{ContextStatus: 500}, false, 500, `"type":"exceed_context_size_error"`},
		{"llama.cpp as 200", LlamaCPP, Behaviour{ContextStatus: 200}, false, 200, `{"error":{"code":400`},
		{"vLLM", VLLM, Behaviour{}, false, 400, "maximum context length is 100 tokens"},
		{"SGLang", SGLang, Behaviour{}, false, 400, `{"object":"error","message":"The input (503 tokens)`},
		{"SGLang in a stream", SGLang, Behaviour{}, true, 200, `data: {"error":{"object":"error","message":"The input (503 tokens)`},
		{"Ollama, in silence", Ollama, Behaviour{}, false, 200, `"prompt_tokens":100`},
		{"LM Studio", LMStudio, Behaviour{}, false, 400, `{"error":"simulated: the number of tokens to keep`},
		{"by behaviour", OpenAI, Behaviour{Context: 50}, false, 400, "maximum context length is 50"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, Options{Script: Script{Server: tt.flavour, Context: 100, On: map[string]Sequence{"m": {tt.b}}}})
				status, body, err := w.ask(t, "/v1/chat/completions", fmt.Sprintf(`{"model":"m","stream":%v,"messages":[{"role":"user","content":%q}]}`, tt.stream, long))
				if err != nil || status != tt.status || !strings.Contains(body, tt.has) {
					t.Errorf("got %d %s %v, want %d with %q", status, body, err, tt.status, tt.has)
				}
			})
		})
	}
}

func TestRefusals(t *testing.T) {
	chat := func(members string) string {
		return `{"model":"m","messages":[{"role":"user","content":"x"}]` + members + `}`
	}
	tests := []struct {
		name    string
		flavour Flavour
		refuse  string
		path    string
		body    string
		status  int
		has     string
	}{
		{"a stream", OpenAI, "stream", "/v1/chat/completions", askStream, 400, "stream is not supported"},
		{"what is not refused passes", OpenAI, "stream", "/v1/chat/completions", askWhole, 200, ""},
		{"null content", OpenAI, "null_content", "/v1/chat/completions", `{"model":"m","messages":[{"role":"assistant","content":null}]}`, 400, "null_content"},
		{"absent content", OpenAI, "absent_content", "/v1/chat/completions", `{"model":"m","messages":[{"role":"assistant"}]}`, 400, "absent_content"},
		{"empty content passes", OpenAI, "null_content", "/v1/chat/completions", `{"model":"m","messages":[{"role":"assistant","content":""}]}`, 200, ""},
		{"the developer role (C160)", OpenAI, "developer", "/v1/chat/completions", `{"model":"m","messages":[{"role":"developer","content":""}]}`, 400, "developer"},
		{"base64 (C154)", OpenAI, "base64", "/v1/embeddings", `{"model":"m","input":"x","encoding_format":"base64"}`, 400, "base64 is not supported"},
		{"float passes (C154)", OpenAI, "base64", "/v1/embeddings", `{"model":"m","input":"x","encoding_format":"float"}`, 200, ""},
		{"a null encoding_format (C154)", OpenAI, "encoding_format", "/v1/embeddings", `{"model":"m","input":"x","encoding_format":null}`, 400, "encoding_format"},
		{"max_completion_tokens (C157)", OpenAI, "max_completion_tokens", "/v1/chat/completions", chat(`,"max_completion_tokens":5`), 400, "max_completion_tokens"},
		{"max_tokens (C157)", OpenAI, "max_tokens", "/v1/chat/completions", chat(`,"max_tokens":5`), 400, "max_tokens"},
		{"n", OpenAI, "n", "/v1/chat/completions", chat(`,"n":2`), 400, `"param":"n"`},
		{"bad JSON", OpenAI, "", "/v1/chat/completions", `{"model":`, 400, "not a valid request"},
		{"bad JSON at llama.cpp", LlamaCPP, "", "/v1/chat/completions", `{"model":`, 500, `"type":"server_error"`},
		{"no messages", LlamaCPP, "", "/v1/chat/completions", `{"model":"m"}`, 400, "'messages' is required"},
		{"no prompt", OpenAI, "", "/v1/completions", `{"model":"m"}`, 400, "'prompt' is required"},
		{"an image at llama.cpp", LlamaCPP, "", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 500, "image input is not supported"},
		{"bad arguments in the history at llama.cpp", LlamaCPP, "", "/v1/chat/completions", `{"model":"m","messages":[{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":"{x"}}]}]}`, 500, "Failed to parse tool call arguments"},
		{"a custom tool at llama.cpp", LlamaCPP, "", "/v1/chat/completions", chat(`,"tools":[{"type":"web_search"}]`), 500, "Unsupported tool type"},
		{"an unknown model at Ollama", Ollama, "", "/v1/chat/completions", `{"model":"zz","messages":[]}`, 404, `"type":"not_found_error"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := Behaviour{}
				if tt.refuse != "" {
					b.Refuse = []string{tt.refuse}
				}
				w := newWorld(t, Options{Script: Script{Server: tt.flavour, Strict: tt.flavour == Ollama, On: map[string]Sequence{"m": {b}}}})
				status, body, err := w.ask(t, tt.path, tt.body)
				if err != nil || status != tt.status || !strings.Contains(body, tt.has) {
					t.Errorf("got %d %s %v, want %d with %q", status, body, err, tt.status, tt.has)
				}
			})
		})
	}
}

func TestKeyIsDemanded(t *testing.T) {
	s := New(Options{Script: Script{Key: "k-1"}}).Start(t)
	for set, want := range map[[2]string]int{{"", ""}: 401, {"Authorization", "Bearer k-2"}: 401, {"Authorization", "Bearer k-1"}: 200, {"X-Api-Key", "k-1"}: 200} {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL()+"/v1/models", nil)
		req.Close = true
		if set[0] != "" {
			req.Header.Set(set[0], set[1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%v: %d, want %d", set, resp.StatusCode, want)
		}
	}
	if got := s.Attempts()[0].Header.Get("Host"); got == "" {
		t.Error("the record lacks the Host")
	}
}

func TestRefereeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{KeepBody: 10, KeepAttempts: 4, Script: Script{On: map[string]Sequence{"m": {{HeaderDelay: time.Second}}}}})
		for range 3 {
			go func() { _, _, _ = w.ask(t, "/v1/chat/completions", askWhole) }()
		}
		if err := w.WaitActive(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if w.Active() != 3 || w.ActiveOf("m") != 3 || w.ActiveOf("other") != 0 {
			t.Errorf("active %d, of m %d, of other %d", w.Active(), w.ActiveOf("m"), w.ActiveOf("other"))
		}
		w.Reset()
		if got := len(w.Attempts()); got != 3 {
			t.Errorf("%d attempts after Reset, want the 3 that run", got)
		}
		if err := w.WaitEnded(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		if w.Active() != 0 || w.ActiveOf("m") != 0 || w.Peak("m") != 3 {
			t.Errorf("active %d, of m %d, peak %d; want 0, 0, 3", w.Active(), w.ActiveOf("m"), w.Peak("m"))
		}
		_, _, _ = w.ask(t, "/v1/chat/completions", askWhole)
		if got := w.Peak("m"); got != 3 {
			t.Errorf("peak %d after one more call, want still 3", got)
		}
		a := w.Calls("m")[0]
		if string(a.Body) != askWhole[:10] || a.BodyBytes != int64(len(askWhole)) || a.BytesSent == 0 || a.End != Completed {
			t.Errorf("record %+v", a)
		}
		w.get(t, "/health")
		w.get(t, "/v1/models")
		if got := w.Attempts(); len(got) != 4 || got[3].Path != "/v1/models" || len(w.Calls("")) != 2 {
			t.Errorf("kept %d attempts and %d calls, want the newest 4, of them 2 calls", len(got), len(w.Calls("")))
		}
	})
}

func TestControlPaths(t *testing.T) {
	s := New(Options{Control: true}).Start(t)
	ctl := func(method, path, body string) (int, string) {
		req, _ := http.NewRequestWithContext(t.Context(), method, s.URL()+path, strings.NewReader(body))
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(data)
	}
	if code, body := ctl("POST", "/_sim/script", `{"on":{"m":{"statos":1}}}`); code != 400 || !strings.Contains(body, `unknown field \"statos\"`) {
		t.Errorf("bad script: %d %s", code, body)
	}
	if code, body := ctl("POST", "/_sim/script", `{"on":{"m":{"text":"set"}}}`); code != 200 {
		t.Errorf("script: %d %s", code, body)
	}
	rawAsk(t, s, "/v1/chat/completions", askWhole)
	if err := s.WaitEnded(t.Context(), 1); err != nil { // the client has its answer a moment before
		t.Fatal(err)
	}
	_, body := ctl("GET", "/_sim/attempts?model=m", "")
	if dig(t, body, "attempts", 0, "body") != askWhole || dig(t, body, "attempts", 0, "end") != "completed" || dig(t, body, "active") != 0.0 {
		t.Errorf("attempts: %s", body)
	}
	ctl("POST", "/_sim/reset", "")
	if _, body := ctl("GET", "/_sim/attempts", ""); len(dig(t, body, "attempts").([]any)) != 0 {
		t.Errorf("after reset: %s", body)
	}
	if code, body := ctl("GET", "/_sim/what", ""); code != 404 || !strings.Contains(body, "/_sim/attempts") {
		t.Errorf("unknown: %d %s", code, body)
	}
	off := New(Options{}).Start(t)
	if h := rawAsk(t, off, "/_sim/reset", ""); h.status != 404 {
		t.Errorf("control is off by default: %d, want 404", h.status)
	}
}

func TestScriptFaultsAreAllNamed(t *testing.T) {
	tests := []struct {
		name, script string
		has          []string
	}{
		{"not JSON", `{`, []string{"unexpected EOF"}},
		{"an unknown member", `{"modls":[]}`, []string{`unknown field "modls"`}},
		{"an unknown server", `{"server":"lama"}`, []string{`server: "lama" is not one of openai, llamacpp`}},
		{"a duration that is none", `{"loading":"soon"}`, []string{`loading: "soon" is not a duration`}},
		{"several at once", `{"on":{"a":{"gap":5},"b":[{},{"cut":{"how":"off"},"drop":"x"}],"c":[]}}`, []string{
			`on.a: gap: a duration is a string`, `on.b: [1]: drop: "x" is not one of fin, rst`, `cut.how: "off" is not one of`, `on.c: must be a behaviour or a list`}},
		{"a bad status", `{"on":{"a":{"status":99}}}`, []string{"status: 99 is not between"}},
		{"a negative number", `{"on":{"a":{"chunks":-1}}}`, []string{"chunks: must not be negative"}},
		{"an unknown usage", `{"on":{"a":{"usage":"some"}}}`, []string{`usage: "some" is not one of`}},
		{"a behaviour that is a word", `{"on":{"a":"hang"}}`, []string{"on.a: must be a behaviour"}},
		{"more than one value", `{} {}`, []string{"more than one JSON value"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseScript([]byte(tt.script))
			for _, has := range tt.has {
				if err == nil || !strings.Contains(err.Error(), has) {
					t.Errorf("error %v lacks %q", err, has)
				}
			}
		})
	}
}

func TestBehaviourSurvivesJSON(t *testing.T) {
	want := Behaviour{HeaderDelay: 1500 * time.Millisecond, Raw: "\xff", Cut: &Cut{After: 3, How: "rst"}, SSE: SSE{BOM: true}, Usage: `{"a":1}`, Error: json.RawMessage(`{"x":1}`)}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Behaviour
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s\n%s", d, data)
	}
	if !strings.Contains(string(data), `"header_delay":"1.5s"`) {
		t.Errorf("durations are not text: %s", data)
	}
}

func FuzzParseScript(f *testing.F) {
	f.Add([]byte(`{"server":"llamacpp","on":{"m":[{"gap":"1s"},{"raw":{"base64":"AA=="}}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		script, err := ParseScript(data)
		if err == nil && script.Check() != nil {
			t.Errorf("accepted a script with faults: %q", data)
		}
	})
}

func FuzzServeHTTP(f *testing.F) {
	f.Add("/v1/chat/completions", []byte(askStream), `{"tool":"parallel"}`)
	f.Add("/v1/embeddings", []byte(`{"input":[[1]],"model":"m"}`), ``)
	f.Add("/messages", []byte(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"tools":[{"name":"f"}]}`), `{"agent":true}`)
	f.Add("/messages/count_tokens", []byte(`{"model":"m","messages":[{"role":"user","content":null}],"thinking":{}}`), ``)
	f.Add("/responses", []byte(`{"model":"m","stream":true,"input":[{"type":"function_call_output","output":[]}]}`), `{"tool":"interleaved"}`)
	f.Add("/v1/completions", []byte(`{"prompt":[],"model":"m","stream":true}`), `{}`)
	f.Fuzz(func(t *testing.T, path string, body []byte, wish string) {
		s := New(Options{Script: Script{APIs: slices.Collect(maps.Values(paths))}})
		q := parse(path, body)
		q.header = http.Header{"Anthropic-Version": {"2023-06-01"}}
		var b Behaviour
		if wish != "" && b.UnmarshalJSON([]byte(wish)) != nil {
			return
		}
		a := &Attempt{Method: "POST", Path: "/v1" + path, API: apiOf("POST", "/v1"+path), Nonce: "n"}
		ans := s.answer(&http.Request{Method: "POST", URL: mustURL("/v1" + path), Header: http.Header{}}, a, q, &b)
		n := 0
		for range ans.pieces {
			if n++; n > 1000 {
				break
			}
		}
	})
}

// TestDocumentNamesEveryField holds docs/sim.md and the types together.
func TestDocumentNamesEveryField(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "sim.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range fieldNames() {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/sim.md does not name `%s`", name)
		}
	}
	n := 0
	for _, block := range strings.Split(string(page), "```json\n")[1:] {
		example, _, _ := strings.Cut(block, "```")
		if _, err := ParseScript([]byte(example)); err != nil {
			t.Errorf("example of docs/sim.md:\n%s\n%v", example, err)
		}
		n++
	}
	if n == 0 {
		t.Error("docs/sim.md has no example")
	}
}

func TestClosedServerTurnsRequestsAway(t *testing.T) {
	s := New(Options{})
	_ = s.Close()
	defer func() {
		if recover() != http.ErrAbortHandler {
			t.Error("want http.ErrAbortHandler")
		}
	}()
	s.ServeHTTP(nil, (&http.Request{}).WithContext(context.Background()))
}
