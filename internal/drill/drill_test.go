package drill

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/app"
	"weir/internal/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const smallYAML = `
backends:
  near: {url: "http://127.0.0.1:9", server: llamacpp, tier: floor}
  far: {url: "https://api.vendor.example/v1", tier: cloud, key: "${env:DRILL_TEST_IS_NEVER_READ}", stream: as_asked}
pools:
  near: {backend: near, cap: 2, queue: 3, window: 4096, models: [small]}
  far: {backend: far, cap: 20, window: 8192, models: [large]}
routes:
  two: {steps: [near, far]}
aliases: {two: two, one: far/large, again: two}
`

func parse(t *testing.T, text, file string) *config.Config {
	t.Helper()
	c, report := config.Parse([]byte(text), file)
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	return c
}

func run(t *testing.T, o Options) *Report {
	t.Helper()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Every fault of the catalogue is brought to a sound gateway, which passes; nothing is left out in silence.
func TestASoundGatewayPassesEveryRow(t *testing.T) {
	c := parse(t, smallYAML, "small.yaml")
	told := 0
	r := run(t, Options{Config: c, Aliases: []string{"two"}, Progress: func(p Progress) { told = p.Done }})
	for _, row := range r.Rows {
		if row.Result == Fail {
			t.Errorf("%s %s, %s: saw %q: %s", row.Fault, row.Name, row.Mode, row.Saw, row.Reason)
		}
		if row.Result == NotApplicable && row.Reason == "" {
			t.Errorf("%s %s cannot apply, and nothing says why", row.Fault, row.Name)
		}
	}
	if want := 2 * len(catalogue()); len(r.Rows) != want || told != want || r.Passed+r.NotApplicable != want || r.Passed < want*9/10 {
		t.Errorf("%d rows, %d told, %s; want %d", len(r.Rows), told, r.Counts(), want)
	}
	tables(t, r)
}

// tables checks that each form has every row.
func tables(t *testing.T, r *Report) {
	t.Helper()
	var text, page, data bytes.Buffer
	if err := r.Text(&text); err != nil {
		t.Error(err)
	}
	if err := r.Markdown(&page); err != nil {
		t.Error(err)
	}
	if err := json.NewEncoder(&data).Encode(r); err != nil {
		t.Error(err)
	}
	for _, f := range catalogue() {
		for name, form := range map[string]string{"text": text.String(), "JSON": data.String(), "Markdown": page.String()} {
			what := f.name
			if name == "Markdown" {
				what = escaped(what)
			}
			if !strings.Contains(form, what) || !strings.Contains(form, f.id) {
				t.Errorf("the %s has no row %s %s", name, f.id, f.name)
			}
		}
	}
	if !strings.Contains(text.String(), "passed, ") || !strings.Contains(data.String(), `"took_ms":`) {
		t.Error("the counts are missing")
	}
}

// A route of one step has nobody to fall back to: what clients get then is a proper error.
func TestOneStepAnswersWithProperErrors(t *testing.T) {
	r := run(t, Options{Config: parse(t, smallYAML, "small.yaml"), Aliases: []string{"one"}, Only: []string{"F01", "f07", "F09", "F17", "F20", "F34", "F50", "F53"}})
	for _, row := range r.Rows {
		if row.Result == Fail {
			t.Errorf("%s %s, %s: saw %q: %s", row.Fault, row.Name, row.Mode, row.Saw, row.Reason)
		}
	}
	i := slices.IndexFunc(r.Rows, func(row Row) bool { return row.Fault == "F01" })
	if got := r.Rows[i]; got.Saw != "502 upstream_refused" || got.Attempts != 1 {
		t.Errorf("F01: %+v", got)
	}
}

// buggy is a gateway with a bug: what it changes of answers.
type buggy struct {
	next http.RoundTripper
	edit func(r *http.Response, body []byte) []byte
}

func (b buggy) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, cut := io.ReadAll(resp.Body)
	resp.Body.Close()
	edited := b.edit(resp, body)
	var tail io.Reader = strings.NewReader("")
	if cut != nil && bytes.Equal(edited, body) {
		tail = ending{cut}
	}
	resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(edited), tail))
	return resp, nil
}

// ending reads nothing but an error.
type ending struct{ error }

func (f ending) Read([]byte) (int, error) { return 0, f.error }

// Bugs of the kinds that rivals have are found, each by the rows that are there for it.
func TestABrokenGatewayFails(t *testing.T) {
	stream := func(r *http.Response) bool { return strings.HasPrefix(r.Header.Get("Content-Type"), "text/event") }
	for name, c := range map[string]struct {
		only, why string
		edit      func(*http.Response, []byte) []byte
	}{
		"a cut stream ends with [DONE]": {"F20", `"[DONE]" came after the end`, func(r *http.Response, b []byte) []byte {
			if stream(r) && !bytes.Contains(b, []byte("[DONE]")) {
				return append(b, "data: [DONE]\n\n"...)
			}
			return b
		}},
		"errors within a stream are swallowed": {"F24", "not exactly one error", func(r *http.Response, b []byte) []byte {
			if i := bytes.Index(b, []byte(`data: {"error"`)); stream(r) && i >= 0 {
				return b[:i]
			}
			return b
		}},
		"a cut stream gets a finish and [DONE]": {"F23", "looks whole", func(r *http.Response, b []byte) []byte {
			if i := bytes.Index(b, []byte(`data: {"error"`)); stream(r) && i >= 0 {
				return append(b[:i], "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"...)
			}
			return b
		}},
		"every error is a 200": {"F08", "200", func(r *http.Response, b []byte) []byte {
			r.StatusCode = 200
			return b
		}},
		"the text of two answers is spliced": {"F06", "I6", func(r *http.Response, b []byte) []byte {
			return bytes.Replace(b, []byte("two "), []byte("two two "), 1)
		}},
		"addresses are told to clients": {"F19", "I11", func(r *http.Response, b []byte) []byte {
			return bytes.Replace(b, []byte(`"message":"`), []byte(`"message":"http://near.drill:80 `), 1)
		}},
		"an event after the end": {"F26", "after the end", func(r *http.Response, b []byte) []byte {
			if stream(r) {
				return append(b, "data: {\"choices\":[]}\n\n"...)
			}
			return b
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			front := func(next http.RoundTripper) http.RoundTripper { return buggy{next, c.edit} }
			r := run(t, Options{Config: parse(t, smallYAML, "small.yaml"), Aliases: []string{"two"}, Only: []string{c.only}, Front: front})
			if !slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Result == Fail && strings.Contains(row.Reason, c.why) }) || r.Failed == 0 {
				t.Errorf("the bug was not found by %q: %+v", c.why, r.Rows)
			}
		})
	}
}

