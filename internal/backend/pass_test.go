package backend

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
	"weir/internal/sim"
)

// upload is a call with a form whose model's name stands behind n bytes of a file.
func upload(n int) (*Call, string) {
	head := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n" + strings.Repeat("RIFF", n/4) +
		"\r\n--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n"
	body := head + "theirs\r\n--b--\r\n"
	r := &llm.Request{ID: "req_1", Op: llm.Audio, Dialect: "openai", Path: "/v1/audio/transcriptions", Model: "theirs", Form: &llm.Form{
		From: strings.NewReader(body), Size: len(body), Type: "multipart/form-data; boundary=b", Model: llm.Span{From: len(head), To: len(head) + 6},
	}}
	return &Call{Request: r, Model: "whisper-1", Quoted: []byte(`"whisper-1"`), Limits: limits}, strings.Replace(body, "theirs", "whisper-1", 1)
}

// speech is a call with a JSON body whose answer is of any kind.
func speech(t *testing.T) *Call {
	c := call(t, llm.Audio, `{"model":"theirs","input":"hello","voice":"alloy"}`)
	c.Request.Path = "/v1/audio/speech"
	return c
}

// behind is a backend in front of a handler, over plain HTTP in memory or over TLS on loopback.
func behind(t *testing.T, secure bool, h http.HandlerFunc) *Backend {
	t.Helper()
	if secure {
		s := httptest.NewUnstartedServer(h)
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		t.Cleanup(s.Close)
		roots := x509.NewCertPool()
		roots.AddCert(s.Certificate())
		return dialled(t, sim.NewNet(), func(o *Options) { o.URL, o.Roots, o.Dial = s.URL+"/base/v1", roots, nil })
	}
	n := sim.NewNet()
	l, err := n.Listen("127.0.0.1:9001")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-done })
	return dialled(t, n, func(o *Options) { o.URL = "http://127.0.0.1:9001/base/v1" })
}

// heard is a request as the server got it.
type heard struct{ path, kind, accept, body string }

func hear(r *http.Request) heard {
	body, _ := io.ReadAll(r.Body)
	if r.ContentLength != int64(len(body)) {
		body = append(body, " (of another length than announced)"...)
	}
	return heard{r.URL.Path, r.Header.Get("Content-Type"), r.Header.Get("Accept"), string(body)}
}

// passedOn reads an answer that passes to its end.
func passedOn(ctx context.Context, b *Backend, c *Call) (out, kind string, length int64, usage llm.Usage, err error) {
	a, err := b.Call(ctx, c)
	if err != nil {
		return "", "", 0, llm.NoUsage, err
	}
	defer a.Close()
	piece, usage, err := a.Begin()
	kind, length = a.Type(), a.Length()
	for {
		out += string(piece)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if err != nil || a.Ended() {
			return out, kind, length, usage, err
		}
		piece, err = a.More()
	}
}

func TestBodiesOfRequestsThatPass(t *testing.T) {
	for _, secure := range []bool{false, true} {
		var got heard
		b := behind(t, secure, func(w http.ResponseWriter, r *http.Request) {
			got = hear(r)
			w.Header().Set("Content-Type", "audio/mpeg")
			_, _ = io.WriteString(w, "sound")
		})
		for _, n := range []int{4, 100 << 10, 3 << 20} {
			c, want := upload(n)
			out, _, _, _, err := passedOn(t.Context(), b, c)
			if err != nil || out != "sound" {
				t.Fatalf("TLS %v, %d bytes: %q, %v", secure, n, out, err)
			}
			if diff := cmp.Diff(heard{"/base/v1/audio/transcriptions", "multipart/form-data; boundary=b", "*/*", want}, got, cmp.AllowUnexported(heard{})); diff != "" {
				t.Errorf("TLS %v, %d bytes went up as (-want +got):\n%.2000s", secure, n, diff)
			}
		}
		if _, _, _, _, err := passedOn(t.Context(), b, speech(t)); err != nil {
			t.Fatal(err)
		}
		want := heard{"/base/v1/audio/speech", "application/json", "*/*", `{"model":"m","input":"hello","voice":"alloy"}`}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(heard{})); diff != "" {
			t.Errorf("TLS %v, speech went up as (-want +got):\n%s", secure, diff)
		}
	}
}

