package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The drawing, in its own units.
const (
	plotWidth  = 960
	plotLeft   = 72.0 // where labels of values stand
	laneLeft   = 190.0
	plotRight  = 24.0
	plotTop    = 26.0 // where labels of versions stand
	plotHeight = 170.0
	plotBottom = 42.0 // where labels of times stand
	laneHeight = 22.0
	mostLanes  = 40
	mostBars   = 60
	markSpace  = 58.0 // between labels of versions
)

// plot is one drawing of the page. Whatever is text in it is escaped by the page's template.
type plot struct {
	ID, Title, Desc string
	Height          float64
	Left, Right     float64 // of the field
	Top, Base       float64
	Areas           []shape
	Lines           []shape
	Bars            []bar
	X, Y            []tick
	Lanes           []laneLabel
	Marks           []mark
	Legend          []legend
	Empty           string // what is said instead of a drawing
}

// shape is a path of one colour.
type shape struct{ Class, D string }

// bar is a rectangle with what it says.
type bar struct {
	X, Y, W, H  float64
	Class, Tell string
}

type laneLabel struct {
	Y           float64
	Label, Tell string
}

// mark is a version at its time.
type mark struct {
	X           float64
	Label, Tell string // an empty label has no room
}

type legend struct{ Class, Label string }

// drawing makes the plots of one report.
type drawing struct {
	r     *Report
	start time.Time
	end   time.Time
}

// plots returns all drawings.
func (r *Report) plots() []plot {
	d := drawing{r: r, end: r.Until}
	switch {
	case len(r.Timeline.Bins) > 0:
		d.start = r.Timeline.Bins[0].Time
	case r.Since != nil:
		d.start = *r.Since
	default:
		d.start = r.Until.Add(-time.Hour)
	}
	d.start, d.end = d.start.In(r.location), d.end.In(r.location)
	if n := len(r.Timeline.Bins); n > 0 { // the last part is drawn whole
		d.end = d.start.Add(time.Duration(n) * time.Duration(r.Timeline.Width))
	}
	return []plot{d.requests(), d.latency(), d.tokens(), d.cost(), d.health()}
}

// field makes an empty drawing with its axis of time and the versions.
func (d *drawing) field(id, title string, left, height float64) (plot, timeAxis) {
	p := plot{ID: id, Title: title, Left: left, Right: plotWidth - plotRight, Top: plotTop, Base: plotTop + height, Height: plotTop + height + plotBottom}
	axis := timeAxis{start: d.start, end: d.end, left: left, wide: p.Right - left}
	p.X = axis.ticks()
	last := -markSpace
	for _, v := range d.r.Versions.List {
		if v.To == "" { // it did not come into force
			continue
		}
		m := mark{X: axis.x(v.Time), Tell: d.r.clock(v.Time) + " " + clean(strings.TrimSpace(string(v.Reason)+" "+string(v.To)+" "+v.Detail))}
		if m.X-last >= markSpace && m.X < p.Right-20 {
			m.Label, last = versionLabel(string(v.To)), m.X
		}
		p.Marks = append(p.Marks, m)
	}
	return p, axis
}

// versionLabel is short: most versions are numbers.
func versionLabel(name string) string {
	if strings.Trim(name, "0123456789") == "" {
		name = "v" + name
	}
	return cut(clean(name), 9)
}

func (d *drawing) requests() plot {
	p, axis := d.field("plot-requests", "Requests per minute", plotLeft, plotHeight)
	bins := d.r.Timeline.Bins
	perMinute := time.Duration(d.r.Timeline.Width).Minutes()
	most := 0.0
	for i := range bins {
		most = max(most, float64(bins[i].Requests)/perMinute)
	}
	if most == 0 {
		p.Empty = "No request in this period."
		return p
	}
	s, ticks := linear(most, p.Top, plotHeight, amount)
	p.Y = ticks
	low := make([]float64, len(bins))
	for _, layer := range []struct {
		class, label string
		of           func(*Bin) int64
	}{
		{"bad", "failed", func(b *Bin) int64 { return b.Failed }},
		{"client", "caused by clients", func(b *Bin) int64 { return b.Client }},
		{"good", "answered", func(b *Bin) int64 { return b.Requests - b.Failed - b.Client }},
	} {
		high := make([]float64, len(bins))
		for i := range bins {
			high[i] = low[i] + float64(layer.of(&bins[i]))/perMinute
		}
		p.Areas = append(p.Areas, shape{layer.class, d.band(axis, s, low, high)})
		p.Legend = append(p.Legend, legend{layer.class, layer.label})
		low = high
	}
	q := &d.r.Requests
	p.Desc = fmt.Sprintf("%s, at most %s a minute; %s failed, %s were caused by clients.", plural(q.Total, "request"), amount(most), number(q.Failed), number(q.Client))
	return p
}

