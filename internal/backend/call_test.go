package backend

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
	"weir/internal/sim"
)

func TestAnswersThatFail(t *testing.T) {
	huge := strings.Repeat("x", 300<<10)
	chunk := `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}` + "\n\n"
	for _, c := range []struct {
		name string
		does sim.Behaviour
		body string // askStream when empty
		kind string
		sent bool
		msg  string
	}{
		{"F11 a proxy's page", sim.Behaviour{HTML: true}, "", "refused", true, "text/html in place of JSON"},
		{"F11 a proxy's page for one who gets it whole", sim.Behaviour{HTML: true}, askWhole, "refused", true, "text/html"},
		{"F12 no body", sim.Behaviour{NoBody: true}, "", "refused", true, ""},
		{"F12 no body in place of a whole answer", sim.Behaviour{NoBody: true}, askWhole, "refused", true, ""},
		{"F13 a redirect", sim.Behaviour{Redirect: "http://127.0.0.1:9002/elsewhere"}, "", "refused", false, "status 307"},
		{"F33 truncated gzip", sim.Behaviour{Gzip: "cut", Chunks: 2000}, askWhole, "refused", true, "broke off"},
		{"F33 a gzip bomb", sim.Behaviour{Gzip: "bomb"}, "", "refused", true, "larger than Weir takes"},
		{"an encoding that was not asked for", sim.Behaviour{Headers: map[string]string{"Content-Encoding": "br"}}, "", "refused", true, "encoding that was not asked for: br"},
		{"an encoding of an error that was not asked for", sim.Behaviour{Status: 429, Headers: map[string]string{"Content-Encoding": "br"}}, "", "busy", false, "status 429"},
		{"not gzip at all", sim.Behaviour{Headers: map[string]string{"Content-Encoding": "gzip"}}, "", "refused", true, ""},
		{"a flood of early hints", sim.Behaviour{EarlyHints: 10_000}, "", "refused", true, "not HTTP"},
		{"a huge header", sim.Behaviour{HeaderBytes: 1 << 20}, "", "refused", true, "not HTTP"},
		{"no HTTP", sim.Behaviour{Raw: "SSH-2.0-OpenSSH_9.2\r\n\r\n"}, "", "refused", true, "not HTTP"},
		{"a status that is none", sim.Behaviour{Raw: "HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n"}, "", "refused", true, "status 999"},
		{"closed without an answer", sim.Behaviour{Drop: "fin"}, "", "refused", true, "closed the connection without an answer"},
		{"reset without an answer", sim.Behaviour{Drop: "rst"}, "", "refused", true, "closed the connection without an answer"},
		{"half a head", sim.Behaviour{Raw: "HTTP/1.1 200 OK\r\nContent-Ty"}, "", "refused", true, ""},
		{"C003 a reset in the middle", sim.Behaviour{Fill: true, Body: sim.Bytes(chunk), Cut: &sim.Cut{After: 1 << 50, How: "rst"}}, "", "stalled", true, "the connection to the model's server was lost"},
		{"a cut in the middle", sim.Behaviour{Deltas: []string{"a", "b"}, Cut: &sim.Cut{After: 1, Of: "chunks"}}, "", "stalled", true, "the connection to the model's server was lost"},
		{"a cut before content", sim.Behaviour{Deltas: []string{"a", "b"}, Cut: &sim.Cut{After: 0, Of: "chunks"}}, "", "refused", true, ""},
		{"C024 a proper end in the middle", sim.Behaviour{Deltas: []string{"a", "b"}, Cut: &sim.Cut{After: 1, Of: "chunks", How: "end"}}, "", "stalled", true, "without a finish_reason"},
		{"C009 an error as the first event", sim.Behaviour{StreamError: &sim.StreamError{Error: json.RawMessage(`{"message":"The model is not multimodal.","type":"BadRequestError","code":400}`), Done: true}}, "", "invalid", true, "The model is not multimodal."},
		{"an overload inside a 200", sim.Behaviour{StreamError: &sim.StreamError{After: 1}}, "", "busy", true, "overloaded"},
		{"an error body with status 200", sim.Behaviour{Body: `{"error":{"message":"boom","type":"server_error"}}`}, askWhole, "refused", true, "boom"},
		{"a JSON body that is no answer", sim.Behaviour{Body: `{"ok":true}`}, askWhole, "refused", true, "without any choice"},
		{"a body that is no JSON", sim.Behaviour{Body: `{"choices":[`}, askWhole, "refused", true, "not valid JSON"},
		{"an answer in one piece although a stream was asked for", sim.Behaviour{Body: `{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}`}, "", "refused", true, "in one piece"},
		{"an event without an end", sim.Behaviour{LineBytes: 10 << 20}, "", "stalled", true, "larger than Weir takes"},
		{"an event that is not JSON", sim.Behaviour{Deltas: []string{"a", "b"}, Insert: []sim.Insert{{After: 1, Raw: "data: {\"cho\n\n"}}}, "", "stalled", true, "not valid JSON"},
		{"an error with a long body", sim.Behaviour{Status: 500, Body: sim.Bytes(huge)}, "", "refused", true, "status 500"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, on(c.does), nil)
				other, err := w.net.Listen("127.0.0.1:9002")
				if err != nil {
					t.Fatal(err)
				}
				elsewhere := sim.New(sim.Options{}).StartOn(t, other)
				if c.body == "" {
					c.body = askStream
				}
				got := run(t.Context(), w.b, call(t, llm.Chat, c.body))
				if got.kind() != c.kind {
					t.Fatalf("got %q (%v), want %q", got.kind(), got.err, c.kind)
				}
				if got.err.Sent != c.sent || !strings.Contains(got.err.Msg, c.msg) {
					t.Errorf("got sent %v, %q; want %v, … %s …", got.err.Sent, got.err.Msg, c.sent, c.msg)
				}
				if strings.Contains(got.err.Msg, "127.0.0.1") {
					t.Errorf("the message shows an address: %s", got.err.Msg)
				}
				if n := len(w.Calls("m")); n != 1 {
					t.Errorf("the upstream saw %d calls", n)
				}
				if n := len(elsewhere.Attempts()); n != 0 {
					t.Errorf("the redirect was followed %d times", n)
				}
			})
		})
	}
}

