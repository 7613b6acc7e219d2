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
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/llm"
)

// Dialect writes requests for an upstream and follows its answers. Implementations are safe for concurrent use.
type Dialect interface {
	llm.Dialect
	// Path returns the path of an operation under a base URL without /v1, empty where the dialect has none for it.
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
	Also     []Dialect                                                         // that the server speaks too: their clients' bytes are passed on
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
	ServedIn string                                                            // header of answers that names the model that served; empty: the answer itself does
}

// Backend is one upstream base URL with its connections. It is safe for concurrent use; Close it when it is dropped.
type Backend struct {
	Options
	transport *http.Transport
	plain     *plain   // plain HTTP; nil where TLS or a proxy is needed
	spoken    []spoken // the backend's own dialect first
	noStream  sync.Map // models that refused to stream
	noBase64  atomic.Bool
	noCount   atomic.Bool // its counter of tokens is not there
}

// New returns a backend. It opens no connection.
func New(o Options) (*Backend, error) {
	base, err := url.Parse(o.URL)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("backend %s: %q is no URL", o.Name, o.URL)
	}
	b := &Backend{Options: o}
	for _, d := range append([]Dialect{o.Dialect}, o.Also...) {
		b.spoken = append(b.spoken, b.speak(d, base))
	}
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	connect := b.guard(address(base), func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, o.Connect)
		defer cancel()
		return dial(ctx, network, addr)
	})
	if base.Scheme == "http" && !o.Proxy {
		b.plain = b.newPlain(base, connect)
		return b, nil
	}
	b.transport = &http.Transport{
		DialContext:            connect,
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
func (b *Backend) Close() {
	if b.plain != nil {
		b.plain.close()
		return
	}
	b.transport.CloseIdleConnections()
}

// address returns where a backend is dialled.
func address(base *url.URL) string {
	port := base.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[base.Scheme]
	}
	return net.JoinHostPort(base.Hostname(), port)
}

func (b *Backend) newPlain(base *url.URL, dial dialer) *plain {
	addr := address(base)
	return &plain{
		dial: func(ctx context.Context) (net.Conn, error) { return dial(ctx, "tcp", addr) },
		keep: b.IdleConn, most: max(b.Conns, 2), backend: b,
	}
}

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
