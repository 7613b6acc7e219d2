package pool

import (
	"testing"
	"time"

	"weir/internal/event"
	"weir/internal/llm"
)

// A path for audio that is not there says nothing of the model that others chat with, and what no probe could bring back
// is not taken out.
func TestMediaTakesNoModelOut(t *testing.T) {
	p := testPool(t, 4, 4, 1, func(e event.Event) { t.Errorf("told: %s %s", e.Name, e.Reason) })
	for _, kind := range []llm.Kind{llm.Gone, llm.Denied} {
		for _, op := range []llm.Op{llm.Audio, llm.Images} {
			l, err := p.Acquire(t.Context(), Need{Model: "m", Op: op})
			if err != nil {
				t.Fatal(err)
			}
			l.Done(failure(kind))
			if o, out := p.Outage("m", time.Now()); out {
				t.Errorf("%v of %v: %+v", kind, op, o)
			}
		}
	}
	if list := p.Due(time.Now().Add(time.Hour)); len(list) != 0 {
		t.Errorf("probes: %v", list)
	}
}
