package admin

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/event"
)

func testAdmin(t *testing.T, open bool) (a *Admin, token string, told *[]event.Event, drained *int) {
	t.Helper()
	dir := t.TempDir()
	told, drained = new([]event.Event), new(int)
	a, err := New(Options{
		Data: dir, Open: open, Emit: func(e event.Event) { *told = append(*told, e) }, Drain: func() { *drained++ },
		HostOK: func(h string) bool { return h == "localhost" }, Ready: func() bool { return *drained == 0 },
		Status:  func() Status { return Status{Version: "1", Pools: []Pool{{Name: "p", State: "in"}}} },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("weir_up 1\n")) }),
	})
	if err != nil {
		t.Fatal(err)
	}
	if token, err = Token(dir); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, TokenFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token file: %v, %v; want mode 0600", info.Mode(), err)
	}
	return a, token, told, drained
}

func TestEveryRouteChecksHostTokenAndMethod(t *testing.T) {
	a, token, told, drained := testAdmin(t, false)
	for name, c := range map[string]struct {
		method, path, host, auth, origin string
		status                           int
	}{
		"liveness is open":                    {"GET", "/livez", "localhost", "", "", 200},
		"readiness is open":                   {"GET", "/readyz", "localhost", "", "", 200},
		"metrics beyond loopback need it":     {"GET", "/metrics", "localhost", "", "", 401},
		"metrics with it":                     {"GET", "/metrics", "localhost", "Bearer " + token, "", 200},
		"status without a token":              {"GET", "/api/v1/status", "localhost", "", "", 401},
		"status with a wrong one":             {"GET", "/api/v1/status", "localhost", "Bearer " + token + "x", "", 401},
		"status with the bare token":          {"GET", "/api/v1/status", "localhost", token, "", 401},
		"status":                              {"GET", "/api/v1/status", "localhost", "Bearer " + token, "", 200},
		"a foreign host, before all else":     {"GET", "/livez", "evil.example", "Bearer " + token, "", 421},
		"an unknown path":                     {"GET", "/api/v1/keys", "localhost", "Bearer " + token, "", 404},
		"no debug endpoints (S52)":            {"GET", "/debug/pprof/", "localhost", "Bearer " + token, "", 404},
		"a change by GET":                     {"GET", "/api/v1/drain", "localhost", "Bearer " + token, "", 405},
		"a change without a token":            {"POST", "/api/v1/drain", "localhost", "", "", 401},
		"a change from a page of another one": {"POST", "/api/v1/drain", "localhost", "Bearer " + token, "https://evil.example", 403},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(c.method, c.path, nil)
			r.Host = c.host
			if c.auth != "" {
				r.Header.Set("Authorization", c.auth)
			}
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
				r.Header.Set("Sec-Fetch-Site", "cross-site")
			}
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			if w.Code != c.status {
				t.Errorf("status %d, want %d: %s", w.Code, c.status, w.Body)
			}
			if h := w.Header(); h.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") {
				t.Errorf("headers %v", h)
			}
			if strings.Contains(w.Body.String(), token) {
				t.Error("the answer shows the token")
			}
		})
	}
	if *drained != 0 || len(*told) != 0 {
		t.Errorf("refused requests changed something: drained %d times, told %v", *drained, *told)
	}
}

func TestAChangeIsAudited(t *testing.T) {
	a, token, told, drained := testAdmin(t, true)
	r := httptest.NewRequest("POST", "/api/v1/drain", nil)
	r.Host = "localhost"
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	if w.Code != 202 || *drained != 1 {
		t.Errorf("status %d, drained %d times", w.Code, *drained)
	}
	if len(*told) != 1 || (*told)[0].Name != event.Audit || (*told)[0].To != "drain" || !strings.Contains((*told)[0].Actor, "192.0.2.1") {
		t.Errorf("audit %+v", *told)
	}
	w = httptest.NewRecorder()
	r = httptest.NewRequest("GET", "/readyz", nil)
	r.Host = "localhost"
	if a.ServeHTTP(w, r); w.Code != 503 {
		t.Errorf("ready while draining: %d", w.Code)
	}
}

func TestTheTokenStaysAndADamagedOneIsSaid(t *testing.T) {
	dir := t.TempDir()
	first, err := loadToken(dir)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := loadToken(dir); err != nil || again != first {
		t.Errorf("a second start: %q, %v; want the same token", again, err)
	}
	if err := os.WriteFile(filepath.Join(dir, TokenFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadToken(dir); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("an empty token file: %v; want what to do", err)
	}
}
