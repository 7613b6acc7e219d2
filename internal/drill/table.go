package drill

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// line is a row as tables show it: two modes that saw the same are one line.
type line struct {
	Row
	took string
}

// lines joins the rows of an alias where streamed and whole saw the same.
func (r *Report) lines(alias string) (list []line) {
	for i := 0; i < len(r.Rows); i++ {
		row := r.Rows[i]
		if row.Alias != alias {
			continue
		}
		l := line{Row: row, took: row.Took.String()}
		if i+1 < len(r.Rows) && l.same(&r.Rows[i+1]) {
			l.Mode = "both"
			l.took = max(l.Took, r.Rows[i+1].Took).String()
			i++
		}
		if l.Result == NotApplicable {
			l.took, l.Saw = "", "–"
		}
		list = append(list, l)
	}
	return list
}

func (l *line) same(o *Row) bool {
	return l.Fault == o.Fault && l.Name == o.Name && l.Alias == o.Alias && l.Saw == o.Saw && l.Attempts == o.Attempts && l.Result == o.Result && l.Reason == o.Reason
}

// aliases returns the aliases that were tried, in order.
func (r *Report) aliases() (list []string) {
	for i := range r.Rows {
		if a := r.Rows[i].Alias; !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}

func (r *Report) route(alias string) string {
	i := slices.IndexFunc(r.Rows, func(w Row) bool { return w.Alias == alias })
	return r.Rows[i].Route
}

// Counts says how many cases passed, failed and could not apply.
func (r *Report) Counts() string {
	return fmt.Sprintf("%d passed, %d failed, %d not applicable, in %v", r.Passed, r.Failed, r.NotApplicable, r.Took)
}

// Text writes the report as tables for a terminal.
func (r *Report) Text(w io.Writer) error {
	for _, alias := range r.aliases() {
		fmt.Fprintf(w, "%s → %s\n", alias, r.route(alias))
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, l := range r.lines(alias) {
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Result, l.Fault, l.Name, l.Mode, l.Saw, l.attempts(), l.took)
			if l.Reason != "" {
				fmt.Fprintf(t, "  \t\t  %s\n", l.Reason)
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	if len(r.Numbers) > 0 {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, n := range r.Numbers {
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", n.Result, n.Name, n.Got, n.Bound)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	for _, n := range r.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	_, err := fmt.Fprintln(w, r.Counts())
	return err
}

func (l *line) attempts() string {
	if l.Result == NotApplicable {
		return ""
	}
	return strconv.Itoa(l.Attempts)
}

// Markdown writes the report as a page.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Conformance: what clients see when upstreams fail\n\n`weir drill` brought each fault to %s on %s. %s.\n\n", code(r.Subject), r.Time.Format(time.DateOnly), r.Counts())
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "- %s\n", escaped(n))
	}
	b.WriteString("- F numbers are those of the fault catalogue; a row without a mode of its own is the same streamed and whole\n")
	b.WriteString("- attempts are calls and dials as the simulated servers counted them; times are those of a client\n")
	for _, alias := range r.aliases() {
		fmt.Fprintf(&b, "\n## %s → %s\n\n| fault | what happens | client | client saw | attempts | time | result |\n|---|---|---|---|---:|---:|---|\n", code(alias), code(r.route(alias)))
		for _, l := range r.lines(alias) {
			result := string(l.Result)
			if l.Reason != "" {
				result += ": " + l.Reason
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", l.Fault, escaped(l.Name), l.Mode, escaped(l.Saw), l.attempts(), l.took, escaped(result))
		}
	}
	if len(r.Numbers) > 0 {
		b.WriteString("\n## Numbers\n\nMeasured on a configuration of the drill's own, over loopback.\n\n| measured | got | bound | result |\n|---|---|---|---|\n")
		for _, n := range r.Numbers {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", escaped(n.Name), escaped(n.Got), escaped(n.Bound), n.Result)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// code puts a name into Markdown, whatever is in it.
func code(s string) string {
	return "`" + strings.ReplaceAll(strings.ReplaceAll(s, "`", "'"), "\n", " ") + "`"
}

// escaped makes text fit for a cell.
func escaped(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;", "*", `\*`, "_", `\_`).Replace(s)
}
