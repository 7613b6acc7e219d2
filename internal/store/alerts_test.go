package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAlertsAndTheirDeliveriesSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	at := time.UnixMicro(1_790_000_000_000_000)
	put := func(name, subject, state string, age time.Duration, sinks ...string) Alert {
		t.Helper()
		a := Alert{Time: at.Add(-age), Name: name, Subject: subject, State: state, Body: `{"name":"` + name + `"}`}
		id, err := s.PutAlert(t.Context(), &a, sinks)
		if err != nil || id == 0 {
			t.Fatal(id, err)
		}
		a.ID = id
		return a
	}
	over := put("ejected", "a", "firing", time.Hour, "ops")
	back := put("ejected", "a", "resolved", 50*time.Minute, "ops", "phone")
	gone := put("gone", "a", "firing", 40*time.Minute, "ops")
	again := put("gone", "a", "firing", time.Minute)
	other := put("ejected", "b", "firing", 30*time.Minute)
	next := at.Add(time.Minute)
	for _, err := range []error{
		s.DeleteDelivery(t.Context(), over.ID, "ops"),
		s.PutDelivery(t.Context(), &Delivery{Alert: back, Sink: "phone", Tries: 3, Next: next}),
		s.PutDelivery(t.Context(), &Delivery{Alert: over, Sink: "ops", Tries: 9, Next: next}), // done already: it does not come back
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	s = open(t, dir, Options{})

	firing, err := s.Firing(t.Context())
	if d := cmp.Diff([]Alert{again, other}, firing); d != "" || err != nil {
		t.Errorf("firing: %v (-want +got):\n%s", err, d)
	}
	deliveries, err := s.Deliveries(t.Context())
	want := []Delivery{{back, "ops", 0, back.Time}, {back, "phone", 3, next}, {gone, "ops", 0, gone.Time}}
	if d := cmp.Diff(want, deliveries); d != "" || err != nil {
		t.Errorf("deliveries: %v (-want +got):\n%s", err, d)
	}
	for name, tt := range map[string]struct {
		since time.Time
		limit int
		want  []Alert
	}{
		"all":              {time.Time{}, 50, []Alert{over, back, gone, again, other}},
		"those of an hour": {at.Add(-45 * time.Minute), 50, []Alert{gone, again, other}},
		"the newest two":   {time.Time{}, 2, []Alert{again, other}},
	} {
		got, err := s.Alerts(t.Context(), tt.since, tt.limit)
		if d := cmp.Diff(tt.want, got); d != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, d)
		}
	}

	// What is old goes, with what was to be delivered of it.
	if err := s.Prune(t.Context(), at.Add(-45*time.Minute).Add(s.opts.Keep)); err != nil {
		t.Fatal(err)
	}
	left, err := s.Alerts(t.Context(), time.Time{}, 50)
	if d := cmp.Diff([]Alert{gone, again, other}, left); d != "" || err != nil {
		t.Errorf("after pruning: %v (-want +got):\n%s", err, d)
	}
	if deliveries, err = s.Deliveries(t.Context()); len(deliveries) != 1 || err != nil {
		t.Errorf("deliveries after pruning: %v, %v", deliveries, err)
	}
	var rows int
	if err := s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM deliveries").Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d rows of deliveries are left, want 1 (%v)", rows, err)
	}
}
