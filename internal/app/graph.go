package app

import (
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"weir/internal/backend"
	"weir/internal/config"
	"weir/internal/event"
	"weir/internal/llm"
	"weir/internal/llm/anthropic"
	"weir/internal/llm/openai"
	"weir/internal/llm/responses"
	"weir/internal/llm/tokens"
	"weir/internal/pool"
	"weir/internal/relay"
	"weir/internal/route"
	"weir/internal/store"
)

// dialects are the APIs that backends may speak.
var dialects = map[string]backend.Dialect{
	"openai": openai.Dialect{}, "anthropic": anthropic.Dialect{}, "responses": responses.Dialect{},
}

// counters are what some servers count tokens in, beside what they speak.
var counters = map[string][]backend.Dialect{"llamacpp": {backend.CountOnly(anthropic.Dialect{})}}

// graph is what one configuration builds.
type graph struct {
	backends map[string]*backend.Backend
	pools    map[string]*pool.Pool
	table    *route.Table
}

func (a *App) newGraph(ctx context.Context, hop string) (*graph, error) {
	g := &graph{backends: map[string]*backend.Backend{}, pools: map[string]*pool.Pool{}, table: route.New(a.cfg)}
	conns := map[string]int{}
	for _, p := range a.cfg.Pools {
		for _, name := range p.Names() {
			conns[name] += a.share(p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.cfg.Backends)) {
		b, err := a.newBackend(name, a.cfg.Backends[name], conns[name], hop)
		if err != nil {
			g.close()
			return nil, err
		}
		g.backends[name] = b
	}
	rates := a.knownRates(ctx)
	accounts := map[string]*pool.Account{}
	for name := range g.backends {
		accounts[name] = &pool.Account{}
	}
	for name, p := range a.cfg.Pools {
		var members []*backend.Backend
		var theirs []*pool.Account
		for _, b := range p.Names() {
			members, theirs = append(members, g.backends[b]), append(theirs, accounts[b])
		}
		tier := members[0].Tier
		g.pools[name] = pool.New(pool.Options{
			Name: name, Tier: tier, Backends: members, Window: p.Window,
			Slots: pool.NewSlots(a.share(p), p.Queue.Size), Rate: pool.NewRate(tier, rates[name]),
			Accounts: theirs, Emit: a.recorder.Emit, Hand: a.hands[name], Vendor: vendor(a.cfg, p), IDs: served(p), Merges: a.merges,
		})
	}
	a.differs()
	return g, nil
}

func (a *App) newBackend(name string, b *config.Backend, conns int, hop string) (*backend.Backend, error) {
	roots, err := authorities(a.cfg.Beside(b.CA))
	if err != nil {
		return nil, fmt.Errorf("backends.%s.ca: %w", name, err)
	}
	var secret func() (string, error)
	if !b.Key.IsZero() {
		secret = b.Key.Value
	}
	o := backend.Options{
		Name: name, URL: b.URL, Server: b.Server, Tier: b.Tier, Outside: b.IsOutside(), Dialect: dialects[b.Dialect], Also: counters[b.Server],
		Key: secret, Header: b.KeyHeader, Stream: b.Stream, Connect: b.Limits.Connect.D(), IdleConn: b.IdleConn.D(),
		ServedIn: b.ServedIn, Conns: conns, Roots: roots, Proxy: b.Proxy == "env", Dial: a.opts.Dial, Agent: "weir/" + a.opts.Version, Hop: hop,
		Target: llm.Target{
			Usage: b.Usage == "ask", Progress: b.Server == "llamacpp", Timings: b.Server == "llamacpp", NullContent: b.NullContent, Developer: b.Developer,
			MaxTokens: b.MaxTokens, Base64: b.Base64, Reasoning: member(b.Reasoning), SystemTurns: b.SystemTurns, Attribution: b.Attribution == "strip",
		},
	}
	if rest, ok := strings.CutPrefix(b.URL, simScheme); ok {
		o.URL, o.Dial = "http://"+rest, a.sims.net.DialContext
	}
	return backend.New(o)
}

// member returns the name of the member that takes thinking, empty for none.
func member(reasoning string) string {
	if reasoning == "drop" {
		return ""
	}
	return reasoning
}

func authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate", file)
	}
	return roots, nil
}

func (g *graph) relay(a *App) *relay.Graph {
	counter := tokens.New() // costs nothing before its first count
	return &relay.Graph{
		Table: g.table, Pools: g.pools, Ledger: ledger{a.book, a.prices, a.today}, Loops: a.loops, Generations: a.cfg.Attempts.Generations, CommitAfter: a.cfg.CommitAfter.D(),
		Tokens: func(c *llm.Conversation, model string) (int, error) { return counter.For(model).Count(c) },
	}
}

func (g *graph) close() {
	for _, b := range g.backends {
		b.Close()
	}
}

// names are the label values that metrics may have.
func names(c *config.Config) event.Names {
	n := event.Names{Routes: slices.Sorted(maps.Keys(c.Routes)), Pools: slices.Sorted(maps.Keys(c.Pools))}
	seen := map[string]bool{}
	for name, p := range c.Pools {
		for _, m := range p.Models {
			n.Routes = append(n.Routes, name+"/"+m.ID)
			if !seen[m.ID] {
				seen[m.ID] = true
				n.Models = append(n.Models, m.ID)
			}
		}
	}
	slices.Sort(n.Models)
	slices.Sort(n.Routes)
	return n
}

func prefixes(list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range list {
		if ip, err := netip.ParseAddr(s); err == nil {
			out = append(out, netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("trusted_proxies: %w", err)
		}
		out = append(out, p)
	}
	return out, nil
}

// knownRates reads the prefill rates of earlier runs. Without them the tiers' guesses serve.
func (a *App) knownRates(ctx context.Context) map[string]float64 {
	rates := map[string]float64{}
	list, err := a.store.Prefills(ctx)
	if err != nil {
		a.log.Warn("prefill rates cannot be read: guesses serve", "err", err)
	}
	for _, p := range list {
		rates[p.Pool] = p.Rate
	}
	return rates
}

// saveRates keeps prefill rates in the store, now and then and at the end.
func (a *App) saveRates(ctx context.Context) {
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-tick.C:
		}
		var list []store.Prefill
		for name, p := range a.graph.pools {
			if rate, changed := p.Rate.Unsaved(); changed {
				list = append(list, store.Prefill{Pool: name, Backend: p.Backends[0].Name, Rate: rate, Time: time.Now()})
			}
		}
		if len(list) == 0 {
			continue
		}
		if err := a.store.WritePrefills(context.WithoutCancel(ctx), list); err != nil {
			a.log.Warn("prefill rates were not saved", "err", err)
		}
	}
}

// listen binds both listeners.
func (a *App) listen() (err error) {
	if a.public = a.opts.Listener; a.public == nil {
		if a.public, err = net.Listen("tcp", a.cfg.Listen); err != nil {
			return listenError("listen", a.cfg.Listen, err)
		}
	}
	if a.private = a.opts.Admin; a.private == nil {
		if a.private, err = net.Listen("tcp", a.cfg.Admin); err != nil {
			return listenError("admin", a.cfg.Admin, err)
		}
	}
	if a.cfg.TLS != nil {
		a.cert, err = newCertificate(a.cfg.Beside(a.cfg.TLS.Cert), a.cfg.Beside(a.cfg.TLS.Key), a.log)
	}
	return err
}