func TestAnswersThatPass(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 8<<10) // 128 KiB
	image := `{"created":1,"data":[{"b64_json":"` + strings.Repeat(long, 9) + `"}]}`
	for _, c := range []struct {
		name, kind, body     string
		status               int
		wantKind, fault, msg string
		length               int64
		in, out              int64
	}{
		{name: "sound", kind: "audio/mpeg", body: "sound", wantKind: "audio/mpeg", length: 5, in: -1, out: -1},
		{name: "long sound in chunks", kind: "audio/wav", body: long, wantKind: "audio/wav", length: -1, in: -1, out: -1},
		{name: "a transcription", kind: "application/json", body: `{"text":"hi","usage":{"type":"tokens","input_tokens":14,"output_tokens":3}}`, wantKind: "application/json", length: 75, in: 14, out: 3},
		{name: "a transcription by the second", kind: "application/json; charset=utf-8", body: `{"text":"hi","usage":{"type":"duration","seconds":9}}`, wantKind: "application/json; charset=utf-8", length: 53, in: -1, out: -1},
		{name: "text that calls itself JSON", kind: "application/json", body: "hi", wantKind: "application/json", length: 2, in: -1, out: -1},
		{name: "captions", kind: "text/vtt", body: "WEBVTT\n", wantKind: "text/vtt", length: 7, in: -1, out: -1},
		{name: "silence as text", kind: "text/plain; charset=utf-8", body: "", wantKind: "text/plain; charset=utf-8", length: 0, in: -1, out: -1},
		{name: "events", kind: "text/event-stream", body: "data: {}\n\n", wantKind: "text/event-stream", length: 10, in: -1, out: -1},
		{name: "an image of more than is looked at", kind: "application/json", body: image, wantKind: "application/json", length: -1, in: -1, out: -1},
		{name: "a kind that is none", kind: "nonsense; =", body: "x", wantKind: "application/octet-stream", length: 1, in: -1, out: -1},
		{name: "a page", kind: "text/html", body: "<html>", fault: "refused", msg: "text/html"},
		{name: "no body", kind: "audio/mpeg", body: "", fault: "refused", msg: "empty body"},
		{name: "no JSON", kind: "application/json", body: "", fault: "refused", msg: "empty body"},
		{name: "half of a JSON body", kind: "application/json", body: `{"text":"h`, fault: "refused", msg: "not valid JSON"},
		{name: "an error with status 200", kind: "application/json", body: `{"error":{"message":"boom","type":"server_error"}}`, fault: "refused", msg: "boom"},
		{name: "a file that a server could not read", kind: "application/json", body: `{"error":"failed to read WAV file"}`, fault: "invalid", msg: "WAV"},
		{name: "a file that a server failed over", status: 500, kind: "application/json", body: `{"error":{"message":"Could not decode audio: Invalid data found","type":"server_error"}}`, fault: "invalid", msg: "decode audio"},
		{name: "a server that failed", status: 500, kind: "application/json", body: `{"error":"failed to process audio"}`, fault: "refused", msg: "process audio"},
		{name: "an error with its status", status: 429, kind: "application/json", body: `{"error":{"message":"slow down","type":"rate_limit_error"}}`, fault: "busy", msg: "slow down"},
		{name: "a file that is none", status: 400, kind: "application/json", body: `{"error":{"message":"Invalid file format.","type":"invalid_request_error","param":"file"}}`, fault: "invalid", msg: "Invalid file format."},
		{name: "no such path", status: 404, kind: "application/json", body: `{"detail":"Not Found"}`, fault: "gone", msg: "Not Found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := behind(t, false, func(w http.ResponseWriter, r *http.Request) {
				hear(r)
				w.Header().Set("Content-Type", c.kind)
				if c.status != 0 {
					w.WriteHeader(c.status)
				}
				_, _ = io.WriteString(w, c.body)
			})
			up, _ := upload(100)
			out, kind, length, usage, err := passedOn(t.Context(), b, up)
			if c.fault != "" {
				if e := llm.AsError(err); e.Kind.String() != c.fault || !strings.Contains(e.Msg, c.msg) {
					t.Errorf("got %v, want %s … %s", err, c.fault, c.msg)
				}
				return
			}
			if err != nil || out != c.body || kind != c.wantKind || length != c.length {
				t.Errorf("%d bytes of %s, length %d, %v; want %d of %s, length %d", len(out), kind, length, err, len(c.body), c.wantKind, c.length)
			}
			if usage.In != c.in || usage.Out != c.out {
				t.Errorf("usage %+v", usage)
			}
		})
	}
}

// C005: what came packed is passed on unpacked, without the length of the packed form.
func TestPackedAnswersThatPass(t *testing.T) {
	b := behind(t, false, func(w http.ResponseWriter, r *http.Request) {
		hear(r)
		w.Header().Set("Content-Type", "audio/mpeg")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed(t, strings.Repeat("sound", 100_000)))
	})
	out, _, length, _, err := passedOn(t.Context(), b, speech(t))
	if err != nil || out != strings.Repeat("sound", 100_000) || length != -1 {
		t.Errorf("%d bytes, length %d, %v", len(out), length, err)
	}
}

