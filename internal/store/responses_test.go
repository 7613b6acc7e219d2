package store

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func keep(t *testing.T, s *Store, r Response) {
	t.Helper()
	if r.Input == nil {
		r.Input = []byte("[]")
	}
	if r.Answer == nil {
		r.Answer = []byte("{}")
	}
	if err := s.KeepResponse(t.Context(), &r); err != nil {
		t.Fatal(err)
	}
}

func kept(t *testing.T, s *Store, key, id string, now time.Time) *Response {
	t.Helper()
	r, err := s.Response(t.Context(), key, id, now)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAResponseIsItsKeysAlone(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	at := time.UnixMicro(1_790_000_000_000_000)
	want := Response{Key: "a", ID: "resp_1", Local: true, Created: at, Expires: at.Add(time.Hour), Input: []byte(`[1]`), Answer: []byte(`{}`)}
	keep(t, s, want)
	s.Close()
	s = open(t, dir, Options{}) // a restart keeps it
	if d := cmp.Diff(&want, kept(t, s, "a", "resp_1", at)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for name, c := range map[string]struct {
		key, id string
		at      time.Time
	}{
		"another key":          {"b", "resp_1", at},
		"no key":               {"", "resp_1", at},
		"another id":           {"a", "resp_2", at},
		"quotes are no SQL":    {"a", "x' OR '1'='1", at},
		"the end of its time":  {"a", "resp_1", at.Add(time.Hour)},
		"long after that time": {"a", "resp_1", at.Add(24 * time.Hour)},
	} {
		if got := kept(t, s, c.key, c.id, c.at); got != nil {
			t.Errorf("%s: got %+v", name, got)
		}
		if gone, err := s.DeleteResponse(t.Context(), c.key, c.id, c.at); gone || err != nil {
			t.Errorf("%s: deleted %v, %v", name, gone, err)
		}
	}
	want.Answer = []byte(`{"again":true}`) // servers number from one again when they start anew
	keep(t, s, want)
	if d := cmp.Diff(&want, kept(t, s, "a", "resp_1", at)); d != "" {
		t.Errorf("written again (-want +got):\n%s", d)
	}
}

func TestADeletedResponseIsGoneFromTheFile(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	now := time.Now()
	secret := "a word that nobody may read again "
	keep(t, s, Response{Key: "a", ID: "resp_1", Created: now, Expires: now.Add(time.Hour), Input: []byte(strings.Repeat(secret, 10_000)), Answer: []byte(secret)})
	inFile := func() bool {
		t.Helper()
		if _, err := s.db.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(s.Path())
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(b, []byte(secret))
	}
	if !inFile() {
		t.Fatal("it was never there: the test tests nothing")
	}
	if gone, err := s.DeleteResponse(t.Context(), "a", "resp_1", now); !gone || err != nil {
		t.Fatalf("deleted %v, %v", gone, err)
	}
	if got := kept(t, s, "a", "resp_1", now); got != nil {
		t.Errorf("still there: %+v", got)
	}
	if inFile() {
		t.Error("its text is still in the file")
	}
}

func TestWhatHasExpiredIsPruned(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	now := time.Now()
	for i := range 3*responseStep + 1 {
		keep(t, s, Response{Key: "a", ID: fmt.Sprint(i), Created: now, Expires: now.Add(time.Duration(i) * time.Second)})
	}
	if err := s.Prune(t.Context(), now.Add(responseStep*2*time.Second)); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := s.db.QueryRow("SELECT count(*) FROM responses").Scan(&n); err != nil || n != responseStep {
		t.Errorf("%d are left, %v, want %d", n, err, responseStep)
	}
}

// What one key keeps is bounded, and takes nothing from another.
func TestAKeyThatKeepsTooMuchLosesItsOldest(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	now := time.Now()
	keep(t, s, Response{Key: "other", ID: "old", Created: now.Add(-time.Hour), Expires: now.Add(time.Hour)})
	_, err := s.db.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO responses (key, response, local, created, expires, size, input, answer) SELECT 'a', 'r' || i, 0, i, ?, 10, '', '' FROM n`,
		maxResponses, now.Add(time.Hour).UnixMicro())
	if err != nil {
		t.Fatal(err)
	}
	count := func() (n int) {
		t.Helper()
		if err := s.db.QueryRow("SELECT count(*) FROM responses WHERE key = 'a'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n != maxResponses {
		t.Fatalf("%d rows, want %d", n, maxResponses)
	}
	keep(t, s, Response{Key: "a", ID: "new", Created: now, Expires: now.Add(time.Hour)})
	if n := count(); n != maxResponses*9/10 {
		t.Errorf("by number: %d rows are left, want %d", n, maxResponses*9/10)
	}
	if kept(t, s, "a", "new", now) == nil || kept(t, s, "a", "r1", now) != nil || kept(t, s, "other", "old", now) == nil {
		t.Error("not the oldest of the key went")
	}
	if _, err := s.db.Exec("UPDATE responses SET size = ? WHERE response = 'new'", maxResponseBytes); err != nil {
		t.Fatal(err)
	}
	keep(t, s, Response{Key: "a", ID: "newest", Created: now.Add(time.Second), Expires: now.Add(time.Hour)})
	if n := count(); n != 1 || kept(t, s, "a", "newest", now) == nil {
		t.Errorf("by size: %d rows are left, want the newest alone", n)
	}
}

// Responses have bounds of their own: they push no events out.
func TestResponsesDoNotCountAsEvents(t *testing.T) {
	s := open(t, t.TempDir(), Options{MaxSize: 1 << 20})
	now := time.Now()
	fill(t, s, 100, now.Add(-time.Minute))
	for i := range 20 {
		keep(t, s, Response{Key: "a", ID: fmt.Sprint(i), Created: now, Expires: now.Add(time.Hour), Input: make([]byte, 200<<10)})
	}
	if used, err := s.Size(t.Context()); used < 3<<20 || err != nil {
		t.Fatalf("only %d bytes, %v: the test tests nothing", used, err)
	}
	if err := s.Prune(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if n, err := s.CountRequests(t.Context(), Query{}); n != 100 || err != nil {
		t.Errorf("%d requests are left, %v, want 100", n, err)
	}
}

// A store of the first Weir has keys, and goes on with them.
func TestAStoreOfTheFirstSchemaIsMigrated(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	for _, q := range []string{
		"INSERT INTO keys (prefix, name, hash, aliases, boundary, priority, rpm, concurrent, created) VALUES ('aaaaaaaa', 'a', x'00', 'null', 'any', 0, 0, 0, 1)",
		"DROP TABLE responses", "ALTER TABLE keys DROP COLUMN keep_responses", "DROP TABLE versions", "DROP TABLE alerts", "DROP TABLE deliveries", "DROP TABLE calibrations", "DROP TABLE captures", "DROP TABLE spend", "DROP TABLE merges", "DROP TABLE pools_out", "ALTER TABLE keys DROP COLUMN tpm", "ALTER TABLE keys DROP COLUMN spend_day",
		"ALTER TABLE keys DROP COLUMN spend_month", "ALTER TABLE requests DROP COLUMN cost", "ALTER TABLE requests DROP COLUMN tokens_written",
		"ALTER TABLE requests ADD COLUMN cost_usd REAL", "DELETE FROM goose_db_version WHERE version_id > 1", "PRAGMA user_version = 1",
	} {
		if _, err := s.db.Exec(q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	s.Close()
	if _, err := Open(t.Context(), dir, Options{ReadOnly: true}); err == nil || !strings.Contains(err.Error(), "weir run") {
		t.Errorf("reading alone: %v, want the advice to start `weir run`", err)
	}
	s = open(t, dir, Options{})
	keys, err := s.Keys(t.Context())
	if err != nil || len(keys) != 1 || keys[0].Name != "a" || keys[0].KeepResponses != 0 {
		t.Errorf("keys %+v, %v", keys, err)
	}
	now := time.Now()
	keep(t, s, Response{Key: "a", ID: "resp_1", Created: now, Expires: now.Add(time.Hour)})
}

// A writer that must wait for another process gives up when its time is over.
func TestKeepingIsBoundedInTime(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir, Options{}), open(t, dir, Options{})
	tx, err := a.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	err = b.KeepResponse(ctx, &Response{Key: "a", ID: "resp_1", Input: []byte("[]"), Answer: []byte("{}")})
	if took := time.Since(start); err == nil || took > time.Second {
		t.Errorf("%v after %v, want an error within the time given", err, took)
	}
}

// Whoever gets a name after its keys were revoked finds nothing of the one before.
func TestRevokingTheLastKeyOfANameDeletesItsResponses(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	now := time.Now()
	hash := make([]byte, 32)
	change := func(keys ...Key) {
		t.Helper()
		err := s.ChangeKeys(t.Context(), func([]Key) ([]Key, Fact, error) { return keys, Fact{Event: "audit"}, nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	change(Key{Prefix: "1", Name: "a", Hash: hash}, Key{Prefix: "2", Name: "a", Hash: hash}, Key{Prefix: "3", Name: "b", Hash: hash})
	for _, name := range []string{"a", "b", ""} {
		keep(t, s, Response{Key: name, ID: "resp_1", Created: now, Expires: now.Add(time.Hour)})
	}
	for _, step := range []struct {
		revoked string
		left    bool
	}{{"1", true}, {"2", false}} {
		change(Key{Prefix: step.revoked, Name: "a", Hash: hash, Revoked: now})
		if got := kept(t, s, "a", "resp_1", now) != nil; got != step.left {
			t.Errorf("key %s is revoked: the response is there %v, want %v", step.revoked, got, step.left)
		}
	}
	if kept(t, s, "b", "resp_1", now) == nil || kept(t, s, "", "resp_1", now) == nil {
		t.Error("others' responses went too")
	}
}
