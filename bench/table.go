package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// table is printed as aligned text or as Markdown.
type table struct {
	title string
	head  []string
	rows  [][]string
	notes []string // printed below
}

func (t table) write(w io.Writer, markdown bool) {
	if markdown {
		fmt.Fprintf(w, "\n### %s\n\n", t.title)
		t.writeMarkdown(w)
	} else {
		fmt.Fprintf(w, "\n%s\n", t.title)
		t.writeText(w)
	}
	for _, n := range t.notes {
		fmt.Fprintf(w, "\n%s\n", n)
	}
}

func (t table) writeMarkdown(w io.Writer) {
	line := func(cells []string) {
		for _, c := range cells {
			fmt.Fprintf(w, "| %s ", strings.ReplaceAll(c, "|", `\|`))
		}
		fmt.Fprintln(w, "|")
	}
	line(t.head)
	fmt.Fprintln(w, strings.Repeat("|---", len(t.head))+"|")
	for _, r := range t.rows {
		line(r)
	}
}

func (t table) writeText(w io.Writer) {
	widths := make([]int, len(t.head))
	all := append([][]string{t.head}, t.rows...)
	for _, r := range all {
		for i, c := range r {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range all {
		var line strings.Builder
		for i, c := range r {
			line.WriteString("  " + c + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)))
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// spread is "median (min–max)", with the unit's usual precision.
func (s summary) spread() string {
	switch s.N {
	case 0:
		return "–"
	case 1:
		return figure(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", figure(s.Median), figure(s.Min), figure(s.Max))
}

// figure prints three significant digits, and no more than two decimals.
func figure(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case a < 10:
		return fmt.Sprintf("%.2f", v)
	case a < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// caseTable is one line per subject of everything a case's runs show.
func (b *bench) caseTable(c benchCase) table {
	t := table{title: c.name + ": " + c.title,
		head: []string{"subject", "CPU µs/request", "CPU µs/chunk", "per s", "p50 µs", "p99 µs", "first content p50 µs", "RSS peak MiB", "other cores", "dials", "errors", "broken", "short"}}
	for _, s := range b.subjects(c) {
		runs := b.book.of(c.name, s)
		if len(runs) == 0 {
			continue
		}
		over := func(value func(*result) float64) summary {
			var v []float64
			for i := range runs {
				v = append(v, value(&runs[i]))
			}
			return summarize(v)
		}
		sum := func(value func(*result) int64) (n int64) {
			for i := range runs {
				n += value(&runs[i])
			}
			return n
		}
		middle := func(value func(*result) float64) string { return figure(over(value).Median) }
		t.rows = append(t.rows, []string{s,
			over(cpuPerRequest).spread(), over(cpuPerChunk).spread(),
			middle(func(r *result) float64 { return r.PerSecond }), middle(p50), middle(func(r *result) float64 { return r.P99 }),
			middle(func(r *result) float64 { return r.FirstP50 }), figure(over(func(r *result) float64 { return r.RSSPeak / mib }).Max),
			middle(func(r *result) float64 { return r.OtherCores }), fmt.Sprint(sum(func(r *result) int64 { return r.Dials })),
			fmt.Sprint(sum(func(r *result) int64 { return r.Errors })), fmt.Sprint(sum(func(r *result) int64 { return r.Broken })),
			fmt.Sprint(sum(func(r *result) int64 { return r.Short })),
		})
		if first := firstError(runs); first != "" {
			t.notes = append(t.notes, "First fault of "+s+": "+first)
		}
	}
	return t
}

func firstError(runs []result) string {
	for _, r := range runs {
		if r.FirstError != "" {
			return r.FirstError
		}
	}
	return ""
}

// limitTable holds every measure to the limits and aims.
func limitTable(outcomes []outcome) table {
	t := table{title: "Limits: median (min–max) over the rounds",
		head: []string{"what", "unit", "direct", "revproxy", "weir", "ratio of medians", "median of ratios", "at most", "aim", "verdict"}}
	for _, o := range outcomes {
		bound := func(v float64) string {
			switch {
			case o.none:
				return "0"
			case v == 0:
				return "–"
			case o.Relative:
				return fmt.Sprintf("%.2f ×", v)
			}
			return figure(v)
		}
		ratio := func(v float64) string {
			if v == 0 {
				return "–"
			}
			return fmt.Sprintf("%.2f", v)
		}
		t.rows = append(t.rows, []string{o.Name, o.Unit, o.Direct.spread(), o.Revproxy.spread(), o.Weir.spread(),
			ratio(o.Ratio), ratio(o.RoundRatio), bound(o.Limit), bound(o.Aim), o.Verdict})
	}
	t.notes = []string{"Ratios are weir to revproxy. A limit with × holds the ratio of medians, one without the median, a 0 every round. " +
		"Verdict: aim, pass (within the limit), MISS, or ERRORS (requests failed, so the figure is worth nothing)."}
	return t
}
