// Command gotest runs go test and tells it shortly: a line for each package, failures in full, and at the end the counts.
// A skipped test is a failure: what is not run is not known.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
)

func main() {
	counts := flag.String("counts", "", "add a line \"PASSED FAILED\" to this `file`")
	flag.Parse()
	os.Exit(run(flag.Args(), *counts))
}

// run carries out go test with the arguments and returns the exit code.
func run(args []string, counts string) int {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		return 1
	}
	t := tally{out: os.Stdout}
	readErr := t.read(out)
	err = cmd.Wait()
	if err != nil && t.failed == 0 || readErr != nil {
		fmt.Fprintln(os.Stderr, "gotest: go test:", err, readErr)
		t.failed++
	}
	fmt.Printf("go: %d passed, %d failed\n", t.passed, t.failed)
	if counts != "" {
		if err := note(counts, t.passed, t.failed); err != nil {
			fmt.Fprintln(os.Stderr, "gotest:", err)
			return 1
		}
	}
	if t.failed > 0 {
		return 1
	}
	return 0
}

// note adds one line to the file of counts.
func note(file string, passed, failed int) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, passed, failed)
	return err
}

// event is one line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// tally counts tests and prints what a person wants to know of them.
type tally struct {
	out            io.Writer
	passed, failed int
	packages       map[string]*result
}

// result is what is known of a package that runs.
type result struct {
	lines          []event // what it printed
	passed, failed int
	bad            map[string]bool // tests that failed
}

// read takes events until the end. Lines that are none are printed as they are.
func (t *tally) read(r io.Reader) error {
	t.packages = map[string]*result{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(t.out, lines.Text())
			continue
		}
		t.take(e)
	}
	return lines.Err()
}

func (t *tally) take(e event) {
	if e.Action == "build-output" {
		fmt.Fprint(t.out, e.Output)
		return
	}
	p := t.packages[e.Package]
	if p == nil {
		p = &result{bad: map[string]bool{}}
		t.packages[e.Package] = p
	}
	switch e.Action {
	case "output":
		p.lines = append(p.lines, e)
	case "pass", "fail", "skip":
		if e.Test == "" {
			t.end(e, p)
			return
		}
		if e.Action == "pass" {
			p.passed++
			return
		}
		p.failed++
		p.bad[e.Test] = true
	}
}

// end tells of a package that is done.
func (t *tally) end(e event, p *result) {
	delete(t.packages, e.Package)
	if e.Action == "fail" && p.failed == 0 {
		p.failed++ // it did not build, leaked, or ended early
	}
	t.passed += p.passed
	t.failed += p.failed
	switch {
	case p.failed > 0:
		for _, line := range p.lines {
			if line.Test == "" || p.bad[line.Test] {
				fmt.Fprint(t.out, line.Output)
			}
		}
		fmt.Fprintf(t.out, "FAIL  %s: %d passed, %d failed (%.1f s)\n", e.Package, p.passed, p.failed, e.Elapsed)
	case p.passed > 0:
		fmt.Fprintf(t.out, "ok    %s: %d passed (%.1f s)\n", e.Package, p.passed, e.Elapsed)
	default:
		fmt.Fprintf(t.out, "none  %s has no tests\n", e.Package)
	}
}
