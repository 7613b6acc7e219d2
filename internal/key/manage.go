package key

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/internal/store"
)

// Bounds of what a key may be given.
const (
	maxName     = 64
	maxAliases  = 256
	maxRPM      = 100_000 // its window is kept exactly: some 40 bytes per request in it
	maxTPM      = 1_000_000_000
	maxAtOnce   = 1_000_000
	maxSpend    = 1_000_000_000 * dollar // of nano-dollars
	dollar      = 1_000_000_000
	maxPriority = 1000
	minKeep     = time.Minute
	maxKeep     = 365 * 24 * time.Hour
)

// Spec is what a new key is to be.
type Spec struct {
	Name          string
	Aliases       []string
	Boundary      string    // empty: Any
	Expires       time.Time // zero: never
	Priority      int
	RPM           int
	TPM           int64
	Concurrent    int
	SpendDay      int64         // nano-dollars
	SpendMonth    int64         // nano-dollars
	KeepResponses time.Duration // zero: not at all
}

// Change says who changes keys and when. A Set of the same process must be Reloaded afterwards; other processes see
// the change by their Watch.
type Change struct {
	Store *store.Store
	Actor string // for the audit row
	Now   time.Time
}

// ErrNone is wrapped by the errors of Revoke and Rotate when there is no such key.
var ErrNone = errors.New("no such key")

// Add makes a key. The token is the only copy of the secret there ever is. A name that a usable key has is refused.
func (c Change) Add(ctx context.Context, spec Spec) (token string, k Key, err error) {
	if err := spec.check(c.Now); err != nil {
		return "", Key{}, err
	}
	err = c.Store.ChangeKeys(ctx, func(rows []store.Key) ([]store.Key, store.Fact, error) {
		for i := range rows {
			old, err := fromRow(&rows[i])
			if err == nil && old.Name == spec.Name && old.Usable(c.Now) {
				return nil, store.Fact{}, fmt.Errorf("a key named %s exists (%s): choose another name, or `weir keys rotate %s`", spec.Name, old.Prefix, spec.Name)
			}
		}
		token, k = newKey(rows, spec, c.Now)
		return []store.Key{k.row()}, c.audit("key added", &k, describe(&k)), nil
	})
	return token, k, err
}

// Revoke ends all keys of a name, or the one with a prefix, and returns them. The revoking cannot be undone.
func (c Change) Revoke(ctx context.Context, nameOrPrefix string) (gone []Key, err error) {
	err = c.Store.ChangeKeys(ctx, func(rows []store.Key) ([]store.Key, store.Fact, error) {
		gone = nil
		var write []store.Key
		for _, r := range match(rows, nameOrPrefix) {
			if r.Revoked.IsZero() {
				r.Revoked = c.Now
				write = append(write, r)
				gone = append(gone, Key{Name: r.Name, Prefix: r.Prefix, Revoked: r.Revoked})
			}
		}
		if len(gone) == 0 {
			return nil, store.Fact{}, missing(rows, nameOrPrefix)
		}
		var prefixes []string
		for _, k := range gone {
			prefixes = append(prefixes, k.Prefix)
		}
		return write, c.audit("key revoked", &gone[0], "prefixes "+strings.Join(prefixes, ", ")), nil
	})
	return gone, err
}

// Rotate makes a successor with the same rights and counts; the old key works on for the overlap, but never past its
// own expiry. A key that expires gets a successor with the same span of life.
func (c Change) Rotate(ctx context.Context, nameOrPrefix string, overlap time.Duration) (token string, k Key, err error) {
	if overlap < 0 {
		return "", Key{}, errors.New("the overlap must not be negative")
	}
	err = c.Store.ChangeKeys(ctx, func(rows []store.Key) ([]store.Key, store.Fact, error) {
		var old *store.Key
		for _, r := range match(rows, nameOrPrefix) {
			if r.Revoked.IsZero() && r.RotatedUntil.IsZero() {
				old = &r
			}
		}
		if old == nil {
			return nil, store.Fact{}, missing(rows, nameOrPrefix)
		}
		spec := Spec{Name: old.Name, Aliases: old.Aliases, Boundary: old.Boundary, Priority: old.Priority, RPM: old.RPM, TPM: old.TPM,
			Concurrent: old.Concurrent, SpendDay: old.SpendDay, SpendMonth: old.SpendMonth, KeepResponses: old.KeepResponses}
		if !old.Expires.IsZero() {
			spec.Expires = c.Now.Add(old.Expires.Sub(old.Created))
		}
		token, k = newKey(rows, spec, c.Now)
		old.RotatedUntil = c.Now.Add(overlap)
		return []store.Key{*old, k.row()}, c.audit("key rotated", &k, fmt.Sprintf("replaces %s, which works until %s", old.Prefix,
			old.RotatedUntil.UTC().Format(time.RFC3339))), nil
	})
	return token, k, err
}

// List returns all keys, oldest first, without any secret. Damaged rows are left out.
func List(ctx context.Context, st *store.Store) ([]Key, error) {
	rows, err := st.Keys(ctx)
	if err != nil {
		return nil, err
	}
	keys := make([]Key, 0, len(rows))
	for i := range rows {
		if k, err := fromRow(&rows[i]); err == nil {
			keys = append(keys, *k)
		}
	}
	return keys, nil
}

