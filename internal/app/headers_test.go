package app

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/sim"
)

// S18: a compressed body is refused before anything of it is unpacked.
func TestS18Bombs(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	zeros := make([]byte, 1<<20)
	for range 16 {
		_, _ = z.Write(zeros)
	}
	z.Close()
	g := begin(t, setup{sims: oai(sim.Behaviour{})})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, enc := range []string{"gzip", "GZIP", "x-gzip", "deflate", "br", "zstd", "gzip, gzip", "identity, gzip", "compress", "unknown"} {
		r := g.do(t.Context(), "POST", "/v1/chat/completions", bytes.NewReader(bomb.Bytes()), "Content-Encoding", enc)
		if r.failed(); r.status != 415 {
			t.Errorf("%s: %d %s", enc, r.status, r.body)
		}
	}
	x := g.wire(g.url, fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Encoding: identity\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		g.key, bomb.Len(), bomb.String()), 5*time.Second)
	if len(x.statuses) != 1 || x.statuses[0] != 400 && x.statuses[0] != 415 {
		t.Errorf("two encodings: %v", x.statuses)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 8<<20 {
		t.Errorf("%d MiB were allocated for compressed bodies", grown>>20)
	}
	if n := len(g.sim().Calls("")); n != 0 {
		t.Errorf("%d calls upstream", n)
	}
}

