package app

import (
	"context"
	"net"
	"net/url"
	"time"

	"weir/internal/backend"
	"weir/internal/discover"
)

// windowEvery is how often local servers are asked for their context windows: at start, and since they may be restarted
// with another one.
const windowEvery = 10 * time.Minute

// windowServers are those that tell their window on a safe route.
var windowServers = map[string]bool{"llamacpp": true, "vllm": true, "ollama": true, "lmstudio": true, "sglang": true}

// windows learns the context windows of pools whose configuration names none, from their local servers, until ctx ends.
// A server that does not answer is asked again soon.
func (a *App) windows(ctx context.Context) {
	for wait := time.Duration(0); ; {
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		wait = windowEvery
		for _, p := range a.graph.pools {
			if p.Window > 0 {
				continue
			}
			for _, b := range p.Backends {
				if a.asks(b) && !a.learnWindow(ctx, b, p.Name) {
					wait = 30 * time.Second
				}
			}
		}
	}
}

func (a *App) asks(b *backend.Backend) bool {
	return windowServers[b.Server] && !b.Outside && a.cfg.Backends[b.Name].Key.IsZero()
}

// learnWindow asks one server; false when it did not answer.
func (a *App) learnWindow(ctx context.Context, b *backend.Backend, name string) bool {
	u, err := url.Parse(b.URL)
	if err != nil || u.Scheme != "http" {
		return true // discovery speaks plain HTTP
	}
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), "80")
	}
	found, err := discover.Look(ctx, discover.Options{
		Look: []string{addr}, Ports: []discover.Port{}, Dial: a.opts.Dial, Env: func(string) string { return "" },
	})
	if err != nil || len(found.Servers) == 0 {
		return ctx.Err() != nil
	}
	p, cfg := a.graph.pools[name], a.cfg.Pools[name]
	least := 0
	for _, m := range found.Servers[0].Models {
		for _, own := range cfg.Models {
			sent, _ := cfg.Sent(own.ID)
			if m.Window > 0 && (sent == m.ID || own.ID == "*") && (least == 0 || m.Window < least) {
				least = m.Window
			}
		}
	}
	if least > 0 {
		p.LearnWindow(least)
		a.log.Debug("context window learnt", "pool", name, "backend", b.Name, "tokens", least)
	}
	return true
}
