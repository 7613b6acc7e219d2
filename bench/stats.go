package main

import "slices"

// summary is one figure over all rounds.
type summary struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	N      int     `json:"n"`
}

// summarize leaves everything 0 where there is no value; N tells.
func summarize(v []float64) summary {
	if len(v) == 0 {
		return summary{}
	}
	return summary{Median: median(v), Min: slices.Min(v), Max: slices.Max(v), N: len(v)}
}

// median is the middle value, or the mean of the two in the middle; 0 for none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// percentile takes nanoseconds in ascending order and returns the nearest-rank
// value in microseconds; 0 for none.
func percentile(sorted []int64, p int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := (len(sorted)*p+99)/100 - 1
	return float64(sorted[max(0, i)]) / 1e3
}

// ratios divides round by round; rounds that only one of them has are left out.
func ratios(a, b []float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return out
}
