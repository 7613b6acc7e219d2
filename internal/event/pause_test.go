package event

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestAReaderWithAPauseGetsFactsInLargerBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches []int
		r := New(Options{Readers: []Source{{Name: "x", Pause: time.Second, Reader: readerFunc(func(_ context.Context, b []Event) {
			batches = append(batches, len(b))
		})}}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { r.Run(ctx); close(done) }()
		for range 30 { // three seconds, ten a second
			r.Emit(Event{Name: Start})
			time.Sleep(100 * time.Millisecond)
		}
		for range 2 * readerSize / 3 { // half full: the pause ends early
			r.Emit(Event{Name: Start})
			if r.Dropped()["emit"] > 0 {
				t.Fatal("a fact was dropped")
			}
			synctest.Wait()
		}
		time.Sleep(150 * time.Millisecond)
		synctest.Wait()
		if n := len(batches); n == 0 || batches[0] < 10 || n > 8 {
			t.Errorf("batches of %v, want few and large ones", batches)
		}
		cancel()
		<-done
		sum := 0
		for _, n := range batches {
			sum += n
		}
		if want := 30 + 2*readerSize/3; sum != want {
			t.Errorf("%d facts were read, want %d", sum, want)
		}
	})
}

type readerFunc func(context.Context, []Event)

func (f readerFunc) Read(ctx context.Context, batch []Event) { f(ctx, batch) }
