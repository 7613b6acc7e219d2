package app

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/admin"
	"weir/internal/config"
	"weir/internal/sim"
)

// forms are the ways in which a text may stand somewhere: as it is, escaped for URLs and for JSON, in base64 at each of
// its three alignments, in hex.
func forms(secret string) (list []string) {
	quoted, _ := json.Marshal(secret)
	plain := strings.Trim(fmt.Sprintf("%q", secret), `"`)
	var all strings.Builder
	for _, r := range secret {
		fmt.Fprintf(&all, `\u%04x`, r)
	}
	list = []string{secret, url.QueryEscape(secret), url.PathEscape(secret), strings.Trim(string(quoted), `"`), plain, all.String(), strings.ToUpper(hex.EncodeToString([]byte(secret))), hex.EncodeToString([]byte(secret))}
	for off := range 3 {
		for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
			b := enc.EncodeToString([]byte(strings.Repeat("x", off) + secret))
			list = append(list, b[min(4*off, 4):len(b)-4]) // without the groups that hold what stands beside it
		}
	}
	return list
}

// place is where a text must not stand.
type place struct{ name, content string }

// canaries are secrets and texts by name.
type canaries map[string]string

// find reports every canary that stands in a place where it must not.
func (c canaries) find(t *testing.T, places []place, except func(canary, place string) bool) {
	t.Helper()
	for name, secret := range c {
		for _, p := range places {
			if except != nil && except(name, p.name) {
				continue
			}
			for _, f := range forms(secret) {
				if i := strings.Index(p.content, f); i >= 0 {
					t.Errorf("%s stands in %s as %q: …%q…", name, p.name, f, p.content[max(0, i-80):min(len(p.content), i+len(f)+40)])
				}
			}
		}
	}
}

// folder reads all files below a folder.
func folder(t *testing.T, dir string) (places []place) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		places = append(places, place{"the file " + filepath.Base(p), string(b)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return places
}

// S01, S10, S11, S14, I11: every secret and every text is a canary; after a broad mix at debug level none stands in the log,
// the event lines, the data folder, the metrics, the exported traces, or where it does not belong in an answer.
func TestS10NoCanaryGetsOut(t *testing.T) {
	var exported strings.Builder
	var mu sync.Mutex // guards exported
	otlp := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		exported.Write(b)
	}))
	defer otlp.Close()

	dir := t.TempDir()
	c := canaries{
		"a backend's key": "bkey/0f3b+9a5d=7c1e&canary", "a key in its own header": "hkey-4c2d9e8b7a6f-canary", "the prompt": `canary "pröm<pt>" & 1f7e`, "the system prompt": "canary-system-5b1c", "a tool": "canary_tool_9d3e",
		"a tool's description": "canary describes 77aa", "an image": "Y2FuYXJ5aW1hZ2U0NGNj", "the answer": "canary answer 31ee", "the query": "canary-query-66dd", "a cookie": "canary-cookie-88ff", "a header": "canary-header-22bb",
		"a wrong key": "canary-wrong-key-10aa", "a path of the backend": "canary-upstream-path",
	}
	cert, private := certify(t, "canary")
	for name, data := range map[string]string{"bkey": c["a backend's key"], "hkey": c["a key in its own header"], "cert.pem": string(cert), "key.pem": string(private)} {
		write(t, filepath.Join(dir, name), []byte(data), time.Now())
	}
	c["the TLS key"] = strings.Split(string(private), "\n")[1]
	logs := new(logged)
	yaml := fmt.Sprintf(`
traces: {url: "%[1]s/v1/traces"}
tls: {cert: "%[2]s/cert.pem", key: "%[2]s/key.pem"}
backends:
  a: {url: "http://a.sim", tier: gpu, key: "${file:%[2]s/bkey}"}
  b: {url: "http://b.sim/%[3]s", tier: cloud, key: "${file:%[2]s/hkey}", key_header: X-Custom-Key, stream: as_asked}
pools:
  a: {backend: a, cap: 8, models: [oai-m]}
  b: {backend: b, cap: 8, models: [oai-m]}
routes: {way: {steps: [a/oai-m, b/oai-m], limits: {first_content: 100ms, idle: 100ms, answer: 100ms, total: 300ms}}}
aliases: {oai-m: way}
`, otlp.URL, dir, c["a path of the backend"])
	g := begin(t, setup{real: true, tls: true, yaml: yaml, sims: map[string]sim.Script{"a": {}, "b": {}}, log: logs.handler(), edit: func(*config.Config) {}})
	token, err := admin.Token(g.cfg.Beside(g.cfg.Data))
	if err != nil {
		t.Fatal(err)
	}
	c["the client's key"], c["the admin token"] = g.key, token
	answers := g.everything(c, token)

	metrics := g.get(g.admin+"/metrics", "Authorization", "")
	status := g.get(g.admin+"/api/v1/status", "Authorization", "Bearer "+token)
	g.settle()
	data := g.cfg.Beside(g.cfg.Data)
	places := folder(t, data)
	g.stop()
	places = append(places, folder(t, data)...)
	mu.Lock()
	defer mu.Unlock()
	var events strings.Builder
	for _, e := range g.lines.all() {
		events.WriteString(e.Raw + "\n")
	}
	places = append(places, place{"the log", logs.String()}, place{"the events", events.String()}, place{"the traces", exported.String()}, place{"the metrics", string(metrics.body)}, place{"the status", string(status.body)})
	for _, p := range places {
		if len(p.content) < 100 && p.name != "the file "+admin.TokenFile && !strings.Contains(p.name, "lock") && !strings.Contains(p.name, "-wal") {
			t.Errorf("%s holds only %q: nothing was looked for", p.name, p.content)
		}
	}
	c.find(t, places, func(canary, place string) bool {
		return canary == "the admin token" && place == "the file "+admin.TokenFile
	})
	c.find(t, answers, func(canary, place string) bool { return canary == "the answer" })
}

