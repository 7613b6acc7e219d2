package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/store"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// price is one in nano-dollars per token.
func price(in, out int64) Price {
	return func(t Tokens) (int64, bool) { return max(t.In, 0)*in + max(t.Out, 0)*out, t.In >= 0 && t.Out >= 0 }
}

func build(t testing.TB, s *store.Store, change ...func(*Options)) *Report {
	t.Helper()
	o := Options{Since: now.Add(-2 * time.Hour), Until: now, Location: place}
	for _, c := range change {
		c(&o)
	}
	r, err := New(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// known fills a store with ten requests and some facts of the last two hours.
func known(t testing.TB) *store.Store {
	t.Helper()
	s := open(t)
	at := func(minute int) time.Time { return now.Add(time.Duration(minute-120) * time.Minute) }
	used := func(in, out, cost int64) func(*store.Request) {
		return func(r *store.Request) { r.TokensIn, r.TokensOut, r.Cost = in, out, cost }
	}
	own := func(r *store.Request) {
		r.Tier, r.Class, r.Route = "floor", "simple", "quick"
		r.Total, r.First, r.Queue, r.Overhead = 800*time.Millisecond, 80*time.Millisecond, 40*time.Millisecond, 90*time.Microsecond
	}
	write(t, s, []store.Request{
		row(at(-5), "vendor", "glm-5", used(7, 7, 7)), // before the period
		row(at(1), "vendor", "glm-5", used(1000, 100, 800_000)),
		row(at(2), "vendor", "glm-5", used(2000, 200, 1_600_001), func(r *store.Request) {
			r.Total, r.Reroute, r.Attempts = 9*time.Second, "fallback", attempts("helper", "small", "full", "gpu", "big", "slow", "gpu", "big", "refused", "vendor", "glm-5", "")
		}),
		row(at(3), "helper", "small", own, used(500, 50, 0)),
		row(at(4), "helper", "small", own, used(500, 50, -1)), // at an unknown price
		row(at(5), "helper", "small", own, func(r *store.Request) {
			r.Op, r.Reroute, r.Served = "embeddings", "vendor", "other"
			r.TokensOut, r.Cost = -1, 3
		}),
		row(at(6), "", "", failed("slow", "no content in time", 504, "gpu", "big", "slow")),
		row(at(7), "", "", failed("invalid", "messages: must be a list", 400)),
		row(at(8), "", "", failed("unauthorized", "no such key", 401), func(r *store.Request) { r.Op, r.Route, r.Attempts = "", "", "[]" }),
		row(at(9), "vendor", "glm-5", used(100, 10, 80_000), func(r *store.Request) { r.Kind, r.Status = "canceled", 499 }),
		row(at(119), "vendor", "glm-5", func(r *store.Request) { r.Op, r.Total, r.TokensOut, r.Cost = "count", time.Millisecond, -1, -1 }), // uses nothing
	}, []store.Fact{
		{Time: at(10), Event: "health", Pool: "gpu", To: "box", Reason: "ejected", Kind: "slow", Detail: "live traffic failed again and again"},
		{Time: at(40), Event: "health", Pool: "gpu", To: "box", Reason: "returned", Detail: "the trial with a real request passed"},
		{Time: at(41), Event: "alert", Pool: "vendor", To: "vendor", Model: "glm-4", Reason: "gone", Detail: "no such model"},
		{Time: at(50), Event: "shift", Reason: "shifted", From: "v1", To: "v2", Actor: "ana", Detail: "cap 4"},
		{Time: at(51), Event: "audit", Actor: "ana", To: "key laptop (aaaaaaaa)", Detail: "issued"},
		{Time: at(52), Event: "loop", Route: "code", Reason: "slowed", Detail: "key ci: the same request 9 times"},
	})
	return s
}

func TestKnownRows(t *testing.T) {
	r := build(t, known(t), func(o *Options) {
		o.Prices = func(pool, model string) Price {
			return map[string]Price{"vendor/glm-5": price(600, 2000), "helper/small": price(1, 1)}[pool+"/"+model]
		}
	})
	rate := 1.0 / 7
	if d := cmp.Diff(Requests{Total: 10, Answered: 6, Failed: 1, Client: 3, Rate: &rate, Kinds: []Kind{
		{"canceled", true, 1}, {"invalid", true, 1}, {"slow", false, 1}, {"unauthorized", true, 1}}}, r.Requests); d != "" {
		t.Error("the client's faults are not the system's:", d)
	}
	ms := func(n float64) Millis { return Millis(n * float64(time.Millisecond)) }
	wantAll := Timing{"all", 5, ms(800), ms(9000), ms(9000), ms(80), ms(300), ms(40), ms(0.2), ms(0.2)}
	if d := cmp.Diff(wantAll, r.Latency.All); d != "" {
		t.Error(d)
	}
	if got, want := r.Total.Cost, (Cost{Nanos: 2_480_004, Priced: 5, Unpriced: 1}); got != want {
		t.Errorf("cost %+v, want %+v", got, want)
	}
	saved := Nanos((600+2000*100/1000)*1000 + 2*800_000 + 80_000 + 400_000 - 2_480_001)
	if d := cmp.Diff(Reference{Model: "vendor/glm-5", Known: true, Cost: Cost{Nanos: 800_000 + 1_600_000 + 80_000 + 2*400_000, Priced: 5}, Compared: 4,
		Was: 2_480_001, Would: 2_880_000, Saved: &saved}, r.Reference); d != "" {
		t.Error("the dearest model seen, with chat alone:", d)
	}
	per := 10.0 / 8
	if d := cmp.Diff(Effort{Attempts: 11, Generations: 10, Retries: 1, Fallbacks: 1, PerRequest: &per}, r.Effort); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]Reroute{{"fallback", "helper/small", "vendor/glm-5", 1}, {"vendor", "helper/small", "other", 1}}, r.Reroutes); d != "" {
		t.Error(d)
	}
	golden(t, "known.txt", r.WriteText)
	golden(t, "known.json", r.WriteJSON)
}

