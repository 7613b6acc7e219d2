package app

import (
	"context"
	"net"
	"testing"
	"time"

	"weir/internal/sim"
)

// F01–F17, before the first byte: whatever one or two steps do, the next one answers; alone the step's failure is told as
// the failure table says, and only what is the backend's own fault lowers its health.
func TestF01ToF17BeforeTheFirstByte(t *testing.T) {
	const quick = 50 * time.Millisecond
	status := func(n int) *sim.Behaviour { return &sim.Behaviour{Status: n} }
	words := func(n int, body string) *sim.Behaviour {
		return &sim.Behaviour{Status: n, Headers: map[string]string{"Content-Type": "application/json"}, Body: sim.Bytes(body)}
	}
	noName := func(_ context.Context, addr string) error {
		if addr == "s1.sim:80" || addr == "s2.sim:80" {
			return &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: addr, IsNotFound: true}}
		}
		return nil
	}
	hangs := func(ctx context.Context, addr string) error { // the resolver does not answer
		if addr == "s1.sim:80" || addr == "s2.sim:80" {
			<-ctx.Done()
			return &net.OpError{Op: "dial", Err: &net.DNSError{Err: "i/o timeout", Name: addr, IsTimeout: true}}
		}
		return nil
	}
	hole := func(t *testing.T, g *gateway) {
		g.net.BlackHole("s1.sim:80")
		g.net.BlackHole("s2.sim:80")
	}
	deaf := func(t *testing.T, g *gateway) { // takes connections and says nothing
		for _, addr := range []string{"s1.sim:443", "s2.sim:443"} {
			l := g.listen(addr)
			t.Cleanup(func() { l.Close() })
		}
	}
	for _, f := range []fault{
		{name: "F01 nobody listens", kind: "refused", status: 502, code: "upstream_refused", took: quick, says: "nothing listens", blames: true},
		{name: "F02 a black hole", set: hole, kind: "refused", status: 502, code: "upstream_refused", took: 2*time.Second + quick, says: "within 2s", blames: true},
		{name: "F02 a black hole, and no content in time", set: hole, member: ", limits: {connect: 5s}", kind: "slow", status: 504, code: "upstream_slow", took: 2*time.Second + quick, blames: true},
		{name: "F03 no such name", dial: noName, kind: "refused", status: 502, code: "upstream_refused", took: quick, says: "no address under its name", blames: true},
		{name: "F03 a resolver that hangs", dial: hangs, kind: "refused", status: 502, code: "upstream_refused", took: 2*time.Second + quick, blames: true},
		{name: "F05 a TLS handshake that hangs", set: deaf, scheme: "https", kind: "refused", status: 502, code: "upstream_refused", took: 2*time.Second + quick, says: "within 2s", blames: true},
		{name: "F06 500", b: status(500), kind: "refused", tries: 1, status: 502, code: "upstream_refused", took: quick, says: "status 500", blames: true},
		{name: "F06 502", b: status(502), kind: "refused", tries: 1, status: 502, took: quick, blames: true},
		{name: "F06 504", b: status(504), kind: "refused", tries: 1, status: 502, took: quick, blames: true},
		{name: "F06 503 without a time", b: status(503), kind: "unavailable", tries: 2, status: 503, code: "upstream_unavailable", after: "1", took: 350 * time.Millisecond, says: "overloaded", blames: true},
		{name: "F06 503 soon", b: &sim.Behaviour{Status: 503, RetryAfter: "1"}, kind: "unavailable", tries: 2, status: 503, after: "1", took: time.Second + quick, blames: true},
		{name: "F06 503 late", b: &sim.Behaviour{Status: 503, RetryAfter: "40"}, kind: "unavailable", tries: 1, status: 503, after: "40", took: quick, blames: true},
		{name: "F06 503, loading", b: &sim.Behaviour{Loading: 1000 * time.Hour}, kind: "loading", tries: 1, status: 503, code: "model_loading", after: "1", took: quick},
		{name: "F07 429 without a time", b: status(429), kind: "busy", tries: 2, status: 429, code: "upstream_busy", after: "1", took: 350 * time.Millisecond, says: "rate limit"},
		{name: "F07 429 soon", b: &sim.Behaviour{Status: 429, RetryAfter: "2"}, kind: "busy", tries: 2, status: 429, after: "2", took: 2*time.Second + quick},
		{name: "F07 429 late", b: &sim.Behaviour{Status: 429, RetryAfter: "5"}, kind: "busy", tries: 1, status: 429, after: "5", took: quick},
		{name: "F07 429, milliseconds", b: &sim.Behaviour{Status: 429, RetryAfterMS: "4200", RetryAfter: "1"}, kind: "busy", tries: 1, status: 429, after: "5", took: quick},
		{name: "F07 429, a date", b: &sim.Behaviour{Status: 429, RetryAfter: "Wed, 21 Oct 2099 07:28:00 GMT"}, kind: "busy", tries: 1, status: 429, after: "60", took: quick},
		{name: "F09 401", b: status(401), kind: "denied", tries: 1, status: 502, code: "upstream_denied", took: quick, says: "incorrect API key", alert: "denied"},
		{name: "F09 403", b: status(403), kind: "denied", tries: 1, status: 502, code: "upstream_denied", took: quick, alert: "denied"},
		{name: "F09 402", b: status(402), kind: "denied", tries: 1, status: 502, took: quick, alert: "denied"},
		{name: "F09 429 that is about money", b: words(429, `{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}`), kind: "denied", tries: 1, status: 502, took: quick, alert: "denied"},
		{name: "404", b: status(404), kind: "gone", tries: 1, status: 502, code: "upstream_gone", took: quick, says: "does not exist", alert: "gone"},
		{name: "F10 529", b: status(529), kind: "busy", tries: 2, status: 429, after: "1", took: 350 * time.Millisecond},
		{name: "F10 overloaded_error", b: words(529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), kind: "busy", tries: 2, status: 429, after: "1", took: 350 * time.Millisecond, says: "Overloaded"},
		{name: "F11 a page", b: &sim.Behaviour{HTML: true}, kind: "refused", tries: 1, status: 502, took: quick, says: "text/html", blames: true},
		{name: "F11 a page without its type", b: &sim.Behaviour{Headers: map[string]string{"Content-Type": "application/json"}, Body: "<html>Log in</html>"}, kind: "refused", tries: 1, status: 502, took: quick, blames: true},
		{name: "C093 a 200 that is no valid JSON", b: &sim.Behaviour{Headers: map[string]string{"Content-Type": "application/json"}, Body: `{"id": nope`}, kind: "refused", tries: 1, status: 502, took: quick, blames: true},
		{name: "F12 no body", b: &sim.Behaviour{NoBody: true}, kind: "refused", tries: 1, status: 502, took: quick, blames: true},
		{name: "F13 a redirect", b: &sim.Behaviour{Redirect: "http://ok.sim/v1/chat/completions"}, kind: "refused", tries: 1, status: 502, took: quick, says: "307", blames: true},
		{name: "F14 more 103 than Weir takes", b: &sim.Behaviour{EarlyHints: 500}, kind: "refused", tries: 1, status: 502, took: quick, blames: true},
		{name: "F14 a header of 1 MiB", b: &sim.Behaviour{HeaderBytes: 1 << 20}, kind: "refused", tries: 1, status: 502, took: quick, blames: true},
		{name: "F16 reset after the request", b: &sim.Behaviour{Drop: "rst"}, kind: "refused", tries: 1, status: 502, code: "upstream_refused", took: quick, says: "without an answer", blames: true},
		{name: "F16 closed after the request", b: &sim.Behaviour{Drop: "fin"}, kind: "refused", tries: 1, status: 502, took: quick, blames: true},
		{name: "F17 never an answer", b: &sim.Behaviour{Hang: true}, kind: "slow", tries: 1, status: 504, code: "upstream_slow", took: 2*time.Second + 100*time.Millisecond, says: "no content within", blames: true},
		{name: "F17 headers and no content", b: &sim.Behaviour{FirstDelay: time.Hour, Ping: 500 * time.Millisecond}, kind: "slow", tries: 1, status: 504, took: 2*time.Second + 100*time.Millisecond, blames: true},
		{name: "no HTTP", b: &sim.Behaviour{Raw: "SSH-2.0-OpenSSH_9.9\r\n"}, kind: "refused", tries: 1, status: 502, took: quick, blames: true},
	} {
		t.Run(f.name, f.run)
	}
}