// everything asks for all that can go well or wrong, and returns what clients got.
func (g *gateway) everything(c canaries, token string) (answers []place) {
	g.t.Helper()
	content, _ := json.Marshal(c["the prompt"])
	body := func(stream bool, more string) string {
		return fmt.Sprintf(`{"model":"oai-m","stream":%v%s,"user":%s,"tools":[{"type":"function","function":{"name":"%s","description":"%s","parameters":{"type":"object"}}}],"messages":[{"role":"system","content":"%s"},{"role":"user","content":[{"type":"text","text":%s},{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}]}]}`,
			stream, more, content, c["a tool"], c["a tool's description"], c["the system prompt"], content, c["an image"])
	}
	keep := func(what string, r *reply) {
		text := fmt.Sprint(r.status, " ", string(r.body))
		for h, v := range r.header {
			text += fmt.Sprintf("\n%s: %q", h, v)
		}
		answers = append(answers, place{"the answer to " + what, text})
	}
	headers := []string{"Cookie", "a=" + c["a cookie"], "X-Custom", c["a header"], "X-Tag", c["a header"], "User-Agent", c["a header"], "Openai-Organization", c["a header"]}
	ask := func(what, path, body string, more ...string) {
		keep(what, g.post(path+"?api_key="+c["the query"]+"&q="+url.QueryEscape(c["the prompt"]), body, append(more, headers...)...))
	}
	const chat = "/v1/chat/completions"
	faults := append(mixFaults(), mixFault{name: "an error that quotes the key", b: sim.Behaviour{Status: 401, Error: quote("Incorrect API key provided: KEY at http://a.sim/" + c["a path of the backend"])}},
		mixFault{name: "an error amid that quotes the key", b: sim.Behaviour{Text: "a b c", StreamError: &sim.StreamError{After: 1, Error: quote("bad key KEY")}}})
	for _, f := range faults {
		f.b.Text, f.b.HeaderDelay, f.b.FirstDelay, f.b.Gap = strings.ReplaceAll(f.b.Text, "answer", c["the answer"]), min(f.b.HeaderDelay, 200*time.Millisecond), min(f.b.FirstDelay, 200*time.Millisecond), min(f.b.Gap, 200*time.Millisecond)
		if f.b.LineBytes > 0 || f.b.Loading > 0 && f.name != "loading" {
			continue
		}
		if err := errors.Join(g.sims["a"].Set("oai-m", quoting(f.b, c["a backend's key"])), g.sims["b"].Set("oai-m", quoting(f.b, c["a key in its own header"]))); err != nil {
			g.t.Fatal(err)
		}
		for _, stream := range []bool{true, false} {
			if f.b.Cut != nil && f.b.Cut.How == "stall" && !stream {
				continue // a whole answer that is all there cannot stall
			}
			ask(fmt.Sprintf("%s, stream %v", f.name, stream), chat, body(stream, ""))
		}
	}
	for _, server := range []string{"a", "b"} {
		if err := g.sims[server].Set("oai-m", sim.Behaviour{Text: c["the answer"]}); err != nil {
			g.t.Fatal(err)
		}
	}
	for _, op := range []string{"/v1/completions", "/v1/embeddings", "/v1/rerank"} {
		ask(op, op, fmt.Sprintf(`{"model":"oai-m","prompt":%s,"input":%[1]s,"query":%[1]s,"documents":[%[1]s]}`, content))
	}
	good := body(false, "")
	for what, broken := range map[string]string{
		"half a body": good[:len(good)/2], "text behind": good + string(content), "no JSON": c["the prompt"], "a member twice": body(false, `,"seed":1,"seed":2`),
		"a prompt as a number": body(false, `,"max_tokens":`+string(content)), "a prompt as a flag": body(false, `,"n":`+string(content)), "bytes that are no UTF-8": strings.Replace(good, "canary-system", "canary-system\xff", 1), "nothing": "", "depth": strings.Repeat("[", 500) + string(content),
	} {
		ask(what, chat, broken)
	}
	ask("a wrong key", chat, good, "Authorization", "Bearer "+c["a wrong key"])
	ask("two keys", chat, good, "X-Api-Key", c["a wrong key"])
	ask("a foreign host", chat, good, "Host", "evil.test")
	ask("no path", "/v1/nope", good)
	ask("a wrong type", chat, good, "Content-Type", "text/plain")
	ask("a packed body", chat, good, "Content-Encoding", "gzip")
	ask("a wrong boundary", chat, good, "X-Weir-Boundary", "elsewhere")
	keep("a GET", g.get(chat+"?api_key="+c["the query"], headers...))
	keep("models", g.get("/v1/models", headers...))
	for _, auth := range []string{"", "Bearer " + c["a wrong key"], "Bearer " + g.key, "Basic " + token, "Bearer " + token} {
		for _, path := range []string{"/api/v1/status", "/api/v1/nope", "/metrics", "/readyz"} {
			keep("admin "+path, g.get(g.admin+path+"?token="+c["the query"], append([]string{"Authorization", auth}, headers...)...))
		}
	}
	return answers
}

// quoting puts a key where an error of b says KEY.
func quoting(b sim.Behaviour, key string) sim.Behaviour {
	escaped, _ := json.Marshal(key)
	fill := func(raw json.RawMessage) json.RawMessage {
		return bytes.ReplaceAll(raw, []byte("KEY"), bytes.Trim(escaped, `"`))
	}
	if b.Error != nil {
		b.Error = fill(b.Error)
	}
	if e := b.StreamError; e != nil && e.Error != nil {
		b.StreamError = &sim.StreamError{After: e.After, Error: fill(e.Error), Done: e.Done}
	}
	return b
}

// quote is an error object with a message.
func quote(message string) json.RawMessage {
	b, _ := json.Marshal(map[string]string{"message": message, "type": "server_error"})
	return b
}
