package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Phases of a run: only what is sent while measuring counts.
const (
	warming int32 = iota
	measuring
	ending
)

const (
	giveUp = 200              // failed requests that end a run early
	extend = 20 * time.Second // a window in which too little was answered stays open so much longer
)

// result is what one load run found; the JSON line of "bench load". Times are
// microseconds, memory is KiB.
type result struct {
	Subject      string  `json:"subject,omitempty"`
	Case         string  `json:"case,omitempty"`
	Round        int     `json:"round"`
	Connections  int     `json:"connections"`
	Dials        int64   `json:"dials"` // more than connections: the gateway closed some
	Seconds      float64 `json:"seconds"`
	Requests     int64   `json:"requests"` // whole and correct
	Errors       int64   `json:"errors"`
	Broken       int64   `json:"broken"` // streams without a proper end
	Short        int64   `json:"short"`  // streams with a proper end that lack something
	Chunks       int64   `json:"chunks"`
	PerSecond    float64 `json:"per_second"`
	P50          float64 `json:"p50_us"`
	P99          float64 `json:"p99_us"`
	FirstP50     float64 `json:"first_content_p50_us,omitempty"`
	FirstP99     float64 `json:"first_content_p99_us,omitempty"`
	CPURequest   float64 `json:"cpu_us_per_request,omitempty"`
	CPUChunk     float64 `json:"cpu_us_per_chunk,omitempty"`
	GatewayCores float64 `json:"gateway_cores"`
	LoadCores    float64 `json:"load_cores"`  // this process and the mock
	OtherCores   float64 `json:"other_cores"` // what else ran: how disturbed the run was
	RSSBefore    float64 `json:"rss_before_kib,omitempty"`
	RSSPeak      float64 `json:"rss_peak_kib,omitempty"`
	RSSAfter     float64 `json:"rss_after_kib,omitempty"`
	FirstError   string  `json:"first_error,omitempty"`
}

// bad is how many requests were not answered as they should have been.
func (r *result) bad() int64 { return r.Errors + r.Broken + r.Short }

func runLoad(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var p plan
	fs := flag.NewFlagSet("load", flag.ContinueOnError)
	p.flags(fs)
	if err := parseFlags(fs, args, stderr); err != nil {
		return err
	}
	if err := p.validate(); err != nil {
		return usageError{err}
	}
	debug.SetGCPercent(800) // it allocates next to nothing
	if err := raiseFiles(uint64(p.connections) + 64); err != nil {
		return err
	}
	r, err := load(ctx, p)
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(r)
}

// loader is one run while it goes on.
type loader struct {
	plan     plan
	raw      []byte
	check    func([]byte) error
	want     int // content chunks of a stream
	deadline time.Time

	phase   atomic.Int32
	counted atomic.Int64 // exchanges in the measured window
	left    atomic.Int64 // requests still to be made, for runs that end by count
	over    chan struct{}
	end     sync.Once

	mu    sync.Mutex // guards the fields below
	total tally
}

// load carries out p and waits for all of it. It returns an error only where it
// could not run; faults of the gateway are counted in the result.
func load(ctx context.Context, p plan) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limit())
	defer cancel()
	l, err := newLoader(ctx, p)
	if err != nil {
		return result{}, err
	}
	m, err := startMeter(p)
	if err != nil {
		return result{}, err
	}
	var workers sync.WaitGroup
	for i := range p.connections {
		workers.Go(func() { l.worker(ctx, i) })
	}
	err = l.conduct(ctx, m, &workers)
	l.stop()
	workers.Wait()
	rss := m.close()
	if err != nil {
		return result{}, err
	}
	if ctx.Err() != nil {
		return result{}, fmt.Errorf("the run was ended before it was complete: %w", context.Cause(ctx))
	}
	r := l.total.result(m.span)
	r.Connections, r.RSSBefore, r.RSSPeak, r.RSSAfter = p.connections, rss.before, rss.peak, rss.after
	return r, nil
}

// newLoader prepares a run that must be over when ctx is.
func newLoader(ctx context.Context, p plan) (*loader, error) {
	if err := p.validate(); err != nil {
		return nil, usageError{err}
	}
	raw, err := p.request()
	if err != nil {
		return nil, usageError{err}
	}
	l := &loader{plan: p, raw: raw, check: checkAnswer(p.model, p.assembled), want: parseModel(p.model).chunks, over: make(chan struct{})}
	l.deadline, _ = ctx.Deadline()
	l.left.Store(int64(p.requests))
	if p.once || p.requests > 0 {
		l.phase.Store(measuring)
	}
	return l, nil
}

