package admin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"weir/internal/config"
)

// PoolState is a pool as it stands, in full.
type PoolState struct {
	Pool
	Backends   []Backend     `json:"backends"` // in place of the names alone
	Vendor     string        `json:"vendor"`   // the host of its backends
	Live       int           `json:"live"`     // how many calls may run now; at most the cap
	Own        int           `json:"own"`      // running calls that asked for this pool, on whichever pool they are counted
	MergedInto string        `json:"merged_into,omitempty"`
	Why        string        `json:"why,omitempty"`                     // human words where it takes no call
	Until      time.Time     `json:"until,omitzero"`                    // when it may take calls again, where that is known
	Gone       []string      `json:"gone,omitempty"`                    // models that its server does not have any more
	Output     float64       `json:"output_tokens_per_second,omitzero"` // of one answer; absent: not measured
	Limits     *VendorLimits `json:"vendor_limits"`
	Out        *Out          `json:"out,omitempty"` // the pool as a whole was taken out by hand
}

// Backend is one backend of a pool as it stands.
type Backend struct {
	Name     string    `json:"name"`
	State    string    `json:"state"` // in, trial, out, denied, breaker
	InFlight int       `json:"in_flight"`
	Since    time.Time `json:"since,omitzero"` // when it went out
	Until    time.Time `json:"until,omitzero"` // when it may come back, or is asked next
	Kind     string    `json:"kind,omitempty"` // of the failures that took it out
	Strikes  int       `json:"strikes,omitempty"`
	Why      string    `json:"why,omitempty"`
	Out      *Out      `json:"out,omitempty"`
}

// Out says how something was taken out by hand.
type Out struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"` // absent: until it is put back
	Why   string    `json:"why"`
	Actor string    `json:"actor"`
}

// HandOrder takes a backend, or a whole pool, out, or puts it back.
type HandOrder struct {
	Pool    string
	Backend string // empty: the whole pool
	Until   time.Time
	Why     string
	Actor   string
}

// Changed is the answer to a change of a pool: how it stands now.
type Changed struct {
	Pool    PoolState `json:"pool"`
	Warning string    `json:"warning,omitempty"` // it is done, but something with it is not
}

// Bounds of what an operator may order.
const (
	longestOut = 366 * 24 * time.Hour
	longestWhy = 300 // bytes: it is shown to clients
)

func (a *Admin) pools(w http.ResponseWriter, _ *http.Request) error {
	answer(w, http.StatusOK, map[string][]PoolState{"pools": a.Pools()})
	return nil
}

func (a *Admin) poolOut(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Pool       string `json:"pool"`
		Backend    string `json:"backend"`
		For        string `json:"for"`
		ForSeconds *int64 `json:"for_seconds"`
		Why        string `json:"why"`
	}
	if err := body(w, r, &in); err != nil {
		return err
	}
	d, err := within(in.For, in.ForSeconds)
	if err != nil {
		return err
	}
	if err := checkWhy(in.Why); err != nil {
		return err
	}
	if _, err := a.handed(in.Pool, in.Backend); err != nil {
		return err
	}
	o := HandOrder{Pool: in.Pool, Backend: in.Backend, Why: in.Why, Actor: actor(r)}
	detail := "taken out until it is put back"
	if d > 0 {
		o.Until = time.Now().Add(d)
		detail = fmt.Sprintf("taken out for %v", config.Duration(d))
	}
	return a.order(w, r, &o, detail, a.OutPool)
}

func (a *Admin) poolIn(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Pool    string `json:"pool"`
		Backend string `json:"backend"`
		Why     string `json:"why"`
	}
	if err := body(w, r, &in); err != nil {
		return err
	}
	if err := checkWhy(in.Why); err != nil {
		return err
	}
	p, err := a.handed(in.Pool, in.Backend)
	if err != nil {
		return err
	}
	if err := isOut(p, in.Backend); err != nil {
		return err
	}
	o := HandOrder{Pool: in.Pool, Backend: in.Backend, Why: in.Why, Actor: actor(r)}
	return a.order(w, r, &o, "put back", a.InPool)
}

