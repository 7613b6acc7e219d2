package app

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/sim"
)

// signed makes a certificate for host, by the authority that comes with it.
func signed(t *testing.T, host string, from, to time.Time) (authority []byte, pair tls.Certificate) {
	t.Helper()
	root, rootKey := template(t, "an authority"), newKey(t)
	root.NotBefore, root.NotAfter = from.Add(-time.Hour), to.Add(1000*time.Hour)
	root.IsCA, root.BasicConstraintsValid, root.KeyUsage = true, true, x509.KeyUsageCertSign
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, &rootKey.PublicKey, rootKey)
	if err != nil {
		t.Fatal(err)
	}
	leaf, key := template(t, host), newKey(t)
	leaf.NotBefore, leaf.NotAfter, leaf.DNSNames = from, to, []string{host}
	leaf.KeyUsage, leaf.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, leaf, root, &key.PublicKey, rootKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootDER}), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func template(t *testing.T, name string) *x509.Certificate {
	t.Helper()
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	return &x509.Certificate{SerialNumber: n, Subject: pkix.Name{CommonName: name}}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// F04, S27: a certificate that is expired, not yet valid, of another name, or of nobody known, and a TLS that is too old,
// fail the step: the next one answers, alone the client gets upstream_tls, and nothing is ever sent over it.
func TestF04CertificatesThatAreNotGood(t *testing.T) {
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		host     string
		from, to time.Duration // from now
		stranger bool          // its authority is not the backend's
		newest   uint16        // that the server speaks
		good     bool
	}{
		"good":               {host: "s1.sim", from: -day, to: day, good: true},
		"expired":            {host: "s1.sim", from: -2 * day, to: -time.Minute},
		"not yet valid":      {host: "s1.sim", from: time.Minute, to: day},
		"of another name":    {host: "s2.sim", from: -day, to: day},
		"of an unknown root": {host: "s1.sim", from: -day, to: day, stranger: true},
		"TLS 1.1":            {host: "s1.sim", from: -day, to: day, newest: tls.VersionTLS11},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				root, pair := signed(t, c.host, time.Now().Add(c.from), time.Now().Add(c.to))
				if c.stranger {
					root, _ = signed(t, c.host, time.Now().Add(-day), time.Now().Add(day))
				}
				ca := filepath.Join(dir, "ca.pem")
				write(t, ca, root, time.Now())
				config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS10, MaxVersion: c.newest}
				g := begin(t, setup{yaml: waysYAML("https", fmt.Sprintf(`, ca: %q`, ca)), sims: waysSims(nil)})
				s1 := sim.New(sim.Options{Name: "s1", Script: sim.Script{On: map[string]sim.Sequence{"m": {{Text: "over TLS"}}}}}).
					StartOn(t, tls.NewListener(g.listen("s1.sim:443"), config))
				for _, w := range ways() {
					if w.steps == 3 {
						continue // s2 is not there
					}
					r := g.askWay(w)
					e := g.end(r.id())
					switch {
					case c.good:
						if got := r.text(); got != "over TLS" {
							t.Errorf("%v: text %q", w, got)
						}
					case w.steps == 1:
						if f := r.failed(); r.status != 502 || f.Code != "upstream_tls" || r.header.Get("X-Should-Retry") != "false" {
							t.Errorf("%v: %d %s", w, r.status, r.body)
						}
					case !strings.HasPrefix(r.text(), "healthy") || e.Attempts[0].Kind != "refused" || e.Attempts[0].Sent:
						t.Errorf("%v: %s", w, e.Raw)
					}
				}
				if n := len(s1.Attempts()); !c.good && n != 0 {
					t.Errorf("I11: %d requests were sent over it", n)
				}
			})
		})
	}
}

