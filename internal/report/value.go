package report

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"weir/internal/config"
)

// Name is a name that may be missing: null in JSON, "-" for people.
type Name string

// MarshalJSON writes null for a missing name.
func (n Name) MarshalJSON() ([]byte, error) {
	if n == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(n))
}

// String returns the name, or "-".
func (n Name) String() string {
	if n == "" {
		return "-"
	}
	return string(n)
}

// Millis is a duration, in JSON in milliseconds; a negative one is unknown: null, and "-" for people.
type Millis time.Duration

// MarshalJSON writes milliseconds with at most three decimals.
func (m Millis) MarshalJSON() ([]byte, error) {
	if m < 0 {
		return []byte("null"), nil
	}
	us := time.Duration(m).Round(time.Microsecond).Microseconds()
	return strconv.AppendFloat(nil, float64(us)/1000, 'f', -1, 64), nil
}

// String returns the duration as people read it.
func (m Millis) String() string {
	d := time.Duration(m)
	switch {
	case d < 0:
		return "-"
	case d == 0:
		return "0"
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Round(time.Microsecond).Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1fms", float64(d.Microseconds())/1000)
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.2fs", d.Seconds())
	}
	return Seconds(d).String()
}

// Seconds is a longer duration, in JSON in seconds.
type Seconds time.Duration

// MarshalJSON writes seconds with at most three decimals.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(time.Duration(s).Milliseconds())/1000, 'f', -1, 64), nil
}

// String returns the duration as people read it: its two greatest units.
func (s Seconds) String() string {
	d := time.Duration(s)
	const day = 24 * time.Hour
	switch {
	case d <= 0:
		return "0"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return pair(int(d/time.Minute), "m", int(d%time.Minute/time.Second), "s")
	case d < day:
		return pair(int(d/time.Hour), "h", int(d%time.Hour/time.Minute), "m")
	}
	return pair(int(d/day), "d", int(d%day/time.Hour), "h")
}

func pair(a int, unitA string, b int, unitB string) string {
	if b == 0 {
		return strconv.Itoa(a) + unitA
	}
	return strconv.Itoa(a) + unitA + strconv.Itoa(b) + unitB
}

// Nanos is an amount of nano-dollars, in JSON in dollars. It is exact.
type Nanos int64

// MarshalJSON writes dollars with at most nine decimals.
func (n Nanos) MarshalJSON() ([]byte, error) { return []byte(config.USD(n).String()), nil }

// String returns dollars: of what is at least a cent four decimals, of less all there are, so that what is not zero never
// looks like it.
func (n Nanos) String() string {
	const cent, last = config.Nanos / 100, config.Nanos / 10_000
	sign := ""
	if n < 0 {
		sign, n = "-", -max(n, -math.MaxInt64)
	}
	if n >= cent {
		parts := n / last
		if n%last >= last/2 {
			parts++
		}
		return fmt.Sprintf("%s$%d.%04d", sign, parts/10_000, parts%10_000)
	}
	return sign + "$" + config.USD(n).String()
}

// Cost is what several requests cost together.
type Cost struct {
	Nanos    Nanos // of those at a known price
	Priced   int64
	Unpriced int64 // requests that used something at an unknown price
}

// add counts one request.
func (c *Cost) add(nanos int64, known bool) {
	if !known {
		c.Unpriced++
		return
	}
	c.Priced++
	c.Nanos = plus(c.Nanos, nanos)
}

// Known reports whether any of the cost is: nothing that was used costs nothing.
func (c Cost) Known() bool { return c.Unpriced == 0 || c.Priced > 0 }

// MarshalJSON writes {"usd": exact or null, "unpriced": requests}.
func (c Cost) MarshalJSON() ([]byte, error) {
	out := struct {
		USD      *Nanos `json:"usd"`
		Unpriced int64  `json:"unpriced"`
	}{Unpriced: c.Unpriced}
	if c.Known() {
		out.USD = &c.Nanos
	}
	return json.Marshal(out)
}

// String returns the cost, "≥" where some of it is unknown.
func (c Cost) String() string {
	switch {
	case !c.Known():
		return "unknown"
	case c.Unpriced > 0:
		return "≥ " + c.Nanos.String()
	}
	return c.Nanos.String()
}

// plus adds an amount that is not negative. What is larger than any amount is the largest one.
func plus(a Nanos, b int64) Nanos {
	if b > 0 && int64(a) > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + Nanos(b)
}

// part returns a share; nil of nothing.
func part(n, of int64) *float64 {
	if of <= 0 {
		return nil
	}
	f := float64(n) / float64(of)
	return &f
}