// golden compares what is written with a file of testdata.
func golden(t *testing.T, name string, write func(io.Writer) error) {
	t.Helper()
	var got bytes.Buffer
	if err := write(&got); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Errorf("%s: %s", file, d)
	}
}

func TestJSONIsWhole(t *testing.T) {
	var b bytes.Buffer
	if err := build(t, open(t)).WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gate", "triage", "first"} {
		if v, there := got[name]; !there || v != nil {
			t.Errorf("%s: %v, want null", name, v)
		}
	}
	for _, name := range []string{"class_tier", "pools", "reroutes", "health", "outages", "alerts", "swaps", "loops", "slowest", "last_failed"} {
		if v, ok := got[name].([]any); !ok || len(v) != 0 {
			t.Errorf("%s: %v, want an empty list", name, got[name])
		}
	}
}

func TestAnEmptyPeriodSaysSo(t *testing.T) {
	for name, s := range map[string]*store.Store{"an empty store": open(t), "nothing in the period": old(t)} {
		t.Run(name, func(t *testing.T) {
			r := build(t, s, func(o *Options) { o.Since = now.Add(-time.Minute) })
			var text, page bytes.Buffer
			if err := r.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			if err := r.WriteHTML(&page); err != nil {
				t.Fatal(err)
			}
			for _, b := range []*bytes.Buffer{&text, &page} {
				if !bytes.Contains(b.Bytes(), []byte("Nothing was recorded in this period.")) {
					t.Errorf("got %s", b)
				}
			}
		})
	}
}

func old(t *testing.T) *store.Store {
	s := open(t)
	write(t, s, []store.Request{row(now.Add(-time.Hour), "vendor", "glm-5")}, nil)
	return s
}

func TestTheReferenceIsNamed(t *testing.T) {
	s := known(t)
	r := build(t, s, func(o *Options) { o.Reference, o.Price = "opus", price(1, 1) })
	if got, want := r.Reference.Cost, (Cost{Nanos: 1100 + 2200 + 110 + 550 + 550, Priced: 5}); got != want || !r.Reference.Named {
		t.Errorf("%+v, want %+v", r.Reference, want)
	}
	if saved := r.Reference.Saved; saved == nil || *saved != 1100+2200+110+550-2_480_001 {
		t.Errorf("saved %v, want less than nothing", saved)
	}
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"without a price it is unknown":            {func(o *Options) { o.Reference = "nobody" }, "The price of nobody is unknown"},
		"nothing seen has a price":                 {func(o *Options) { o.Prices = func(string, string) Price { return nil } }, "No model that answered has a known price"},
		"what costs nothing is nothing to compare": {func(o *Options) { o.Prices = func(string, string) Price { return price(0, 0) } }, "No model that answered has a known price"},
		"dearer than it":                           {func(o *Options) { o.Reference, o.Price = "opus", price(1, 1) }, "more."},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := build(t, s, c.change).WriteText(&b); err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(b.Bytes(), []byte(c.want)) {
				t.Errorf("want %q in %s", c.want, b.Bytes())
			}
		})
	}
}

