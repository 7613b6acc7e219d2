package server

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/llm"
)

// models lists what the key may ask for.
func (s *Server) models(x *exchange) error {
	x.rec.Op = "models"
	if x.dialect == s.Anthropic {
		return s.page(x)
	}
	out := []byte(`{"object":"list","data":[`)
	for i, m := range s.Relay.Models(&x.caller) {
		if i > 0 {
			out = append(out, ',')
		}
		out = s.listed(out, m)
	}
	return x.Answer(append(out, "]}"...))
}

// model answers for one name.
func (s *Server) model(x *exchange) error {
	x.rec.Op = "models"
	name := strings.TrimPrefix(x.r.URL.Path, "/v1/models/")
	for _, m := range s.Relay.Models(&x.caller) {
		switch {
		case m.Name != name:
		case x.dialect == s.Anthropic:
			return x.Answer(s.entry(nil, m))
		default:
			return x.Answer(s.listed(nil, m))
		}
	}
	e := llm.Errorf(llm.Unknown, "there is no model %q here; GET /v1/models lists what this key may use", short(name))
	e.Param = "model"
	return e
}

func (s *Server) listed(dst []byte, m llm.Listed) []byte {
	dst = llm.AppendQuoted(append(dst, `{"id":`...), m.Name)
	dst = strconv.AppendInt(append(dst, `,"object":"model","created":`...), s.born.Unix(), 10)
	dst = llm.AppendQuoted(append(dst, `,"owned_by":`...), m.OwnedBy)
	return append(dst, '}')
}

// page answers with one page of the names in the shape of Anthropic's list: GET /v1/models?limit=20&after_id=&before_id=.
func (s *Server) page(x *exchange) error {
	list := s.Relay.Models(&x.caller)
	q := x.r.URL.Query()
	limit := 20
	if v := q.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > 1000 {
			e := llm.Errorf(llm.Invalid, "limit must be a whole number from 1 to 1000")
			e.Param = "limit"
			return e
		}
		limit = n
	}
	at := func(id string) int { return slices.IndexFunc(list, func(m llm.Listed) bool { return m.Name == id }) }
	from, to := 0, len(list)
	if id := q.Get("after_id"); id != "" {
		from = at(id) + 1
	}
	if i := at(q.Get("before_id")); i >= 0 { // the page that ends before it
		to = i
		from = max(from, to-limit)
	}
	from = min(from, to)
	end := min(to, from+limit)
	return x.Answer(s.appendPage(list[from:end], end < len(list)))
}

func (s *Server) appendPage(list []llm.Listed, more bool) []byte {
	out := []byte(`{"data":[`)
	for i, m := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = s.entry(out, m)
	}
	out = strconv.AppendBool(append(out, `],"has_more":`...), more)
	if len(list) == 0 {
		return append(out, `,"first_id":null,"last_id":null}`...)
	}
	out = llm.AppendQuoted(append(out, `,"first_id":`...), list[0].Name)
	out = llm.AppendQuoted(append(out, `,"last_id":`...), list[len(list)-1].Name)
	return append(out, '}')
}

// entry appends one name in the shape of Anthropic's list.
func (s *Server) entry(dst []byte, m llm.Listed) []byte {
	dst = llm.AppendQuoted(append(dst, `{"type":"model","id":`...), m.Name)
	dst = llm.AppendQuoted(append(dst, `,"display_name":`...), m.Name)
	dst = llm.AppendQuoted(append(dst, `,"created_at":`...), s.born.UTC().Format(time.RFC3339))
	return append(dst, '}')
}

var _ http.Handler = (*Server)(nil)
