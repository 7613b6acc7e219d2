package backend

import (
	"fmt"
	"net/url"
	"strings"

	"weir/internal/llm"
)

// spoken is a dialect that a backend speaks, with all of its calls that never changes.
type spoken struct {
	Dialect
	base  url.URL       // without /v1
	urls  [ops]*url.URL // by operation; nil: the dialect has none
	heads [ops][]byte   // for plain HTTP: request line and the headers that all calls share
}

const ops = int(llm.Count) + 1

func (b *Backend) speak(d Dialect, base *url.URL) spoken {
	s := spoken{Dialect: d}
	path := strings.TrimSuffix(strings.TrimRight(base.Path, "/"), "/v1")
	s.base = *base
	s.base.Path = path
	for op := llm.Chat; op <= llm.Count; op++ {
		at := d.Path(op)
		if at == "" {
			continue
		}
		u := *base
		u.Path = path + at
		s.urls[op] = &u
		s.heads[op] = fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nContent-Type: application/json\r\n",
			u.RequestURI(), u.Host, b.Agent)
	}
	return s
}

// tongue returns the dialect in which the backend is called for r: the client's own where the backend speaks it, so that
// the client's bytes go on; else its first one, which r is translated to. nil: the backend has no such operation.
func (b *Backend) tongue(r *llm.Request) *spoken {
	if r.Op.Passes() {
		return b.passer(r)
	}
	for i := range b.spoken {
		if s := &b.spoken[i]; s.Name() == r.Dialect && s.urls[r.Op] != nil && !(r.Op == llm.Count && b.noCount.Load()) {
			return s
		}
	}
	if s := &b.spoken[0]; r.Op == llm.Chat && r.Speaks != nil && s.Name() != r.Dialect {
		return s
	}
	return nil
}

// Serves reports whether the backend can be called for r at all.
func (b *Backend) Serves(r *llm.Request) bool { return b.tongue(r) != nil }

// CountOnly returns d for a server of which only the counter of tokens is to be called in it.
func CountOnly(d Dialect) Dialect { return countOnly{d} }

type countOnly struct{ Dialect }

// Path returns the path of the counter, and of nothing else.
func (c countOnly) Path(op llm.Op) string {
	if op != llm.Count {
		return ""
	}
	return c.Dialect.Path(op)
}

// Headers returns the header lines of the dialect's calls.
func (c countOnly) Headers(r *llm.Request) []llm.Header { return headersOf(c.Dialect, r) }

// headers are what a dialect's calls carry beside those of every call.
type headers interface {
	Headers(r *llm.Request) []llm.Header
}

// lines returns the header lines of a call in the dialect.
func (s *spoken) lines(r *llm.Request) []llm.Header { return headersOf(s.Dialect, r) }

func headersOf(d Dialect, r *llm.Request) []llm.Header {
	if h, ok := d.(headers); ok {
		return h.Headers(r)
	}
	return nil
}

// query returns what stands behind the path of a call, empty for nothing.
func (s *spoken) query(r *llm.Request) string {
	if s.Name() != r.Dialect {
		return ""
	}
	return r.Query
}
