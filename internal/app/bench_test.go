package app

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/config"
	"weir/internal/key"
)

// BenchmarkRequest carries one request after the other through a whole Weir over loopback sockets. Client and upstream
// are in the process too, written so that they add little: what the profile shows is Weir's own.
func BenchmarkRequest(b *testing.B) {
	for _, c := range []struct{ name, body string }{
		{"small", `{"model":"m","messages":[{"role":"user","content":"Say hello to the world in one short line."}]}`},
		{"big", `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat(`a line of code {\"x\": 1}\n`, 5000) + `"}]}`},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkRequest(b, c.body) })
	}
}

func benchmarkRequest(b *testing.B, body string) {
	answer := `{"id":"chatcmpl-1","object":"chat.completion","created":1790000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		strings.Repeat("x", 400) + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}`
	upstream := rawUpstream(b, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer))
	addr, token := benchApp(b, upstream)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	request := fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", token, len(body), body)
	in := bufio.NewReader(conn)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Write(request); err != nil {
			b.Fatal(err)
		}
		if status := skipAnswer(b, in); status != 200 {
			b.Fatalf("status %d", status)
		}
	}
}

// skipAnswer reads one answer with a Content-Length and returns its status.
func skipAnswer(b *testing.B, in *bufio.Reader) (status int) {
	length := 0
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			b.Fatal(err)
		}
		switch {
		case first:
			fmt.Sscanf(string(line[9:12]), "%d", &status)
		case len(line) == 2:
			if _, err := in.Discard(length); err != nil {
				b.Fatal(err)
			}
			return status
		case bytes.HasPrefix(line, []byte("Content-Length: ")):
			fmt.Sscanf(string(line[16:]), "%d", &length)
		}
	}
}

// rawUpstream answers every request with the same bytes.
func rawUpstream(b *testing.B, answer string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewReaderSize(c, 256<<10)
				for {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					io.Copy(io.Discard, r.Body)
					if _, err := io.WriteString(c, answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

func benchApp(b *testing.B, upstream string) (addr, token string) {
	text := fmt.Sprintf(`
listen: 127.0.0.1:1
admin: 127.0.0.1:2
data: %s
backends: {up: {url: "http://%s", tier: gpu, stream: as_asked}}
pools: {p: {backend: up, cap: 64, models: ["*"]}}
routes: {r: {steps: ["p/*"]}}
aliases: {"*": r}
`, filepath.Join(b.TempDir(), "data"), upstream)
	cfg, report := config.Parse([]byte(text), "")
	if err := report.Err(); err != nil {
		b.Fatal(err)
	}
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		return l
	}
	ctx, cancel := context.WithCancel(context.Background())
	a, err := New(ctx, Options{Config: cfg, Listener: listen(), Admin: listen(), Events: io.Discard})
	if err != nil {
		b.Fatal(err)
	}
	token, _, err = key.Change{Store: a.Store(), Actor: "test", Now: time.Now()}.Add(ctx, key.Spec{Name: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	if err := a.Keys().Reload(ctx); err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
	return a.Addr().String(), token
}
