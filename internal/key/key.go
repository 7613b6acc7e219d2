// Package key issues, verifies, rotates and revokes the keys that clients call with. Only hashes are kept. Verifying
// never reads the store: a Set holds all keys in memory and follows the changes of other processes.
package key

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"math/big"
	"strings"
	"time"

	"weir/internal/store"
)

// A printable key is lead, 8 characters of public prefix, "_" and 43 characters that hold 256 random bits.
const (
	lead      = "weir_"
	prefixLen = 8
	secretLen = 43
	tokenLen  = len(lead) + prefixLen + 1 + secretLen
)

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Boundaries of a key.
const (
	Any   = "any"
	Local = "local" // requests never leave the machines you own
)

// Key is one key without its secret. It is read-only once it is in a Set.
type Key struct {
	Name          string
	Prefix        string // public
	Aliases       []string
	Boundary      string        // Any or Local
	Priority      int           // higher goes first
	RPM           int           // requests in any 60 s; 0 means no limit
	TPM           int64         // tokens in any 60 s; 0 means no limit
	Concurrent    int           // requests at the same time; 0 means no limit
	SpendDay      int64         // nano-dollars in a day; 0 means no ceiling
	SpendMonth    int64         // nano-dollars in a month; 0 means no ceiling
	KeepResponses time.Duration // how long its responses are kept for later requests; 0 means not at all
	Created       time.Time
	Expires       time.Time // zero: never
	Revoked       time.Time // zero: not revoked
	RotatedUntil  time.Time // zero: not replaced; else the end of the overlap with its successor

	hash  [sha256.Size]byte
	usage *usage // shared by all keys of the same name
}

// Allows reports whether the key may ask for alias: no patterns allow all; a pattern is a name, a prefix and "*", or "*".
func (k *Key) Allows(alias string) bool {
	if len(k.Aliases) == 0 {
		return true
	}
	for _, p := range k.Aliases {
		if p == alias {
			return true
		}
		if head, ok := strings.CutSuffix(p, "*"); ok && strings.HasPrefix(alias, head) {
			return true
		}
	}
	return false
}

// Usable reports whether the key opens anything at now.
func (k *Key) Usable(now time.Time) bool {
	return k.Revoked.IsZero() &&
		(k.Expires.IsZero() || now.Before(k.Expires)) &&
		(k.RotatedUntil.IsZero() || now.Before(k.RotatedUntil))
}

// State names what the key is at now: active, rotated (in its overlap), expired or revoked.
func (k *Key) State(now time.Time) string {
	switch {
	case !k.Revoked.IsZero():
		return "revoked"
	case !k.Usable(now):
		return "expired"
	case !k.RotatedUntil.IsZero():
		return "rotated"
	}
	return "active"
}

// generate makes a new printable key. It is the only place that ever has it whole.
func generate() (token, prefix string, hash [sha256.Size]byte) {
	var secret [32]byte
	rand.Read(secret[:]) // never fails since Go 1.24
	var p [prefixLen]byte
	rand.Read(p[:])
	prefix = base62(new(big.Int).SetBytes(p[:]), prefixLen)
	token = lead + prefix + "_" + base62(new(big.Int).SetBytes(secret[:]), secretLen)
	return token, prefix, sha256.Sum256([]byte(token))
}

// base62 writes the lowest width digits of n.
func base62(n *big.Int, width int) string {
	b := make([]byte, width)
	base, digit := big.NewInt(int64(len(alphabet))), new(big.Int)
	for i := width - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		b[i] = alphabet[digit.Int64()]
	}
	return string(b)
}

func fromRow(r *store.Key) (*Key, error) {
	k := &Key{
		Name: r.Name, Prefix: r.Prefix, Aliases: r.Aliases, Boundary: r.Boundary, Priority: r.Priority, RPM: r.RPM, TPM: r.TPM, Concurrent: r.Concurrent,
		SpendDay: r.SpendDay, SpendMonth: r.SpendMonth, KeepResponses: r.KeepResponses, Created: r.Created, Expires: r.Expires, Revoked: r.Revoked, RotatedUntil: r.RotatedUntil,
	}
	if len(r.Hash) != len(k.hash) || len(r.Prefix) != prefixLen {
		return nil, fmt.Errorf("key %s in the store is damaged: revoke it and add another", r.Prefix)
	}
	if k.RPM < 0 || k.TPM < 0 || k.Concurrent < 0 || k.SpendDay < 0 || k.SpendMonth < 0 { // never a key without the limits it was given
		return nil, fmt.Errorf("key %s in the store has a limit below zero: revoke it and add another", r.Prefix)
	}
	if k.Boundary != Any && k.Boundary != Local {
		return nil, fmt.Errorf("key %s in the store has boundary %q: revoke it and add another", r.Prefix, r.Boundary)
	}
	copy(k.hash[:], r.Hash)
	return k, nil
}

func (k *Key) row() store.Key {
	return store.Key{
		Name: k.Name, Prefix: k.Prefix, Hash: k.hash[:], Aliases: k.Aliases, Boundary: k.Boundary, Priority: k.Priority, RPM: k.RPM,
		TPM: k.TPM, Concurrent: k.Concurrent, SpendDay: k.SpendDay, SpendMonth: k.SpendMonth, KeepResponses: k.KeepResponses, Created: k.Created, Expires: k.Expires, Revoked: k.Revoked, RotatedUntil: k.RotatedUntil,
	}
}
