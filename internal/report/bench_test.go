package report

import (
	"io"
	"runtime"
	"testing"
	"time"
)

// BenchmarkReport reads 100,000 requests and makes the page: at most 20 µs for each, and 2 KiB that is soon free again.
func BenchmarkReport(b *testing.B) {
	s := open(b)
	requests, facts := days(100_000)
	write(b, s, requests, facts)
	o := Options{Since: now.Add(-40 * time.Hour), Until: now, Location: place}
	b.ReportAllocs()
	for b.Loop() {
		r, err := New(b.Context(), s, o)
		if err != nil {
			b.Fatal(err)
		}
		if err := r.WriteHTML(io.Discard); err != nil {
			b.Fatal(err)
		}
		if r.Requests.Total != 100_000 {
			b.Fatal(r.Requests.Total)
		}
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/row")
}
