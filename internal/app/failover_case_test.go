package app

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/key"
	"weir/internal/sim"
)

// C076: the length of an answer is no fault; silence is, and comments are a sign of life but no content.
func TestC076LongStreamsLive(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits string
		b      sim.Behaviour
		took   time.Duration
		broke  string // text before the one error; "": a whole answer
	}{
		{"a token each second, three times the limit", "{first_content: 5s, idle: 5s}", sim.Behaviour{Chunks: 16, Gap: time.Second}, 15 * time.Second, ""},
		{"one token, then silence", "{first_content: 5s, idle: 5s}", sim.Behaviour{Deltas: []string{"one ", "two"}, Cut: &sim.Cut{After: 1, Of: "chunks", How: "stall"}}, 5 * time.Second, "one "},
		{"comments through a long prefill", "{first_content: 100s, idle: 5s}", sim.Behaviour{FirstDelay: 90 * time.Second, Ping: 10 * time.Second, Text: "at last"}, 90 * time.Second, ""},
		{"ten minutes of tokens", "{total: 3h}", sim.Behaviour{Chunks: 31, Gap: 20 * time.Second}, 10 * time.Minute, ""},
	} {
		for _, k := range kindsOfAnswer[:2] {
			t.Run(c.name+", "+k.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					g := begin(t, setup{yaml: "limits: " + c.limits + "\n" + k.yaml, sims: oai(c.b)})
					start := time.Now()
					r := g.chat(k.stream)
					if took := time.Since(start); took < c.took || took > c.took+250*time.Millisecond {
						t.Errorf("I4: after %v, want %v", took, c.took)
					}
					switch {
					case c.broke == "":
						r.text()
					case k.stream:
						r.broke(c.broke)
					case r.failed() == nil || r.status != 504:
						t.Errorf("%d %s", r.status, r.body)
					}
				})
			})
		}
	}
}

// C079: behind a proxy that cuts what is silent for a minute a streaming client hears something in time, through a long
// prefill and a step that hangs, and then gets the answer, or one error in the stream.
func TestC079SignsOfLifeForProxies(t *testing.T) {
	for _, c := range []struct {
		name  string
		list  []*sim.Behaviour
		limit string
		text  string
	}{
		{"a prefill of 90 s", []*sim.Behaviour{{FirstDelay: 90 * time.Second, Text: "at last"}}, "2m", "at last"},
		{"headers after 90 s", []*sim.Behaviour{{HeaderDelay: 90 * time.Second, Text: "at last"}}, "2m", "at last"},
		{"a step that hangs, then one that is slow", []*sim.Behaviour{{Hang: true}, {HeaderDelay: 50 * time.Second, Text: "at last"}}, "55s", "at last"},
		{"all hang", []*sim.Behaviour{{Hang: true}, {Hang: true}}, "70s", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{yaml: "limits: {first_content: " + c.limit + "}\n" + steps(len(c.list)), sims: scripts(c.list...)})
				last := time.Now()
				r := g.chat(true)
				for _, at := range r.at {
					if gap := at.Sub(last); gap >= time.Minute {
						t.Errorf("%v without a byte", gap)
					}
					last = at
				}
				if c.text == "" {
					if f := r.broke(""); f.Code != "upstream_slow" {
						t.Errorf("code %v", f.Code)
					}
				} else if got := r.text(); got != c.text {
					t.Errorf("text %q", got)
				}
			})
		})
	}
}

