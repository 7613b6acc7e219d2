package pool

import "testing"

func BenchmarkAcquire(b *testing.B) {
	p := newPool(4, 1)
	b.ReportAllocs()
	for b.Loop() {
		l, err := p.Acquire(b.Context(), Need{Model: "m"})
		if err != nil {
			b.Fatal(err)
		}
		l.Done(nil)
	}
}
