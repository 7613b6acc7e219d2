package app

import "net/http"

// oneRequest ends a connection after a request whose end a proxy in front may see elsewhere than net/http does: one in
// chunks (a length beside them is dropped without a word), and a POST without a body, whose length may have been lost
// in a folded line. What follows such a request could be one that nobody sent, so nothing follows it.
func oneRequest(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength <= 0 && r.ProtoMajor == 1 && (r.ContentLength < 0 || r.Method == http.MethodPost) {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}
