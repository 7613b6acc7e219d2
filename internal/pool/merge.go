package pool

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/event"
)

// States of a merge. What an operator has said stands against all later evidence.
const (
	Learnt    = "learnt"    // from what answers named
	Confirmed = "confirmed" // by an operator
	Undone    = "undone"    // by an operator: it does not hold, and is not learnt again
)

// rowOfEvidence is how many answers in a row must come from the same other pool.
const rowOfEvidence = 3

// Merge says that a vendor answers what is asked of one pool from another one.
type Merge struct {
	Asked    string // pool
	Serving  string // pool
	Vendor   string
	State    string // Learnt, Confirmed or Undone
	Time     time.Time
	Evidence string // human words
}

// MergeOptions say who is told of merges. Both functions are called without any lock held.
type MergeOptions struct {
	Emit func(event.Event) // the alert that pools have merged; nil: nobody
	Save func(Merge)       // each change, one at a time, in order; a request may wait for it. nil: nothing is kept
}

// Merges knows which pools their vendors have merged, and charges the calls of each to the pool that serves. A pool is
// merged into at most one other; where that is merged too, the last of the chain rules. It is safe for concurrent use and
// outlives a change of configuration.
type Merges struct {
	o      MergeOptions
	saving sync.Mutex // held while a change is saved; taken with no other held, and before mu
	mu     sync.Mutex // guards the fields below; taken before the locks of Slots
	seats  map[string]*seat
	list   map[string]Merge // by the pool asked

	index atomic.Pointer[map[id]string] // the pool that serves an id, empty where several do; never changed
}

// id is a model's id at a vendor.
type id struct{ vendor, model string }

// seat is a pool among those that may merge.
type seat struct {
	merges *Merges
	name   string
	tier   string
	vendor string
	ids    []string
	slots  *Slots
	row    atomic.Pointer[row] // nil: the last answer was no evidence
}

// row counts answers in a row from one other pool. It is never changed.
type row struct {
	serving string
	n       int
}

// NewMerges returns a Merges that knows of none.
func NewMerges(o MergeOptions) *Merges {
	if o.Emit == nil {
		o.Emit = func(event.Event) {}
	}
	if o.Save == nil {
		o.Save = func(Merge) {}
	}
	return &Merges{o: o, seats: map[string]*seat{}, list: map[string]Merge{}}
}

// join takes a pool in, in the place of an earlier one of its name. It returns nil for one that never merges.
func (m *Merges) join(o *Options) *seat {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.seats[o.Name]
	var s *seat
	if o.Vendor != "" && o.IDs != nil {
		s = &seat{merges: m, name: o.Name, tier: o.Tier, vendor: o.Vendor, ids: o.IDs, slots: o.Slots}
		o.Slots.call(o.Name)
		m.seats[o.Name] = s
	} else {
		delete(m.seats, o.Name)
	}
	switch {
	case old != nil:
		m.charge(old.slots)
	case s != nil:
		m.charge()
	}
	return s
}

// Keep forgets all pools but those named: what a new configuration does not have any more. Calls that still run on the
// others are charged to their own slots again. What was learnt of them stays in the list.
func (m *Merges) Keep(names ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var gone []*Slots
	for name, s := range m.seats {
		if !slices.Contains(names, name) {
			gone = append(gone, s.slots)
			delete(m.seats, name)
		}
	}
	m.charge(gone...)
}

// Load puts in place what was known before a restart. A merge applies while both of its pools exist and share its vendor;
// others stay in the list. It saves nothing and tells nobody.
func (m *Merges) Load(list []Merge) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range list {
		m.list[e.Asked] = e
	}
	m.charge()
}

// List returns all that is known, those that were undone or do not apply now too, by the name of the pool asked.
func (m *Merges) List() []Merge {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := slices.Collect(maps.Values(m.list))
	slices.SortFunc(list, func(a, b Merge) int { return cmp.Compare(a.Asked, b.Asked) })
	return list
}

// Confirm makes a merge the operator's word, one that was undone too.
func (m *Merges) Confirm(asked string) error { return m.settle(asked, Confirmed) }

// Undo charges a pool to its own slots again. Later evidence does not merge it until Confirm.
func (m *Merges) Undo(asked string) error { return m.settle(asked, Undone) }

func (m *Merges) settle(asked, state string) error {
	m.mu.Lock()
	e, known := m.list[asked]
	var err error
	switch {
	case !known:
		err = fmt.Errorf("no merge of pool %s is known: `weir caps` lists those that are", asked)
	case e.State == Undone && state == Confirmed && closes(m.next(), asked, e.Serving):
		err = fmt.Errorf("pool %s cannot be charged to %s, which is charged to %s itself: undo that first", asked, e.Serving, asked)
	}
	if err != nil || e.State == state {
		m.mu.Unlock()
		return err
	}
	e.State, e.Time = state, time.Now()
	m.list[asked] = e
	m.charge()
	m.mu.Unlock()
	m.save(asked)
	return nil
}

