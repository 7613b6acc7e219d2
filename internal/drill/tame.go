package drill

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weir/internal/config"
	"weir/internal/sim"
)

// How much smaller everything is in a drill than in the configuration.
const (
	slower    = 30 // by how much limits are divided
	least     = 400 * time.Millisecond
	most      = time.Second
	whole     = 3 * time.Second // the total limit
	mostSlots = 4
	mostQueue = 8
	patience  = 10 * time.Second // commit_after: errors keep their status
)

// canary stands in for every key: it must be seen nowhere but by the simulated servers.
const canary = "sk-drill-7c1d5e0f9a3b"

// domain is where the simulated servers are, on a network in memory.
const domain = ".drill"

// tame returns a copy of a configuration that touches nothing outside: every backend is a simulated server, keys,
// certificates and addresses are gone, limits are small.
func tame(c *config.Config, folder string) (*config.Config, error) {
	file := filepath.Join(folder, "key")
	if err := os.WriteFile(file, []byte(canary), 0o600); err != nil {
		return nil, fmt.Errorf("a key for the drill: %w", err)
	}
	secret, err := config.NewSecret("${file:"+file+"}", folder)
	if err != nil {
		return nil, err
	}
	t := *c
	t.File, t.Data, t.TLS, t.TrustedProxies, t.Hosts = "", folder, nil, nil, nil
	t.Listen, t.Admin, t.Auth.Keys, t.Server.MaxPerAddress = "127.0.0.1:8484", "127.0.0.1:8485", "off", 0
	t.Traces.URL, t.CommitAfter, t.Drain = "", config.Duration(patience), config.Duration(time.Second)
	t.Spend, t.LoopGuard, t.CapShare = config.Ceiling{}, config.LoopGuard{}, "" // what they stop is no fault
	t.Limits = scaled(c.Limits)
	t.Backends, t.Pools, t.Routes = map[string]*config.Backend{}, map[string]*config.Pool{}, map[string]*config.Route{}
	for name, b := range c.Backends {
		b := *b
		b.URL, b.CA, b.Proxy, b.Limits = "http://"+name+domain, "", "none", scaled(b.Limits)
		b.Key = secret // everywhere: what shows it is found out, and servers with a key are not asked for their windows amid a fault
		t.Backends[name] = &b
	}
	for name, p := range c.Pools {
		p := *p
		p.Cap, p.Queue.Size, p.Limits = min(p.Cap, mostSlots), min(p.Queue.Size, mostQueue), scaled(p.Limits)
		p.Spend = config.Ceiling{}
		t.Pools[name] = &p
	}
	for name, r := range c.Routes {
		r := *r
		r.Limits, r.Steps = scaled(r.Limits), slices.Clone(r.Steps)
		for i := range r.Steps {
			r.Steps[i].Limits = scaled(r.Steps[i].Limits)
		}
		t.Routes[name] = &r
	}
	return &t, nil
}

// scaled returns limits divided, and kept where a busy machine still keeps them and nobody waits long.
func scaled(l config.Limits) config.Limits {
	for _, d := range []*config.Duration{&l.Connect, &l.FirstContent, &l.Idle, &l.Answer, &l.Wait} {
		if *d > 0 {
			*d = config.Duration(min(max(d.D()/slower, least), most))
		}
	}
	if l.Total > 0 {
		l.Total = config.Duration(whole)
	}
	return l
}

// notes say what the drill changed.
func notes(c *config.Config) []string {
	list := []string{
		fmt.Sprintf("limits are those of the file divided by %d, none under %v or over %v; total is %v", slower, least, most, whole),
		fmt.Sprintf("pools have at most %d slots and a queue of %d; commit_after is %v; keys, TLS, addresses, ceilings, the loop guard and traces are left out", mostSlots, mostQueue, patience),
		"every backend is a simulated server with its models; no model and nothing outside this process was called",
	}
	for _, name := range slices.Sorted(maps.Keys(c.Backends)) {
		if s := c.Backends[name].Server; s != "" && flavour(s) == sim.OpenAI && s != "openai" {
			list = append(list, fmt.Sprintf("backend %s: there is no simulated %s, so it answers like OpenAI's API", name, s))
		}
	}
	return list
}

