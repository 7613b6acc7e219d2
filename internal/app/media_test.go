package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/config"
	"weir/internal/key"
)

// edge is the boundary of the forms here.
const edge = "----WebKitFormBoundary7MA4YWxkTrZu0gW"

const formType = "multipart/form-data; boundary=" + edge

// mediaForm is a form with a file of n bytes, and the model before or behind it, as a reader that holds none of them.
func mediaForm(model string, n int, modelFirst bool) io.Reader {
	const disposed = "\r\nContent-Disposition: form-data; name="
	m := "--" + edge + disposed + "\"model\"\r\n\r\n" + model + "\r\n"
	file := "--" + edge + disposed + "\"file\"; filename=\"speech.wav\"\r\nContent-Type: audio/wav\r\n\r\n"
	end := "--" + edge + disposed + "\"response_format\"\r\n\r\njson\r\n--" + edge + "--\r\n"
	if modelFirst {
		return io.MultiReader(strings.NewReader(m+file), io.LimitReader(new(noise), int64(n)), strings.NewReader("\r\n"+end))
	}
	return io.MultiReader(strings.NewReader(file), io.LimitReader(new(noise), int64(n)), strings.NewReader("\r\n"+m+end))
}

// noise is bytes of every value, without an end.
type noise struct{ at int }

var loud = func() (b [64 << 10]byte) {
	for i := range b {
		b[i] = byte(i*7 ^ i>>8)
	}
	return b
}()

// Read gives a piece of the noise.
func (r *noise) Read(p []byte) (int, error) {
	n := copy(p, loud[r.at%len(loud):])
	r.at += n
	return n, nil
}

func read(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// got is a request as a backend had it.
type got struct {
	path, kind, body string
	header           http.Header
}

// ears is a backend that hears requests and answers them as it is told.
type ears struct {
	mu    sync.Mutex // guards the field below
	heard []got
	does  func(w http.ResponseWriter, r *http.Request)
}

// ServeHTTP hears one request.
func (e *ears) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	e.mu.Lock()
	e.heard = append(e.heard, got{r.URL.Path, r.Header.Get("Content-Type"), string(body), r.Header})
	e.mu.Unlock()
	e.does(w, r)
}

func (e *ears) all() []got {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]got(nil), e.heard...)
}

