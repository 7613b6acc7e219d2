package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/admin"
	"weir/internal/event"
	"weir/internal/pool"
	"weir/internal/store"
)

// served is a running Weir as its admin API shows it: three pools, one of them merged into another.
func served(t *testing.T, change func(*admin.Options)) (configFile string) {
	t.Helper()
	dir := t.TempDir()
	at := time.Date(2026, 12, 1, 2, 40, 0, 0, time.Local)
	left, most := int64(12), int64(60)
	pools := []admin.PoolState{
		{Pool: admin.Pool{Name: "big", Tier: "gpu", State: "out", Cap: 2, InFlight: 1, Queue: 4, Prefill: 400}, Live: 2, Own: 1,
			Why: "the pool was taken out by hand: new fan; until it is put back", Out: &admin.Out{Since: at, Why: "new fan"}, Backends: []admin.Backend{{Name: "gpu", State: "out", InFlight: 1}}},
		{Pool: admin.Pool{Name: "vendor-a", Tier: "cloud", State: "in", Cap: 6, InFlight: 4, Waiting: 1, Queue: 32, Prefill: 5123.4, Measured: true}, Live: 4, Own: 3, Vendor: "api.vendor.example",
			Output: 61.7, Gone: []string{"glm-4"}, Limits: &admin.VendorLimits{Requests: &most, RequestsLeft: &left, TokensLeft: &most},
			Backends: []admin.Backend{{Name: "a1", State: "in"}, {Name: "a2", State: "breaker", Kind: "slow", Strikes: 2, Since: at, Until: at.Add(time.Minute)}}},
		{Pool: admin.Pool{Name: "vendor-b", Tier: "cloud", State: "in", Cap: 5, Queue: 32, Prefill: 4000}, Live: 4, Own: 1, Output: 7.25, Vendor: "api.vendor.example", MergedInto: "vendor-a",
			Backends: []admin.Backend{{Name: "a1", State: "in"}}},
	}
	merges := []pool.Merge{{Asked: "vendor-b", Serving: "vendor-a", Vendor: "api.vendor.example", State: pool.Learnt, Time: at, Evidence: "3 answers in a row"}}
	o := admin.Options{
		Data: dir, Emit: func(event.Event) {}, HostOK: func(string) bool { return true }, Ready: func() bool { return true }, Metrics: http.NotFoundHandler(),
		Pools: func() []admin.PoolState { return pools }, Merges: func() []pool.Merge { return merges },
		OutPool: func(_ context.Context, o admin.HandOrder) error {
			for i := range pools[1].Backends {
				if pools[1].Backends[i].Name == o.Backend {
					pools[1].Backends[i].Out = &admin.Out{Until: o.Until}
				}
			}
			return nil
		},
		InPool:       func(context.Context, admin.HandOrder) error { return nil },
		ConfirmMerge: func(string) error { merges[0].State = pool.Confirmed; return nil },
		UndoMerge:    func(string) error { merges[0].State = pool.Undone; return nil },
		Reroutes: func(_ context.Context, since time.Time) ([]store.ReasonCount, error) {
			if time.Since(since) < time.Hour {
				return []store.ReasonCount{{Pool: "vendor-b", Reason: "vendor", Count: 60}, {Pool: "vendor-b", Reason: "fallback", Count: 3}}, nil
			}
			return []store.ReasonCount{{Pool: "vendor-a", Reason: "fallback", Count: 1}, {Pool: "vendor-b", Reason: "vendor", Count: 60}, {Pool: "vendor-b", Reason: "fallback", Count: 3}}, nil
		},
	}
	if change != nil {
		change(&o)
	}
	a, err := admin.New(o)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(a)
	t.Cleanup(s.Close)
	configFile = filepath.Join(dir, "weir.yaml")
	text := fmt.Sprintf("admin: %s\ndata: .\n%s", s.Listener.Addr(), eventsConfig)
	if err := os.WriteFile(configFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return configFile
}

// weirWord runs a word and returns what it printed.
func weirWord(t *testing.T, configFile string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), append(args, "--config", configFile), &Streams{Out: &o, Err: &e})
	return code, o.String(), e.String()
}

func TestPoolsTable(t *testing.T) {
	code, got, errs := weirWord(t, served(t, nil), "pools")
	want := `POOL      TIER   STATE  CAP     IN USE         WAITING  PREFILL        OUTPUT  BACKENDS
big       gpu    out    2       1              0 of 4   400/s (guess)  -       gpu(out)
vendor-a  cloud  in     4 of 6  4              1 of 32  5123/s         62/s    a1 a2(breaker)
vendor-b  cloud  in     4 of 5  1, in vendor-a  0 of 32  4000/s (guess)  7.2/s   a1

pool big is out: the pool was taken out by hand: new fan; until it is put back
backend a2 of pool vendor-a is breaker: slow, the last time at 02:40:00; out 2 times in a row; until 2026-12-01 02:41
pool vendor-a does not have any more: glm-4
`
	if d := cmp.Diff(strings.Fields(want), strings.Fields(got)); d != "" || code != exitOK {
		t.Errorf("%d %s (-want +got):\n%s\n%s", code, errs, d, got)
	}
}

