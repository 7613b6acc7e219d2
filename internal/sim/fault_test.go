package sim

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// heard is what a raw client got over a real socket.
type heard struct {
	status int
	header http.Header
	body   string
	hints  int
	err    error // how the body ended: nil is properly
}

// rawAsk sends a request over a socket of its own and reads what comes.
func rawAsk(t *testing.T, s *Server, path, body string) heard {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: sim\r\nAnthropic-Version: 2023-06-01\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	r := bufio.NewReader(c)
	var h heard
	for {
		resp, err := http.ReadResponse(r, &http.Request{Method: "POST"})
		if err != nil {
			h.err = err
			return h
		}
		if resp.StatusCode < 200 {
			h.hints++
			continue
		}
		data, err := io.ReadAll(resp.Body)
		h.status, h.header, h.body, h.err = resp.StatusCode, resp.Header, string(data), err
		return h
	}
}

func TestFaultsOverARealSocket(t *testing.T) {
	abc := []string{"aa", "bb", "cc"}
	tests := []struct {
		name  string
		b     Behaviour
		check func(h heard) error
	}{
		{"a cut body ends without its last chunk (F20)", Behaviour{Cut: &Cut{After: 100}}, all(bodyLen(100), endsBy(io.ErrUnexpectedEOF))},
		{"a cut by reset is a reset (C003)", Behaviour{Cut: &Cut{After: 100, How: "rst"}}, all(bodyLen(100), endsBy(syscall.ECONNRESET))},
		{"a cut with a proper end is whole for the transport (C024)", Behaviour{Cut: &Cut{After: 100, How: "end"}}, all(bodyLen(100), endsBy(nil))},
		{"a cut after chunks", Behaviour{Deltas: abc, Cut: &Cut{After: 2, Of: "chunks"}}, all(says("aabb"), endsBy(io.ErrUnexpectedEOF))},
		{"a cut before the first chunk leaves the role", Behaviour{Deltas: abc, Cut: &Cut{Of: "chunks"}}, all(holds(`"role":"assistant"`), says(""), endsBy(io.ErrUnexpectedEOF))},
		{"a cut behind the end takes only the end", Behaviour{Cut: &Cut{After: 1 << 30}}, all(holds("[DONE]"), endsBy(io.ErrUnexpectedEOF))},
		{"a dropped request is closed (F16)", Behaviour{Drop: "fin"}, endsBy(io.ErrUnexpectedEOF)},
		{"a dropped request is reset (F16)", Behaviour{Drop: "rst"}, endsBy(syscall.ECONNRESET)},
		{"raw bytes are exact", Behaviour{Raw: "HTTP/1.0 299 Odd\r\nX: y\r\n\r\nraw {nonce}", Slice: 1}, all(status(299), holds("raw sim-000001"), endsBy(nil))},
		{"429 with Retry-After (F07)", Behaviour{Status: 429, RetryAfter: "5"}, all(status(429), header("Retry-After", "5"), holds("rate_limit_exceeded"))},
		{"retry-after-ms", Behaviour{Status: 503, RetryAfterMS: "250"}, all(status(503), header("Retry-After-Ms", "250"))},
		{"529 (F10)", Behaviour{Status: 529}, all(status(529), holds("overloaded_error"))},
		{"a scripted error object", Behaviour{Status: 402, Error: json.RawMessage(`{"message":"no credit"}`)}, all(status(402), holds(`{"error":{"message":"no credit"}}`))},
		{"any body (C050)", Behaviour{Status: 400, Body: `{"message":"no support"}`}, all(status(400), holds(`{"message":"no support"}`))},
		{"a body that is not UTF-8", Behaviour{Body: "\xff\xfe"}, holds("\xff\xfe")},
		{"a page of HTML (F11)", Behaviour{HTML: true}, all(status(200), header("Content-Type", "text/html; charset=utf-8"), holds("<html>"))},
		{"no body (F12)", Behaviour{NoBody: true}, all(status(200), header("Content-Length", "0"), bodyLen(0))},
		{"a redirect (F13)", Behaviour{Redirect: "http://127.0.0.1:1/x"}, all(status(307), header("Location", "http://127.0.0.1:1/x"))},
		{"many 103 first (F14)", Behaviour{EarlyHints: 7}, func(h heard) error { return want("hints", h.hints, 7) }},
		{"a huge header (F14)", Behaviour{HeaderBytes: 1 << 16}, func(h heard) error { return want("header", len(h.header.Get("X-Sim-Filler")), 1<<16) }},
		{"an overload as the first event (C009)", Behaviour{StreamError: &StreamError{Done: true}}, starts(`data: {"error":{"message":"simulated: the engine is overloaded`)},
		{"an error after chunks (F24)", Behaviour{Deltas: abc, StreamError: &StreamError{After: 2, Error: json.RawMessage(`{"code":429}`)}}, all(says("aabb"), holds("data: {\"error\":{\"code\":429}}\n\n"), lacks("[DONE]"), endsBy(nil))},
		{"a bad line amid good ones (F22)", Behaviour{Deltas: abc, Insert: []Insert{{After: 1, Raw: "data: {\"cho\n\n"}}}, holds("data: {\"cho\n\n")},
		{"no finish_reason (F23)", Behaviour{SSE: SSE{NoFinish: true}}, all(lacks(`"finish_reason":"stop"`), holds("[DONE]"))},
		{"no [DONE] (C027)", Behaviour{SSE: SSE{NoDone: true}}, all(holds(`"finish_reason":"stop"`), lacks("[DONE]"))},
		{"the terminal twice (F26)", Behaviour{SSE: SSE{Twice: true}}, all(times(`"finish_reason":"stop"`, 2), times("[DONE]", 2))},
		{"data after [DONE] (F26)", Behaviour{SSE: SSE{AfterDone: true}}, holds("[DONE]\n\ndata: {")},
		{"the last event without its blank line (C010)", Behaviour{SSE: SSE{OpenEnd: true, NoDone: true}}, all(endsWith("}"), endsBy(nil))},
		{"an empty answer", Behaviour{Empty: true}, all(says(""), holds(`"finish_reason":"stop"`))},
		{"another pool's model", Behaviour{Model: "other"}, all(holds(`"model":"other"`), lacks(`"model":"m"`))},
		{"a model that is a path (C165)", Behaviour{Model: "/models/foo.gguf"}, holds(`"model":"/models/foo.gguf"`)},
		{"ids that change (C165)", Behaviour{IDs: "change"}, all(holds(`"id":"chatcmpl-sim-000001-0"`), holds(`"id":"chatcmpl-sim-000001-1"`))},
		{"no ids (C165)", Behaviour{IDs: "none"}, lacks(`"id"`)},
		{"missing members (C165)", Behaviour{Omit: []string{"object", "created", "index"}}, all(lacks(`"object"`), lacks(`"created"`), lacks(`"index"`))},
		{"missing choices", Behaviour{Omit: []string{"choices"}}, lacks("choices")},
		{"usage unasked", Behaviour{Usage: "always"}, holds(`"total_tokens"`)},
		{"usage in every chunk", Behaviour{Deltas: abc, Usage: "every"}, times(`"total_tokens"`, 5)},
		{"usage without choices (C018)", Behaviour{Usage: "no_choices"}, holds(`"service_tier":"default","usage":{`)},
		{"length by script (C029)", Behaviour{Finish: "length"}, holds(`"finish_reason":"length"`)},
		{"reasoning in both fields (C161)", Behaviour{Reasoning: "so so", ReasoningField: "both"}, holds(`"delta":{"reasoning":"so ","reasoning_content":"so "}`)},
		{"the events of a script, filled", Behaviour{Events: []string{`{"choices":[]}`}, Fill: true}, holds(`"object":"chat.completion.chunk"`)},
		{"a line without an end (F30)", Behaviour{LineBytes: 1 << 20}, func(h heard) error {
			return want("lines", strings.Count(h.body, "\n")+len(h.body)>>20, 1)
		}},
		{"a Go function", Behaviour{Do: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418); _, _ = io.WriteString(w, "tea") }}, all(status(418), holds("tea"))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := New(Options{Script: Script{On: map[string]Sequence{"m": {tt.b}}}}).Start(t)
			h := rawAsk(t, s, "/v1/chat/completions", askStream)
			if err := tt.check(h); err != nil {
				t.Errorf("%v\nheard %d %v %q, %v", err, h.status, h.header, h.body[:min(len(h.body), 2000)], h.err)
			}
			if err := s.WaitQuiet(t.Context()); err != nil {
				t.Fatal(err)
			}
			if a := s.Attempts()[0]; a.Status != h.status {
				t.Errorf("recorded status %d, heard %d", a.Status, h.status)
			}
		})
	}
}