// band is the area between two lines of steps; where both are the same it has no area.
func (d *drawing) band(axis timeAxis, s scale, low, high []float64) string {
	var up, down strings.Builder
	bins := d.r.Timeline.Bins
	for i := range bins {
		x := axis.x(bins[i].Time)
		next := axis.x(bins[i].Time.Add(time.Duration(d.r.Timeline.Width)))
		letter := "L"
		if i == 0 {
			letter = "M"
		}
		fmt.Fprintf(&up, "%s%.1f %.1fH%.1f", letter, x, s.y(high[i]), next)
	}
	for i := len(bins) - 1; i >= 0; i-- {
		next := axis.x(bins[i].Time.Add(time.Duration(d.r.Timeline.Width)))
		fmt.Fprintf(&down, "L%.1f %.1fH%.1f", next, s.y(low[i]), axis.x(bins[i].Time))
	}
	return up.String() + down.String() + "Z"
}

func (d *drawing) latency() plot {
	p, axis := d.field("plot-latency", "Latency of answers", plotLeft, plotHeight)
	least, most := Millis(-1), Millis(-1)
	for _, b := range d.r.Timeline.Bins {
		if b.P50 > 0 && (least < 0 || b.P50 < least) {
			least = b.P50
		}
		most = max(most, b.P95)
	}
	if most <= 0 {
		p.Empty = "No answer in this period."
		return p
	}
	if least < 0 {
		least = most
	}
	s, ticks := logarithmic(time.Duration(least).Seconds(), time.Duration(most).Seconds(), p.Top, plotHeight)
	p.Y = ticks
	p.Lines = []shape{
		{"p95", d.curve(axis, s, func(b *Bin) Millis { return b.P95 })},
		{"p50", d.curve(axis, s, func(b *Bin) Millis { return b.P50 })},
	}
	p.Legend = []legend{{"p50", "p50"}, {"p95", "p95"}}
	all := &d.r.Latency.All
	p.Desc = fmt.Sprintf("p50 %s, p95 %s, p99 %s over all; the highest p95 of a part of the period was %s.", all.P50, all.P95, all.P99, most)
	return p
}

// curve is a line through the middles of the bins. It is broken where there was no answer.
func (d *drawing) curve(axis timeAxis, s scale, of func(*Bin) Millis) string {
	var path strings.Builder
	pen := "M"
	for i := range d.r.Timeline.Bins {
		b := &d.r.Timeline.Bins[i]
		v := of(b)
		if v < 0 {
			pen = "M"
			continue
		}
		x, y := axis.x(b.Time.Add(time.Duration(d.r.Timeline.Width)/2)), s.y(time.Duration(v).Seconds())
		fmt.Fprintf(&path, "%s%.1f %.1f", pen, x, y)
		if pen == "M" {
			path.WriteString("h.01") // one alone is seen as a dot
		}
		pen = "L"
	}
	return path.String()
}

func (d *drawing) tokens() plot {
	p := d.stacks("plot-tokens", "Tokens per hour by tier", "No token in this period.", amount, func(t *BinTier) float64 { return float64(t.Tokens) },
		func(v float64) string { return number(int64(v+0.5)) + " tokens" })
	p.Desc = fmt.Sprintf("%s tokens in and %s out.%s", number(d.r.Total.TokensIn), number(d.r.Total.TokensOut), p.Desc)
	return p
}

func (d *drawing) cost() plot {
	p := d.stacks("plot-cost", "Cost per hour by tier", "No cost is known in this period.", dollars, func(t *BinTier) float64 { return float64(t.Cost) / 1e9 },
		func(v float64) string { return Nanos(v*1e9 + 0.5).String() })
	p.Desc = fmt.Sprintf("%s in all.%s", d.r.Total.Cost, p.Desc)
	return p
}

// stack is one bar: several bins together.
type stack struct {
	start time.Time
	tiers [len(tierNames)]float64
}

// barWidth is how long one bar is: several bins, so that there are not too many.
func (d *drawing) barWidth() time.Duration {
	length, fine := d.end.Sub(d.start), max(time.Duration(d.r.Timeline.Width), time.Minute) // without a request there is none
	for _, w := range widths {
		if w >= fine && length/w < mostBars && w%fine == 0 {
			return w
		}
	}
	w := fine
	for length/w >= mostBars {
		w *= 2
	}
	return w
}

