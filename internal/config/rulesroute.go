package config

import (
	"slices"
	"strings"
)

// pool checks one pool.
func (r *rules) pool(pool *Pool, p *path) {
	r.poolBackends(pool, p)
	r.models(pool, p.key("models"))
	r.sampling(pool, p.key("sampling"))
	r.limits(pool.Limits, p.key("limits"))
}

// poolBackends checks that a pool has backends, and that they are of one kind.
func (r *rules) poolBackends(pool *Pool, p *path) {
	at := func(i int) *path { return p.key("backends").at(i) }
	switch {
	case pool.Backend != "" && len(pool.Backends) > 0:
		r.fault(p.key("backends"), "a pool has backend or backends, not both")
		return
	case pool.Backend != "":
		at = func(int) *path { return p.key("backend") }
	case pool.Backends == nil:
		if !r.bad[p.key("backend").text] && !r.bad[p.key("backends").text] {
			r.fault(p.key("backend"), "is missing: a pool has backend: NAME or backends: [NAME, NAME]")
		}
		return
	case len(pool.Backends) == 0:
		r.fault(p.key("backends"), "is empty: name one backend at least")
		return
	}
	var first *Backend
	for i, name := range pool.Names() {
		b := r.c.Backends[name]
		switch {
		case name == "":
		case b == nil:
			r.absent(at(i), "backend", name, sorted(r.c.Backends))
		case slices.Index(pool.Names(), name) < i:
			r.fault(at(i), "%s is listed twice", show(name))
		case first == nil:
			first = b
		case b.Tier != first.Tier && b.Tier != "" && first.Tier != "":
			r.fault(at(i), "%s is of tier %s, the first backend of tier %s: a pool is of one tier", show(name), b.Tier, first.Tier)
		case b.IsOutside() != first.IsOutside():
			r.fault(at(i), "%s and the first backend differ in outside: a pool is inside or outside", show(name))
		}
	}
}

// absent records a name that is not there, with the one that was probably meant. What is wrong as a whole holds no names.
func (r *rules) absent(p *path, what, name string, there []string) {
	if r.bad[p.text] || r.bad[what+"s"] {
		return
	}
	r.add(p, "there is no "+what+" "+show(name), nearest(name, there))
}

// models checks the ids that a pool serves.
func (r *rules) models(pool *Pool, p *path) {
	seen := map[string]int{}
	for i, m := range pool.Models {
		at := p.at(i)
		was, twice := seen[m.ID]
		switch {
		case m.ID == "":
			continue
		case twice:
			r.fault(at, "%s is listed twice, first as models[%d]", show(m.ID), was)
		case m.ID == "*" && m.ServedAs != "":
			r.fault(at, "\"*\" sends the client's own id: it takes no served_as")
		case m.ID == "*" && i < len(pool.Models)-1:
			r.fault(at, "\"*\" takes every id: it stands alone or last")
		case badModel(m.ID):
			r.fault(at, "must be a model id without spaces, and without * except \"*\" alone, not %s", show(m.ID))
		case badModel(m.ServedAs) || m.ServedAs == "*":
			r.fault(at.key("served_as"), "must be a model id without spaces or *, not %s", show(m.ServedAs))
		}
		seen[m.ID] = i
	}
}

// badModel reports whether a text cannot be the id of a model.
func badModel(id string) bool {
	return id != "*" && strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c == 0x7f || c == '*' })
}

// notSampling are request fields that Weir or the client decides, never a pool's sampling.
var notSampling = []string{
	"model", "messages", "prompt", "input", "documents", "query", "stream", "stream_options", "tools", "tool_choice", "functions",
	"function_call", "n", "best_of", "echo", "encoding_format",
}

