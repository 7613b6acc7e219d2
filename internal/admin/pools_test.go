package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/event"
	"weir/internal/pool"
	"weir/internal/store"
)

// hands is the edge of the admin API: what the rest of Weir would do for it.
type hands struct {
	*Admin
	token  string
	told   *[]event.Event
	pools  []PoolState
	merges []pool.Merge
	orders []HandOrder
	broken error // of the store
}

func newHands(t *testing.T) *hands {
	a, token, told, _ := testAdmin(t, false)
	h := &hands{Admin: a, token: token, told: told, merges: []pool.Merge{{Asked: "b", Serving: "a", State: pool.Learnt}}}
	for _, name := range []string{"a", "b"} {
		h.pools = append(h.pools, PoolState{
			Pool: Pool{Name: name, Tier: "cloud", State: "in", Cap: 5, InFlight: 2}, Vendor: "v", Live: 4, Backends: []Backend{{Name: "x1", State: "in"}, {Name: "x2", State: "in"}},
		})
	}
	a.Pools = func() []PoolState { return h.pools }
	a.Merges = func() []pool.Merge { return h.merges }
	a.OutPool = func(_ context.Context, o HandOrder) error {
		return h.set(o, &Out{Until: o.Until, Why: o.Why, Actor: o.Actor})
	}
	a.InPool = func(_ context.Context, o HandOrder) error { return h.set(o, nil) }
	a.ConfirmMerge = func(string) error { return h.settle(pool.Confirmed) }
	a.UndoMerge = func(string) error { return h.settle(pool.Undone) }
	a.Reroutes = func(_ context.Context, since time.Time) ([]store.ReasonCount, error) {
		if h.broken != nil {
			return nil, h.broken
		}
		n := int64(time.Since(since).Round(time.Minute) / time.Minute)
		return []store.ReasonCount{{Pool: "a", Reason: "merged", Count: n}, {Pool: "b", Reason: "slow", Count: 1}}, nil
	}
	return h
}

func (h *hands) settle(state string) error {
	if h.broken == nil {
		h.merges[0].State = state
	}
	return h.broken
}

func (h *hands) set(o HandOrder, out *Out) error {
	h.orders = append(h.orders, o)
	for i := range h.pools {
		p := &h.pools[i]
		if p.Name != o.Pool {
			continue
		}
		if o.Backend == "" {
			p.Out = out
		}
		for j := range p.Backends {
			if p.Backends[j].Name == o.Backend {
				p.Backends[j].Out = out
			}
		}
	}
	return h.broken
}

// send makes a request and returns status, answer and, where there is one, its error.
func (h *hands) send(method, path, body string) (status int, answer, refused string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "localhost"
	r.Header.Set("Authorization", "Bearer "+h.token)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.Unmarshal(w.Body.Bytes(), &e)
	return w.Code, w.Body.String(), e.Error.Message
}

func TestPoolsAreToldInFull(t *testing.T) {
	h := newHands(t)
	status, answer, _ := h.send("GET", "/api/v1/pools", "")
	var got struct{ Pools []PoolState }
	if err := json.Unmarshal([]byte(answer), &got); err != nil || status != 200 {
		t.Fatalf("%d %s: %v", status, answer, err)
	}
	if d := cmp.Diff(h.pools, got.Pools); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if !strings.Contains(answer, `"backends":[{"name":"x1","state":"in","in_flight":0}`) || strings.Count(answer, `"backends"`) != 2 {
		t.Errorf("got %s", answer)
	}
}