// What the operator has is not touched: no address, key or certificate of the file is in what the drill builds.
func TestTheConfigurationIsTamed(t *testing.T) {
	c := parse(t, smallYAML+"traces: {url: \"http://127.0.0.1:4318/v1/traces\"}\nlimits: {first_content: 2m, total: 2h}\nspend: {day: 0.01}\nloop_guard: {slow: 3}\n", "small.yaml")
	tamed, err := tame(c, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range tamed.Backends {
		if b.URL != "http://"+name+domain {
			t.Errorf("backend %s is at %s", name, b.URL)
		}
	}
	if key, err := tamed.Backends["far"].Key.Value(); key != canary || err != nil {
		t.Errorf("the key is %q, %v", key, err)
	}
	if tamed.Traces.URL != "" || tamed.Limits.FirstContent.D() != most || tamed.Limits.Total.D() != whole || tamed.Pools["far"].Cap != mostSlots {
		t.Errorf("traces %q, limits %+v", tamed.Traces.URL, tamed.Limits)
	}
	if tamed.Spend.Day != 0 || tamed.LoopGuard.Slow != 0 {
		t.Errorf("ceilings %+v and the loop guard %+v stop what is no fault", tamed.Spend, tamed.LoopGuard)
	}
	if c.Backends["far"].URL != "https://api.vendor.example/v1" || c.Limits.FirstContent.D() != 2*time.Minute || c.Pools["far"].Cap != 20 || c.Traces.URL == "" {
		t.Error("the operator's own configuration was changed")
	}
	lanes, err := lanesOf(tamed, nil)
	if err != nil || len(lanes) != 2 || lanes[0].alias != "again" || lanes[1].alias != "one" {
		t.Errorf("lanes %+v, %v: want one for each different route", lanes, err)
	}
}

// The same faults are brought to a gateway that runs elsewhere: here to another Weir.
func TestAgainstARunningGateway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close() // the drill listens there
	c := parse(t, fmt.Sprintf(`
listen: 127.0.0.1:0
admin: 127.0.0.1:0
data: %q
auth: {keys: "off"}
limits: {first_content: 500ms, idle: 500ms, answer: 1s}
backends: {drill: {url: "http://%s", tier: gpu}}
pools: {drill: {backend: drill, cap: 16, models: [drill]}}
`, t.TempDir(), addr), "other.yaml")
	a, err := app.New(t.Context(), app.Options{Config: c})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Run(t.Context()) }()
	defer func() { a.Halt(); <-ended }()
	var said []string
	r := run(t, Options{Only: []string{"F01", "F04", "F06", "F17", "F20", "F21", "F42", "F44"}, Against: &Target{
		URL: "http://" + a.Addr().String() + "/v1", Model: "drill/drill", Listen: addr, Wait: 10 * time.Second, Say: func(s string) { said = append(said, s) }}})
	for _, row := range r.Rows {
		switch {
		case row.Result == Fail:
			t.Errorf("%s %s, %s: saw %q: %s", row.Fault, row.Name, row.Mode, row.Saw, row.Reason)
		case (row.Result == NotApplicable) != (row.Fault == "F04" || strings.Contains(row.Name, "every step")):
			t.Errorf("%s %s: %s %s", row.Fault, row.Name, row.Result, row.Reason)
		}
	}
	if len(said) != 1 || !strings.Contains(said[0], addr) {
		t.Errorf("said %q: the address of the drill's server must be in it", said)
	}
}

