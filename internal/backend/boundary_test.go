package backend

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/llm"
	"weir/internal/sim"
)

// border is a listener that counts what crosses it: connections, and every byte that comes in.
type border struct {
	net.Listener
	conns, bytes atomic.Int64
}

// Accept counts a connection.
func (b *border) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	b.conns.Add(1)
	return &crossing{c, b}, nil
}

// crossing counts what is read of one connection.
type crossing struct {
	net.Conn
	of *border
}

// Read counts bytes.
func (c *crossing) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.of.bytes.Add(int64(n))
	return n, err
}

// outsideServer is a server behind a border, plain or with TLS, and what its backend needs to know.
func outsideServer(t *testing.T, secure bool, h http.Handler) (*border, func(*Options)) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	b := &border{Listener: s.Listener}
	s.Listener, s.Config.ErrorLog = b, discard()
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return b, func(o *Options) {
		o.URL, o.Dial, o.Outside, o.IdleConn = s.URL+"/v1", nil, true, time.Minute
		if secure {
			o.Roots = x509.NewCertPool()
			o.Roots.AddCert(s.Certificate())
		}
	}
}

// localCalls are local calls of every kind that a backend knows.
func localCalls(t *testing.T) map[string]*Call {
	form, _ := upload(4)
	fresh := call(t, llm.Chat, askStream)
	fresh.Fresh = true
	calls := map[string]*Call{
		"a stream": call(t, llm.Chat, askStream), "a whole answer": call(t, llm.Chat, askWhole), "embeddings": call(t, llm.Embeddings, askVector),
		"a form": form, "speech": speech(t), "on a fresh connection": fresh,
	}
	for _, c := range calls {
		c.Local = true
	}
	return calls
}

// wantRefused checks the refusal of a local call.
func wantRefused(t *testing.T, what string, err error) {
	t.Helper()
	e, ok := errors.AsType[*llm.Error](err)
	if !ok || e.Kind != llm.None || e.ErrorCode() != "boundary" || !e.IsFinal() || e.Sent || e.Kind.Blames() || e.Kind.FallsBack() {
		t.Errorf("%s: got %v, want none by boundary", what, err)
	}
}

// TestLocalCallNeverReachesABackendOutside plants the planning bug of issue 5: a local call is handed straight to a backend
// outside which has warm, unused connections. Not one byte may cross, nor a connection be made; not even the key is read. Each
// of the refusals is then asked alone, as if those before it were not there.
func TestLocalCallNeverReachesABackendOutside(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			up := sim.New(sim.Options{Script: on(sim.Behaviour{Text: "hi"})})
			defer up.Close()
			border, set := outsideServer(t, secure, up)
			var keys int
			b := dialled(t, nil, func(o *Options) {
				set(o)
				o.Key = func() (string, error) { keys++; return "canary", nil }
			})
			for range 3 { // a call that may leave warms a connection
				if got := run(t.Context(), b, call(t, llm.Chat, askStream)); got.err != nil {
					t.Fatal(got.err)
				}
			}
			conns, bytes, read, calls := border.conns.Load(), border.bytes.Load(), keys, len(up.Attempts())
			if conns != 1 || bytes == 0 || read != 3 {
				t.Fatalf("%d connections, %d bytes, %d keys: nothing is warm", conns, bytes, read)
			}
			for what, c := range localCalls(t) {
				a, err := b.Call(t.Context(), c)
				if a != nil {
					t.Errorf("%s: there is an answer", what)
				}
				wantRefused(t, what, err)
			}
			if keys != read {
				t.Errorf("the key was read for a local call")
			}
			ctx := localContext(t.Context())
			for where, b := range map[string]*Backend{"warm": b, "cold": dialled(t, nil, set)} {
				for what, c := range localCalls(t) {
					_, err := b.call(ctx, c, what == "a stream")
					wantRefused(t, where+", behind the first: "+what, err)
				}
			}
			_, err := dialOf(b)(ctx)
			wantRefused(t, "the dialer", err)
			if c, b := border.conns.Load(), border.bytes.Load(); c != conns || b != bytes || len(up.Attempts()) != calls {
				t.Errorf("%d connections and %d bytes crossed", c-conns, b-bytes)
			}
			if got := run(t.Context(), b, call(t, llm.Chat, askStream)); got.err != nil {
				t.Errorf("a call that may leave does not any more: %v", got.err)
			}
		})
	}
}

// dialOf returns what a backend opens connections with.
func dialOf(b *Backend) func(context.Context) (net.Conn, error) {
	if b.plain != nil {
		return b.plain.dial
	}
	return func(ctx context.Context) (net.Conn, error) { return b.transport.DialContext(ctx, "tcp", "127.0.0.1:1") }
}