func TestOrdersByHand(t *testing.T) {
	before := time.Now()
	for name, c := range map[string]struct {
		path, body string
		want       HandOrder
		until      time.Duration
		audit      string
	}{
		"a pool, without an end": {"out", `{"pool":"a"}`, HandOrder{Pool: "a"}, 0, "pool a: taken out until it is put back"},
		"a backend for a time":   {"out", `{"pool":"a","backend":"x2","for":"90m","why":"new cable"}`, HandOrder{Pool: "a", Backend: "x2", Why: "new cable"}, 90 * time.Minute, "pool a backend x2: taken out for 90m: new cable"},
		"a time in seconds":      {"out", ` {"pool":"a","for_seconds":60} `, HandOrder{Pool: "a"}, time.Minute, "pool a: taken out for 1m"},
		"a time in days":         {"out", `{"pool":"a","for":"2d"}`, HandOrder{Pool: "a"}, 48 * time.Hour, "pool a: taken out for 2d"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHands(t)
			status, answer, _ := h.send("POST", "/api/v1/pools/"+c.path, c.body)
			if status != 200 || len(h.orders) != 1 {
				t.Fatalf("%d %s, orders %+v", status, answer, h.orders)
			}
			got := h.orders[0]
			if (c.until == 0) != got.Until.IsZero() || c.until > 0 && (got.Until.Before(before.Add(c.until)) || got.Until.After(time.Now().Add(c.until))) {
				t.Errorf("until %v, want %v from now", got.Until, c.until)
			}
			got.Until = time.Time{}
			c.want.Actor = "admin token from 192.0.2.1"
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			var changed Changed
			if err := json.Unmarshal([]byte(answer), &changed); err != nil || changed.Warning != "" || changed.Pool.Name != "a" || (c.want.Backend == "") != (changed.Pool.Out != nil) {
				t.Errorf("answer %s: %v", answer, err)
			}
			e := (*h.told)[0]
			if len(*h.told) != 1 || e.Name != event.Audit || e.To+": "+e.Detail != c.audit || e.Actor != c.want.Actor {
				t.Errorf("audit %+v, want %q", *h.told, c.audit)
			}
		})
	}
}

func TestOrdersThatMakeNoSense(t *testing.T) {
	for name, c := range map[string]struct {
		path, body string
		status     int
		says       string
	}{
		"no body":                            {"pools/out", "", 400, "must be a JSON object"},
		"no object":                          {"pools/out", `["a"]`, 400, "must be a JSON object"},
		"half an object":                     {"pools/out", `{"pool":"a"`, 400, "cannot be read"},
		"two objects":                        {"pools/out", `{"pool":"a"}{"pool":"b"}`, 400, "nothing after it"},
		"something after it":                 {"pools/out", `{"pool":"a"} ]`, 400, "nothing after it"},
		"an unknown member":                  {"pools/out", `{"pool":"a","until":"1h"}`, 400, `unknown field "until"`},
		"a member of the wrong kind":         {"pools/in", `{"pool":1}`, 400, "cannot be read"},
		"a huge one":                         {"pools/out", `{"why":"` + strings.Repeat("x", mostBody) + `"}`, 413, "more than 65536 bytes"},
		"no pool":                            {"pools/out", `{}`, 400, "pool: say which"},
		"an unknown pool":                    {"pools/out", `{"pool":"zebra"}`, 404, `there is no pool called "zebra"; there is: a, b`},
		"an unknown backend, nearly":         {"pools/out", `{"pool":"a","backend":"x3"}`, 404, `did you mean "x1"?`},
		"for twice":                          {"pools/out", `{"pool":"a","for":"1h","for_seconds":1}`, 400, "only one of them"},
		"for no time":                        {"pools/out", `{"pool":"a","for":"0s"}`, 400, "above zero"},
		"for less than that":                 {"pools/out", `{"pool":"a","for_seconds":-1}`, 400, "must be from 1"},
		"for ever and a day":                 {"pools/out", `{"pool":"a","for":"367d"}`, 400, "at most 366 days"},
		"so many seconds that they overflow": {"pools/out", `{"pool":"a","for_seconds":9223372036854775807}`, 400, "must be from 1"},
		"a time without a unit":              {"pools/out", `{"pool":"a","for":"60"}`, 400, "needs a unit"},
		"a reason of two lines (S11)":        {"pools/out", `{"pool":"a","why":"x\ny"}`, 400, "one line"},
		"a reason with an escape":            {"pools/in", `{"pool":"a","why":"\u001b[2J"}`, 400, "one line"},
		"a long reason":                      {"pools/out", `{"pool":"a","why":"` + strings.Repeat("x", longestWhy+1) + `"}`, 400, "at most 300 bytes"},
		"put back what is in":                {"pools/in", `{"pool":"a"}`, 409, "pool a is not out by hand; it is: in"},
		"put back a backend that is in":      {"pools/in", `{"pool":"a","backend":"x1"}`, 409, "backend x1 of pool a is not out by hand; it is: in"},
		"put back a backend of a pool out":   {"pools/in", `{"pool":"b","backend":"x1"}`, 409, "pool b as a whole is; put that back"},
		"confirm what is not merged":         {"caps/confirm", `{"pool":"a"}`, 409, "pool a is merged into no other one"},
		"undo an unknown pool's":             {"caps/undo", `{"pool":"c"}`, 404, `did you mean "a"?`},
		"confirm with a pool and more":       {"caps/confirm", `{"pool":"b","why":"x"}`, 400, `unknown field "why"`},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHands(t)
			h.pools[1].Out = &Out{}
			status, answer, refused := h.send("POST", "/api/v1/"+c.path, c.body)
			if status != c.status || !strings.Contains(refused, c.says) {
				t.Errorf("got %d %s; want %d that says %q", status, answer, c.status, c.says)
			}
			if len(h.orders)+len(*h.told) != 0 || h.merges[0].State != pool.Learnt {
				t.Errorf("it changed something: %+v, %+v, %+v", h.orders, *h.told, h.merges)
			}
		})
	}
}

