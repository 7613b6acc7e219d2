package discover

import (
	"fmt"
	"strings"
)

// The tiers, spelled as in weir.yaml.
const (
	tierFloor = "floor"
	tierGPU   = "gpu"
	tierCloud = "cloud"
)

// The rows of a config before they become text. notes are comment lines above the row.
type (
	backendRow struct {
		notes                        []string
		name, url, server, tier, key string
		outside                      bool
	}
	poolRow struct {
		notes         []string
		name, backend string
		cap, window   int
		models        []string
	}
	routeRow struct {
		notes []string
		name  string
		steps []string
	}
	aliasRow struct {
		notes       []string
		name, route string
	}
)

// plan is a config as rows, and what is said about it in its head.
type plan struct {
	found, notes []string
	simulated    bool
	backends     []backendRow
	pools        []poolRow
	routes       []routeRow
	aliases      []aliasRow
	// hints stand as comments at the end of their section: what the user may add by hand.
	backendHints, routeHints, aliasHints []string
}

// Simulated tells whether nothing was found that could answer, so that Config gives simulated backends.
func (r Result) Simulated() bool {
	for _, s := range r.Servers {
		if s.usable() {
			return false
		}
	}
	return len(r.Clouds) == 0
}

// Try gives a model name a first chat request can use as it is, or "" when there is none: where only embedding models
// or only cloud keys were found, the user has to name a model of the vendor, as in openai/gpt-....
func (r Result) Try() string {
	if r.Simulated() {
		return "auto"
	}
	for _, s := range r.Servers {
		if s.chats() {
			return "auto"
		}
	}
	return ""
}

// plan decides what goes into the config.
func (r Result) plan() plan {
	p := plan{notes: r.Notes, simulated: r.Simulated()}
	for _, s := range r.Servers {
		p.found = append(p.found, fmt.Sprintf("%-21s %s", s.Addr, s.words()))
	}
	for _, c := range r.Clouds {
		p.found = append(p.found, fmt.Sprintf("%-21s key of cloud pool %s", c.Env, c.Name))
	}
	tiers := map[string][]string{} // tier → steps
	if p.simulated {
		p.simulate(tiers)
	}
	gpu := r.largest()
	names := map[string]int{}
	for i, s := range r.Servers {
		name := unique(names, s.Kind)
		tier := tierFloor
		if i == gpu {
			tier = tierGPU
		}
		p.addServer(s, name, tier, tiers)
	}
	for _, c := range r.Clouds {
		p.addCloud(c)
	}
	p.addTiers(tiers)
	return p
}

// unique names a backend after its kind, with a number from the second on.
func unique(names map[string]int, k Kind) string {
	name := string(k)
	if k == OpenAI {
		name = "local" // openai is the vendor
	}
	names[name]++
	if n := names[name]; n > 1 {
		return fmt.Sprintf("%s-%d", name, n)
	}
	return name
}

// largest gives the index of the server proposed for the GPU: of two or more that chat, the one whose model to use has
// the most parameters. A server alone is the floor, whose limits are the patient ones; so are all when none stands out.
func (r Result) largest() int {
	best, most, chatting, tied := -1, int64(0), 0, false
	for i, s := range r.Servers {
		if !s.chats() {
			continue
		}
		chatting++
		m := s.first(Chat)
		if m == nil || m.Params == 0 {
			continue
		}
		switch {
		case m.Params > most:
			best, most, tied = i, m.Params, false
		case m.Params == most:
			tied = true
		}
	}
	if chatting < 2 || tied {
		return -1
	}
	return best
}

