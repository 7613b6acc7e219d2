package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	growthWarm     = 20_000  // requests until pools, caches and rings are full
	growthRequests = 100_000 // requests after which memory must be as before
	growthReadings = 7       // on each side
	growthBetween  = 2_000   // requests from one reading to the next
	growthNoise    = 2.0     // MiB by which a Go heap differs from one look to the next
	mib            = 1024.0  // KiB
)

// footprint measures what a process needs before, and after, all the traffic:
// time to the first proxied answer, idle memory, and growth.
func (b *bench) footprint(ctx context.Context) error {
	subjects := []string{revproxy}
	if b.opts.weir != "" {
		subjects = append(subjects, weir)
	}
	if b.chosen[caseStart] || b.chosen[caseIdle] {
		for round := range b.opts.rounds {
			for _, s := range subjects {
				if err := b.firstAnswer(ctx, s, round); err != nil {
					return err
				}
			}
		}
	}
	if !b.chosen[caseGrowth] {
		return nil
	}
	for _, s := range subjects {
		if err := b.onFresh(ctx, s, func(p *process) error { return b.growth(ctx, s, p) }); err != nil {
			return fmt.Errorf("case %s, %s: %w", caseGrowth, s, err)
		}
	}
	return nil
}

// firstAnswer starts a subject, times its first proxied 200 and then looks at its
// memory after two idle seconds.
func (b *bench) firstAnswer(ctx context.Context, subject string, round int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyWithin, errors.New("no proxied 200 in time"))
	defer cancel()
	c, err := newClient(ctx, plan{addr: b.programs[subject].addr, key: b.programs[subject].key, model: modelPlain, body: bodySmall, connections: 1})
	if err != nil {
		return err
	}
	defer c.shut()
	began := time.Now()
	p, err := start(b.programs[subject])
	if err != nil {
		return err
	}
	defer p.stop()
	if err := pinThread(b.opts.loadCore); err != nil {
		return err
	}
	err = p.poll(ctx, time.Millisecond, func() error {
		err := c.roundTrip(ctx)
		if err != nil {
			c.shut()
		}
		return err
	})
	if err != nil {
		return err
	}
	ms := float64(time.Since(began)) / float64(time.Millisecond)
	b.book.sample(caseStart, subject, ms)
	fmt.Fprintf(b.log, "round %d  start      %-15s first 200 after %.1f ms\n", round+1, subject, ms)
	if !b.chosen[caseIdle] {
		return nil
	}
	if err := settle(ctx, 2*time.Second); err != nil {
		return err
	}
	kib, err := residentKiB(p.pid())
	if err != nil {
		return err
	}
	b.book.sample(caseIdle, subject, kib/mib)
	fmt.Fprintf(b.log, "round %d  idle       %-15s %.1f MiB\n", round+1, subject, kib/mib)
	return nil
}

// growth compares the resident set before and after many requests on a process
// that is already warm. One reading swings by some MiB with where the garbage
// collector stands, so each side is the median of several.
func (b *bench) growth(ctx context.Context, subject string, p *process) error {
	var kib [2]float64
	for i, n := range []int{growthWarm, growthRequests} {
		if err := b.some(ctx, p, n); err != nil {
			return err
		}
		var readings []float64
		for range growthReadings {
			if err := b.some(ctx, p, growthBetween); err != nil {
				return err
			}
			if err := settle(ctx, time.Second); err != nil {
				return err
			}
			now, err := residentKiB(p.pid())
			if err != nil {
				return err
			}
			readings = append(readings, now)
		}
		kib[i] = median(readings)
	}
	b.book.sample(caseGrowth, subject, (kib[1]-kib[0])/mib)
	fmt.Fprintf(b.log, "growth   %-15s %.1f MiB after %d requests, %.1f MiB after %d more\n", subject, kib[0]/mib, growthWarm, kib[1]/mib, growthRequests)
	return nil
}

// some sends n small requests, all of which must succeed.
func (b *bench) some(ctx context.Context, p *process, n int) error {
	r, err := b.load(ctx, p, plan{model: modelPlain, body: bodySmall, connections: 64, requests: n})
	if err != nil {
		return err
	}
	if r.bad() > 0 {
		return fmt.Errorf("%d of %d requests failed: %s", r.bad(), n, r.FirstError)
	}
	return nil
}