// conduct opens and closes the measured window.
func (l *loader) conduct(ctx context.Context, m *meter, workers *sync.WaitGroup) error {
	if l.plan.once || l.plan.requests > 0 {
		workers.Wait()
		return m.stop()
	}
	l.pause(ctx, l.plan.ramp+l.plan.warm)
	if err := m.restart(); err != nil {
		return err
	}
	l.phase.Store(measuring)
	l.pause(ctx, l.plan.duration)
	// On a crowded machine nobody may have had a turn in that time.
	const look = 50 * time.Millisecond
	for waited := time.Duration(0); waited < extend && l.counted.Load() < int64(l.plan.connections); waited += look {
		l.pause(ctx, look)
	}
	l.phase.Store(ending)
	return m.stop()
}

// pause waits for d, or less when the run is over.
func (l *loader) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.over:
	case <-ctx.Done():
	}
}

func (l *loader) stop() {
	l.end.Do(func() {
		l.phase.CompareAndSwap(warming, ending)
		close(l.over)
	})
}

// worker is one connection.
func (l *loader) worker(ctx context.Context, i int) {
	l.pause(ctx, l.plan.ramp*time.Duration(i)/time.Duration(l.plan.connections))
	c := l.client()
	defer c.shut()
	for ctx.Err() == nil && l.next() {
		c.exchange(ctx)
		if l.plan.once {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total.add(&c.tally)
}

// next claims one more request.
func (l *loader) next() bool {
	select {
	case <-l.over:
		return false
	default:
	}
	if l.plan.requests > 0 {
		return l.left.Add(-1) >= 0
	}
	return l.phase.Load() != ending
}

// client is one keep-alive connection and what it has seen.
type client struct {
	*loader
	conn     net.Conn
	wire     *wire
	body     []byte
	events   events
	first    time.Time // of content, in the current exchange
	looked   bool
	onBody   func([]byte)
	onStream func([]byte)
	tally    tally
}

func (l *loader) client() *client {
	c := &client{loader: l, wire: newWire(nil)}
	c.onBody, c.onStream = c.keep, c.scan
	return c
}

// newClient is a single connection outside of any run.
func newClient(ctx context.Context, p plan) (*client, error) {
	l, err := newLoader(ctx, p)
	if err != nil {
		return nil, err
	}
	return l.client(), nil
}

func (c *client) keep(p []byte) { c.body = append(c.body, p...) }

func (c *client) scan(p []byte) {
	if c.events.feed(p); c.first.IsZero() && c.events.content > 0 {
		c.first = time.Now()
	}
}

// exchange makes one request and counts it if the window is open at its end.
func (c *client) exchange(ctx context.Context) {
	start := time.Now()
	err := c.roundTrip(ctx)
	if err != nil {
		c.shut()
	}
	if c.phase.Load() != measuring || ctx.Err() != nil {
		return
	}
	c.counted.Add(1)
	c.tally.chunks += int64(c.events.content)
	if err == nil {
		c.tally.took = append(c.tally.took, int64(time.Since(start)))
		if c.plan.stream {
			c.tally.first = append(c.tally.first, int64(c.first.Sub(start)))
		}
		return
	}
	if c.tally.fault(err); c.tally.bad() > giveUp {
		c.stop()
	}
	c.pause(ctx, time.Millisecond)
}

func (c *client) roundTrip(ctx context.Context) error {
	c.body, c.first = c.body[:0], time.Time{}
	c.events.reset()
	if c.conn == nil {
		if err := c.dial(ctx); err != nil {
			return err
		}
	}
	if _, err := c.conn.Write(c.raw); err != nil {
		return err
	}
	h, err := c.wire.readHead()
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	sink := c.onBody
	if c.plan.stream && h.status == 200 {
		sink = c.onStream
	}
	if err = c.wire.readBody(h, sink); err == nil && h.close {
		c.shut()
	}
	switch {
	case h.status != 200:
		return fmt.Errorf("status %d: %.300s", h.status, c.body)
	case c.plan.stream && err != nil:
		return fmt.Errorf("%w after %d chunks: %w", errBroken, c.events.content, err)
	case c.plan.stream:
		return c.events.verdict(c.want)
	case err != nil:
		return err
	}
	if !c.looked {
		c.looked = true
		if err := checkJSON(c.body); err != nil {
			return err
		}
	}
	return c.check(c.body)
}

func (c *client) dial(ctx context.Context) error {
	d := net.Dialer{Timeout: 10 * time.Second}
	conn, err := d.DialContext(ctx, "tcp", c.plan.addr)
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(c.deadline); err != nil {
		return errors.Join(err, conn.Close())
	}
	c.conn = conn
	c.wire.reset(conn)
	c.tally.dials++
	return nil
}

func (c *client) shut() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}