// F08: a fault of the client's making is told with its own status and words, tried once, and blames nobody.
func TestF08ClientsFaults(t *testing.T) {
	for name, c := range map[string]struct {
		status      int
		body, says  string
		code        string
		inTheStream bool
		want        int
	}{
		"400":                      {status: 400, body: `{"error":{"message":"bad temperature","type":"invalid_request_error","param":"temperature","code":"bad_value"}}`, says: "bad temperature", code: "bad_value"},
		"413":                      {status: 413, body: `{"error":{"message":"too many images"}}`, says: "too many images"},
		"422":                      {status: 422, body: `{"detail":[{"loc":["body","n"],"msg":"must be positive"}]}`, says: "must be positive"},
		"403 about the prompt":     {status: 403, body: `{"error":{"message":"Your prompt was flagged by moderation"}}`, says: "flagged"},
		"500 of llama.cpp's":       {status: 500, body: `{"error":{"code":500,"message":"Failed to parse tool call arguments as JSON","type":"server_error"}}`, says: "Failed to parse", want: 400},
		"an error in a 200 stream": {status: 200, body: `{"error":{"message":"The model is not multimodal.","type":"BadRequestError","code":400}}`, says: "not multimodal", inTheStream: true, want: 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := sim.Behaviour{Status: c.status, Headers: map[string]string{"Content-Type": "application/json"}, Body: sim.Bytes(c.body)}
				if c.inTheStream {
					b = sim.Behaviour{StreamError: &sim.StreamError{Error: []byte(strings.TrimSuffix(strings.TrimPrefix(c.body, `{"error":`), "}"))}}
				}
				g := begin(t, setup{yaml: waysYAML("http", ""), sims: waysSims(&b)})
				if c.want == 0 {
					c.want = c.status
				}
				for range repeats(2, 100) {
					for _, w := range ways() {
						r := g.askWay(w)
						f := r.failed()
						if r.status != c.want || !strings.Contains(f.Message, c.says) || c.code != "" && f.Code != c.code || r.header.Get("X-Should-Retry") != "false" {
							t.Errorf("%v: %d %s", w, r.status, r.body)
						}
						if e := g.end(r.id()); e.Kind != "invalid" || len(e.Attempts) != 1 || !slices.Equal(g.events(r.id()), []string{"start", "routing", "end"}) {
							t.Errorf("%v: events %v, %s", w, g.events(r.id()), e.Raw)
						}
					}
				}
				if n := len(g.sims["ok"].Calls("")) + len(g.sims["s2"].Calls("")); n != 0 {
					t.Errorf("%d calls at other steps", n)
				}
				for range 12 {
					g.askFor("judge/m", true).failed()
				}
				if list := g.facts("health"); len(list) > 0 {
					t.Errorf("I12: health events %q", list)
				}
			})
		})
	}
}

// F15: a head that comes byte by byte is read in time, or the step is too slow.
func TestF15HeadByteByByte(t *testing.T) {
	for _, c := range []struct {
		name string
		gap  time.Duration
		text string
		kind string
	}{{"in time", 10 * time.Millisecond, "bit by bit", ""}, {"too slowly", 40 * time.Millisecond, "healthy", "slow"}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{yaml: waysYAML("http", ""), sims: waysSims(nil)})
				done := make(chan struct{})
				l := g.listen("s1.sim:80")
				go func() {
					defer close(done)
					var all sync.WaitGroup
					defer all.Wait()
					for {
						conn, err := l.Accept()
						if err != nil {
							return
						}
						all.Go(func() { dribble(conn, c.gap) })
					}
				}()
				defer func() { l.Close(); <-done }()
				for range 2 {
					for _, w := range ways() {
						if w.steps != 2 {
							continue
						}
						r := g.askWay(w)
						if got := r.text(); !strings.HasPrefix(got, c.text) {
							t.Errorf("%v: text %q", w, got)
						}
						if e := g.end(r.id()); e.Attempts[0].Kind != c.kind {
							t.Errorf("%v: %s", w, e.Raw)
						}
					}
				}
			})
		})
	}
}

