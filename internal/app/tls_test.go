package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/config"
	"weir/internal/sim"
)

// certify makes a certificate for 127.0.0.1 and a.sim that is its own authority.
func certify(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"a.sim"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

func write(t *testing.T, file string, data []byte, at time.Time) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, at, at); err != nil {
		t.Fatal(err)
	}
}

// The public listener speaks TLS, over HTTP/1.1 and HTTP/2, and takes a new certificate without a restart; files that
// are no certificate leave the old one in place.
func TestTLSWithReload(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	synctest.Test(t, func(t *testing.T) {
		stamp := time.Unix(1, 0)
		put := func(cert, key []byte) {
			stamp = stamp.Add(time.Second)
			write(t, certFile, cert, stamp)
			write(t, keyFile, key, stamp)
		}
		put(certify(t, "first"))
		logs := new(logged)
		g := begin(t, setup{tls: true, log: logs.handler(), sims: oai(sim.Behaviour{Text: "one two"}), edit: func(c *config.Config) {
			c.TLS = &config.TLS{Cert: certFile, Key: keyFile}
		}})
		served := func() string {
			g.client.CloseIdleConnections()
			time.Sleep(2 * time.Second)
			resp, err := g.open(t.Context(), "POST", "/v1/chat/completions", strings.NewReader(chatBody(true)))
			if err != nil {
				t.Fatal(err)
			}
			g.read(resp).text()
			return resp.TLS.PeerCertificates[0].Subject.CommonName
		}
		if got := served(); got != "first" {
			t.Errorf("the certificate is %q", got)
		}
		put(certify(t, "second"))
		if got := served(); got != "second" {
			t.Errorf("after a change of the files the certificate is %q", got)
		}
		put([]byte("no certificate"), []byte("no key"))
		if got := served(); got != "second" || !strings.Contains(logs.String(), "the old one serves") {
			t.Errorf("after broken files the certificate is %q, log %s", got, logs.String())
		}
		put(certify(t, "third"))
		if got := served(); got != "third" {
			t.Errorf("after good files the certificate is %q", got)
		}
		g.client.CloseIdleConnections()
		g.client = &http.Client{Transport: &http.Transport{DialContext: g.dial, TLSClientConfig: anyCertificate(), ForceAttemptHTTP2: true}}
		resp, err := g.open(t.Context(), "POST", "/v1/chat/completions", strings.NewReader(chatBody(true)))
		if err != nil || resp.ProtoMajor != 2 {
			t.Fatalf("HTTP/2: %v %v", resp, err)
		}
		if got := g.read(resp).text(); got != "one two" {
			t.Errorf("over HTTP/2: %q", got)
		}
		g.client.CloseIdleConnections()
		g.client = &http.Client{Transport: &http.Transport{DialContext: g.dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}}}
		if _, err := g.open(t.Context(), "GET", "/livez", nil); err == nil {
			t.Error("TLS 1.1 is taken")
		}
	})
}

// A certificate that cannot be read stops the start, with the file's name.
func TestTLSFilesAreCheckedAtTheStart(t *testing.T) {
	_, err := tryBegin(t, setup{edit: func(c *config.Config) { c.TLS = &config.TLS{Cert: "missing.pem", Key: "missing.key"} }})
	if err == nil || !strings.Contains(err.Error(), "tls: ") || !strings.Contains(err.Error(), "missing.pem") {
		t.Errorf("got %v", err)
	}
}

// A backend's own authority is trusted for that backend alone; without it the call fails, never insecurely (F04).
func TestAuthorityOfABackend(t *testing.T) {
	cert, key := certify(t, "upstream")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := certify(t, "other")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ca.pem"), cert, time.Now())
	write(t, filepath.Join(dir, "other.pem"), other, time.Now())
	for ca, ok := range map[string]bool{"ca.pem": true, "other.pem": false, "": false} {
		more := ""
		if ca != "" {
			more = `, ca: "` + filepath.Join(dir, ca) + `"`
		}
		g := begin(t, setup{yaml: strings.Replace(oneBackend(more), "http://", "https://", 1)})
		s := sim.New(sim.Options{Name: "a"}).StartOn(t, tls.NewListener(g.listen("a.sim:443"), &tls.Config{Certificates: []tls.Certificate{pair}}))
		r := g.chat(true)
		if ok {
			r.text()
			continue
		}
		if f := r.failed(); r.status != 502 || f.Code != "upstream_tls" || len(s.Attempts()) != 0 {
			t.Errorf("ca %q: %d %s, %d requests arrived", ca, r.status, r.body, len(s.Attempts()))
		}
	}
	_, err = tryBegin(t, setup{yaml: strings.Replace(oneBackend(`, ca: "`+filepath.Join(dir, "none.pem")+`"`), "http://", "https://", 1)})
	if err == nil || !strings.Contains(err.Error(), "backends.a.ca") {
		t.Errorf("a missing ca: %v", err)
	}
}

// S21: X-Forwarded-For is believed from trusted proxies alone, from the right.
func TestTrustedProxies(t *testing.T) {
	for _, c := range []struct {
		name, trusted, header, want string
	}{
		{"nobody is trusted", "[]", "10.9.9.9", "127.0.0.1"},
		{"another is trusted", "[10.0.0.0/8]", "10.9.9.9", "127.0.0.1"},
		{"the peer is trusted", "[127.0.0.1]", "203.0.113.7", "203.0.113.7"},
		{"a client forges the left", "[127.0.0.1]", "1.1.1.1, 203.0.113.7", "203.0.113.7"},
		{"through two trusted ones", "[127.0.0.0/8, 10.0.0.0/8]", "1.1.1.1, 203.0.113.7, 10.1.1.1", "203.0.113.7"},
		{"mapped into IPv6", "[127.0.0.1]", "::ffff:203.0.113.7", "203.0.113.7"},
		{"nonsense", "[127.0.0.1]", "evil, nonsense", "127.0.0.1"},
		{"none", "[127.0.0.1]", "", "127.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := begin(t, setup{yaml: "trusted_proxies: " + c.trusted + "\n" + oneBackend(""), sims: oai(sim.Behaviour{})})
			r := g.post("/v1/chat/completions", chatBody(false), "X-Forwarded-For", c.header, "X-Real-Ip", "9.9.9.9", "Forwarded", "for=9.9.9.9")
			r.text()
			if e := g.end(r.id()); e.Remote == nil || *e.Remote != c.want {
				t.Errorf("remote in %s, want %s", e.Raw, c.want)
			}
		})
	}
}