// save keeps how a merge stands now: whatever came between, the last thing that is saved is the newest.
func (m *Merges) save(asked string) {
	m.saving.Lock()
	defer m.saving.Unlock()
	m.mu.Lock()
	e := m.list[asked]
	m.mu.Unlock()
	m.o.Save(e)
}

// witness counts an answer that came from another pool, and merges the pools when they are enough.
func (m *Merges) witness(s *seat, serving, asked, named string) {
	m.mu.Lock()
	r := &row{serving, 1}
	if last := s.row.Load(); last != nil && last.serving == serving {
		r.n = min(last.n+1, rowOfEvidence)
	}
	s.row.Store(r)
	if r.n < rowOfEvidence || !m.learns(s, serving) {
		m.mu.Unlock()
		return
	}
	e := Merge{
		Asked: s.name, Serving: serving, Vendor: s.vendor, State: Learnt, Time: time.Now(),
		Evidence: fmt.Sprintf("%d answers in a row; the last was asked of %s and named %s", rowOfEvidence, asked, named),
	}
	m.list[s.name] = e
	m.charge()
	rules := m.seats[s.name].slots.root.Load().name
	m.mu.Unlock()
	m.o.Emit(event.Event{
		Name: event.Alert, Tier: s.tier, Pool: s.name, Model: asked, Reason: "merged", From: s.name, To: serving,
		Detail: fmt.Sprintf("%s answers what is asked of pool %s from pool %s (%s): calls of %s now count against the cap of %s. "+
			"If that is so: weir caps confirm %s. If not: weir caps undo %s", s.vendor, s.name, serving, e.Evidence, s.name, rules, s.name, s.name),
	})
	m.save(s.name)
}

// disperse ends a row of evidence.
func (m *Merges) disperse(s *seat) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.row.Store(nil)
}

// learns reports whether evidence says something new: not against an operator's word, and not in a circle.
func (m *Merges) learns(s *seat, serving string) bool {
	now, other := m.seats[s.name], m.seats[serving]
	if now == nil || other == nil || now.vendor != s.vendor || other.vendor != s.vendor {
		return false // the configuration has changed since the call began
	}
	if e, known := m.list[s.name]; known && e.Vendor == s.vendor && (e.State != Learnt || e.Serving == serving) {
		return false
	}
	return !closes(m.next(), s.name, serving)
}

// next returns where the calls of merged pools go: of what is known, all that applies now. A circle has no end that could
// rule, so the last link of one does not apply; only a list that was loaded can have one.
func (m *Merges) next() map[string]string {
	list := slices.SortedFunc(maps.Values(m.list), func(a, b Merge) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Asked, b.Asked))
	})
	next := map[string]string{}
	for _, e := range list {
		asked, serving := m.seats[e.Asked], m.seats[e.Serving]
		if e.State == Undone || asked == nil || serving == nil || asked.vendor != e.Vendor || serving.vendor != e.Vendor {
			continue
		}
		if !closes(next, e.Asked, e.Serving) {
			next[e.Asked] = e.Serving
		}
	}
	return next
}

// closes reports whether charging asked to serving would lead back to asked. next has no circle.
func closes(next map[string]string, asked, serving string) bool {
	for serving != asked && serving != "" {
		serving = next[serving]
	}
	return serving == asked
}

// last returns the end of the chain that begins at a pool. next has no circle.
func last(next map[string]string, pool string) string {
	for next[pool] != "" {
		pool = next[pool]
	}
	return pool
}

// charge puts what is known into force. gone are slots that have no seat any more: they are charged to themselves.
func (m *Merges) charge(gone ...*Slots) {
	next, index, to := m.next(), map[id]string{}, map[*Slots]*Slots{}
	for _, s := range gone {
		to[s] = s
	}
	for name, s := range m.seats {
		to[s.slots] = m.seats[last(next, name)].slots
		for _, model := range s.ids {
			k, owner := id{s.vendor, model}, name
			if other, taken := index[k]; taken && other != name {
				owner = "" // two have it: an answer that names it does not say who served
			}
			index[k] = owner
		}
	}
	m.index.Store(&index)
	recharge(to)
}

// recharge moves calls and waiters to the slots that each is charged to from now on. These may stand over their cap and
// their queue's size for it; nobody is stopped.
func recharge(to map[*Slots]*Slots) {
	for s := range to { // in any order, for nobody else ever holds two of these locks
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	var waiters []*waiter
	for s := range to { // not before all are locked: until then another's lock guards what these have
		waiters = append(waiters, s.queue.drain()...)
		s.held = 0
	}
	for s, r := range to {
		s.root.Store(r)
		r.held += s.own
	}
	slices.SortStableFunc(waiters, func(a, b *waiter) int { return a.begun.Compare(b.begun) })
	for _, w := range waiters {
		to[w.slots].queue.add(w)
	}
	for s, r := range to {
		if s == r {
			s.grant()
		}
	}
}
