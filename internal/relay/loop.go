package relay

import (
	lru "container/list"
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"weir/internal/llm"
)

// Action is what Loops did with a request.
type Action uint8

// The actions.
const (
	Passed  Action = iota
	Slowed         // it waited
	Refused        // it may not go on
)

// Defaults of a Loops, and its bounds.
const (
	loopWindow = 5 * time.Minute
	loopWait   = 2 * time.Second
	loopRetry  = time.Minute // the longest that a refused client is told to wait
	loopMost   = 4096        // requests that are remembered
)

// Loops notices the same request of one session again and again, as a stuck agent sends it, slows it and then refuses it.
// In any window fewer than refuse same requests pass. It is safe for concurrent use; nil is off and costs nothing.
type Loops struct {
	slow, refuse int
	window, wait time.Duration
	seed         maphash.Seed
	start        time.Time

	mu    sync.Mutex // guards the fields below
	known map[uint64]*lru.Element
	order lru.List // of *loop, the one that came last in front
}

// loop is one request that may be one.
type loop struct {
	hash    uint64
	passed  []time.Duration // since the start, oldest first; all within the window when it was last looked at
	refused int             // since the last that passed
	last    time.Duration
}

// NewLoops returns a guard that lets a request wait from the slow-th same one within the window on, and refuses it from
// the refuse-th on. It is nil, which is off, where slow is 0. What is 0 else has its default: twice slow, 5 minutes, 2 seconds.
func NewLoops(slow, refuse int, window, wait time.Duration) *Loops {
	if slow <= 0 {
		return nil
	}
	l := &Loops{slow: slow, refuse: refuse, window: window, wait: wait, seed: maphash.MakeSeed(), start: time.Now(), known: map[uint64]*lru.Element{}}
	if l.refuse <= 0 {
		l.refuse = 2 * slow
	}
	l.refuse = max(l.refuse, 2) // the first of its kind is no loop
	if l.window <= 0 {
		l.window = loopWindow
	}
	if l.wait <= 0 {
		l.wait = loopWait
	}
	return l
}

// Check counts a request: the body of a session under a key, whose names may be empty. It blocks for the wait where it
// slows. seen is how often the same one came within the window, this one included. The error is an *llm.Error: of kind
// limited where the request is refused, canceled where ctx ended the wait.
func (l *Loops) Check(ctx context.Context, key, session string, body []byte) (seen int, did Action, err error) {
	if l == nil {
		return 0, Passed, nil
	}
	seen, after := l.count(l.hash(key, session, body), time.Since(l.start))
	switch {
	case after > 0:
		return seen, Refused, l.refusal(seen, after)
	case seen < l.slow:
		return seen, Passed, nil
	}
	t := time.NewTimer(l.wait)
	defer t.Stop()
	select {
	case <-t.C:
		return seen, Slowed, nil
	case <-ctx.Done():
		return seen, Slowed, &llm.Error{Kind: llm.Canceled, Op: "relay.loops", Msg: "the client left", Err: ctx.Err()}
	}
}

// refusal says what was seen and what to do.
func (l *Loops) refusal(seen int, after time.Duration) *llm.Error {
	e := llm.Errorf(llm.Limited, "this session has sent the same request %d times within %v, which looks like a loop: change the request, or wait; "+
		"loop_guard in Weir's configuration says how many are let through", seen, l.window)
	e.Code, e.RetryAfter = "loop_detected", min(after, loopRetry)
	return e
}

func (l *Loops) hash(key, session string, body []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(l.seed)
	_, _ = h.WriteString(key)
	_ = h.WriteByte(0) // no key or session has one
	_, _ = h.WriteString(session)
	_ = h.WriteByte(0)
	_, _ = h.Write(body)
	return h.Sum64()
}

// count counts one of a kind at now, which is since the start. after is how long until one may pass again; 0: this one does.
func (l *Loops) count(hash uint64, now time.Duration) (seen int, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	it := l.find(hash, now)
	now = max(now, it.last) // who took its time first may have come second
	it.last = now
	n := 0
	for n < len(it.passed) && now-it.passed[n] >= l.window {
		n++
	}
	it.passed = slices.Delete(it.passed, 0, n)
	if len(it.passed) >= l.refuse-1 {
		it.refused++
		return len(it.passed) + it.refused, l.window - (now - it.passed[0])
	}
	it.passed, it.refused = append(it.passed, now), 0
	return len(it.passed), 0
}

// find returns the loop of a hash, in front of all, and forgets those that are too old or too many.
func (l *Loops) find(hash uint64, now time.Duration) *loop {
	for e := l.order.Back(); e != nil; e = l.order.Back() {
		it := e.Value.(*loop)
		if l.order.Len() < loopMost && now-it.last < l.window || it.hash == hash {
			break
		}
		l.order.Remove(e)
		delete(l.known, it.hash)
	}
	if e, ok := l.known[hash]; ok {
		l.order.MoveToFront(e)
		return e.Value.(*loop)
	}
	it := &loop{hash: hash}
	l.known[hash] = l.order.PushFront(it)
	return it
}