// addServer adds a server's backend and pools, and its step to its tier.
func (p *plan) addServer(s Server, name, tier string, tiers map[string][]string) {
	b := backendRow{name: name, url: "http://" + s.Addr, server: string(s.Kind), tier: tier, outside: !s.Own}
	switch {
	case s.State == Locked:
		b.key = "${env:" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_KEY}"
		p.backendHints = append(p.backendHints, s.Addr+" ("+kindOf(s.Kind).title+") wants a key. Put it into this variable, take the # away, and add a pool:",
			b.text())
		return
	case !s.usable():
		p.notes = append(p.notes, s.Addr+" ("+kindOf(s.Kind).title+") has no model that can be used yet. Add one there, remove this file, and start again.")
		return
	}
	if b.outside {
		b.notes = append(b.notes, "outside: true keeps requests whose boundary is local away from it. If that machine is yours, say false.")
	}
	b.notes = append(b.notes, tierNote(s, tier))
	p.backends = append(p.backends, b)
	if s.chats() {
		pool := chatPool(s, name)
		p.pools = append(p.pools, pool)
		tiers[tier] = append(tiers[tier], pool.step())
	}
	for _, u := range sideUses {
		p.addSide(s, name, u)
	}
	for _, left := range s.Left {
		p.notes = append(p.notes, s.Addr+", left out: "+left)
	}
}

func tierNote(s Server, tier string) string {
	m := s.first(Chat)
	switch {
	case m == nil && s.State != Loading:
		return "Tier: no chat model, so the tier matters little."
	case tier == tierGPU:
		return fmt.Sprintf("Tier: a guess, because %s is the largest model found. Check it.", m.ID)
	}
	return "Tier: a guess, see above. Check it."
}

// chatPool is the pool of a server's chat models.
func chatPool(s Server, name string) poolRow {
	p := poolRow{name: name, backend: name}
	if s.State == Loading {
		p.cap, p.models = kindOf(s.Kind).cap, []string{"*"}
		p.notes = []string{"It was still loading its model when Weir looked, so its name, slots and window are not known.",
			"\"*\" takes any name, which this server ignores. Better: put the name in, here and in the routes."}
		return p
	}
	p.take(s, Chat)
	return p
}

// take fills in the models of one use, the cap and the window, and says where they come from.
func (p *poolRow) take(s Server, u Use) {
	unknown := 0
	for _, m := range s.Models {
		if m.Use != u {
			continue
		}
		p.models = append(p.models, m.ID)
		switch {
		case m.Window == 0:
			unknown++
		case p.window == 0 || m.Window < p.window:
			p.window = m.Window
		}
	}
	if p.cap = s.Slots; p.cap == 0 {
		p.cap = kindOf(s.Kind).cap
		p.notes = append(p.notes, "cap: a guess, the server does not say how many calls it runs at once.")
	} else {
		p.notes = append(p.notes, "cap: the server's own number of slots.")
	}
	p.notes = append(p.notes, windowNote(s.Kind, p.window, unknown, len(p.models)))
}

func windowNote(k Kind, known, unknown, models int) string {
	switch {
	case unknown == 0 && models == 1:
		return "window: what the server says, in tokens."
	case unknown == 0:
		return "window: the smallest of its models, in tokens."
	case known > 0:
		return fmt.Sprintf("window: the smallest known; %d of %d models do not say theirs until they are loaded. Check it.", unknown, models)
	case k == Ollama:
		return "window: unknown until a model is loaded. Set it to Ollama's num_ctx: Ollama cuts longer prompts without a word."
	}
	return "window: unknown. Set it, as in window: 8192, so that longer prompts go elsewhere or get a clear error."
}

func (p poolRow) step() string { return p.name + "/" + p.models[0] }

type sideUse struct {
	use        Use
	name, note string
}

// sideUses are the uses that get a pool and an alias of their own, beside chat.
var sideUses = []sideUse{
	{Embedding, "embed", "One model only: vectors of different models do not mix, so there is no fallback."},
	{Rerank, "rerank", "One model only."},
}