func newKey(rows []store.Key, spec Spec, now time.Time) (string, Key) {
	token, prefix, hash := generate()
	for slices.ContainsFunc(rows, func(r store.Key) bool { return r.Prefix == prefix }) {
		token, prefix, hash = generate()
	}
	if spec.Boundary == "" {
		spec.Boundary = Any
	}
	return token, Key{
		Name: spec.Name, Prefix: prefix, Aliases: spec.Aliases, Boundary: spec.Boundary, Priority: spec.Priority, RPM: spec.RPM,
		TPM: spec.TPM, Concurrent: spec.Concurrent, SpendDay: spec.SpendDay, SpendMonth: spec.SpendMonth, KeepResponses: spec.KeepResponses, Created: now, Expires: spec.Expires, hash: hash,
	}
}

// match finds rows by name or, where no row has the name, by prefix.
func match(rows []store.Key, nameOrPrefix string) []store.Key {
	var named, prefixed []store.Key
	for _, r := range rows {
		if r.Name == nameOrPrefix {
			named = append(named, r)
		}
		if r.Prefix == strings.TrimPrefix(nameOrPrefix, lead) {
			prefixed = append(prefixed, r)
		}
	}
	if named != nil {
		return named
	}
	return prefixed
}

func missing(rows []store.Key, nameOrPrefix string) error {
	if len(nameOrPrefix) >= tokenLen {
		return fmt.Errorf("%w: give the name or the prefix, never the whole key", ErrNone) // and never repeat it
	}
	if len(match(rows, nameOrPrefix)) > 0 {
		return fmt.Errorf("%w: %q is revoked or replaced already; see `weir keys list`", ErrNone, nameOrPrefix)
	}
	return fmt.Errorf("%w: no name or prefix is %q; see `weir keys list`", ErrNone, nameOrPrefix)
}

func (c Change) audit(what string, k *Key, detail string) store.Fact {
	return store.Fact{Time: c.Now, Event: "audit", Actor: c.Actor, To: "key " + k.Name + " (" + k.Prefix + ")", Detail: what + ": " + detail}
}

func describe(k *Key) string {
	aliases, expires := "all aliases", "never expires"
	if len(k.Aliases) > 0 {
		aliases = "aliases " + strings.Join(k.Aliases, " ")
	}
	if !k.Expires.IsZero() {
		expires = "expires " + k.Expires.UTC().Format(time.RFC3339)
	}
	text := fmt.Sprintf("%s, boundary %s, %s, priority %d, rpm %d, concurrent %d", aliases, k.Boundary, expires, k.Priority, k.RPM, k.Concurrent)
	if k.TPM > 0 {
		text += fmt.Sprintf(", tpm %d", k.TPM)
	}
	if k.SpendDay > 0 {
		text += ", spends at most " + usd(k.SpendDay) + " USD a day"
	}
	if k.SpendMonth > 0 {
		text += ", spends at most " + usd(k.SpendMonth) + " USD a month"
	}
	if k.KeepResponses > 0 {
		text += fmt.Sprintf(", keeps responses for %v", k.KeepResponses)
	}
	return text
}

// usd writes nano-dollars as dollars, exactly.
func usd(nanos int64) string {
	text := fmt.Sprintf("%d.%09d", nanos/dollar, nanos%dollar)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".")
}

// check tells every fault of the spec at once.
func (s *Spec) check(now time.Time) error {
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	fault(!isName(s.Name), "name %q: use 1 to %d letters, digits, and . _ - @", s.Name, maxName)
	fault(len(s.Aliases) > maxAliases, "aliases: at most %d", maxAliases)
	for _, a := range s.Aliases {
		fault(!isPattern(a), "alias %q: write a name, a prefix followed by *, or *", a)
	}
	fault(s.Boundary != "" && s.Boundary != Any && s.Boundary != Local, "boundary %q: must be %s or %s", s.Boundary, Any, Local)
	fault(!s.Expires.IsZero() && !s.Expires.After(now), "expires: must lie in the future")
	fault(s.Priority < -maxPriority || s.Priority > maxPriority, "priority %d: must be between %d and %d", s.Priority, -maxPriority, maxPriority)
	fault(s.RPM < 0 || s.RPM > maxRPM, "rpm %d: must be between 0 (no limit) and %d", s.RPM, maxRPM)
	fault(s.TPM < 0 || s.TPM > maxTPM, "tpm %d: must be between 0 (no limit) and %d", s.TPM, maxTPM)
	fault(s.SpendDay < 0 || s.SpendDay > maxSpend, "spend-day: must be between 0 (no ceiling) and %d USD", maxSpend/dollar)
	fault(s.SpendMonth < 0 || s.SpendMonth > maxSpend, "spend-month: must be between 0 (no ceiling) and %d USD", maxSpend/dollar)
	fault(s.Concurrent < 0 || s.Concurrent > maxAtOnce, "concurrent %d: must be between 0 (no limit) and %d", s.Concurrent, maxAtOnce)
	fault(s.KeepResponses != 0 && (s.KeepResponses < minKeep || s.KeepResponses > maxKeep),
		"keep-responses %v: must be between 1m and 365d, or 0 (not at all)", s.KeepResponses)
	return errors.Join(errs...)
}

func isName(s string) bool {
	return s != "" && len(s) <= maxName && strings.Trim(s, alphabet+"._-@") == "" &&
		!strings.ContainsFunc(s, func(r rune) bool { return !strings.ContainsRune(alphabet+"._-@", r) })
}

func isPattern(s string) bool {
	body := strings.TrimSuffix(s, "*")
	return s != "" && len(s) <= 256 && !strings.Contains(body, "*") &&
		!strings.ContainsFunc(body, func(r rune) bool { return r <= ' ' || r == 0x7f || r == 0xfffd })
}
