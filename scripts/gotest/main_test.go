package main

import (
	"strings"
	"testing"
)

func TestTally(t *testing.T) {
	tests := map[string]struct {
		lines          []string
		passed, failed int
		says, silent   string
	}{
		"a package that passes is one line, whatever it printed": {
			lines: []string{
				`{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}`,
				`{"Action":"pass","Package":"p","Test":"TestA/sub"}`,
				`{"Action":"pass","Package":"p","Test":"TestA"}`,
				`{"Action":"pass","Package":"p","Elapsed":1.5}`,
			},
			passed: 2, says: "ok    p: 2 passed (1.5 s)", silent: "chatter",
		},
		"a failure is told in full, without the tests that passed": {
			lines: []string{
				`{"Action":"output","Package":"p","Test":"TestA","Output":"got 1, want 2\n"}`,
				`{"Action":"output","Package":"p","Test":"TestB","Output":"chatter\n"}`,
				`{"Action":"fail","Package":"p","Test":"TestA"}`,
				`{"Action":"pass","Package":"p","Test":"TestB"}`,
				`{"Action":"fail","Package":"p"}`,
			},
			passed: 1, failed: 1, says: "got 1, want 2", silent: "chatter",
		},
		"a skipped test is a failure": {
			lines: []string{
				`{"Action":"output","Package":"p","Test":"TestA","Output":"no gcc here\n"}`,
				`{"Action":"skip","Package":"p","Test":"TestA"}`,
				`{"Action":"pass","Package":"p"}`,
			},
			failed: 1, says: "no gcc here",
		},
		"a package that does not build is a failure with the compiler's words": {
			lines: []string{
				`{"ImportPath":"p","Action":"build-output","Output":"x.go:1:1: undefined: y\n"}`,
				`{"ImportPath":"p","Action":"build-fail"}`,
				`{"Action":"fail","Package":"p","FailedBuild":"p"}`,
			},
			failed: 1, says: "undefined: y",
		},
		"a package that fails after its tests passed, by a leak, is a failure": {
			lines: []string{
				`{"Action":"pass","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Output":"found unexpected goroutines\n"}`,
				`{"Action":"fail","Package":"p"}`,
			},
			passed: 1, failed: 1, says: "found unexpected goroutines",
		},
		"a package without tests counts nothing": {
			lines: []string{`{"Action":"skip","Package":"p"}`}, says: "none  p has no tests",
		},
		"a line that is no event is shown": {lines: []string{"go: downloading x"}, says: "go: downloading x"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			got := tally{out: &out}
			if err := got.read(strings.NewReader(strings.Join(test.lines, "\n"))); err != nil {
				t.Fatal(err)
			}
			if got.passed != test.passed || got.failed != test.failed {
				t.Errorf("got %d passed, %d failed; want %d, %d", got.passed, got.failed, test.passed, test.failed)
			}
			if !strings.Contains(out.String(), test.says) {
				t.Errorf("got %q, want it to say %q", out.String(), test.says)
			}
			if test.silent != "" && strings.Contains(out.String(), test.silent) {
				t.Errorf("got %q, want it without %q", out.String(), test.silent)
			}
		})
	}
}
