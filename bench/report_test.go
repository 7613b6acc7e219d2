package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSummariesTakeTheMiddle(t *testing.T) {
	for _, tt := range []struct {
		v    []float64
		want summary
	}{
		{nil, summary{}},
		{[]float64{7}, summary{7, 7, 7, 1}},
		{[]float64{9, 1, 5}, summary{5, 1, 9, 3}},
		{[]float64{4, 1, 3, 2}, summary{2.5, 1, 4, 4}},
	} {
		if got := summarize(tt.v); got != tt.want {
			t.Errorf("%v: got %+v, want %+v", tt.v, got, tt.want)
		}
	}
}

func TestPercentilesAreNearestRank(t *testing.T) {
	v := make([]int64, 100)
	for i := range v {
		v[i] = int64(i+1) * 1000
	}
	for p, want := range map[int]float64{0: 1, 1: 1, 50: 50, 99: 99, 100: 100} {
		if got := percentile(v, p); got != want {
			t.Errorf("p%d: got %v, want %v", p, got, want)
		}
	}
	if got := percentile([]int64{1000, 2000, 3000}, 50); got != 2 {
		t.Errorf("of three: got %v, want the second", got)
	}
	if got := percentile(nil, 50); got != 0 {
		t.Errorf("of nothing: got %v", got)
	}
}

func TestVerdicts(t *testing.T) {
	relative := measure{limit: 1.25, aim: 1.05, relative: true}
	absolute := measure{limit: 22, aim: 15}
	none := measure{none: true}
	hundred := []float64{100, 100, 100}
	tests := []struct {
		name        string
		m           measure
		proxy, weir []float64
		bad         int64
		want        string
	}{
		{"a ratio at the aim", relative, hundred, []float64{105, 90, 300}, 0, verdictAim},
		{"a ratio at the limit", relative, hundred, []float64{125, 90, 300}, 0, verdictPass},
		{"a ratio above the limit", relative, hundred, []float64{126, 90, 300}, 0, verdictMiss},
		{"a good ratio of failed requests", relative, hundred, []float64{50, 50, 50}, 1, verdictBad},
		{"a ratio to nothing", relative, nil, hundred, 0, verdictNone},
		{"a value at the aim", absolute, hundred, []float64{15}, 0, verdictAim},
		{"a value at the limit", absolute, hundred, []float64{22}, 0, verdictPass},
		{"a value above the limit", absolute, hundred, []float64{22.1}, 0, verdictMiss},
		{"memory that fell", absolute, hundred, []float64{-3}, 0, verdictAim},
		{"no bad stream in any round", none, hundred, []float64{0, 0, 0}, 0, verdictAim},
		{"one bad stream in one round", none, hundred, []float64{0, 0, 1}, 1, verdictMiss},
		{"Weir was not there", relative, hundred, nil, 0, verdictNone},
		{"nothing to hold it to", measure{relative: true}, hundred, hundred, 0, verdictNone},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := judge(tt.m, "case", nil, tt.proxy, tt.weir, tt.bad).Verdict; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRatiosOfRoundsAndOfMediansDiffer(t *testing.T) {
	// The machine was slow in the second round, for both.
	o := judge(measure{limit: 2, aim: 1, relative: true}, "case", nil, []float64{100, 300, 110}, []float64{110, 330, 99}, 0)
	if o.Ratio != 1 || o.RoundRatio != 1.1 {
		t.Errorf("got %v and %v, want 1 and 1.1", o.Ratio, o.RoundRatio)
	}
}

func TestTableAsTextAndMarkdown(t *testing.T) {
	tbl := table{title: "small", head: []string{"subject", "µs"}, rows: [][]string{{"weir", "57.1 (55.0–60.2)"}, {"a|b", "–"}}, notes: []string{"a note"}}
	for _, tt := range []struct {
		markdown bool
		want     string
	}{
		{false, "\nsmall\n  subject  µs\n  weir     57.1 (55.0–60.2)\n  a|b      –\n\na note\n"},
		{true, "\n### small\n\n| subject | µs |\n|---|---|\n| weir | 57.1 (55.0–60.2) |\n| a\\|b | – |\n\na note\n"},
	} {
		var got strings.Builder
		tbl.write(&got, tt.markdown)
		if diff := cmp.Diff(tt.want, got.String()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestFiguresKeepThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.004: "0.00", 2.6: "2.60", 62.83: "62.8", 267.4: "267", -0.41: "-0.41"} {
		if got := figure(v); got != want {
			t.Errorf("%v: got %s, want %s", v, got, want)
		}
	}
	if got := summarize([]float64{2, 1, 3}).spread(); got != "2.00 (1.00–3.00)" {
		t.Errorf("got %s", got)
	}
}

func TestCasesAreWithinTheBoundsOfALoadRun(t *testing.T) {
	seen := map[string]bool{caseStart: true, caseIdle: true, caseGrowth: true}
	for _, c := range loadCases(30 * time.Second) {
		if seen[c.name] {
			t.Errorf("case %s is there twice", c.name)
		}
		seen[c.name] = true
		for _, p := range []*plan{&c.plan, c.peer} {
			if p == nil {
				continue
			}
			pl := *p
			pl.addr = "127.0.0.1:1"
			if err := pl.validate(); err != nil {
				t.Errorf("case %s: %v", c.name, err)
			}
		}
	}
}

func TestCasesAreChosenByName(t *testing.T) {
	cases := loadCases(time.Second)
	all, err := chooseCases("", cases)
	if err != nil || !all["small"] || !all[caseGrowth] || all["many"] {
		t.Errorf("got %v, %v; want all but many", all, err)
	}
	two, err := chooseCases("many, start", cases)
	if err != nil || !two["many"] || !two[caseStart] || two["small"] {
		t.Errorf("got %v, %v; want many and start", two, err)
	}
}
