package main

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"weir/internal/config"
)

// want is an id that is sent to backends outside, and who is asked.
type want struct {
	id    string   // as it is sent
	names []string // ids that stand for it, where they differ
	hosts []string // of the backends
	pools []string
}

// wanted returns what the pools outside serve, in order. A pool that takes any id serves what steps and aliases name.
func wanted(c *config.Config) []*want {
	found := map[string]*want{}
	add := func(name, id string) {
		pool := c.Pools[name]
		sent, ok := pool.Sent(id)
		if !ok || id == "*" || id == "" {
			return
		}
		for _, b := range pool.Names() {
			if backend := c.Backends[b]; backend.IsOutside() {
				w := found[sent]
				if w == nil {
					w = &want{id: sent}
					found[sent] = w
				}
				u, _ := url.Parse(backend.URL) // checked with the config
				w.hosts = append(w.hosts, strings.ToLower(u.Hostname()))
				w.pools = append(w.pools, name)
				if id != sent {
					w.names = append(w.names, id)
				}
			}
		}
	}
	for name, pool := range c.Pools {
		for _, m := range pool.Models {
			add(name, m.ID)
		}
	}
	use := func(step string) {
		if pool, model, _ := strings.Cut(step, "/"); c.Pools[pool] != nil {
			add(pool, model)
		}
	}
	for _, r := range c.Routes {
		for _, s := range r.Steps {
			use(s.Use)
		}
	}
	for _, a := range c.Aliases {
		if c.Routes[a.Route] == nil {
			use(a.Route)
		}
	}
	list := make([]*want, 0, len(found))
	for _, id := range slices.Sorted(maps.Keys(found)) {
		w := found[id]
		for _, names := range []*[]string{&w.names, &w.hosts, &w.pools} {
			slices.Sort(*names)
			*names = slices.Compact(*names)
		}
		list = append(list, w)
	}
	return list
}

// pick returns the one offer for what is wanted. An error says why there is none: nobody offers it, or several do at
// different prices and which of them is asked cannot be told.
func (l *priceList) pick(w *want) (*offer, error) {
	var found []candidate
	for _, id := range append([]string{w.id}, w.names...) {
		if found = l.named(id); len(found) > 0 {
			break
		}
	}
	if len(found) == 0 {
		return nil, errUnnamed
	}
	var one *offer
	for _, host := range w.hosts {
		o, err := choose(found, host)
		switch {
		case err != nil:
			return nil, err
		case one != nil && !same(one.price, o.price):
			return nil, fmt.Errorf("the pools %s buy it at different prices (%s, %s): give each pool its own price", strings.Join(w.pools, ", "), one.name, o.name)
		case one == nil:
			one = o
		}
	}
	return one, nil
}

// errUnnamed says that nobody offers a model.
var errUnnamed = fmt.Errorf("the file names no price for it")

// candidate is an offer that may be meant by an id.
type candidate struct {
	*offer
	exact bool
}

// named returns the offers that an id may mean: those of its very name, or of its name behind the first or last slash.
func (l *priceList) named(id string) (found []candidate) {
	for i := range l.offers {
		o := &l.offers[i]
		_, tail, _ := strings.Cut(o.id, "/")
		switch {
		case o.id == id || o.name == id:
			found = append(found, candidate{o, true})
		case tail == id || strings.HasSuffix(o.id, "/"+id) && !strings.Contains(id, "/"):
			found = append(found, candidate{o, false})
		}
	}
	return found
}

// choose returns the offer of the vendor that a host belongs to; where that cannot be told the one of the very name, or
// any where all cost the same.
func choose(found []candidate, host string) (*offer, error) {
	best, score := found, 0
	for _, c := range found {
		switch s := sells(c.offer, host); {
		case s > score:
			best, score = []candidate{c}, s
		case s == score && score > 0:
			best = append(best, c)
		}
	}
	if i := slices.IndexFunc(best, func(c candidate) bool { return c.exact }); i >= 0 {
		best = slices.DeleteFunc(slices.Clone(best), func(c candidate) bool { return !c.exact })
	}
	for _, c := range best[1:] {
		if !same(best[0].price, c.price) {
			return nil, fmt.Errorf("%s, %s and others ask different prices, and which of them is asked cannot be told by %s: give the pool its own price", best[0].name, c.name, host)
		}
	}
	return best[0].offer, nil
}

// sells says how surely a host is the vendor's: 0 not at all. The last label that fits counts most: X.openai.azure.com
// is Azure's.
func sells(o *offer, host string) int {
	vendor := letters(o.vendor)
	labels := strings.Split(host, ".")
	switch {
	case o.host != "" && o.host == host:
		return 1000
	case len(vendor) < 2 || len(labels) < 2:
		return 0
	case letters(strings.TrimPrefix(host, "api.")) == vendor: // z.ai, x.ai
		return 500
	}
	for i := len(labels) - 2; i >= 0; i-- {
		label := letters(labels[i])
		if label == "api" || label == "www" {
			continue
		}
		if label == vendor || len(label) >= 4 && strings.HasPrefix(vendor, label) || len(vendor) >= 4 && strings.HasPrefix(label, vendor) {
			return i + 1
		}
	}
	return 0
}

// letters drops all but letters and digits: together_ai is togetherai.
func letters(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, s)
}

// same reports whether two prices are equal in all parts.
func same(a, b config.Price) bool {
	eq := func(x, y *config.USD) bool { return x == y || x != nil && y != nil && *x == *y }
	return eq(a.In, b.In) && eq(a.Out, b.Out) && eq(a.Cached, b.Cached) && eq(a.Written, b.Written)
}

// every returns a price for each id that the file names at one price alone, and how many ids have several.
func (l *priceList) every() (prices map[string]*offer, several int) {
	prices = map[string]*offer{}
	for i := range l.offers {
		o := &l.offers[i]
		was, twice := prices[o.id]
		switch {
		case strings.ContainsFunc(o.id, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '*' }) || o.id == "":
		case twice && was == nil:
		case twice && !same(was.price, o.price):
			prices[o.id] = nil
			several++
		default:
			prices[o.id] = o
		}
	}
	maps.DeleteFunc(prices, func(_ string, o *offer) bool { return o == nil })
	return prices, several
}
