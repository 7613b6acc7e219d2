package app

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"weir/internal/discover"
)

// listenError says who could hold the port.
func listenError(field, addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s: %s is in use: %s; stop that program, or set another address under %s", field, addr, discover.Holder(addr), field)
	}
	if errors.Is(err, syscall.EACCES) {
		return fmt.Errorf("%s: this user may not listen on %s; take a port above 1023", field, addr)
	}
	return fmt.Errorf("%s: %w", field, err)
}

// certificate is the public listener's, read again when its files change. While the new files are no certificate the
// old one serves.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu    sync.Mutex // guards the fields below
	cert  *tls.Certificate
	stamp [2]time.Time
	next  time.Time // when to look at the files again
}

func newCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log}
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	return c, nil
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current(), nil }}
}

// current returns the certificate, after a look at the files at most once a second.
func (c *certificate) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.After(c.next) {
		c.next = now.Add(time.Second)
		if stamp := c.stamps(); stamp != c.stamp {
			if err := c.load(); err != nil {
				c.log.Error("the new TLS certificate cannot be used: the old one serves", "err", err)
				c.stamp = stamp
			}
		}
	}
	return c.cert
}

func (c *certificate) stamps() (s [2]time.Time) {
	for i, f := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(f); err == nil {
			s[i] = info.ModTime()
		}
	}
	return s
}

func (c *certificate) load() error {
	stamp := c.stamps()
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	c.cert, c.stamp = &cert, stamp
	return nil
}
