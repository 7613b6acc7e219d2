package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"
)

// sampleKey names one figure of the cases that are not load runs.
type sampleKey struct{ caseName, subject string }

// book keeps everything that was measured, in the order it was.
type book struct {
	runs    []result
	samples map[sampleKey][]float64
}

func (b *book) add(r result) { b.runs = append(b.runs, r) }

func (b *book) sample(caseName, subject string, v float64) {
	if b.samples == nil {
		b.samples = map[sampleKey][]float64{}
	}
	k := sampleKey{caseName, subject}
	b.samples[k] = append(b.samples[k], v)
}

// of returns the runs of a case on a subject, by round.
func (b *book) of(caseName, subject string) []result {
	var out []result
	for _, r := range b.runs {
		if r.Case == caseName && r.Subject == subject {
			out = append(out, r)
		}
	}
	return out
}

// Verdicts on one measure.
const (
	verdictAim  = "aim"    // at or below the aim
	verdictPass = "pass"   // at or below the limit
	verdictMiss = "MISS"   // above the limit
	verdictBad  = "ERRORS" // the figure is worth nothing: requests failed
	verdictNone = ""       // nothing to hold it to
)

// outcome is one line of the table of limits.
type outcome struct {
	Case       string  `json:"case"`
	Name       string  `json:"name"`
	Unit       string  `json:"unit"`
	Direct     summary `json:"direct"`
	Revproxy   summary `json:"revproxy"`
	Weir       summary `json:"weir"`
	Ratio      float64 `json:"ratio,omitempty"`       // of the medians
	RoundRatio float64 `json:"round_ratio,omitempty"` // median of the rounds' ratios
	Limit      float64 `json:"limit"`
	Aim        float64 `json:"aim"`
	Relative   bool    `json:"relative"`
	Verdict    string  `json:"verdict"`
	none       bool
}

// judge fills in what follows from the figures. weirBad is how many of Weir's
// requests failed in this case.
func judge(m measure, caseName string, direct, proxy, weir []float64, weirBad int64) outcome {
	o := outcome{Case: caseName, Name: m.name, Unit: m.unit, Direct: summarize(direct), Revproxy: summarize(proxy), Weir: summarize(weir),
		Limit: m.limit, Aim: m.aim, Relative: m.relative, none: m.none}
	if len(weir) > 0 && len(proxy) > 0 && o.Revproxy.Median > 0 && !m.none {
		o.Ratio = o.Weir.Median / o.Revproxy.Median
		o.RoundRatio = median(ratios(weir, proxy))
	}
	held := o.Weir.Median
	switch {
	case m.relative:
		held = o.Ratio
	case m.none:
		held = o.Weir.Max
	}
	switch {
	case len(weir) == 0 || (m.limit == 0 && !m.none) || (m.relative && o.Ratio == 0):
		o.Verdict = verdictNone
	case weirBad > 0 && !m.none:
		o.Verdict = verdictBad
	case held <= m.aim:
		o.Verdict = verdictAim
	case held <= m.limit:
		o.Verdict = verdictPass
	default:
		o.Verdict = verdictMiss
	}
	return o
}

// outcomes judges every measure that has figures, in the order of the cases.
func (b *bench) outcomes() []outcome {
	var out []outcome
	for _, c := range loadCases(b.opts.duration) {
		subject := c.subject
		if subject == "" {
			subject = weir
		}
		var bad int64
		for _, r := range b.book.of(c.name, subject) {
			bad += r.bad()
		}
		for _, m := range c.measures {
			values := func(subject string) (v []float64) {
				for _, r := range b.book.of(c.name, subject) {
					v = append(v, m.value(&r))
				}
				return v
			}
			if p := values(revproxy); len(p) > 0 {
				out = append(out, judge(m, c.name, values(direct), p, values(subject), bad))
			}
		}
	}
	measures := footprintMeasures()
	for _, name := range []string{caseStart, caseIdle, caseGrowth} {
		if p := b.book.samples[sampleKey{name, revproxy}]; len(p) > 0 {
			out = append(out, judge(measures[name], name, nil, p, b.book.samples[sampleKey{name, weir}], 0))
		}
	}
	return out
}

// finish prints the tables, writes the JSON file and says whether a limit was missed.
func (b *bench) finish(stdout io.Writer) error {
	if len(b.book.runs) == 0 && len(b.book.samples) == 0 {
		return nil
	}
	outcomes := b.outcomes()
	fmt.Fprintln(stdout, b.conditions())
	for _, c := range loadCases(b.opts.duration) {
		if t := b.caseTable(c); len(t.rows) > 0 {
			t.write(stdout, b.opts.markdown)
		}
	}
	limitTable(outcomes).write(stdout, b.opts.markdown)
	if b.opts.rounds < fewestRounds {
		fmt.Fprintf(stdout, "\nFewer than %d rounds: the verdicts are an indication only.\n", fewestRounds)
	}
	if err := b.writeJSON(outcomes); err != nil {
		return err
	}
	if slices.ContainsFunc(outcomes, func(o outcome) bool { return o.Verdict == verdictMiss || o.Verdict == verdictBad }) {
		return errMiss
	}
	return nil
}

func (b *bench) conditions() string {
	return fmt.Sprintf("%s; %s; gateways on core %d, mock and load on core %d; loopback, no TLS; %d rounds, %v each; %s",
		machine(), runtime.Version(), b.opts.gatewayCore, b.opts.loadCore, b.opts.rounds, b.opts.duration, time.Now().UTC().Format("2006-01-02 15:04 MST"))
}

func (b *bench) writeJSON(outcomes []outcome) error {
	if b.opts.out == "" {
		return nil
	}
	doc := struct {
		Conditions string    `json:"conditions"`
		Rounds     int       `json:"rounds"`
		Measures   []outcome `json:"measures"`
		Runs       []result  `json:"runs"`
	}{b.conditions(), b.opts.rounds, outcomes, b.book.runs}
	data, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(b.opts.out, append(data, '\n'), 0o644)
}
