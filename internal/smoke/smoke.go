// Package smoke asks the pools of a configuration five known questions and judges the answers: a short one, a long prompt,
// a stream, a tool call, and an answer that is cut by its own limit. It knows nothing of pools: who runs it says how a
// request is sent, and sends it through the graph that is to be tested.
package smoke

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/internal/llm"
)

// Case is one of the five questions.
type Case string

// The cases.
const (
	Short      Case = "short"
	Long       Case = "long"
	Streaming  Case = "streaming"
	Tools      Case = "tools"
	Truncation Case = "truncation"
)

// Cases are all of them, in the order in which they are asked.
var Cases = []Case{Short, Long, Streaming, Tools, Truncation}

// Verdict is what became of one case.
type Verdict string

// The verdicts. Only Failed is a failure.
const (
	Passed        Verdict = "passed"
	Failed        Verdict = "failed"
	NotApplicable Verdict = "n/a"      // the pool cannot do that at all
	Untested      Verdict = "untested" // nobody could be asked
)

// Target is one pool and model to be asked.
type Target struct {
	Pool, Model string
	Untested    string          // why it is not asked now; empty: it is
	Skip        map[Case]string // what it cannot do, and why

	Long        int           // tokens of the long prompt
	Window      int           // as configured, in tokens; 0: unknown, and then a prompt that is too long for it is no failure
	First, Idle time.Duration // limits of a stream: to its first content beside the prefill, and of silence after it; 0: none
	Within      time.Duration // of one case, beside what Prefill and Output need; 0: two minutes

	Prefill, Output float64 // tokens per second to expect; 0: unknown
	// Cost returns what a call costs in nano-dollars, and whether that is known; nil: it is not.
	Cost func(in, out int64) (nanos int64, known bool)
}

// Name is "pool/model".
func (t *Target) Name() string { return t.Pool + "/" + t.Model }

// Request is one question as it is to be sent.
type Request struct {
	Target *Target
	Case   Case
	Op     llm.Op // Chat, or Embeddings where Chat is not served
	Body   []byte // in the openai dialect
	Stream bool
}

// Answer is what a client would have got.
type Answer struct {
	Body    []byte        // the whole answer, or all bytes of a stream
	Err     error         // an *llm.Error in place of a proper end; nil: there was one
	Waited  time.Duration // for a slot
	First   time.Duration // from the slot to the first content; negative: there was none
	Gap     time.Duration // the longest silence in a stream after that
	In, Out int64         // tokens; negative: not told
	Cost    int64         // nano-dollars; negative: unknown
}

// Ask sends one question and returns once its answer has ended, or ctx has.
type Ask func(ctx context.Context, r *Request) Answer

// Result is what became of one case of one target.
type Result struct {
	Pool    string   `json:"pool"`
	Model   string   `json:"model"`
	Case    Case     `json:"case"`
	Verdict Verdict  `json:"result"`
	Detail  string   `json:"detail"`         // why; never a word of prompt or answer
	Kind    string   `json:"kind,omitempty"` // of the failure, where there was no answer
	Took    float64  `json:"took_seconds"`   // without the wait for a slot
	Waited  float64  `json:"waited_seconds,omitempty"`
	First   float64  `json:"first_content_seconds,omitempty"`
	In      int64    `json:"tokens_in"`
	Out     int64    `json:"tokens_out"`
	Cost    *float64 `json:"cost_usd,omitempty"` // absent: unknown, or nothing was used
}

// Report is what became of all.
type Report struct {
	Results       []Result  `json:"results"` // by pool and model, in the order of Cases
	Began         time.Time `json:"began"`
	Took          float64   `json:"took_seconds"`
	Passed        int       `json:"passed"`
	Failed        int       `json:"failed"`
	NotApplicable int       `json:"not_applicable"`
	Untested      int       `json:"untested"`
	Cost          float64   `json:"cost_usd"` // as far as it is known
}

// Err names what failed, nil where nothing did.
func (r *Report) Err() error {
	if r.Failed == 0 {
		return nil
	}
	var list []string
	for i := range r.Results {
		if s := &r.Results[i]; s.Verdict == Failed {
			list = append(list, fmt.Sprintf("%s/%s %s: %s", s.Pool, s.Model, s.Case, s.Detail))
		}
	}
	return errors.New("smoke failed: " + strings.Join(list, "; "))
}

// Options say what is asked, how, and who hears of it.
type Options struct {
	Targets []*Target
	Ask     Ask
	// Begun and Told hear of each case as it is asked and as it is judged, one at a time; nil: nobody.
	Begun func(t *Target, c Case)
	Told  func(Result)
}

// Run asks every target every case and blocks until all is judged: pools at the same time, one request at a time in each.
// Where ctx ends, what was not asked yet is untested.
func Run(ctx context.Context, o Options) *Report {
	r := &runner{Options: o}
	r.report.Began = time.Now()
	pools := map[string][]*Target{}
	for _, t := range o.Targets {
		pools[t.Pool] = append(pools[t.Pool], t)
	}
	var tasks sync.WaitGroup
	for _, targets := range pools {
		tasks.Go(func() {
			for _, t := range targets {
				r.target(ctx, t)
			}
		})
	}
	tasks.Wait()
	return r.done()
}

// runner is one Run.
type runner struct {
	Options
	mu     sync.Mutex // guards the field below, and is held while Begun and Told hear
	report Report
}

func (r *runner) done() *Report {
	p := &r.report
	slices.SortStableFunc(p.Results, func(a, b Result) int { return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Model, b.Model)) })
	p.Took = time.Since(p.Began).Seconds()
	if p.Results == nil {
		p.Results = []Result{}
	}
	return p
}

// note takes a result in.
func (r *runner) note(s Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.report
	p.Results = append(p.Results, s)
	switch s.Verdict {
	case Passed:
		p.Passed++
	case Failed:
		p.Failed++
	case NotApplicable:
		p.NotApplicable++
	default:
		p.Untested++
	}
	if s.Cost != nil {
		p.Cost += *s.Cost
	}
	if r.Told != nil {
		r.Told(s)
	}
}

func (r *runner) begun(t *Target, c Case) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Begun != nil {
		r.Begun(t, c)
	}
}

// target asks one target its cases. What it turns out not to do, or not to do now, ends them.
func (r *runner) target(ctx context.Context, t *Target) {
	rest, verdict := t.Untested, Untested // why nothing more is asked
	for _, c := range Cases {
		s := Result{Pool: t.Pool, Model: t.Model, Case: c}
		switch why := t.Skip[c]; {
		case why != "":
			s.Verdict, s.Detail = NotApplicable, why
		case rest != "":
			s.Verdict, s.Detail = verdict, rest
		case ctx.Err() != nil:
			s.Verdict, s.Detail = Untested, "stopped before it was asked"
		default:
			r.begun(t, c)
			x := &asking{runner: r, t: t, c: c, Result: s}
			x.run(ctx)
			s = x.Result
			rest, verdict = x.rest, x.restIs
		}
		r.note(s)
	}
}
