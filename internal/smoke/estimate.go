package smoke

import "time"

// Estimate is what a Run will need, told before.
type Estimate struct {
	Calls int           `json:"calls"`
	In    int64         `json:"tokens_in"`
	Out   int64         `json:"tokens_out"`
	Usual float64       `json:"usual_usd"` // where models answer as most do
	Most  float64       `json:"most_usd"`  // where every answer is as long as it may be
	Took  time.Duration `json:"-"`
	Secs  float64       `json:"seconds"`
	// Unpriced are the targets whose price is not known: their cost is in neither sum.
	Unpriced []string `json:"unpriced,omitempty"`
}

// What is expected of a target whose rates nobody has measured, in tokens per second, and of one call beside them.
const (
	guessPrefill = 500
	guessOutput  = 30
	perCall      = 500 * time.Millisecond
)

// Expect tells what a Run of the targets will need. Pools are asked at the same time, so the slowest tells how long it takes.
func Expect(targets []*Target) Estimate {
	var e Estimate
	took := map[string]time.Duration{}
	for _, t := range targets {
		if t.Untested != "" {
			continue
		}
		unpriced := false
		for _, c := range Cases {
			if t.Skip[c] != "" {
				continue
			}
			s := t.size(c)
			e.Calls++
			e.In += s.in
			e.Out += s.usual
			usual, known := t.cost(s.in, s.usual)
			most, _ := t.cost(s.in, s.out)
			e.Usual, e.Most = e.Usual+usual, e.Most+most
			unpriced = unpriced || !known
			took[t.Pool] += t.time(s)
		}
		if unpriced {
			e.Unpriced = append(e.Unpriced, t.Name())
		}
	}
	for _, d := range took {
		e.Took = max(e.Took, d)
	}
	e.Secs = e.Took.Seconds()
	return e
}

func (t *Target) cost(in, out int64) (usd float64, known bool) {
	if t.Cost == nil {
		return 0, false
	}
	nanos, known := t.Cost(in, out)
	return float64(nanos) / 1e9, known
}

// time is how long a call of that size is expected to take.
func (t *Target) time(s size) time.Duration {
	prefill, output := t.Prefill, t.Output
	if prefill <= 0 {
		prefill = guessPrefill
	}
	if output <= 0 {
		output = guessOutput
	}
	return perCall + time.Duration((float64(s.in)/prefill+float64(s.usual)/output)*float64(time.Second))
}
