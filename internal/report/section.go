package report

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// section is one part of the report as people read it, in the terminal and on the page.
type section struct {
	ID    string
	Title string
	Lines []string
	Head  []string
	Rows  [][]string
	Left  string // a letter per column: l is on the left, r on the right
}

// shownOutages are how many of the outages are listed; the page draws all.
const shownOutages = 30

// sections returns all parts in order.
func (r *Report) sections() []section {
	list := []section{r.requestsPart(), r.latencyPart(), r.workPart(), r.poolsPart(), r.referencePart(), r.effortPart(), r.healthPart(), r.outagesPart()}
	list = append(list, r.happenedParts()...)
	return append(list,
		r.samplesPart("slowest", fmt.Sprintf("Slowest %d", mostSlow), r.Slowest),
		r.samplesPart("failed", fmt.Sprintf("Last %d failed", mostFailed), r.Failed))
}

func (r *Report) requestsPart() section {
	q := &r.Requests
	s := section{
		ID: "requests", Title: "Requests", Head: []string{"ENDED", "COUNT", "COUNTS AS"}, Left: "lrl",
		Lines: []string{
			fmt.Sprintf("%s, failure rate %s: %s failed of the %s that were not the client's fault.", plural(q.Total, "request"), percent(q.Rate), number(q.Failed), number(q.Answered+q.Failed)),
			"Caused by the client, and not in the rate: invalid, too_long, unknown, unauthorized, limited, canceled.",
		},
		Rows: [][]string{{"answered", number(q.Answered), "answered"}},
	}
	for _, k := range q.Kinds {
		as := "failed"
		if k.Client {
			as = "client"
		}
		s.Rows = append(s.Rows, []string{k.Kind, number(k.Count), as})
	}
	if r.Ahead > 0 {
		s.Lines = append(s.Lines, plural(r.Ahead, "request")+" began after the end of the period: a clock was set back. They count, and are drawn at the end.")
	}
	return s
}

func (r *Report) latencyPart() section {
	s := section{
		ID: "latency", Title: "Latency of answers", Left: "llrrrrrrrrr",
		Head: []string{"BY", "NAME", "ANSWERS", "P50", "P95", "P99", "FIRST P50", "FIRST P95", "QUEUE P95", "OVERHEAD P50", "OVERHEAD P99"},
	}
	how := "Percentiles are exact."
	if r.Approximate {
		how = "Percentiles are within ±1 %."
	}
	s.Lines = []string{
		how + " FIRST is the first content; QUEUE and OVERHEAD are of all requests for which a step was tried.",
		"Gate, first attempts that passed: no data. Triage, latency: no data.",
	}
	add := func(by string, list []Timing) {
		for _, t := range list {
			s.Rows = append(s.Rows, []string{by, t.Name.String(), number(t.Requests), t.P50.String(), t.P95.String(), t.P99.String(),
				t.First50.String(), t.First95.String(), t.Queue95.String(), t.Overhead50.String(), t.Overhead99.String()})
		}
	}
	add("all", []Timing{r.Latency.All})
	add("route", r.Latency.Routes)
	add("class", r.Latency.Classes)
	return s
}

// useHead are the columns of useCells.
var useHead = []string{"REQUESTS", "SHARE", "TOKENS IN", "CACHED", "OUT", "SHARE", "COST", "SHARE"}

func (u *Use) cells(names ...string) []string {
	return append(names, number(u.Requests), percent(u.RequestShare), number(u.TokensIn), number(u.TokensCached), number(u.TokensOut), percent(u.TokenShare),
		u.Cost.String(), percent(u.CostShare))
}

func (r *Report) workPart() section {
	s := section{ID: "work", Title: "Share by class and tier", Head: append([]string{"CLASS", "TIER"}, useHead...), Left: "llrrrrrrrr"}
	for i := range r.Work {
		s.Rows = append(s.Rows, r.Work[i].cells(r.Work[i].Class.String(), r.Work[i].Tier.String()))
	}
	s.Rows = append(s.Rows, r.Total.cells("total", ""))
	if n := r.Total.Cost.Unpriced; n > 0 {
		s.Lines = append(s.Lines, plural(n, "request")+" used something at an unknown price, which no sum has.")
	}
	return s
}