// sampling checks what happens to sampling parameters.
func (r *rules) sampling(pool *Pool, p *path) {
	for _, name := range sorted(pool.Sampling) {
		param, at := pool.Sampling[name], p.key(name)
		set := 0
		for _, is := range []bool{param.Default != nil, param.Force != nil, param.Strip} {
			if is {
				set++
			}
		}
		switch {
		case slices.Contains(notSampling, name):
			r.fault(at, "is no sampling parameter: the client or Weir itself sets it")
		case set != 1 && !r.badBelow(at, "default", "force", "strip"):
			r.fault(at, "needs exactly one of default, force and strip: true")
		}
	}
}

// badBelow reports whether one of the keys under p has a fault already.
func (r *rules) badBelow(p *path, keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return r.bad[p.key(key).text] })
}

// route checks one route.
func (r *rules) route(route *Route, p *path) {
	r.limits(route.Limits, p.key("limits"))
	seen := map[string]int{}
	for i, step := range route.Steps {
		at := p.key("steps").at(i)
		r.limits(step.Limits, at.key("limits"))
		use := r.step(step, at)
		if use == "" {
			continue
		}
		if was, twice := seen[use]; twice {
			r.fault(at, "is the same as steps[%d]: a step is tried once", was)
		}
		seen[use] = i
		if name, _ := step.Split(); route.Boundary == "local" && r.outside(r.c.Pools[name]) {
			r.fault(at, "leaves the machines you own (pool %s is outside), which boundary: local forbids", show(name))
		}
	}
}

// step checks that a step leads somewhere, and returns it as POOL/MODEL; "" after a fault.
func (r *rules) step(s Step, at *path) string {
	name, model := s.Split()
	pool := r.c.Pools[name]
	switch {
	case s.Use == "":
		return ""
	case pool == nil:
		r.absent(at, "pool", name, sorted(r.c.Pools))
		return ""
	case strings.HasSuffix(s.Use, "/"):
		r.fault(at, "names no model after the /: write POOL, POOL/MODEL or POOL/*")
		return ""
	case len(pool.Models) == 0:
		return "" // told at the pool
	case model == "" && pool.Models[0].ID == "*":
		r.fault(at, "names no model, and pool %s takes any: write %s/MODEL, or %s/* for the client's own", show(name), name, name)
		return ""
	case model == "":
		model = pool.Models[0].ID
	case model == "*":
		if _, any := pool.Sent("*"); !any {
			r.warn(at, "sends the client's own model name, but pool %s serves only the ids it lists", show(name))
		}
	default:
		if _, ok := pool.Sent(model); !ok {
			r.unserved(at, name, model)
			return ""
		}
	}
	return name + "/" + model
}

// unserved records a model that its pool does not serve, with the one that was probably meant.
func (r *rules) unserved(at *path, name, model string) {
	var ids []string
	for _, m := range r.c.Pools[name].Models {
		ids = append(ids, m.ID)
	}
	near := nearest(model, ids)
	if near != "" {
		near = name + "/" + near
	}
	r.add(at, "pool "+show(name)+" serves no model "+show(model), near)
}

// outside reports whether any backend of the pool is outside.
func (r *rules) outside(pool *Pool) bool {
	return pool != nil && slices.ContainsFunc(pool.Names(), func(name string) bool {
		b := r.c.Backends[name]
		return b != nil && b.IsOutside()
	})
}

// alias checks where an alias leads: a route, or a step written POOL/MODEL.
func (r *rules) alias(name, target string, p *path) {
	switch {
	case target == "":
	case r.c.Routes[target] != nil:
	case strings.Contains(target, "/"):
		r.step(Step{Use: target}, p)
	case r.c.Pools[target] != nil:
		r.fault(p, "there is no route %s; to lead to the pool write %s/MODEL", show(target), target)
	default:
		r.absent(p, "route", target, sorted(r.c.Routes))
	}
	pool, model, _ := strings.Cut(name, "/")
	if served := r.c.Pools[pool]; served != nil && model != "" && !strings.HasSuffix(name, "*") && target != name {
		if _, ok := served.Sent(model); ok {
			r.warn(p, "hides model %s of pool %s from clients", show(model), show(pool))
		}
	}
}