func TestOnlyLoopbackIsDrilledUnlessForced(t *testing.T) {
	for name, c := range map[string]struct {
		g    Target
		want string
	}{
		"a gateway on loopback":    {Target{URL: "http://127.0.0.1:4000", Model: "m", Listen: "127.0.0.1:9009"}, ""},
		"by its name":              {Target{URL: "http://localhost:4000/v1", Model: "m", Listen: "[::1]:9009"}, ""},
		"one elsewhere":            {Target{URL: "https://gw.example", Model: "m", Listen: "127.0.0.1:9009"}, "not on loopback"},
		"a server for everyone":    {Target{URL: "http://127.0.0.1:4000", Model: "m", Listen: ":9009"}, "not on loopback"},
		"elsewhere, and forced":    {Target{URL: "https://gw.example", Model: "m", Listen: "0.0.0.0:9009", Force: true}, ""},
		"no URL":                   {Target{URL: "gateway", Model: "m", Listen: "127.0.0.1:9009"}, "is no URL"},
		"no name for the requests": {Target{URL: "http://127.0.0.1:4000", Listen: "127.0.0.1:9009"}, "model"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.g.Check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestAnUnknownFaultOrAliasIsNamed(t *testing.T) {
	c := parse(t, smallYAML, "small.yaml")
	if _, err := Run(t.Context(), Options{Config: c, Only: []string{"F99"}}); err == nil || !strings.Contains(err.Error(), `"F99"`) || !strings.Contains(err.Error(), "F06") {
		t.Errorf("got %v", err)
	}
	if _, err := Run(t.Context(), Options{Config: c, Aliases: []string{"nobody"}}); err == nil || !strings.Contains(err.Error(), "again, one, two") {
		t.Errorf("got %v", err)
	}
}

// wanted are the faults that the issue of honest failover lists, those that a client or a server can see.
var wanted = "F01 F02 F03 F04 F05 F06 F07 F08 F09 F10 F11 F12 F13 F14 F15 F16 F17 F18 F19 F20 F21 F22 F23 F24 F25 F26 F28 F30 F31 F32 F33 F34 F40 F41 F42 F44 F45 F46 F47 F49 F50 F51 F53"

// The catalogue and its page are complete: make drill writes the page.
func TestThePageHasEveryRow(t *testing.T) {
	if got := strings.Join(IDs(), " "); got != wanted {
		t.Errorf("the catalogue has %s", got)
	}
	page, err := os.ReadFile("../../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../examples/three-tiers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	lanes, err := lanesOf(parse(t, string(text), "three-tiers.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(page), "\n## ")
	for _, l := range lanes {
		i := slices.IndexFunc(parts, func(p string) bool { return strings.HasPrefix(p, code(l.alias)+" → "+code(l.route)) })
		if i < 0 {
			t.Errorf("docs/conformance.md has no part for %s: run make drill", l.alias)
			continue
		}
		for _, f := range catalogue() {
			if !strings.Contains(parts[i], "| "+f.id+" | "+escaped(f.name)+" |") {
				t.Errorf("docs/conformance.md has no row %s %s for %s: run make drill", f.id, f.name, l.alias)
			}
		}
	}
	if strings.Contains(string(page), "| fail") {
		t.Error("docs/conformance.md has a failed row")
	}
}
