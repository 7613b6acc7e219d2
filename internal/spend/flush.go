package spend

import (
	"context"
	"time"

	"weir/internal/store"
)

const (
	flushEvery = 250 * time.Millisecond
	pruneEvery = time.Hour
	patience   = 10 * time.Second // with a store that cannot be written
	lastWrite  = 2 * time.Second
	keepDays   = 400
)

// Run writes what changed to the store every 250 ms, and deletes what is older than 400 days, until ctx ends; then it
// writes for the last time. A write that failed is tried again, and the log says once that it fails. What a kill takes away
// is at most the calls of the last 250 ms.
func (b *Book) Run(ctx context.Context) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	var pruned time.Time
	for {
		if time.Since(pruned) > pruneEvery {
			pruned = time.Now()
			b.prune(ctx)
		}
		select {
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrite)
			defer cancel()
			_ = b.Flush(ctx) // it logs
			return
		case <-tick.C:
			_ = b.Flush(ctx)
		}
	}
}

// Flush writes what changed to the store, in one transaction. Call it when the last call has ended, after Run and before
// the store is closed: then nothing is held in the store any more. Where it fails, all of it is written the next time.
func (b *Book) Flush(ctx context.Context) error {
	b.writing.Lock()
	defer b.writing.Unlock()
	days, rows := b.changes()
	if len(days) == 0 {
		return nil
	}
	err := b.store.PutSpending(ctx, rows)
	b.written(days, err)
	switch {
	case err != nil && !b.failing && ctx.Err() == nil:
		b.failing = true
		b.log.Error("spending cannot be written: if that lasts, priced calls under a ceiling are refused", "err", err)
	case err == nil && b.failing:
		b.failing = false
		b.log.Info("spending is written again")
	}
	return err
}

// changes takes the list of days that the store must be told of.
func (b *Book) changes() ([]*day, []store.Spend) {
	b.mu.Lock()
	defer b.mu.Unlock()
	days := b.dirty
	rows := make([]store.Spend, 0, 2*len(days))
	for _, d := range days {
		d.dirty = false
		rows = d.rows(rows)
	}
	b.dirty, b.later = nil, time.Time{}
	return days, rows
}

// written says how the writing of days ended.
func (b *Book) written(days []*day, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.since = b.later
		return
	}
	for _, d := range days {
		if !d.dirty {
			d.dirty = true
			b.dirty = append(b.dirty, d)
		}
	}
}

// prune deletes what is old, in the store and here.
func (b *Book) prune(ctx context.Context) {
	b.writing.Lock()
	defer b.writing.Unlock()
	first, err := b.store.PruneSpending(ctx, dateOf(b.now())-keepDays)
	if err != nil {
		if ctx.Err() == nil {
			b.log.Warn("pruning stopped", "err", err)
		}
		return
	}
	if first == b.first {
		return
	}
	b.first = first
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total.forget(first)
	for _, all := range []map[string]*sheet{b.keys, b.pools} {
		for _, s := range all {
			s.forget(first)
		}
	}
}

// forget drops the days before first which the store has dropped: those it has been told of, in which no call runs.
func (s *sheet) forget(first int64) {
	for date, d := range s.days {
		if date < first && !d.dirty && d.calls == 0 {
			delete(s.days, date)
		}
	}
	s.last = nil
}
