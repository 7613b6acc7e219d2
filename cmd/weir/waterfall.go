package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"weir/internal/event"
)

// printer writes rows as a table, as event lines, or one request whole.
type printer struct {
	std   *Streams
	json  bool
	whole bool

	headed                bool
	lastRequest, lastFact int64 // the newest shown
}

func (p *printer) print(rows []row) {
	var b []byte
	for i := range rows {
		e := &rows[i].event
		switch {
		case p.json:
			b = append(event.AppendJSON(b, e), '\n')
		case rows[i].request == nil:
			b = append(event.AppendText(b, e, false), '\n')
		case p.whole:
			b = appendWhole(b, e)
		default:
			if !p.headed {
				b = append(b, requestHead...)
				p.headed = true
			}
			b = appendLine(b, e)
		}
		if rows[i].request != nil {
			p.lastRequest = max(p.lastRequest, rows[i].request.ID)
		}
		p.lastFact = max(p.lastFact, rows[i].fact)
	}
	p.std.Out.Write(b)
}

const (
	requestFormat = "%-12s %-28s %-6s %8s %8s %8s  %s\n"
	barWidth      = 40
)

var requestHead = fmt.Sprintf(requestFormat, "TIME", "REQUEST", "STATUS", "TOTAL", "FIRST", "QUEUE", "WHAT")

// appendLine writes one request of the table.
func appendLine(b []byte, e *event.Event) []byte {
	r := e.Record
	what := event.Escape(or(r.Alias, "-"))
	if r.Pool != "" {
		what += " → " + event.Escape(r.Pool+"/"+r.Model)
	}
	for _, f := range []struct{ name, value string }{{"reroute", r.Reroute}, {"kind", r.Kind}, {"key", r.KeyName}, {"tag", r.Tag}} {
		if f.value != "" {
			what += "  " + f.name + "=" + event.Escape(f.value)
		}
	}
	if n := len(r.Attempts); n > 1 {
		what += fmt.Sprintf("  attempts=%d", n)
	}
	return fmt.Appendf(b, requestFormat, r.Start.Local().Format("15:04:05.000"), event.Escape(e.Request), fmt.Sprint(r.Status),
		short(r.Total), short(r.First), short(r.Queue), what)
}

// appendWhole writes one request with a bar per attempt: waiting for a slot, waiting for content, content.
func appendWhole(b []byte, e *event.Event) []byte {
	r := e.Record
	b = fmt.Appendf(b, "request  %s\n", event.Escape(e.Request))
	for _, f := range []struct{ name, value string }{
		{"time", r.Start.Local().Format("2006-01-02 15:04:05.000 MST")}, {"asked", strings.TrimSpace(r.Op + " " + r.Alias)}, {"route", r.Route},
		{"answer", answerText(r)}, {"reroute", r.Reroute}, {"failed", strings.TrimSpace(r.Kind + " " + quoted(r.Message))},
		{"times", fmt.Sprintf("total %s, first content %s, queue %s, overhead %s", short(r.Total), short(r.First), short(r.Queue), short(r.Overhead))},
		{"tokens", tokensText(r)}, {"shape", shapeText(r)}, {"key", strings.TrimSpace(r.KeyName + " " + r.KeyID)}, {"session", r.Session},
		{"tag", r.Tag}, {"version", r.Version},
	} {
		if f.value != "" {
			b = fmt.Appendf(b, "%-8s %s\n", f.name, event.Escape(f.value))
		}
	}
	if len(r.Attempts) == 0 {
		return append(b, "no pool was called\n"...)
	}
	width := 0
	for i := range r.Attempts {
		width = max(width, utf8.RuneCountInString(stepOf(&r.Attempts[i])))
	}
	total := r.Total
	for _, a := range r.Attempts {
		total = max(total, a.At+a.Queue, a.At+a.Took)
	}
	b = fmt.Appendf(b, "\n%*s  0%*s\n", width, "", barWidth-1, short(total))
	for i := range r.Attempts {
		a := &r.Attempts[i]
		step := stepOf(a)
		b = fmt.Appendf(b, "%s%*s  %s  %s\n", step, width-utf8.RuneCountInString(step), "", bar(a, total), outcome(a))
	}
	return append(b, "\n░ waits for a slot  ▒ waits for content  █ content\n"...)
}

