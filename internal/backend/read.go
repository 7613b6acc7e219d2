package backend

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"weir/internal/llm"
)

const (
	maxFault  = 64 << 10 // of an error's body
	maxAnswer = 64 << 20 // of a whole answer
)

var errTooLarge = errors.New("the body is larger than the bound")

// readAll reads a body of up to maxAnswer bytes; size is its announced length, negative when unknown.
func readAll(r io.Reader, size int64) ([]byte, error) {
	if size > maxAnswer {
		return nil, errTooLarge
	}
	buf := make([]byte, 0, max(512, size+1))
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, err
		case len(buf) > maxAnswer:
			return nil, errTooLarge
		case len(buf) == cap(buf):
			buf = append(buf, 0)[:len(buf)]
		}
	}
}

// inflate unpacks a body that came compressed although none was asked for. What unpacks far beyond its size is refused
// by the bounds on events and answers, which count what comes out.
func (a *Answer) inflate() error {
	switch enc := strings.ToLower(a.head.header.Get("Content-Encoding")); enc {
	case "", "identity":
		return nil
	case "gzip", "x-gzip":
		a.body = &gunzip{from: a.head.body}
		a.head.length = -1
		return nil
	default:
		return &llm.Error{Kind: llm.Refused, Op: "backend.Call", Upstream: a.head.status, Sent: true,
			Msg: "the model's server answered in an encoding that was not asked for: " + clean(enc)}
	}
}

// gunzip opens the reader at the first read, so that a head alone never blocks on the body.
type gunzip struct {
	from io.Reader
	z    *gzip.Reader
}

// Read reads unpacked bytes.
func (g *gunzip) Read(p []byte) (int, error) {
	if g.z == nil {
		z, err := gzip.NewReader(g.from)
		if err != nil {
			return 0, err
		}
		g.z = z
	}
	return g.z.Read(p)
}

// failure gives an error of the round trip its kind.
func (a *Answer) failure(err error) error {
	e := &llm.Error{Kind: llm.Refused, Op: "backend.Call", Err: err, Sent: a.flight.begun}
	if own, ok := errors.AsType[*llm.Error](err); ok {
		return own
	}
	if cause := a.watch.cause(); cause != nil {
		w := llm.AsError(cause)
		w.Sent = e.Sent
		return w
	}
	if a.cause() != nil {
		e.Kind, e.Msg = llm.Canceled, "the client left"
		return e
	}
	_, isDNS := errors.AsType[*net.DNSError](err)
	timed, isTimed := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE): // of Weir's own making, so nobody is blamed
		e.Kind, e.Code, e.RetryAfter = llm.Full, "out_of_files", time.Second
		e.Msg = "Weir has no file descriptor left for a connection to the model's server; its limit of open files is too low"
	case a.flight.reused && !a.flight.replied && isGone(err):
		e.Kind, e.Msg = llm.Stale, "the model's server closed the connection just as the request was sent"
	case isDNS:
		e.Msg = "the model's server has no address under its name"
	case !a.flight.got && errors.Is(err, syscall.ECONNREFUSED):
		e.Msg = "the model's server refuses connections: nothing listens on its port"
	case !a.flight.got && (errors.Is(err, context.DeadlineExceeded) || isTimed && timed.Timeout()):
		e.Msg = "the model's server did not accept a connection within " + a.b.Connect.String()
	case !a.flight.got:
		e.Msg = "no connection to the model's server could be made"
		if msg := faultOfTLS(err); msg != "" {
			e.Msg, e.Code = msg, "upstream_tls"
		}
	case isGone(err):
		e.Msg = "the model's server closed the connection without an answer"
	default:
		e.Msg = "the model's server answered with something that is not HTTP"
	}
	return e
}

// isGone reports a connection that the peer ended.
func isGone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed) ||
		strings.Contains(err.Error(), "server closed idle connection") || strings.Contains(err.Error(), "broken connection")
}

// faultOfTLS says what went wrong with TLS, empty when nothing did.
func faultOfTLS(err error) string {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the certificate of the model's server is not trusted"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return "the model's server does not speak TLS where its url says https"
	}
	if strings.Contains(err.Error(), "tls:") {
		return "the model's server and Weir agree on no kind of TLS; 1.2 is the least"
	}
	return ""
}
