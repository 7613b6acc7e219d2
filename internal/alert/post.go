package alert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"syscall"
	"time"
)

const (
	postFor  = 10 * time.Second
	mostBody = 16 << 10
	mostHead = 300 // bytes of an answer that are shown
)

// failure is why a message was not delivered. Its text holds no URL: that may be a secret.
type failure struct {
	final bool          // trying again is no use
	after time.Duration // as asked by Retry-After
	msg   string
}

// Error says why.
func (f *failure) Error() string { return f.msg }

// send is post without the status.
func (o *outlet) send(ctx context.Context, m *Message, within time.Duration) *failure {
	_, f := o.desk.post(ctx, o.sink(), m, within)
	return f
}

// post sends a message once. The status is 0 where there was no answer.
func (d *Desk) post(ctx context.Context, s Sink, m *Message, within time.Duration) (int, *failure) {
	c, err := s.Write(m)
	if err != nil {
		return 0, &failure{msg: err.Error()} // a secret that cannot be read now may be readable later
	}
	if len(c.Body) > mostBody {
		return 0, &failure{final: true, msg: fmt.Sprintf("the message has %d bytes: more than %d are never sent", len(c.Body), mostBody)}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("no answer within %v", within))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(c.Body))
	if err != nil {
		return 0, &failure{final: true, msg: "the sink's url cannot be used: it must be such as https://alerts.example.org/path"}
	}
	if f := usable(req.URL); f != nil {
		return 0, f
	}
	req.Header.Set("User-Agent", d.o.Agent)
	for name, value := range c.Header {
		req.Header[http.CanonicalHeaderKey(name)] = value
	}
	req.GetBody = nil
	resp, err := d.client.Do(req)
	if err != nil {
		return 0, &failure{msg: unnamed(ctx, err)}
	}
	defer resp.Body.Close()
	head, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // also so that the connection is used again
	return resp.StatusCode, judge(resp, head)
}

// judge says what an answer means.
func judge(resp *http.Response, head []byte) *failure {
	code := resp.StatusCode
	if code/100 == 2 {
		return nil
	}
	f := &failure{msg: "the sink answered " + strconv.Itoa(code)}
	if said := clean(string(head[:min(len(head), mostHead)]), mostHead); said != "" {
		f.msg += ": " + said
	}
	switch {
	case code/100 == 3:
		f.final, f.msg = true, f.msg+" (redirects are not followed: configure where it leads)"
	case code == http.StatusTooManyRequests || code == http.StatusRequestTimeout || code/100 == 5:
		f.after = retryAfter(resp.Header.Get("Retry-After"))
	default:
		f.final = true
	}
	return f
}

// retryAfter reads seconds or a date.
func retryAfter(text string) time.Duration {
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		return min(max(time.Duration(n)*time.Second, 0), mostAsked)
	}
	if t, err := http.ParseTime(text); err == nil {
		return min(max(time.Until(t), 0), mostAsked)
	}
	return 0
}

// unnamed words an error of the network without the URL.
func unnamed(ctx context.Context, err error) string {
	if cause := context.Cause(ctx); cause != nil {
		return cause.Error()
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return clean(err.Error(), mostLine)
}

// usable refuses what is no web address; where names lead is looked at when they are dialled.
func usable(u *url.URL) *failure {
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return &failure{final: true, msg: "the sink's url must begin with http:// or https://"}
	}
	return nil
}

// newClient makes the client of all sinks: no proxy, no redirects, nothing to where clouds keep credentials.
func newClient(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Client {
	if dial == nil {
		dial = (&net.Dialer{Timeout: postFor, Control: guard}).DialContext
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dial, TLSHandshakeTimeout: postFor, MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// metadata are the addresses under which clouds hand out credentials beside link-local ones (S26).
var metadata = []string{"100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"}

// guard refuses addresses that no sink has, once a name is resolved: a name's owner could point it anywhere.
func guard(_, addr string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return err
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() || slices.Contains(metadata, ip.String()) {
		return errors.New("the sink's host leads to a link-local or metadata address, which is refused")
	}
	return nil
}
