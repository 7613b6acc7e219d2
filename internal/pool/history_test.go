package pool

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"weir/internal/backend"
	"weir/internal/event"
	"weir/internal/llm"
)

// step is one step of a history. What it does not need is ignored.
type step struct {
	Do       string
	Pool     int
	To       int // the pool whose model an answer names
	Priority int
	Cap      int
	Size     int
	Who      int // of those that there are
}

var doings = []string{"acquire", "acquire", "acquire", "acquire", "done", "done", "done", "busy", "invalid", "leave", "resize", "answer", "answers", "undo", "confirm", "dismiss", "second", "late"}

// poolsOfHistory are three of one vendor and one of another.
var poolsOfHistory = []string{"a", "b", "c", "x"}

// TestHistoriesOfPools replays random histories on pools and on a plain model of them, and compares after each step. Then
// everybody ends, and nothing may be left.
func TestHistoriesOfPools(t *testing.T) { // C105, C106, C107
	want, done := 6000, 0
	if os.Getenv("WEIR_LONG") != "" {
		want = 1_000_000
	}
	one := rapid.Custom(func(rt *rapid.T) step {
		return step{
			Do: rapid.SampledFrom(doings).Draw(rt, "do"), Pool: rapid.IntRange(0, 3).Draw(rt, "pool"), To: rapid.IntRange(0, 3).Draw(rt, "to"),
			Priority: rapid.IntRange(-1, 1).Draw(rt, "priority"), Cap: rapid.IntRange(0, 5).Draw(rt, "cap"),
			Size: rapid.IntRange(0, 4).Draw(rt, "size"), Who: rapid.IntRange(0, 50).Draw(rt, "who"),
		}
	})
	for done < want && !t.Failed() {
		rapid.Check(t, func(rt *rapid.T) {
			list := rapid.SliceOfN(one, 50, 200).Draw(rt, "steps")
			done += len(list)
			var fault string
			synctest.Test(t, func(t *testing.T) { fault = replay(t.Context(), list) })
			if fault != "" {
				rt.Fatal(fault)
			}
		})
	}
	t.Logf("%d steps", done)
}

// replay returns the first difference between pools and model.
func replay(ctx context.Context, list []step) string {
	h := newHistory(ctx)
	for i, s := range list {
		time.Sleep(time.Millisecond) // no two steps are at the same moment
		h.do(&s)
		synctest.Wait()
		if fault := h.compare(&s); fault != "" {
			return fmt.Sprintf("step %d, %+v: %s", i, s, fault)
		}
	}
	h.end()
	synctest.Wait()
	for i, p := range h.pools {
		if u := p.Slots.Usage(); u.Held != 0 || u.Own != 0 || u.Waiting != 0 || p.members[0].held.Load() != 0 {
			return fmt.Sprintf("pool %d is left with %+v", i, u)
		}
	}
	return ""
}

// history is real pools and the model beside them, which has no goroutines, no locks, and one list of all who wait.
type history struct {
	ctx    context.Context
	merges *Merges
	pools  []*Pool
	told   int // alerts
	want   []string

	model  []modelPool
	queue  []modelWaiter // in order of arrival
	alerts int

	mu     sync.Mutex // guards the fields below
	leases []*held
	got    []string
	next   int
}

type modelPool struct {
	cap, size, own, rest int
	full, late           uint64
	live                 float64
	cut                  time.Time
	to                   int // merged into; -1: into none
	state                string
	serving              int // of a merge that is known
	row, rowOf           int
	before               int // calls charged to it after the step before
}

type modelWaiter struct {
	id, pool, priority int
	begun              time.Time
	leave              context.CancelFunc
}

type held struct {
	id int
	Lease
}

const patience = time.Minute // of all who wait

func newHistory(ctx context.Context) *history {
	h := &history{ctx: ctx}
	h.merges = NewMerges(MergeOptions{Emit: func(e event.Event) {
		if e.Name == event.Alert && e.Reason == "merged" {
			h.told++
		}
	}})
	for i, name := range poolsOfHistory {
		vendor := "v"
		if name == "x" {
			vendor = "w"
		}
		h.pools = append(h.pools, New(Options{
			Name: name, Backends: []*backend.Backend{new(backend.Backend)}, Slots: NewSlots(3-i%2, 3), Rate: NewRate("cloud", 0),
			Vendor: vendor, IDs: []string{"m" + name}, Merges: h.merges,
		}))
		h.model = append(h.model, modelPool{cap: 3 - i%2, size: 3, live: float64(3 - i%2), to: -1, serving: -1, rowOf: -1})
	}
	return h
}

// root returns the pool that serves.
func (h *history) root(pool int) int {
	for h.model[pool].to >= 0 {
		pool = h.model[pool].to
	}
	return pool
}

// held returns how many calls are charged to a pool.
func (h *history) held(root int) (n int) {
	for i := range h.model {
		if h.root(i) == root {
			n += h.model[i].own
		}
	}
	return n
}

// line returns who waits for a pool, as indices of the queue.
func (h *history) line(root int) (list []int) {
	for i, w := range h.queue {
		if h.root(w.pool) == root {
			list = append(list, i)
		}
	}
	return list
}

