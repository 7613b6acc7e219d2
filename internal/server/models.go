package server

import (
	"net/http"
	"strconv"
	"strings"

	"weir/internal/llm"
)

// models lists what the key may ask for.
func (s *Server) models(x *exchange) error {
	x.rec.Op = "models"
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
		if m.Name == name {
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

var _ http.Handler = (*Server)(nil)