func TestPutBack(t *testing.T) {
	h := newHands(t)
	h.pools[0].Backends[1].Out = &Out{}
	for _, c := range []struct{ body, audit string }{
		{`{"pool":"a","backend":"x2","why":"mended"}`, "pool a backend x2: put back: mended"},
		{`{"pool":"b"}`, "pool b: put back"},
	} {
		h.pools[1].Out = &Out{}
		*h.told = nil
		if status, answer, _ := h.send("POST", "/api/v1/pools/in", c.body); status != 200 {
			t.Fatalf("%d %s", status, answer)
		}
		if e := (*h.told)[0]; e.To+": "+e.Detail != c.audit {
			t.Errorf("audit %+v, want %q", e, c.audit)
		}
	}
	h.pools[0].Backends[0].Out = &Out{} // the pool's name puts back what is out of it, single backends too
	if status, answer, _ := h.send("POST", "/api/v1/pools/in", `{"pool":"a"}`); status != 200 {
		t.Errorf("%d %s", status, answer)
	}
}

// While the store is gone an operator can still take a pool out, and is told what that lacks.
func TestOrdersWithoutAStore(t *testing.T) {
	h := newHands(t)
	h.broken = errors.New("disk full")
	status, answer, _ := h.send("POST", "/api/v1/pools/out", `{"pool":"a"}`)
	if status != 200 || !strings.Contains(answer, `"warning":"done, but it will not survive a restart: disk full"`) {
		t.Errorf("%d %s", status, answer)
	}
	if e := (*h.told)[0]; !strings.Contains(e.Detail, "not kept in the store") {
		t.Errorf("audit %+v", e)
	}
	if status, answer, _ := h.send("GET", "/api/v1/caps", ""); status != 200 || !strings.Contains(answer, "reroutes could not be counted: disk full") {
		t.Errorf("caps: %d %s", status, answer)
	}
}

func TestWhatAVendorSaysOfItsLimits(t *testing.T) {
	p := pool.New(pool.Options{})
	if got := LimitsOf(p); got != nil {
		t.Errorf("before it said anything: %+v", got)
	}
	h, _ := p.Heard()
	h.Requests.Limit, h.Requests.Remaining, h.Requests.Reset = 60, 0, time.Minute
	h.Tokens.Limit, h.Tokens.Remaining = -1, 5000
	p.Hear(h.Rates)
	got := LimitsOf(p)
	if got == nil || *got.Requests != 60 || *got.RequestsLeft != 0 || !got.RequestsReset.Equal(got.Heard.Add(time.Minute)) ||
		got.Tokens != nil || *got.TokensLeft != 5000 || !got.TokensReset.IsZero() {
		t.Errorf("got %+v", got)
	}
}

