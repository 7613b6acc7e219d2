package config

import (
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"os"
)

// outside checks what the file refers to: secrets and certificates. It reads them once; nothing is kept of a certificate.
func (f *findings) outside(c *Config) {
	for _, name := range sorted(c.Backends) {
		b, p := c.Backends[name], root("backends").key(name)
		f.secret(b.Key, p.key("key"))
		if b.CA != "" {
			f.authorities(c.Beside(b.CA), p.key("ca"))
		}
	}
	if c.TLS != nil && c.TLS.Cert != "" && c.TLS.Key != "" {
		f.certificate(c)
	}
}

// secret checks that a secret can be read now, and that its file is not open to everyone (S08, S09).
func (f *findings) secret(s Secret, p *path) {
	if s.IsZero() || f.bad[p.text] {
		return
	}
	if _, err := s.Value(); err != nil {
		f.fault(p, "%v", err)
		return
	}
	if s.src.file != "" {
		f.mode(s.src.file, p)
	}
}

// mode looks at who may read or change a file that holds a secret. 0640 is the widest that is passed in silence.
// Readable by others is a warning, since container platforms mount secrets so; writable by others is a fault.
func (f *findings) mode(file string, p *path) {
	info, err := os.Stat(file)
	if err != nil {
		return // told where it was read
	}
	switch mode := info.Mode().Perm(); {
	case mode&0o002 != 0:
		f.fault(p, "the file %s can be changed by every user (mode %04o): chmod 0600 it", file, mode)
	case mode&^fs.FileMode(0o740) != 0:
		f.warn(p, "the file %s is open to more users than it needs (mode %04o): chmod 0600 or 0640 it", file, mode)
	}
}

// authorities checks a file of trusted certificates.
func (f *findings) authorities(file string, p *path) {
	data, err := readRegular(file, maxFile)
	switch {
	case err != nil:
		f.fault(p, "the file %s cannot be read: %v", file, err)
	case !x509.NewCertPool().AppendCertsFromPEM(data):
		f.fault(p, "the file %s holds no PEM certificate", file)
	}
}

// certificate checks the certificate of the public listener.
func (f *findings) certificate(c *Config) {
	at := root("tls")
	read := func(key, file string) []byte {
		data, err := readRegular(file, maxFile)
		if err != nil {
			f.fault(at.key(key), "the file %s cannot be read: %v", file, err)
		}
		return data
	}
	keyFile := c.Beside(c.TLS.Key)
	cert, key := read("cert", c.Beside(c.TLS.Cert)), read("key", keyFile)
	if f.bad[at.key("cert").text] || f.bad[at.key("key").text] {
		return
	}
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		f.fault(at, "certificate and key do not go together: %v", err)
		return
	}
	f.mode(keyFile, at.key("key"))
}