func want(what string, got, want any) error {
	if d := cmp.Diff(want, got); d != "" {
		return fmt.Errorf("%s (-want +got):\n%s", what, d)
	}
	return nil
}

func all(checks ...func(heard) error) func(heard) error {
	return func(h heard) error {
		for _, c := range checks {
			if err := c(h); err != nil {
				return err
			}
		}
		return nil
	}
}

func bodyLen(n int) func(heard) error {
	return func(h heard) error { return want("body length", len(h.body), n) }
}
func status(n int) func(heard) error {
	return func(h heard) error { return want("status", h.status, n) }
}
func header(k, v string) func(heard) error {
	return func(h heard) error { return want(k, h.header.Get(k), v) }
}
func holds(s string) func(heard) error {
	return func(h heard) error { return want("holds "+s, strings.Contains(h.body, s), true) }
}
func lacks(s string) func(heard) error {
	return func(h heard) error { return want("holds "+s, strings.Contains(h.body, s), false) }
}
func times(s string, n int) func(heard) error {
	return func(h heard) error { return want("count of "+s, strings.Count(h.body, s), n) }
}
func starts(s string) func(heard) error {
	return func(h heard) error { return want("begins with "+s, strings.HasPrefix(h.body, s), true) }
}
func endsWith(s string) func(heard) error {
	return func(h heard) error { return want("ends with "+s, strings.HasSuffix(h.body, s), true) }
}
func endsBy(err error) func(heard) error {
	return func(h heard) error {
		if !errors.Is(h.err, err) {
			return fmt.Errorf("ended by %v, want %v", h.err, err)
		}
		return nil
	}
}
func says(text string) func(heard) error {
	return func(h heard) error {
		var b strings.Builder
		for _, p := range payloads(h.body) {
			var chunk struct {
				Choices []struct {
					Delta struct{ Content string }
				}
			}
			_ = json.Unmarshal([]byte(p), &chunk)
			for _, c := range chunk.Choices {
				b.WriteString(c.Delta.Content)
			}
		}
		return want("said", b.String(), text)
	}
}

