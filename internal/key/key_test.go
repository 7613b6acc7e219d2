package key

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"weir/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openStore(t testing.TB, dir string) *store.Store {
	t.Helper()
	st, err := store.Open(context.Background(), dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// fixture is a store with a set and one key.
func fixture(t testing.TB, spec Spec) (*Set, *store.Store, string) {
	t.Helper()
	st := openStore(t, t.TempDir())
	token := add(t, st, spec)
	s, err := NewSet(context.Background(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, st, token
}

func add(t testing.TB, st *store.Store, spec Spec) string {
	t.Helper()
	token, _, err := Change{Store: st, Now: time.Now()}.Add(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestGenerated(t *testing.T) { // S01
	seen := map[string]bool{}
	for range 200 {
		token, prefix, hash := generate()
		if len(token) != tokenLen || token[:5] != "weir_" || token[5:13] != prefix || token[13] != '_' {
			t.Fatalf("odd token %q with prefix %q", token, prefix)
		}
		if seen[token] || seen[prefix] || hash == [32]byte{} {
			t.Fatalf("repeated or unhashed: %q", token)
		}
		seen[token], seen[prefix] = true, true
	}
	// 43 digits of base 62 hold 256 bits: the largest secret fits.
	if bits := 43 * 5.954; bits < 256 {
		t.Errorf("a secret holds %.1f bits only", bits)
	}
}

func TestVerifyFindsTheKey(t *testing.T) {
	s, _, token := fixture(t, Spec{Name: "laptop", Aliases: []string{"coder", "claude-*"}, Boundary: Local, Priority: 3, RPM: 5, Concurrent: 2, KeepResponses: time.Hour})
	k, err := s.Verify(token, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if k.Name != "laptop" || k.Boundary != Local || k.Priority != 3 || k.RPM != 5 || k.Concurrent != 2 || k.KeepResponses != time.Hour || k.Prefix != token[5:13] {
		t.Errorf("got %+v", k)
	}
}

// S03, C137, C140: whatever is wrong with a token, the answer is the same error, word for word.
func TestWrongTokensAreAllAnsweredAlike(t *testing.T) {
	s, st, token := fixture(t, Spec{Name: "laptop"})
	revoked := add(t, st, Spec{Name: "gone"})
	if _, err := (Change{Store: st, Now: time.Now()}).Revoke(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	expired := add(t, st, Spec{Name: "old", Expires: time.Now().Add(time.Hour)})
	if err := s.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	flip := func(i int) string {
		b := []byte(token)
		b[i] = alphabet[(strings.IndexByte(alphabet, b[i])+1)%len(alphabet)]
		return string(b)
	}
	other := add(t, openStore(t, t.TempDir()), Spec{Name: "other"})
	for name, bad := range map[string]string{
		"empty":                        "",
		"the lead alone":               "weir_",
		"the prefix without a secret":  token[:13],
		"one character less":           token[:len(token)-1],
		"one character more":           token + "x",
		"a space after it (C140)":      token + " ",
		"a line end after it":          token + "\r\n",
		"a zero after it":              token + "\x00",
		"a space before it":            " " + token,
		"upper case":                   strings.ToUpper(token),
		"the last character wrong":     flip(len(token) - 1),
		"the first of the secret":      flip(14),
		"equal first 20 (C140)":        token[:20] + other[20:],
		"equal last 20 (C140)":         other[:37] + token[37:],
		"a wrong prefix":               flip(5),
		"another separator":            token[:13] + "-" + token[14:],
		"another lead":                 "wier_" + token[5:],
		"zeros":                        strings.Repeat("\x00", tokenLen),
		"zeros behind the lead":        lead + strings.Repeat("\x00", tokenLen-len(lead)),
		"quotes":                       `weir_'";--' OR 1=1` + token[18:],
		"UTF-8 junk":                   lead + strings.Repeat("\xff", tokenLen-len(lead)),
		"1 MiB":                        strings.Repeat("a", 1<<20),
		"1 MiB after the key":          token + strings.Repeat("a", 1<<20),
		"a key of another Weir":        other,
		"a revoked key":                revoked,
		"an expired key, a day later":  expired,
		"its hash in hex":              hex.EncodeToString(make([]byte, 32)),
		"a foreign key pasted (C137)":  "sk-proj-ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789AB",
		"the damaged row of a nobody":  lead + "\x00\x00\x00\x00\x00\x00\x00\x00_" + strings.Repeat("0", 43),
		"the prefix of a known, zeros": token[:14] + strings.Repeat("\x00", 43),
	} {
		t.Run(name, func(t *testing.T) {
			k, err := s.Verify(bad, time.Now().Add(24*time.Hour))
			if k != nil || err != ErrUnauthorized { //nolint:errorlint // the very same error is the point
				t.Errorf("got %v, %v, want the one ErrUnauthorized", k, err)
			}
		})
	}
	var e *Error
	if !errors.As(ErrUnauthorized, &e) || e.Kind != Unauthorized || strings.Contains(e.Msg, "weir_") {
		t.Errorf("the error is %+v", e)
	}
}

func FuzzVerify(f *testing.F) {
	s, _, token := fixture(f, Spec{Name: "laptop"})
	f.Add(token)
	f.Add(token[:20])
	f.Add("weir_\x00'\"")
	f.Fuzz(func(t *testing.T, in string) {
		if k, err := s.Verify(in, time.Now()); (err == nil) != (in == token) || (k == nil) != (err != nil) {
			t.Errorf("Verify(%q) = %v, %v", in, k, err)
		}
	})
}

func TestVerifyDoesNotAllocate(t *testing.T) {
	s, _, token := fixture(t, Spec{Name: "laptop"})
	now := time.Now()
	for _, tok := range []string{token, token[:56] + "!", "junk", strings.Repeat("x", 1<<20)} {
		if n := testing.AllocsPerRun(100, func() { s.Verify(tok, now) }); n != 0 {
			t.Errorf("%v allocations for a token of %d bytes", n, len(tok))
		}
	}
}

// S02 at ten times the number: medians of a known prefix with a wrong tail and of an unknown prefix differ by noise.
func TestTimingTellsNothingAboutPrefixes(t *testing.T) {
	if testing.CoverMode() != "" {
		t.Log("coverage counters blur this")
	}
	s, _, token := fixture(t, Spec{Name: "laptop"})
	known, unknown := token[:14]+strings.Repeat("0", 43), lead+"00000000_"+strings.Repeat("0", 43)
	const rounds = 10_000
	now := time.Now()
	var a, b [rounds]time.Duration
	for i := range rounds {
		start := time.Now()
		s.Verify(known, now)
		a[i] = time.Since(start)
		start = time.Now()
		s.Verify(unknown, now)
		b[i] = time.Since(start)
	}
	slices.Sort(a[:])
	slices.Sort(b[:])
	if d := (a[rounds/2] - b[rounds/2]).Abs(); d >= time.Microsecond {
		t.Errorf("medians differ by %v: %v known, %v unknown", d, a[rounds/2], b[rounds/2])
	}
}

func TestAllows(t *testing.T) {
	for _, tt := range []struct {
		patterns string
		alias    string
		want     bool
	}{
		{"", "anything", true},
		{"coder", "coder", true},
		{"coder", "coder2", false},
		{"coder", "Coder", false},
		{"claude-*", "claude-4", true},
		{"claude-*", "claude", false},
		{"*", "", true},
		{"a b*", "bc", true},
		{"a b*", "c", false},
	} {
		k := Key{Aliases: strings.Fields(tt.patterns)}
		if got := k.Allows(tt.alias); got != tt.want {
			t.Errorf("%q allows %q: %v, want %v", tt.patterns, tt.alias, got, tt.want)
		}
	}
}

func TestExpiryAndOverlap(t *testing.T) { // S05
	synctest.Test(t, func(t *testing.T) {
		st, err := store.Open(t.Context(), t.TempDir(), store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		change := func() Change { return Change{Store: st, Now: time.Now()} }
		first, _, err := change().Add(t.Context(), Spec{Name: "a", Expires: time.Now().Add(48 * time.Hour), KeepResponses: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewSet(t.Context(), st, nil)
		if err != nil {
			t.Fatal(err)
		}
		opens := func(token string) bool {
			_, err := s.Verify(token, time.Now())
			return err == nil
		}
		time.Sleep(12 * time.Hour)
		second, k, err := change().Rotate(t.Context(), "a", 24*time.Hour)
		if err != nil || k.Name != "a" || k.KeepResponses != time.Hour {
			t.Fatalf("Rotate: %+v, %v", k, err)
		}
		if err := s.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			after         time.Duration
			first, second bool
		}{
			{0, true, true},
			{24*time.Hour - time.Nanosecond, true, true},
			{time.Nanosecond, false, true},                // the overlap is over
			{24*time.Hour - time.Nanosecond, false, true}, // the successor lives as long as the first would have: 48 h
			{time.Nanosecond, false, false},               // and no longer
		} {
			time.Sleep(step.after)
			if got, want := [2]bool{opens(first), opens(second)}, [2]bool{step.first, step.second}; got != want {
				t.Errorf("at %v: first and second open %v, want %v", time.Now(), got, want)
			}
		}
	})
}

func TestChangesThatAreRefused(t *testing.T) {
	st := openStore(t, t.TempDir())
	c := Change{Store: st, Actor: "me", Now: time.Now()}
	token := add(t, st, Spec{Name: "laptop"})
	for name, tt := range map[string]struct {
		spec Spec
		want string
	}{
		"no name":                {Spec{}, "name"},
		"a name with a line end": {Spec{Name: "a\nb"}, "name"},
		"a name that is taken":   {Spec{Name: "laptop"}, "rotate"},
		"a star inside":          {Spec{Name: "b", Aliases: []string{"a*b"}}, "alias"},
		"a blank in an alias":    {Spec{Name: "b", Aliases: []string{"a b"}}, "alias"},
		"another boundary":       {Spec{Name: "b", Boundary: "moon"}, "boundary"},
		"past expiry":            {Spec{Name: "b", Expires: c.Now.Add(-time.Second)}, "expires"},
		"negative rpm":           {Spec{Name: "b", RPM: -1}, "rpm"},
		"too many at once":       {Spec{Name: "b", Concurrent: 1 << 40}, "concurrent"},
		"kept for a moment":      {Spec{Name: "b", KeepResponses: time.Second}, "keep-responses"},
		"kept for ever":          {Spec{Name: "b", KeepResponses: 1 << 62}, "keep-responses"},
	} {
		if _, _, err := c.Add(t.Context(), tt.spec); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want a word about %q", name, err, tt.want)
		}
	}
	if _, err := c.Revoke(t.Context(), "nobody"); !errors.Is(err, ErrNone) {
		t.Errorf("Revoke of nobody: %v", err)
	}
	if _, err := c.Revoke(t.Context(), token); !errors.Is(err, ErrNone) || strings.Contains(err.Error(), token[14:]) {
		t.Errorf("Revoke of a whole key: %v, want a refusal that does not repeat it", err)
	}
	if _, err := c.Revoke(t.Context(), "laptop"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Revoke(t.Context(), "laptop"); !errors.Is(err, ErrNone) {
		t.Errorf("second Revoke: %v", err)
	}
	if _, _, err := c.Rotate(t.Context(), "laptop", time.Hour); !errors.Is(err, ErrNone) {
		t.Errorf("Rotate of a revoked key: %v", err)
	}
	if _, _, err := c.Add(t.Context(), Spec{Name: "laptop"}); err != nil {
		t.Errorf("the name of a revoked key is free again: %v", err)
	}
}

// S01: nothing in the data folder holds a secret, in any form it might have been written.
func TestNoSecretOnDisk(t *testing.T) {
	dir := t.TempDir()
	st := openStore(t, dir)
	token := add(t, st, Spec{Name: "laptop", Aliases: []string{"a*"}})
	second, _, err := Change{Store: st, Now: time.Now(), Actor: "me"}.Rotate(t.Context(), "laptop", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		files, _ := filepath.Glob(filepath.Join(dir, "*"))
		if len(files) == 0 {
			t.Fatal("no files: the test tests nothing")
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, tok := range []string{token, second} {
				secret := tok[14:]
				for _, form := range []string{tok, secret, secret[:16], secret[len(secret)-16:], hex.EncodeToString([]byte(secret)),
					base64.StdEncoding.EncodeToString([]byte(secret))[:40]} {
					if bytes.Contains(b, []byte(form)) {
						t.Errorf("%s holds a secret as %q", f, form)
					}
				}
				if f == st.Path() && !bytes.Contains(b, []byte(tok[5:13])) && len(files) == 1 {
					t.Error("the prefix is not there either: the test looks in the wrong place")
				}
			}
		}
	}
	check()
	st.Close() // checkpointed into the one file
	check()
}

func TestEachChangeIsAudited(t *testing.T) {
	st := openStore(t, t.TempDir())
	c := Change{Store: st, Actor: "weir keys, user ann", Now: time.Now()}
	add(t, st, Spec{Name: "a"})
	if _, _, err := c.Rotate(t.Context(), "a", time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Revoke(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Revoke(t.Context(), "a"); err == nil {
		t.Fatal("revoked twice")
	}
	facts, err := st.Facts(t.Context(), store.Query{Event: "audit"})
	if err != nil || len(facts) != 3 {
		t.Fatalf("%d audit rows, %v, want 3", len(facts), err)
	}
	for i, want := range []string{"key added", "key rotated", "key revoked"} {
		if !strings.HasPrefix(facts[i].Detail, want) || !strings.Contains(facts[i].To, "key a (") {
			t.Errorf("row %d: %+v, want %q", i, facts[i], want)
		}
	}
}

// Other processes' changes are seen within 1 s, and subscribers hear what is gone (S05).
func TestWatchSeesOtherProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		open := func() *store.Store {
			st, err := store.Open(t.Context(), dir, store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return st
		}
		mine, theirs := open(), open()
		defer mine.Close()
		defer theirs.Close()
		s, err := NewSet(t.Context(), mine, nil)
		if err != nil {
			t.Fatal(err)
		}
		var gone []string
		s.Subscribe(func(g []string) { gone = append(gone, g...) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Watch(ctx); close(done) }()

		token := add(t, theirs, Spec{Name: "a"})
		time.Sleep(time.Second)
		synctest.Wait()
		k, err := s.Verify(token, time.Now())
		if err != nil {
			t.Fatalf("a new key after 1 s: %v", err)
		}
		if _, err := (Change{Store: theirs, Now: time.Now()}).Revoke(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if _, err := s.Verify(token, time.Now()); err == nil {
			t.Error("a revoked key opens after 1 s")
		}
		if len(gone) != 1 || gone[0] != k.Prefix {
			t.Errorf("subscribers heard %q, want the prefix once", gone)
		}
		cancel()
		<-done
	})
}

// F57: the keys in memory serve when the store does not answer.
func TestAGoneStoreLeavesTheKeys(t *testing.T) {
	s, st, token := fixture(t, Spec{Name: "a"})
	st.Close()
	if err := s.Reload(t.Context()); err == nil {
		t.Fatal("a closed store was read")
	}
	if _, err := s.Verify(token, time.Now()); err != nil {
		t.Errorf("Verify: %v", err)
	}
}

func TestADamagedRowIsLeftOut(t *testing.T) {
	st := openStore(t, t.TempDir())
	token := add(t, st, Spec{Name: "a"})
	err := st.ChangeKeys(t.Context(), func([]store.Key) ([]store.Key, store.Fact, error) {
		return []store.Key{{Prefix: "bbbbbbbb", Name: "b", Hash: []byte("short"), Boundary: Any}, {Prefix: "cccccccc", Name: "c", Hash: make([]byte, 32), Boundary: "moon"}},
			store.Fact{Event: "audit"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSet(t.Context(), st, nil)
	if err != nil || s.Len(time.Now()) != 1 {
		t.Fatalf("%v keys, %v, want 1", s, err)
	}
	if _, err := s.Verify(token, time.Now()); err != nil {
		t.Errorf("the good key: %v", err)
	}
}

// live is a key as the model of TestHistoriesOfKeys knows it.
type live struct {
	name         string
	until        time.Time
	dead, passed bool
}

// TestHistoriesOfKeys compares a set with a model over random changes.
func TestHistoriesOfKeys(t *testing.T) {
	var st *store.Store
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		if run%10 == 0 { // a new store costs ten times what a history does
			st = openStore(t, t.TempDir())
		}
		run++
		now, model := time.Unix(1_790_000_000, 0), map[string]*live{}
		s, err := NewSet(context.Background(), st, nil)
		if err != nil {
			rt.Fatal(err)
		}
		name := func() string { return fmt.Sprint(rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "name"), run) }
		current := func(n string) (tok string) {
			for t, l := range model {
				if l.name == n && !l.dead && !l.passed {
					tok = t
				}
			}
			return tok
		}
		reload := func() {
			if err := s.Reload(context.Background()); err != nil {
				rt.Fatal(err)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				n := name()
				tok, _, err := Change{Store: st, Now: now}.Add(context.Background(), Spec{Name: n})
				taken := false
				for _, l := range model {
					taken = taken || l.name == n && !l.dead && (l.until.IsZero() || now.Before(l.until))
				}
				if (err != nil) != taken {
					rt.Fatalf("add: %v, taken %v", err, taken)
				}
				if err == nil {
					model[tok] = &live{name: n}
				}
				reload()
			},
			"revoke": func(rt *rapid.T) {
				n := name()
				Change{Store: st, Now: now}.Revoke(context.Background(), n)
				for _, l := range model {
					l.dead = l.dead || l.name == n
				}
				reload()
			},
			"rotate": func(rt *rapid.T) {
				n, overlap := name(), time.Duration(rapid.IntRange(0, 3).Draw(rt, "hours"))*time.Hour
				old := current(n)
				tok, _, err := Change{Store: st, Now: now}.Rotate(context.Background(), n, overlap)
				if (err == nil) != (old != "") {
					rt.Fatalf("rotate: %v with current %q", err, old)
				}
				if err == nil {
					model[old].passed, model[old].until = true, now.Add(overlap)
					model[tok] = &live{name: n}
				}
				reload()
			},
			"wait": func(rt *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 120).Draw(rt, "minutes")) * time.Minute)
			},
			"": func(rt *rapid.T) {
				for tok, l := range model {
					_, err := s.Verify(tok, now)
					if want := !l.dead && (l.until.IsZero() || now.Before(l.until)); (err == nil) != want {
						rt.Fatalf("%+v opens: %v, want %v", l, err == nil, want)
					}
				}
			},
		})
	})
}

func TestGuard(t *testing.T) { // S06
	synctest.Test(t, func(t *testing.T) {
		hash := &Key{Prefix: "aaaaaaaa", Name: "a"}
		token, prefix, sum := generate()
		hash.Prefix, hash.hash = prefix, sum
		s := &Set{}
		s.keys.Store(&map[string]*Key{prefix: hash})
		var g Guard
		bad, good := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		for i := range 100 {
			if _, err := g.Check(s, "wrong", bad, time.Now()); err != ErrUnauthorized {
				t.Fatalf("bad key %d: %v", i, err)
			}
		}
		_, err := g.Check(s, "wrong", bad, time.Now())
		var e *Error
		if !errors.As(err, &e) || e.Kind != Limited || e.RetryAfter <= 0 || e.RetryAfter > time.Minute {
			t.Fatalf("bad key 101: %+v", err)
		}
		if _, err := g.Check(s, token, good, time.Now()); err != nil {
			t.Errorf("a good key from another address: %v", err)
		}
		if _, err := g.Check(s, token, bad, time.Now()); err != nil {
			t.Errorf("a good key from the same address: %v", err)
		}
		if _, err := g.Check(s, "wrong", netip.MustParseAddr("::ffff:192.0.2.1"), time.Now()); err == ErrUnauthorized {
			t.Error("the same address written as IPv6 is another one")
		}
		time.Sleep(e.RetryAfter)
		if _, err := g.Check(s, "wrong", bad, time.Now()); err != ErrUnauthorized {
			t.Errorf("after the wait: %v", err)
		}
	})
}

func TestGuardIsBounded(t *testing.T) {
	var g Guard
	now := time.Now()
	for i := range 50_000 {
		g.Failed(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), now)
	}
	if n := len(g.fails); n > maxAddresses {
		t.Errorf("%d addresses kept, want at most %d", n, maxAddresses)
	}
	a, b := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	g = Guard{Bad: 1}
	if g.Failed(a, now) != 0 || g.Failed(b, now) == 0 {
		t.Error("two addresses of one /64 count apart")
	}
}
