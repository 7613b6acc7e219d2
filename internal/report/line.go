package report

import (
	"encoding/json"
	"time"

	"weir/internal/store"
)

// Timeline is the time from the first record to the end of the period in equal parts. In JSON it has only those in which
// a request began.
type Timeline struct {
	Width Seconds
	Bins  []Bin // oldest first; none where nothing was recorded
}

// MarshalJSON leaves out the parts without requests.
func (t Timeline) MarshalJSON() ([]byte, error) {
	out := struct {
		Width Seconds `json:"width_s"`
		Bins  []Bin   `json:"bins"`
	}{t.Width, []Bin{}}
	for i := range t.Bins {
		if t.Bins[i].Requests > 0 {
			out.Bins = append(out.Bins, t.Bins[i])
		}
	}
	return json.Marshal(out)
}

// Bin is one part of the period.
type Bin struct {
	Time     time.Time `json:"time"` // its beginning
	Requests int64     `json:"requests"`
	Failed   int64     `json:"failed"`
	Client   int64     `json:"client_caused"`
	P50      Millis    `json:"p50_ms"` // of answers, within 1 %
	P95      Millis    `json:"p95_ms"`
	Tiers    []BinTier `json:"tiers"`
}

// BinTier is what one tier did in a bin.
type BinTier struct {
	Tier   string `json:"tier"` // floor, gpu, cloud or other
	Tokens int64  `json:"tokens"`
	Cost   Nanos  `json:"cost_usd"` // what is known of it
}

// tierNames are the tiers in the order in which they are drawn.
var tierNames = [...]string{"floor", "gpu", "cloud", "other"}

// mostBins bounds how finely the period is drawn.
const mostBins = 200

// widths are those that bins have; beyond the last of them it doubles.
var widths = [...]time.Duration{
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour,
	6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// line collects the timeline.
type line struct {
	start time.Time
	width time.Duration
	bins  []bin
}

type bin struct {
	requests, failed, client int64
	total                    series
	tokens                   [len(tierNames)]int64
	cost                     [len(tierNames)]Nanos
}

// newLine divides the time from the first that was recorded to the end.
func newLine(first time.Time, o Options) *line {
	l := &line{}
	if first.IsZero() {
		return l
	}
	if first.After(o.Until) {
		first = o.Until
	}
	length := o.Until.Sub(first) // at most 292 years
	for _, l.width = range widths {
		if length/l.width < mostBins-1 {
			break
		}
	}
	for length/l.width >= mostBins-1 {
		l.width *= 2
	}
	l.start = first.In(o.Location)
	_, offset := l.start.Zone()
	shift := time.Duration(offset) * time.Second
	l.start = l.start.Add(shift).Truncate(l.width).Add(-shift) // hours begin with those of the place
	l.bins = make([]bin, int(o.Until.Sub(l.start)/l.width)+1)
	for i := range l.bins {
		l.bins[i].total.rough = true
	}
	return l
}

// request counts one row; one from outside the time, as a clock that was set back leaves it, at its edge.
func (l *line) request(r *store.Request) {
	if len(l.bins) == 0 {
		return
	}
	i := min(max(int(r.Time.Sub(l.start)/l.width), 0), len(l.bins)-1)
	b := &l.bins[i]
	b.requests++
	switch {
	case r.Kind == "":
		if r.Pool != "" && r.Op != "count" {
			b.total.add(r.Total)
		}
	case clientKinds[r.Kind]:
		b.client++
	default:
		b.failed++
	}
	if r.Op == "count" {
		return
	}
	tier := tierIndex(r.Tier)
	b.tokens[tier] += max(r.TokensIn, 0) + max(r.TokensOut, 0)
	b.cost[tier] = plus(b.cost[tier], max(r.Cost, 0))
}

func tierIndex(name string) int {
	for i, tier := range tierNames {
		if tier == name {
			return i
		}
	}
	return len(tierNames) - 1
}

func (l *line) timeline() Timeline {
	t := Timeline{Width: Seconds(l.width), Bins: make([]Bin, len(l.bins))}
	for i := range l.bins {
		b := &l.bins[i]
		out := Bin{Time: l.start.Add(time.Duration(i) * l.width).UTC(), Requests: b.requests, Failed: b.failed, Client: b.client, P50: b.total.at(50), P95: b.total.at(95), Tiers: []BinTier{}}
		for tier, name := range tierNames {
			if b.tokens[tier] > 0 || b.cost[tier] > 0 {
				out.Tiers = append(out.Tiers, BinTier{name, b.tokens[tier], b.cost[tier]})
			}
		}
		t.Bins[i] = out
	}
	return t
}
