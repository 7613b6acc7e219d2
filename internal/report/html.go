package report

import (
	"bytes"
	_ "embed" // the page's template
	"fmt"
	"html/template"
	"io"
)

//go:embed page.html
var pageText string

// page is what the template shows.
type page struct {
	Title    string
	Period   string
	Empty    bool
	Tiles    []tile
	Plots    []plot
	Numbers  section // of the plots, for those who cannot see them
	Sections []section
}

type tile struct{ Label, Value, Note, Class string }

// WriteHTML writes the report as one page that needs nothing else: no script, no font, no picture from anywhere. Names and
// messages of others are escaped by their place in it. Errors are those of w.
func (r *Report) WriteHTML(w io.Writer) error {
	tmpl, err := template.New("page").Funcs(template.FuncMap{
		"clean": clean,
		"f":     func(v float64) string { return fmt.Sprintf("%.1f", v) },
		"right": func(left string, i int) bool { return left[i] == 'r' },
		"wide":  func() int { return plotWidth },
		"add":   func(a, b float64) float64 { return a + b },
	}).Parse(pageText)
	if err != nil {
		return fmt.Errorf("the report's page: %w", err)
	}
	p := page{Title: "Weir report", Period: r.period(), Empty: r.Empty()}
	if !p.Empty {
		p.Tiles, p.Plots, p.Numbers, p.Sections = r.tiles(), r.plots(), r.numbers(), r.sections()
	}
	var b bytes.Buffer
	if err := tmpl.Execute(&b, p); err != nil {
		return fmt.Errorf("the report's page: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

// tiles are the numbers that are looked for first.
func (r *Report) tiles() []tile {
	q, ref := &r.Requests, &r.Reference
	failures := tile{Label: "failure rate", Value: percent(q.Rate), Note: plural(q.Failed, "request") + " failed"}
	if q.Failed > 0 {
		failures.Class = "alarm"
	}
	saved := tile{Label: "saved", Value: "unknown", Note: "no reference price"}
	if ref.Saved != nil {
		saved.Value, saved.Note = ref.Saved.String(), "beside all on "+cut(clean(string(ref.Model)), 30)
	}
	out := 0
	for i := range r.Lanes {
		if r.Lanes[i].Now != "" {
			out++
		}
	}
	health := tile{Label: "outages", Value: number(int64(len(r.Outages))), Note: fmt.Sprintf("%d out at the end", out)}
	if out > 0 {
		health.Class = "alarm"
	}
	return []tile{
		{Label: "requests", Value: number(q.Total), Note: number(q.Answered) + " answered"}, failures,
		{Label: "latency p95", Value: r.Latency.All.P95.String(), Note: "p50 " + r.Latency.All.P50.String()},
		{Label: "first content p95", Value: r.Latency.All.First95.String(), Note: "p50 " + r.Latency.All.First50.String()},
		{Label: "cost", Value: r.Total.Cost.String(), Note: plural(r.Total.Cost.Unpriced, "request") + " unpriced"},
		saved, health,
	}
}

// numbers is what the plots of time show, as a table.
func (r *Report) numbers() section {
	s := section{ID: "numbers", Title: "The plots in numbers", Left: "lrrrrrrrrrrrrr", Head: []string{"FROM", "REQUESTS", "FAILED", "CLIENTS", "P50", "P95"}}
	for _, tier := range tierNames {
		s.Head = append(s.Head, "TOKENS "+tier, "COST "+tier)
	}
	for i := range r.Timeline.Bins {
		b := &r.Timeline.Bins[i]
		if b.Requests == 0 {
			continue
		}
		row := []string{r.clock(b.Time), number(b.Requests), number(b.Failed), number(b.Client), b.P50.String(), b.P95.String()}
		var tiers [len(tierNames)]BinTier
		for _, t := range b.Tiers {
			tiers[tierIndex(t.Tier)] = t
		}
		for _, t := range tiers {
			row = append(row, number(t.Tokens), t.Cost.String())
		}
		s.Rows = append(s.Rows, row)
	}
	return s
}
