package event

import (
	"testing"
	"time"
)

func benchEvent() Event {
	r := sampleRecord()
	r.Attempts = r.Attempts[1:]
	return Event{Time: time.Now(), Name: End, Request: "req_0123456789abcdef", Record: r}
}

// BenchmarkEmit is what a request pays without metrics.
func BenchmarkEmit(b *testing.B) {
	r := New(Options{})
	e := benchEvent()
	b.ReportAllocs()
	for b.Loop() {
		if len(r.buf) == bufferSize {
			r.buf = r.buf[:0]
		}
		r.Emit(e)
	}
}

// BenchmarkJSONLine is to cost at most 300 ns for a line of the size of hotpath.md, and no allocation.
func BenchmarkJSONLine(b *testing.B) {
	e := benchEvent()
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendJSON(buf[:0], &e)
	}
	b.SetBytes(int64(len(buf)))
}
