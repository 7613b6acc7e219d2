package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWhatIsOutByHandSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	at := time.UnixMicro(1_790_000_000_000_000)
	a := HandOut{Pool: "a", Since: at, Until: at.Add(time.Hour), Why: "a new power supply", Actor: "kim"}
	ax := HandOut{Pool: "a", Backend: "x", Since: at, Actor: "kim"}
	ay := HandOut{Pool: "a", Backend: "y", Since: at, Actor: "kim"}
	b := HandOut{Pool: "b", Since: at, Actor: "kim"}
	for _, o := range []HandOut{b, {Pool: "a", Since: at, Why: "replaced by the next"}, a, ay, ax} {
		if err := s.PutHandOut(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	s = open(t, dir, Options{})
	check := func(what string, want ...HandOut) {
		t.Helper()
		got, err := s.HandOuts(t.Context())
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", what, err, d)
		}
	}
	check("all", a, ax, ay, b)
	for end, want := range map[time.Duration][]HandOut{time.Hour - time.Microsecond: {a, ax, ay, b}, time.Hour: {ax, ay, b}} {
		if err := s.PutHandOut(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if err := s.ExpireHandOuts(t.Context(), at.Add(end)); err != nil {
			t.Fatal(err)
		}
		check("after "+end.String(), want...)
	}
	if err := s.PutHandOut(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, pool, backend string
		want                []HandOut
	}{
		{"one backend is put back", "a", "y", []HandOut{a, ax, b}},
		{"one that is not out", "a", "z", []HandOut{a, ax, b}},
		{"a pool with all its backends", "a", "", []HandOut{b}},
		{"the last one", "b", "", nil},
	} {
		if err := s.DeleteHandOut(t.Context(), c.pool, c.backend); err != nil {
			t.Fatal(err)
		}
		check(c.what, c.want...)
	}
}