func TestAnswersThatSucceed(t *testing.T) {
	for _, c := range []struct {
		name, body string
		does       sim.Behaviour
	}{
		{"a stream", askStream, sim.Behaviour{}},
		{"a stream for one who gets it whole", askWhole, sim.Behaviour{}},
		{"F33 gzip although none was asked for", askStream, sim.Behaviour{Gzip: "ok"}},
		{"C005 gzip of a whole answer", askWhole, sim.Behaviour{Gzip: "ok"}},
		{"byte by byte", askStream, sim.Behaviour{Slice: 1}},
		{"CR and LF mixed, comments, a mark", askStream, sim.Behaviour{SSE: sim.SSE{LineEnd: "mixed", Comments: true, BOM: true}}},
		{"C010 an open end", askStream, sim.Behaviour{SSE: sim.SSE{OpenEnd: true, NoDone: true}}},
		{"C027 no end mark", askWhole, sim.Behaviour{SSE: sim.SSE{NoDone: true}}},
		{"F26 more after the end", askStream, sim.Behaviour{SSE: sim.SSE{Twice: true, AfterDone: true}}},
		{"a few early hints", askStream, sim.Behaviour{EarlyHints: 2}},
		{"empty", askStream, sim.Behaviour{Empty: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, on(c.does), nil)
				got := run(t.Context(), w.b, call(t, llm.Chat, c.body))
				if got.err != nil || got.status != 200 {
					t.Fatalf("got %d, %v", got.status, got.err)
				}
				if done := strings.Count(got.out, "[DONE]"); c.body == askStream && (done != 1 || !strings.HasSuffix(got.out, "data: [DONE]\n\n")) || c.body == askWhole && !json.Valid([]byte(got.out)) {
					t.Errorf("got %q", got.out)
				}
			})
		})
	}
}

