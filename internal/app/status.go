package app

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/admin"
	"weir/internal/pool"
)

// status is what the admin API tells of the running Weir.
func (a *App) status() admin.Status {
	s := admin.Status{
		Version: a.opts.Version, Config: a.cfg.File, Started: a.started, Uptime: time.Since(a.started), Ready: a.server.Ready(),
		Listen: a.public.Addr().String(), Admin: a.private.Addr().String(), Running: a.server.Running(), Simulated: a.sims != nil,
		Dropped: a.recorder.Dropped(), Keys: a.keys.Len(time.Now()),
	}
	for _, p := range a.graph.pools {
		s.Pools = append(s.Pools, a.poolRow(p, time.Now()))
	}
	slices.SortFunc(s.Pools, func(a, b admin.Pool) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

func (a *App) poolRow(p *pool.Pool, now time.Time) admin.Pool {
	rate, measured := p.Rate.Value()
	u := p.Slots.Usage()
	row := admin.Pool{
		Name: p.Name, Tier: p.Tier, State: pool.StateIn, Cap: u.Cap, InFlight: u.Held, Waiting: u.Waiting, Queue: u.Size,
		RefusedFull: u.Full, RefusedLate: u.Late, Prefill: rate, Measured: measured,
	}
	if o, out := p.Outage("", now); out {
		row.State = o.Reason
	}
	for _, b := range p.Backends {
		row.Backends = append(row.Backends, b.Name)
	}
	return row
}

// gauges exports the pools' slots and queues.
type gauges struct{ app *App }

var poolGauges = map[string]*prometheus.Desc{
	"held":  prometheus.NewDesc("weir_slots_in_use", "Running calls of a pool.", []string{"pool", "tier"}, nil),
	"cap":   prometheus.NewDesc("weir_slots_limit", "The pool's cap.", []string{"pool", "tier"}, nil),
	"live":  prometheus.NewDesc("weir_slots_live", "How many calls of a pool may run now: its cap, or less after refusals of the vendor.", []string{"pool", "tier"}, nil),
	"queue": prometheus.NewDesc("weir_queue_depth", "Requests waiting for a slot.", []string{"pool", "tier"}, nil),
	"full":  prometheus.NewDesc("weir_queue_rejections_total", "Requests refused by a pool's queue.", []string{"pool", "tier", "reason"}, nil),
	"up":    prometheus.NewDesc("weir_pool_up", "1 while the pool takes calls, 0 while it is paused, refused or out by its breaker.", []string{"pool", "tier"}, nil),
	"rate":  prometheus.NewDesc("weir_prefill_tokens_per_second", "The pool's prefill rate, measured or guessed.", []string{"pool", "tier", "source"}, nil),
}

// Describe names the metrics.
func (gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range poolGauges {
		ch <- d
	}
}

// Collect reads them.
func (g gauges) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	for name, p := range g.app.graph.pools {
		u := p.Slots.Usage()
		gauge(poolGauges["held"], prometheus.GaugeValue, float64(u.Held), name, p.Tier)
		gauge(poolGauges["cap"], prometheus.GaugeValue, float64(u.Cap), name, p.Tier)
		gauge(poolGauges["live"], prometheus.GaugeValue, float64(u.Live), name, p.Tier)
		gauge(poolGauges["queue"], prometheus.GaugeValue, float64(u.Waiting), name, p.Tier)
		gauge(poolGauges["full"], prometheus.CounterValue, float64(u.Full), name, p.Tier, "full")
		gauge(poolGauges["full"], prometheus.CounterValue, float64(u.Late), name, p.Tier, "wait")
		up := 1.0
		if _, out := p.Outage("", time.Now()); out {
			up = 0
		}
		gauge(poolGauges["up"], prometheus.GaugeValue, up, name, p.Tier)
		rate, measured := p.Rate.Value()
		source := "guess"
		if measured {
			source = "measured"
		}
		gauge(poolGauges["rate"], prometheus.GaugeValue, rate, name, p.Tier, source)
	}
}
