package drill

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/sim"
)

// until looks every few milliseconds whether something has come about, for two seconds at most.
func (t *trial) until(ctx context.Context, what string, is func() bool) bool {
	for begun := time.Now(); ctx.Err() == nil && time.Since(begun) < 2*time.Second; time.Sleep(2 * time.Millisecond) {
		if is() {
			return true
		}
	}
	t.failf("%s: that did not come about within 2 s", what)
	return false
}

// calm sets the servers right, asks for a short answer, and checks that the first step gives it (I12).
func (t *trial) calm(ctx context.Context, why string) {
	t.set(well)
	v := t.send(ctx, ask{model: t.lane.model, stream: t.stream})
	t.views = append(t.views, v)
	if !v.whole() || !t.hit(v.server()) {
		t.failf("I12: %s, the first step does not answer a healthy request: %s", why, v.saw())
	}
}

// blameless repeats what is the client's fault more often than a breaker bears, and looks whether the backend was blamed.
func blameless(ctx context.Context, t *trial) {
	for range 6 {
		t.ask(ctx, false)
	}
	t.calm(ctx, "after seven requests that were the client's fault")
}

// paused checks that no call is made within the time that the server asked for.
func paused(ctx context.Context, t *trial) {
	before := len(t.calls(true))
	for range 5 {
		v := t.ask(ctx, false)
		if !v.whole() && !v.refused() {
			t.failf("within the pause: %s", v.saw())
		}
	}
	if n := len(t.calls(true)) - before; n > 0 {
		t.failf("I12: %d calls within the time that the server asked for", n)
	}
}

// denied checks that a refused account is not used again, and that somebody is told.
func denied(ctx context.Context, t *trial) {
	var v *view
	for range 3 { // each server has an account of its own
		if v = t.ask(ctx, false); v.status == 401 || v.status == 403 {
			t.failf("the client is told that its own key is wrong: %s", v.saw())
		}
	}
	if t.cfg == nil {
		return
	}
	for name, s := range t.sims {
		if n := len(s.Calls("")); t.hit(name) && n > 1 {
			t.failf("I12: the account of %s was used %d times although it was refused", name, n)
		}
	}
	t.until(ctx, "an alert that the account is refused", func() bool {
		facts, _ := t.lines.facts()
		return slices.ContainsFunc(facts, func(f fact) bool { return f.Event == "alert" && f.Reason == "denied" })
	})
}

// stopped checks how much of a line without an end was taken (I10).
func stopped(ctx context.Context, t *trial) {
	const most = 8 << 20
	t.until(ctx, "the servers come to rest", func() bool { return t.active() == 0 })
	for _, a := range t.calls(true) {
		if a.BytesSent > most {
			t.failf("I10: %d MiB of one line were taken", a.BytesSent>>20)
		}
	}
}

// unfollowed checks that nobody went where a redirect points (S26).
func unfollowed(_ context.Context, t *trial) {
	if t.ways == nil {
		return
	}
	t.ways.mu.Lock()
	defer t.ways.mu.Unlock()
	if t.ways.strange {
		t.failf("I11: the redirect was followed")
	}
}

// reuse lets the gateway keep a connection and closes it under the next request, again and again.
func reuse(ctx context.Context, t *trial) {
	t.set(well)
	t.answered(t.ask(ctx, false), true)
	t.set(t.fault.do)
	var v *view
	const rounds = 5
	for range rounds {
		v = t.ask(ctx, false)
		t.answered(v, true)
	}
	t.tell(v)
	if n := len(t.calls(false)); n > 1+2*rounds {
		t.failf("I3: %d calls for %d requests", n, 1+rounds)
	}
	t.late("the last answer", v.took, slack)
}

// endless reads an answer that goes on until a limit of the gateway ends it.
func endless(ctx context.Context, t *trial) {
	v := t.ask(ctx, false)
	t.tell(v)
	if n := aNonce.FindString(v.text); n != "" && t.hit(v.server()) {
		v.text = v.text[:min(len(v.text), len(answerText)-len("{nonce}")+len(n))]
	}
	t.judge(v)
}

// oversized sends a prompt of twice the largest window.
func oversized(ctx context.Context, t *trial) {
	largest := 0
	for i := range t.lane.steps {
		largest = max(largest, t.lane.steps[i].window)
	}
	a := t.request(false)
	a.pad = largest * 8
	if int64(a.pad) > int64(t.cfg.Server.MaxBody)/2 {
		t.na = "a prompt of twice the largest window is larger than server.max_body"
		return
	}
	v := t.send(ctx, a)
	t.views = append(t.views, v)
	t.tell(v)
	t.rejected(v)
	if n := len(t.calls(false)); n > 0 {
		t.failf("%d calls for a prompt that fits nowhere", n)
	}
}

