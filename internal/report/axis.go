package report

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// tick is a mark of an axis.
type tick struct {
	At    float64 // on the drawing
	Label string
	Day   string // under the label, where the day begins
}

// timeAxis maps a time onto the drawing.
type timeAxis struct {
	start, end time.Time
	left, wide float64
}

// x is where a moment is drawn; what is outside is drawn at the edge.
func (a timeAxis) x(t time.Time) float64 {
	length := a.end.Sub(a.start).Seconds()
	if length <= 0 {
		return a.left
	}
	return a.left + min(max(t.Sub(a.start).Seconds()/length, 0), 1)*a.wide
}

// mostTicks bounds the marks of the time's axis: with more their labels touch.
const mostTicks = 12

// steps are the distances of marks within a day.
var steps = [...]time.Duration{
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour,
}

// ticks are the marks of the axis, at round hours and days of the place.
func (a timeAxis) ticks() []tick {
	length := a.end.Sub(a.start)
	for _, step := range steps {
		if length/step < mostTicks {
			return a.hours(step)
		}
	}
	days := 1
	for length/(time.Duration(days)*24*time.Hour) >= mostTicks {
		days *= 2
	}
	return a.days(days)
}

func (a timeAxis) hours(step time.Duration) (list []tick) {
	y, m, d := a.start.Date()
	for ; ; d++ {
		for s := time.Duration(0); s < 24*time.Hour; s += step {
			t := time.Date(y, m, d, 0, int(s/time.Minute), 0, 0, a.start.Location()) // so that a day of 25 hours has round ones
			if t.After(a.end) {
				return list
			}
			if t.Before(a.start) {
				continue
			}
			k := tick{At: a.x(t), Label: t.Format("15:04")}
			if len(list) == 0 || s == 0 {
				k.Day = t.Format("Jan 2")
			}
			list = append(list, k)
		}
	}
}

func (a timeAxis) days(step int) (list []tick) {
	form := "Jan 2"
	if a.end.Sub(a.start) > 300*24*time.Hour {
		form = "2006-01-02"
	}
	y, m, d := a.start.Date()
	for ; ; d += step {
		t := time.Date(y, m, d, 0, 0, 0, 0, a.start.Location())
		if t.After(a.end) {
			return list
		}
		if !t.Before(a.start) {
			list = append(list, tick{At: a.x(t), Label: t.Format(form)})
		}
	}
}

// scale maps values onto the drawing's height.
type scale struct {
	low, high   float64 // low is 0 unless log
	log         bool
	top, height float64
}

// y is where a value is drawn.
func (s scale) y(v float64) float64 {
	part := v / s.high
	if s.log {
		part = math.Log(max(v, s.low)/s.low) / math.Log(s.high/s.low)
	}
	return s.top + (1-min(max(part, 0), 1))*s.height
}

// linear makes a scale from zero to above most, with its marks.
func linear(most, top, height float64, label func(float64) string) (scale, []tick) {
	const marks = 4
	step := math.Pow(10, math.Floor(math.Log10(most/marks)))
	for _, by := range []float64{1, 2, 5, 10} {
		if most/(step*by) <= marks {
			step *= by
			break
		}
	}
	n := math.Ceil(most / step)
	s := scale{high: n * step, top: top, height: height}
	var list []tick
	for i := 0.0; i <= n; i++ {
		list = append(list, tick{At: s.y(i * step), Label: label(i * step)})
	}
	return s, list
}

// logarithmic makes a scale of seconds from below least to above most, with its marks at 1, 3, 10 and so on.
func logarithmic(least, most, top, height float64) (scale, []tick) {
	const finest, marks = -12, 8
	low := finest // of the marks, counted from that of a second
	for rung(low+1) <= least {
		low++
	}
	high := low + 2
	for rung(high) < most {
		high++
	}
	s := scale{low: rung(low), high: rung(high), log: true, top: top, height: height}
	var list []tick
	for i := low; i <= high; i++ {
		if high-low < marks || i%2 == 0 {
			list = append(list, tick{At: s.y(rung(i)), Label: seconds(rung(i))})
		}
	}
	return s, list
}

// rung is a mark of a logarithmic scale: rung(0) is 1, rung(1) 3, rung(2) 10.
func rung(i int) float64 {
	v := math.Pow10(i >> 1)
	if i&1 == 1 {
		v *= 3
	}
	return v
}

// seconds labels a mark of a duration.
func seconds(v float64) string {
	switch {
	case v < 0.9e-3:
		return strconv.FormatFloat(v*1e6, 'g', 3, 64) + " µs"
	case v < 0.9:
		return strconv.FormatFloat(v*1e3, 'g', 3, 64) + " ms"
	}
	return strconv.FormatFloat(v, 'f', -1, 64) + " s"
}

// amount labels a mark of a number.
func amount(v float64) string {
	for _, unit := range []struct {
		at   float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= unit.at {
			return strconv.FormatFloat(v/unit.at, 'g', 4, 64) + unit.name
		}
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// dollars labels a mark of an amount of money.
func dollars(v float64) string {
	text := strconv.FormatFloat(v, 'f', 9, 64) // a nano-dollar, and none of a sum's last bits
	return "$" + strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}
