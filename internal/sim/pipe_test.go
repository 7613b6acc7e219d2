package sim

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// ends returns the two ends of a fresh connection.
func ends(t *testing.T) (client, server net.Conn) {
	t.Helper()
	n := NewNet()
	l, err := n.Listen("gateway:80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	client, err = n.DialContext(t.Context(), "tcp", "gateway:80")
	if err != nil {
		t.Fatal(err)
	}
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func TestConnCarriesMoreThanItsBuffer(t *testing.T) {
	client, server := ends(t)
	want := make([]byte, 5*socketBuffer+7)
	_, _ = rand.Read(want)
	go func() {
		_, _ = client.Write(want)
		_ = client.Close()
	}()
	got, err := io.ReadAll(server)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %d bytes, %v; want the %d written", len(got), err, len(want))
	}
}

func TestConnEndsAsTCPDoes(t *testing.T) {
	read := func(c net.Conn) error { _, err := c.Read(make([]byte, 1)); return err }
	write := func(c net.Conn) error { _, err := c.Write([]byte("x")); return err }
	tests := []struct {
		name string
		do   func(client, server *conn)
		then func(net.Conn) error
		want error
	}{
		{"a closed peer reads as the end", func(c, _ *conn) { c.Close() }, read, io.EOF},
		{"a closed peer cannot be written to", func(c, _ *conn) { c.Close() }, write, syscall.EPIPE},
		{"a half close reads as the end", func(c, _ *conn) { c.CloseWrite() }, read, io.EOF},
		{"a half closed peer can be written to", func(c, _ *conn) { c.CloseWrite() }, write, nil},
		{"a reset peer reads as a reset", func(c, _ *conn) { c.SetLinger(0); c.Close() }, read, syscall.ECONNRESET},
		{"a read after the own close fails", func(_, s *conn) { s.Close() }, read, net.ErrClosed},
		{"a write after the own close fails", func(_, s *conn) { s.Close() }, write, net.ErrClosed},
		{"a read past its deadline fails", func(_, s *conn) { s.SetReadDeadline(time.Unix(1, 0)) }, read, os.ErrDeadlineExceeded},
		{"a write past its deadline fails", func(_, s *conn) { s.SetDeadline(time.Unix(1, 0)) }, write, os.ErrDeadlineExceeded},
		{"a deadline taken back does not hold", func(c, s *conn) {
			s.SetReadDeadline(time.Unix(1, 0))
			s.SetReadDeadline(time.Time{})
			c.Write([]byte("x"))
		}, read, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client, server := ends(t)
			tt.do(client.(*conn), server.(*conn))
			if got := tt.then(server); !errors.Is(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestConnKeepsWhatWasWrittenBeforeAReset(t *testing.T) {
	client, server := ends(t)
	_, _ = client.Write([]byte("last words"))
	_ = client.(*conn).SetLinger(0)
	_ = client.Close()
	got, err := io.ReadAll(server)
	if string(got) != "last words" || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %q, %v; want the last words, then a reset", got, err)
	}
}

func TestConnDeadlineWakesInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := ends(t)
		start := time.Now()
		_ = server.SetReadDeadline(start.Add(3 * time.Second))
		_, err := server.Read(make([]byte, 1))
		var ne net.Error
		if !errors.As(err, &ne) || !ne.Timeout() || time.Since(start) != 3*time.Second {
			t.Errorf("read: %v after %v, want a timeout after 3s", err, time.Since(start))
		}
		_ = client.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := client.Write(make([]byte, 2*socketBuffer))
		if n != socketBuffer || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write to a peer that does not read: %d, %v; want %d and a timeout", n, err, socketBuffer)
		}
	})
}

func TestConnLooksLikeLoopback(t *testing.T) {
	client, server := ends(t)
	for _, c := range []net.Conn{client, server} {
		for _, a := range []net.Addr{c.LocalAddr(), c.RemoteAddr()} {
			if tcp, ok := a.(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() || tcp.Port == 0 {
				t.Errorf("address %v, want 127.0.0.1 and a port", a)
			}
		}
	}
	if client.LocalAddr().String() != server.RemoteAddr().String() {
		t.Errorf("the ends disagree: %v and %v", client.LocalAddr(), server.RemoteAddr())
	}
}

func TestNetRefusesWhereNobodyListens(t *testing.T) {
	n := NewNet()
	dial := func() error {
		c, err := n.DialContext(t.Context(), "tcp", "backend:1")
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := dial(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody listens: %v, want refused", err)
	}
	l, err := n.Listen("backend:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Listen("backend:1"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("second listener: %v, want address in use", err)
	}
	if err := dial(); err != nil {
		t.Errorf("a listener that does not accept: %v, want a connection", err)
	}
	_ = l.Close()
	_ = l.Close()
	if err := dial(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after Close: %v, want refused", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v, want net.ErrClosed", err)
	}
}

func TestListenerCloseResetsTheUnaccepted(t *testing.T) {
	n := NewNet()
	l, _ := n.Listen("backend:1")
	c, err := n.DialContext(t.Context(), "tcp", "backend:1")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
	_ = c.Close()
}

func TestNetBlackHoleWaitsForTheDialer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNet()
		n.BlackHole("10.0.0.1:80")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		_, err := n.DialContext(ctx, "tcp", "10.0.0.1:80")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 2*time.Second {
			t.Errorf("got %v after %v, want the deadline after 2s", err, time.Since(start))
		}
	})
}

func TestListenerIsDialedByItsAddress(t *testing.T) {
	n := NewNet()
	for _, addr := range []string{"127.0.0.1:0", "localhost:8484", "backend-a:0", ":80"} {
		l, err := n.Listen(addr)
		if err != nil {
			t.Fatal(err)
		}
		c, err := n.DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Errorf("%s: dial %s: %v", addr, l.Addr(), err)
			continue
		}
		_ = c.Close()
		_ = l.Close()
	}
}
