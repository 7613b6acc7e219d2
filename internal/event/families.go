package event

import "github.com/prometheus/client_golang/prometheus"

// Buckets, in seconds: durations from 10 ms doubling to 11 min, for local models are slow; overhead from 10 µs.
var (
	durationBuckets = prometheus.ExponentialBuckets(0.01, 2, 17)
	overheadBuckets = prometheus.ExponentialBuckets(0.00001, 2.5, 14)
)

func newFamilies(reg *prometheus.Registry) families {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: durationBuckets}, labels)
	}
	f := families{
		requests:  counter("weir_requests_total", "Requests that have ended, refused ones too; kind is empty when all went well.", "route", "op", "pool", "status", "kind"),
		attempts:  counter("weir_attempts_total", "Calls of a pool, and refusals to call; outcome is ok or the kind of failure.", "pool", "outcome"),
		retries:   counter("weir_retries_total", "Attempts of the same step again.", "pool"),
		fallbacks: counter("weir_fallbacks_total", "Attempts of the next step.", "from", "to"),
		reroutes:  counter("weir_reroutes_total", "Requests answered from another pool or model than the first step's.", "reason"),
		skips:     counter("weir_skips_total", "Steps that were left out, or tried without success.", "pool", "reason"),
		tokens:    counter("weir_tokens_total", "Tokens, where they are known; cached are part of in, reasoning part of out.", "pool", "model", "direction"),
		cost:      counter("weir_cost_usd_total", "Cost in USD, where the price is known.", "pool", "model"),
		duration:  histogram("weir_request_duration_seconds", "Time from a request's first byte to its answer's last.", "route", "status"),
		queue:     histogram("weir_queue_wait_seconds", "Time an attempt waited for a slot.", "pool"),
		first:     histogram("weir_time_to_first_token_seconds", "Time from a request's start to its first content.", "pool"),
		overhead: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "weir_overhead_seconds", Buckets: overheadBuckets,
			Help: "Time of a request that was neither queueing nor waiting for a backend."}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_requests_running", Help: "Requests that have begun and not ended."}),
	}
	reg.MustRegister(f.requests, f.attempts, f.retries, f.fallbacks, f.reroutes, f.skips, f.tokens, f.cost, f.duration, f.queue, f.first,
		f.overhead, f.running)
	return f
}

// end resolves what the end of a request needs. Where nobody answered there is nothing of an answer.
func (f *families) end(k endKey) *endMetrics {
	e := &endMetrics{
		requests: f.requests.WithLabelValues(k.route, k.op, k.pool, k.status, k.kind),
		duration: f.duration.WithLabelValues(k.route, k.status),
	}
	if k.pool == "" {
		return e
	}
	e.first = f.first.WithLabelValues(k.pool)
	for i, direction := range [...]string{"in", "out", "cached", "reasoning"} {
		e.tokens[i] = f.tokens.WithLabelValues(k.pool, k.model, direction)
	}
	return e
}

func (f *families) attempt(k attemptKey) *attemptMetrics {
	return &attemptMetrics{f.attempts.WithLabelValues(k.pool, or(k.kind, "ok")), f.queue.WithLabelValues(k.pool)}
}
