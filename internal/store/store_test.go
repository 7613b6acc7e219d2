package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir, o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestFilesAreNarrow(t *testing.T) { // S01
	dir := filepath.Join(t.TempDir(), "data")
	s := open(t, dir, Options{})
	if err := s.WriteFacts(t.Context(), []Fact{{Time: time.Now(), Event: "audit"}}); err != nil {
		t.Fatal(err)
	}
	if st, _ := os.Stat(dir); st.Mode().Perm() != 0o700 {
		t.Errorf("folder has mode %v, want 0700", st.Mode().Perm())
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if st, _ := e.Info(); st.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want 0600", e.Name(), st.Mode().Perm())
		}
	}
}

func TestAWideFileIsNarrowed(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, File), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, Options{})
	if st, _ := os.Stat(s.Path()); st.Mode().Perm() != 0o600 {
		t.Errorf("file has mode %v, want 0600", st.Mode().Perm())
	}
}

func TestRowsComeBackAsWritten(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	at := time.UnixMicro(1_790_000_000_123_456)
	full := sampleRequest(1, at)
	full.Kind, full.Message, full.Reroute, full.Trace, full.Class, full.Tag = "slow", "took too long", "fallback", "4bf92f3577b34da6a3ce929d0e0e4736", "code", "ci"
	empty := Request{Time: at, Request: "req_2", Status: 401, Queue: -1, First: -1, Total: 0, Overhead: -1, TokensIn: -1, TokensOut: -1, TokensCached: -1, TokensReasoning: -1}
	want := []Request{full, empty}
	for i := range 70 { // more than one bulk insert
		want = append(want, sampleRequest(i+10, at.Add(time.Duration(i)*time.Second)))
	}
	if err := s.WriteRequests(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	got, err := s.Requests(t.Context(), Query{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		want[i].ID = int64(i + 1)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("requests (-want +got):\n%s", d)
	}
	facts := []Fact{{Time: at, Event: "audit", Actor: "root", To: "key a", Detail: "x"}, {Time: at, Event: "health", Pool: "p", Reason: "down", Kind: "slow"}}
	if err := s.WriteFacts(t.Context(), facts); err != nil {
		t.Fatal(err)
	}
	facts[0].ID, facts[1].ID = 1, 2
	gotFacts, err := s.Facts(t.Context(), Query{})
	if d := cmp.Diff(facts, gotFacts); err != nil || d != "" {
		t.Errorf("facts: %v (-want +got):\n%s", err, d)
	}
}

// An unknown price is NULL in the file itself, not 0.
func TestUnknownIsNull(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	rows := []Request{{Request: "unknown", TokensIn: -1, First: -1, Cost: -1}, {Request: "free"}}
	if err := s.WriteRequests(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	var got int
	q := "SELECT count(*) FROM requests WHERE request = 'unknown' AND cost IS NULL AND tokens_in IS NULL AND first IS NULL AND class IS NULL OR request = 'free' AND cost = 0"
	if err := s.db.QueryRow(q).Scan(&got); err != nil || got != 2 {
		t.Errorf("%d rows as they should be, %v, want 2", got, err)
	}
}

func TestQueries(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	at := time.Now()
	rows := make([]Request, 6)
	for i := range rows {
		rows[i] = sampleRequest(i, at.Add(time.Duration(i-len(rows))*time.Minute))
	}
	rows[1].Reroute, rows[2].Reroute = "fallback", "collapse"
	rows[3].Attempts = `[{"sent":false}]`
	rows[4].Kind, rows[4].Key, rows[4].KeyID = "slow", "other", "zzzzzzzz"
	rows[5].Request = `x' OR '1'='1`
	if err := s.WriteRequests(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		q    Query
		want []int64
	}{
		{"all", Query{}, []int64{1, 2, 3, 4, 5, 6}},
		{"the newest two, oldest first", Query{Limit: 2}, []int64{5, 6}},
		{"rerouted", Query{Event: "reroute"}, []int64{2, 3}},
		{"rerouted for a reason", Query{Event: "reroute", Reason: "collapse"}, []int64{3}},
		{"with a skipped step", Query{Event: "skip"}, []int64{4}},
		{"of a kind", Query{Kind: "slow"}, []int64{5}},
		{"of a key by name", Query{Key: "other"}, []int64{5}},
		{"of a key by prefix", Query{Key: "zzzzzzzz"}, []int64{5}},
		{"one request", Query{Request: rows[0].Request}, []int64{1}},
		{"an id with quotes is only an id (C137)", Query{Request: `x' OR '1'='1`}, []int64{6}},
		{"since", Query{Since: at.Add(-150 * time.Second)}, []int64{5, 6}},
		{"following from the start gives the oldest", Query{Follow: true, Limit: 2}, []int64{1, 2}},
		{"following after a row", Query{Follow: true, After: 4}, []int64{5, 6}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found, err := s.Requests(t.Context(), tt.q)
			if err != nil {
				t.Fatal(err)
			}
			var got []int64
			for _, r := range found {
				got = append(got, r.ID)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("rows (-want +got):\n%s", d)
			}
			if n, err := s.CountRequests(t.Context(), tt.q); tt.q.Limit == 0 && (err != nil || n != int64(len(tt.want))) {
				t.Errorf("count %d, %v, want %d", n, err, len(tt.want))
			}
		})
	}
	if r, f, err := s.LastRows(t.Context()); r != 6 || f != 0 || err != nil {
		t.Errorf("LastRows = %d, %d, %v, want 6, 0", r, f, err)
	}
}

func TestASecondRunIsRefused(t *testing.T) {
	dir := t.TempDir()
	l, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Lock(dir)
	if !errors.Is(err, ErrLocked) {
		t.Fatalf("second Lock: %v, want ErrLocked", err)
	}
	for _, want := range []string{fmt.Sprint("pid ", os.Getpid()), dir, "data:"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	l, err = Lock(dir)
	if err != nil {
		t.Fatalf("Lock after Unlock: %v", err)
	}
	l.Unlock()
}

func TestTwoProcessesMayOpenANewStoreAtOnce(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s, err := Open(context.Background(), dir, Options{})
			if err != nil {
				t.Errorf("Open: %v", err)
				return
			}
			s.Close()
		})
	}
	wg.Wait()
}