func TestCapsTable(t *testing.T) {
	config := served(t, nil)
	code, got, errs := weirWord(t, config, "caps")
	want := `POOL      VENDOR              CAP  LIVE  IN USE  VENDOR SAYS                           MERGED INTO  REROUTES 30M  REROUTES 24H
big       -                   2    2     1       -                                     -            0             0
vendor-a  api.vendor.example  6    4     4       12 of 60 requests left, 60 tokens left  -  0  1 fallback
vendor-b  api.vendor.example  5    4     0       -  vendor-a  63: 60 vendor, 3 fallback  63: 60 vendor, 3 fallback

ASKED     SERVED BY  VENDOR              STATE   SINCE             EVIDENCE
vendor-b  vendor-a   api.vendor.example  learnt  2026-12-01 02:40  3 answers in a row

learnt from answers: if it is so, ` + "`weir caps confirm vendor-b`; if not, `weir caps undo vendor-b`\n"
	if d := cmp.Diff(strings.Fields(want), strings.Fields(got)); d != "" || code != exitOK {
		t.Errorf("%d %s (-want +got):\n%s\n%s", code, errs, d, got)
	}
	if code, again, _ := weirWord(t, config, "caps", "list"); code != exitOK || again != got {
		t.Errorf("weir caps list differs from weir caps: %d\n%s", code, again)
	}
	var caps admin.Caps
	if _, text, _ := weirWord(t, config, "caps", "--json"); json.Unmarshal([]byte(text), &caps) != nil || caps.Pools[2].Reroutes30m["vendor"] != 60 {
		t.Errorf("JSON: %+v", caps)
	}
}

func TestPoolWordsChangeTheRunningWeir(t *testing.T) {
	for name, c := range map[string]struct {
		args       string
		code       int
		out, error string
	}{
		"a pool out":                 {"pool out big", exitOK, "pool big is out, until it is put back with `weir pool in big`; 1 running call goes on\n", ""},
		"a backend out for a time":   {"pool out vendor-a a2 --for 1h", exitOK, "backend a2 of pool vendor-a is out, until " + time.Now().Format("2006-01-02 "), ""},
		"a pool in":                  {"pool in big --why mended", exitOK, "pool big is not out by hand any more; the pool is: out\n", ""},
		"what is in":                 {"pool in vendor-a", exitFailed, "", "refused: pool vendor-a is not out by hand; it is: in"},
		"an unknown pool":            {"pool out vendor-c", exitFailed, "", `refused: there is no pool called "vendor-c"; did you mean "vendor-a"?`},
		"a time without a unit":      {"pool out big --for 60", exitUsage, "", "--for: needs a unit"},
		"a time that is none":        {"pool out big --for 0s", exitUsage, "", "must be above zero"},
		"no pool":                    {"pool out", exitUsage, "", "expected"},
		"JSON":                       {"pool out big --json", exitOK, "{\n  \"pool\": {\n    \"name\": \"big\",", ""},
		"a merge confirmed":          {"caps confirm vendor-b", exitOK, "confirmed: calls of pool vendor-b count against the cap of pool vendor-a\n", ""},
		"a merge undone":             {"caps undo vendor-b", exitOK, "undone: calls of pool vendor-b count against its own cap again\n", ""},
		"a merge undone, as JSON":    {"caps undo vendor-b --json", exitOK, "{\n  \"merge\": {\n    \"asked\": \"vendor-b\",", ""},
		"what is not merged":         {"caps confirm big", exitFailed, "", "pool big is merged into no other one"},
		"a word that does not exist": {"pools out big", exitUsage, "", "unexpected argument"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := weirWord(t, served(t, nil), strings.Fields(c.args)...)
			if code != c.code || !strings.HasPrefix(out, c.out) || c.out == "" && out != "" || !strings.Contains(errs, c.error) || c.error == "" && errs != "" {
				t.Errorf("got %d, %q, %q; want %d, %q, %q", code, out, errs, c.code, c.out, c.error)
			}
		})
	}
}

func TestAWarningIsSaidAndIsNoFailure(t *testing.T) {
	config := served(t, func(o *admin.Options) {
		o.OutPool = func(context.Context, admin.HandOrder) error { return fmt.Errorf("disk full") }
		o.Reroutes = func(context.Context, time.Time) ([]store.ReasonCount, error) { return nil, fmt.Errorf("disk full") }
	})
	for _, args := range []string{"pool out big", "caps"} {
		if code, out, errs := weirWord(t, config, strings.Fields(args)...); code != exitOK || out == "" || !strings.Contains(errs, "weir: warning: ") || !strings.Contains(errs, "disk full") {
			t.Errorf("%s: %d, %q, %q", args, code, out, errs)
		}
	}
}
