package report

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"weir/internal/store"
)

// gather sums up rows as they come.
type gather struct {
	o     Options
	r     *Report
	rough bool // percentiles are counted in buckets

	kinds           map[string]int64
	all             timing
	routes, classes groups[timing]
	work            groups[ClassTier]
	pools           groups[PoolUse]
	reroutes        groups[Reroute]
	sent            int64 // requests of which at least one attempt was sent

	alerts, swaps, loops groups[Tally]
	health               *health
	line                 *line
}

// timing collects the durations of one group.
type timing struct{ total, first, queue, overhead series }

// groups are the groups of one list by name; those that find no place share one.
type groups[T any] struct {
	by   map[string]*T
	most int
}

// get returns the group of a key, which make makes. When the list is full, it is that of the others.
func (g *groups[T]) get(key string, make func(other bool) T) *T {
	if v := g.by[key]; v != nil {
		return v
	}
	if g.by == nil {
		g.by = map[string]*T{}
	}
	other := len(g.by) >= cmp.Or(g.most, mostGroups)
	if other {
		if v := g.by[others]; v != nil {
			return v
		}
		key = others
	}
	v := make(other)
	g.by[key] = &v
	return &v
}

// sorted returns the groups, most first, then by key.
func (g *groups[T]) sorted(count func(*T) int64) []T {
	list := []T{}
	keys := slices.Sorted(maps.Keys(g.by))
	slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(count(g.by[b]), count(g.by[a])) })
	for _, key := range keys {
		list = append(list, *g.by[key])
	}
	return list
}

func newGather(o Options, outline store.Outline) *gather {
	g := &gather{o: o, rough: outline.Requests > exactRows, kinds: map[string]int64{}, health: newHealth(o.Since)}
	g.r = &Report{Until: o.Until.UTC(), Approximate: g.rough, location: o.Location, Interventions: Notes{List: []Note{}}, Versions: Notes{List: []Note{}}}
	if !o.Since.IsZero() {
		since := o.Since.UTC()
		g.r.Since = &since
	}
	if !outline.First.IsZero() {
		first := outline.First.UTC()
		g.r.First = &first
	}
	g.line = newLine(outline.First, o)
	g.all = g.newTiming(false)
	return g
}

func (g *gather) newTiming(bool) timing {
	s := series{rough: g.rough}
	return timing{s, s, s, s}
}

// choose finds the reference: the one that is named, else the model seen that a mean request costs most on.
func (g *gather) choose(ctx context.Context, src Source) error {
	ref := &g.r.Reference
	if g.o.Reference != "" {
		ref.Model, ref.Named, ref.Known = Name(g.o.Reference), true, g.o.Price != nil
		return nil
	}
	if g.o.Prices == nil {
		return nil
	}
	work, err := src.Work(ctx, g.o.Since)
	if err != nil {
		return err
	}
	mean := meanOf(work)
	var most int64
	for _, w := range work {
		price := g.o.Prices(w.Pool, w.Model)
		if price == nil {
			continue
		}
		if nanos, known := price(mean); known && nanos > most { // where nothing costs anything there is nothing to compare with
			most = nanos
			ref.Model, ref.Known, g.o.Price = Name(w.Pool+"/"+w.Model), true, price
		}
	}
	return nil
}

// meanOf is the request in the middle of all work, in tokens. It is taken a thousand times, so that short ones are not
// rounded away.
func meanOf(work []store.Work) Tokens {
	var sum store.Work
	for _, w := range work {
		sum.In, sum.Out, sum.Cached, sum.Written = sum.In+w.In, sum.Out+w.Out, sum.Cached+w.Cached, sum.Written+w.Written
		sum.Requests += w.Requests
	}
	const scale = 1000
	mean := func(n int64) int64 { return min(n/max(sum.Requests, 1), 1<<13) * scale }
	return Tokens{In: max(mean(sum.In), 1), Out: max(mean(sum.Out), 1), Cached: mean(sum.Cached), Written: mean(sum.Written)}
}