// clients are the ways in which a client leaves.
func clients() []*fault {
	two := func(l *lane, _ bool) string {
		if l.steps[0].cap < 2 {
			return "the first step's pool takes one call at a time"
		}
		return ""
	}
	return []*fault{
		{id: "F40", name: "the client leaves while it waits for a slot", here: true, needs: mayWait, play: leavesQueue},
		{id: "F41", name: "the client leaves before the first word", do: always(sim.Behaviour{Hang: true}), play: leaves},
		{id: "F42", name: "the client leaves amid the answer", do: either(sim.Behaviour{Endless: true, Gap: 10 * time.Millisecond, Text: answerText}, sim.Behaviour{Hang: true}), play: leaves},
		{id: "F44", name: "a client leaves beside another one on the same server", needs: two, play: beside},
	}
}

func mayWait(l *lane, _ bool) string {
	if l.steps[0].queue == 0 {
		return "the first step's pool has no queue"
	}
	return ""
}

// leaves goes away once the server is at work, more often than a breaker bears. Nobody is to blame for it.
func leaves(ctx context.Context, t *trial) {
	var longest time.Duration
	for range 6 {
		before := len(t.calls(true))
		ctx, leave := context.WithCancel(ctx)
		var gone sync.WaitGroup
		gone.Go(func() { t.send(ctx, t.request(false)) })
		there := t.until(ctx, "the server is at work", func() bool {
			list := t.calls(true)
			return len(list) > before && (t.fault.id == "F41" || !list[len(list)-1].Stream || !list[len(list)-1].FirstContent.IsZero())
		})
		begun := time.Now()
		leave()
		gone.Wait()
		if !there || !t.until(context.WithoutCancel(ctx), "the call to the server ends", func() bool { return t.active() == 0 }) {
			return
		}
		longest = max(longest, time.Since(begun))
	}
	t.took, t.attempts = longest, len(t.calls(false))
	t.saw = fmt.Sprintf("left; the server's call ended within %d ms", longest.Milliseconds())
	t.late("the end of the server's call", longest, 100*time.Millisecond)
	t.calm(ctx, "after six clients had left")
}

// beside has two calls on one server, of which one is given up.
func beside(ctx context.Context, t *trial) {
	var n atomic.Int64
	t.set(func(*sim.Attempt) sim.Behaviour {
		if n.Add(1) == 1 {
			return sim.Behaviour{Endless: true, Gap: 10 * time.Millisecond}
		}
		return sim.Behaviour{Text: answerText, Gap: 40 * time.Millisecond}
	})
	first, leave := context.WithCancel(ctx)
	defer leave()
	var gone sync.WaitGroup
	defer gone.Wait()
	gone.Go(func() { t.send(first, ask{model: t.lane.direct(), stream: true}) })
	if !t.until(ctx, "the first call is at work", func() bool { return t.active() == 1 }) {
		return
	}
	gone.Go(func() {
		t.until(ctx, "both calls are at work", func() bool { return t.active() == 2 })
		leave()
	})
	v := t.ask(ctx, true)
	t.tell(v)
	t.answered(v, true)
	if n := t.calls(true)[0].Nonce; v.whole() && n == aNonce.FindString(v.text) {
		t.failf("I7: the answer is another client's")
	}
}

// fill takes all slots of the first step's pool until release.
func (t *trial) fill(ctx context.Context) (release func(), ok bool) {
	t.set(either(sim.Behaviour{Endless: true, Gap: 20 * time.Millisecond, Text: answerText}, sim.Behaviour{Hang: true}))
	held, cancel := context.WithCancel(ctx)
	var holders sync.WaitGroup
	var holding atomic.Int64
	for range t.lane.steps[0].cap {
		first := make(chan struct{})
		holders.Go(func() { t.send(held, ask{model: t.lane.direct(), stream: true, first: first}) })
		holders.Go(func() {
			select {
			case <-first:
				holding.Add(1)
			case <-held.Done():
			}
		})
	}
	release = sync.OnceFunc(func() {
		cancel()
		holders.Wait()
	})
	return release, t.until(ctx, "all slots are taken", func() bool { return holding.Load() == int64(t.lane.steps[0].cap) })
}

// waiting waits until so many requests wait for the first step's pool.
func (t *trial) waiting(ctx context.Context, n int) bool {
	return t.until(ctx, fmt.Sprintf("%d requests wait", n), func() bool {
		p, err := t.pool(ctx)
		return err == nil && p.Waiting == n
	})
}

