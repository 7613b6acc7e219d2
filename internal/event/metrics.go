package event

import (
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Names are the configured names that labels may have. Whatever else is asked for counts as "other", so that clients
// cannot make series.
type Names struct {
	Routes []string
	Pools  []string
	Models []string
}

const (
	other     = "other"
	maxValues = 64   // of a label whose values come from the code, such as kind
	maxSeries = 4096 // of each family, whatever the configuration
)

// Metrics is the observer that counts for Prometheus. It has a registry of its own; other packages register their
// collectors with it. All methods are safe for concurrent use.
type Metrics struct {
	reg *prometheus.Registry
	fam families

	names atomic.Pointer[names]
}

var _ Observer = (*Metrics)(nil)

// families are the metrics. Their label values come from the code or from Names.
type families struct {
	requests, attempts, retries, fallbacks, reroutes, skips, tokens, cost *prometheus.CounterVec
	duration, queue, first                                                *prometheus.HistogramVec
	overhead                                                              prometheus.Histogram
	running                                                               prometheus.Gauge
}

// names is one set of configured names with the children resolved for it.
type names struct {
	routes, pools, models map[string]bool
	kinds                 *closed // outlives the set

	ends     table[endKey, endMetrics]
	attempts table[attemptKey, attemptMetrics]
	counters table[pairKey, prometheus.Counter]
}

// NewMetrics makes the metrics of a Weir of that version.
func NewMetrics(version string) *Metrics {
	m := &Metrics{reg: prometheus.NewRegistry()}
	m.fam = newFamilies(m.reg)
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_build_info", Help: "Constant 1, labelled with the version."},
		[]string{"version", "go_version"})
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m.reg.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.names.Store(newNames(Names{}, &closed{}))
	return m
}

// SetNames replaces the configured names, at start and after each shift of the configuration. Series that exist stay.
func (m *Metrics) SetNames(n Names) { m.names.Store(newNames(n, m.names.Load().kinds)) }

// Registerer takes collectors of other packages, such as a pool's gauges.
func (m *Metrics) Registerer() prometheus.Registerer { return m.reg }

// Handler answers a scrape.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4, EnableOpenMetrics: true})
}

// WatchDrops exports the recorder's count of lost facts.
func (m *Metrics) WatchDrops(r *Recorder) { m.reg.MustRegister(drops{r}) }

// Observe counts one fact.
func (m *Metrics) Observe(e Event) {
	switch e.Name {
	case Start:
		m.fam.running.Inc()
	case End:
		m.fam.running.Dec()
		if e.Record != nil {
			m.observeEnd(e.Record)
		}
	case Skip:
		n := m.names.Load()
		n.counter(m.fam.skips, n.pool(e.Pool), n.kinds.value(e.Reason)).Inc()
	}
}

func (m *Metrics) observeEnd(r *Record) {
	n := m.names.Load()
	key := endKey{r.Route, r.Op, r.Pool, r.Model, r.Kind, class(r.Status)}
	end := n.ends.find(key)
	if end == nil { // new, or with names that are not configured: the table holds bounded names alone
		key = endKey{n.route(r.Route), n.kinds.value(r.Op), n.pool(r.Pool), n.model(r.Model), n.kinds.value(r.Kind), key.status}
		end = n.ends.get(key, func() *endMetrics { return m.fam.end(key) })
	}
	end.requests.Inc()
	end.duration.Observe(r.Total.Seconds())
	m.fam.overhead.Observe(r.Overhead.Seconds())
	for i := range r.Attempts {
		m.observeAttempt(n, r.Attempts, i)
	}
	if r.Reroute != "" {
		n.counter(m.fam.reroutes, n.kinds.value(r.Reroute), "").Inc()
	}
	if r.Pool == "" {
		return // nobody answered
	}
	if r.First >= 0 {
		end.first.Observe(r.First.Seconds())
	}
	for i, v := range [...]int64{r.Tokens.In, r.Tokens.Out, r.Tokens.Cached, r.Tokens.Reasoning} {
		if v > 0 {
			end.tokens[i].Add(float64(v))
		}
	}
	if r.Cost > 0 {
		n.counter(m.fam.cost, n.pool(r.Pool), n.model(r.Model)).Add(float64(r.Cost) / 1e9) // no series says 0 where the price is unknown
	}
}

