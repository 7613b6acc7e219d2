package backend

import (
	"context"
	"sync"
	"time"

	"weir/internal/llm"
)

// watch keeps a call's limits with one lazy timer: a read only notes the time; the timer looks and puts itself off. It
// is moved once, at first content, since the idle limit may be the shorter one.
type watch struct {
	mu     sync.Mutex // guards the fields below
	timer  *time.Timer
	limits Limits
	cancel context.CancelCauseFunc
	begun  time.Time
	alive  time.Time // the first-content clock counts from here
	last   time.Time // the wait for the next read began
	seen   bool      // first content has come
	away   bool      // nobody waits: the client is being written to, and the silence is not the upstream's
	ended  bool
	why    error
}

func (w *watch) start(l Limits, cancel context.CancelCauseFunc) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limits, w.cancel, w.begun, w.alive, w.last = l, cancel, now, now, now
	if at := w.due(); !at.IsZero() {
		w.timer = time.AfterFunc(at.Sub(now), w.look)
	}
}

// due returns when the next limit passes, zero for never, with the reason noted in why by look.
func (w *watch) due() time.Time {
	var at time.Time
	soonest := func(from time.Time, d time.Duration) {
		if t := from.Add(d); d > 0 && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	soonest(w.begun, w.limits.Total)
	if w.seen {
		soonest(w.last, w.limits.Idle)
	} else {
		soonest(w.alive, w.limits.FirstContent)
	}
	return at
}

func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	at, now := w.due(), time.Now()
	if at.IsZero() {
		return
	}
	if now.Before(at) {
		w.timer.Reset(at.Sub(now))
		return
	}
	switch {
	case w.limits.Total > 0 && !now.Before(w.begun.Add(w.limits.Total)):
		w.why = errTotal
	case w.seen && w.away:
		w.last = now
		w.timer.Reset(w.due().Sub(now))
		return
	case w.seen:
		w.why = errIdle
	default:
		w.why = errFirst
	}
	w.cancel(w.why)
}

// wait notes that a read begins: silence counts from here.
func (w *watch) wait() {
	w.mu.Lock()
	w.last, w.away = time.Now(), false
	w.mu.Unlock()
}

// woke notes that a read has ended.
func (w *watch) woke() {
	w.mu.Lock()
	w.away = true
	w.mu.Unlock()
}

// content starts the idle limit.
func (w *watch) content() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen, w.last = true, time.Now()
	if at := w.due(); !at.IsZero() && !w.ended {
		if w.timer == nil {
			w.timer = time.AfterFunc(time.Until(at), w.look)
			return
		}
		w.timer.Reset(time.Until(at))
	}
}

// progress counts as life before the first content: the first-content clock starts anew.
func (w *watch) progress() {
	w.mu.Lock()
	w.alive = time.Now()
	w.mu.Unlock()
}

// drain gives the rest of a body that has said its end a last moment.
func (w *watch) drain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen, w.away, w.last, w.limits = true, false, time.Now(), Limits{Idle: 100 * time.Millisecond}
	switch {
	case w.ended:
	case w.timer == nil:
		w.timer = time.AfterFunc(w.limits.Idle, w.look)
	default:
		w.timer.Reset(w.limits.Idle)
	}
}

// stop ends the watch and frees the call's context.
func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	w.ended = true
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.cancel != nil {
		w.cancel(nil)
	}
}

// cause returns the failure that a passed limit is, nil when none has passed.
func (w *watch) cause() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.why {
	case nil:
		return nil
	case errFirst:
		return &llm.Error{Kind: llm.Slow, Op: "backend.Call", Sent: true, Err: w.why,
			Msg: "the model's server gave no content within " + w.limits.FirstContent.String()}
	case errIdle:
		return &llm.Error{Kind: llm.Stalled, Op: "backend.Call", Code: "upstream_stalled", Sent: true, Err: w.why,
			Msg: "the answer broke off: the model's server was silent for " + w.limits.Idle.String()}
	}
	return &llm.Error{Kind: llm.Stalled, Op: "backend.Call", Code: "upstream_stalled", Sent: true, Err: w.why,
		Msg: "the answer broke off: it took longer than " + w.limits.Total.String()}
}
