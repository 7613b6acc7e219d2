package server

import (
	"net/http"
	"strings"

	"weir/internal/llm"
)

// spoken returns the dialect in which a request is to be answered, errors before its endpoint is known included.
func (s *Server) spoken(r *http.Request) Dialect {
	if end, ok := s.routes[r.URL.Path]; ok && end.dialect != nil {
		return end.dialect
	}
	switch {
	case anthropicClient(r), strings.HasPrefix(r.URL.Path, "/v1/messages"):
		return s.Anthropic
	case strings.HasPrefix(r.URL.Path, "/v1/responses"):
		return s.Responses
	}
	return s.OpenAI
}

// anthropicClient reports a client of Anthropic's API on an endpoint that both APIs have.
func anthropicClient(r *http.Request) bool { return r.Header.Get("Anthropic-Version") != "" }

// speak takes the dialect of the answer.
func (x *exchange) speak(d Dialect) {
	x.reply.dialect = d
	x.rec.Dialect = d.Name()
	if d == x.Anthropic {
		x.w.Header()["Request-Id"] = []string{x.id} // where that API's SDKs look for it
	}
}

// told returns e with what its dialect's body names beside it.
func (x *exchange) told(e *llm.Error) *llm.Error {
	named := *e
	named.ID = x.id
	return &named
}

// up notes the headers and the query that go on to a backend of the client's own dialect.
func (x *exchange) up(req *llm.Request) {
	if x.dialect != x.Anthropic {
		return
	}
	for _, name := range []string{"Anthropic-Version", "Anthropic-Beta"} {
		if v := x.r.Header.Values(name); len(v) > 0 {
			req.Up = append(req.Up, llm.Header{Name: strings.ToLower(name), Value: strings.Join(v, ",")})
		}
	}
	if x.r.URL.RawQuery == "beta=true" {
		req.Query = x.r.URL.RawQuery
	}
}
