package store

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestVersionsKeepTheirNumbers(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	at := time.UnixMicro(1_790_000_000_000_000)
	a := Version{Time: at, Sum: "aa", Text: []byte("a: 1\r\n# ü\n"), Author: "kim", Note: "shift: first"}
	b := Version{Time: at.Add(time.Hour), Sum: "bb", Text: []byte("b"), Author: "start", Note: "start", Smoke: `{"ok":true}`}
	add := func(v Version, want int64) {
		t.Helper()
		if n, err := s.AddVersion(t.Context(), v); n != want || err != nil {
			t.Fatalf("number %d, %v; want %d", n, err, want)
		}
	}
	add(a, 1)
	add(b, 2)
	if err := s.DropVersion(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	add(b, 3) // 2 is never used again
	if err := s.SetSmoke(t.Context(), 1, "{}"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open(t, dir, Options{})
	a.Number, a.Smoke, b.Number = 1, "{}", 3
	for n, want := range map[int64]Version{1: a, 3: b} {
		got, err := s.Version(t.Context(), n)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("version %d: %v (-want +got):\n%s", n, err, d)
		}
	}
	if _, err := s.Version(t.Context(), 2); !errors.Is(err, ErrNoVersion) {
		t.Errorf("a version that was dropped: %v", err)
	}
	a.Text, b.Text = nil, nil
	got, err := s.Versions(t.Context())
	if d := cmp.Diff([]Version{a, b}, got); d != "" || err != nil {
		t.Errorf("all: %v (-want +got):\n%s", err, d)
	}
}

func TestOldVersionsGo(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	for range mostVersions + 3 {
		if _, err := s.AddVersion(t.Context(), Version{Time: time.Now(), Text: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := s.Versions(t.Context())
	if err != nil || len(all) != mostVersions || all[0].Number != 4 {
		t.Errorf("%d versions from %d on, %v", len(all), all[0].Number, err)
	}
}