// dribble answers one request, a byte each gap.
func dribble(c net.Conn, gap time.Duration) {
	defer c.Close()
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	kind, body := "application/json", strings.Replace(answer, `"ok"`, `"bit by bit"`, 1)
	if r.Header.Get("Accept") == "text/event-stream" {
		kind, body = "text/event-stream", `data: {"choices":[{"index":0,"delta":{"content":"bit by bit"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n"
	}
	for _, b := range []byte(fmt.Sprintf("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", kind, len(body))) {
		if _, err := c.Write([]byte{b}); err != nil {
			return
		}
		time.Sleep(gap)
	}
	_, _ = c.Write([]byte(body))
}

// F18: a kept connection that the upstream closes just as it is used again costs one more attempt, and nobody sees it.
func TestF18StaleConnections(t *testing.T) {
	for _, mode := range []string{"always", "asked"} {
		for _, stream := range []bool{true, false} {
			w := way{mode, 1, stream}
			t.Run(w.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					g := begin(t, setup{yaml: waysYAML("http", ""), sims: waysSims(&sim.Behaviour{Text: "here", Stale: true})})
					stale := 0
					for i := range repeats(100, 5000) {
						r := g.askWay(w)
						if got := r.text(); got != "here" || r.header.Get("X-Weir-Reroute") != "" {
							t.Fatalf("request %d: text %q", i, got)
						}
						e := g.end(r.id())
						switch n := g.callsOf("s1", r.id()); {
						case n == 2 && len(e.Attempts) == 2 && e.Attempts[0].Kind == "stale" && e.Attempts[0].Sent:
							stale++
						case n != 1 || len(e.Attempts) != 1:
							t.Fatalf("request %d: %d calls: %s", i, n, e.Raw)
						}
						if !slices.Equal(g.events(r.id()), []string{"start", "routing", "end"}) {
							t.Fatalf("request %d: events %v", i, g.events(r.id()))
						}
					}
					if stale < 90 {
						t.Errorf("only %d connections were stale", stale)
					}
					if list := g.facts("health"); len(list) != 0 {
						t.Errorf("I12: health events %q", list)
					}
				})
			})
		}
	}
	// Where the fresh connection fails too, the next step is tried; two generations are spent by then.
	t.Run("and the fresh one fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := begin(t, setup{yaml: steps(2), sims: map[string]sim.Script{
				"s1": {On: map[string]sim.Sequence{"m": {{Text: "first"}, {Stale: true}, {Drop: "rst"}}}}, "s2": {On: map[string]sim.Sequence{"m": {{Text: "second"}}}},
			}})
			g.chat(true).text()
			r := g.chat(true)
			if got := r.text(); got != "second" || r.header.Get("X-Weir-Attempts") != "3" {
				t.Errorf("text %q after %s attempts", got, r.header.Get("X-Weir-Attempts"))
			}
			if e := g.end(r.id()); e.Attempts[0].Kind != "stale" || e.Attempts[1].Kind != "refused" {
				t.Errorf("%s", e.Raw)
			}
		})
	})
}

// F19: with everything down the error comes at once, after one pass; a pool that live traffic took out is tried again only
// where it is the last there is.
func TestF19AllDown(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d steps, stream %v", n, stream), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					g := begin(t, setup{yaml: steps(n), sims: scripts()})
					for i := range repeats(20, 1000) {
						start := time.Now()
						r := g.chat(stream)
						f := r.failed()
						if took := time.Since(start); took > 100*time.Millisecond {
							t.Errorf("the error came after %v", took)
						}
						if r.status != 502 || !strings.Contains(f.Message, "nothing listens") || n > 1 && !strings.Contains(f.Message, "(steps: ") {
							t.Errorf("%d %s", r.status, r.body)
						}
						e := g.end(r.id())
						if len(e.Attempts) > n || i >= 5 && len(e.Attempts) != 1 {
							t.Errorf("request %d: %d attempts: %s", i, len(e.Attempts), e.Raw)
						}
						seen := map[string]bool{}
						for _, a := range e.Attempts {
							if seen[a.Pool] {
								t.Errorf("%s was tried twice", a.Pool)
							}
							seen[a.Pool] = true
						}
					}
				})
			})
		}
	}
	// Where nothing may be tried, since every account is refused, it is 503 with the time of the next probe.
	t.Run("all denied", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			bad := &sim.Behaviour{Status: 401}
			g := begin(t, setup{yaml: steps(3), sims: scripts(bad, bad, bad)})
			g.chat(true).failed()
			start := time.Now()
			r := g.chat(true)
			f := r.failed()
			if r.status != 503 || f.Code != "no_backend" || r.header.Get("Retry-After") != "5" || time.Since(start) > 0 || r.header.Get("X-Weir-Attempts") != "0" {
				t.Errorf("%d, Retry-After %q: %s", r.status, r.header.Get("Retry-After"), r.body)
			}
			for _, s := range []string{"s1/m denied", "s2/m denied", "s3/m denied"} {
				if !strings.Contains(f.Message, s) {
					t.Errorf("message %q lacks %q", f.Message, s)
				}
			}
		})
	})
}
