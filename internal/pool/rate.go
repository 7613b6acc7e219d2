package pool

import (
	"math"
	"sync"
	"time"
)

// Rate is a pool's measured rates: of prefill, and of output. It is safe for concurrent use and outlives a change of configuration.
type Rate struct {
	mu       sync.Mutex // guards the fields below
	value    float64    // tokens per second
	measured int        // how often
	saved    float64    // what the store has
	output   float64    // tokens per second of one answer; 0: not measured
}

// first rates, before anything was measured, by tier.
var firstRates = map[string]float64{"floor": 100, "gpu": 400, "cloud": 4000}

// Bounds of what is believed, so that one absurd number cannot switch the first-content limit off.
const (
	leastRate   = 10
	mostRate    = 100_000
	leastPrompt = 64 // tokens: a shorter prefill is mostly overhead
	leastAnswer = 8  // tokens: the time of a shorter answer is mostly that of the network
)

// NewRate returns the rate of a tier, or known where the store has one from before.
func NewRate(tier string, known float64) *Rate {
	r := &Rate{value: max(firstRates[tier], leastRate)}
	if known > 0 {
		r.value, r.measured, r.saved = believed(known), 1, known
	}
	return r
}

// Allowance returns the time that tokens take to evaluate.
func (r *Rate) Allowance(tokens int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration(float64(tokens) / r.value * float64(time.Second))
}

// Learn takes a measurement: the first replaces the tier's guess, later ones move it by an eighth.
func (r *Rate) Learn(tokens int64, perSecond float64) {
	if tokens < leastPrompt || math.IsNaN(perSecond) || perSecond <= 0 {
		return
	}
	perSecond = believed(perSecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.measured++; r.measured == 1 {
		r.value = perSecond
		return
	}
	r.value += (perSecond - r.value) / 8
}

func believed(perSecond float64) float64 { return min(max(perSecond, leastRate), mostRate) }

// LearnOutput takes what an answer of so many tokens took from its first content to its end. The first one is the rate,
// later ones move it by an eighth.
func (r *Rate) LearnOutput(tokens int64, took time.Duration) {
	if tokens < leastAnswer || took <= 0 {
		return
	}
	perSecond := min(float64(tokens)/took.Seconds(), mostRate)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.output == 0 {
		r.output = perSecond
		return
	}
	r.output += (perSecond - r.output) / 8
}

// Output returns the tokens per second of one answer and whether they were measured.
func (r *Rate) Output() (float64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.output, r.output > 0
}

// Value returns tokens per second and whether they were measured.
func (r *Rate) Value() (float64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value, r.measured > 0
}

// Unsaved returns the rate when it moved by over a twentieth since it was saved, and marks it saved.
func (r *Rate) Unsaved() (float64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.measured == 0 || math.Abs(r.value-r.saved) < r.saved/20 {
		return 0, false
	}
	r.saved = r.value
	return r.value, true
}
