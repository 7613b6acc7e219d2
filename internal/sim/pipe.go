package sim

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// socketBuffer is how many bytes one direction of an in-memory connection holds
// before a writer blocks, about what a kernel gives a loopback socket.
const socketBuffer = 64 << 10

// backlog is how many connections may wait in a listener for Accept.
const backlog = 4096

// Net is a network in memory: listeners by address, and a DialContext that finds
// them. Its connections behave like TCP over loopback (buffered, deadlines, half
// close, reset) and block on nothing but channels and conditions, so that servers
// and clients on them run inside a testing/synctest bubble. Make it inside the
// bubble that uses it. It is safe for concurrent use.
type Net struct {
	mu        sync.Mutex // guards the fields below
	listeners map[string]*Listener
	holes     map[string]bool
	port      int
}

// NewNet returns an empty network: every dial on it is refused until someone listens.
func NewNet() *Net {
	return &Net{listeners: map[string]*Listener{}, holes: map[string]bool{}, port: 40000}
}

// Listen starts to listen on addr, a host and port as in net.Listen. Port 0 takes
// the next free port. The host may be any name: it is only compared. It fails when
// the address is taken.
func (n *Net) Listen(addr string) (*Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("listen on the in-memory network: %w", err)
	}
	num, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("listen on the in-memory network: port %q: %w", port, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if num == 0 {
		num = n.nextPort()
	}
	key := place(net.JoinHostPort(host, strconv.Itoa(num)))
	if n.listeners[key] != nil {
		return nil, opError("listen", nil, nil, syscall.EADDRINUSE)
	}
	l := &Listener{net: n, key: key, addr: loopback(num), queue: make(chan *conn, backlog), done: make(chan struct{})}
	n.listeners[key] = l
	return l, nil
}

// place is the key of an address: the names of this machine are one.
func place(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err == nil && (host == "" || host == "localhost" || host == "0.0.0.0") {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

// BlackHole makes every dial to addr wait until its context ends, as a host that
// drops packets does.
func (n *Net) BlackHole(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.holes[place(addr)] = true
}

// DialContext connects to the listener at addr. It is refused (ECONNREFUSED) when
// nobody listens there, and waits for ctx at a black hole.
func (n *Net) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	n.mu.Lock()
	l, hole, port := n.listeners[place(addr)], n.holes[place(addr)], n.nextPort()
	n.mu.Unlock()
	if hole {
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: network, Err: context.Cause(ctx)}
	}
	if err := ctx.Err(); err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	if l == nil {
		return nil, opError("dial", nil, nil, syscall.ECONNREFUSED)
	}
	client, server := pair(loopback(port), l.addr)
	if !l.put(server) {
		return nil, opError("dial", nil, l.addr, syscall.ECONNREFUSED)
	}
	return client, nil
}

// Transport returns a new HTTP transport that dials on n and nowhere else. The
// caller closes its idle connections.
func (n *Net) Transport() *http.Transport {
	return &http.Transport{DialContext: n.DialContext, DisableCompression: true}
}

// nextPort hands out port numbers; n.mu is held.
func (n *Net) nextPort() int {
	n.port++
	return n.port
}

// Listener is one address of a Net.
type Listener struct {
	net   *Net
	key   string
	addr  *net.TCPAddr
	queue chan *conn
	done  chan struct{}

	mu     sync.Mutex // guards closed, so that no connection enters the queue after it was drained
	closed bool
}

var _ net.Listener = (*Listener)(nil)

// Accept returns the next connection, or net.ErrClosed once the listener is closed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	}
}

// Close frees the address and resets the connections that nobody accepted.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	close(l.done)
	l.net.mu.Lock()
	delete(l.net.listeners, l.key)
	l.net.mu.Unlock()
	for {
		select {
		case c := <-l.queue:
			_ = c.SetLinger(0)
			_ = c.Close()
		default:
			return nil
		}
	}
}

// Addr returns the address to dial: a *net.TCPAddr, but for a host that is a name.
func (l *Listener) Addr() net.Addr {
	if l.key == l.addr.String() {
		return l.addr
	}
	return named(l.key)
}

