package discover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
)

var (
	errTooLarge = errors.New("answer larger than 1 MiB")
	errDial     = errors.New("cannot connect")
)

// Headers by which a Weir, or something that only plays a model, is known. Neither is ever taken for a server.
const (
	headerWeir      = "X-Weir-Request"
	headerSimulated = "X-Weir-Simulated"
)

// answer is what one GET brought: err, or a status with a body of at most bodyLimit.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error
}

// answers holds the answers of one server by path.
type answers map[string]answer

// decode reads the JSON answer to path into v and tells whether there was one. Members of another type than expected
// are left at zero: one odd member must not hide the rest.
func (a answers) decode(path string, v any) bool {
	g, ok := a[path]
	return ok && g.err == nil && g.status == http.StatusOK && decode(g.body, v)
}

func decode(body []byte, v any) bool {
	err := json.Unmarshal(body, v)
	var odd *json.UnmarshalTypeError
	return err == nil || errors.As(err, &odd)
}

// client asks servers with plain GETs. It is safe for concurrent use and keeps no connection.
type client struct{ http *http.Client }

// newClient gives a client whose dials end with ctx: http.Transport lets a dial outlive the request that wanted it.
func newClient(ctx context.Context, dial func(ctx context.Context, network, addr string) (net.Conn, error)) client {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	connect := func(_ context.Context, network, addr string) (net.Conn, error) {
		limit := connectLimitAway
		if at, err := netip.ParseAddrPort(addr); err == nil && at.Addr().IsLoopback() {
			limit = connectLimit
		}
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errDial, err)
		}
		return conn, nil
	}
	return client{&http.Client{
		// Proxy stays nil: the environment's proxy must not see, or answer for, loopback addresses.
		Transport: &http.Transport{
			DialContext:            connect,
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: headerLimit,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// get asks for one path within answerLimit, connecting and reading the body included.
func (c client) get(ctx context.Context, addr, path string) answer {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("User-Agent", "weir")
	req.Header.Set("Accept", "application/json, text/plain")
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header}
	a.body, a.err = io.ReadAll(io.LimitReader(resp.Body, bodyLimit+1))
	if a.err == nil && len(a.body) > bodyLimit {
		a.body, a.err = nil, errTooLarge
	}
	return a
}

// getAll asks for several paths at once.
func (c client) getAll(ctx context.Context, addr string, paths []string) answers {
	var mu sync.Mutex // guards all
	all := answers{}
	var wg sync.WaitGroup
	for _, p := range paths {
		wg.Go(func() {
			a := c.get(ctx, addr, p)
			mu.Lock()
			defer mu.Unlock()
			all[p] = a
		})
	}
	wg.Wait()
	return all
}

// probe finds out what answers at t. It gives nil and the reason in words when it is nothing Weir can use.
// Round one asks for the list of models, which every kind has and nothing else is disturbed by; only what looks like
// a model server is asked the paths of round two.
func (c client) probe(ctx context.Context, t target) (*Server, string) {
	list := c.get(ctx, t.addr, pathModels)
	if words := dismiss(list, t); words != "" {
		return nil, words
	}
	s := &Server{Addr: t.addr, Own: t.own}
	switch {
	case isLoading(list):
		s.Kind, s.State = LlamaCPP, Loading
		return s, s.words()
	case isLocked(list):
		s.Kind, s.State = lockedKind(list), Locked
		return s, s.words()
	case !isList(list):
		return nil, fmt.Sprintf("something else answers there (status %d to %s), left out", list.status, pathModels)
	}
	all := c.getAll(ctx, t.addr, detailPaths())
	all[pathModels] = list
	for _, a := range all {
		if words := ours(a); words != "" {
			return nil, words
		}
	}
	s.read(all)
	return s, s.words()
}

// dismiss says why an answer to the first question cannot come from a model server, or "".
func dismiss(a answer, t target) string {
	if words := ours(a); words != "" {
		return words
	}
	var noHost *net.DNSError
	switch {
	case errors.Is(a.err, context.Canceled):
		return "stopped"
	case errors.As(a.err, &noHost):
		return "no such host"
	case errors.Is(a.err, errDial) && t.usual != "":
		return "nothing there (the usual port of " + t.usual + ")"
	case errors.Is(a.err, errDial):
		return "nothing there"
	case errors.Is(a.err, context.DeadlineExceeded):
		return fmt.Sprintf("something is there, but gave no whole answer within %v; left out", answerLimit)
	case errors.Is(a.err, errTooLarge):
		return "something is there, but its list of models is larger than 1 MiB; left out"
	case a.err != nil:
		return "something is there, but it does not speak plain HTTP; left out"
	case a.status >= 300 && a.status < 400:
		return "answers with a redirect, which Weir does not follow; left out"
	}
	return ""
}

// ours says that an answer comes from a Weir or from a simulation, or "".
func ours(a answer) string {
	switch {
	case a.header.Get(headerSimulated) != "":
		return "a simulation, not a model; left out"
	case a.header.Get(headerWeir) != "":
		return "a Weir, which must not be its own backend; left out"
	}
	return ""
}

// isLoading tells whether a llama.cpp server says that its model is loading, which it then says on every path.
func isLoading(a answer) bool {
	e := errorOf(a.body)
	return a.status == http.StatusServiceUnavailable && e.Type == "unavailable_error" && e.Message == "Loading model"
}

// isLocked tells whether an API refuses for want of a key. A page that does so is some other program's.
func isLocked(a answer) bool {
	var v struct {
		Error json.RawMessage `json:"error"`
	}
	return (a.status == http.StatusUnauthorized || a.status == http.StatusForbidden) && decode(a.body, &v) && len(v.Error) > 0
}

func lockedKind(a answer) Kind {
	e := errorOf(a.body)
	if e.Type == "authentication_error" && e.Code == http.StatusUnauthorized && strings.EqualFold(e.Message, "Invalid API Key") {
		return LlamaCPP
	}
	return OpenAI
}

type apiError struct {
	Message, Type string
	Code          int
}

func errorOf(body []byte) apiError {
	var v struct {
		Error apiError `json:"error"`
	}
	decode(body, &v)
	return v.Error
}