func TestCaps(t *testing.T) {
	h := newHands(t)
	h.pools[1].MergedInto = "a"
	left := int64(7)
	h.pools[0].Limits = &VendorLimits{RequestsLeft: &left}
	status, answer, _ := h.send("GET", "/api/v1/caps", "")
	var got Caps
	if err := json.Unmarshal([]byte(answer), &got); err != nil || status != 200 {
		t.Fatalf("%d %s: %v", status, answer, err)
	}
	want := Caps{
		Pools: []Cap{
			{Pool: "a", Tier: "cloud", Vendor: "v", Cap: 5, Live: 4, InFlight: 2, Limits: &VendorLimits{RequestsLeft: &left},
				Reroutes30m: map[string]int64{"merged": 30}, Reroutes24h: map[string]int64{"merged": 24 * 60}},
			{Pool: "b", Tier: "cloud", Vendor: "v", Cap: 5, Live: 4, InFlight: 2, MergedInto: "a",
				Reroutes30m: map[string]int64{"slow": 1}, Reroutes24h: map[string]int64{"slow": 1}},
		},
		Merges: []Merge{Merge(h.merges[0])},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if !strings.Contains(answer, `"measured":null`) {
		t.Errorf("a cap that was never measured: %s", answer)
	}
}

func TestAMergeIsConfirmedOrUndoneOnce(t *testing.T) {
	h := newHands(t)
	h.broken = errors.New("pool a is charged to b itself")
	if status, _, refused := h.send("POST", "/api/v1/caps/confirm", `{"pool":"b"}`); status != 409 || refused != h.broken.Error() || len(*h.told) != 0 {
		t.Errorf("what cannot be: %d %q, told %v", status, refused, *h.told)
	}
	h.broken = nil
	for _, c := range []struct {
		word   string
		status int
		state  string
	}{
		{"confirm", 200, pool.Confirmed}, {"confirm", 409, pool.Confirmed}, {"undo", 200, pool.Undone},
		{"undo", 409, pool.Undone}, {"confirm", 200, pool.Confirmed},
	} {
		*h.told = nil
		status, answer, refused := h.send("POST", "/api/v1/caps/"+c.word, `{"pool":"b"}`)
		if status != c.status || h.merges[0].State != c.state {
			t.Fatalf("%s: %d %s", c.word, status, answer)
		}
		if status == 409 {
			if !strings.Contains(refused, "is "+c.state+" already") || len(*h.told) != 0 {
				t.Errorf("%s again: %q, told %v", c.word, refused, *h.told)
			}
			continue
		}
		if e := (*h.told)[0]; e.Name != event.Audit || e.To != "pool b" || e.Detail != "merge into a "+c.state || !strings.Contains(answer, `"state":"`+c.state+`"`) {
			t.Errorf("%s: audit %+v, answer %s", c.word, e, answer)
		}
	}
}

// A route added later is behind the token too, and its method is checked.
func TestNoRouteIsOpenButLivenessAndReadiness(t *testing.T) {
	h := newHands(t)
	for path, route := range h.routes {
		r := httptest.NewRequest(route.method, path, strings.NewReader("{}"))
		r.Host = "localhost"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if open := path == "/livez" || path == "/readyz"; (w.Code == 401) == open {
			t.Errorf("%s without a token: %d", path, w.Code)
		}
		other := map[string]string{"GET": "POST", "POST": "GET"}[route.method]
		if status, _, _ := h.send(other, path, "{}"); status != 405 {
			t.Errorf("%s %s: %d, want 405", other, path, status)
		}
	}
}