func (h *history) expect(what string, id int) {
	h.want = append(h.want, fmt.Sprintf("%s %d", what, id))
}

// admit lets in whom the model has room for.
func (h *history) admit() {
	for root := range h.model {
		if h.root(root) != root {
			continue
		}
		for h.held(root) < int(h.model[root].live) {
			i := h.turn(root)
			if i < 0 {
				break
			}
			w := h.queue[i]
			h.queue = slices.Delete(h.queue, i, i+1)
			h.expect("slot", w.id)
			h.model[w.pool].own++
		}
	}
}

// turn returns whose turn it is at a pool, −1 where nobody waits.
func (h *history) turn(root int) int {
	first := map[int]int{} // the oldest of each priority
	best := -1
	for _, i := range h.line(root) {
		w := h.queue[i]
		if _, is := first[w.priority]; !is {
			first[w.priority] = i
		}
		if best < 0 || w.priority > h.queue[best].priority {
			best = i
		}
	}
	if best < 0 {
		return best
	}
	m := &h.model[root]
	if m.rest > 0 {
		m.rest--
		return best
	}
	out := -1
	for _, i := range first {
		w := h.queue[i]
		if i != best && time.Since(w.begun) > patience/2 && (out < 0 || w.begun.Before(h.queue[out].begun)) {
			out = i
		}
	}
	if out < 0 {
		return best
	}
	m.rest = 7
	return out
}

func (h *history) do(s *step) {
	m := &h.model[s.Pool]
	switch s.Do {
	case "acquire":
		h.acquire(s)
	case "done", "busy", "invalid":
		h.finish(s)
	case "leave":
		if n := len(h.queue); n > 0 {
			i := s.Who % n
			h.expect("canceled", h.queue[i].id)
			h.queue[i].leave()
			h.queue = slices.Delete(h.queue, i, i+1)
		}
	case "resize":
		if m.live >= float64(m.cap) {
			m.live = float64(s.Cap)
		}
		m.live, m.cap, m.size = min(m.live, float64(s.Cap)), s.Cap, s.Size
		h.pools[s.Pool].Slots.Resize(s.Cap, s.Size)
		h.admit()
	case "answer":
		h.answer(s)
	case "answers":
		for range 3 {
			h.answer(s)
		}
	case "undo":
		err := h.merges.Undo(poolsOfHistory[s.Pool])
		h.settle(m, s, Undone, err)
	case "confirm":
		err := h.merges.Confirm(poolsOfHistory[s.Pool])
		h.settle(m, s, Confirmed, err)
	case "dismiss":
		h.pools[s.Pool].Slots.Dismiss(llm.Errorf(llm.None, "out"))
		h.drop("none", func(w modelWaiter) bool { return w.pool == s.Pool })
	case "second":
		time.Sleep(time.Second + 7*time.Duration(s.Who)*100*time.Millisecond)
		h.drop("full", func(w modelWaiter) bool { return time.Since(w.begun) >= patience })
	case "late":
		time.Sleep(patience)
		h.drop("full", func(modelWaiter) bool { return true })
	}
}

func (h *history) drop(what string, which func(modelWaiter) bool) {
	h.queue = slices.DeleteFunc(h.queue, func(w modelWaiter) bool {
		gone := which(w)
		if gone {
			h.expect(what, w.id)
			if what == "full" {
				h.model[w.pool].late++
			}
		}
		return gone
	})
}

func (h *history) acquire(s *step) {
	w := modelWaiter{id: h.next, pool: s.Pool, priority: s.Priority, begun: time.Now()}
	h.next++
	var ctx context.Context
	ctx, w.leave = context.WithCancel(h.ctx)
	place := h.enter(w)
	n := Need{Model: "m" + poolsOfHistory[s.Pool], Priority: s.Priority, Wait: patience}
	told := 0
	n.Waiting = func(at, _ int, _ time.Duration) { told = at }
	go func() {
		l, err := h.pools[s.Pool].Acquire(ctx, n)
		what := "slot"
		if err != nil {
			what = llm.KindOf(err).String()
		}
		if told != place || err == nil && l.Place != place {
			what = fmt.Sprintf("place %d, lease %d, want %d:", told, l.Place, place)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.got = append(h.got, fmt.Sprintf("%s %d", what, w.id)); err == nil {
			h.leases = append(h.leases, &held{w.id, l})
		}
	}()
}

// enter does what the model does with one who comes: a slot, a place in the queue, or none.
func (h *history) enter(w modelWaiter) (place int) {
	root := h.root(w.pool)
	line := h.line(root)
	if h.held(root) < int(h.model[root].live) {
		h.expect("slot", w.id)
		h.model[w.pool].own++
		return 0
	}
	if size := h.model[root].size; len(line) >= size {
		last := -1
		for _, i := range line {
			if last < 0 || h.queue[i].priority <= h.queue[last].priority {
				last = i
			}
		}
		if size == 0 || last < 0 || h.queue[last].priority >= w.priority {
			h.expect("full", w.id)
			h.model[w.pool].full++
			return 0
		}
		h.expect("full", h.queue[last].id)
		h.model[h.queue[last].pool].full++
		h.queue = slices.Delete(h.queue, last, last+1)
	}
	place = 1
	for _, i := range h.line(root) {
		if h.queue[i].priority >= w.priority {
			place++
		}
	}
	h.queue = append(h.queue, w)
	return place
}

// lease returns one of those that are held, the same one whenever the history is replayed; nil where there is none.
func (h *history) lease(who int) *held {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.leases) == 0 {
		return nil
	}
	slices.SortFunc(h.leases, func(a, b *held) int { return a.id - b.id })
	return h.leases[who%len(h.leases)]
}

