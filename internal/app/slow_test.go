package app

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/config"
	"weir/internal/sim"
)

// shortHeaders makes the time for headers so short that a test can wait for it.
func shortHeaders(c *config.Config) { c.Server.HeaderTimeout = config.Duration(500 * time.Millisecond) }

// S29: connections that dribble their headers are cut at the limit, and beside three hundred of them every request of
// another client is answered.
func TestS29Slowloris(t *testing.T) {
	g := begin(t, setup{real: true, sims: oai(sim.Behaviour{Text: "ok"}), edit: shortHeaders})
	const many = 300
	var all sync.WaitGroup
	var cut atomic.Int64
	for range many {
		c := g.connect(g.url, 2)
		all.Go(func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			for i := 0; ; i++ {
				if _, err := c.Write([]byte("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"[i%60:][:1])); err != nil {
					break
				}
				_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
				if _, err := c.Read(make([]byte, 1)); err != nil && !isTimeout(err) {
					break
				}
				if i > 200 {
					return // twenty seconds: never cut
				}
			}
			cut.Add(1)
		})
	}
	for range 20 {
		g.chat(false).text()
	}
	if all.Wait(); cut.Load() != many {
		t.Errorf("%d of %d dribbling connections were cut", cut.Load(), many)
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// S29: one address may hold so many connections and no more; another address does not feel it, and what is closed makes room.
func TestS29ConnectionsPerAddress(t *testing.T) {
	g := begin(t, setup{real: true, sims: oai(sim.Behaviour{Text: "ok"}), edit: func(c *config.Config) { c.Server.MaxPerAddress = 5 }})
	serves := func(last int) (net.Conn, bool) {
		c := g.connect(g.url, last)
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprint(c, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		return c, err == nil && resp.StatusCode == 200
	}
	var held []net.Conn
	for i := range 5 {
		c, ok := serves(2)
		if held = append(held, c); !ok {
			t.Errorf("connection %d of 5 is refused", i+1)
		}
	}
	for range 3 {
		c, ok := serves(2)
		if c.Close(); ok {
			t.Error("a sixth connection serves")
		}
	}
	c, ok := serves(3)
	if c.Close(); !ok {
		t.Error("another address is refused")
	}
	for _, c := range held {
		c.Close()
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		c, ok := serves(2)
		if c.Close(); ok {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("closed connections make no room")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// S29: a body that was announced and never comes holds its connection no longer than the time for bodies, whoever sends it.
func TestS29AnnouncedBodies(t *testing.T) {
	for name, head := range map[string]string{
		"without a key": "POST /v1/chat/completions", "at a path that is none": "POST /nowhere", "with a GET": "GET /v1/models", "at the root": "GET /", "at liveness": "GET /livez",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{sims: oai(sim.Behaviour{})})
				c := g.connect(g.url, 1)
				defer c.Close()
				start := time.Now()
				fmt.Fprint(c, head+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{")
				_ = c.SetDeadline(time.Now().Add(time.Hour))
				if _, err := io.Copy(io.Discard, c); err != nil || time.Since(start) > g.cfg.Server.BodyTimeout.D()+g.cfg.Server.IdleTimeout.D() {
					t.Errorf("the connection ended after %v: %v", time.Since(start), err)
				}
			})
		})
	}
}

// S31: clients that read a byte a second, or nothing, lose their streams within the time for one write; their slots come
// back, the upstream calls end, and what is kept for them is bounded.
func TestS31SlowReaders(t *testing.T) {
	for name, pause := range map[string]time.Duration{"a byte a second": time.Second, "nothing": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{yaml: strings.Replace(oneBackend(""), "cap: 64", "cap: 100", 1), sims: oai(sim.Behaviour{Endless: true, Gap: 50 * time.Millisecond, Chunks: 20, ChunkSize: 16 << 10}), quiet: true})
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				reading, stop := context.WithCancel(t.Context())
				var clients sync.WaitGroup
				for range 100 {
					c := g.streamTo(g.connect(g.url, 1))
					clients.Go(func() {
						defer c.Close()
						for p := []byte{0}; ; {
							select {
							case <-time.After(pause):
							case <-reading.Done():
								return
							}
							if _, err := c.Read(p); err != nil {
								return
							}
						}
					})
				}
				time.Sleep(3*time.Second + g.cfg.Server.WriteTimeout.D()) // the buffers are full after 2 s
				if u := g.app.graph.pools["a"].Slots.Usage(); u.Held != 0 || g.sim().Active() != 0 || len(g.sim().Calls("")) != 100 {
					t.Errorf("%d slots are held and %d calls run for clients who do not read", u.Held, g.sim().Active())
				}
				runtime.GC()
				if runtime.ReadMemStats(&after); after.HeapAlloc > before.HeapAlloc+64<<20 {
					t.Errorf("the heap grew by %d MiB", (after.HeapAlloc-before.HeapAlloc)>>20)
				}
				stop()
				clients.Wait()
			})
		})
	}
}

// streamTo asks for a stream on c.
func (g *gateway) streamTo(c net.Conn) net.Conn {
	body := chatBody(true)
	fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", g.key, len(body), body)
	return c
}

// S31 on a kernel's sockets, whose buffers are larger.
func TestS31SlowReadersOnSockets(t *testing.T) {
	deltas := make([]string, 200)
	for i := range deltas {
		deltas[i] = strings.Repeat("x", 64<<10)
	}
	g := begin(t, setup{real: true, quiet: true, sims: oai(sim.Behaviour{Deltas: deltas, Endless: true, Gap: time.Millisecond}), edit: func(c *config.Config) {
		c.Server.WriteTimeout = config.Duration(500 * time.Millisecond)
	}})
	for range 3 {
		c := g.streamTo(g.connect(g.url, 1))
		defer c.Close()
	}
	deadline := time.Now().Add(60 * time.Second)
	for freed := false; !freed; time.Sleep(10 * time.Millisecond) {
		u := g.app.graph.pools["a"].Slots.Usage()
		freed = len(g.sim().Calls("")) == 3 && u.Held == 0 && g.sim().Active() == 0
		if time.Now().After(deadline) {
			t.Fatalf("after a minute %d slots are held and %d calls run for clients who do not read", u.Held, g.sim().Active())
		}
	}
}

// The write deadline of one answer is no later answer's: a connection that was quiet in between still serves.
func TestQuietConnectionsServeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{sims: oai(sim.Behaviour{Text: "ok"})})
		c := g.connect(g.url, 1)
		defer c.Close()
		in := bufio.NewReader(c)
		for _, path := range []string{"/v1/models", "/livez", "/", "/v1/models", "/nope", "/readyz"} {
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, g.key)
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("%s after a quiet time: %v", path, err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			time.Sleep(100 * time.Second) // beyond the time for a write, within the time for idle connections
		}
	})
}
