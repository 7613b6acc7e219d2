// Package admin is the admin listener: a JSON API behind a token, metrics, and the answers of liveness and readiness.
// It is the one way in which a word changes a running Weir.
package admin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"weir/internal/event"
	"weir/internal/pool"
	"weir/internal/store"
)

// TokenFile is the name of the file in the data folder that holds the token of the admin API.
const TokenFile = "admin-token"

// Pool is a pool as the status tells it.
type Pool struct {
	Name        string   `json:"name"`
	Tier        string   `json:"tier"`
	Backends    []string `json:"backends"`
	State       string   `json:"state"` // in, or why it takes no call: paused, denied, breaker
	Cap         int      `json:"cap"`
	InFlight    int      `json:"in_flight"`
	Waiting     int      `json:"waiting"`
	Queue       int      `json:"queue"`
	RefusedFull uint64   `json:"refused_full"`
	RefusedLate uint64   `json:"refused_late"`
	Prefill     float64  `json:"prefill_tokens_per_second"`
	Measured    bool     `json:"prefill_measured"`
}

// Status is how a running Weir stands.
type Status struct {
	Version   string            `json:"version"`
	Config    string            `json:"config"`
	Started   time.Time         `json:"started"`
	Uptime    time.Duration     `json:"uptime_ns"`
	Ready     bool              `json:"ready"`
	Listen    string            `json:"listen"`
	Admin     string            `json:"admin"`
	Running   int64             `json:"running"`
	Simulated bool              `json:"simulated"`
	Keys      int               `json:"keys"`
	Dropped   map[string]uint64 `json:"events_dropped"`
	Pools     []Pool            `json:"pools"`
}

// Options are what the admin listener needs. All fields must be set.
type Options struct {
	Data    string // folder of the token file
	Metrics http.Handler
	Emit    func(event.Event)
	HostOK  func(host string) bool
	Ready   func() bool
	Status  func() Status
	Drain   func()
	Open    bool // the listener is on loopback: metrics need no token

	Pools func() []PoolState // by name
	// OutPool and InPool carry out an order about a pool and backend that are there. An error says what was not kept:
	// the order stands until a restart.
	OutPool func(context.Context, HandOrder) error
	InPool  func(context.Context, HandOrder) error
	Merges  func() []pool.Merge // undone ones too
	// ConfirmMerge and UndoMerge change the merge of an asked pool. An error says why that cannot be.
	ConfirmMerge func(asked string) error
	UndoMerge    func(asked string) error
	Reroutes     func(ctx context.Context, since time.Time) ([]store.ReasonCount, error)
}

// Admin answers on the admin listener. It is safe for concurrent use.
type Admin struct {
	Options
	hash   [sha256.Size]byte // of the token
	routes map[string]route
	cross  *http.CrossOriginProtection
}

type route struct {
	method string
	open   bool // no token needed
	serve  func(*Admin, http.ResponseWriter, *http.Request) error
}

// New returns an admin listener's handler. It makes the token at the first start.
func New(o Options) (*Admin, error) {
	token, err := loadToken(o.Data)
	if err != nil {
		return nil, err
	}
	a := &Admin{Options: o, hash: sha256.Sum256([]byte(token)), cross: http.NewCrossOriginProtection()}
	a.routes = map[string]route{
		"/livez":               {http.MethodGet, true, (*Admin).live},
		"/readyz":              {http.MethodGet, true, (*Admin).ready},
		"/metrics":             {http.MethodGet, o.Open, (*Admin).metrics},
		"/api/v1/status":       {http.MethodGet, false, (*Admin).status},
		"/api/v1/drain":        {http.MethodPost, false, (*Admin).drain},
		"/api/v1/pools":        {http.MethodGet, false, (*Admin).pools},
		"/api/v1/pools/out":    {http.MethodPost, false, (*Admin).poolOut},
		"/api/v1/pools/in":     {http.MethodPost, false, (*Admin).poolIn},
		"/api/v1/caps":         {http.MethodGet, false, (*Admin).caps},
		"/api/v1/caps/confirm": {http.MethodPost, false, (*Admin).confirmMerge},
		"/api/v1/caps/undo":    {http.MethodPost, false, (*Admin).undoMerge},
	}
	return a, nil
}