func TestOpenRefusals(t *testing.T) {
	t.Run("reading needs a file", func(t *testing.T) {
		_, err := Open(t.Context(), t.TempDir(), Options{ReadOnly: true})
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "weir run") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a newer schema is told", func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, dir, Options{})
		if _, err := s.db.Exec("PRAGMA user_version = 99"); err != nil {
			t.Fatal(err)
		}
		s.Close()
		for _, o := range []Options{{}, {ReadOnly: true}, {KeepCorrupt: true}} {
			if _, err := Open(t.Context(), dir, o); err == nil || !strings.Contains(err.Error(), "newer Weir") {
				t.Errorf("Open(%+v) = %v", o, err)
			}
		}
	})
	t.Run("reading never writes", func(t *testing.T) {
		dir := t.TempDir()
		open(t, dir, Options{})
		s := open(t, dir, Options{ReadOnly: true})
		if err := s.SetMeta(t.Context(), "a", "b"); err == nil {
			t.Error("wrote through a store opened for reading")
		}
	})
}

func TestADamagedFileIsKeptAside(t *testing.T) { // F57
	const rows = 400
	prepare := func(t *testing.T) (dir string) {
		dir = t.TempDir()
		s := open(t, dir, Options{})
		err := s.ChangeKeys(t.Context(), func([]Key) ([]Key, Fact, error) {
			return []Key{{Prefix: "aaaaaaaa", Name: "a", Hash: make([]byte, 32), Boundary: "any", Created: time.Now()}}, Fact{Event: "audit"}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		var all []Request
		for i := range rows {
			all = append(all, sampleRequest(i, time.Now()))
		}
		if err := s.WriteRequests(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	t.Run("not a database at all", func(t *testing.T) {
		dir := prepare(t)
		junk := bytes.Repeat([]byte("junk"), 10_000)
		if err := os.WriteFile(filepath.Join(dir, File), junk, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), dir, Options{}); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("without KeepCorrupt: %v", err)
		}
		_, log := reopen(t, dir)
		kept, _ := filepath.Glob(filepath.Join(dir, File+".corrupt-*"))
		if len(kept) != 1 {
			t.Fatalf("kept aside: %q, want one file", kept)
		}
		if got, _ := os.ReadFile(kept[0]); !bytes.Equal(got, junk) {
			t.Error("the damaged file was changed")
		}
		if !strings.Contains(log, "level=ERROR") || !strings.Contains(log, kept[0]) {
			t.Errorf("log: %s", log)
		}
	})
	t.Run("pages of the requests: keys are saved", func(t *testing.T) {
		dir := prepare(t)
		path := filepath.Join(dir, File)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		i := bytes.Index(b, []byte("req_0000000000000100chat")) // a page deep in the table, not of an index
		page := i / 4096 * 4096
		copy(b[page:page+4096], bytes.Repeat([]byte{0xff}, 4096))
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, dir, Options{KeepCorrupt: true})
		if _, err := s.Requests(t.Context(), Query{Limit: rows}); err == nil {
			t.Fatal("the damage was not met: the test tests nothing")
		}
		s.Close()
		s, log := reopen(t, dir)
		if kept, _ := filepath.Glob(filepath.Join(dir, File+".corrupt-*")); len(kept) != 1 {
			t.Errorf("kept aside: %q, want the damaged file", kept)
		}
		keys, err := s.Keys(t.Context())
		if err != nil || len(keys) != 1 || keys[0].Name != "a" {
			t.Errorf("keys %+v, %v, want the one that was there; log: %s", keys, err, log)
		}
		s.Close()
		if s, log := reopen(t, dir); strings.Contains(log, "damaged") {
			t.Errorf("%s was taken for damaged again: %s", s.Path(), log)
		}
	})
}

// reopen opens a store that keeps a damaged file aside, and returns what it logged.
func reopen(t *testing.T, dir string) (*Store, string) {
	var log bytes.Buffer
	s := open(t, dir, Options{KeepCorrupt: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err := s.WriteFacts(t.Context(), []Fact{{Time: time.Now(), Event: "health"}}); err != nil {
		t.Errorf("the new store takes nothing: %v", err)
	}
	return s, log.String()
}

func TestALockedStoreIsAnErrorNotAHang(t *testing.T) { // F57
	dir := t.TempDir()
	a, b := open(t, dir, Options{}), open(t, dir, Options{})
	tx, err := a.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := b.db.Exec("PRAGMA busy_timeout = 1"); err != nil {
		t.Fatal(err)
	}
	err = b.WriteRequests(t.Context(), []Request{sampleRequest(1, time.Now())})
	if !isBusy(err) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("got %v", err)
	}
	tx.Rollback()
	if err := b.WriteRequests(t.Context(), []Request{sampleRequest(1, time.Now())}); err != nil {
		t.Errorf("after the lock: %v", err)
	}
}

func TestDataVersionMovesWithOthersOnly(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir, Options{}), open(t, dir, Options{})
	version := func() int64 {
		v, err := a.DataVersion(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	before := version()
	if err := a.SetMeta(t.Context(), "x", "1"); err != nil {
		t.Fatal(err)
	}
	if got := version(); got != before {
		t.Error("moved with an own write")
	}
	if err := b.SetMeta(t.Context(), "x", "2"); err != nil {
		t.Fatal(err)
	}
	if got := version(); got == before {
		t.Error("did not move with another's write")
	}
}

func TestPrefillsAndMeta(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	at := time.UnixMicro(1_790_000_000_000_000)
	for _, rate := range []float64{100, 250.5} {
		if err := s.WritePrefills(t.Context(), []Prefill{{"p", "b", rate, at}}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Prefills(t.Context())
	if d := cmp.Diff([]Prefill{{"p", "b", 250.5, at}}, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	if v, err := s.Meta(t.Context(), "none"); v != "" || err != nil {
		t.Errorf("Meta of nothing = %q, %v", v, err)
	}
}

// database/sql may replace the connection at any time; what was prepared on the old one must not be used.
func TestAReplacedConnection(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	s.db.SetMaxIdleConns(0) // each use is a new connection
	for i := range 3 {
		if err := s.WriteRequests(t.Context(), []Request{sampleRequest(i, time.Now())}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.CountRequests(t.Context(), Query{}); n != 3 || err != nil {
		t.Errorf("%d rows, %v, want 3", n, err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// A new file must never meet the log of the old one.
func TestTheLogGoesAsideToo(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	for _, ext := range []string{"", "-wal"} {
		if err := os.WriteFile(path+ext, []byte("old"+ext), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	aside, err := keepAside(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, ext := range []string{"", "-wal"} {
		if b, err := os.ReadFile(aside + ext); err != nil || string(b) != "old"+ext {
			t.Errorf("%s%s: %q, %v", aside, ext, b, err)
		}
		if _, err := os.Stat(path + ext); err == nil {
			t.Errorf("%s%s is still there", path, ext)
		}
	}
}