// S19: a request line or headers beyond 64 KiB are refused; a hundred thousand parameters below it change nothing and cost
// nothing, since Weir never parses them.
func TestS19ManyHeadersAndParameters(t *testing.T) {
	g := begin(t, setup{real: true, sims: oai(sim.Behaviour{})})
	ask := func(target, headers string) exchanged {
		return g.wire(g.url, "GET "+target+" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+g.key+"\r\n"+headers+"Connection: close\r\n\r\n", 5*time.Second)
	}
	for name, c := range map[string]struct {
		target, headers string
		want            []int
	}{
		"10^5 parameters":            {"/v1/models?" + strings.Repeat("a&", 100_000), "", []int{431}},
		"10^5 cookies":               {"/v1/models", "Cookie: " + strings.Repeat("a=b; ", 100_000) + "\r\n", []int{431}},
		"10^5 headers":               {"/v1/models", strings.Repeat("A: b\r\n", 100_000), []int{431}},
		"a path of 200 KB":           {"/v1/" + strings.Repeat("a", 200_000), "", []int{431, 414}},
		"a header name of 200 KB":    {"/v1/models", strings.Repeat("a", 200_000) + ": b\r\n", []int{431}},
		"30,000 parameters":          {"/v1/models?" + strings.Repeat("a&", 30_000), "", []int{200}},
		"30,000 parameters, escaped": {"/v1/models?" + strings.Repeat("%zz&", 15_000), "", []int{200, 400}},
		"10,000 cookies":             {"/v1/models", "Cookie: " + strings.Repeat("a=b; ", 10_000) + "\r\n", []int{200}},
		"10,000 headers":             {"/v1/models", strings.Repeat("A: b\r\n", 10_000), []int{200, 431}},
		"a header over 60 KB":        {"/v1/models", "X-A: " + strings.Repeat("b", 60_000) + "\r\n", []int{200}},
	} {
		start := time.Now()
		x := ask(c.target, c.headers)
		if len(x.statuses) != 1 || !slices.Contains(c.want, x.statuses[0]) {
			t.Errorf("%s: %v, want one of %v", name, x.statuses, c.want)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
	}
}

// S20: hop-by-hop headers, those that Connection names too, end here in both directions; what goes up is on a list.
func TestS20HopByHopHeaders(t *testing.T) {
	hops := map[string]string{
		"Connection": "close, X-Api-Key, X-Custom, Authorization, Content-Type", "Keep-Alive": "timeout=5", "Proxy-Connection": "keep-alive", "Proxy-Authorization": "Basic eA==", "Proxy-Authenticate": "Basic",
		"Te": "trailers, gzip", "Trailer": "X-Late", "Upgrade": "h2c", "X-Custom": "1", "Via": "1.1 evil", "Forwarded": "for=1.2.3.4", "X-Forwarded-Proto": "https", "X-Real-Ip": "1.2.3.4", "X-Weir-Tier": "cloud",
		"X-Weir-Request": "req_mine", "Cookie": "a=b", "Set-Cookie": "a=b", "Http2-Settings": "AAMAAABkAAQAAP__", "Accept-Encoding": "gzip", "Range": "bytes=0-1", "If-None-Match": "x", "X-Secret-Backend": "10.0.0.1",
		"Strict-Transport-Security": "max-age=1", "Access-Control-Allow-Origin": "*", "Content-Security-Policy": "x", "Location": "http://evil.test", "Content-Encoding": "identity", "Alt-Svc": "h3", "Server": "secret/1.0",
	}
	upward := map[string]bool{"Host": true, "Content-Type": true, "Content-Length": true, "Accept": true, "User-Agent": true, "X-Weir-Hop": true, "X-Request-Id": true, "Authorization": true}
	downward := map[string]bool{"Content-Type": true, "Content-Length": true, "Date": true, "Cache-Control": true, "X-Accel-Buffering": true, "Connection": true, "Transfer-Encoding": true, "X-Should-Retry": true, "Retry-After": true, "Retry-After-Ms": true}
	for _, k := range kindsOfAnswer {
		t.Run(k.name, func(t *testing.T) {
			answers := map[string]string{}
			for h, v := range hops {
				if h != "Connection" && h != "Trailer" && h != "Upgrade" { // the simulated server's own transport writes these
					answers[h] = v
				}
			}
			answers["Connection"] = "X-Secret-Backend, Server"
			g := begin(t, setup{real: true, yaml: k.yaml, sims: oai(sim.Behaviour{Text: "ok", Headers: answers}, sim.Behaviour{Status: 500, Headers: answers})})
			var lines strings.Builder
			for h, v := range hops {
				fmt.Fprintf(&lines, "%s: %s\r\n", h, v)
			}
			body := chatBody(k.stream)
			request := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s", g.key, len(body), lines.String(), body)
			for _, want := range []int{200, 502} {
				x := g.wire(g.url, request, 5*time.Second)
				if len(x.statuses) != 1 || x.statuses[0] != want {
					t.Fatalf("answered %v %q", x.statuses, x.bodies)
				}
				for h, v := range x.headers[0] {
					if !downward[h] && (!strings.HasPrefix(h, "X-Weir-") || strings.Contains(strings.Join(v, ""), "mine")) || h == "Connection" && v[0] != "close" {
						t.Errorf("the client got %s: %v", h, v)
					}
				}
			}
			for _, a := range g.sim().Calls("") {
				for h, v := range a.Header {
					if !upward[h] || strings.Contains(strings.Join(v, ""), g.key) {
						t.Errorf("upstream got %s: %v", h, v)
					}
				}
			}
		})
	}
}

// S30: HTTP/2 without TLS is not spoken, not by its preface and not by an upgrade, and a preface that dribbles in is cut at
// the time for headers.
func TestS30ClearTextHTTP2IsOff(t *testing.T) {
	g := begin(t, setup{real: true, sims: oai(sim.Behaviour{Text: "ok"}), edit: shortHeaders})
	for _, base := range []string{g.url, g.admin} {
		c := g.connect(base, 1)
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(c, http2Preface+string(frame(4, 0, 0, nil)))
		got, err := io.ReadAll(c)
		if c.Close(); len(got) > 0 && !bytes.HasPrefix(got, []byte("HTTP/1.1 4")) && !bytes.HasPrefix(got, []byte("HTTP/1.1 505")) || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the preface was answered %q, %v", base, got, err)
		}
	}
	body := chatBody(false)
	x := g.wire(g.url, fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: %d\r\n\r\n%s",
		g.key, len(body), body), 300*time.Millisecond)
	if len(x.statuses) != 1 || x.statuses[0] != http.StatusOK {
		t.Errorf("an upgrade to h2c was answered %v", x.statuses)
	}
	c := g.connect(g.url, 1)
	defer c.Close()
	done := make(chan time.Duration, 1)
	start := time.Now()
	go func() { _, _ = io.Copy(io.Discard, c); done <- time.Since(start) }()
	for _, b := range []byte(http2Preface[:14]) {
		if _, err := c.Write([]byte{b}); err != nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("a dribbling preface is never cut")
		c.Close()
		<-done
	}
}