// named is the address of a listener on a name.
type named string

func (named) Network() string  { return "tcp" }
func (n named) String() string { return string(n) }

func (l *Listener) put(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	select {
	case l.queue <- c:
		return true
	default:
		return false
	}
}

// conn is one end of an in-memory connection.
type conn struct {
	in, out       *stream
	local, remote *net.TCPAddr

	mu     sync.Mutex // guards linger
	linger int
}

var _ net.Conn = (*conn)(nil)

func pair(client, server *net.TCPAddr) (*conn, *conn) {
	up, down := newStream(), newStream()
	return &conn{in: down, out: up, local: client, remote: server, linger: -1},
		&conn{in: up, out: down, local: server, remote: client, linger: -1}
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	if err != nil && err != io.EOF {
		err = opError("read", c.local, c.remote, err)
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	if err != nil {
		err = opError("write", c.local, c.remote, err)
	}
	return n, err
}

// Close ends both directions: the peer reads what was written, then the end, and
// its writes fail. After SetLinger(0) the peer sees a reset instead of the end.
func (c *conn) Close() error {
	c.mu.Lock()
	reset := c.linger == 0
	c.mu.Unlock()
	c.out.closeWrite(reset)
	c.in.closeRead()
	return nil
}

// CloseWrite is a half close: the peer reads the end and can still be read from.
func (c *conn) CloseWrite() error {
	c.out.closeWrite(false)
	return nil
}

// SetLinger is as on a net.TCPConn: 0 makes Close a reset.
func (c *conn) SetLinger(sec int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.linger = sec
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readBy, t)
	c.out.setDeadline(&c.out.writeBy, t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readBy, t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.writeBy, t)
	return nil
}

// stream is one direction of a connection.
type stream struct {
	mu      sync.Mutex // guards the fields below
	change  sync.Cond
	buf     bytes.Buffer
	ended   bool // the writer closed
	reset   bool // the writer closed with a reset
	unread  bool // the reader closed
	readBy  deadline
	writeBy deadline
}

type deadline struct {
	at    time.Time
	timer *time.Timer
}

func newStream() *stream {
	s := &stream{}
	s.change.L = &s.mu
	return s
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.unread:
			return 0, net.ErrClosed
		case s.readBy.passed():
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		case s.buf.Len() > 0:
			n, err := s.buf.Read(p)
			s.change.Broadcast()
			return n, err
		case s.reset:
			return 0, os.NewSyscallError("read", syscall.ECONNRESET)
		case s.ended:
			return 0, io.EOF
		}
		s.change.Wait()
	}
}

func (s *stream) write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := 0
	for {
		switch {
		case s.ended:
			return done, net.ErrClosed
		case s.unread:
			return done, os.NewSyscallError("write", syscall.EPIPE)
		case s.writeBy.passed():
			return done, os.ErrDeadlineExceeded
		case done == len(p):
			return done, nil
		}
		if room := socketBuffer - s.buf.Len(); room > 0 {
			n, _ := s.buf.Write(p[done:min(len(p), done+room)])
			done += n
			s.change.Broadcast()
			continue
		}
		s.change.Wait()
	}
}

func (s *stream) closeWrite(reset bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended, s.reset = true, reset
	}
	s.writeBy.stop()
	s.change.Broadcast()
}

func (s *stream) closeRead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unread = true
	s.buf.Reset()
	s.readBy.stop()
	s.change.Broadcast()
}

func (s *stream) setDeadline(d *deadline, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.stop()
	d.at = t
	if wait := time.Until(t); !t.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.change.Broadcast()
		})
	}
	s.change.Broadcast()
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

func loopback(port int) *net.TCPAddr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port} }

func opError(op string, source, addr *net.TCPAddr, err error) error {
	if no, ok := err.(syscall.Errno); ok {
		err = os.NewSyscallError(op, no)
	}
	e := &net.OpError{Op: op, Net: "tcp", Err: err}
	if source != nil { // a nil pointer in the interface would make Error panic
		e.Source = source
	}
	if addr != nil {
		e.Addr = addr
	}
	return e
}
