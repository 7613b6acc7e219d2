package report

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"weir/internal/store"
)

// effort counts the attempts of one row. Most have one: nothing is decoded then.
func (g *gather) effort(r *store.Request) {
	e := &g.r.Effort
	// A quotation mark within a text is escaped: these are members.
	n := int64(strings.Count(r.Attempts, `{"pool":`))
	sent := int64(strings.Count(r.Attempts, `"sent":true`))
	e.Attempts += n
	e.Generations += sent
	if sent > 0 {
		g.sent++
	}
	if n < 2 && r.Reroute == "" {
		return
	}
	attempts := attemptsOf(r.Attempts)
	for i := 1; i < len(attempts); i++ {
		if attempts[i].step() == attempts[i-1].step() {
			e.Retries++
		}
	}
	if r.Reroute == "fallback" || len(attempts) > 1 && r.Pool != "" && attempts[0].step() != r.Pool+"/"+r.Model {
		e.Fallbacks++
	}
	if r.Reroute != "" {
		g.reroute(r, attempts)
	}
}

// reroute counts why and from where to where an answer came.
func (g *gather) reroute(r *store.Request, attempts []attempt) {
	step := r.Pool + "/" + r.Model
	v := Reroute{Reason: r.Reroute, From: Name(step), To: Name(step)}
	switch r.Reroute {
	case "fallback":
		v.From = "" // where the first step was left out nothing of it is known
		if len(attempts) > 0 && attempts[0].step() != step {
			v.From = Name(attempts[0].step())
		}
	default: // what really served
		v.To = Name(r.Served)
	}
	key := v.Reason + "\x00" + string(v.From) + "\x00" + string(v.To)
	g.reroutes.get(key, func(other bool) Reroute {
		if other {
			return Reroute{Reason: others}
		}
		return v
	}).Count++
}

// attempt is what a report needs of one stored attempt.
type attempt struct{ Pool, Model, Kind string }

func (a *attempt) step() string { return a.Pool + "/" + a.Model }

func attemptsOf(text string) (list []attempt) {
	if json.Unmarshal([]byte(text), &list) != nil {
		return nil // an odd row is counted without them
	}
	return list
}

// sample keeps the slowest and the last failed requests.
func (g *gather) sample(r *store.Request) {
	if n := len(g.r.Slowest); r.Total >= 0 && (n < mostSlow || r.Total > time.Duration(g.r.Slowest[n-1].Total)) {
		at, _ := slices.BinarySearchFunc(g.r.Slowest, r.Total, func(s Sample, d time.Duration) int {
			if time.Duration(s.Total) >= d { // of equal ones the earliest stays first
				return -1
			}
			return 1
		})
		g.r.Slowest = slices.Insert(g.r.Slowest, at, sampleOf(r))
		g.r.Slowest = g.r.Slowest[:min(n+1, mostSlow)]
	}
	if r.Kind != "" && !clientKinds[r.Kind] {
		g.r.Failed = append(g.r.Failed, sampleOf(r))
		if len(g.r.Failed) > 4*mostFailed {
			g.r.Failed = append(g.r.Failed[:0], g.r.Failed[len(g.r.Failed)-mostFailed:]...)
		}
	}
}

func sampleOf(r *store.Request) Sample {
	return Sample{
		Time: r.Time.UTC(), Request: r.Request, Class: Name(r.Class), Route: Name(r.Route), Pool: Name(r.Pool), Model: Name(r.Model), Status: r.Status,
		Kind: Name(r.Kind), Message: r.Message, Reroute: Name(r.Reroute), First: Millis(r.First), Total: Millis(r.Total), raw: r.Attempts,
	}
}

// explained adds how each attempt ended.
func explained(list []Sample) []Sample {
	out := []Sample{}
	for _, s := range list {
		s.Attempts = []string{}
		for _, a := range attemptsOf(s.raw) {
			s.Attempts = append(s.Attempts, a.step()+": "+cmp.Or(a.Kind, "ok"))
		}
		out = append(out, s)
	}
	return out
}