// order carries an order out, records it, and answers how the pool stands then.
func (a *Admin) order(w http.ResponseWriter, r *http.Request, o *HandOrder, detail string, do func(context.Context, HandOrder) error) error {
	err := do(r.Context(), *o)
	what := "pool " + o.Pool
	if o.Backend != "" {
		what += " backend " + o.Backend
	}
	if o.Why != "" {
		detail += ": " + o.Why
	}
	c := Changed{}
	if err != nil {
		c.Warning = "done, but it will not survive a restart: " + err.Error()
		detail += " (not kept in the store)"
	}
	a.audit(r, what, detail)
	p, gone := a.handed(o.Pool, "")
	if gone != nil {
		return gone
	}
	c.Pool = *p
	answer(w, http.StatusOK, c)
	return nil
}

// handed finds the pool that an order is about, and refuses what is not there.
func (a *Admin) handed(pool, backend string) (*PoolState, error) {
	if pool == "" {
		return nil, &failure{http.StatusBadRequest, "invalid_request", "pool: say which"}
	}
	all := a.Pools()
	i := slices.IndexFunc(all, func(p PoolState) bool { return p.Name == pool })
	if i < 0 {
		var names []string
		for j := range all {
			names = append(names, all[j].Name)
		}
		return nil, unknown("pool", pool, names)
	}
	p := &all[i]
	var names []string
	for j := range p.Backends {
		names = append(names, p.Backends[j].Name)
	}
	if backend != "" && !slices.Contains(names, backend) {
		return nil, unknown("backend of pool "+pool, backend, names)
	}
	return p, nil
}

// isOut refuses to put back what was not taken out by hand.
func isOut(p *PoolState, backend string) error {
	conflict := func(format string, args ...any) error {
		return &failure{http.StatusConflict, "not_out", fmt.Sprintf(format, args...)}
	}
	some := p.Out != nil
	for i := range p.Backends {
		b := &p.Backends[i]
		some = some || b.Out != nil
		if b.Name != backend || b.Out != nil {
			continue
		}
		if p.Out != nil {
			return conflict("backend %s is not out by hand: pool %s as a whole is; put that back", backend, p.Name)
		}
		return conflict("backend %s of pool %s is not out by hand; it is: %s", backend, p.Name, b.State)
	}
	if !some {
		return conflict("pool %s is not out by hand; it is: %s", p.Name, p.State)
	}
	return nil
}

// unknown says that a name is not there, and which was probably meant.
func unknown(what, name string, there []string) error {
	msg := fmt.Sprintf("there is no %s called %q", what, name)
	if near := config.Nearest(name, there); near != "" {
		msg += fmt.Sprintf("; did you mean %q?", near)
	} else {
		slices.SortFunc(there, cmp.Compare)
		msg += "; there is: " + strings.Join(there, ", ")
	}
	return &failure{http.StatusNotFound, "unknown_name", msg}
}

// within reads for how long something is out; 0 is without an end.
func within(text string, seconds *int64) (time.Duration, error) {
	refuse := func(format string, args ...any) error {
		return &failure{http.StatusBadRequest, "invalid_request", fmt.Sprintf(format, args...)}
	}
	var d time.Duration
	name := "for"
	switch {
	case text != "" && seconds != nil:
		return 0, refuse("for and for_seconds: only one of them")
	case seconds != nil:
		name = "for_seconds"
		if *seconds <= 0 || *seconds > int64(longestOut/time.Second) {
			return 0, refuse("for_seconds: must be from 1 to %d", int64(longestOut/time.Second))
		}
		d = time.Duration(*seconds) * time.Second
	case text == "":
		return 0, nil
	default:
		c, err := config.ParseDuration(text)
		if err != nil {
			return 0, refuse("for: %v", err)
		}
		d = c.D()
	}
	if d <= 0 || d > longestOut {
		return 0, refuse("%s: must be above zero and at most %d days", name, int(longestOut/(24*time.Hour)))
	}
	return d, nil
}

// checkWhy refuses what is no line of text: it goes into events, logs and the errors of clients.
func checkWhy(why string) error {
	if len(why) > longestWhy || !utf8.ValidString(why) || strings.ContainsFunc(why, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return &failure{http.StatusBadRequest, "invalid_request", fmt.Sprintf("why: must be one line of at most %d bytes", longestWhy)}
	}
	return nil
}
