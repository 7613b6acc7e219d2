// Package route decides, without touching anything, where a request may go: alias to route, route to plan.
package route

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"weir/internal/config"
	"weir/internal/llm"
)

// Step is one pool and model to try, with all that is known when the graph is built.
type Step struct {
	Pool     string
	Tier     string
	Model    string // the id within the pool; empty where the client's own name is used
	Sent     string // the id that goes upstream
	Quoted   []byte // Sent as JSON
	Own      bool   // the client's own model name goes up
	Outside  bool
	Limits   config.Limits
	Sampling []llm.Sampling
}

// Name returns "pool/model" as events and headers write it.
func (s *Step) Name() string { return s.Pool + "/" + s.Model }

// Route is a named policy.
type Route struct {
	Name  string
	Local bool
	Keep  time.Duration // how long responses are kept for later requests; 0: not at all
	Steps []Step

	Priority int // of the alias, added to the key's
}

// Table resolves the names that clients ask for. It is read-only and safe for concurrent use.
type Table struct {
	exact    map[string]*Route // aliases and pool/model ids
	prefixes []prefix          // longest first
	open     map[string]Step   // pools that take any id, for pool/* ids
	ids      []ID              // pool/model ids
}

type prefix struct {
	text  string
	route *Route
}

// ID is a name that clients can ask for, and how it is listed.
type ID struct {
	Name    string
	OwnedBy string
	Local   bool // it can be served without leaving the machines you own
}

// New builds the table of a valid configuration.
func New(c *config.Config) *Table {
	t := &Table{exact: map[string]*Route{}, open: map[string]Step{}}
	for name, p := range c.Pools {
		t.pool(c, name, p)
	}
	routes := map[string]*Route{}
	for name, r := range c.Routes {
		routes[name] = newRoute(c, name, r)
	}
	for name, a := range c.Aliases {
		r := routes[a.Route]
		if r == nil {
			r = newRoute(c, a.Route, &config.Route{Steps: []config.Step{{Use: a.Route}}})
		}
		own := *r
		own.Priority = a.Priority
		t.alias(name, &own)
	}
	slices.SortFunc(t.ids, func(a, b ID) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(t.prefixes, func(a, b prefix) int {
		return cmp.Or(cmp.Compare(len(b.text), len(a.text)), cmp.Compare(a.text, b.text))
	})
	return t
}

func (t *Table) alias(name string, r *Route) {
	if text, ok := strings.CutSuffix(name, "*"); ok {
		t.prefixes = append(t.prefixes, prefix{text, r})
		return
	}
	if _, ok := t.exact[name]; ok { // an alias stands in front of the pool/model of the same name: it is listed once
		t.ids = slices.DeleteFunc(t.ids, func(id ID) bool { return id.Name == name })
	}
	t.exact[name] = r
	t.ids = append(t.ids, ID{Name: name, OwnedBy: "weir", Local: slices.ContainsFunc(r.Steps, func(s Step) bool { return !s.Outside })})
}

// pool adds an id for every model of the pool: each is a route of one step.
func (t *Table) pool(c *config.Config, name string, p *config.Pool) {
	for _, m := range p.Models {
		s := newStep(c, config.Step{Use: name + "/" + m.ID}, config.Limits{})
		if m.ID == "*" {
			t.open[name] = s
			continue
		}
		id := name + "/" + m.ID
		t.exact[id] = &Route{Name: id, Steps: []Step{s}}
		t.ids = append(t.ids, ID{Name: id, OwnedBy: s.Tier, Local: !s.Outside})
	}
}

func newRoute(c *config.Config, name string, r *config.Route) *Route {
	out := &Route{Name: name, Local: r.Boundary == "local"}
	if r.Responses != nil {
		out.Keep = r.Responses.Keep.D()
	}
	for _, s := range r.Steps {
		out.Steps = append(out.Steps, newStep(c, s, r.Limits))
	}
	return out
}

func newStep(c *config.Config, s config.Step, route config.Limits) Step {
	name, model := s.Split()
	p := c.Pools[name]
	if model == "" {
		model = p.Models[0].ID
	}
	b := c.Backends[p.Names()[0]]
	out := Step{
		Pool: name, Tier: b.Tier, Outside: b.IsOutside(), Sampling: sampling(p.Sampling),
		Limits: s.Limits.Or(route).Or(p.Limits).Or(b.Limits).Or(c.Limits),
	}
	if model == "*" {
		out.Own = true
		return out
	}
	out.Model = model
	out.Sent, _ = p.Sent(model)
	out.Quoted = llm.AppendQuoted(nil, out.Sent)
	return out
}

// Find returns the route that a client's model name stands for: an exact alias or pool/model id first, then the longest
// prefix, then "*".
func (t *Table) Find(model string) (*Route, bool) {
	if r, ok := t.exact[model]; ok {
		return r, true
	}
	if name, rest, ok := strings.Cut(model, "/"); ok && rest != "" {
		if s, ok := t.open[name]; ok {
			return &Route{Name: name + "/*", Steps: []Step{s.named(rest)}}, true
		}
	}
	for _, p := range t.prefixes {
		if strings.HasPrefix(model, p.text) {
			return p.route, true
		}
	}
	return nil, false
}

// named fixes the model of a step that takes the client's own name.
func (s Step) named(model string) Step {
	s.Own, s.Model, s.Sent, s.Quoted = false, model, model, llm.AppendQuoted(nil, model)
	return s
}

// IDs returns what clients can ask for by name, in the order of a list.
func (t *Table) IDs() []ID { return t.ids }

// Skip is a step that a plan leaves out.
type Skip struct {
	Step   Step
	Reason string // boundary, model
}

// Need is what a plan depends on beside the route.
type Need struct {
	Op    llm.Op
	Model string // as the client wrote it
	Local bool   // the request may not leave the machines you own
}

// Plan returns the steps left for a request, in order, and those left out with the reason. What does not generate text
// keeps the model of the route's first step, even where that step is left out: vectors and scores of two models cannot be
// compared, and sound and images are not the same.
func (r *Route) Plan(n Need) (steps []Step, skipped []Skip) {
	steps = make([]Step, 0, len(r.Steps))
	var first string
	for i, s := range r.Steps {
		if s.Own {
			s = s.named(n.Model)
		}
		if i == 0 {
			first = s.Model
		}
		switch {
		case s.Outside && (n.Local || r.Local):
			skipped = append(skipped, Skip{s, "boundary"})
		case !n.Op.Generates() && s.Model != first:
			skipped = append(skipped, Skip{s, "model"})
		default:
			steps = append(steps, s)
		}
	}
	return steps, skipped
}
