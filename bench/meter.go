package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// sampleEvery is how often the resident set is looked at for its peak.
const sampleEvery = 20 * time.Millisecond

// usageMark is the processor time used up to one moment.
type usageMark struct {
	at                  time.Time
	gateway, load, busy time.Duration
}

// span is what was used between two marks.
type span struct{ wall, gateway, load, other time.Duration }

// resident is the memory of the measured process over a run, in KiB.
type resident struct{ before, peak, after float64 }

// meter reads the cost of the gateway around a measured window, and samples its
// memory from start to close.
type meter struct {
	plan plan
	from usageMark
	span span

	quit chan struct{}
	done sync.WaitGroup
	rss  resident // owned by the sampler until close
}

func startMeter(p plan) (*meter, error) {
	m := &meter{plan: p, quit: make(chan struct{})}
	if err := m.restart(); err != nil {
		return nil, err
	}
	if p.pid == 0 {
		return m, nil
	}
	var err error
	if m.rss.before, err = residentKiB(p.pid); err != nil {
		return nil, err
	}
	m.rss.peak = m.rss.before
	m.done.Go(m.sample)
	return m, nil
}

func (m *meter) sample() {
	t := time.NewTicker(sampleEvery)
	defer t.Stop()
	for {
		select {
		case <-m.quit:
			return
		case <-t.C:
		}
		if kib, err := residentKiB(m.plan.pid); err == nil {
			m.rss.after = kib
			m.rss.peak = max(m.rss.peak, kib)
		}
	}
}

// mark reads all clocks. Processes that are not measured count as nothing.
func (m *meter) mark() (usageMark, error) {
	k := usageMark{at: time.Now()}
	if m.plan.pid == 0 {
		return k, nil
	}
	var errs [4]error
	var own, mock time.Duration
	k.gateway, errs[0] = cpuTime(m.plan.pid)
	own, errs[1] = cpuTime(os.Getpid())
	if m.plan.mockPID != 0 && m.plan.mockPID != m.plan.pid {
		mock, errs[2] = cpuTime(m.plan.mockPID)
	}
	k.load = own + mock
	k.busy, errs[3] = busyTime()
	return k, errors.Join(errs[:]...)
}

// restart opens the window anew.
func (m *meter) restart() (err error) {
	m.from, err = m.mark()
	return err
}

// stop closes the window.
func (m *meter) stop() error {
	to, err := m.mark()
	if err != nil {
		return err
	}
	s := span{wall: to.at.Sub(m.from.at), gateway: to.gateway - m.from.gateway, load: to.load - m.from.load}
	s.other = max(0, to.busy-m.from.busy-s.gateway-s.load)
	m.span = s
	return nil
}

// close ends the sampling and returns what it saw. It must be called once.
func (m *meter) close() resident {
	close(m.quit)
	m.done.Wait()
	return m.rss
}

// tally counts what connections saw; times are nanoseconds.
type tally struct {
	took, first           []int64
	chunks, dials         int64
	errors, broken, short int64
	firstErr              error
}

func (t *tally) bad() int64 { return t.errors + t.broken + t.short }

func (t *tally) fault(err error) {
	switch {
	case errors.Is(err, errBroken):
		t.broken++
	case errors.Is(err, errShort):
		t.short++
	default:
		t.errors++
	}
	if t.firstErr == nil {
		t.firstErr = err
	}
}

func (t *tally) add(o *tally) {
	t.took, t.first = append(t.took, o.took...), append(t.first, o.first...)
	t.chunks, t.dials = t.chunks+o.chunks, t.dials+o.dials
	t.errors, t.broken, t.short = t.errors+o.errors, t.broken+o.broken, t.short+o.short
	if t.firstErr == nil {
		t.firstErr = o.firstErr
	}
}

func (t *tally) result(s span) result {
	slices.Sort(t.took)
	slices.Sort(t.first)
	seconds := s.wall.Seconds()
	r := result{
		Dials: t.dials, Seconds: seconds, Requests: int64(len(t.took)), Errors: t.errors, Broken: t.broken, Short: t.short,
		Chunks: t.chunks, PerSecond: float64(len(t.took)) / seconds,
		P50: percentile(t.took, 50), P99: percentile(t.took, 99), FirstP50: percentile(t.first, 50), FirstP99: percentile(t.first, 99),
		GatewayCores: s.gateway.Seconds() / seconds, LoadCores: s.load.Seconds() / seconds, OtherCores: s.other.Seconds() / seconds,
	}
	micros := float64(s.gateway) / float64(time.Microsecond)
	if n := r.Requests + r.bad(); n > 0 {
		r.CPURequest = micros / float64(n)
	}
	if r.Chunks > 0 {
		r.CPUChunk = micros / float64(r.Chunks)
	}
	if t.firstErr != nil {
		r.FirstError = fmt.Sprint(t.firstErr)
	}
	return r
}
