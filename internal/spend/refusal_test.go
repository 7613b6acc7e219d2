package spend

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestARefusalSaysWhichCeiling(t *testing.T) {
	each(t, func(t *testing.T, scope, period string) {
		w := newWorld(t)
		c := w.under(scope, period)
		w.spend(80)
		h, _ := w.Reserve(call(15))
		c.Most.In = 30
		_, got := w.Reserve(c)
		want := &Refusal{Scope: scope, Period: period, Ceiling: 100, Spent: 80, Held: 15, Until: time.Date(2026, 12, 2, 0, 0, 0, 0, time.UTC)}
		want.Name = map[string]string{Key: "k", Pool: "p"}[scope]
		if period == Month {
			want.Until = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		c.Most.In = 20
		if _, got := w.Reserve(c); got == nil || !got.Passing {
			t.Errorf("what would fit once the calls that run have ended: %+v", got)
		}
		h.Cancel()
	})
}

func TestRefusalsAreForPeople(t *testing.T) {
	until := time.Date(2026, 12, 2, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name string
		r    Refusal
		want string
	}{
		{"key", Refusal{Scope: Key, Name: "ci", Period: Day, Ceiling: 2e9, Spent: 1_990_000_000, Until: until},
			"key ci has spent $1.99 of the $2 that it may in a day, which is too little left for this call: wait until 2026-12-02 00:00 UTC, or have the key's ceiling raised"},
		{"pool with calls that run", Refusal{Scope: Pool, Name: "vendor-a", Period: Month, Ceiling: 2e9, Spent: 1e9, Held: 1e9, Until: until, Passing: true},
			"pool vendor-a has spent $1 of the $2 that it may in a month and holds $1 for calls that run, which is too little left for this call: wait until they have ended, or raise spend.month of the pool"},
		{"total", Refusal{Scope: Total, Period: Day, Ceiling: 2e9, Spent: 2e9, Until: until},
			"all of Weir has spent $2 of the $2 that it may in a day, which is too little left for this call: wait until 2026-12-02 00:00 UTC, or raise spend.day in the configuration"},
		{"store", Refusal{Scope: Total, Unwritten: true},
			"what all of Weir spends cannot be written to the store, so its ceiling cannot be kept: free its disk or mend it (the log says what is wrong)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.r.Error(); got != tt.want {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
		})
	}
}
