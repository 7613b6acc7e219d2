package backend

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/llm"
	"weir/internal/llm/openai"
	"weir/internal/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a backend and the simulated server behind it on a network in memory, for use inside a bubble.
type world struct {
	*sim.Server
	net *sim.Net
	b   *Backend
}

func newWorld(t *testing.T, script sim.Script, set func(*Options)) *world {
	t.Helper()
	n := sim.NewNet()
	l, err := n.Listen("127.0.0.1:9001")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Server: sim.New(sim.Options{Script: script}).StartOn(t, l), net: n}
	w.b = dialled(t, n, set)
	return w
}

// dialled is a backend at 127.0.0.1:9001 of a network in memory.
func dialled(t *testing.T, n *sim.Net, set func(*Options)) *Backend {
	t.Helper()
	o := Options{
		Name: "b", URL: "http://127.0.0.1:9001/v1", Tier: "floor", Dialect: openai.Dialect{}, Stream: "always", Connect: 2 * time.Second,
		IdleConn: 4 * time.Second, Conns: 4, Agent: "weir/test", Hop: "here", Dial: n.DialContext,
	}
	if set != nil {
		set(&o)
	}
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// on is the script of a server that does one thing after the other.
func on(list ...sim.Behaviour) sim.Script { return sim.Script{On: map[string]sim.Sequence{"m": list}} }

const (
	askStream = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`
	askWhole  = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	askVector = `{"model":"m","input":["a"],"encoding_format":"base64"}`
)

// limits are the usual ones.
var limits = Limits{FirstContent: 15 * time.Second, Idle: 30 * time.Second, Total: time.Hour, Answer: time.Minute}

// call makes a call of a client's body.
func call(t *testing.T, op llm.Op, body string) *Call {
	t.Helper()
	r, err := openai.Dialect{}.Decode(op, []byte(body), 64)
	if err != nil {
		t.Fatal(err)
	}
	return &Call{Request: r, Model: "m", Quoted: []byte(`"m"`), Limits: limits}
}

// result is how a call went.
type result struct {
	out    string
	status int
	err    *llm.Error
	took   time.Duration
	seen   llm.Seen
	first  time.Duration
}

func (r result) kind() string {
	if r.err == nil {
		return ""
	}
	return r.err.Kind.String()
}

// run makes the call and takes its answer to the end.
func run(ctx context.Context, b *Backend, c *Call) (r result) {
	begun := time.Now()
	defer func() { r.took = time.Since(begun) }()
	fail := func(err error) result {
		r.err = llm.AsError(err)
		return r
	}
	a, err := b.Call(ctx, c)
	if err != nil {
		return fail(err)
	}
	defer a.Close()
	r.status, r.first = a.Status, -1
	if !a.IsStream() {
		out, seen, err := a.Whole()
		r.out, r.seen, r.first = string(out), seen, a.First()
		if err != nil {
			return fail(err)
		}
		return r
	}
	for {
		out, err := a.Next()
		r.out += string(out)
		r.seen, r.first = *a.Seen(), a.First()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fail(err)
		}
	}
	out, err := a.Finish()
	r.out, r.seen = r.out+string(out), *a.Seen()
	if err != nil {
		return fail(err)
	}
	return r
}

// server answers connections at 127.0.0.1:9001 of a network in memory by hand.
func server(t *testing.T, n *sim.Net, serve func(net.Conn)) {
	t.Helper()
	l, err := n.Listen("127.0.0.1:9001")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
}

func discard() *log.Logger { return log.New(io.Discard, "", 0) }