func TestCutHoldsAtEveryByte(t *testing.T) { // F20
	synctest.Test(t, func(t *testing.T) {
		b := Behaviour{Deltas: []string{"one ", "two ", "北京"}}
		w := newWorld(t, Options{Name: "x", Script: Script{On: map[string]Sequence{"m": {b}}}})
		_, whole, err := w.ask(t, "/v1/chat/completions", askStream)
		if err != nil {
			t.Fatal(err)
		}
		for n := range len(whole) {
			b.Cut = &Cut{After: n}
			if err := w.Set("m", b); err != nil {
				t.Fatal(err)
			}
			_, got, err := w.ask(t, "/v1/chat/completions", askStream)
			want := strings.ReplaceAll(whole, nonce("x", 1), nonce("x", n+2))[:n]
			if !errors.Is(err, io.ErrUnexpectedEOF) || got != want {
				t.Fatalf("cut at %d: got %q, %v", n, got, err)
			}
		}
	})
}

func TestFramingKeepsTheText(t *testing.T) {
	tests := []struct {
		name string
		sse  SSE
		has  string
	}{
		{"LF", SSE{LineEnd: "lf"}, "}\n\ndata: {"},
		{"CRLF (C011)", SSE{LineEnd: "crlf"}, "}\r\n\r\ndata: {"},
		{"CR (C011)", SSE{LineEnd: "cr"}, "}\r\rdata: {"},
		{"mixed (C011)", SSE{LineEnd: "mixed"}, "}\n\r\ndata: {"},
		{"BOM (F27)", SSE{BOM: true}, "\ufeffdata: {"},
		{"comments (F27)", SSE{Comments: true}, ": simulated comment\ndata: {"},
		{"comments and CRLF", SSE{Comments: true, LineEnd: "crlf"}, ": simulated comment\r\ndata: {"},
		{"several data lines (C025)", SSE{Multiline: true}, "data: {\ndata:  \""},
		{"several data lines and CR", SSE{Multiline: true, LineEnd: "cr"}, "data: {\rdata:  \""},
		{"no space", SSE{NoSpace: true}, "\ndata:{"},
		{"one blob (C026)", SSE{OneBlob: true}, "data: [DONE]\n\n"},
	}
	for _, tt := range tests {
		for _, slice := range []int{0, 1} { // C017: one byte per write
			t.Run(fmt.Sprintf("%s, slices of %d", tt.name, slice), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := Behaviour{Deltas: []string{"北京 ", "🌍"}, SSE: tt.sse, Slice: slice}
					w := newWorld(t, Options{Script: Script{On: map[string]Sequence{"m": {b}}}})
					_, stream, err := w.ask(t, "/v1/chat/completions", askStream)
					if err != nil {
						t.Fatal(err)
					}
					if got := said(t, stream); got != "北京 🌍" {
						t.Errorf("said %q", got)
					}
					if !strings.Contains(stream, tt.has) {
						t.Errorf("%q is not in %q", tt.has, stream)
					}
				})
			})
		}
	}
}