func (h *history) finish(s *step) {
	l := h.lease(s.Who)
	if l == nil {
		return
	}
	pool := slices.Index(h.pools, l.pool)
	root := h.root(pool)
	m := &h.model[root]
	var err error
	h.model[pool].own--
	switch s.Do {
	case "done":
		if m.live < float64(m.cap) {
			m.live = min(m.live+1/max(m.live, 1), float64(m.cap))
		}
	case "busy":
		err = failure(llm.Busy)
		if m.cut.IsZero() || time.Since(m.cut) >= time.Second {
			m.cut = time.Now()
			m.live = min(float64(m.cap), max(1, float64(int(m.live*0.7))))
		}
	case "invalid":
		err = failure(llm.Invalid)
	}
	h.leases = slices.DeleteFunc(h.leases, func(o *held) bool { return o == l })
	h.admit()
	l.Done(err)
	l.Done(err)
}

// answer is one answer of a pool that names the model of another, or its own.
func (h *history) answer(s *step) {
	l := h.lease(s.Who)
	if l == nil {
		return
	}
	pool := slices.Index(h.pools, l.pool)
	m := &h.model[pool]
	model := "m" + poolsOfHistory[s.To]
	by := ""
	if pool == s.To || pool == 3 || s.To == 3 {
		m.row, m.rowOf = 0, -1
	} else {
		by = poolsOfHistory[s.To] + "/" + model
		if m.rowOf != s.To {
			m.row, m.rowOf = 0, s.To
		}
		if m.row++; m.row >= 3 && h.learns(pool, s.To) {
			m.to, m.serving, m.state = s.To, s.To, Learnt
			h.alerts++
			h.admit()
		}
	}
	if got := l.Served(model); got != by {
		h.got = append(h.got, fmt.Sprintf("served %q, want %q", got, by))
	}
}

func (h *history) learns(pool, to int) bool {
	m := &h.model[pool]
	return (m.state == "" || m.state == Learnt && m.serving != to) && !h.leads(to, pool)
}

// leads reports whether the chain from a pool comes to another one.
func (h *history) leads(from, to int) bool {
	for from >= 0 && from != to {
		from = h.model[from].to
	}
	return from == to
}

// settle is an operator's word.
func (h *history) settle(m *modelPool, s *step, state string, err error) {
	refused := m.serving < 0 || state == Confirmed && m.state == Undone && h.leads(m.serving, s.Pool)
	if refused != (err != nil) {
		h.got = append(h.got, fmt.Sprintf("%s: %v, want an error: %v", state, err, refused))
	}
	if refused || m.state == state {
		return
	}
	m.state, m.to = state, m.serving
	if state == Undone {
		m.to = -1
	}
	h.admit()
}

// compare returns how pools and model differ, and whether a cap was exceeded that no merge or lowered cap explains.
func (h *history) compare(s *step) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.Sort(h.got)
	slices.Sort(h.want)
	if !slices.Equal(h.got, h.want) {
		return fmt.Sprintf("got [%s], want [%s]", strings.Join(h.got, ", "), strings.Join(h.want, ", "))
	}
	h.got, h.want = nil, nil
	if h.told != h.alerts {
		return fmt.Sprintf("%d alerts, want %d", h.told, h.alerts)
	}
	for i, p := range h.pools {
		m := &h.model[i]
		want := Usage{Cap: m.cap, Own: m.own, Size: m.size, Full: m.full, Late: m.late}
		root := h.root(i)
		if want.Live = int(h.model[root].live); root == i {
			want.Held, want.Waiting = h.held(i), len(h.line(i))
		} else {
			want.MergedInto = poolsOfHistory[root]
		}
		got := p.Slots.Usage()
		if got != want {
			return fmt.Sprintf("pool %s: got %+v, want %+v", poolsOfHistory[i], got, want)
		}
		if got.Held > got.Live && got.Held > m.before && !slices.Contains([]string{"answer", "answers", "undo", "confirm"}, s.Do) {
			return fmt.Sprintf("pool %s: calls over its cap were let in: %+v, %d before", poolsOfHistory[i], got, m.before)
		}
		m.before = got.Held
	}
	return ""
}

// end ends everybody.
func (h *history) end() {
	for _, w := range h.queue {
		w.leave()
	}
	synctest.Wait()
	for _, l := range h.leases {
		l.Done(nil)
	}
}