func (m *Metrics) observeAttempt(n *names, all []Attempt, i int) {
	a := &all[i]
	key := attemptKey{a.Pool, a.Kind}
	at := n.attempts.find(key)
	if at == nil {
		key = attemptKey{n.pool(a.Pool), n.kinds.value(a.Kind)}
		at = n.attempts.get(key, func() *attemptMetrics { return m.fam.attempt(key) })
	}
	at.attempts.Inc()
	at.queue.Observe(a.Queue.Seconds())
	if i == 0 {
		return
	}
	last := &all[i-1]
	if last.Pool == a.Pool && last.Model == a.Model {
		n.counter(m.fam.retries, n.pool(a.Pool), "").Inc()
		return
	}
	n.counter(m.fam.fallbacks, n.pool(last.Pool), n.pool(a.Pool)).Inc()
}

type (
	endKey     struct{ route, op, pool, model, kind, status string }
	attemptKey struct{ pool, kind string }
	pairKey    struct {
		family *prometheus.CounterVec
		a, b   string
	}

	endMetrics struct {
		requests        prometheus.Counter
		duration, first prometheus.Observer
		tokens          [4]prometheus.Counter
	}
	attemptMetrics struct {
		attempts prometheus.Counter
		queue    prometheus.Observer
	}
)

// counter is the child of a family with one or two labels; b is empty where it has one.
func (n *names) counter(family *prometheus.CounterVec, a, b string) prometheus.Counter {
	return *n.counters.get(pairKey{family, a, b}, func() *prometheus.Counter {
		values := []string{a, b}
		if b == "" {
			values = values[:1]
		}
		c := family.WithLabelValues(values...)
		return &c
	})
}

// table maps keys to resolved children. Reading takes no lock; a new key copies the map, of which there are few.
type table[K comparable, V any] struct {
	now atomic.Pointer[map[K]*V]
	mu  sync.Mutex // held while a new map is made
}

func (t *table[K, V]) find(k K) *V {
	if m := t.now.Load(); m != nil {
		return (*m)[k]
	}
	return nil
}

func (t *table[K, V]) get(k K, resolve func() *V) *V {
	if v := t.find(k); v != nil {
		return v
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	next := map[K]*V{}
	if m := t.now.Load(); m != nil {
		if v := (*m)[k]; v != nil {
			return v
		}
		if len(*m) >= maxSeries {
			return resolve() // slow from here on, but right: its values are bounded ones
		}
		for k, v := range *m {
			next[k] = v
		}
	}
	v := resolve()
	next[k] = v
	t.now.Store(&next)
	return v
}

// closed is a set of label values that come from the code. It is bounded all the same.
type closed struct {
	now atomic.Pointer[map[string]bool]
	mu  sync.Mutex // held while a new map is made
}

func (c *closed) value(s string) string {
	if s == "" {
		return s
	}
	if m := c.now.Load(); m != nil && (*m)[s] {
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := map[string]bool{s: true}
	if m := c.now.Load(); m != nil {
		if (*m)[s] {
			return s
		}
		if len(*m) >= maxValues {
			return other
		}
		for k := range *m {
			next[k] = true
		}
	}
	c.now.Store(&next)
	return s
}

func newNames(n Names, kinds *closed) *names {
	set := func(values []string) map[string]bool {
		m := make(map[string]bool, len(values))
		for _, v := range values {
			m[v] = true
		}
		return m
	}
	return &names{routes: set(n.Routes), pools: set(n.Pools), models: set(n.Models), kinds: kinds}
}

func (n *names) route(s string) string { return known(n.routes, s) }
func (n *names) pool(s string) string  { return known(n.pools, s) }
func (n *names) model(s string) string { return known(n.models, s) }

func known(set map[string]bool, s string) string {
	if s == "" || set[s] {
		return s
	}
	return other
}

// class is the label of a status.
func class(status int) string {
	if status < 100 || status > 599 {
		return other
	}
	return [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}[status/100-1]
}

// drops collects what a recorder lost.
type drops struct{ r *Recorder }

// Describe sends nothing: the readers' names are known at the scrape.
func (drops) Describe(chan<- *prometheus.Desc) {}

// Collect reads the counts.
func (d drops) Collect(ch chan<- prometheus.Metric) {
	desc := prometheus.NewDesc("weir_events_dropped_total", "Events that a reader lost because it was slower than they came.", []string{"reader"}, nil)
	for name, n := range d.r.Dropped() {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), name)
	}
}