// C089: once the headers have left, the error in the stream has the class of what happened in its type and code.
func TestC089ClassOfALateError(t *testing.T) {
	late := func(b sim.Behaviour) *sim.Behaviour { b.HeaderDelay = 3 * time.Second; return &b }
	for _, c := range []struct {
		name       string
		b          *sim.Behaviour
		kind, code string
	}{
		{"503", late(sim.Behaviour{Status: 503, RetryAfter: "30"}), "overloaded_error", "upstream_unavailable"},
		{"429", late(sim.Behaviour{Status: 429, RetryAfter: "30"}), "rate_limit_error", "upstream_busy"},
		{"529", late(sim.Behaviour{Status: 529, RetryAfter: "30"}), "overloaded_error", "upstream_busy"},
		{"400", late(sim.Behaviour{Status: 400, Error: []byte(`{"message":"bad value","type":"invalid_request_error"}`)}), "invalid_request_error", "invalid_request"},
		{"too long", late(sim.Behaviour{Context: 1}), "invalid_request_error", "context_length_exceeded"},
		{"401", late(sim.Behaviour{Status: 401}), "server_error", "upstream_denied"},
		{"502 with a page", late(sim.Behaviour{Status: 502, Body: "<html>Bad gateway</html>", Headers: map[string]string{"Content-Type": "text/html"}}), "server_error", "upstream_refused"},
		{"no connection", nil, "server_error", "upstream_refused"},
		{"silence", &sim.Behaviour{Hang: true}, "timeout_error", "upstream_slow"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{yaml: steps(1, "commit_after: 1s"), sims: scripts(c.b)})
				if c.b == nil {
					g.net.BlackHole("s1.sim:80")
				}
				r := g.chat(true)
				f := r.broke("")
				if f.Type != c.kind || f.Code != c.code || len(f.Message) > 300 || strings.Contains(f.Message, "<") {
					t.Errorf("error %+v, want %s, %s", f, c.kind, c.code)
				}
				if e := g.end(r.id()); e.Status != 200 || e.Kind == "" {
					t.Errorf("%s", e.Raw)
				}
			})
		})
	}
}

// C093: how an attempt ended does not matter, the next step is taken; answer, header and record name both. When all fail
// the error names every step and what became of it.
func TestC093EveryOutcomeIsSeen(t *testing.T) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{yaml: steps(3), sims: scripts(&sim.Behaviour{Status: 401}, nil, &sim.Behaviour{Text: "third"})})
				r := g.chat(stream)
				if got := r.text(); got != "third" || r.header.Get("X-Weir-Attempts") != "3" {
					t.Errorf("text %q", got)
				}
				e := g.end(r.id())
				if e.Attempts[0].Kind != "denied" || e.Attempts[0].Status != 401 || e.Attempts[1].Kind != "refused" || e.Attempts[2].Kind != "" {
					t.Errorf("%s", e.Raw)
				}
				for _, l := range g.lines.all() {
					if l.Request == r.id() && l.Event == "skip" && (l.Detail == "" || strings.Contains(l.Detail, ".sim")) {
						t.Errorf("a skip without the upstream's own words: %s", l.Raw)
					}
				}
				if err := g.sims["s3"].Set("m", sim.Behaviour{Status: 500}); err != nil {
					t.Fatal(err)
				}
				r = g.chat(stream)
				f := r.failed()
				for _, want := range []string{"s1/m denied", "s2/m refused", "s3/m refused", "nothing listens"} {
					if !strings.Contains(f.Message, want) {
						t.Errorf("message %q lacks %q", f.Message, want)
					}
				}
				if r.status != 502 || r.header.Get("X-Should-Retry") != "false" {
					t.Errorf("%d %s", r.status, r.body)
				}
			})
		})
	}
}

