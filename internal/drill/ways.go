package drill

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// way is what happens between the gateway and a server that fails.
type way uint8

const (
	open       way = iota
	closed         // nobody listens
	hole           // packets are lost: neither yes nor no
	noName         // the name has no address
	selfSigned     // TLS with a certificate that nobody vouches for
	expired
	wrongName
	mute    // accepts, and says nothing in the handshake
	panics  // a fault inside the gateway itself, when it dials
	panicky // the same, while it reads
)

// ways dials for the gateway, and counts what never reached a server.
type ways struct {
	way   way
	from  int // panicky: at this read
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	hosts map[string]bool // those that fail
	off   atomic.Bool     // all is well again

	mu      sync.Mutex // guards the fields below
	dialed  map[string]int
	strange bool // a host that no backend has
}

func (w *ways) dialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, _ := strings.Cut(addr, ":")
	name := strings.TrimSuffix(host, domain)
	if _, known := w.hosts[name]; !known {
		w.mu.Lock()
		w.strange = true
		w.mu.Unlock()
	}
	if !w.hosts[name] || w.way == open || w.off.Load() {
		return w.dial(ctx, network, addr)
	}
	if w.way != panicky {
		w.mu.Lock()
		w.dialed[name]++
		w.mu.Unlock()
	}
	switch w.way {
	case closed:
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	case hole:
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: network, Err: context.Cause(ctx)}
	case noName:
		return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}}
	case panics:
		panic("drill: a planned fault inside the gateway")
	}
	c, err := w.dial(ctx, network, addr)
	if err == nil && w.way == panicky {
		c = &jumpy{Conn: c, left: w.from}
	}
	return c, err
}

// failed returns how many dials never came to a call.
func (w *ways) failed() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.dialed {
		n += d
	}
	return n
}

// jumpy is a connection whose reader panics.
type jumpy struct {
	net.Conn
	left int
}

// Read panics once its time has come.
func (j *jumpy) Read(p []byte) (int, error) {
	if j.left--; j.left == 0 {
		panic("drill: a planned fault inside the gateway")
	}
	return j.Conn.Read(p)
}

// papers are the certificates of a drill.
type papers struct {
	ca    string // file
	certs map[way]tls.Certificate
}

// secure is how a server that fails speaks TLS.
type secure struct {
	ca   string // that the gateway is told to trust; empty: those of the system
	cert *tls.Certificate
}

// newPapers makes an authority and certificates with faults, valid for this drill alone.
func newPapers(folder string) (*papers, error) {
	p := &papers{ca: filepath.Join(folder, "ca.pem"), certs: map[way]tls.Certificate{}}
	now := time.Now()
	root := &x509.Certificate{Subject: pkix.Name{CommonName: "weir drill"}, NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	authority, err := certify(root, nil)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(p.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate[0]}), 0o600); err != nil {
		return nil, err
	}
	for w, t := range map[way]*x509.Certificate{
		selfSigned: {NotAfter: now.Add(24 * time.Hour), DNSNames: []string{"*" + domain}},
		expired:    {NotAfter: now.Add(-time.Hour), DNSNames: []string{"*" + domain}},
		wrongName:  {NotAfter: now.Add(24 * time.Hour), DNSNames: []string{"other.example"}},
	} {
		t.Subject, t.NotBefore = pkix.Name{CommonName: "weir drill server"}, now.Add(-24*time.Hour)
		t.KeyUsage, t.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		by := &authority
		if w == selfSigned {
			by = nil
		}
		if p.certs[w], err = certify(t, by); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// certify signs a certificate, by itself where by is nil.
func certify(t *x509.Certificate, by *tls.Certificate) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t.SerialNumber = big.NewInt(time.Now().UnixNano())
	parent, signer := t, any(key)
	if by != nil {
		if parent, err = x509.ParseCertificate(by.Certificate[0]); err != nil {
			return tls.Certificate{}, err
		}
		signer = by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, signer)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// of returns how servers speak TLS on a way; nil: they do not.
func (p *papers) of(w way) *secure {
	switch w {
	case selfSigned:
		c := p.certs[w]
		return &secure{cert: &c}
	case expired, wrongName:
		c := p.certs[w]
		return &secure{ca: p.ca, cert: &c}
	case mute:
		return &secure{}
	}
	return nil
}

// listener speaks TLS on l, or says nothing at all.
func (s *secure) listener(l net.Listener) net.Listener {
	if s.cert == nil {
		return silent{l}
	}
	return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*s.cert}, MinVersion: tls.VersionTLS12})
}

// silent accepts connections of which nothing is ever read or answered.
type silent struct{ net.Listener }

// Accept returns the next connection, deaf and mute.
func (s silent) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &deaf{Conn: c, gone: make(chan struct{})}, nil
}

// deaf is a connection that keeps its reader waiting until it is closed.
type deaf struct {
	net.Conn
	once sync.Once
	gone chan struct{}
}

// Read waits for the end.
func (d *deaf) Read([]byte) (int, error) {
	<-d.gone
	return 0, io.EOF
}

// SetReadDeadline of the past is how net/http ends a read.
func (d *deaf) SetReadDeadline(t time.Time) error {
	if !t.IsZero() && t.Before(time.Now()) {
		d.once.Do(func() { close(d.gone) })
	}
	return d.Conn.SetReadDeadline(t)
}

// Close ends the wait.
func (d *deaf) Close() error {
	d.once.Do(func() { close(d.gone) })
	return d.Conn.Close()
}
