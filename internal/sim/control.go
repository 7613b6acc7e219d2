package sim

import (
	"fmt"
	"io"
	"net/http"
)

// maxScript bounds a script that is sent to a running server.
const maxScript = 8 << 20

// control answers the paths by which a test in another process reads and sets a Server.
func (s *Server) control(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "GET /_sim/attempts":
		list := s.Attempts()
		if model := r.URL.Query().Get("model"); model != "" {
			list = s.Calls(model)
		}
		reply(w, http.StatusOK, object{{"active", s.Active()}, {"attempts", list}})
	case "POST /_sim/script":
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxScript))
		if err == nil {
			var script Script
			if script, err = ParseScript(data); err == nil {
				err = s.SetScript(script)
			}
		}
		if err != nil {
			reply(w, http.StatusBadRequest, object{{"error", err.Error()}})
			return
		}
		reply(w, http.StatusOK, object{{"ok", true}})
	case "POST /_sim/reset":
		s.Reset()
		reply(w, http.StatusOK, object{{"ok", true}})
	default:
		reply(w, http.StatusNotFound, object{{"error", fmt.Sprintf("no %s %s: there are GET /_sim/attempts, POST /_sim/script and POST /_sim/reset", r.Method, r.URL.Path)}})
	}
}

func reply(w http.ResponseWriter, status int, o object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(encode(o), '\n')) // a peer that left needs no answer
}