// addSide adds the pool of a server's models of one use, and the alias for the first such pool.
func (p *plan) addSide(s Server, name string, u sideUse) {
	if s.first(u.use) == nil {
		return
	}
	pool := poolRow{name: name + "-" + u.name, backend: name}
	pool.take(s, u.use)
	p.pools = append(p.pools, pool)
	for _, a := range p.aliases {
		if a.name == u.name {
			return
		}
	}
	p.routes = append(p.routes, routeRow{name: u.name, steps: []string{pool.step()}, notes: []string{u.note}})
	p.aliases = append(p.aliases, aliasRow{name: u.name, route: u.name})
}

// addCloud adds a vendor's backend and pool. No model is named: which ones an account has is only known by asking the
// vendor, and Weir asks no vendor at start.
func (p *plan) addCloud(c Cloud) {
	v := vendorOf(c)
	p.backends = append(p.backends, backendRow{name: c.Name, url: c.URL, server: string(v.server), tier: tierCloud, key: "${env:" + c.Env + "}",
		notes: []string{"The key stays in the environment: this file only names the variable. Calls cost money."}})
	p.pools = append(p.pools, poolRow{name: c.Name, backend: c.Name, cap: 4, models: []string{"*"},
		notes: []string{"\"*\" takes any model of the vendor: ask for " + c.Name + "/" + v.example + ".",
			"cap: a guess. To be exact, list the models you use, in one pool for each limit of your account."}})
	if v.prefix != "" {
		p.routes = append(p.routes, routeRow{name: c.Name, steps: []string{c.Name + "/*"}, notes: []string{"/* sends the model name that the client wrote."}})
		p.aliases = append(p.aliases, aliasRow{name: v.prefix, route: c.Name, notes: []string{"Clients that ask for one of the vendor's models by its own name get it."}})
	}
	if len(p.routeHints) == 0 {
		p.routeHints = []string{"A cloud step needs a model's name, and Weir guesses none. To get the alias cloud, put a model of your account",
			"where the dots are and take the # away, here and in aliases. As the last step of auto it is the last resort.",
			fmt.Sprintf("cloud: {steps: [%q]}", c.Name+"/...")}
		p.aliasHints = []string{"cloud: cloud"}
	}
}

// addTiers adds the routes and aliases over the tiers, in front of the others.
func (p *plan) addTiers(tiers map[string][]string) {
	var auto []string
	var routes []routeRow
	var aliases []aliasRow
	for _, tier := range []string{tierGPU, tierFloor, tierCloud} { // by cost: see the note of auto
		if steps := tiers[tier]; len(steps) > 0 {
			auto = append(auto, steps...)
			routes = append(routes, routeRow{name: tier, steps: steps})
			aliases = append(aliases, aliasRow{name: tier, route: tier})
		}
	}
	if len(auto) == 0 {
		return
	}
	p.routes = append(append([]routeRow{{name: "auto", steps: auto, notes: autoNotes(auto)}}, routes...), p.routes...)
	p.aliases = append(append([]aliasRow{{name: "auto", route: "auto", notes: []string{"A fixed alias: the order of its route decides."}}},
		aliases...), p.aliases...)
}

func autoNotes(steps []string) []string {
	notes := []string{
		"By cost: the GPU is paid for and the strongest of your own, then the floor, which is always there, then the cloud,",
		"which costs money per call. A step that is out, full or too slow hands over before the client has seen anything.",
	}
	if len(steps) == 1 {
		notes = append(notes, "Now there is one step only, so there is no fallback.")
	}
	return notes
}

// simulate adds three simulated backends, one per tier.
func (p *plan) simulate(tiers map[string][]string) {
	for _, tier := range []string{tierFloor, tierGPU, tierCloud} {
		pool := poolRow{name: tier, backend: tier, cap: 2, window: 8192, models: []string{"sim-" + tier}}
		p.backends = append(p.backends, backendRow{name: tier, url: "sim://" + tier, tier: tier})
		p.pools = append(p.pools, pool)
		tiers[tier] = []string{pool.step()}
	}
}