func (r *Report) poolsPart() section {
	s := section{ID: "pools", Title: "Share by pool", Head: append([]string{"POOL", "TIER"}, useHead...), Left: "llrrrrrrrr"}
	for i := range r.Pools {
		s.Rows = append(s.Rows, r.Pools[i].cells(r.Pools[i].Pool.String(), r.Pools[i].Tier.String()))
	}
	return s
}

func (r *Report) referencePart() section {
	s := section{ID: "reference", Title: "All on one model"}
	ref := &r.Reference
	switch {
	case ref.Model == "":
		s.Lines = []string{"No model that answered has a known price above zero, so there is nothing to compare with. Name one with --reference; prices stand in prices.models or at a pool (weir prices import)."}
		return s
	case !ref.Known:
		s.Lines = []string{fmt.Sprintf("The price of %s is unknown: give it in prices.models or at its pool (weir prices import).", ref.Model)}
		return s
	}
	chosen := ", the dearest that answered"
	if ref.Named {
		chosen = ""
	}
	s.Lines = []string{fmt.Sprintf("The same tokens of all chat requests would have cost %s on %s%s.", ref.Cost, ref.Model, chosen)}
	if ref.Saved != nil {
		s.Lines = append(s.Lines, ref.saving())
	}
	if left := ref.Cost.Priced + ref.Cost.Unpriced - ref.Compared; left > 0 {
		s.Lines = append(s.Lines, fmt.Sprintf("Not compared, as one of the costs is unknown: %s. A pool of your own that costs nothing needs price: {in: 0, out: 0}.", plural(left, "request")))
	}
	return s
}

func (ref *Reference) saving() string {
	text := fmt.Sprintf("Where both are known (%s) it was %s instead of %s: ", plural(ref.Compared, "request"), ref.Was, ref.Would)
	if *ref.Saved < 0 {
		return text + (-*ref.Saved).String() + " more."
	}
	return text + ref.Saved.String() + " saved, " + percent(part(int64(*ref.Saved), int64(ref.Would))) + "."
}

func (r *Report) effortPart() section {
	e := &r.Effort
	s := section{ID: "reroutes", Title: "Retries and reroutes", Head: []string{"REASON", "FROM", "TO", "COUNT"}, Left: "lllr"}
	per := "-"
	if e.PerRequest != nil {
		per = strconv.FormatFloat(*e.PerRequest, 'f', 3, 64)
	}
	s.Lines = []string{fmt.Sprintf("%s, %s (%s for each request that was sent), %s, %s to another step.",
		plural(e.Attempts, "attempt"), plural(e.Generations, "generation"), per, strings.Replace(plural(e.Retries, "retry"), "retrys", "retries", 1), plural(e.Fallbacks, "fallback"))}
	for _, v := range r.Reroutes {
		s.Rows = append(s.Rows, []string{v.Reason, v.From.String(), v.To.String(), number(v.Count)})
	}
	return s
}

func (r *Report) healthPart() section {
	s := section{ID: "health", Title: "Health of pools", Left: "llrrrrrrrrl",
		Head: []string{"POOL", "BACKEND", "EJECTED", "RETURNED", "DENIED", "GONE", "BY HAND", "MERGED", "OUT", "LONGEST", "NOW"}}
	for _, l := range r.Lanes {
		now := "in"
		if l.Now != "" {
			now = "out: " + string(l.Now)
		}
		s.Rows = append(s.Rows, []string{l.Pool.String(), l.Backend.String(), number(l.Ejected), number(l.Returned), number(l.Denied), number(l.Gone), number(l.ByHand), number(l.Merged),
			l.Down.String(), l.Longest.String(), now})
	}
	if len(s.Rows) == 0 {
		s.Lines = []string{"No pool was out."}
	}
	return s
}

func (r *Report) outagesPart() section {
	s := section{ID: "outages", Title: "Outages", Head: []string{"FROM", "POOL", "BACKEND", "CAUSE", "MODEL", "LASTED", "END", "DETAIL"}, Left: "lllllrll"}
	list := r.Outages
	if n := len(list) - shownOutages; n > 0 {
		s.Lines = append(s.Lines, fmt.Sprintf("The last %d of %d.", shownOutages, len(list)))
		list = list[n:]
	}
	for i := range list {
		o := &list[i]
		s.Rows = append(s.Rows, []string{r.clock(o.From), o.Pool.String(), o.Backend.String(), o.Cause, o.Model.String(), Seconds(o.To.Sub(o.From)).String(),
			cmp.Or(o.End, "lasts"), o.Detail})
	}
	return s
}

