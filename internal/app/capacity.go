package app

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"weir/internal/admin"
	"weir/internal/config"
	"weir/internal/pool"
	"weir/internal/store"
)

// capacity is what is known of pools beside their slots, and outlives a change of configuration: which turned out to be one,
// and which were taken out by hand.
type capacity struct {
	merges *pool.Merges
	hands  map[string]*pool.Hand // by pool
}

// knownCapacity reads it. A store that cannot be read costs no request anything: what is not known is learnt again.
func (a *App) knownCapacity(ctx context.Context) {
	a.capacity = capacity{hands: map[string]*pool.Hand{}}
	a.merges = pool.NewMerges(pool.MergeOptions{Emit: a.recorder.Emit, Save: a.saveMerge})
	list, err := a.store.Merges(ctx)
	if err != nil {
		a.log.Warn("pools that merged cannot be read: they are learnt again", "err", err)
	}
	var known []pool.Merge
	for _, m := range list {
		known = append(known, pool.Merge(m))
	}
	a.merges.Load(known)
	for name := range a.cfg.Pools {
		a.hands[name] = &pool.Hand{}
	}
	outs, err := a.store.HandOuts(ctx)
	if err != nil {
		a.log.Error("what was taken out by hand cannot be read: all pools are in", "err", err)
	}
	of := map[string][]pool.HandOut{}
	for _, o := range outs {
		of[o.Pool] = append(of[o.Pool], pool.HandOut{Backend: o.Backend, Since: o.Since, Until: o.Until, Why: o.Why, Actor: o.Actor})
	}
	for name, list := range of {
		if h := a.hands[name]; h != nil {
			h.Load(list)
		}
	}
}

// mergeWithin bounds how long a request may wait for what was learnt to be written: once for each merge.
const mergeWithin = 3 * time.Second

func (a *App) saveMerge(m pool.Merge) {
	ctx, cancel := context.WithTimeout(context.Background(), mergeWithin)
	defer cancel()
	if err := a.store.PutMerge(ctx, store.Merge(m)); err != nil {
		a.log.Error("that pools have merged was not saved: it is learnt again after a restart", "asked", m.Asked, "serving", m.Serving, "err", err)
	}
}

// share is this Weir's part of a pool's cap.
func (a *App) share(p *config.Pool) int {
	return a.cfg.Share(p.Cap, a.cfg.Backends[p.Names()[0]].IsOutside())
}

// vendor is the host that all backends of a pool share, where they are outside; else empty. What runs on one's own machine is
// known to its owner.
func vendor(c *config.Config, p *config.Pool) string {
	var host string
	for i, name := range p.Names() {
		b := c.Backends[name]
		u, err := url.Parse(b.URL)
		if err != nil || !b.IsOutside() || i > 0 && u.Hostname() != host {
			return ""
		}
		host = u.Hostname()
	}
	return host
}

// served lists every id that a pool stands for; nil where it takes any.
func served(p *config.Pool) (ids []string) {
	for _, m := range p.Models {
		if m.ID == "*" {
			return nil
		}
		ids = append(ids, m.ID)
		if m.ServedAs != "" {
			ids = append(ids, m.ServedAs)
		}
	}
	return ids
}

// differs warns of a configuration that tells two pools apart although the vendor was seen to serve them as one.
func (a *App) differs() {
	for _, m := range a.merges.List() {
		asked, serving := a.cfg.Pools[m.Asked], a.cfg.Pools[m.Serving]
		if m.State == pool.Undone || asked == nil || serving == nil || vendor(a.cfg, asked) == "" || vendor(a.cfg, asked) != vendor(a.cfg, serving) {
			continue
		}
		a.log.Warn(fmt.Sprintf("pools %s and %s are two in the config, but the vendor serves the first from the second: the cap of %s (%d) rules for both",
			m.Asked, m.Serving, m.Serving, serving.Cap), "state", m.State, "evidence", m.Evidence,
			"do", fmt.Sprintf("list the ids of %s under %s with served_as, or run `weir caps undo %s`", m.Asked, m.Serving, m.Asked))
	}
}

