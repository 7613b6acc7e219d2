package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/spend"
)

// purse exports what is spent and what may be.
type purse struct{ app *App }

var (
	spentGauge   = prometheus.NewDesc("weir_spent_usd", "What was spent in a day or month of UTC, Weir's own calls included.", []string{"scope", "name", "period"}, nil)
	ceilingGauge = prometheus.NewDesc("weir_spend_ceiling_usd", "The most that may be spent in a day or month of UTC.", []string{"scope", "name", "period"}, nil)
)

// Describe names the metrics.
func (purse) Describe(ch chan<- *prometheus.Desc) {
	ch <- spentGauge
	ch <- ceilingGauge
}

// Collect reads them.
func (p purse) Collect(ch chan<- prometheus.Metric) {
	const dollar = 1e9
	for _, t := range p.app.book.All() {
		if t.Scope == spend.Key && t.Day.Ceiling <= 0 && t.Month.Ceiling <= 0 {
			continue // keys are many, and who has no ceiling needs no series
		}
		for period, s := range map[string]spend.Sum{spend.Day: t.Day, spend.Month: t.Month} {
			ch <- prometheus.MustNewConstMetric(spentGauge, prometheus.GaugeValue, float64(s.Spent)/dollar, t.Scope, t.Name, period)
			if s.Ceiling > 0 {
				ch <- prometheus.MustNewConstMetric(ceilingGauge, prometheus.GaugeValue, float64(s.Ceiling)/dollar, t.Scope, t.Name, period)
			}
		}
	}
}