// request counts one row.
func (g *gather) request(r *store.Request) {
	q := &g.r.Requests
	q.Total++
	if r.Time.After(g.o.Until) {
		g.r.Ahead++
	}
	switch {
	case r.Kind == "":
		q.Answered++
	case clientKinds[r.Kind]:
		q.Client++
	default:
		q.Failed++
	}
	if r.Kind != "" {
		g.kinds[r.Kind]++
	}
	g.time(r)
	g.count(r)
	g.effort(r)
	g.line.request(r)
	g.health.request(r)
	g.sample(r)
}

// time takes the durations of one row. Counting tokens is no model's work.
func (g *gather) time(r *store.Request) {
	if r.Op == "count" {
		return
	}
	tried := len(r.Attempts) > len("[]")
	answered := r.Kind == "" && r.Pool != ""
	if !tried && !answered {
		return
	}
	for _, t := range []*timing{&g.all, g.routes.get(r.Route, g.newTiming), g.classes.get(r.Class, g.newTiming)} {
		if tried {
			t.queue.add(r.Queue)
			t.overhead.add(r.Overhead)
		}
		if answered {
			t.total.add(r.Total)
			t.first.add(r.First)
		}
	}
}

// count takes tokens and cost of one row.
func (g *gather) count(r *store.Request) {
	w := g.work.get(r.Class+"\x00"+r.Tier, func(other bool) ClassTier {
		if other {
			return ClassTier{Class: others, Tier: others}
		}
		return ClassTier{Class: Name(r.Class), Tier: Name(r.Tier)}
	})
	uses := []*Use{&g.r.Total, &w.Use}
	if r.Pool != "" {
		p := g.pools.get(r.Pool, func(other bool) PoolUse {
			if other {
				return PoolUse{Pool: others}
			}
			return PoolUse{Pool: Name(r.Pool), Tier: Name(r.Tier)}
		})
		uses = append(uses, &p.Use)
	}
	for _, u := range uses {
		u.add(r)
	}
	g.compare(r)
}

func (u *Use) add(r *store.Request) {
	u.Requests++
	if r.Op == "count" {
		return
	}
	u.TokensIn += max(r.TokensIn, 0)
	u.TokensCached += max(r.TokensCached, 0)
	u.TokensOut += max(r.TokensOut, 0)
	if r.Cost >= 0 || r.TokensIn >= 0 || r.Kind == "" && r.Pool != "" {
		u.Cost.add(r.Cost, r.Cost >= 0)
	}
}

// compare reckons what the row's tokens would have cost on the reference. An embedding is not a chat model's work.
func (g *gather) compare(r *store.Request) {
	if !g.r.Reference.Known || r.Op != "chat" && r.Op != "completions" || r.TokensIn < 0 && r.TokensOut < 0 {
		return
	}
	ref := &g.r.Reference
	nanos, known := g.o.Price(Tokens{In: r.TokensIn, Out: r.TokensOut, Cached: r.TokensCached, Written: r.TokensWritten})
	ref.Cost.add(nanos, known)
	if known && r.Cost >= 0 {
		ref.Compared++
		ref.Was, ref.Would = plus(ref.Was, r.Cost), plus(ref.Would, nanos)
	}
}

// fact takes one row. Health and alerts are there from before the period too.
func (g *gather) fact(f *store.Fact) {
	g.health.fact(f)
	if f.Time.Before(g.o.Since) {
		return
	}
	note := Note{Time: f.Time.UTC(), Reason: Name(f.Reason), Actor: Name(f.Actor), To: Name(f.To), Detail: f.Detail}
	switch f.Event {
	case "alert":
		tally(&g.alerts, f)
	case "swap":
		tally(&g.swaps, f)
	case "loop":
		tally(&g.loops, f)
	case "audit":
		g.r.Interventions.add(note, mostNotes)
	case "shift":
		g.r.Versions.add(note, mostMarks)
	}
}

