package app

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/config"
	"weir/internal/event"
	"weir/internal/key"
	"weir/internal/llm"
	"weir/internal/server"
	"weir/internal/sim"
)

// trap is a relay, and the client that it writes to, with a fault in it: it panics at the given place.
type trap struct {
	server.Relay
	at string
}

func (p trap) Serve(ctx context.Context, r *llm.Request, c *llm.Caller, rec *event.Record, out llm.Client) error {
	if p.at == "relay" {
		panic("a fault in the relay")
	}
	return p.Relay.Serve(ctx, r, c, rec, &trapped{Client: out, at: p.at})
}

type trapped struct {
	llm.Client
	at    string
	sends int
}

func (c *trapped) Head(name, value string) {
	c.fire("head")
	c.Client.Head(name, value)
}

func (c *trapped) Send(b []byte) error {
	if c.sends++; c.sends == 2 {
		c.fire("second send")
	}
	c.fire("send")
	return c.Client.Send(b)
}

func (c *trapped) Last(b []byte) error   { c.fire("last"); return c.Client.Last(b) }
func (c *trapped) Answer(b []byte) error { c.fire("answer"); return c.Client.Answer(b) }

func (c *trapped) fire(at string) {
	if c.at == at {
		panic(errors.New("a fault with " + mixSecret))
	}
}

// F53, S46: a panic anywhere on a request's way is an error for that client alone: 500, or one error in its stream. The
// process lives, slot and limits come back, the upstream call ends, and the next request is served.
func TestF53PanicsStayInTheirRequest(t *testing.T) {
	for _, c := range []struct {
		at     string
		stream bool
		begun  bool // content had left
	}{
		{"relay", false, false}, {"relay", true, false}, {"head", false, false}, {"head", true, false}, {"send", true, false}, {"second send", true, true}, {"last", true, true}, {"answer", false, false},
	} {
		t.Run(fmt.Sprintf("%s, stream %v", c.at, c.stream), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logs := new(logged)
				g := begin(t, setup{log: logs.handler(), sims: oai(sim.Behaviour{Deltas: []string{"one ", "two"}, Gap: time.Second})})
				token := g.newKey(key.Spec{Name: "one", Concurrent: 1})
				whole := g.app.server.Relay
				g.app.server.Relay = trap{whole, c.at}
				r := g.post("/v1/chat/completions", chatBody(c.stream), "Authorization", "Bearer "+token)
				s := r.said()
				if s.failure == nil || s.failure.Code != "internal_error" || strings.Contains(string(r.body), "a fault") || c.begun != (r.status == 200) {
					t.Errorf("status %d, %+v: %s", r.status, s.failure, r.body)
				}
				if e := g.end(r.id()); e.Kind != "internal" {
					t.Errorf("event %s", e.Raw)
				}
				if u := g.app.graph.pools["a"].Slots.Usage(); u.Held != 0 {
					t.Errorf("slots %+v", u)
				}
				if !strings.Contains(logs.String(), "a fault") || !strings.Contains(logs.String(), "trouble_test.go") {
					t.Errorf("the log does not say where: %s", logs.String())
				}
				g.app.server.Relay = whole
				if got := g.post("/v1/chat/completions", chatBody(c.stream), "Authorization", "Bearer "+token).text(); got != "one two" {
					t.Errorf("the next request got %q", got)
				}
			})
		})
	}
}

// F65, S14: the metrics are scraped again and again while clients send names that nobody configured, as models, as tags, as
// paths and as methods: every scrape is whole, and no series is added.
func TestF65ScrapesDuringAFlood(t *testing.T) {
	n := 1500
	if long() {
		n = 100_000
	}
	g := begin(t, setup{yaml: manyModels, sims: map[string]sim.Script{"in": {}, "out": {}}, quiet: true})
	body := func(name string) string {
		return `{"model":"` + name + `","messages":[{"role":"user","content":"hi"}]}`
	}
	ask := func(i int) {
		name := fmt.Sprintf("canary-%d", i)
		switch i % 5 {
		case 0:
			g.post("/v1/chat/completions", body(name), "X-Weir-Tag", name)
		case 1:
			g.post("/v1/chat/completions", body("gpt-"+name), "User-Agent", name) // served: any name of this kind is
		case 2:
			g.post("/v1/chat/completions", body("any/"+name), "X-Weir-Boundary", name)
		case 3:
			g.get("/v1/"+name, "X-Forwarded-For", name)
		default:
			g.do(g.t.Context(), strings.ToUpper("M"+name), "/v1/models", nil)
		}
	}
	for i := range 5 {
		ask(i)
	}
	g.chat(false)
	g.post("/v1/chat/completions", body("coder"))
	before := len(g.series())
	var flood, scrapes sync.WaitGroup
	var next atomic.Int64
	for range 4 {
		flood.Go(func() {
			for i := next.Add(1); i < int64(n) && !t.Failed(); i = next.Add(1) {
				ask(int(i) + 5)
			}
		})
	}
	done, taken := make(chan struct{}), 0
	scrapes.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				g.series()
				taken++
				time.Sleep(10 * time.Millisecond) // a scrape costs more than all else under the race detector
			}
		}
	})
	flood.Wait()
	close(done)
	scrapes.Wait()
	after := g.series()
	if len(after) > before || before > 1000 {
		t.Errorf("%d series before, %d after %d names", before, len(after), n)
	}
	if text := fmt.Sprint(after); strings.Contains(text, "canary") || taken < 3 {
		t.Errorf("a client's name is a label, or only %d scrapes were taken", taken)
	}
}