// says is what a backend answers.
func says(status int, kind, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("X-Secret-Of-The-Upstream", "1")
		w.Header().Set("Set-Cookie", "a=b")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const transcript = `{"text":"hello","usage":{"type":"tokens","input_tokens":14,"input_token_details":{"audio_tokens":14},"output_tokens":4,"total_tokens":18}}`

// mediaYAML has one backend whose model goes by another id there.
func mediaYAML() string {
	return strings.Replace(oneBackend(""), "models: [oai-m, emb]", "models: [{id: oai-m, served_as: openai/whisper-1}, emb]", 1)
}

// Issue 4, 7: every endpoint with audio and images passes to its pool: bodies byte for byte but for the model's id,
// wherever it stands, answers byte for byte whatever they are.
func TestMediaPass(t *testing.T) {
	events := "event: transcript.text.delta\ndata: {\"type\":\"transcript.text.delta\",\"delta\":\"hel\"}\n\ndata: {\"type\":\"transcript.text.done\",\"text\":\"hello\"}\n\n"
	sound := read(t, io.LimitReader(letters{}, 300<<10))
	for _, c := range []struct {
		name, path, body, up string // up: empty for body with the model replaced
		kind, answer, op     string
	}{
		{"a transcription, the model first", "/v1/audio/transcriptions", read(t, mediaForm("oai-m", 5000, true)), "", "application/json", transcript, "audio"},
		{"a transcription, the model last", "/v1/audio/transcriptions", read(t, mediaForm("oai-m", 5000, false)), "", "text/plain; charset=utf-8", "hello\n", "audio"},
		{"a transcription as events", "/v1/audio/transcriptions", read(t, mediaForm("oai-m", 5000, false)), "", "text/event-stream", events, "audio"},
		{"captions", "/v1/audio/transcriptions", read(t, mediaForm("oai-m", 3<<20, false)), "", "text/vtt", "WEBVTT\n", "audio"},
		{"silence", "/v1/audio/transcriptions", read(t, mediaForm("oai-m", 10, false)), "", "text/plain", "", "audio"},
		{"a translation", "/v1/audio/translations", read(t, mediaForm("oai-m", 3<<20, true)), "", "application/json", transcript, "audio"},
		{"an edit", "/v1/images/edits", read(t, mediaForm("oai-m", 2<<20, false)), "", "application/json", `{"created":1,"data":[{"b64_json":"` + sound + `"}]}`, "images"},
		{"a variation", "/v1/images/variations", read(t, mediaForm("oai-m", 100, false)), "", "application/json", `{"created":1,"data":[]}`, "images"},
		{"speech", "/v1/audio/speech", `{"model": "oai-m" ,"input":"hello","voice":{"id":"x"},"speed":1.10}`, `{"model": "openai/whisper-1" ,"input":"hello","voice":{"id":"x"},"speed":1.10}`, "audio/mpeg", sound, "audio"},
		{"speech as events", "/v1/audio/speech", `{"model":"oai-m","input":"hello","stream_format":"sse"}`, `{"model":"openai/whisper-1","input":"hello","stream_format":"sse"}`, "text/event-stream", events, "audio"},
		{"a generation", "/v1/images/generations", `{"prompt":"a cat","n":2,"model":"oai-m"}`, `{"prompt":"a cat","n":2,"model":"openai/whisper-1"}`, "application/json", `{"created":1,"data":[{"url":"https://x"}],"usage":{"input_tokens":14,"output_tokens":4}}`, "images"},
		{"a generation as events", "/v1/images/generations", `{"prompt":"a cat","stream":true,"model":"oai-m"}`, `{"prompt":"a cat","stream":true,"model":"openai/whisper-1"}`, "text/event-stream", events, "images"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &ears{does: says(200, c.kind, c.answer)}
			g := begin(t, setup{yaml: mediaYAML(), other: map[string]http.Handler{"a": a}})
			kind := "application/json"
			if c.up == "" {
				kind, c.up = formType, strings.Replace(c.body, "\r\n\r\noai-m\r\n", "\r\n\r\nopenai/whisper-1\r\n", 1)
			}
			r := g.post(c.path, c.body, "Content-Type", kind, "Cookie", "c=d")
			if r.status != 200 || string(r.body) != c.answer || r.err != nil || r.header.Get("Content-Type") != c.kind {
				t.Fatalf("%d %s, %d bytes, %v: %.300s; want %d bytes of %s", r.status, r.header.Get("Content-Type"), len(r.body), r.err, r.body, len(c.answer), c.kind)
			}
			if n := r.header.Get("Content-Length"); n != fmt.Sprint(len(c.answer)) && len(c.answer) < 2000 {
				t.Errorf("Content-Length %q of %d", n, len(c.answer))
			}
			for name, want := range map[string]string{
				"X-Weir-Pool": "a", "X-Weir-Model": "oai-m", "X-Weir-Route": "a/oai-m", "X-Weir-Attempts": "1",
				"X-Secret-Of-The-Upstream": "", "Set-Cookie": "", "X-Content-Type-Options": "nosniff",
			} {
				if v := r.header.Get(name); v != want {
					t.Errorf("%s: %q, want %q", name, v, want)
				}
			}
			heard := a.all()
			if len(heard) != 1 || heard[0].path != c.path || heard[0].kind != kind || heard[0].body != c.up {
				t.Fatalf("%d calls, of %s %s with %d bytes, want %d", len(heard), heard[0].path, heard[0].kind, len(heard[0].body), len(c.up))
			}
			if h := heard[0].header; h.Get("Authorization") != "" || h.Get("Cookie") != "" || h.Get("X-Request-Id") != r.id() || h.Get("X-Weir-Hop") == "" {
				t.Errorf("headers upstream: %v", h)
			}
			e := g.end(r.id())
			for _, want := range []string{fmt.Sprintf(`"op":%q`, c.op), fmt.Sprintf(`"bytes":%d`, len(c.body)), `"status":200`} {
				if !strings.Contains(e.Raw, want) {
					t.Errorf("event without %s: %s", want, e.Raw)
				}
			}
			if strings.Contains(e.Raw, "hello") || strings.Contains(e.Raw, "a cat") {
				t.Errorf("the event tells texts: %s", e.Raw)
			}
			if tokens := e.Tokens.In; strings.Contains(c.answer, `"input_tokens":14`) != (tokens != nil && *tokens == 14) {
				t.Errorf("tokens: %s", e.Raw)
			}
			g.leavesNothing()
		})
	}
}

// leavesNothing checks that no file of an upload is there any more.
func (g *gateway) leavesNothing() {
	g.t.Helper()
	if list, err := filepath.Glob(filepath.Join(g.cfg.Beside(g.cfg.Data), "upload-*")); err != nil || len(list) > 0 {
		g.t.Errorf("left behind: %v, %v", list, err)
	}
}