func TestGzip(t *testing.T) { // F33
	tests := []struct {
		mode, body string
		err        error
		size       int // at least
	}{
		{"ok", askWhole, nil, 100},
		{"ok", askStream, nil, 100},
		{"cut", askWhole, io.ErrUnexpectedEOF, 100},
		{"cut", askStream, io.ErrUnexpectedEOF, 50},
		{"bomb", askWhole, nil, bombSize},
	}
	for _, tt := range tests {
		t.Run(tt.mode+" "+tt.body[:20], func(t *testing.T) {
			s := New(Options{Script: Script{On: map[string]Sequence{"m": {{Gzip: tt.mode}}}}}).Start(t)
			h := rawAsk(t, s, "/v1/chat/completions", tt.body)
			if h.err != nil || h.header.Get("Content-Encoding") != "gzip" || len(h.body) > 1<<18 {
				t.Fatalf("answer of %d bytes, %v, %v", len(h.body), h.header, h.err)
			}
			z, err := gzip.NewReader(strings.NewReader(h.body))
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, z)
			if !errors.Is(err, tt.err) || int(n) < tt.size {
				t.Errorf("inflated to %d bytes, %v; want at least %d, %v", n, err, tt.size, tt.err)
			}
		})
	}
}

func TestPingsFillTheSilence(t *testing.T) { // C076
	synctest.Test(t, func(t *testing.T) {
		b := Behaviour{FirstDelay: 35 * time.Second, Ping: 10 * time.Second, Text: "late"}
		w := newWorld(t, Options{Script: Script{On: map[string]Sequence{"m": {b}}}})
		_, stream, err := w.ask(t, "/v1/chat/completions", askStream)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(stream, ": ping\n\n"); got != 3 || said(t, stream) != "late" {
			t.Errorf("%d pings in %q, want 3", got, stream)
		}
	})
}

func TestLoadingEnds(t *testing.T) { // F35
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{Script: Script{Server: LlamaCPP, Loading: time.Minute, On: map[string]Sequence{"slow": {{Loading: 2 * time.Minute}}}}})
		const want = `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`
		for _, path := range []string{"/health", "/v1/models", "/props", "/nowhere"} {
			if status, body := w.get(t, path); status != 503 || body != want {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
		time.Sleep(time.Minute)
		if status, _ := w.get(t, "/health"); status != 200 {
			t.Errorf("/health after a minute: %d, want 200", status)
		}
		slow := strings.Replace(askWhole, `"m"`, `"slow"`, 1)
		if status, body, _ := w.ask(t, "/v1/chat/completions", slow); status != 503 || body != want {
			t.Errorf("the slow model after a minute: %d %s", status, body)
		}
		time.Sleep(time.Minute)
		if status, _, _ := w.ask(t, "/v1/chat/completions", slow); status != 200 {
			t.Errorf("the slow model after two minutes: %d, want 200", status)
		}
	})
}

func TestTranscript(t *testing.T) {
	tests := []struct {
		name, text string
		check      func(heard) error
	}{
		{"C003", "HTTP/1.1 200 OK\ncontent-type: text/event-stream\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Hel\"},\"finish_reason\":null}]}\n\n<RST>",
			all(status(200), header("Content-Type", "text/event-stream"), says("Hel"), holds(`data: {"id":"chatcmpl-sim-000001","object":"chat.completion.chunk","created":`), endsBy(syscall.ECONNRESET))},
		{"C010", "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}<END OF BODY>", all(endsWith("}"), endsBy(nil))},
		{"C024", "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"one two\"},\"finish_reason\":null}]}\n\n<END OF BODY>", all(says("one two"), endsBy(nil))},
		{"C009", "data: {\"error\":{\"object\":\"error\",\"message\":\"not multimodal\",\"code\":400}}\n\ndata: [DONE]\n\n", all(starts(`data: {"error":{"object"`), holds("[DONE]"), endsBy(nil))},
		{"C018", "data: {\"usage\":{\"prompt_tokens\":3}}\n\n", all(holds(`"id":`), lacks("choices"))},
		{"C088", "HTTP/1.1 402 Payment Required\n\n{\"error\":{\"message\":\"Insufficient credits\",\"code\":402}}", all(status(402), starts(`{"error"`), header("Content-Type", "application/json"))},
		{"empty", "HTTP/1.1 200 OK\n\n", all(status(200), header("Content-Length", "0"))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := New(Options{Script: Script{On: map[string]Sequence{"m": {Transcript(tt.text)}}}}).Start(t)
			h := rawAsk(t, s, "/v1/chat/completions", askStream)
			if err := tt.check(h); err != nil {
				t.Errorf("%v\nheard %+v", err, h)
			}
		})
	}
}

func TestFillKeepsLineEnds(t *testing.T) {
	a := &Attempt{Nonce: "n", Arrived: time.Unix(7, 0)}
	got := string(fill([]byte("data: {\"choices\":[]}\r\n\r\ndata: {\"choices\":[]}\r\rdata: [DONE]\n\n"), a, &request{Model: "m"}))
	one := `data: {"id":"chatcmpl-n","object":"chat.completion.chunk","created":7,"model":"m","choices":[]}`
	if want := one + "\r\n\r\n" + one + "\r\rdata: [DONE]\n\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !bytes.Equal(fill(nil, a, &request{}), nil) {
		t.Error("nothing was filled")
	}
}