// Token reads the token of the Weir whose data folder is dir, for the words that call its API.
func Token(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, TokenFile))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if len(token) < 20 {
		return "", fmt.Errorf("%s is empty or cut short; delete it and start Weir again to get a new one", filepath.Join(dir, TokenFile))
	}
	return token, nil
}

func loadToken(dir string) (string, error) {
	token, err := Token(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	token = rand.Text() + rand.Text()
	f, err := os.OpenFile(filepath.Join(dir, TokenFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("the admin token cannot be written: %w", err)
	}
	_, err = f.WriteString(token + "\n")
	return token, errors.Join(err, f.Close())
}

// failure is an error with the status and code that the caller gets.
type failure struct {
	status    int
	code, msg string
}

// Error returns the text for the caller.
func (f *failure) Error() string { return f.msg }

// ServeHTTP answers one request. Whatever is asked for, host and token are checked first.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Weir-Request", "admin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	if err := a.serve(w, r); err != nil {
		a.fail(w, err)
	}
}

func (a *Admin) serve(w http.ResponseWriter, r *http.Request) error {
	if !a.HostOK(r.Host) {
		return &failure{http.StatusMisdirectedRequest, "unknown_host", "this Weir does not answer for that host; add it to hosts in its configuration"}
	}
	if err := a.cross.Check(r); err != nil {
		return &failure{http.StatusForbidden, "cross_origin", "requests from pages of another origin are refused"}
	}
	route, ok := a.routes[r.URL.Path]
	if !ok || r.URL.RawPath != "" {
		return &failure{http.StatusNotFound, "unknown_path", "there is nothing at this path"}
	}
	if !route.open && !a.authorized(r) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="weir admin"`)
		return &failure{http.StatusUnauthorized, "unauthorized", "send the token of the file " + TokenFile + " in the data folder as `Authorization: Bearer TOKEN`"}
	}
	if r.Method != route.method && !(r.Method == http.MethodHead && route.method == http.MethodGet) {
		w.Header().Set("Allow", route.method)
		return &failure{http.StatusMethodNotAllowed, "method_not_allowed", r.URL.Path + " takes " + route.method}
	}
	return route.serve(a, w, r)
}

func (a *Admin) authorized(r *http.Request) bool {
	list := r.Header["Authorization"]
	if len(list) != 1 {
		return false
	}
	token, ok := strings.CutPrefix(list[0], "Bearer ")
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], a.hash[:]) == 1 && ok
}

func (a *Admin) fail(w http.ResponseWriter, err error) {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = &failure{http.StatusInternalServerError, "internal_error", "something went wrong inside Weir; its log holds the cause"}
	}
	answer(w, f.status, map[string]any{"error": map[string]string{"code": f.code, "message": f.msg}})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client left, or nothing
}

func (a *Admin) live(w http.ResponseWriter, _ *http.Request) error {
	answer(w, http.StatusOK, map[string]bool{"live": true})
	return nil
}

func (a *Admin) ready(w http.ResponseWriter, _ *http.Request) error {
	status := http.StatusOK
	if !a.Ready() {
		status = http.StatusServiceUnavailable
	}
	answer(w, status, map[string]bool{"ready": a.Ready()})
	return nil
}

func (a *Admin) metrics(w http.ResponseWriter, r *http.Request) error {
	a.Metrics.ServeHTTP(w, r)
	return nil
}

func (a *Admin) status(w http.ResponseWriter, _ *http.Request) error {
	answer(w, http.StatusOK, a.Status())
	return nil
}

func (a *Admin) drain(w http.ResponseWriter, r *http.Request) error {
	a.audit(r, "drain", "shutdown asked for")
	answer(w, http.StatusAccepted, map[string]bool{"draining": true})
	a.Drain()
	return nil
}

// audit records a change: who, what, when.
func (a *Admin) audit(r *http.Request, what, detail string) {
	a.Emit(event.Event{Name: event.Audit, Actor: actor(r), To: what, Detail: detail})
}

// actor names who asks: all that is known is the token and where it came from.
func actor(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return "admin token from " + host
}
