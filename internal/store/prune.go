package store

import (
	"context"
	"errors"
	"os"
	"time"
)

const (
	pruneEvery = time.Minute
	pruneStep  = 500                   // rows of one transaction: a few milliseconds of the writer's time
	prunePause = 20 * time.Millisecond // between steps, so that writers come through
	vacuumStep = "256"                 // pages given back at a time
)

// Run deletes what is older than Keep and, beyond MaxSize, what is oldest, and responses that have expired, in small
// steps, until ctx ends. It also says so, loudly and once, when the file was taken away under the running Weir.
func (s *Store) Run(ctx context.Context) {
	tick := time.NewTicker(pruneEvery)
	defer tick.Stop()
	var gone bool
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if is := s.replaced(); is && !gone {
			s.log.Error("store file was removed or replaced: what is recorded now is lost at the next start; restart Weir", "path", s.path)
			gone = true
		}
		if err := s.Prune(ctx, time.Now()); err != nil && ctx.Err() == nil {
			s.log.Warn("pruning stopped", "err", err)
		}
	}
}

// Prune does what Run does every minute, at once.
func (s *Store) Prune(ctx context.Context, now time.Time) error {
	for _, table := range []string{"requests", "facts", "alerts"} {
		if err := s.pruneOlder(ctx, table, now.Add(-s.opts.Keep)); err != nil {
			return err
		}
	}
	if err := s.pruneResponses(ctx, now); err != nil {
		return err
	}
	if err := s.pruneDeliveries(ctx); err != nil {
		return err
	}
	return s.pruneSize(ctx)
}

func (s *Store) pruneOlder(ctx context.Context, table string, before time.Time) error {
	var deleted bool
	for {
		n, err := s.deleteStep(ctx, "DELETE FROM "+table+" WHERE id IN (SELECT id FROM "+table+" WHERE time < ? ORDER BY time LIMIT ?)",
			before.UnixMicro(), pruneStep)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		deleted = true
		if err := pause(ctx); err != nil {
			return err
		}
	}
	if !deleted {
		return nil
	}
	return s.vacuum(ctx)
}

// pruneSize deletes the oldest rows of the table whose rows reach back further, until what is in use fits.
func (s *Store) pruneSize(ctx context.Context) error {
	for {
		used, err := s.Size(ctx)
		if err != nil {
			return err
		}
		kept, err := s.responsesSize(ctx) // they have bounds of their own
		if err != nil || used-kept <= s.opts.MaxSize {
			return err
		}
		table, err := s.oldest(ctx)
		if err != nil || table == "" {
			return err
		}
		if _, err := s.deleteStep(ctx, "DELETE FROM "+table+" WHERE id IN (SELECT id FROM "+table+" ORDER BY time LIMIT ?)", pruneStep); err != nil {
			return err
		}
		if err := s.vacuum(ctx); err != nil {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// Size is how many bytes of the file are in use.
func (s *Store) Size(ctx context.Context) (int64, error) {
	var pages, free, size int64
	for _, p := range []struct {
		pragma string
		to     *int64
	}{{"page_count", &pages}, {"freelist_count", &free}, {"page_size", &size}} {
		if err := s.db.QueryRowContext(ctx, "PRAGMA "+p.pragma).Scan(p.to); err != nil {
			return 0, s.wrap("measuring", err)
		}
	}
	return (pages - free) * size, nil
}

func (s *Store) oldest(ctx context.Context) (string, error) {
	const never = int64(1<<63 - 1)
	var request, fact int64
	err := s.db.QueryRowContext(ctx, "SELECT coalesce((SELECT min(time) FROM requests), ?), coalesce((SELECT min(time) FROM facts), ?)",
		never, never).Scan(&request, &fact)
	switch {
	case err != nil:
		return "", s.wrap("pruning", err)
	case request == never && fact == never:
		return "", nil
	case request <= fact:
		return "requests", nil
	}
	return "facts", nil
}

func (s *Store) deleteStep(ctx context.Context, query string, args ...any) (int64, error) {
	res, err := s.db.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, s.wrap("pruning", err)
	}
	return res.RowsAffected()
}

// vacuum gives the free pages back to the file system, a few at a time.
func (s *Store) vacuum(ctx context.Context) error {
	for {
		var free int64
		if err := s.db.QueryRowContext(ctx, "PRAGMA freelist_count").Scan(&free); err != nil {
			return s.wrap("pruning", err)
		}
		if free == 0 {
			return nil
		}
		if err := s.vacuumOnce(ctx); err != nil {
			return s.wrap("pruning", err)
		}
		var left int64
		if err := s.db.QueryRowContext(ctx, "PRAGMA freelist_count").Scan(&left); err != nil || left >= free {
			return s.wrap("pruning", err) // a file without incremental vacuum keeps its free pages
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// vacuumOnce steps the pragma to its end: each row it returns is one page given back.
func (s *Store) vacuumOnce(ctx context.Context) error {
	rows, err := s.db.QueryContext(ctx, "PRAGMA incremental_vacuum("+vacuumStep+")")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
	}
	return rows.Err()
}

// replaced reports whether the path no longer names the file that is open.
func (s *Store) replaced() bool {
	st, err := os.Stat(s.path)
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	return s.info != nil && !os.SameFile(st, s.info)
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(prunePause):
		return nil
	}
}