// The limits of an answer that passes: its first byte within answer, then silence, then the whole.
func TestLimitsOfAnswersThatPass(t *testing.T) {
	for _, c := range []struct {
		name string
		does func(w http.ResponseWriter, gone <-chan struct{})
		kind string
		out  string
		took time.Duration
	}{
		{"no head", func(_ http.ResponseWriter, gone <-chan struct{}) { <-gone }, "slow", "", 10 * time.Second},
		{"a head alone", func(w http.ResponseWriter, gone <-chan struct{}) { flush(w, ""); <-gone }, "slow", "", 10 * time.Second},
		{"silence", func(w http.ResponseWriter, gone <-chan struct{}) { flush(w, "a"); <-gone }, "stalled", "a", 3 * time.Second},
		{"for ever", func(w http.ResponseWriter, gone <-chan struct{}) {
			for {
				select {
				case <-gone:
					return
				case <-time.After(2 * time.Second):
					flush(w, "a")
				}
			}
		}, "stalled", "aaaaaaaaaa", 21 * time.Second},
		{"slow, but within all", func(w http.ResponseWriter, _ <-chan struct{}) {
			time.Sleep(9 * time.Second)
			flush(w, "a")
			time.Sleep(2 * time.Second)
			flush(w, "b")
		}, "", "ab", 11 * time.Second},
		{"cut", func(w http.ResponseWriter, _ <-chan struct{}) { flush(w, "a"); panic(http.ErrAbortHandler) }, "stalled", "a", 0},
		{"cut at once", func(w http.ResponseWriter, _ <-chan struct{}) { flush(w, ""); panic(http.ErrAbortHandler) }, "refused", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := behind(t, false, func(w http.ResponseWriter, r *http.Request) {
					hear(r)
					w.Header().Set("Content-Type", "audio/mpeg")
					c.does(w, r.Context().Done())
				})
				up := speech(t)
				up.Limits = Limits{FirstContent: time.Hour, Answer: 10 * time.Second, Idle: 3 * time.Second, Total: 21 * time.Second}
				begun := time.Now()
				out, _, _, _, err := passedOn(t.Context(), b, up)
				if llm.KindOf(err).String() != c.kind || out != c.out || time.Since(begun).Round(time.Second) != c.took {
					t.Errorf("got %q, %v after %v; want %q, %s after %v", out, err, time.Since(begun), c.out, c.kind, c.took)
				}
			})
		})
	}
}

func flush(w http.ResponseWriter, s string) {
	_, _ = io.WriteString(w, s)
	_ = http.NewResponseController(w).Flush()
}

// A body that cannot be read back ends the call at once, and is nobody else's fault.
func TestBodiesThatCannotBeReadBack(t *testing.T) {
	for _, secure := range []bool{false, true} {
		b := behind(t, secure, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
		c, _ := upload(100 << 10)
		c.Request.Form.From = &torn{c.Request.Form.From}
		begun := time.Now()
		_, _, _, _, err := passedOn(t.Context(), b, c)
		if e := llm.AsError(err); e.Kind != llm.Internal || e.Msg != "torn" || time.Since(begun) > 10*time.Second {
			t.Errorf("TLS %v: %v after %v", secure, err, time.Since(begun))
		}
	}
}

type torn struct{ io.ReaderAt }

func (r *torn) ReadAt(p []byte, off int64) (int, error) {
	if off > 50<<10 {
		return 0, &llm.Error{Kind: llm.Internal, Msg: "torn"}
	}
	return r.ReaderAt.ReadAt(p, off)
}

// Only a backend of the client's own dialect takes what passes.
func TestWhoServesWhatPasses(t *testing.T) {
	b := dialled(t, sim.NewNet(), nil)
	c, _ := upload(4)
	if !b.Serves(c.Request) {
		t.Error("a backend of openai does not serve audio")
	}
	c.Request.Dialect = "anthropic"
	if b.Serves(c.Request) {
		t.Error("a backend of another dialect serves audio")
	}
	c.Request.Dialect = "openai"
	o := dialled(t, sim.NewNet(), func(o *Options) { o.Dialect, o.Also = CountOnly(o.Dialect), []Dialect{CountOnly(o.Dialect)} })
	if o.Serves(c.Request) {
		t.Error("a counter of tokens serves audio")
	}
	_, err := o.Call(t.Context(), c)
	if e := llm.AsError(err); e.Kind != llm.Invalid || e.Code != "unsupported_endpoint" || !strings.Contains(e.Msg, "audio") {
		t.Errorf("got %v", err)
	}
}

// packed returns s as gzip.
func packed(t *testing.T, s string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, s); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