// S05: a key that is revoked while its stream runs opens nothing any more; the stream, which it opened before, ends as usual.
func TestS05RevokedDuringAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{sims: oai(sim.Behaviour{Chunks: 10, Gap: time.Second})})
		token := g.newKey(key.Spec{Name: "leaving"})
		resp, err := g.open(t.Context(), "POST", "/v1/chat/completions", strings.NewReader(chatBody(true)), "Authorization", "Bearer "+token)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (key.Change{Store: g.app.Store(), Actor: "test", Now: time.Now()}).Revoke(t.Context(), "leaving"); err != nil {
			t.Fatal(err)
		}
		if err := g.app.Keys().Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r := g.post("/v1/chat/completions", chatBody(true), "Authorization", "Bearer "+token); r.status != 401 {
			t.Errorf("a revoked key: %d", r.status)
		}
		g.read(resp).text()
	})
}

// S30: a client that opens streams of HTTP/2 and resets them at once, again and again, leaves nothing running, and others are
// served meanwhile.
func TestS30ResetFlood(t *testing.T) {
	rounds := 2000
	if long() {
		rounds = 100_000
	}
	dir := t.TempDir()
	cert, private := certify(t, "flood")
	write(t, filepath.Join(dir, "cert"), cert, time.Now())
	write(t, filepath.Join(dir, "key"), private, time.Now())
	g := begin(t, setup{real: true, tls: true, quiet: true, sims: oai(sim.Behaviour{Text: "ok"}), edit: func(c *config.Config) {
		c.TLS = &config.TLS{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
	}})
	for sent := 0; sent < rounds; {
		n := g.reset(rounds - sent)
		if n == 0 {
			t.Fatal("no stream could be opened")
		}
		sent += n
		g.chat(false).text()
	}
	deadline := time.Now().Add(20 * time.Second)
	for g.app.server.Running() > 0 || g.app.graph.pools["a"].Slots.Usage().Held > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests run after the flood", g.app.server.Running())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// reset opens up to n streams on one connection, resets each, and returns how many there were until the gateway hung up.
func (g *gateway) reset(n int) int {
	g.t.Helper()
	c, err := tls.Dial("tcp", strings.TrimPrefix(g.url, "https://"), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		g.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() { _, _ = io.Copy(io.Discard, c) })
	defer c.Close()
	literal := func(index byte, value string) []byte { // of HPACK's static table, not indexed, short
		head := []byte{index}
		if index >= 15 {
			head = []byte{15, index - 15}
		}
		return append(append(head, byte(len(value))), value...)
	}
	block := append([]byte{0x83, 0x87}, literal(4, "/v1/chat/completions")...) // POST, https
	block = append(append(block, literal(1, "localhost")...), literal(23, "Bearer "+g.key)...)
	block = append(block, literal(31, "application/json")...)
	if _, err := io.WriteString(c, http2Preface+string(frame(4, 0, 0, nil))); err != nil {
		return 0
	}
	for i := range n {
		id := uint32(2*i + 1)
		b := append(frame(1, 4, id, block), frame(0, 0, id, []byte(chatBody(true)))...) // headers, and data without their end
		if _, err := c.Write(append(b, frame(3, 0, id, []byte{0, 0, 0, 8})...)); err != nil {
			return i
		}
	}
	return n
}

const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// frame is one frame of HTTP/2.
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	b = binary.BigEndian.AppendUint32(append(b, flags), stream)
	return append(b, payload...)
}