// flavour is the simulated server that is nearest to a kind of server.
func flavour(server string) sim.Flavour {
	switch f := sim.Flavour(server); f {
	case sim.LlamaCPP, sim.Ollama, sim.VLLM, sim.SGLang, sim.LMStudio:
		return f
	}
	return sim.OpenAI
}

// lane is one alias and the steps behind it.
type lane struct {
	alias string // as the configuration has it
	model string // what the client asks for
	route string
	steps []step
	group map[string]bool // the backends that fail: those of the first step, and all that stand together with them
}

// step is one step of a lane.
type step struct {
	pool, model, sent string
	backends          []string
	server            string
	limits            config.Limits
	window            int
	cap, queue        int
}

func (s *step) name() string { return s.pool + "/" + s.model }

// sound reports whether a step is untouched when the lane's group fails.
func (l *lane) sound(s *step) bool {
	return !slices.ContainsFunc(s.backends, func(b string) bool { return l.group[b] })
}

// spare returns the first step that is untouched when the lane's group fails, nil when there is none.
func (l *lane) spare() *step {
	for i := range l.steps {
		if l.sound(&l.steps[i]) {
			return &l.steps[i]
		}
	}
	return nil
}

// direct is the name under which the first step alone is asked for.
func (l *lane) direct() string {
	if len(l.steps) == 1 {
		return l.model
	}
	return l.steps[0].name()
}

// lanesOf returns the lanes to try: the aliases that are named, else one for each different route.
func lanesOf(c *config.Config, only []string) ([]*lane, error) {
	var lanes []*lane
	for _, name := range only {
		a, ok := c.Aliases[name]
		if !ok {
			return nil, fmt.Errorf("there is no alias %q; the configuration has %s", name, strings.Join(slices.Sorted(maps.Keys(c.Aliases)), ", "))
		}
		lanes = append(lanes, newLane(c, name, a.Route))
	}
	if len(only) > 0 {
		return lanes, nil
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(c.Aliases)) {
		if to := c.Aliases[name].Route; !seen[to] {
			seen[to] = true
			lanes = append(lanes, newLane(c, name, to))
		}
	}
	if len(lanes) == 0 { // every pool and model is a route of one step
		for _, name := range slices.Sorted(maps.Keys(c.Pools)) {
			id := name + "/" + strings.ReplaceAll(c.Pools[name].Models[0].ID, "*", "drill")
			lanes = append(lanes, newLane(c, id, id))
		}
	}
	lanes = slices.DeleteFunc(lanes, func(l *lane) bool { return len(l.steps) == 0 })
	if len(lanes) == 0 {
		return nil, errNoRoute
	}
	return lanes, nil
}

// newLane finds the steps behind an alias. A prefix is asked for by a name that begins so.
func newLane(c *config.Config, alias, to string) *lane {
	l := &lane{alias: alias, model: strings.Replace(alias, "*", "drill", 1), route: to, group: map[string]bool{}}
	r := c.Routes[to]
	if r == nil {
		r = &config.Route{Steps: []config.Step{{Use: to}}}
	}
	for _, s := range r.Steps {
		pool, model := s.Split()
		p := c.Pools[pool]
		if model == "" {
			model = p.Models[0].ID
		}
		if model == "*" {
			model = l.model
		}
		b := c.Backends[p.Names()[0]]
		if r.Boundary == "local" && b.IsOutside() {
			continue
		}
		sent, _ := p.Sent(model)
		l.steps = append(l.steps, step{
			pool: pool, model: model, sent: sent, backends: p.Names(), server: b.Server, window: p.Window, cap: p.Cap, queue: p.Queue.Size,
			limits: s.Limits.Or(r.Limits).Or(p.Limits).Or(b.Limits).Or(c.Limits),
		})
	}
	l.gather()
	return l
}

// gather finds the backends that fail together: those of the first step, and those of every step that shares one.
func (l *lane) gather() {
	if len(l.steps) == 0 {
		return
	}
	for _, b := range l.steps[0].backends {
		l.group[b] = true
	}
	for grown := true; grown; {
		grown = false
		for i := range l.steps {
			if l.sound(&l.steps[i]) {
				continue
			}
			for _, b := range l.steps[i].backends {
				grown = grown || !l.group[b]
				l.group[b] = true
			}
		}
	}
}
