package pool

import (
	"math"
	"time"

	"weir/internal/llm"
)

// Numbers of the queue's fairness.
const (
	weirsOwn  = math.MinInt      // the priority of Weir's own small calls, which give way to every client
	unlimited = 10 * time.Second // after which a waiter without a limit has waited long
	outOfTurn = 8                // at most one grant in so many goes to who has waited long
)

// waiter is one request that waits for a slot.
type waiter struct {
	slots    *Slots // of the pool it asked for
	priority int
	begun    time.Time
	wait     time.Duration // its limit; 0: none
	ready    chan struct{} // closed under the lock at the end of the wait
	ended    bool          // by a slot, an error, or its own leaving
	err      *llm.Error    // nil: the slot is handed over

	place, waiting int           // as it began
	guess          time.Duration // as it began

	level      *level
	prev, next *waiter
}

// end ends the wait: with a slot, or with an error.
func (w *waiter) end(err *llm.Error) {
	w.ended, w.err = true, err
	close(w.ready)
}

// failure is what the wait has ended with.
func (w *waiter) failure() error {
	if w.err == nil {
		return nil
	}
	return w.err
}

// long returns when w has waited so long that it is served out of turn: half of what it may wait.
func (w *waiter) long() time.Time {
	if w.wait == 0 {
		return w.begun.Add(unlimited)
	}
	return w.begun.Add(w.wait / 2)
}

// queue is who waits, by priority, and the oldest first inside one. Its owner's lock guards it.
type queue struct {
	levels []*level // highest priority first; none is empty
	n      int      // who waits in all of them
	rest   int      // grants that must pass before one may be out of turn again
}

type level struct {
	priority    int
	n           int
	first, last *waiter
}

// add puts w behind all of its priority and above, and returns its place from 1.
func (q *queue) add(w *waiter) (place int) {
	i := 0
	for i < len(q.levels) && q.levels[i].priority >= w.priority {
		place += q.levels[i].n
		i++
	}
	var l *level
	if i > 0 && q.levels[i-1].priority == w.priority {
		l = q.levels[i-1]
	} else {
		l = &level{priority: w.priority}
		q.levels = append(q.levels, nil)
		copy(q.levels[i+1:], q.levels[i:])
		q.levels[i] = l
	}
	w.level, w.prev = l, l.last
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
	l.n++
	q.n++
	return place + 1
}

// remove takes out w, which waits.
func (q *queue) remove(w *waiter) {
	l := w.level
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.level, w.prev, w.next = nil, nil, nil
	q.n--
	if l.n--; l.n > 0 {
		return
	}
	for i, o := range q.levels {
		if o == l {
			q.levels = append(q.levels[:i], q.levels[i+1:]...)
			return
		}
	}
}

// next returns whose turn it is in a queue that is not empty: the oldest of the highest priority. One grant in eight may
// go to a lower one that has waited long, the one that was due first.
func (q *queue) next() *waiter {
	best := q.levels[0].first
	if q.rest > 0 {
		q.rest--
		return best
	}
	if len(q.levels) == 1 {
		return best
	}
	due := time.Now()
	for _, l := range q.levels[1:] {
		if t := l.first.long(); l.priority != weirsOwn && t.Before(due) {
			best, due = l.first, t
		}
	}
	if best != q.levels[0].first {
		q.rest = outOfTurn - 1
	}
	return best
}

// last returns the newest of the lowest priority, nil in an empty queue.
func (q *queue) last() *waiter {
	if q.n == 0 {
		return nil
	}
	return q.levels[len(q.levels)-1].last
}

// all returns who waits, in turn.
func (q *queue) all() []*waiter {
	list := make([]*waiter, 0, q.n)
	for _, l := range q.levels {
		for w := l.first; w != nil; w = w.next {
			list = append(list, w)
		}
	}
	return list
}

// drain takes everybody out and returns them, in turn.
func (q *queue) drain() []*waiter {
	list := q.all()
	for _, w := range list {
		w.level, w.prev, w.next = nil, nil, nil
	}
	q.levels, q.n = nil, 0
	return list
}