// bar draws one attempt on the time line of its request. What took any time is seen.
func bar(a *event.Attempt, total time.Duration) string {
	column := func(d time.Duration) int {
		if total <= 0 {
			return 0
		}
		return int(min(max(d, 0), total) * barWidth / total)
	}
	end := a.At + max(a.Took, a.Queue, 0)
	called := a.At + max(a.Queue, 0)
	content := end
	if a.First >= 0 {
		content = a.At + a.First
	}
	cells := make([]rune, barWidth)
	for i := range cells {
		switch {
		case i < column(a.At) || i >= max(column(end), column(a.At)+1):
			cells[i] = ' '
		case i < column(called):
			cells[i] = '░'
		case a.First < 0 || i < column(content):
			cells[i] = '▒'
		default:
			cells[i] = '█'
		}
	}
	if at := min(column(a.At), barWidth-1); cells[at] == ' ' {
		cells[at] = '▒'
	}
	return string(cells)
}

func stepOf(a *event.Attempt) string {
	step := a.Pool + "/" + a.Model
	if a.Backend != "" && a.Backend != a.Pool {
		step += " @" + a.Backend
	}
	return event.Escape(step)
}

func outcome(a *event.Attempt) string {
	parts := []string{"ok"}
	if a.Kind != "" {
		parts[0] = a.Kind
	}
	if a.Status != 0 {
		parts = append(parts, fmt.Sprint(a.Status))
	}
	parts = append(parts, short(a.Took))
	if !a.Sent {
		parts = append(parts, "not sent")
	}
	if a.Served != "" && a.Served != a.Model {
		parts = append(parts, "served "+a.Served)
	}
	if a.Message != "" {
		parts = append(parts, quoted(a.Message))
	}
	return event.Escape(strings.Join(parts, "  "))
}

func answerText(r *event.Record) string {
	text := fmt.Sprint(r.Status)
	if r.Pool != "" {
		text += " from " + r.Pool + "/" + r.Model
	}
	if r.Served != "" && r.Served != r.Model {
		text += ", which served " + r.Served
	}
	return text
}

func tokensText(r *event.Record) string {
	var parts []string
	for _, t := range []struct {
		name string
		n    int64
	}{{"in", r.Tokens.In}, {"cached", r.Tokens.Cached}, {"out", r.Tokens.Out}, {"reasoning", r.Tokens.Reasoning}} {
		if t.n >= 0 {
			parts = append(parts, fmt.Sprintf("%s %d", t.name, t.n))
		}
	}
	if len(parts) > 0 && r.Tokens.Estimated {
		parts = append(parts, "estimated")
	}
	if r.Cost >= 0 {
		parts = append(parts, fmt.Sprintf("cost %.6f USD", float64(r.Cost)/1e9))
	}
	return strings.Join(parts, ", ")
}

func shapeText(r *event.Record) string {
	s := r.Shape
	text := fmt.Sprintf("%d bytes, about %d tokens, %s, %s", s.Bytes, s.TokensEst, count(s.Messages, "message"), count(s.Tools, "tool"))
	if s.Images > 0 {
		text += ", " + count(s.Images, "image")
	}
	if s.Stream {
		text += ", stream"
	}
	return text
}

func quoted(s string) string {
	if s == "" {
		return ""
	}
	return "“" + s + "”"
}

func or(s, instead string) string {
	if s == "" {
		return instead
	}
	return s
}

// short is a duration as people read it; "-" is unknown.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "-"
	case d == 0:
		return "0"
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.2fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}
