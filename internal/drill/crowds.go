package drill

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/sim"
)

// crowds are faults that many requests meet.
func crowds() []*fault {
	return []*fault{
		{id: "F45", name: "many wait for a server that comes back", here: true, play: herd},
		{id: "F46", name: "the last server fails every second call", play: half},
		{id: "F47", name: "200 requests in a second, and every call fails", do: always(sim.Behaviour{Status: 503}), status: []int{503}, heavy: true, play: storm},
	}
}

// The herd: so many clients, who ask again at once.
const herdSize = 8

// herd takes the first step's pool out, lets its servers get well, and has a crowd ask all the time: the pool must come
// back slowly and stay.
func herd(ctx context.Context, t *trial) {
	t.set(always(sim.Behaviour{Status: 500}))
	members := len(t.lane.steps[0].backends)
	for range 8 * members {
		t.send(ctx, t.request(false))
	}
	if !t.until(ctx, "the pool is taken out", func() bool { return len(t.health("ejected")) >= members }) {
		return
	}
	t.set(always(sim.Behaviour{Text: answerText, Gap: 20 * time.Millisecond}))
	crowd, disperse := context.WithCancel(ctx)
	var wrong, answered atomic.Int64
	var all sync.WaitGroup
	for range herdSize {
		all.Go(func() {
			for crowd.Err() == nil {
				v := t.send(crowd, t.request(false))
				switch {
				case crowd.Err() != nil:
				case v.whole():
					answered.Add(1)
				case !v.refused():
					wrong.Add(1)
				}
				time.Sleep(40 * time.Millisecond)
			}
		})
	}
	returned := t.returned(ctx)
	if !returned.IsZero() {
		time.Sleep(time.Until(returned.Add(1200 * time.Millisecond)))
	}
	disperse()
	all.Wait()
	t.judgeHerd(returned, int(answered.Load()), int(wrong.Load()))
}

// returned waits for the first member to come back: the penalty is 5 s and a fifth.
func (t *trial) returned(ctx context.Context) time.Time {
	for begun := time.Now(); ctx.Err() == nil && time.Since(begun) < 12*time.Second; time.Sleep(5 * time.Millisecond) {
		if list := t.health("returned"); len(list) > 0 {
			return time.Now()
		}
	}
	t.failf("the pool did not come back within 12 s")
	return time.Time{}
}

func (t *trial) judgeHerd(returned time.Time, answered, wrong int) {
	members, first, peak, running := len(t.lane.steps[0].backends), 0, 0, []time.Time{}
	for _, a := range t.calls(true) {
		if a.Arrived.Before(returned) || a.Arrived.After(returned.Add(time.Second)) {
			continue
		}
		first++
		n := 1
		for _, ended := range running {
			if ended.IsZero() || ended.After(a.Arrived) {
				n++
			}
		}
		peak, running = max(peak, n), append(running, a.Ended)
	}
	t.attempts = first
	t.saw = fmt.Sprintf("%d answered; %d at a time in the first second after the return", answered, peak)
	if peak > 2*members {
		t.failf("I3: %d calls at a time in the first second after the return, the slow start allows %d", peak, 2*members)
	}
	if n := len(t.health("ejected")); n > members {
		t.failf("the pool was taken out again: %d times for %d servers", n, members)
	}
	if wrong > 0 || answered == 0 {
		t.failf("%d clients were answered, %d got neither an answer nor a proper error", answered, wrong)
	}
}

// health returns the events of pools taken out or back.
func (t *trial) health(reason string) (list []fact) {
	facts, _ := t.lines.facts()
	for _, f := range facts {
		if f.Event == "health" && f.Reason == reason && f.Pool == t.lane.steps[0].pool {
			list = append(list, f)
		}
	}
	return list
}

// failing says which of eight calls fail: half of them, in an order without rhythm.
var failing = [8]bool{true, false, false, true, false, true, true, false}

// half asks the first step alone, of whose calls every second one fails: with one retry four of five are answered, and
// the last server there is must be asked all the same.
func half(ctx context.Context, t *trial) {
	const requests, least = 20, 14
	var n atomic.Int64
	t.set(func(a *sim.Attempt) sim.Behaviour {
		if failing[(n.Add(1)-1)%8] {
			return sim.Behaviour{Status: 503}
		}
		return well(a)
	})
	answered := 0
	begun := time.Now()
	for range requests {
		before := len(t.calls(true))
		v := t.ask(ctx, true)
		switch {
		case v.whole():
			answered++
		case !v.refused():
			t.failf("neither an answer nor a proper error: %s", v.saw())
		}
		if len(t.calls(true)) == before {
			t.failf("the last server was not asked: %s", v.saw())
		}
	}
	t.took, t.attempts = time.Since(begun), len(t.calls(false))
	t.saw = fmt.Sprintf("%d of %d answered", answered, requests)
	if answered < least {
		t.failf("%d of %d were answered, want %d", answered, requests, least)
	}
}

// storm sends 200 requests in a second to a route whose first servers fail: what reaches them is a tenth more at most,
// and the floor of three.
func storm(ctx context.Context, t *trial) {
	const requests, floor = 200, 3
	var all sync.WaitGroup
	var answered, wrong, given atomic.Int64
	begun := time.Now()
	for i := range requests {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Second / requests)))
		all.Go(func() {
			switch v := t.send(ctx, t.request(false)); {
			case v.whole():
				answered.Add(1)
			case !v.refused():
				wrong.Add(1)
			case v.code == "no_backend":
				given.Add(1)
			}
		})
	}
	all.Wait()
	if n := given.Load(); n > 0 && t.cfg != nil && t.lane.spare() != nil {
		t.failf("%d clients were told that no backend is there although another step was", n)
	}
	t.took, t.attempts = time.Since(begun), len(t.calls(true))
	t.saw = fmt.Sprintf("%d answered, %d refused", answered.Load(), requests-answered.Load()-wrong.Load())
	steps := 0
	for i := range t.lane.steps {
		if !t.lane.sound(&t.lane.steps[i]) {
			steps++
		}
	}
	if most := steps * (requests*11/10 + floor); t.attempts > most {
		t.failf("I3: %d calls for %d requests, at most %d are allowed", t.attempts, requests, most)
	}
	if wrong.Load() > 0 {
		t.failf("%d clients got neither an answer nor a proper error", wrong.Load())
	}
}
