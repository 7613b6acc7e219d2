package event

import (
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func configured() Names {
	return Names{Routes: []string{"code"}, Pools: []string{"vendor-a", "vendor-b"}, Models: []string{"glm-5", "kimi-k3"}}
}

func TestMetricsOfARequest(t *testing.T) {
	m := NewMetrics("1.2.3")
	m.SetNames(configured())
	for _, e := range sampleEvents() {
		m.Observe(e)
	}
	m.Observe(Event{Name: Start})
	priced := sampleRecord()
	priced.Cost, priced.Reroute, priced.Attempts = 250_000_000, "", priced.Attempts[1:]
	again := priced.Attempts[0]
	again.Kind = "stale"
	priced.Attempts = []Attempt{again, priced.Attempts[0]}
	m.Observe(Event{Name: End, Record: priced})
	got := scrape(t, m)
	for _, want := range []string{
		`weir_requests_total{kind="",op="chat",pool="vendor-b",route="code",status="2xx"} 2`,
		`weir_requests_total{kind="unauthorized",op="chat",pool="",route="",status="4xx"} 1`,
		`weir_request_duration_seconds_count{route="code",status="2xx"} 2`,
		`weir_attempts_total{outcome="busy",pool="vendor-a"} 1`,
		`weir_attempts_total{outcome="ok",pool="vendor-b"} 2`,
		`weir_fallbacks_total{from="vendor-a",to="vendor-b"} 1`,
		`weir_retries_total{pool="vendor-b"} 1`,
		`weir_reroutes_total{reason="fallback"} 1`,
		`weir_skips_total{pool="other",reason="not_serving"} 1`,
		`weir_tokens_total{direction="in",model="kimi-k3",pool="vendor-b"} 2400`,
		`weir_tokens_total{direction="out",model="kimi-k3",pool="vendor-b"} 680`,
		`weir_cost_usd_total{model="kimi-k3",pool="vendor-b"} 0.25`,
		`weir_time_to_first_token_seconds_count{pool="vendor-b"} 2`,
		`weir_queue_wait_seconds_count{pool="vendor-b"} 3`,
		`weir_overhead_seconds_count 3`,
		`weir_requests_running -1`, // two starts, three ends in these samples
		`weir_build_info{go_version="`,
		`version="1.2.3"} 1`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s", want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

func TestAnUnknownPriceMakesNoSeries(t *testing.T) {
	m := NewMetrics("1")
	m.Observe(Event{Name: End, Record: sampleRecord()})
	if got := scrape(t, m); strings.Contains(got, "weir_cost_usd_total{") {
		t.Error("a cost of 0 is shown where the price is unknown")
	}
}

// F65, S14: clients cannot make series.
func TestAFloodOfNamesMakesNoSeries(t *testing.T) {
	m := NewMetrics("1")
	m.SetNames(configured())
	flood := func(n int) {
		for i := range n {
			r := sampleRecord()
			name := fmt.Sprint("model-", i)
			r.Alias, r.Route, r.Pool, r.Model, r.Kind, r.Op, r.Reroute, r.Status = name, name, name, name, name, name, name, i
			r.Attempts[0].Pool, r.Attempts[0].Kind, r.Attempts[1].Pool, r.Attempts[1].Kind = name, name, name, name
			m.Observe(Event{Name: End, Record: r})
			m.Observe(Event{Name: Skip, Pool: name, Reason: name})
		}
	}
	flood(1000)
	before := series(t, m)
	flood(100_000)
	if after := series(t, m); after != before || after > 3000 {
		t.Errorf("%d series after 10^5 names, %d before; want no more, and at most 3000", after, before)
	}
}

func TestNamesFollowAShift(t *testing.T) {
	m := NewMetrics("1")
	r := sampleRecord()
	m.Observe(Event{Name: End, Record: r})
	m.SetNames(configured())
	m.Observe(Event{Name: End, Record: r})
	got := scrape(t, m)
	for _, want := range []string{`pool="other",route="other",status="2xx"} 1`, `pool="vendor-b",route="code",status="2xx"} 1`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s", want)
		}
	}
}

func TestDropsAreExported(t *testing.T) {
	m := NewMetrics("1")
	r := New(Options{Readers: []Source{{Name: "store", Reader: &gather{}}}})
	m.WatchDrops(r)
	for range bufferSize + 7 {
		r.Emit(Event{Name: Health})
	}
	got := scrape(t, m)
	for _, want := range []string{`weir_events_dropped_total{reader="emit"} 7`, `weir_events_dropped_total{reader="store"} 0`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
}

func TestNamesAreGoodPrometheus(t *testing.T) {
	m := NewMetrics("1")
	for _, e := range sampleEvents() {
		m.Observe(e)
	}
	families, err := m.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "weir_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestOthersRegisterToo(t *testing.T) {
	m := NewMetrics("1")
	m.Registerer().MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_slots_in_use", Help: "x"}, func() float64 { return 3 }))
	if got := scrape(t, m); !strings.Contains(got, "weir_slots_in_use 3") {
		t.Error("a registered gauge is missing")
	}
}

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	b, err := io.ReadAll(w.Body)
	if err != nil || w.Code != 200 {
		t.Fatalf("scrape: %d, %v", w.Code, err)
	}
	return string(b)
}

func series(t *testing.T, m *Metrics) (n int) {
	for _, l := range strings.Split(scrape(t, m), "\n") {
		if strings.HasPrefix(l, "weir_") {
			n++
		}
	}
	return n
}

func BenchmarkObserveEnd(b *testing.B) {
	m := NewMetrics("1")
	m.SetNames(configured())
	r := sampleRecord()
	r.Attempts = r.Attempts[1:]
	e := Event{Name: End, Record: r, Time: time.Now()}
	b.ReportAllocs()
	for b.Loop() {
		m.Observe(e)
	}
}