func TestNoConnection(t *testing.T) {
	dialErr := func(err error) func(*Options) {
		return func(o *Options) {
			o.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, err }
		}
	}
	for _, c := range []struct {
		name, msg, code string
		took            time.Duration
		set             func(*Options)
		hole            bool
	}{
		{name: "nobody listens", msg: "refuses connections: nothing listens"},
		{name: "a black hole", hole: true, msg: "did not accept a connection within 2s", took: 2 * time.Second},
		{name: "no such name", set: dialErr(&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "gpu-7.lan", IsNotFound: true}}), msg: "has no address under its name"},
		{name: "no route", set: dialErr(errors.New("dial tcp 10.1.2.3:80: no route to host")), msg: "no connection to the model's server could be made"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := sim.NewNet()
				if c.hole {
					n.BlackHole("127.0.0.1:9001")
				}
				b := dialled(t, n, c.set)
				got := run(t.Context(), b, call(t, llm.Chat, askStream))
				if got.kind() != "refused" || got.err.Sent || got.took != c.took || !strings.Contains(got.err.Msg, c.msg) || got.err.ErrorCode() != "upstream_refused" {
					t.Errorf("got %+v after %v, want … %s … after %v", got.err, got.took, c.msg, c.took)
				}
				if strings.Contains(got.err.Msg, "10.1.2.3") || strings.Contains(got.err.Msg, "gpu-7") || got.err.Err == nil {
					t.Errorf("the message shows an address, or the cause is lost: %+v", got.err)
				}
			})
		})
	}
}

func TestTLS(t *testing.T) {
	quiet := func(h http.Handler) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		s.Config.ErrorLog = discard()
		return s
	}
	up := sim.New(sim.Options{Script: on(sim.Behaviour{Text: "hi"})})
	good := quiet(up)
	good.StartTLS()
	defer good.Close()
	old := quiet(up)
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	old.StartTLS()
	defer old.Close()
	clear := quiet(up)
	clear.Start()
	defer clear.Close()
	defer up.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	roots := good.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	for _, c := range []struct {
		name, url, msg, code string
		roots                bool
	}{
		{"a certificate of a known authority", good.URL, "", "", true},
		{"F04 a certificate of nobody known", good.URL, "the certificate of the model's server is not trusted", "upstream_tls", false},
		{"a version below 1.2", old.URL, "agree on no kind of TLS", "upstream_tls", true},
		{"clear text where TLS is wanted", "https" + strings.TrimPrefix(clear.URL, "http"), "does not speak TLS where its url says https", "upstream_tls", true},
		{"F05 a handshake that hangs", "https://" + silent.Addr().String(), "did not accept a connection within", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := dialled(t, sim.NewNet(), func(o *Options) {
				o.URL, o.Dial, o.Connect = c.url, nil, 2*time.Second
				if strings.HasPrefix(c.name, "F05") {
					o.Connect = 50 * time.Millisecond
				}
				if c.roots {
					o.Roots = roots
				}
			})
			got := run(t.Context(), b, call(t, llm.Chat, askStream))
			if c.msg == "" {
				if got.err != nil || !strings.Contains(got.out, "hi") {
					t.Errorf("got %q, %v", got.out, got.err)
				}
				return
			}
			if got.kind() != "refused" || got.err.Sent || !strings.Contains(got.err.Msg, c.msg) || c.code != "" && got.err.Code != c.code {
				t.Errorf("got %+v (%v), want … %s …", got.err, got.err, c.msg)
			}
		})
	}
}

func TestStaleConnection(t *testing.T) { // F18
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, on(sim.Behaviour{Text: "hi", Stale: true}), nil)
		for i, want := range []string{"", "stale", "", "stale"} {
			got := run(t.Context(), w.b, call(t, llm.Chat, askStream))
			if got.kind() != want || want != "" && (!got.err.Sent || got.err.Kind.Blames() || !got.err.Kind.Retries()) {
				t.Errorf("call %d: got %q (%v), want %q", i, got.kind(), got.err, want)
			}
		}
		if n := len(w.Calls("m")); n != 4 {
			t.Errorf("the upstream saw %d calls, want 4: none is sent again", n)
		}
	})
}

func TestConnectionsAreReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, on(sim.Behaviour{Text: "hi"}), nil)
		for _, body := range []string{askStream, askWhole, askStream} {
			if got := run(t.Context(), w.b, call(t, llm.Chat, body)); got.err != nil {
				t.Fatal(got.err)
			}
		}
		time.Sleep(5 * time.Second) // beyond the idle time
		run(t.Context(), w.b, call(t, llm.Chat, askStream))
		var conns []int64
		for _, a := range w.Calls("m") {
			conns = append(conns, a.Conn)
		}
		if want := []int64{1, 1, 1, 2}; !slices.Equal(conns, want) {
			t.Errorf("calls came on connections %v, want %v", conns, want)
		}
	})
}

func TestRequestHeadersAreAnAllowList(t *testing.T) { // S20
	for _, c := range []struct {
		name string
		set  func(*Options)
		call func(*Call)
		want map[string]string // beside those of every call
	}{
		{"nothing but what must be", nil, nil, map[string]string{"X-Weir-Hop": "here"}},
		{"a bearer key", func(o *Options) { o.Key = func() (string, error) { return "sk-1", nil } }, nil, map[string]string{"X-Weir-Hop": "here", "Authorization": "Bearer sk-1"}},
		{"a key under its own name", func(o *Options) { o.Key, o.Header = func() (string, error) { return "k", nil }, "Api-Key" }, nil, map[string]string{"X-Weir-Hop": "here", "Api-Key": "k"}},
		{"id, trace and the Weirs before", nil, func(c *Call) { c.Request.ID, c.Request.Hops, c.Trace = "req_1", "a, b", "00-1-2-01" },
			map[string]string{"X-Weir-Hop": "a, b, here", "X-Request-Id": "req_1", "Traceparent": "00-1-2-01"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, on(sim.Behaviour{}), c.set)
				r := call(t, llm.Chat, askStream)
				if c.call != nil {
					c.call(r)
				}
				if got := run(t.Context(), w.b, r); got.err != nil {
					t.Fatal(got.err)
				}
				a := w.Calls("m")[0]
				got := map[string]string{}
				for k, v := range a.Header {
					got[k] = strings.Join(v, "|")
				}
				want := maps.Clone(c.want)
				want["Host"] = "127.0.0.1:9001"
				want["Content-Type"], want["Accept"], want["User-Agent"] = "application/json", "text/event-stream", "weir/test"
				delete(got, "Content-Length")
				if d := cmp.Diff(want, got); d != "" {
					t.Error(d)
				}
				if a.Path != "/v1/chat/completions" || a.Method != "POST" {
					t.Errorf("got %s %s", a.Method, a.Path)
				}
			})
		})
	}
}

func TestRequestForTransportCannotBeSentTwice(t *testing.T) {
	b := dialled(t, sim.NewNet(), func(o *Options) { o.URL = "https://h.example" })
	r := b.request(t.Context(), &outgoing{to: &b.spoken[0], op: llm.Chat, body: &sentBody{bytes: []byte("{}")}})
	if r.GetBody != nil || r.Header.Get("Idempotency-Key") != "" || r.ContentLength != 2 {
		t.Errorf("GetBody %v, headers %v, length %d", r.GetBody != nil, r.Header, r.ContentLength)
	}
	for name := range r.Header {
		if !slices.Contains([]string{"Accept", "Content-Type", "User-Agent", "X-Weir-Hop"}, name) {
			t.Errorf("%s goes up", name)
		}
	}
}

func TestKeyThatCannotBeSent(t *testing.T) {
	for name, key := range map[string]func() (string, error){
		"cannot be read":  func() (string, error) { return "", errors.New("open key.txt: no such file") },
		"holds new lines": func() (string, error) { return "k\r\nX-Evil: 1", nil },
	} {
		b := dialled(t, sim.NewNet(), func(o *Options) { o.Key = key })
		got := run(t.Context(), b, call(t, llm.Chat, askStream))
		if got.kind() != "denied" || got.err.Sent || strings.Contains(got.err.Msg, "key.txt") || strings.Contains(got.err.Error(), "Evil") {
			t.Errorf("%s: got %v", name, got.err)
		}
	}
}

