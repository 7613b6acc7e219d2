package config

import (
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// rules are what must hold between the fields of a configuration, beyond the form of each.
type rules struct {
	*findings
	c *Config
}

// root makes the place of a top-level key.
func root(key string) *path { return (*path)(nil).key(key) }

// sorted returns the names of a map in order, so that every load finds the same things in the same order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// all applies every rule.
func (r *rules) all() {
	r.listeners()
	r.hosts()
	r.proxies()
	r.limits(r.c.Limits, root("limits"))
	r.traces()
	for _, name := range sorted(r.c.Backends) {
		r.backend(r.c.Backends[name], root("backends").key(name))
	}
	for _, name := range sorted(r.c.Pools) {
		r.pool(r.c.Pools[name], root("pools").key(name))
	}
	for _, name := range sorted(r.c.Routes) {
		r.route(r.c.Routes[name], root("routes").key(name))
	}
	for _, name := range sorted(r.c.Aliases) {
		r.alias(name, r.c.Aliases[name].Route, root("aliases").key(name))
	}
	r.money()
	r.loopGuard()
	r.unused()
}

// listeners checks both addresses, and what listening beyond loopback asks for.
func (r *rules) listeners() {
	listen, okListen := r.address(r.c.Listen, root("listen"))
	admin, okAdmin := r.address(r.c.Admin, root("admin"))
	if okListen && okAdmin && listen.meets(admin) {
		r.fault(root("admin"), "must not be the address of listen (%s): give it another port", r.c.Listen)
	}
	if okListen {
		r.beyond(listen, root("listen"))
	}
	if okAdmin {
		r.beyond(admin, root("admin"))
		if !admin.loopback() {
			r.warn(root("admin"), "the admin listener is reachable from other machines: its token and the metrics are all that protects it")
		}
	}
	if okListen && !listen.loopback() && r.c.TLS == nil {
		r.warn(root("listen"), "keys travel unencrypted to this address: set tls, or put a TLS proxy in front")
	}
}

// beyond refuses to listen beyond loopback without the two guards: accepted host names, and keys.
func (r *rules) beyond(a address, p *path) {
	if a.loopback() {
		return
	}
	if len(r.c.Hosts) == 0 {
		r.fault(p, "is reached from other machines, which needs hosts: name the Host names to accept, or \"*\" for any")
	}
	if r.c.Auth.Keys == "off" {
		r.fault(root("auth").key("keys"), "must be on: %s is reached from other machines", p)
	}
}

// address is one listening address. An empty host means every interface.
type address struct {
	host string
	port int
}

// address reads HOST:PORT.
func (r *rules) address(text string, p *path) (address, bool) {
	host, port, err := net.SplitHostPort(text)
	n, portErr := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil || portErr != nil:
		r.fault(p, "must be HOST:PORT such as 127.0.0.1:8484, not %s", show(text))
	case strings.ContainsAny(host, "/@ "):
		r.fault(p, "must be HOST:PORT without a scheme or path, not %s", show(text))
	default:
		return address{strings.ToLower(host), int(n)}, true
	}
	return address{}, false
}

// every reports whether the address is every interface.
func (a address) every() bool {
	ip, err := netip.ParseAddr(a.host)
	return a.host == "" || err == nil && ip.Unmap().IsUnspecified()
}

// loopback reports whether only this machine reaches the address.
func (a address) loopback() bool { return isLoopback(a.host) }

// meets reports whether two listeners would take the same port of the same interface.
func (a address) meets(b address) bool {
	if a.port != b.port || a.port == 0 {
		return false
	}
	return a.host == b.host || a.every() || b.every() || a.loopback() && b.loopback()
}

// isLoopback reports whether a host is a loopback name or address.
func isLoopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// hosts checks the accepted host names.
func (r *rules) hosts() {
	seen := map[string]bool{}
	for i, host := range r.c.Hosts {
		p := root("hosts").at(i)
		switch {
		case seen[strings.ToLower(host)]:
			r.fault(p, "%s is listed twice", show(host))
		case host == "*":
			if len(r.c.Hosts) > 1 {
				r.fault(p, "\"*\" accepts every name: it stands alone")
			}
		case strings.ContainsAny(host, "/*@, ") || strings.Contains(host, "://"):
			r.fault(p, "must be a host name such as weir.example.org, without scheme, port or path, not %s", show(host))
		case strings.Count(host, ":") == 1:
			r.fault(p, "must be a host name without a port, not %s", show(host))
		}
		seen[strings.ToLower(host)] = true
	}
}

// proxies checks the addresses whose forwarding headers are believed.
func (r *rules) proxies() {
	for i, text := range r.c.TrustedProxies {
		p := root("trusted_proxies").at(i)
		if _, err := netip.ParseAddr(text); err == nil {
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			r.fault(p, "must be an address or a range such as 10.0.0.0/8, not %s", show(text))
		case prefix.Bits() == 0:
			r.fault(p, "believes everyone: name the proxies' own addresses")
		}
	}
}

// limits checks that the limits of one block fit each other.
func (r *rules) limits(l Limits, p *path) {
	if l.Total == 0 {
		return
	}
	for _, part := range []struct {
		key   string
		value Duration
	}{{"connect", l.Connect}, {"first_content", l.FirstContent}, {"idle", l.Idle}} {
		if part.value >= l.Total {
			r.fault(p.key("total"), "must be longer than %s (%s)", part.key, part.value)
		}
	}
}

// traces checks where spans go.
func (r *rules) traces() {
	if r.c.Traces.URL == "" {
		return
	}
	u, err := url.Parse(r.c.Traces.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		r.fault(root("traces").key("url"), "must be a URL such as http://127.0.0.1:4318/v1/traces")
	case u.User != nil:
		r.fault(root("traces").key("url"), "must not hold a user or password")
	}
}

// unused warns about what nothing leads to. Beside faults it says nothing: a mistyped name explains it.
func (r *rules) unused() {
	if len(r.report.Faults) > 0 {
		return
	}
	used := map[string]bool{}
	for _, pool := range r.c.Pools {
		for _, name := range pool.Names() {
			used[name] = true
		}
	}
	for _, name := range sorted(r.c.Backends) {
		if !used[name] {
			r.warn(root("backends").key(name), "no pool uses this backend")
		}
	}
	led := map[string]bool{}
	for _, alias := range r.c.Aliases {
		led[alias.Route] = true
	}
	for _, name := range sorted(r.c.Routes) {
		if !led[name] {
			r.warn(root("routes").key(name), "no alias leads to this route, so no client can ask for it")
		}
	}
}
