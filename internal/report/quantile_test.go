package report

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestPercentiles compares both ways with a plain sort: the least value that p of 100 do not exceed.
func TestPercentiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(-2, 2000), rapid.Int64Range(0, int64(2*time.Hour))), 0, 400).Draw(t, "durations")
		p := rapid.SampledFrom([]int{50, 95, 99}).Draw(t, "p")
		exact, rough := series{}, series{rough: true}
		var sorted []int64
		for _, v := range values {
			exact.add(time.Duration(v))
			rough.add(time.Duration(v))
			if v >= 0 {
				sorted = append(sorted, v)
			}
		}
		slices.Sort(sorted)
		want := int64(-1)
		for i, v := range sorted {
			if (i+1)*100 >= p*len(sorted) {
				want = v
				break
			}
		}
		if got := exact.at(p); int64(got) != want {
			t.Fatalf("exact p%d is %d, want %d", p, got, want)
		}
		got := int64(rough.at(p))
		near := math.Abs(float64(got-want)) <= 0.01*float64(want)+1
		if want < 1000 {
			near = want < 0 && got < 0 || want >= 0 && got == 0 // less than a microsecond is none
		}
		if !near {
			t.Fatalf("rough p%d is %d, want %d within 1 %%", p, got, want)
		}
	})
}

func TestBucketsStayFew(t *testing.T) {
	s := series{rough: true}
	for d := time.Duration(1); d > 0; d *= 2 {
		s.add(d)
	}
	if len(s.counts) > 2000 {
		t.Errorf("%d buckets", len(s.counts))
	}
}

func TestManyRequestsAreApproximate(t *testing.T) {
	if g := newGather(Options{Location: place}, outlineOf(exactRows)); g.rough {
		t.Error("so many are exact")
	}
	if g := newGather(Options{Location: place}, outlineOf(exactRows+1)); !g.rough || !g.r.Approximate || !g.newTiming(false).total.rough {
		t.Error("one more is not")
	}
}
