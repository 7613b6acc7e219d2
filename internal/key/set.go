package key

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/store"
)

// WatchEvery is how often Watch looks for changes by other processes.
const WatchEvery = 400 * time.Millisecond

// Set is all keys in memory. All methods are safe for concurrent use.
type Set struct {
	store *store.Store
	log   *slog.Logger
	keys  atomic.Pointer[map[string]*Key] // by prefix; replaced whole

	mu    sync.Mutex // guards the fields below; never held while a key is verified
	usage map[string]*usage
	subs  []func(gone []string)
}

// NewSet reads all keys of st. log takes what Watch meets; nil is silent.
func NewSet(ctx context.Context, st *store.Store, log *slog.Logger) (*Set, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Set{store: st, log: log, usage: map[string]*usage{}}
	s.keys.Store(&map[string]*Key{})
	if err := s.Reload(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Len is how many keys are usable at now.
func (s *Set) Len(now time.Time) int {
	n := 0
	for _, k := range *s.keys.Load() {
		if k.Usable(now) {
			n++
		}
	}
	return n
}

// Verify finds the key of a printable token. Every failure is the same ErrUnauthorized, whatever was wrong, and costs
// the same: one hash of a whole key and one comparison. The hash is over the exact token, so that no two tokens
// can be taken for each other. It never blocks and does not allocate.
func (s *Set) Verify(token string, now time.Time) (*Key, error) {
	var whole [tokenLen]byte
	formed := len(token) == tokenLen && token[:len(lead)] == lead
	if formed {
		copy(whole[:], token)
	}
	k := (*s.keys.Load())[string(whole[len(lead):len(lead)+prefixLen])]
	known := k != nil
	if !known {
		k = &nobody
	}
	sum := sha256.Sum256(whole[:])
	same := subtle.ConstantTimeCompare(sum[:], k.hash[:]) == 1
	if !formed || !known || !same || !k.Usable(now) {
		return nil, ErrUnauthorized
	}
	return k, nil
}

// nobody is compared with when the prefix is unknown. No token has its hash.
var nobody Key

// Subscribe makes f hear the prefixes of keys that have been revoked or removed, so that what runs under them can be
// ended. f is called by Reload and Watch, one call at a time, and must not block. Subscribe before Watch runs.
func (s *Set) Subscribe(f func(gone []string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subs = append(s.subs, f)
}

// Reload reads all keys again. On an error the keys in memory stay. A damaged row is left out, with an error in the log.
func (s *Set) Reload(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows, err := s.store.Keys(ctx)
	if err != nil {
		return err
	}
	next, names := make(map[string]*Key, len(rows)), map[string]*usage{}
	for i := range rows {
		k, err := fromRow(&rows[i])
		if err != nil {
			s.log.Error("key left out", "err", err)
			continue
		}
		if k.usage = s.usage[k.Name]; k.usage == nil {
			k.usage = &usage{}
		}
		s.usage[k.Name], names[k.Name] = k.usage, k.usage
		next[k.Prefix] = k
	}
	s.usage = names
	before := *s.keys.Swap(&next)
	if gone := revoked(before, next); len(gone) > 0 {
		for _, f := range s.subs {
			f(gone)
		}
	}
	return nil
}

// revoked lists what was not revoked before and is so, or is missing, in next.
func revoked(before, next map[string]*Key) []string {
	var gone []string
	for p, k := range before {
		if n := next[p]; k.Revoked.IsZero() && (n == nil || !n.Revoked.IsZero()) {
			gone = append(gone, p)
		}
	}
	return gone
}

// Watch follows changes by other processes, within 1 s, until ctx ends. While the store cannot be read the keys in
// memory serve.
func (s *Set) Watch(ctx context.Context) {
	tick := time.NewTicker(WatchEvery)
	defer tick.Stop()
	seen, failing := int64(-1), false
	for {
		v, err := s.store.DataVersion(ctx)
		if err == nil && v != seen {
			if err = s.Reload(ctx); err == nil {
				seen = v
			}
		}
		if err != nil && !failing && ctx.Err() == nil {
			s.log.Error("keys cannot be read: those in memory go on serving", "err", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
