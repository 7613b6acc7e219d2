package app

import (
	"net"
	"net/url"
	"strings"
	"sync"

	"weir/internal/config"
	"weir/internal/sim"
)

const simScheme = "sim://"

// sims are the simulated backends of a configuration: in this process, on a network in memory.
type sims struct {
	net     *sim.Net
	servers []*sim.Server
	at      []net.Listener
}

// newSims makes a server for each sim:// backend; nil when there is none.
func newSims(c *config.Config) *sims {
	var s *sims
	for name, b := range c.Backends {
		if !strings.HasPrefix(b.URL, simScheme) {
			continue
		}
		if s == nil {
			s = &sims{net: sim.NewNet()}
		}
		u, err := url.Parse("http://" + strings.TrimPrefix(b.URL, simScheme))
		if err != nil {
			continue // checked by config
		}
		addr := u.Host
		if u.Port() == "" {
			addr = net.JoinHostPort(u.Hostname(), "80")
		}
		l, err := s.net.Listen(addr)
		if err != nil {
			continue // two backends of one sim share it
		}
		s.servers = append(s.servers, sim.New(sim.Options{Name: name, Simulated: true}))
		s.at = append(s.at, l)
	}
	return s
}

func (s *sims) start(tasks *sync.WaitGroup) {
	if s == nil {
		return
	}
	for i, server := range s.servers {
		tasks.Go(func() { _ = server.Serve(s.at[i]) })
	}
}

func (s *sims) close() {
	if s == nil {
		return
	}
	for _, server := range s.servers {
		_ = server.Close()
	}
}
