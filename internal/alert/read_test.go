package alert

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/event"
)

// An Alertmanager knows an alert by its labels: its end must have those of its begin, whoever tells it.
func TestBeginAndEndHaveTheSameLabels(t *testing.T) {
	at := time.Date(2026, 12, 31, 23, 0, 0, 0, time.UTC)
	for name, pair := range map[string][2]event.Event{
		"ejected": {
			{Name: event.Health, Pool: "p", To: "a", Model: "m", Reason: "ejected", Kind: "slow"}, {Name: event.Health, Pool: "p", To: "a", Model: "n", Reason: "returned"},
		},
		"denied": {
			{Name: event.Alert, Pool: "p", To: "a", Model: "m", Reason: "denied"}, {Name: event.Alert, Pool: "q", To: "a", Model: "n", Reason: "denied resolved"},
		},
		"gone": {
			{Name: event.Alert, Pool: "p", To: "a", Model: "m", Reason: "gone"}, {Name: event.Alert, Pool: "p", To: "b", Model: "m", Reason: "gone resolved"},
		},
		"gone by a shift": {
			{Name: event.Alert, Pool: "p", To: "a", Model: "m", Reason: "gone"}, {Name: event.Alert, Pool: "p", Model: "m", Reason: "gone resolved"},
		},
		"merged": {
			{Name: event.Alert, Pool: "p", To: "q", From: "p", Model: "m", Reason: "merged"}, {Name: event.Audit, To: "pool p", Detail: "merge into q undone"},
		},
		"shift": {
			{Name: event.Alert, To: "3", Reason: "shift"}, {Name: event.Alert, To: "4", Reason: "shift resolved"},
		},
		"out": {
			{Name: event.Health, Pool: "p", To: "a", Reason: "out"}, {Name: event.Health, Pool: "p", To: "a", Reason: "in"},
		},
		"other": {
			{Name: event.Alert, Pool: "p", Reason: "odd"}, {Name: event.Alert, Pool: "p", Reason: "odd resolved"},
		},
	} {
		var labels []map[string]string
		for i, e := range pair {
			e.Time = at
			a, ok := read(&e)
			if want := []string{Firing, Resolved}[i]; !ok || a.State != want || a.Summary == "" || !Wants(&e) {
				t.Errorf("%s: %v %+v, want %s", name, ok, a, want)
			}
			labels = append(labels, map[string]string{"name": a.Name, "subject": a.Subject, "severity": a.Severity, "pool": a.Pool, "backend": a.Backend, "model": a.Model})
		}
		if d := cmp.Diff(labels[0], labels[1]); d != "" {
			t.Errorf("%s (-begin +end):\n%s", name, d)
		}
	}
}

func TestPeriodsEndInUTC(t *testing.T) {
	at := time.Date(2026, 12, 31, 20, 0, 0, 0, time.FixedZone("west", -6*3600)) // the new year has begun in UTC
	for period, want := range map[string]string{"day": "2027-01-02T00:00:00Z", "month": "2027-02-01T00:00:00Z"} {
		if got := periodEnd(at, period).Format(time.RFC3339); got != want {
			t.Errorf("%s: %s, want %s", period, got, want)
		}
	}
}

func TestTextsAreCleaned(t *testing.T) {
	a, _ := read(&event.Event{Name: event.Alert, Reason: "odd", Pool: "p\x1b[2J", Detail: "a\r\nb" + strings.Repeat("é", mostLine)})
	for _, s := range []string{a.Subject, a.Summary, a.Pool} {
		if strings.ContainsAny(s, "\r\n\x1b") || len(s) > mostLine+len("…") {
			t.Errorf("%d bytes: %q", len(s), s)
		}
	}
	if s := clean("ab€", 3); s != "ab…" {
		t.Errorf("%q", s)
	}
}
