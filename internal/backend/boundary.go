package backend

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"weir/internal/llm"
)

// A local call stays on the machines you own. Plans hold no step outside for it, so what stands here never speaks unless
// a plan is wrong. It is asked at every place where bytes could leave: before the call, before a connection is taken from
// the unused ones, before net/http is asked for one, and by what dials. The three behind the first know of the call by
// its context alone, so that no code between them can forget it.

// localKey marks the context of a local call.
type localKey struct{}

// localContext returns a context for a call that may not leave the machines you own.
func localContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, localKey{}, true)
}

// isLocal reports whether ctx is that of a call that may not leave the machines you own.
func isLocal(ctx context.Context) bool { return ctx.Value(localKey{}) != nil }

// errBoundary is the refusal of a local call whose way leads outside.
func errBoundary(msg string) error {
	return &llm.Error{Kind: llm.None, Op: "backend.Call", Code: "boundary", Final: true, Msg: msg}
}

const (
	msgOutside = "this request may not leave the machines you own, and the model's server is not one of them"
	msgProxy   = "this request may not leave the machines you own, and the way to the model's server leads through a proxy on another machine"
)

// inside refuses a local call of a backend that is outside.
func (b *Backend) inside(ctx context.Context) error {
	if b.Outside && isLocal(ctx) {
		return errBoundary(msgOutside)
	}
	return nil
}

// guard makes a dialer that refuses for local calls: all of them where the backend is outside, and where it is inside
// those that would go to another machine than own, which is a proxy.
func (b *Backend) guard(own string, dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if err := b.inside(ctx); err != nil {
			return nil, err
		}
		if b.Proxy && !strings.EqualFold(addr, own) && isLocal(ctx) {
			if host, _, err := net.SplitHostPort(addr); err != nil || !onThisMachine(host) {
				return nil, errBoundary(msgProxy)
			}
		}
		return dial(ctx, network, addr)
	}
}

// dialer opens a connection.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// proxied refuses a local call that net/http would send through a proxy on another machine: it may have a connection to
// it already, for which nobody dials.
func (b *Backend) proxied(req *http.Request) error {
	if b.transport.Proxy == nil || !isLocal(req.Context()) {
		return nil
	}
	if u, err := b.transport.Proxy(req); err != nil || u != nil && !onThisMachine(u.Hostname()) {
		return errBoundary(msgProxy)
	}
	return nil
}

// onThisMachine reports whether a host is a loopback name or address.
func onThisMachine(host string) bool {
	host = strings.ToLower(host)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && ip.Unmap().IsLoopback()
}