// expireEvery is how often it is looked whether something taken out by hand is due to come back.
const expireEvery = time.Second

// expire puts back what was taken out for a time, until ctx ends.
func (a *App) expire(ctx context.Context) {
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			ended := 0
			for _, p := range a.graph.pools {
				ended += len(p.Expire(now))
			}
			if ended == 0 {
				continue
			}
			if err := a.store.ExpireHandOuts(ctx, now); err != nil {
				a.log.Warn("that pools are back was not saved; they stay in", "err", err)
			}
		}
	}
}

// order makes orders by hand follow each other, so that memory and store agree, and lets one that was begun come to its end
// although who gave it has left.
func (a *App) order(ctx context.Context) (_ context.Context, done func()) {
	a.ordering.Lock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), orderWithin)
	return ctx, func() {
		cancel()
		a.ordering.Unlock()
	}
}

// orderWithin bounds how long an order may wait for the store.
const orderWithin = 5 * time.Second

// outPool carries out an order of the admin API.
func (a *App) outPool(ctx context.Context, o admin.HandOrder) error {
	out := pool.HandOut{Backend: o.Backend, Since: time.Now(), Until: o.Until, Why: o.Why, Actor: o.Actor}
	ctx, done := a.order(ctx)
	defer done()
	a.graph.pools[o.Pool].TakeOut(out)
	return a.store.PutHandOut(ctx, store.HandOut{Pool: o.Pool, Backend: o.Backend, Since: out.Since, Until: out.Until, Why: out.Why, Actor: out.Actor})
}

func (a *App) inPool(ctx context.Context, o admin.HandOrder) error {
	ctx, done := a.order(ctx)
	defer done()
	a.graph.pools[o.Pool].PutIn(o.Backend, o.Actor)
	return a.store.DeleteHandOut(ctx, o.Pool, o.Backend)
}

func (a *App) reroutes(ctx context.Context, since time.Time) ([]store.ReasonCount, error) {
	return a.store.RequestReasons(ctx, store.Query{Event: "reroute", Since: since})
}

// poolStates is what the admin API tells of the pools.
func (a *App) poolStates() []admin.PoolState {
	now := time.Now()
	var list []admin.PoolState
	for _, name := range slices.Sorted(maps.Keys(a.graph.pools)) {
		list = append(list, a.poolState(a.graph.pools[name], now))
	}
	return list
}

func (a *App) poolState(p *pool.Pool, now time.Time) admin.PoolState {
	u := p.Slots.Usage()
	s := admin.PoolState{Pool: a.poolRow(p, now), Vendor: p.Vendor, Live: u.Live, Own: u.Own, MergedInto: u.MergedInto, Gone: p.Health.Gone()}
	if o, out := p.Outage("", now); out {
		s.Why = o.Err.Msg
		if o.Err.RetryAfter > 0 {
			s.Until = now.Add(o.Err.RetryAfter)
		}
	}
	s.Output, _ = p.Rate.Output()
	s.Limits = admin.LimitsOf(p)
	byHand := map[string]*admin.Out{}
	for _, o := range p.Hand.List(now) {
		byHand[o.Backend] = &admin.Out{Since: o.Since, Until: o.Until, Why: o.Why, Actor: o.Actor}
	}
	s.Out = byHand[""]
	for _, b := range p.States(now) {
		s.Backends = append(s.Backends, admin.Backend{Name: b.Name, State: b.State, InFlight: b.Held, Since: b.Since, Until: b.Until, Kind: b.Kind,
			Strikes: b.Strikes, Why: b.Why, Out: byHand[b.Name]})
	}
	slices.SortFunc(s.Backends, func(a, b admin.Backend) int { return cmp.Compare(a.Name, b.Name) })
	return s
}
