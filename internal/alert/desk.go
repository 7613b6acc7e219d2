package alert

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/event"
)

const (
	tickEvery    = time.Second
	storeWithin  = 3 * time.Second
	tellLogEvery = 10 * time.Second
)

// Target is a sink with its name.
type Target struct {
	Name  string
	Sink  Sink
	Least string // the least severity that it gets; empty: warning
}

// Settings are what a shift of the configuration can change.
type Settings struct {
	Weir   string        // names this Weir in messages
	Repeat time.Duration // how long what still fires is not told again; 0: 4 h
	For    time.Duration // how long a fault must last before it is told
	Sinks  []Target      // no two of one name
}

// Options set up a Desk.
type Options struct {
	Settings
	Store Store                                                             // nil: alerts live in memory alone
	Dial  func(ctx context.Context, network, addr string) (net.Conn, error) // nil: the network, guarded
	Count func(sink, outcome string)                                        // nil: nobody counts
	Log   *slog.Logger                                                      // nil is silent
	Agent string                                                            // User-Agent
}

// plan is the settings in force, with what serves each sink.
type plan struct {
	Settings
	outlets []*outlet
}

// Desk decides what is told and delivers it. It is a reader of facts; all methods are safe for concurrent use.
type Desk struct {
	o       Options
	client  *http.Client
	now     atomic.Pointer[plan]
	changed chan struct{} // there are new outlets to run

	mu     sync.Mutex // guards the fields below, and changes of now; the store is written under it, and no request takes it
	states map[identity]*state
	told   time.Time // when the log was told that the store fails
}

var _ event.Reader = (*Desk)(nil)

type identity struct{ name, subject string }

// New makes a Desk and reads what an earlier run left in the store: what fires still, and what was not delivered. A store that
// fails is said in the log and no error.
func New(ctx context.Context, o Options) *Desk {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Count == nil {
		o.Count = func(string, string) {}
	}
	d := &Desk{o: o, client: newClient(o.Dial), changed: make(chan struct{}, 1), states: map[identity]*state{}}
	d.now.Store(&plan{})
	d.Configure(o.Settings)
	d.load(ctx)
	return d
}

// Configure puts settings in force. A sink keeps what it has to get yet by its name; of one that is gone it is forgotten.
func (d *Desk) Configure(s Settings) {
	if s.Repeat <= 0 {
		s.Repeat = 4 * time.Hour
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	old, next := d.now.Load().outlets, &plan{Settings: s}
	for i := range s.Sinks {
		t := &s.Sinks[i]
		at := slices.IndexFunc(old, func(o *outlet) bool { return o.name == t.Name })
		var o *outlet
		if at < 0 {
			o = &outlet{name: t.Name, desk: d, wake: make(chan struct{}, 1), gone: make(chan struct{})}
		} else {
			o = old[at]
			old = slices.Concat(old[:at], old[at+1:])
		}
		o.target.Store(t)
		next.outlets = append(next.outlets, o)
	}
	d.now.Store(next)
	for _, o := range old {
		close(o.gone)
		o.forget()
	}
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// load reads what an earlier run left.
func (d *Desk) load(ctx context.Context) {
	if d.o.Store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	rows, deliveries, err := d.o.Store.Open(ctx)
	if err != nil {
		d.o.Log.Error("alerts of earlier runs cannot be read: those of this run go out all the same", "err", err)
		return
	}
	now := time.Now()
	for _, r := range rows {
		s := &state{Alert: r.Alert, told: true, shown: r.Alert, toldAt: r.Alert.Time}
		s.Flapping = false
		if !s.Notice && s.Name != "out" { // what is out by hand is out over a restart too
			s.unsure = now.Add(calm)
		}
		d.states[identity{s.Name, s.Subject}] = s
	}
	for _, v := range deliveries {
		sinks := d.now.Load().outlets
		i := slices.IndexFunc(sinks, func(o *outlet) bool { return o.name == v.Sink })
		if i < 0 || now.Sub(v.Alert.Time) > giveUp {
			d.keep(ctx, v, true) // the sink is not configured any more, or it is too late
			continue
		}
		sinks[i].items = append(sinks[i].items, &item{row: v.ID, alert: v.Alert, tries: v.Tries, next: v.Next})
	}
}

// Run delivers until ctx ends. What is not delivered then goes out at the next start. It may be called once.
func (d *Desk) Run(ctx context.Context) {
	var wg sync.WaitGroup
	running := map[*outlet]bool{}
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			wg.Wait()
			d.client.CloseIdleConnections()
			return
		case <-d.changed:
			for _, o := range d.now.Load().outlets {
				if !running[o] {
					running[o] = true
					wg.Go(func() { o.run(ctx) })
				}
			}
			maps.DeleteFunc(running, func(o *outlet, _ bool) bool { return o.isGone() })
		case now := <-tick.C:
			d.tick(ctx, now)
		}
	}
}

// Read takes facts. It may block for the store, never for a sink.
func (d *Desk) Read(ctx context.Context, batch []event.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range batch {
		if a, ok := read(&batch[i]); ok {
			d.note(ctx, &a)
		}
	}
}

// Firing is what is told as firing now, the oldest first.
func (d *Desk) Firing() []Alert {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := []Alert{}
	for _, s := range d.states {
		if s.told {
			list = append(list, s.shown)
		}
	}
	slices.SortFunc(list, func(a, b Alert) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name), strings.Compare(a.Subject, b.Subject))
	})
	return list
}

// tell keeps the alert as it is now and hands it to the sinks.
func (d *Desk) tell(ctx context.Context, s *state, now time.Time) {
	a := s.Alert
	a.ID, a.Time = newID(), now
	s.told = a.State == Firing
	if s.told {
		s.toldAt, s.shown = now, a
	}
	var to []*outlet
	var names []string
	for _, o := range d.now.Load().outlets {
		if o.wants(&a) {
			to, names = append(to, o), append(names, o.name)
		}
	}
	var row int64
	if d.o.Store != nil {
		ctx, cancel := context.WithTimeout(ctx, storeWithin)
		defer cancel()
		var err error
		if row, err = d.o.Store.PutAlert(ctx, a, names); err != nil {
			d.storeFails(err, now)
		}
	}
	for _, o := range to {
		o.put(&item{row: row, alert: a, next: now})
	}
}

func (d *Desk) storeFails(err error, now time.Time) {
	if now.Sub(d.told) >= tellLogEvery {
		d.told = now
		d.o.Log.Error("alerts cannot be stored: they go out from memory, and a restart would lose those that are not delivered", "err", err)
	}
}

// keep notes in the store how a delivery stands. It fails in silence where the alert's own row did.
func (d *Desk) keep(ctx context.Context, v Delivery, done bool) {
	if d.o.Store == nil || v.ID == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeWithin) // at the end of Run too: what went out shall not go out again
	defer cancel()
	if err := d.o.Store.PutDelivery(ctx, v, done); err != nil {
		d.o.Log.Warn("how an alert's delivery stands cannot be stored: after a restart it may go out twice", "sink", v.Sink, "err", err)
	}
}
