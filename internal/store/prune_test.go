package store

import (
	"os"
	"testing"
	"time"
)

func fill(t *testing.T, s *Store, n int, at time.Time) {
	t.Helper()
	rows := make([]Request, n)
	facts := make([]Fact, n/10)
	for i := range rows {
		rows[i] = sampleRequest(i, at.Add(time.Duration(i)*time.Millisecond))
	}
	for i := range facts {
		facts[i] = Fact{Time: at.Add(time.Duration(i*10) * time.Millisecond), Event: "health", Pool: "p"}
	}
	if err := s.WriteRequests(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	if err := s.WriteFacts(t.Context(), facts); err != nil {
		t.Fatal(err)
	}
}

func TestPruneByAge(t *testing.T) {
	s := open(t, t.TempDir(), Options{Keep: time.Hour})
	now := time.Now()
	fill(t, s, 1200, now.Add(-2*time.Hour))
	fill(t, s, 30, now.Add(-time.Minute))
	if err := s.Prune(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	requests, _ := s.CountRequests(t.Context(), Query{})
	facts, _ := s.CountFacts(t.Context(), Query{})
	if requests != 30 || facts != 3 {
		t.Errorf("%d requests and %d facts left, want 30 and 3", requests, facts)
	}
}

func TestPruneBySizeGivesTheSpaceBack(t *testing.T) {
	const limit = 400 << 10
	dir := t.TempDir()
	s := open(t, dir, Options{MaxSize: limit})
	now := time.Now()
	fill(t, s, 3000, now.Add(-time.Minute))
	if used, _ := s.Size(t.Context()); used < 2*limit {
		t.Fatalf("only %d bytes to prune: the test tests nothing", used)
	}
	if err := s.Prune(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if used, err := s.Size(t.Context()); used > limit || err != nil {
		t.Errorf("%d bytes in use, %v, want at most %d", used, err, limit)
	}
	left, err := s.Requests(t.Context(), Query{Limit: 1})
	if err != nil || len(left) != 1 || left[0].Request != sampleRequest(2999, now).Request {
		t.Errorf("the newest request is gone: %v, %v", left, err)
	}
	s.Close() // checkpoints, so that the file shows its size
	if st, err := os.Stat(s.Path()); err != nil || st.Size() > limit+8192 {
		t.Errorf("the file has %d bytes, want about %d", st.Size(), limit)
	}
}

func TestARemovedFileIsNoticed(t *testing.T) { // F57
	s := open(t, t.TempDir(), Options{})
	if s.replaced() {
		t.Error("a file in its place is taken for gone")
	}
	if err := os.Remove(s.Path()); err != nil {
		t.Fatal(err)
	}
	if !s.replaced() {
		t.Error("a removed file is not noticed")
	}
	if err := s.WriteFacts(t.Context(), []Fact{{Event: "health"}}); err != nil {
		t.Errorf("writing to a removed file: %v", err)
	}
}