// What Go's own writer makes is taken as it is, too.
func TestMediaOfAnotherWriter(t *testing.T) {
	a := &ears{does: says(200, "application/json", transcript)}
	g := begin(t, setup{yaml: oneBackend(""), other: map[string]http.Handler{"a": a}})
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	f, _ := w.CreateFormFile("file", "ä \"quoted\\\".mp3")
	_, _ = io.WriteString(f, "\r\n--\r\nID3")
	for _, v := range []string{"word", "segment"} {
		_ = w.WriteField("timestamp_granularities[]", v)
	}
	_ = w.WriteField("model", "oai-m")
	w.Close()
	if r := g.post("/v1/audio/transcriptions", b.String(), "Content-Type", w.FormDataContentType()); r.status != 200 || a.all()[0].body != b.String() {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// Bodies that are no good are told in OpenAI's shape, before any backend is asked.
func TestMediaThatAreRefused(t *testing.T) {
	a := &ears{does: says(200, "application/json", transcript)}
	g := begin(t, setup{yaml: oneBackend(""), other: map[string]http.Handler{"a": a}, edit: func(c *config.Config) { c.Server.MaxBody = 3 << 20 }})
	good := read(t, mediaForm("oai-m", 100, false))
	twice := strings.Replace(good, "--"+edge+"--", "--"+edge+"\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nemb\r\n--"+edge+"--", 1)
	const at = "/v1/audio/transcriptions"
	for _, c := range []struct {
		name, path, body string
		status           int
		code, param      string
		headers          []string
	}{
		{"no model", at, strings.Replace(good, `"model"`, `"other"`, 1), 400, "invalid_request", "model", nil},
		{"two models", at, twice, 400, "invalid_request", "model", nil},
		{"an unknown model", at, read(t, mediaForm("nothing", 100, true)), 404, "model_not_found", "model", nil},
		{"a cut form", at, good[:len(good)-8], 400, "invalid_form", "", nil},
		{"JSON in place of a form", at, `{"model":"oai-m"}`, 415, "unsupported_content_type", "", []string{"Content-Type", "application/json"}},
		{"a form in place of JSON", "/v1/audio/speech", good, 415, "unsupported_content_type", "", nil},
		{"no boundary", at, good, 400, "invalid_form", "", []string{"Content-Type", "multipart/form-data"}},
		{"a packed form", at, good, 415, "unsupported_encoding", "", []string{"Content-Encoding", "gzip"}},
		{"speech without a model", "/v1/audio/speech", `{"input":"x"}`, 400, "invalid_request", "model", []string{"Content-Type", "application/json"}},
		{"no key", at, good, 401, "invalid_api_key", "", []string{"Authorization", ""}},
		{"too many hops", at, good, 508, "loop", "", []string{"X-Weir-Hop", "1,2,3,4,5,6,7,8"}},
	} {
		r := g.post(c.path, c.body, append([]string{"Content-Type", formType}, c.headers...)...)
		f := r.failed()
		param := ""
		if f.Param != nil {
			param = *f.Param
		}
		if r.status != c.status || f.Code != c.code || param != c.param {
			t.Errorf("%s: %d %s", c.name, r.status, r.body)
		}
	}
	// C121: over the limit, by its size before it is read, else as soon as it is over.
	for name, sized := range map[string]bool{"with a content-length": true, "chunked": false} {
		read := &meter{r: mediaForm("oai-m", 20<<20, false)}
		req, _ := http.NewRequestWithContext(t.Context(), "POST", g.url+at, io.MultiReader(read))
		req.Header.Set("Authorization", "Bearer "+g.key)
		req.Header.Set("Content-Type", formType)
		if sized {
			req.ContentLength = int64(len(good)) - 100 + 20<<20
		}
		resp, err := g.client.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r := g.read(resp); r.status != 413 || r.failed().Code != "request_too_large" {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
		if n := read.n.Load(); sized && n > 1<<20 || n > 8<<20 {
			t.Errorf("%s: %d bytes were taken", name, n)
		}
	}
	token := g.newKey(key.Spec{Name: "narrow", Aliases: []string{"emb"}})
	if r := g.post(at, good, "Content-Type", formType, "Authorization", "Bearer "+token); r.status != 404 {
		t.Errorf("a key that may not ask for it: %d %s", r.status, r.body)
	}
	if n := len(a.all()); n != 0 {
		t.Errorf("the backend saw %d calls", n)
	}
	g.leavesNothing()
}

// Until a byte has left the next step of the same model is tried, with the whole body again; another model is never.
func TestMediaFallBack(t *testing.T) {
	cut := func(sent string) func(w http.ResponseWriter, _ *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, sent)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}
	for name, first := range map[string]func(http.ResponseWriter, *http.Request){
		"an error":                       says(500, "application/json", `{"error":{"message":"boom"}}`),
		"busy":                           says(429, "application/json", `{"error":{"message":"busy"}}`),
		"no such path":                   says(404, "text/plain", "404 page not found"),
		"a page":                         says(200, "text/html", "<html>"),
		"an error within a 200":          says(200, "application/json", `{"error":{"message":"boom","code":500}}`),
		"a head alone":                   cut(""),
		"half of what is looked at":      cut(`{"text":"hel`),
		"nothing":                        says(200, "audio/mpeg", ""),
		"what closes without an answer":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"a body that is no JSON, a half": says(200, "application/json", `{"text":`),
	} {
		t.Run(name, func(t *testing.T) {
			s1, s2 := &ears{does: first}, &ears{does: says(200, "application/json", transcript)}
			g := begin(t, setup{yaml: steps(2), other: map[string]http.Handler{"s1": s1, "s2": s2}})
			body := read(t, mediaForm("oai-m", 2<<20, false))
			r := g.post("/v1/audio/transcriptions", body, "Content-Type", formType)
			if r.status != 200 || string(r.body) != transcript || r.header.Get("X-Weir-Reroute") != "fallback from s1/m" {
				t.Fatalf("%d %s %v", r.status, r.body, r.header)
			}
			want := strings.Replace(body, "\r\n\r\noai-m\r\n", "\r\n\r\nm\r\n", 1)
			for i, h := range append(s1.all(), s2.all()...) {
				if h.body != want {
					t.Errorf("call %d got %d bytes, want %d", i+1, len(h.body), len(want))
				}
			}
			g.leavesNothing()
		})
	}
	other := &ears{does: says(200, "application/json", transcript)}
	yaml := strings.Replace(strings.Replace(steps(2), "backend: s2, cap: 8, models: [m]", "backend: s2, cap: 8, models: [other]", 1), "s2/m", "s2/other", 1)
	g := begin(t, setup{yaml: yaml, other: map[string]http.Handler{"s1": &ears{does: says(500, "text/plain", "boom")}, "s2": other}})
	r := g.do(t.Context(), "POST", "/v1/audio/transcriptions", mediaForm("oai-m", 100, true), "Content-Type", formType)
	if r.status != 502 || r.failed().Code != "upstream_refused" || len(other.all()) != 0 {
		t.Errorf("%d %s, the other model was asked %d times", r.status, r.body, len(other.all()))
	}
}

// What breaks off after bytes have left never looks whole, and pieces come as they are sent.
func TestMediaThatBreakOff(t *testing.T) {
	for _, kind := range []string{"audio/mpeg", "text/event-stream"} {
		for _, length := range []string{"", "1000"} {
			next := make(chan struct{})
			a := &ears{does: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", kind)
				if length != "" {
					w.Header().Set("Content-Length", length)
				}
				for _, s := range []string{"first", "second"} {
					_, _ = io.WriteString(w, s)
					_ = http.NewResponseController(w).Flush()
					<-next
				}
				panic(http.ErrAbortHandler)
			}}
			g := begin(t, setup{yaml: steps(2), other: map[string]http.Handler{"s1": a, "s2": a}})
			resp, err := g.open(t.Context(), "POST", "/v1/audio/speech", strings.NewReader(`{"model":"oai-m","input":"x"}`))
			if err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 100)
			for _, want := range []string{"first", "second"} {
				n, err := resp.Body.Read(buf)
				if string(buf[:n]) != want || err != nil {
					t.Errorf("%s: a piece %q, %v; want %q", kind, buf[:n], err, want)
				}
				next <- struct{}{}
			}
			rest, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err == nil || len(rest) > 0 {
				t.Errorf("%s, length %q: what broke off ends with %q, %v", kind, length, rest, err)
			}
			e := g.end(resp.Header.Get("X-Weir-Request"))
			if e.Kind != "stalled" || e.Status != 200 || len(a.all()) != 1 {
				t.Errorf("%s: %d calls, event %s", kind, len(a.all()), e.Raw)
			}
		}
	}
}