// TestLocalCallIsServedInside is the other side: a backend inside takes it, plain and over TLS.
func TestLocalCallIsServedInside(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			up := sim.New(sim.Options{Script: on(sim.Behaviour{Text: "hi"})})
			defer up.Close()
			_, set := outsideServer(t, secure, up)
			b := dialled(t, nil, func(o *Options) { set(o); o.Outside = false })
			for range 2 {
				c := call(t, llm.Chat, askStream)
				c.Local = true
				if got := run(t.Context(), b, c); got.err != nil {
					t.Error(got.err)
				}
			}
		})
	}
}

// TestLocalCallPassesNoForeignProxy: a backend inside that is reached through the proxy of the environment.
func TestLocalCallPassesNoForeignProxy(t *testing.T) {
	for _, c := range []struct {
		name, proxy string
		refused     bool
	}{
		{"a proxy on another machine", "http://proxy.example:3128", true},
		{"a proxy on a private address is another machine too", "http://10.0.0.9:3128", true},
		{"a proxy on this machine", "http://127.0.0.1:3128", false},
		{"no proxy for this host", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := sim.New(sim.Options{Script: on(sim.Behaviour{Text: "hi"})})
			defer up.Close()
			border, set := outsideServer(t, false, up)
			b := dialled(t, nil, func(o *Options) {
				set(o)
				o.URL, o.Outside, o.Proxy = "http://gpu.lan:9001", false, true
				o.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, border.Addr().String())
				}
			})
			b.transport.Proxy = func(*http.Request) (*url.URL, error) {
				if c.proxy == "" {
					return nil, nil
				}
				return url.Parse(c.proxy)
			}
			if got := run(t.Context(), b, call(t, llm.Chat, askStream)); got.err != nil {
				t.Fatal(got.err)
			}
			conns, bytes := border.conns.Load(), border.bytes.Load()
			local := call(t, llm.Chat, askStream)
			local.Local = true
			got := run(t.Context(), b, local)
			if !c.refused {
				if got.err != nil {
					t.Error(got.err)
				}
				return
			}
			wantRefused(t, "the call", got.err)
			_, err := b.transport.DialContext(localContext(t.Context()), "tcp", b.proxyAddr(t))
			wantRefused(t, "the dialer", err)
			if border.conns.Load() != conns || border.bytes.Load() != bytes {
				t.Error("something reached the proxy")
			}
		})
	}
}

// proxyAddr returns where the proxy of a test is dialled.
func (b *Backend) proxyAddr(t *testing.T) string {
	u, err := b.transport.Proxy(nil)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// TestRedirectThatLeadsOutIsNotFollowed holds F13 for the boundary: a backend inside sends a local call elsewhere.
func TestRedirectThatLeadsOutIsNotFollowed(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			away, _ := outsideServer(t, secure, http.NotFoundHandler())
			_, set := outsideServer(t, secure, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				http.Redirect(w, r, "http://"+away.Addr().String()+"/v1/chat/completions", http.StatusTemporaryRedirect)
			}))
			b := dialled(t, nil, func(o *Options) { set(o); o.Outside = false })
			c := call(t, llm.Chat, askStream)
			c.Local = true
			if got := run(t.Context(), b, c); got.kind() != "refused" {
				t.Errorf("got %q: %v", got.kind(), got.err)
			}
			if away.conns.Load() != 0 {
				t.Error("the redirect was followed")
			}
		})
	}
}

// TestServedIsReadOfAHeader holds served_header, on streams and whole answers.
func TestServedIsReadOfAHeader(t *testing.T) {
	for name, c := range map[string]struct{ header, value, want string }{
		"the header names another model":     {"X-Served-By", " glm-5 ", "glm-5"},
		"the header is not there":            {"X-Other", "glm-5", "m"},
		"what it holds cannot be a name":     {"X-Served-By", "glm\x80\uFFFD", "m"},
		"what it holds is longer than names": {"X-Served-By", strings.Repeat("a", 300), "m"},
	} {
		for _, body := range []string{askStream, askWhole} {
			does := sim.Behaviour{Text: "hi", Headers: map[string]string{c.header: c.value}}
			up := sim.New(sim.Options{Script: on(does)})
			_, set := outsideServer(t, false, up)
			b := dialled(t, nil, func(o *Options) {
				set(o)
				o.ServedIn, o.Stream = "x-served-by", "as_asked"
			})
			if got := run(t.Context(), b, call(t, llm.Chat, body)); got.err != nil || got.seen.Served != c.want {
				t.Errorf("%s: got %q (%v), want %q", name, got.seen.Served, got.err, c.want)
			}
			up.Close()
		}
	}
}
