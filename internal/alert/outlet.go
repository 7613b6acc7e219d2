package alert

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// How a sink is served.
const (
	perMinute = 20 // messages; what is beyond them is summed up
	mostItems = 1000
	firstWait = time.Second
	mostWait  = 5 * time.Minute
	mostAsked = time.Hour // of a Retry-After
	giveUp    = 24 * time.Hour
	testFor   = 8 * time.Second
)

// What becomes of a message, in the label of a metric.
const (
	outcomeOK      = "ok"
	outcomeRetry   = "retry"   // it is tried again
	outcomeRefused = "refused" // the sink does not want it
	outcomeDropped = "dropped" // too many wait
	outcomeGaveUp  = "gave_up" // after a day
)

// outlet delivers to one sink from one goroutine.
type outlet struct {
	name   string
	target atomic.Pointer[Target]
	desk   *Desk
	wake   chan struct{}
	gone   chan struct{} // closed when the sink is not configured any more

	mu    sync.Mutex // guards the field below
	items []*item    // what was not delivered, the oldest first

	// Of the goroutine alone:
	until  time.Time // after a failure nothing is sent before this
	fails  int       // in a row
	minute time.Time // when the minute began in which sent was counted
	sent   int
	over   bool      // more came than a minute takes
	renew  time.Time // when what fires is sent again
	wrong  string    // what the log was told last
}

// item is an alert on its way. Its fields are the goroutine's once it is taken up.
type item struct {
	row   int64
	alert Alert
	tries int
	next  time.Time
}

// wants reports whether the sink gets an alert.
func (o *outlet) wants(a *Alert) bool { return rank(a.Severity) >= rank(o.target.Load().Least) }

func (o *outlet) sink() Sink { return o.target.Load().Sink }

func (o *outlet) isGone() bool {
	select {
	case <-o.gone:
		return true
	default:
		return false
	}
}

// forget drops what was to be delivered.
func (o *outlet) forget() {
	o.mu.Lock()
	items := o.items
	o.items = nil
	o.mu.Unlock()
	for _, it := range items {
		o.desk.keep(context.Background(), o.delivery(it), true)
	}
}