// S13, I11: what an upstream says reaches clients and events cleaned: no key, address, host or path of this side.
func TestS13ErrorsTellNothingOfThisSide(t *testing.T) {
	t.Setenv("WEIR_TEST_CANARY", "canary-secret-of-the-vendor")
	secrets := []string{"canary-secret-of-the-vendor", "sk-canary0123456789", "10.1.2.3", "gpu-7.lan", "/srv/models/canary", "s1.sim", "canary.internal", "::1"}
	const words = `cannot load /srv/models/canary.gguf: key canary-secret-of-the-vendor (Bearer sk-canary0123456789) refused by http://10.1.2.3:9000/v1 at gpu-7.lan:443, canary.internal and [::1]:80 for s1.sim`
	body, err := json.Marshal(map[string]any{"error": map[string]any{"message": words, "type": words, "code": words, "param": words}})
	if err != nil {
		t.Fatal(err)
	}
	inner := strings.TrimSuffix(strings.TrimPrefix(string(body), `{"error":`), "}")
	whole := func(status int, text string) sim.Behaviour {
		return sim.Behaviour{Status: status, Headers: map[string]string{"Content-Type": "application/json", "X-Canary": words, "Server": words}, Body: sim.Bytes(text)}
	}
	rows := map[string]sim.Behaviour{
		"flat": whole(500, inner), "text": whole(500, `{"error":`+jsonText(words)+`}`), "a list": whole(422, `{"detail":[{"msg":`+jsonText(words)+`}]}`),
		"in a 200": {StreamError: &sim.StreamError{Error: []byte(inner)}}, "after content": {Deltas: []string{"one ", "two"}, StreamError: &sim.StreamError{After: 1, Error: []byte(inner)}},
		"no JSON": whole(500, words), "a redirect": {Redirect: "http://gpu-7.lan/srv/models/canary"}, "no HTTP": {Raw: sim.Bytes(words + "\r\n\r\n")},
		"a type": {Headers: map[string]string{"Content-Type": "text/" + words}, Body: "x"},
	}
	for _, status := range []int{400, 401, 402, 403, 404, 413, 422, 429, 500, 502, 503, 529} {
		rows[fmt.Sprint(status)] = whole(status, string(body))
	}
	for name, b := range rows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				yaml := strings.ReplaceAll(steps(2), "tier: gpu", `tier: gpu, key: "${env:WEIR_TEST_CANARY}"`)
				logs := new(logged)
				g := begin(t, setup{yaml: yaml, sims: scripts(&b, &b), log: logs.handler()})
				for _, stream := range []bool{true, false} {
					for _, model := range []string{"oai-m", "s1/m"} {
						r := g.askFor(model, stream)
						g.end(r.id())
						head := fmt.Sprint(r.header)
						for _, s := range secrets {
							if strings.Contains(string(r.body), s) || strings.Contains(head, s) {
								t.Errorf("%s, stream %v: the client is told %q: %s %s", model, stream, s, head, r.body)
							}
						}
					}
				}
				for _, l := range g.lines.all() {
					for _, s := range secrets[:2] {
						if strings.Contains(l.Raw, s) {
							t.Errorf("an event tells %q: %s", s, l.Raw)
						}
					}
				}
				if s := logs.String(); strings.Contains(s, secrets[0]) {
					t.Errorf("the log tells the key: %s", s)
				}
			})
		})
	}
}

// S25, S26: whatever address stands in a request, in a body's members or in headers, Weir connects to its configured
// backends alone; a redirect is not followed and its target gets no key.
func TestS25NoAddressOfARequestIsDialled(t *testing.T) {
	hostile := []string{
		"http://127.0.0.1/", "http://localhost/", "http://0.0.0.0/", "http://0/", "http://127.1/", "http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/",
		"http://[::1]/", "http://[::]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[fe80::1%25eth0]/", "http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/",
		"http://metadata.google.internal/", "http://10.0.0.1/", "http://192.168.1.1/", "http://rebind.test/", "http://user:pass@inside.sim/", "http://inside.sim#@s1.sim/", "http://s1.sim@inside.sim/",
		"https://inside.sim/", "//inside.sim/", "file:///etc/passwd", "gopher://inside.sim/_x", "ftp://inside.sim/", "unix:///var/run/docker.sock", "data:text/plain,x", "http://inside.sim:80\\@s1.sim/",
	}
	fields := []string{
		`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":%[1]s}}]}]`,
		`"messages":[{"role":"user","content":[{"type":"file","file":{"file_data":%[1]s,"url":%[1]s}}]}]`,
		`"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":%[1]s}}]}]`,
		`"messages":[{"role":"user","content":"x"}],"api_base":%[1]s,"base_url":%[1]s,"api_key":"sk-x","proxy":%[1]s,"callback_url":%[1]s,"user":%[1]s,"metadata":{"url":%[1]s},"extra_body":{"api_base":%[1]s}`,
		`"messages":[{"role":"user","content":"x"}],"tools":[{"type":"mcp","server_url":%[1]s},{"type":"function","function":{"name":"f","parameters":{"$ref":%[1]s}}}],"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"$ref":%[1]s}}}`,
	}
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		dialled := map[string]bool{}
		g := begin(t, setup{yaml: steps(2), sims: map[string]sim.Script{
			"s1": {On: map[string]sim.Sequence{"m": {{Text: "ok"}}}}, "s2": {On: map[string]sim.Sequence{"m": {{}}}}, "inside": {},
		}, refuse: func(_ context.Context, addr string) error {
			mu.Lock()
			defer mu.Unlock()
			dialled[addr] = true
			return nil
		}})
		for _, url := range hostile {
			for _, f := range fields {
				g.post("/v1/chat/completions", `{"model":"oai-m",`+fmt.Sprintf(f, jsonText(url))+`}`,
					"X-Forwarded-Host", "inside.sim", "X-Original-Url", url, "X-Base-Url", url, "Forwarded", "host=inside.sim", "Referer", url, "Origin", url)
			}
			g.post("/v1/chat/completions", `{"model":`+jsonText(url)+`,"messages":[{"role":"user","content":"x"}]}`)
		}
		for _, to := range hostile[:16] {
			if err := g.sims["s1"].Set("m", sim.Behaviour{Redirect: to}); err != nil {
				t.Fatal(err)
			}
			g.chat(true).text()
			time.Sleep(3 * time.Minute)
		}
		mu.Lock()
		defer mu.Unlock()
		for addr := range dialled {
			if addr != "s1.sim:80" && addr != "s2.sim:80" {
				t.Errorf("Weir connected to %s", addr)
			}
		}
		if n := len(g.sims["inside"].Attempts()); n != 0 {
			t.Errorf("%d requests reached what nobody configured", n)
		}
	})
}

