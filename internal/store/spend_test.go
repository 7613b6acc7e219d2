package store

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSpendingComesBackAsWritten(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	first := Spend{Day: 20788, Scope: "key", Name: "a", Purpose: "client", Cost: 5, Requests: 2, Unpriced: 1}
	second := Spend{Day: 20788, Scope: "total", Purpose: "unsettled", Reserved: math.MaxInt64, Requests: 1}
	old := first
	old.Cost, old.Requests = 3, 1
	nothing := Spend{Day: 20789, Scope: "pool", Name: "p", Purpose: "unsettled"}
	held := nothing
	held.Reserved = 7
	for _, rows := range [][]Spend{{old, held}, {first, second, nothing}} {
		if err := s.PutSpending(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	s = open(t, dir, Options{})
	got, err := s.Spending(t.Context())
	if d := cmp.Diff([]Spend{first, second}, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

func TestSpendingIsWrittenWholeOrNotAtAll(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	if _, err := s.db.ExecContext(t.Context(), "CREATE TRIGGER no BEFORE INSERT ON spend WHEN NEW.name = 'bad' BEGIN SELECT raise(ABORT, 'no'); END"); err != nil {
		t.Fatal(err)
	}
	if err := s.PutSpending(t.Context(), []Spend{{Day: 1, Scope: "key", Name: "good", Cost: 1}, {Day: 1, Scope: "key", Name: "bad", Cost: 1}}); err == nil {
		t.Error("no error")
	}
	if got, err := s.Spending(t.Context()); len(got) > 0 || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

// F62: a clock that jumps two years ahead and back must not lose the running month.
func TestOldSpendingIsDeletedButNotTheNewestDays(t *testing.T) {
	for _, tt := range []struct {
		name          string
		days          []int64
		before, first int64
	}{
		{"nothing", nil, 100, 0},
		{"all are new", days(100, 160), 100, 100},
		{"those before", days(100, 160), 110, 110},
		{"the newest 40 stay however old", days(100, 160), 1000, 120},
		{"one day of a clock far ahead counts as one", append(days(100, 160), 900), 500, 121},
		{"a gap", append(days(1, 10), days(300, 400)...), 200, 300},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t, t.TempDir(), Options{})
			var rows []Spend
			for _, d := range tt.days {
				rows = append(rows, Spend{Day: d, Scope: "key", Name: "a", Purpose: "client", Cost: 1}, Spend{Day: d, Scope: "total", Purpose: "client", Cost: 1})
			}
			if err := s.PutSpending(t.Context(), rows); err != nil {
				t.Fatal(err)
			}
			got, err := s.PruneSpending(t.Context(), tt.before)
			if got != tt.first || err != nil {
				t.Errorf("first is %d, want %d: %v", got, tt.first, err)
			}
			var want []Spend
			for _, r := range rows {
				if r.Day >= tt.first {
					want = append(want, r)
				}
			}
			kept, err := s.Spending(t.Context())
			if d := cmp.Diff(want, kept); d != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, d)
			}
		})
	}
}

// days are those from one before another.
func days(from, to int64) (all []int64) {
	for d := from; d < to; d++ {
		all = append(all, d)
	}
	return all
}