// stacks draws what the tiers did, one bar on another.
func (d *drawing) stacks(id, title, empty string, label func(float64) string, of func(*BinTier) float64, tell func(float64) string) plot {
	p, axis := d.field(id, title, plotLeft, plotHeight)
	width := d.barWidth()
	bars := d.gathered(width, of)
	most, used := 0.0, [len(tierNames)]bool{}
	for i := range bars {
		sum := 0.0
		for tier, v := range bars[i].tiers {
			sum += v
			used[tier] = used[tier] || v > 0
		}
		most = max(most, sum/width.Hours())
	}
	if most == 0 {
		p.Empty = empty
		return p
	}
	s, ticks := linear(most, p.Top, plotHeight, label)
	p.Y = ticks
	for i := range bars {
		x, end := axis.x(bars[i].start), axis.x(bars[i].start.Add(width))
		low := 0.0
		for tier, v := range bars[i].tiers {
			if v == 0 {
				continue
			}
			high := low + v/width.Hours()
			p.Bars = append(p.Bars, bar{
				X: x + 0.5, W: max(end-x-1, 0.5), Y: s.y(high), H: s.y(low) - s.y(high), Class: tierNames[tier],
				Tell: fmt.Sprintf("%s, %s: %s in %s", bars[i].start.Format("Jan 2 15:04"), tierNames[tier], tell(v), Seconds(width)),
			})
			low = high
		}
	}
	for tier, name := range tierNames {
		if used[tier] {
			p.Legend = append(p.Legend, legend{name, name})
		}
	}
	p.Desc = fmt.Sprintf(" At most %s an hour; a bar is %s long.", label(most), Seconds(width))
	return p
}

// gathered adds bins together; bars begin with the hours of the place.
func (d *drawing) gathered(width time.Duration, of func(*BinTier) float64) (list []stack) {
	_, offset := d.start.Zone()
	shift := time.Duration(offset) * time.Second
	for i := range d.r.Timeline.Bins {
		b := &d.r.Timeline.Bins[i]
		start := b.Time.Add(shift).Truncate(width).Add(-shift).In(d.r.location)
		if len(list) == 0 || !list[len(list)-1].start.Equal(start) {
			list = append(list, stack{start: start})
		}
		for j := range b.Tiers {
			list[len(list)-1].tiers[tierIndex(b.Tiers[j].Tier)] += of(&b.Tiers[j])
		}
	}
	return list
}

func (d *drawing) health() plot {
	was := map[laneAt]bool{}
	for i := range d.r.Outages {
		was[laneAt{string(d.r.Outages[i].Pool), string(d.r.Outages[i].Backend)}] = true
	}
	lanes := slices.DeleteFunc(slices.Clone(d.r.Lanes), func(l Lane) bool { return !was[laneAt{string(l.Pool), string(l.Backend)}] })
	if len(lanes) == 0 {
		p, _ := d.field("plot-health", "Health of pools", laneLeft, 0)
		p.Empty = "No pool was out in this period."
		return p
	}
	desc := fmt.Sprintf("%s in %s.", plural(int64(len(d.r.Outages)), "outage"), plural(int64(len(lanes)), "lane"))
	if len(lanes) > mostLanes {
		desc += fmt.Sprintf(" Only the first %d are drawn.", mostLanes)
		lanes = lanes[:mostLanes]
	}
	p, axis := d.field("plot-health", "Health of pools", laneLeft, float64(len(lanes))*laneHeight)
	p.Desc = desc
	row := map[laneAt]float64{}
	for i, l := range lanes {
		y := p.Top + float64(i)*laneHeight
		row[laneAt{string(l.Pool), string(l.Backend)}] = y
		name := clean(l.Pool.String())
		if l.Backend != "" && l.Backend != l.Pool {
			name += " @ " + clean(string(l.Backend))
		}
		p.Bars = append(p.Bars, bar{X: p.Left, W: p.Right - p.Left, Y: y + 3, H: laneHeight - 6, Class: "in", Tell: name})
		p.Lanes = append(p.Lanes, laneLabel{Y: y + laneHeight/2, Label: cut(name, 25), Tell: name})
	}
	used := map[string]bool{}
	for i := range d.r.Outages {
		o := &d.r.Outages[i]
		y, drawn := row[laneAt{string(o.Pool), string(o.Backend)}]
		if !drawn {
			continue
		}
		used[o.Cause] = true
		p.Bars = append(p.Bars, d.outage(axis, o, y))
	}
	for _, c := range []legend{{"ejected", "ejected"}, {"denied", "account denied"}, {"gone", "a model gone"}, {"out", "out by hand"}} {
		if used[c.Class] {
			p.Legend = append(p.Legend, c)
		}
	}
	return p
}

// outage is one bar of a lane, never too small to be seen.
func (d *drawing) outage(axis timeAxis, o *Outage, y float64) bar {
	const least = 2.0
	x := axis.x(o.From)
	b := bar{X: min(x, axis.left+axis.wide-least), W: max(axis.x(o.To)-x, least), Y: y + 3, H: laneHeight - 6, Class: o.Cause}
	if o.Cause == "gone" { // only a model is out, not all of it
		b.Y, b.H = y+laneHeight/2, laneHeight/2-3
	}
	b.Tell = fmt.Sprintf("%s %s %s for %s, from %s (%s). %s", clean(o.Pool.String()), o.Cause, clean(string(o.Model)), Seconds(o.To.Sub(o.From)), d.r.clock(o.From), cmp.Or(o.End, "lasts"), clean(o.Detail))
	return b
}