// put takes an alert. It never blocks: beyond the bound the oldest that waits is dropped.
func (o *outlet) put(it *item) {
	o.mu.Lock()
	o.items = append(o.items, it)
	dropped := len(o.items) > mostItems
	if dropped {
		o.items = o.items[1:]
	}
	o.mu.Unlock()
	if dropped {
		o.desk.o.Count(o.name, outcomeDropped)
	}
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run delivers until ctx ends.
func (o *outlet) run(ctx context.Context) {
	for ctx.Err() == nil && !o.isGone() {
		now, every := time.Now(), o.sink().Habits().Renew
		batch, sum, wait := o.pick(now)
		switch {
		case len(batch) > 0:
			o.deliver(ctx, batch, sum)
			continue
		case every > 0 && !now.Before(o.renew):
			o.renew = now.Add(every)
			o.renewAll(ctx)
			continue
		case every > 0:
			wait = min(wait, o.renew.Sub(now))
		}
		t := time.NewTimer(max(wait, time.Millisecond))
		select {
		case <-ctx.Done():
		case <-o.gone:
		case <-o.wake:
		case <-t.C:
		}
		t.Stop()
	}
}

// pick returns what is to be sent now, and whether as a sum; where that is nothing, how long there is nothing to do.
func (o *outlet) pick(now time.Time) (batch []*item, sum bool, wait time.Duration) {
	const idle = time.Hour
	o.expire(now)
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Before(o.until) {
		return nil, false, o.until.Sub(now)
	}
	ready, wait := o.ready(now, idle)
	if len(ready) == 0 {
		return nil, false, wait
	}
	if n := o.sink().Habits().Batch; n > 1 { // its messages take several: it is not drowned
		return ready[:min(n, len(ready))], false, 0
	}
	if now.Sub(o.minute) >= time.Minute {
		o.minute, o.sent = now, 0
	}
	switch {
	case o.sent >= perMinute:
		o.over = true
		return nil, false, o.minute.Add(time.Minute).Sub(now)
	case o.over && len(ready) > 1:
		sum = true
	default:
		ready = ready[:1]
	}
	o.over = false
	o.sent++
	return ready, sum, 0
}

// ready lists what may be sent now, what failed least first, and how long until more may be. It needs the lock. What is said of
// one thing goes out in order.
func (o *outlet) ready(now time.Time, idle time.Duration) (list []*item, wait time.Duration) {
	wait = idle
	waits, several := map[identity]bool{}, o.over && o.sink().Habits().Batch <= 1
	for _, it := range o.items {
		id := identity{it.alert.Name, it.alert.Subject}
		if waits[id] { // an older one is not delivered yet
			continue
		}
		if now.Before(it.next) {
			wait = min(wait, it.next.Sub(now))
			waits[id] = true
			continue
		}
		list = append(list, it)
		waits[id] = !several // a sum may hold both that it fired and that it is over
	}
	slices.SortStableFunc(list, func(a, b *item) int { return a.tries - b.tries })
	return list, wait
}

// expire gives up what could not be delivered for a day.
func (o *outlet) expire(now time.Time) {
	var old []*item
	o.mu.Lock()
	o.items = slices.DeleteFunc(o.items, func(it *item) bool {
		is := now.Sub(it.alert.Time) > giveUp
		if is {
			old = append(old, it)
		}
		return is
	})
	o.mu.Unlock()
	for _, it := range old {
		o.desk.o.Count(o.name, outcomeGaveUp)
		o.desk.o.Log.Error("an alert could not be delivered for a day: it is given up", "sink", o.name, "alert", it.alert.Name, "subject", it.alert.Subject)
		o.desk.keep(context.Background(), o.delivery(it), true)
	}
}

func (o *outlet) delivery(it *item) Delivery {
	return Delivery{Row: Row{it.row, it.alert}, Sink: o.name, Tries: it.tries, Next: it.next}
}

// deliver sends items in one message and notes what came of it.
func (o *outlet) deliver(ctx context.Context, batch []*item, sum bool) {
	m := o.message(sum)
	for _, it := range batch {
		m.Alerts = append(m.Alerts, it.alert)
	}
	if m.ID = m.Alerts[0].ID; sum {
		m.ID += fmt.Sprintf("-and-%d", len(batch))
	}
	f := o.send(ctx, m, postFor)
	if f != nil && ctx.Err() != nil {
		return // the next start sends it
	}
	now := time.Now()
	done := f == nil || f.final
	o.outcome(f)
	if f == nil || f.final {
		o.fails, o.until = 0, time.Time{}
	} else {
		o.fails++
		o.until = now.Add(max(backoff(o.fails), f.after))
	}
	for _, it := range batch {
		if !done {
			it.tries++
			it.next = now.Add(max(backoff(it.tries), f.after))
		}
		o.desk.keep(ctx, o.delivery(it), done)
	}
	if done {
		o.mu.Lock()
		o.items = slices.DeleteFunc(o.items, func(it *item) bool { return slices.Contains(batch, it) })
		o.mu.Unlock()
	}
}

// renewAll sends what fires again, to a sink that forgets it otherwise. A failure is made good by the next time.
func (o *outlet) renewAll(ctx context.Context) {
	var list []Alert
	for _, a := range o.desk.Firing() {
		if o.wants(&a) {
			list = append(list, a)
		}
	}
	for part := range slices.Chunk(list, o.sink().Habits().Batch) {
		m := o.message(false)
		m.Alerts = part
		f := o.send(ctx, m, postFor)
		if ctx.Err() != nil {
			return
		}
		if o.outcome(f); f != nil {
			return
		}
	}
}

func (o *outlet) message(sum bool) *Message {
	return &Message{Weir: o.desk.now.Load().Weir, Time: time.Now(), Sum: sum}
}

// outcome counts what came of a message, and tells the log of what is new in it.
func (o *outlet) outcome(f *failure) {
	if f == nil {
		o.desk.o.Count(o.name, outcomeOK)
		if o.wrong != "" {
			o.wrong = ""
			o.desk.o.Log.Info("an alert sink takes messages again", "sink", o.name)
		}
		return
	}
	word, text := outcomeRetry, "an alert sink fails: what it should get waits and is tried again"
	if f.final {
		word, text = outcomeRefused, "an alert sink refuses a message: it is not sent again; see `weir alert test`"
	}
	o.desk.o.Count(o.name, word)
	if err := f.Error(); err != o.wrong {
		o.wrong = err
		o.desk.o.Log.Error(text, "sink", o.name, "err", err)
	}
}

// backoff is how long to wait after so many failures: doubling, with jitter.
func backoff(fails int) time.Duration {
	d := mostWait
	if fails < 10 {
		d = min(firstWait<<max(fails-1, 0), mostWait)
	}
	return d/2 + rand.N(d/2)
}

// Outcome is what came of a test message to one sink.
type Outcome struct {
	Sink   string        `json:"sink"`
	OK     bool          `json:"ok"`
	Status int           `json:"status,omitempty"` // HTTP; 0: no answer
	Took   time.Duration `json:"took_ns"`
	Err    string        `json:"error,omitempty"`
}

// ErrNoSink is returned where a test names a sink that is not there.
var ErrNoSink = errors.New("there is no such alert sink")

// Test sends one test alert to the named sink, or with an empty name to each, at once, and tells what came of it within ten
// seconds. It does not try again.
func (d *Desk) Test(ctx context.Context, name string) ([]Outcome, error) {
	var to []*outlet
	var names []string
	for _, o := range d.now.Load().outlets {
		if names = append(names, o.name); name == "" || o.name == name {
			to = append(to, o)
		}
	}
	switch {
	case len(to) == 0 && name != "" && len(names) > 0:
		return nil, fmt.Errorf("%w: %q; there is: %s", ErrNoSink, clean(name, mostName), strings.Join(names, ", "))
	case len(to) == 0:
		return nil, fmt.Errorf("%w: none is configured; see alerts.sinks in docs/alerts.md", ErrNoSink)
	}
	now := time.Now()
	a := Alert{
		ID: newID(), Name: "test", Subject: "weir alert test", State: Firing, Severity: Info, Time: now, Since: now, Notice: true, Until: now.Add(time.Minute),
		Summary: "this is a test: alerts of Weir arrive here", Detail: "Nothing is wrong.",
	}
	outcomes := make([]Outcome, len(to))
	var wg sync.WaitGroup
	for i, o := range to {
		wg.Go(func() {
			begun := time.Now()
			m := o.message(false)
			m.ID, m.Alerts = a.ID, []Alert{a}
			status, f := o.desk.post(ctx, o.sink(), m, testFor)
			outcomes[i] = Outcome{Sink: o.name, OK: f == nil, Status: status, Took: time.Since(begun)}
			if f != nil {
				outcomes[i].Err = f.Error()
			}
		})
	}
	wg.Wait()
	return outcomes, nil
}
