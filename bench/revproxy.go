package main

import (
	"context"
	"flag"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

func runRevproxy(ctx context.Context, args []string, _, stderr io.Writer) error {
	fs := flag.NewFlagSet("revproxy", flag.ContinueOnError)
	listen := fs.String("listen", "127.0.0.1:9010", "loopback address to listen on")
	upstream := fs.String("upstream", "127.0.0.1:9000", "loopback address to proxy to")
	if err := parseFlags(fs, args, stderr); err != nil {
		return err
	}
	if err := onLoopback(*upstream); err != nil {
		return usageError{err}
	}
	return serve(ctx, *listen, newRevproxy(*upstream))
}

// newRevproxy is what the standard library alone can do: no key, no limits, no
// events. Everything Weir costs beyond it is Weir's own. The sizes are those
// behind the reference figures of the limits, so change none of them alone. On more
// than one processor it can cut an answer that comes while its transport still
// looks for the end of the request's body; the benchmark gives it one.
func newRevproxy(upstream string) *httputil.ReverseProxy {
	target := &url.URL{Scheme: "http", Host: upstream}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1,
		BufferPool:    newCopyBuffers(8 << 10),
		Transport: &http.Transport{
			MaxIdleConns:        8192,
			MaxIdleConnsPerHost: 8192,
			IdleConnTimeout:     90 * time.Second,
			ReadBufferSize:      8 << 10,
			WriteBufferSize:     16 << 10,
			DisableCompression:  true,
		},
	}
}

// copyBuffers is the pool of buffers the reverse proxy copies bodies with.
type copyBuffers struct{ pool sync.Pool }

func newCopyBuffers(size int) *copyBuffers {
	return &copyBuffers{sync.Pool{New: func() any {
		b := make([]byte, size)
		return &b
	}}}
}

// Get returns a buffer for one copy.
func (c *copyBuffers) Get() []byte { return *c.pool.Get().(*[]byte) }

// Put takes a buffer back.
func (c *copyBuffers) Put(b []byte) { c.pool.Put(&b) }