// leavesQueue goes away while it waits. Its place must be free at once, and no server hear of it.
func leavesQueue(ctx context.Context, t *trial) {
	release, ok := t.fill(ctx)
	defer release()
	if !ok {
		return
	}
	queued, leave := context.WithCancel(ctx)
	var gone sync.WaitGroup
	gone.Go(func() { t.send(queued, t.request(true)) })
	ok = t.waiting(ctx, 1)
	begun := time.Now()
	leave()
	gone.Wait()
	if !ok || !t.waiting(ctx, 0) {
		return
	}
	t.took = time.Since(begun)
	release()
	t.attempts = len(t.calls(false)) - t.lane.steps[0].cap
	t.saw = fmt.Sprintf("left; the place was free within %d ms", t.took.Milliseconds())
	if t.attempts != 0 {
		t.failf("a server was called for a client who had left")
	}
	t.late("the place in the queue", t.took, 50*time.Millisecond)
}

// limits are those of the gateway itself.
func limits() []*fault {
	full := []string{"queue_full"}
	return []*fault{
		{id: "F49", name: "all slots are taken, and one becomes free", here: true, needs: mayWait, play: waits},
		{id: "F50", name: "all slots are taken, and the queue is full", here: true, status: []int{503}, codes: full, play: overfull},
		{id: "F51", name: "all slots stay taken, for longer than anyone waits", here: true, needs: mayWait, status: []int{503}, codes: full, play: waitsInVain},
		{id: "F53", name: "a fault inside the gateway before an answer", way: panics, here: true, status: []int{500}, codes: []string{"internal_error"}, play: panicked},
		{id: "F53", name: "a fault inside the gateway amid an answer", way: panicky, here: true, status: []int{500}, codes: []string{"internal_error"}, play: panicked,
			do: either(sim.Behaviour{Text: answerText, Gap: 30 * time.Millisecond}, sim.Behaviour{Text: answerText, Slice: 60, SliceGap: 5 * time.Millisecond})},
	}
}

// waits is answered once a slot is free.
func waits(ctx context.Context, t *trial) {
	release, ok := t.fill(ctx)
	defer release()
	if !ok {
		return
	}
	t.set(well)
	const held = 100 * time.Millisecond
	var freed sync.WaitGroup
	freed.Go(func() {
		if t.waiting(ctx, 1) {
			time.Sleep(held)
		}
		release()
	})
	v := t.ask(ctx, false)
	freed.Wait()
	t.tell(v)
	t.attempts -= t.lane.steps[0].cap
	t.answered(v, true)
	if v.took < held {
		t.failf("I1: the answer came after %v although all slots were taken", v.took)
	}
}

// overfull goes to another step at once, or is refused at once.
func overfull(ctx context.Context, t *trial) {
	release, ok := t.fill(ctx)
	defer release()
	if !ok {
		return
	}
	queued, leave := context.WithCancel(ctx)
	var gone sync.WaitGroup
	defer gone.Wait()
	defer leave()
	n := t.lane.steps[0].queue
	for range n {
		gone.Go(func() { t.send(queued, t.request(true)) })
	}
	if !t.waiting(ctx, n) {
		return
	}
	v := t.ask(ctx, false)
	t.tell(v)
	t.attempts -= t.lane.steps[0].cap
	t.other(v)
	t.late("the answer", v.took, 20*time.Millisecond+slack/4)
}

// waitsInVain goes on to another step, or is refused, at the limit of waiting.
func waitsInVain(ctx context.Context, t *trial) {
	release, ok := t.fill(ctx)
	defer release()
	if !ok {
		return
	}
	v := t.ask(ctx, false)
	t.tell(v)
	t.attempts -= t.lane.steps[0].cap
	t.other(v)
	wait := t.lane.steps[0].limits.Wait.D()
	t.late("the answer", v.took, wait+50*time.Millisecond+slack/4)
	if v.took < wait-20*time.Millisecond {
		t.failf("I4: it waited %v, the limit is %v", v.took, wait)
	}
}

// panicked has a fault inside the gateway: one request is lost with a proper error, everything else goes on.
func panicked(ctx context.Context, t *trial) {
	v := t.ask(ctx, false)
	t.tell(v)
	if t.stream && t.fault.way == panicky {
		t.cutOff(v)
	} else {
		t.rejected(v)
	}
	t.ways.off.Store(true)
	t.calm(ctx, "after a fault inside the gateway")
}