func TestClocksThatJump(t *testing.T) {
	s := open(t)
	write(t, s, []store.Request{
		row(time.UnixMicro(0), "vendor", "glm-5", func(r *store.Request) { r.Total, r.First, r.Queue, r.Overhead = -5, -1, -1, -1 }),
		row(now.Add(300*24*time.Hour), "vendor", "glm-5"), row(now.Add(-time.Minute), "vendor", "glm-5"),
	}, []store.Fact{
		{Time: now.Add(time.Hour), Event: "health", Pool: "p", To: "b", Reason: "ejected"},
		{Time: now.Add(2 * time.Hour), Event: "shift", To: "v9"},
		{Time: now.Add(-time.Hour), Event: "health", Pool: "q", To: "b", Reason: "returned"},
	})
	for name, change := range map[string]func(*Options){
		"since 1970":        func(o *Options) { o.Since = time.Time{} },
		"of two hours":      func(*Options) {},
		"of no time at all": func(o *Options) { o.Since = now },
		"ending in 1960":    func(o *Options) { o.Since, o.Until = time.Time{}, time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		t.Run(name, func(t *testing.T) {
			r := build(t, s, change)
			if r.Ahead == 0 || len(r.Timeline.Bins) > mostBins {
				t.Errorf("%d ahead, %d bins", r.Ahead, len(r.Timeline.Bins))
			}
			drawings(t, r)
		})
	}
}

func TestListsAreBounded(t *testing.T) {
	s := open(t)
	var requests []store.Request
	var facts []store.Fact
	for i := range 1200 {
		name := fmt.Sprint("m", i)
		requests = append(requests, row(now.Add(time.Duration(i-1200)*time.Second), name, name, func(r *store.Request) {
			r.Route, r.Class, r.Reroute, r.Served, r.Total = name, name, "vendor", name+"x", time.Duration(i)*time.Second
			if i%2 == 0 {
				r.Kind, r.Message = "slow", name
			}
		}))
		facts = append(facts, store.Fact{Time: now.Add(-time.Hour), Event: "alert", Pool: name, To: name, Reason: "denied"}, store.Fact{Time: now.Add(-time.Hour), Event: "audit", Actor: name},
			store.Fact{Time: now.Add(-time.Hour), Event: "shift", To: name})
	}
	write(t, s, requests, facts)
	r := build(t, s)
	for name, n := range map[string]int{"class_tier": len(r.Work), "pools": len(r.Pools), "routes": len(r.Latency.Routes), "reroutes": len(r.Reroutes), "alerts": len(r.Alerts), "lanes": len(r.Lanes)} {
		if n != mostGroups+1 {
			t.Errorf("%s: %d, want %d and the others", name, n, mostGroups)
		}
	}
	if r.Pools[0].Pool != others || r.Pools[0].Requests != 1100 {
		t.Errorf("the others are %+v", r.Pools[0])
	}
	if len(r.Slowest) != mostSlow || r.Slowest[0].Total != Millis(1199*time.Second) || r.Slowest[9].Total != Millis(1190*time.Second) {
		t.Errorf("slowest %+v", r.Slowest)
	}
	if len(r.Failed) != mostFailed || r.Failed[0].Message != "m1198" || r.Failed[19].Message != "m1160" {
		t.Errorf("failed %+v", r.Failed)
	}
	if r.Interventions.Count != 1200 || len(r.Interventions.List) != mostNotes || r.Interventions.List[mostNotes-1].Actor != "m1199" {
		t.Errorf("%d interventions of %d", len(r.Interventions.List), r.Interventions.Count)
	}
	drawings(t, r)
}