// S39: no name in a request becomes a file, a path upstream or a program.
func TestS39NamesStayNames(t *testing.T) {
	g := begin(t, setup{sims: oai(sim.Behaviour{Text: "ok"})})
	for _, name := range []string{"../../../etc/passwd", "/etc/passwd", "..%2f..%2fetc%2fpasswd", "a/../../x", "$(id)", "`id`", "; id", "|id", "{{7*7}}", "${env:PATH}", "${file:/etc/passwd}", "%00", "con", "a\x00b", "\\\\host\\share", "file:///etc/passwd"} {
		body := fmt.Sprintf(`{"model":%s,"messages":[{"role":"user","content":"x"}]}`, jsonText(name))
		r := g.post("/v1/chat/completions", body)
		if f := r.failed(); r.status != 404 && r.status != 400 || strings.Contains(f.Message, "root:") || strings.Contains(f.Message, "49") && !strings.Contains(name, "49") {
			t.Errorf("%q: %d %s", name, r.status, r.body)
		}
	}
	for _, path := range []string{"/v1/models/..%2f..%2fetc%2fpasswd", "/v1/models/../../etc/passwd", "/v1/models/%2e%2e/%2e%2e/etc/passwd", "/v1/../etc/passwd", "/etc/passwd"} {
		if r := g.get(path); r.status < 300 || strings.Contains(string(r.body), "root:") {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	if n := len(g.sim().Attempts()); n != 0 {
		t.Errorf("%d requests went upstream", n)
	}
}

// S45: with the store gone requests go on, keys and their limits still hold, and what is not known is refused.
func TestS45WithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := new(logged)
		g := begin(t, setup{sims: oai(sim.Behaviour{Text: "ok"}), log: logs.handler()})
		limited, disabled := g.newKey(key.Spec{Name: "limited", RPM: 2}), g.newKey(key.Spec{Name: "narrow", Aliases: []string{"emb"}})
		if err := g.app.store.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		for range 20 {
			for _, stream := range []bool{true, false} {
				if got := g.chat(stream).text(); got != "ok" {
					t.Errorf("text %q", got)
				}
			}
			time.Sleep(time.Second)
		}
		for i, want := range []int{200, 200, 429} {
			if r := g.post("/v1/chat/completions", chatBody(false), "Authorization", "Bearer "+limited); r.status != want {
				t.Errorf("call %d of a limit of 2: %d", i+1, r.status)
			}
		}
		for name, c := range map[string]struct {
			token string
			want  int
		}{"unknown": {"weir_" + strings.Repeat("x", 40), 401}, "none": {"", 401}, "of another alias": {disabled, 404}} {
			if r := g.post("/v1/chat/completions", chatBody(false), "Authorization", strings.TrimSuffix("Bearer "+c.token, "Bearer ")); r.status != c.want {
				t.Errorf("a key that is %s: %d, want %d", name, r.status, c.want)
			}
		}
		if r := g.get(g.admin + "/metrics"); r.status != 200 {
			t.Errorf("metrics: %d", r.status)
		}
	})
}
