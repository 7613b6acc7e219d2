package key

import (
	"cmp"
	"slices"
	"time"
)

// minute is the span of every limit that is told per minute.
const minute = time.Minute

// window sums what was counted in the last minute, exactly: an amount leaves a minute after it came. Times are told since
// the start of a usage, are above zero and never fall. The zero value is empty.
type window struct {
	list []entry // in the order of time, no two of one time; those before head have left
	head int
	sum  int64         // of those that have not
	gone time.Duration // the time of the last that has
}

// entry is what came at one moment. Amounts are at most most, so that no sum of a minute overflows.
type entry struct {
	at time.Duration
	n  int64
}

const (
	most  = 1 << 31 // tokens of one request, far above any model's window
	many  = 1024    // entries, from which on those of one grain are merged
	grain = 10 * time.Millisecond
)

// pass lets what is a minute old leave.
func (w *window) pass(now time.Duration) {
	for ; w.head < len(w.list) && now-w.list[w.head].at >= minute; w.head++ {
		w.sum -= w.list[w.head].n
		w.gone = w.list[w.head].at
	}
}

// wait returns how long it takes until n more fit under limit; zero is not at all. n is at most limit.
func (w *window) wait(n, limit int64, now time.Duration) time.Duration {
	w.pass(now)
	over := w.sum + n - limit
	for i := w.head; over > 0 && i < len(w.list); i++ {
		if over -= w.list[i].n; over <= 0 {
			return minute - (now - w.list[i].at)
		}
	}
	return 0
}

// add counts n at now. Where coarse says so, and there are many entries, those of one grain of time become one, as if all of
// them had come with the last: such an amount leaves up to a grain too late, never too early.
func (w *window) add(n int64, now time.Duration, coarse bool) {
	w.sum += n
	if last := len(w.list) - 1; last >= w.head {
		e := &w.list[last]
		if e.at == now || coarse && last-w.head >= many && e.at/grain == now/grain {
			e.at, e.n = now, e.n+n
			return
		}
	}
	if len(w.list) == cap(w.list) && w.head > len(w.list)/2 {
		w.list = slices.Delete(w.list, 0, w.head)
		w.head = 0
	}
	w.list = append(w.list, entry{now, n})
}

// change adds d to what was counted at a moment, if that has not left.
func (w *window) change(at time.Duration, d int64) {
	if at <= w.gone {
		return
	}
	i, _ := slices.BinarySearchFunc(w.list[w.head:], at, func(e entry, at time.Duration) int { return cmp.Compare(e.at, at) })
	if i += w.head; i == len(w.list) {
		return
	}
	w.list[i].n += d
	w.sum += d
	for n := len(w.list); n > w.head && w.list[n-1].n == 0; n-- { // refused requests leave no memory behind
		w.list = w.list[:n-1]
	}
}

// reset returns how long it takes until nothing is counted any more.
func (w *window) reset(now time.Duration) time.Duration {
	w.pass(now)
	for i := len(w.list) - 1; i >= w.head; i-- {
		if w.list[i].n > 0 {
			return minute - (now - w.list[i].at)
		}
	}
	return 0
}
