package report

import (
	"math"
	"slices"
	"time"
)

// exactRows is up to how many requests percentiles are exact: of more, only counts in buckets are kept, so that memory
// stays small however long the period is.
const exactRows = 200_000

// growth is the width of a bucket: its middle is within 1 % of all that is in it.
const growth = 1.02

// logGrowth turns logarithms into bucket numbers.
var logGrowth = math.Log(growth)

// series collects durations for percentiles. The zero value is exact.
type series struct {
	rough  bool
	values []int64 // exact: nanoseconds
	none   int64   // rough: durations of zero
	counts []int64 // rough: by bucket, from 1 µs up
	n      int64
}

// add takes one duration. Negative ones are unknown and count for nothing.
func (s *series) add(d time.Duration) {
	if d < 0 {
		return
	}
	s.n++
	switch {
	case !s.rough:
		s.values = append(s.values, int64(d))
	case d < time.Microsecond:
		s.none++
	default:
		i := int(math.Log(float64(d)/float64(time.Microsecond)) / logGrowth)
		for len(s.counts) <= i {
			s.counts = append(s.counts, 0)
		}
		s.counts[i]++
	}
}

// at returns the percentile p: the least duration that at least p of 100 do not exceed; negative where there is none.
func (s *series) at(p int) Millis {
	if s.n == 0 {
		return -1
	}
	rank := (s.n*int64(p) + 99) / 100 // from 1
	rank = max(rank, 1)
	if !s.rough {
		slices.Sort(s.values) // what is sorted already costs one look
		return Millis(s.values[rank-1])
	}
	if rank <= s.none {
		return 0
	}
	rank -= s.none
	for i, n := range s.counts {
		if rank -= n; rank <= 0 {
			return Millis(math.Pow(growth, float64(i)+0.5) * float64(time.Microsecond))
		}
	}
	return -1
}