// happenedParts are alerts, swaps, loops, interventions and versions.
func (r *Report) happenedParts() (list []section) {
	for _, t := range []struct {
		id, title string
		list      []Tally
	}{{"alerts", "Alerts", r.Alerts}, {"swaps", "Swaps", r.Swaps}, {"loops", "Loop guard", r.Loops}} {
		s := section{ID: t.id, Title: t.title, Head: []string{"REASON", "POOL", "FROM", "TO", "COUNT", "LAST", "DETAIL"}, Left: "llllrll"}
		for i := range t.list {
			v := &t.list[i]
			s.Rows = append(s.Rows, []string{v.Reason.String(), v.Pool.String(), v.From.String(), v.To.String(), number(v.Count), r.clock(v.Last), v.Detail})
		}
		list = append(list, s)
	}
	for _, n := range []struct {
		id, title string
		notes     *Notes
	}{{"interventions", "Manual interventions", &r.Interventions}, {"versions", "Versions", &r.Versions}} {
		s := section{ID: n.id, Title: n.title, Head: []string{"TIME", "REASON", "WHO", "WHAT", "DETAIL"}, Left: "lllll"}
		if int64(len(n.notes.List)) < n.notes.Count {
			s.Lines = []string{fmt.Sprintf("The last %d of %s.", len(n.notes.List), number(n.notes.Count))}
		}
		for i := range n.notes.List {
			v := &n.notes.List[i]
			s.Rows = append(s.Rows, []string{r.clock(v.Time), v.Reason.String(), v.Actor.String(), v.To.String(), v.Detail})
		}
		list = append(list, s)
	}
	return list
}

func (r *Report) samplesPart(id, title string, list []Sample) section {
	s := section{ID: id, Title: title, Head: []string{"TIME", "REQUEST", "ROUTE", "CLASS", "TOTAL", "FIRST", "STATUS", "KIND", "ATTEMPTS", "MESSAGE"}, Left: "llllrrrlll"}
	for i := range list {
		v := &list[i]
		s.Rows = append(s.Rows, []string{r.clock(v.Time), v.Request, v.Route.String(), v.Class.String(), v.Total.String(), v.First.String(), strconv.Itoa(v.Status), v.Kind.String(),
			cmp.Or(strings.Join(v.Attempts, ", "), "-"), v.Message})
	}
	return s
}

// clock is a moment in the place of the report.
func (r *Report) clock(t time.Time) string { return t.In(r.location).Format("2006-01-02 15:04:05") }

// period says in a line what is reported.
func (r *Report) period() string {
	from := "all that is kept"
	if r.Since != nil {
		from = r.clock(*r.Since)
	}
	text := from + " to " + r.Until.In(r.location).Format("2006-01-02 15:04:05 MST")
	if r.Since != nil {
		text += " (" + Seconds(r.Until.Sub(*r.Since)).String() + ")"
	}
	if r.First != nil {
		text += ", the first record is of " + r.clock(*r.First)
	}
	return text
}

// number groups digits by thousands.
func number(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func plural(n int64, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return number(n) + " " + word + "s"
}

// percent is a share as people read it: what is not zero, or not all, never looks like it.
func percent(f *float64) string {
	if f == nil {
		return "-"
	}
	p := *f * 100
	switch {
	case p > 0 && p < 0.01:
		return "<0.01%"
	case p < 1 && p > 0 || p > 99 && p < 100:
		if text := strconv.FormatFloat(p, 'f', 2, 64); text != "100.00" {
			return text + "%"
		}
		return ">99.99%"
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + "%"
}

// clean makes what others wrote harmless: nothing in it moves a cursor or turns a line around.
func clean(text string) string {
	if strings.IndexFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) < 0 {
		return text
	}
	var b strings.Builder
	for _, c := range text {
		if unicode.IsPrint(c) {
			b.WriteRune(c)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(c)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