// A client that leaves is felt upstream at once, while it waits and while it reads, and nobody is blamed.
func TestClientsThatLeaveMedia(t *testing.T) {
	for _, sent := range []string{"", "sound"} {
		here, gone := make(chan struct{}), make(chan struct{})
		a := &ears{does: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "audio/mpeg")
			if sent != "" {
				_, _ = io.WriteString(w, sent)
				_ = http.NewResponseController(w).Flush()
			}
			close(here)
			<-r.Context().Done()
			close(gone)
		}}
		g := begin(t, setup{yaml: oneBackend(""), other: map[string]http.Handler{"a": a}})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-here; cancel() }()
		if resp, err := g.open(ctx, "POST", "/v1/audio/transcriptions", mediaForm("oai-m", 2<<20, false), "Content-Type", formType); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		select {
		case <-gone:
		case <-time.After(10 * time.Second):
			t.Errorf("after %q: the upstream still works", sent)
		}
		waits, end := context.WithTimeout(t.Context(), 3*time.Second)
		e, err := g.lines.wait(waits, func(r *record) bool { return r.Event == "end" })
		if end(); err != nil || e.Kind != "canceled" || g.app.graph.pools["a"].Slots.Usage().Held != 0 {
			t.Errorf("after %q: %v %s", sent, err, e.Raw)
		}
		g.leavesNothing()
	}
}

