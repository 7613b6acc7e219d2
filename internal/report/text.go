package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// mostCell is how many characters of a cell the terminal gets.
const mostCell = 48

// WriteText writes the report for a terminal. What others named cannot move its cursor. Errors are those of w.
func (r *Report) WriteText(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "weir report: %s\n", clean(r.period()))
	if r.Empty() {
		b.WriteString("\nNothing was recorded in this period.\n")
	} else {
		for _, s := range r.sections() {
			s.write(&b)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (s *section) write(b *bytes.Buffer) {
	if len(s.Lines) == 0 && len(s.Rows) == 0 {
		fmt.Fprintf(b, "\n%s: none\n", s.Title)
		return
	}
	fmt.Fprintf(b, "\n%s\n", s.Title)
	for _, line := range s.Lines {
		fmt.Fprintf(b, "  %s\n", clean(line))
	}
	if len(s.Rows) == 0 {
		return
	}
	rows := append([][]string{s.Head}, s.Rows...)
	widths := make([]int, len(s.Head))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(short(cell)))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			cell = short(cell)
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if s.Left[i] == 'r' {
				cell = space + cell
			} else {
				cell += space
			}
			line.WriteString("  " + cell)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// short is a cell as the terminal gets it.
func short(text string) string { return cut(clean(text), mostCell) }

// cut shortens a text to so many characters.
func cut(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// WriteJSON writes the report for programs. Its names are stable. Errors are those of w.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