func (n *Notes) add(note Note, most int) {
	n.Count++
	if n.List = append(n.List, note); len(n.List) > 2*most {
		n.List = append(n.List[:0], n.List[len(n.List)-most:]...)
	}
}

func (n *Notes) cut(most int) { n.List = n.List[max(0, len(n.List)-most):] }

func tally(in *groups[Tally], f *store.Fact) {
	v := Tally{Reason: Name(f.Reason), Pool: Name(f.Pool), From: Name(f.From), To: Name(f.To)}
	t := in.get(strings.Join([]string{f.Reason, f.Pool, f.From, f.To}, "\x00"), func(other bool) Tally {
		if other {
			return Tally{Reason: others}
		}
		return v
	})
	t.Count++
	t.Last, t.Detail = f.Time.UTC(), f.Detail
}

// report makes the report of all that came.
func (g *gather) report() *Report {
	r := g.r
	r.Requests.Rate = part(r.Requests.Failed, r.Requests.Answered+r.Requests.Failed)
	r.Requests.Kinds = kindsOf(g.kinds)
	r.Latency.All = g.all.timing("all")
	r.Latency.Routes, r.Latency.Classes = timings(g.routes), timings(g.classes)
	r.Work = g.work.sorted(func(w *ClassTier) int64 { return w.Requests })
	r.Pools = g.pools.sorted(func(p *PoolUse) int64 { return p.Requests })
	r.Total.share(&r.Total)
	for i := range r.Work {
		r.Work[i].share(&r.Total)
	}
	for i := range r.Pools {
		r.Pools[i].share(&r.Total)
	}
	if ref := &r.Reference; ref.Compared > 0 {
		saved := ref.Would - ref.Was
		ref.Saved = &saved
	}
	r.Effort.PerRequest = part(r.Effort.Generations, g.sent)
	r.Reroutes = g.reroutes.sorted(func(v *Reroute) int64 { return v.Count })
	r.Alerts = g.alerts.sorted(count)
	r.Swaps, r.Loops = g.swaps.sorted(count), g.loops.sorted(count)
	r.Interventions.cut(mostNotes)
	r.Versions.cut(mostMarks)
	r.Lanes, r.Outages = g.health.report(g.o.Until)
	r.Failed = r.Failed[max(0, len(r.Failed)-mostFailed):]
	slices.Reverse(r.Failed) // the newest first
	r.Slowest, r.Failed = explained(r.Slowest), explained(r.Failed)
	r.Timeline = g.line.timeline()
	return r
}

func count(t *Tally) int64 { return t.Count }

func kindsOf(counts map[string]int64) []Kind {
	list := []Kind{}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, Kind{name, clientKinds[name], counts[name]})
	}
	slices.SortStableFunc(list, func(a, b Kind) int { return cmp.Compare(b.Count, a.Count) })
	return list
}

func timings(g groups[timing]) []Timing {
	list := []Timing{}
	for _, name := range slices.Sorted(maps.Keys(g.by)) {
		list = append(list, g.by[name].timing(Name(name)))
	}
	slices.SortStableFunc(list, func(a, b Timing) int { return cmp.Compare(b.Requests, a.Requests) })
	return list
}

func (t *timing) timing(name Name) Timing {
	return Timing{
		Name: name, Requests: t.total.n, P50: t.total.at(50), P95: t.total.at(95), P99: t.total.at(99), First50: t.first.at(50), First95: t.first.at(95),
		Queue95: t.queue.at(95), Overhead50: t.overhead.at(50), Overhead99: t.overhead.at(99),
	}
}

// share sets the parts of all that a group is.
func (u *Use) share(all *Use) {
	u.RequestShare = part(u.Requests, all.Requests)
	u.TokenShare = part(u.TokensIn+u.TokensOut, all.TokensIn+all.TokensOut)
	if u.Cost.Known() {
		u.CostShare = part(int64(u.Cost.Nanos), int64(all.Cost.Nanos))
	}
}