// An upload that stops is told so in time, and leaves nothing.
func TestUploadsThatStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: oneBackend(""), other: map[string]http.Handler{"a": &ears{does: says(200, "text/plain", "x")}}})
		r, w := io.Pipe()
		go func() {
			_, _ = io.Copy(w, io.LimitReader(mediaForm("oai-m", 3<<20, false), 2<<20))
		}()
		reply := g.do(t.Context(), "POST", "/v1/audio/transcriptions", r, "Content-Type", formType)
		w.Close()
		if reply.status != 408 || reply.failed().Code != "body_timeout" {
			t.Errorf("%d %s", reply.status, reply.body)
		}
		g.leavesNothing()
	})
}

// C121: twenty uploads at a time, of 20 MiB in the long run and of 5 else, are no memory to speak of, and each arrives as
// it was sent.
func TestC121UploadsAreNotHeldInMemory(t *testing.T) {
	const mib, at = 1 << 20, 20
	size := 5 * mib
	if long() {
		size = 20 * mib
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, mediaForm("oai-m", size, false)); err != nil {
		t.Fatal(err)
	}
	want := sum.Sum(nil)
	var wrong atomic.Int64
	a := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		if _, err := io.Copy(sum, r.Body); err != nil || !bytes.Equal(sum.Sum(nil), want) {
			wrong.Add(1)
		}
		says(200, "application/json", transcript)(w, r)
	})
	g := begin(t, setup{yaml: oneBackend(""), other: map[string]http.Handler{"a": a}})
	rose := peak(func() {
		var all sync.WaitGroup
		for range at {
			all.Go(func() {
				if r := g.do(t.Context(), "POST", "/v1/audio/transcriptions", mediaForm("oai-m", size, false), "Content-Type", formType); r.status != 200 {
					t.Errorf("%d %s", r.status, r.body)
				}
			})
		}
		all.Wait()
	})
	if wrong.Load() > 0 {
		t.Errorf("%d of %d uploads arrived otherwise than they were sent", wrong.Load(), at)
	}
	if rose > 4*at*mib {
		t.Errorf("the heap rose by %d MiB for %d MiB of uploads, of which %d MiB may lie in memory", rose/mib, at*size/mib, at)
	}
	t.Logf("the heap rose by %d MiB", rose/mib)
	g.leavesNothing()
}

// What an earlier run left in the data folder is gone after the next start.
func TestUploadsOfAKilledWeir(t *testing.T) {
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "upload-123.tmp"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	begin(t, setup{data: data, other: map[string]http.Handler{"a": &ears{}}}).leavesNothing()
}

// A backend that answers while the upload still goes on is believed, and the rest is not sent.
func TestMediaAnsweredEarly(t *testing.T) {
	a := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		says(413, "application/json", `{"error":{"message":"Maximum content size limit exceeded","type":"invalid_request_error"}}`)(w, r)
	})
	g := begin(t, setup{yaml: oneBackend(""), other: map[string]http.Handler{"a": a}})
	r := g.do(t.Context(), "POST", "/v1/audio/transcriptions", mediaForm("oai-m", 8<<20, true), "Content-Type", formType)
	if diff := cmp.Diff("Maximum content size limit exceeded", r.failed().Message); r.status != 413 || diff != "" {
		t.Errorf("%d %s", r.status, r.body)
	}
}
