package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/store"
)

func outlineOf(n int64) store.Outline { return store.Outline{Requests: n} }

// TestOutages tells histories of one backend: a word per event at its minute of the last two hours, "ok" is an answer.
func TestOutages(t *testing.T) {
	type step struct {
		minute int
		what   string
	}
	for name, c := range map[string]struct {
		history []step
		want    []string // cause, minutes, end
		down    time.Duration
		now     Name
	}{
		"out and back":                            {[]step{{10, "ejected"}, {30, "returned"}}, []string{"ejected 10-30 returned"}, 20 * time.Minute, ""},
		"it lasts":                                {[]step{{100, "ejected"}}, []string{"ejected 100-120 "}, 20 * time.Minute, "ejected"},
		"it began before the period":              {[]step{{-50, "denied"}, {5, "denied resolved"}}, []string{"denied -50-5 returned"}, 5 * time.Minute, ""},
		"it began before, and lasts":              {[]step{{-50, "denied"}}, []string{"denied -50-120 "}, 2 * time.Hour, "denied"},
		"it was over before":                      {[]step{{-50, "ejected"}, {-40, "returned"}}, nil, 0, ""},
		"an answer shows that a restart forgot":   {[]step{{10, "ejected"}, {25, "ok"}, {20, "ok"}}, []string{"ejected 10-20 answer"}, 10 * time.Minute, ""},
		"so it does before the period":            {[]step{{-50, "ejected"}, {15, "ok"}}, []string{"ejected -50-15 answer"}, 15 * time.Minute, ""},
		"a return goes before an answer":          {[]step{{10, "ejected"}, {20, "ok"}, {30, "returned"}}, []string{"ejected 10-30 returned"}, 20 * time.Minute, ""},
		"ejected again without a return":          {[]step{{10, "ejected"}, {40, "ejected"}, {50, "returned"}}, []string{"ejected 10-40 unknown", "ejected 40-50 returned"}, 40 * time.Minute, ""},
		"and an answer between":                   {[]step{{10, "ejected"}, {15, "ok"}, {40, "ejected"}, {50, "returned"}}, []string{"ejected 10-15 answer", "ejected 40-50 returned"}, 15 * time.Minute, ""},
		"what is out by hand no answer puts in":   {[]step{{10, "out"}, {20, "ok"}}, []string{"out 10-120 "}, 110 * time.Minute, "out"},
		"taken out twice by hand":                 {[]step{{10, "out"}, {20, "out"}, {30, "in"}}, []string{"out 10-30 returned"}, 20 * time.Minute, ""},
		"all of a pool is put back at once":       {[]step{{10, "out"}, {30, "in all"}}, []string{"out 10-30 returned"}, 20 * time.Minute, ""},
		"a shift took the model away":             {[]step{{10, "gone"}, {30, "gone resolved all"}}, []string{"gone 10-30 returned"}, 0, ""},
		"two causes at once count once":           {[]step{{10, "ejected"}, {20, "denied"}, {30, "returned"}, {40, "denied resolved"}}, []string{"ejected 10-30 returned", "denied 20-40 returned"}, 30 * time.Minute, ""},
		"a model that is gone is not the server":  {[]step{{10, "gone"}, {30, "gone resolved"}}, []string{"gone 10-30 returned"}, 0, ""},
		"an answer of another model ends nothing": {[]step{{10, "gone"}, {30, "ok other"}}, []string{"gone 10-120 "}, 0, "gone"},
		"a return alone":                          {[]step{{10, "returned"}}, nil, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			start := now.Add(-2 * time.Hour)
			var requests []store.Request
			var facts []store.Fact
			for _, h := range c.history {
				at := start.Add(time.Duration(h.minute) * time.Minute)
				event := "health"
				if strings.HasPrefix(h.what, "denied") || strings.HasPrefix(h.what, "gone") {
					event = "alert"
				}
				switch h.what {
				case "ok":
					requests = append(requests, row(at, "p", "m"))
				case "ok other":
					requests = append(requests, row(at, "p", "other"))
				default:
					reason, all := strings.CutSuffix(h.what, " all")
					f := store.Fact{Time: at, Event: event, Pool: "p", To: "p", Model: "m", Reason: reason}
					if all {
						f.To = ""
					}
					facts = append(facts, f)
				}
			}
			write(t, s, requests, facts)
			r := build(t, s)
			var got []string
			for _, o := range r.Outages {
				got = append(got, fmt.Sprintf("%s %d-%d %s", o.Cause, o.From.Sub(start)/time.Minute, o.To.Sub(start)/time.Minute, o.End))
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			var lane Lane
			if len(r.Lanes) > 0 {
				lane = r.Lanes[0]
			}
			if time.Duration(lane.Down) != c.down || lane.Now != c.now {
				t.Errorf("down %v and now %q, want %v and %q", time.Duration(lane.Down), lane.Now, c.down, c.now)
			}
			drawings(t, r)
		})
	}
}

func TestManyOutagesAreBounded(t *testing.T) {
	h := newHealth(now.Add(-time.Hour))
	tell := func(second int, event, model, reason string) {
		h.fact(&store.Fact{Time: now.Add(time.Duration(second-3600) * time.Second / 10), Event: event, Pool: "p", To: "p", Model: model, Reason: reason})
	}
	tell(1, "health", "", "out") // and it stays so
	for i := range 3 * mostOutages {
		tell(2+2*i, "health", "", "ejected")
		if i%2 == 0 {
			tell(3+2*i, "health", "", "returned")
		}
		tell(3, "alert", fmt.Sprint("m", i), "gone")
	}
	h.seal(now)
	lanes, outages := h.report(now)
	if len(h.list) > 2*mostOutages || len(h.open) > mostOutages || len(outages) > mostOutages || len(h.loose[laneAt{"p", "p"}]) > 50 {
		t.Errorf("%d of %d outages, %d open", len(outages), len(h.list), len(h.open))
	}
	if lanes[0].Now != "out" || lanes[0].Ejected != 3*mostOutages {
		t.Errorf("what is out by hand is forgotten, or not all are counted: %+v", lanes[0])
	}
}
