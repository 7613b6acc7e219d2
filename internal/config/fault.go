package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Fault is one thing that is wrong with a config file, or, in a list of warnings, that looks wrong.
type Fault struct {
	File       string `json:"file"`             // as given to Load or Parse
	Line       int    `json:"line,omitempty"`   // from 1; 0 when no line is at fault
	Column     int    `json:"column,omitempty"` // from 1, in characters; 0 likewise
	Path       string `json:"path,omitempty"`   // such as pools.large.cap; "" for the whole file
	Msg        string `json:"message"`
	Suggestion string `json:"suggestion,omitempty"` // the word that was probably meant
}

// Error renders the fault as weir.yaml:12: pools.large.cap: must be at least 1.
func (f Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		b.WriteString(":" + strconv.Itoa(f.Line))
	}
	if f.Path != "" {
		b.WriteString(": " + f.Path)
	}
	b.WriteString(": " + f.Msg)
	if f.Suggestion != "" {
		fmt.Fprintf(&b, "; did you mean %q?", f.Suggestion)
	}
	return b.String()
}

// Faults are all faults of one file in the order of their lines. As an error it has one line each.
type Faults []Fault

// Error renders every fault on a line of its own.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// Report is what reading a config file found.
type Report struct {
	Faults   Faults // the file cannot be used
	Warnings Faults // it can, but look at these
}

// Err returns the faults as an error, or nil when there are none.
func (r *Report) Err() error {
	if len(r.Faults) == 0 {
		return nil
	}
	return r.Faults
}

// path is a place in the file, linked to the place around it. nil is the whole file.
type path struct {
	parent *path
	text   string // the whole path as people read it
}

// key returns the place of a key within p.
func (p *path) key(name string) *path {
	elem := name
	if !plainKey.MatchString(name) || literalKey.MatchString(name) {
		elem = "[" + show(name) + "]"
	} else if p != nil {
		elem = "." + name
	}
	return &path{parent: p, text: p.String() + elem}
}

// at returns the place of an item within p.
func (p *path) at(i int) *path {
	return &path{parent: p, text: p.String() + "[" + strconv.Itoa(i) + "]"}
}

// String returns the path as people read it: pools.large.models[0], aliases["claude-*"].
func (p *path) String() string {
	if p == nil {
		return ""
	}
	return p.text
}

// mark is a position in the file.
type mark struct{ line, column int }

// findings collects faults and warnings, and knows where each path stands in the file.
type findings struct {
	file   string
	marks  map[string]mark
	bad    map[string]bool // paths that have a fault, so that one mistake is told once
	report Report
}

// newFindings returns an empty collection for a file.
func newFindings(file string) *findings {
	return &findings{file: file, marks: map[string]mark{}, bad: map[string]bool{}}
}

// where returns the position of p, or of the nearest place around it that is in the file.
func (f *findings) where(p *path) mark {
	for ; p != nil; p = p.parent {
		if m, ok := f.marks[p.text]; ok {
			return m
		}
	}
	return mark{}
}

// fault records a fault at p, unless p or a place around it has one already: what follows from a mistake is no news.
func (f *findings) fault(p *path, format string, args ...any) {
	for q := p; q != nil; q = q.parent {
		if f.bad[q.text] {
			return
		}
	}
	f.add(p, fmt.Sprintf(format, args...), "")
}

// add records a fault at p, whatever stands there already.
func (f *findings) add(p *path, msg, suggestion string) {
	if p != nil {
		f.bad[p.text] = true
	}
	m := f.where(p)
	f.report.Faults = append(f.report.Faults, Fault{f.file, m.line, m.column, p.String(), msg, suggestion})
}

// warn records a warning at p.
func (f *findings) warn(p *path, format string, args ...any) {
	m := f.where(p)
	f.report.Warnings = append(f.report.Warnings, Fault{f.file, m.line, m.column, p.String(), fmt.Sprintf(format, args...), ""})
}

// done returns the report, in the order of the file.
func (f *findings) done() *Report {
	order := func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Msg, b.Msg))
	}
	slices.SortStableFunc(f.report.Faults, order)
	slices.SortStableFunc(f.report.Warnings, order)
	return &f.report
}
