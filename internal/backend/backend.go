// Package backend makes one upstream call: the connection, the headers, the limits on first content, silence and the
// whole, and the reading of what an upstream says into kinds of failure.
package backend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/llm"
)

// Dialect writes requests for an upstream and follows its answers. Implementations are safe for concurrent use.
type Dialect interface {
	// Path returns the path of an operation under a base URL without /v1.
	Path(llm.Op) string
	// Edits returns the changes to the client's body that the target wants.
	Edits(*llm.Request, *llm.Target) (*llm.Edits, error)
	// Stream returns what turns the upstream's stream into the client's.
	Stream(r *llm.Request, model string) llm.Stream
	// Whole checks a whole answer and returns it as the client gets it.
	Whole(r *llm.Request, model string, body []byte, encode bool) ([]byte, llm.Seen, error)
}

// Options describe a backend. All durations are positive.
type Options struct {
	Name     string
	URL      string // base; a trailing /v1 is taken off
	Server   string // what answers there, see status.go
	Tier     string
	Outside  bool
	Dialect  Dialect
	Key      func() (string, error)                                            // nil: no key
	Header   string                                                            // that carries the key; empty: Authorization, as a bearer
	Stream   string                                                            // always, auto, as_asked
	Target   llm.Target                                                        // habits of the server; model and stream are set per call
	Connect  time.Duration                                                     // to open a connection, TLS included
	IdleConn time.Duration                                                     // how long an unused connection is kept
	Conns    int                                                               // unused connections kept: as many as the caps of its pools together
	Roots    *x509.CertPool                                                    // nil: the system's
	Proxy    bool                                                              // use the proxy named in the environment
	Dial     func(ctx context.Context, network, addr string) (net.Conn, error) // nil: the network
	Agent    string                                                            // User-Agent
	Hop      string                                                            // value of X-Weir-Hop: this instance
}

// Backend is one upstream base URL with its connections. It is safe for concurrent use; Close it when it is dropped.
type Backend struct {
	Options
	transport *http.Transport
	requests  [8]*http.Request // by operation: what all requests share
	agent     []string
	hop       []string
	bearer    atomic.Pointer[bearer]
	noStream  sync.Map // models that refused to stream
	noBase64  atomic.Bool
}

// bearer is the header of the key that was read last.
type bearer struct {
	key    string
	header []string
}

// New returns a backend. It opens no connection.
func New(o Options) (*Backend, error) {
	base, err := url.Parse(o.URL)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("backend %s: %q is no URL", o.Name, o.URL)
	}
	b := &Backend{Options: o, agent: []string{o.Agent}, hop: []string{o.Hop}}
	path := strings.TrimSuffix(strings.TrimRight(base.Path, "/"), "/v1")
	for op := llm.Chat; op <= llm.Rerank; op++ {
		u := *base
		u.Path = path + o.Dialect.Path(op)
		b.requests[op] = &http.Request{
			Method: http.MethodPost, URL: &u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		}
	}
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	b.transport = &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, o.Connect)
			defer cancel()
			c, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &conn{Conn: c}, nil
		},
		TLSClientConfig:        &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    o.Connect,
		MaxIdleConns:           0,
		MaxIdleConnsPerHost:    max(o.Conns, 2),
		IdleConnTimeout:        o.IdleConn,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 256 << 10,
		WriteBufferSize:        16 << 10,
	}
	if o.Proxy {
		b.transport.Proxy = http.ProxyFromEnvironment
	}
	return b, nil
}

// Close drops the unused connections. Running calls go on.
func (b *Backend) Close() { b.transport.CloseIdleConnections() }

// Streams reports whether a call for r is streamed upstream.
func (b *Backend) Streams(r *llm.Request, model string) bool {
	switch {
	case !r.Op.Generates():
		return false
	case r.Stream:
		return true
	case b.Stream == "always":
		return true
	case b.Stream == "auto" && !r.Whole:
		_, refused := b.noStream.Load(model)
		return !refused
	}
	return false
}
