package event

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	bufferSize  = 2048 // of Emit; a larger one falls out of the caches and costs ten times as much per event
	readerSize  = 4096 // of each reader
	batchSize   = 1000 // events that a reader gets at a time
	tickEvery   = 100 * time.Millisecond
	flushWithin = 2 * time.Second
	tellEvery   = 10 * time.Second // of drops in the log
)

// Reader is one reader of facts. Read is called from one goroutine of its own and may block: then only this reader
// misses facts, and they are counted. It must not keep or change batch, nor change the Records in it. ctx ends at the
// end of the final flush.
type Reader interface {
	Read(ctx context.Context, batch []Event)
}

// Observer sees each fact inside Emit, on the request's path: it must not block and must be quick.
type Observer interface {
	Observe(e Event)
}

// Source is a Reader with its name and the facts it wants.
type Source struct {
	Name   string // label of drops
	Reader Reader
	Wants  func(e *Event) bool // nil: all
	// Pause is the time for which facts are gathered before the next Read, for a reader whose cost is per batch. A
	// half-full buffer ends it early.
	Pause time.Duration
}

// Options set up a Recorder.
type Options struct {
	Observers []Observer
	Readers   []Source
	Log       *slog.Logger // told of drops; nil is silent
	// FlushWithin bounds the last flush when Run ends; zero means 2 s.
	FlushWithin time.Duration
}

// Recorder takes facts and hands them to its readers. Emit is safe for concurrent use; Run runs once.
type Recorder struct {
	observers []Observer
	queues    []*queue
	log       *slog.Logger
	flush     time.Duration
	wake      chan struct{}
	dropped   atomic.Uint64

	mu  sync.Mutex // guards the field below
	buf []Event
}

// New makes a Recorder. Facts emitted before Run wait, up to the bound.
func New(o Options) *Recorder {
	r := &Recorder{observers: o.Observers, log: o.Log, flush: o.FlushWithin, wake: make(chan struct{}, 1), buf: make([]Event, 0, bufferSize)}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if r.flush <= 0 {
		r.flush = flushWithin
	}
	for _, s := range o.Readers {
		r.queues = append(r.queues, &queue{source: s, more: make(chan struct{}, 1), half: make(chan struct{}, 1)})
	}
	return r
}

// Emit records one fact. It never blocks and does not allocate; where the buffer is full the fact is counted as dropped.
// A Record in it belongs to the readers from then on. A zero Time is filled in.
func (r *Recorder) Emit(e Event) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	for _, o := range r.observers {
		o.Observe(e) // by value: a pointer would put each event on the heap
	}
	r.mu.Lock()
	n := len(r.buf)
	if n < bufferSize {
		r.buf = append(r.buf, e)
	}
	r.mu.Unlock()
	switch n {
	case bufferSize:
		r.dropped.Add(1)
	case bufferSize / 2: // once per fill, not per fact
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// Dropped is how many facts were lost since the start, by reader; "emit" stands for those that no reader got.
func (r *Recorder) Dropped() map[string]uint64 {
	d := map[string]uint64{"emit": r.dropped.Load()}
	for _, q := range r.queues {
		d[q.source.Name] = q.dropped.Load()
	}
	return d
}

// Run hands facts on, at each tick and when the buffer is half full, until ctx ends. Then it gives the readers what is
// left and waits for them within FlushWithin; a reader that still blocks is left behind.
func (r *Recorder) Run(ctx context.Context) {
	readCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var wg sync.WaitGroup
	for _, q := range r.queues {
		wg.Go(func() { q.run(readCtx) })
	}
	r.pump(ctx)
	for _, q := range r.queues {
		q.close()
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(r.flush):
		stop() // a reader that honours its context still ends
		r.log.Warn("some events could not be flushed", "dur", r.flush)
	}
}

// pump moves facts from the buffer to the queues until ctx ends.
func (r *Recorder) pump(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	spare := make([]Event, 0, bufferSize)
	var told uint64
	var at time.Time
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-tick.C:
		case <-r.wake:
		}
		r.mu.Lock()
		full := r.buf
		r.buf = spare
		r.mu.Unlock()
		for _, q := range r.queues {
			if len(full) > 0 {
				q.put(full)
			}
		}
		clear(full) // let the records go
		spare = full[:0]
		if n := r.lost(); n > told && (ended || time.Since(at) >= tellEvery) {
			r.log.Warn("events dropped", "count", n-told, "total", n)
			told, at = n, time.Now()
		}
	}
}

func (r *Recorder) lost() uint64 {
	n := r.dropped.Load()
	for _, q := range r.queues {
		n += q.dropped.Load()
	}
	return n
}

// queue is the buffer of one reader.
type queue struct {
	source  Source
	more    chan struct{}
	half    chan struct{} // the buffer is half full, or closed
	dropped atomic.Uint64

	mu     sync.Mutex // guards the fields below
	events []Event
	closed bool
}

func (q *queue) put(batch []Event) {
	q.mu.Lock()
	before := len(q.events)
	var lost uint64
	for i := range batch {
		if q.source.Wants != nil && !q.source.Wants(&batch[i]) {
			continue
		}
		if len(q.events) >= readerSize {
			lost++
			continue
		}
		q.events = append(q.events, batch[i])
	}
	after := len(q.events)
	q.mu.Unlock()
	q.dropped.Add(lost)
	if after > before {
		signal(q.more)
	}
	if after >= readerSize/2 {
		signal(q.half)
	}
}

func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	signal(q.more)
	signal(q.half)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// gather waits for facts, and then for more of them while the reader's pause lasts.
func (q *queue) gather(ctx context.Context) {
	select {
	case <-q.more:
	case <-ctx.Done():
		return
	}
	if q.source.Pause <= 0 {
		return
	}
	t := time.NewTimer(q.source.Pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-q.half:
	case <-ctx.Done():
	}
}

// run reads until the queue is closed and empty, or ctx ends.
func (q *queue) run(ctx context.Context) {
	var own []Event
	for {
		q.mu.Lock()
		own, q.events = q.events, own[:0]
		closed := q.closed
		q.mu.Unlock()
		for rest := own; len(rest) > 0 && ctx.Err() == nil; {
			n := min(len(rest), batchSize)
			q.source.Reader.Read(ctx, rest[:n])
			rest = rest[n:]
		}
		if closed || ctx.Err() != nil { // nothing is put after the close
			return
		}
		clear(own)
		if cap(own) > batchSize { // a burst's memory is given back
			own = nil
		}
		if q.gather(ctx); ctx.Err() != nil {
			return
		}
	}
}