func TestPathsOfABaseURL(t *testing.T) {
	for base, want := range map[string]string{
		"http://h":                   "http://h/v1/embeddings",
		"http://h/":                  "http://h/v1/embeddings",
		"http://h/v1":                "http://h/v1/embeddings",
		"https://h/v1/":              "https://h/v1/embeddings",
		"https://h/api/v1":           "https://h/api/v1/embeddings",
		"https://h/openai?version=2": "https://h/openai/v1/embeddings?version=2",
	} {
		b := dialled(t, sim.NewNet(), func(o *Options) { o.URL = base })
		if got := b.spoken[0].urls[llm.Embeddings].String(); got != want {
			t.Errorf("%s: got %s, want %s", base, got, want)
		}
	}
	for _, bad := range []string{"", "h", "http://", "://", "http://h:port"} {
		if _, err := New(Options{Name: "b", URL: bad, Dialect: nil}); err == nil || !strings.Contains(err.Error(), "backend b") {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

func TestStreams(t *testing.T) {
	whole := `{"model":"m","n":2,"messages":[{}]}`
	for _, c := range []struct {
		stream, body string
		op           llm.Op
		want         bool
	}{
		{"always", askStream, llm.Chat, true}, {"always", askWhole, llm.Chat, true}, {"always", whole, llm.Chat, true},
		{"auto", askStream, llm.Chat, true}, {"auto", askWhole, llm.Chat, true}, {"auto", whole, llm.Chat, false},
		{"as_asked", askStream, llm.Chat, true}, {"as_asked", askWhole, llm.Chat, false},
		{"always", askVector, llm.Embeddings, false}, {"auto", `{"model":"m","query":"a","documents":["b"]}`, llm.Rerank, false},
		{"auto", `{"model":"m","prompt":"a","best_of":2}`, llm.Completions, false}, {"auto", `{"model":"m","prompt":"a","echo":true}`, llm.Completions, false},
	} {
		b := dialled(t, sim.NewNet(), func(o *Options) { o.Stream = c.stream })
		if got := b.Streams(call(t, c.op, c.body).Request, "m"); got != c.want {
			t.Errorf("%s of %s: got %v, want %v", c.stream, c.body, got, c.want)
		}
	}
}

func TestRefusalToStreamIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, on(sim.Behaviour{Refuse: []string{"stream"}, HeaderDelay: time.Second}), func(o *Options) { o.Stream = "auto" })
		var all sync.WaitGroup
		for range 3 { // all were sent before the first refusal came
			all.Go(func() {
				if got := run(t.Context(), w.b, call(t, llm.Chat, askWhole)); got.err != nil {
					t.Errorf("got %v", got.err)
				}
			})
		}
		all.Wait()
		w.Reset()
		if got := run(t.Context(), w.b, call(t, llm.Chat, askWhole)); got.err != nil || len(w.Calls("m")) != 1 || w.Calls("m")[0].Stream {
			t.Errorf("got %v in %d calls", got.err, len(w.Calls("m")))
		}
		if got := run(t.Context(), w.b, call(t, llm.Chat, askStream)); got.kind() != "invalid" {
			t.Errorf("a client who wants a stream got %v", got.err)
		}
	})
}

func TestRefusalOfBase64IsRemembered(t *testing.T) { // C154
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, on(sim.Behaviour{Refuse: []string{"base64"}, HeaderDelay: time.Second}), nil)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				got := run(t.Context(), w.b, call(t, llm.Embeddings, askVector))
				if got.err != nil || !strings.Contains(got.out, `"embedding":"`) {
					t.Errorf("got %.100s, %v", got.out, got.err)
				}
			})
		}
		all.Wait()
		w.Reset()
		if got := run(t.Context(), w.b, call(t, llm.Embeddings, askVector)); got.err != nil || len(w.Calls("m")) != 1 {
			t.Errorf("got %v in %d calls", got.err, len(w.Calls("m")))
		}
	})
}

