package store

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// BenchmarkWriteRequests measures the CPU time of the whole process per row, the SQLite work included: at most 6 µs.
func BenchmarkWriteRequests(b *testing.B) {
	for _, batch := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			s, err := Open(b.Context(), b.TempDir(), Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			rows := make([]Request, batch)
			start := time.Now()
			n := 0
			b.ReportAllocs()
			b.ResetTimer()
			before := cpu(b)
			for done := 0; done < b.N; done += batch {
				for i := range rows {
					rows[i] = sampleRequest(n, start.Add(time.Duration(n)*time.Millisecond))
					n++
				}
				if err := s.WriteRequests(b.Context(), rows); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/float64(n), "cpu-ns/row")
		})
	}
}

func cpu(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func sampleRequest(n int, at time.Time) Request {
	return Request{
		Time: at, Request: fmt.Sprintf("req_%016x", n), Op: "chat", Dialect: "openai", Alias: "coder", Route: "code", Tier: "cloud",
		Pool: "vendor-a", Backend: "vendor", Model: "glm-5", Served: "glm-5", Status: 200,
		Attempts: `[{"pool":"vendor-a","backend":"vendor","model":"glm-5","tier":"cloud","kind":null,"status":200,"at_ms":0.120,"queue_ms":0.000,"first_ms":312.000,"took_ms":2200.000,"sent":true}]`,
		Queue:    0, First: 312 * time.Millisecond, Total: 2200 * time.Millisecond, Overhead: 120 * time.Microsecond,
		TokensIn: 1200, TokensOut: 340, TokensCached: 800, TokensReasoning: -1, TokensWritten: 10, Cost: 12_300_000, Key: "laptop", KeyID: "a1B2c3D4",
		Session: "s-77", Version: "3", Bytes: 12345, TokensEst: 3000, Messages: 12, Tools: 20, Stream: true, MaxTokens: 4096,
	}
}

// BenchmarkOpen opens a file that is up to date: at most 5 ms.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		s, err := Open(b.Context(), dir, Options{KeepCorrupt: true})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		s.Close()
		b.StartTimer()
	}
}
