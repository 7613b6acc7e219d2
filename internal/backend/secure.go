package backend

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// send sends the request over plain HTTP or, for https and proxies, through net/http's Transport.
func (b *Backend) send(ctx context.Context, o *outgoing, f *flight) (head, error) {
	if b.plain != nil {
		h, err := b.plain.send(ctx, o, f)
		o.body.written.Store(true) // or will never be: nobody reads it any more
		return h, err
	}
	if err := b.inside(ctx); err != nil {
		return head{}, err
	}
	if o.fresh {
		b.transport.CloseIdleConnections()
	}
	var replied, begun atomic.Bool
	var conn httptrace.GotConnInfo
	var got atomic.Bool
	trace := &httptrace.ClientTrace{
		GotConn:              func(i httptrace.GotConnInfo) { conn = i; got.Store(true) },
		WroteHeaders:         func() { begun.Store(true) },
		WroteRequest:         func(i httptrace.WroteRequestInfo) { o.body.written.Store(i.Err == nil) },
		GotFirstResponseByte: func() { replied.Store(true) },
	}
	req := b.request(httptrace.WithClientTrace(ctx, trace), o)
	if err := b.proxied(req); err != nil {
		return head{}, err
	}
	resp, err := b.transport.RoundTrip(req)
	f.got, f.begun, f.replied = got.Load(), begun.Load(), replied.Load()
	f.reused = f.got && conn.Reused
	if err != nil {
		return head{}, err
	}
	return head{status: resp.StatusCode, header: resp.Header, length: resp.ContentLength, body: resp.Body}, nil
}

// request builds the request for Transport.
func (b *Backend) request(ctx context.Context, o *outgoing) *http.Request {
	h := http.Header{
		"Accept": {o.accept()}, "User-Agent": {b.Agent}, "X-Weir-Hop": {b.hops(o)},
	}
	if o.id != "" {
		h["X-Request-Id"] = []string{o.id}
	}
	if o.trace != "" {
		h["Traceparent"] = []string{o.trace}
	}
	for _, l := range o.lines {
		h[http.CanonicalHeaderKey(l.Name)] = []string{l.Value}
	}
	if o.key != "" {
		h.Set(b.keyHeader(), o.key)
	}
	u, kind := o.at()
	h["Content-Type"] = []string{kind}
	if o.query != "" {
		with := *u
		with.RawQuery, u = o.query, &with
	}
	req := (&http.Request{
		Method: http.MethodPost, URL: u, Host: u.Host, Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	// NopCloser over a bytes.Reader is what Transport knows as being in memory: head and body leave in one write.
	// GetBody stays nil: with it a POST could be sent twice behind our back.
	req.Body, req.ContentLength = io.NopCloser(o.body.reader()), o.body.length()
	return req
}
