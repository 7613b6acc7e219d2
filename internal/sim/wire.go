package sim

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// sever closes the connection, by a reset when how is rst.
func (p *player) sever(how string) error {
	p.settle()
	c, err := p.hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // not net/http's own server: the next best
	}
	p.shut(c, how)
	return errCut
}

func (p *player) hijack() (net.Conn, error) {
	c, _, err := http.NewResponseController(p.w).Hijack()
	if err != nil {
		return nil, err
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.hijacked[c] = true
	if p.s.closed {
		_ = c.Close()
	}
	return c, nil
}

func (p *player) shut(c net.Conn, how string) {
	if how == "rst" {
		under := c
		if t, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
			under = t.NetConn()
		}
		if l, ok := under.(interface{ SetLinger(int) error }); ok {
			_ = l.SetLinger(0)
		}
		_ = under.Close()
	}
	_ = c.Close()
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	delete(p.s.hijacked, c)
}

// raw writes the connection's bytes itself and then ends it.
func (p *player) raw(data []byte) error {
	c, err := p.hijack()
	if err != nil {
		return p.sever("fin")
	}
	how := "fin"
	defer func() { p.shut(c, how) }()
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() { // net/http no longer watches a hijacked connection
		defer close(watched)
		defer cancel()
		_, _ = io.Copy(io.Discard, c)
	}()
	defer func() {
		_ = c.SetReadDeadline(time.Unix(1, 0))
		<-watched
	}()
	p.ctx, p.out, p.flush = ctx, c, func() error { return nil }
	p.headSent(rawStatus(data))
	at := p.b.Cut
	p.b.Cut = nil
	if p.b.Slice == 0 && len(data) > 0 {
		p.b.Slice = len(data)
	}
	if at != nil {
		data = data[:min(len(data), at.After)]
	} else if p.b.SliceGap == 0 {
		p.settle()
	}
	if err := p.write(data); err != nil || at == nil {
		return err
	}
	if how = at.How; how == "stall" {
		return p.hold()
	}
	return errCut
}

func rawStatus(data []byte) int {
	_, rest, _ := bytes.Cut(data[:min(len(data), 64)], []byte(" "))
	n, _ := strconv.Atoi(string(rest[:min(len(rest), 3)]))
	return n
}