// TestBodyIsRecycledOnlyWhenItIsWritten is for upstreams that answer before they have read the whole request.
func TestBodyIsRecycledOnlyWhenItIsWritten(t *testing.T) {
	const answer = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" +
		"data: {\"id\":\"a\",\"object\":\"x\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
	big := `{"model":"m","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("x", 1<<20) + `"}]}`
	synctest.Test(t, func(t *testing.T) {
		n := sim.NewNet()
		got := make(chan string, 1)
		server(t, n, func(c net.Conn) {
			r := make([]byte, 1<<10)
			_, _ = c.Read(r)
			_, _ = io.WriteString(c, answer)
			time.Sleep(time.Minute)
			rest, _ := io.ReadAll(c)
			got <- string(r) + string(rest)
		})
		b := dialled(t, n, nil)
		c := call(t, llm.Chat, big)
		c.Limits = Limits{}
		body := c.Request.Body
		c.Request.Recycles(func(p []byte) { clear(p) }) // whoever reads it after this sees it
		done := make(chan result)
		go func() { done <- run(t.Context(), b, c); c.Request.Release() }()
		r := <-done
		if r.err != nil {
			t.Fatal(r.err)
		}
		sent := <-got
		if strings.Contains(sent, "\x00\x00") || !strings.Contains(sent, strings.Repeat("x", 1000)) {
			t.Errorf("the upstream read memory that was given back (%d of %d bytes)", len(sent), len(body))
		}
	})
	freed := 0
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, on(sim.Behaviour{Text: "hi"}), nil)
		c := call(t, llm.Chat, askStream)
		c.Request.Recycles(func([]byte) { freed++ })
		if got := run(t.Context(), w.b, c); got.err != nil {
			t.Fatal(got.err)
		}
		c.Request.Release()
	})
	if freed != 1 {
		t.Errorf("the body of a plain call was given back %d times, want once", freed)
	}
}

func TestFreeMayComeAtFirstContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, on(sim.Behaviour{Deltas: []string{"a", "b"}, Gap: time.Second}), nil)
		c := call(t, llm.Chat, `{"model":"other",`+askStream[len(`{"model":"m",`):]) // a changed copy goes up
		a, err := w.b.Call(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		for {
			p, err := a.Next()
			out.Write(p)
			if a.Seen().Content {
				a.Free()
			}
			if err != nil {
				break
			}
		}
		p, err := a.Finish()
		out.Write(p)
		a.Close()
		if err != nil || !strings.HasSuffix(out.String(), "[DONE]\n\n") || c.Request.Body != nil {
			t.Errorf("got %q, %v", out.String(), err)
		}
		if sent := w.Calls("m"); len(sent) != 1 || !json.Valid(sent[0].Body) {
			t.Errorf("the upstream got %d calls", len(sent))
		}
	})
}

func TestLargestWholeAnswer(t *testing.T) {
	for _, c := range []struct {
		name   string
		length bool
		size   int
		ok     bool
	}{
		{"the largest, its length said", true, maxAnswer, true},
		{"the largest, its length not said", false, maxAnswer, true},
		{"one more, said", true, maxAnswer + 1, false},
		{"one more, not said", false, maxAnswer + 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			length := int64(-1)
			if c.length {
				length = int64(c.size)
			}
			got, err := readAll(io.LimitReader(zeros{}, int64(c.size)), length)
			if (err == nil) != c.ok || c.ok && len(got) != c.size || !c.ok && !errors.Is(err, errTooLarge) {
				t.Errorf("got %d bytes, %v", len(got), err)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestGunzipOpensAtTheFirstRead(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte("text"))
	_ = z.Close()
	for cut := range packed.Len() {
		if got, err := io.ReadAll(&gunzip{from: bytes.NewReader(packed.Bytes()[:cut])}); cut > 0 && err == nil {
			t.Errorf("cut at %d: %q passes for whole", cut, got)
		}
	}
	if got, err := io.ReadAll(&gunzip{from: &packed}); err != nil || string(got) != "text" {
		t.Errorf("got %q, %v", got, err)
	}
}
