package alert

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/event"
)

const (
	fires = "ejected pool big backend a firing"
	over  = "ejected pool big backend a resolved"
	flaps = "ejected pool big backend a firing flapping"
)

// step lets time pass, emits, and looks at what a webhook got.
type step struct {
	wait time.Duration
	emit []event.Event
	want []string
}

func (w *world) play(v *receiver, steps []step) {
	w.t.Helper()
	for i, s := range steps {
		after(s.wait)
		w.emit(s.emit...)
		if d := cmp.Diff(s.want, said(w.t, v.take())); d != "" {
			w.t.Errorf("step %d (-want +got):\n%s", i+1, d)
		}
	}
}

func facts(list ...event.Event) []event.Event { return list }

func TestWhatIsToldAndWhen(t *testing.T) {
	out, in := facts(ejected("a")), facts(returned("a"))
	none := []string(nil)
	for _, tt := range []struct {
		name  string
		set   Settings
		steps []step
	}{
		{"a fault and its end are each told once", Settings{}, []step{
			{0, out, []string{fires}}, {time.Minute, out, none}, {time.Hour, out, none}, {time.Minute, in, []string{over}}, {time.Minute, in, none},
			{24 * time.Hour, nil, none},
		}},
		{"what still fires is told again after the time to repeat", Settings{Repeat: time.Hour}, []step{
			{0, out, []string{fires}}, {59 * time.Minute, nil, none}, {2 * time.Minute, nil, []string{fires}}, {50 * time.Minute, out, none}, {10 * time.Minute, nil, []string{fires}},
		}},
		{"an end that nobody heard the begin of is not told", Settings{}, []step{{0, in, none}}},
		{"a fault that is over before its settling time is not told", Settings{For: time.Minute}, []step{
			{0, out, none}, {50 * time.Second, in, none}, {time.Minute, nil, none},
		}},
		{"a fault that lasts is told after its settling time", Settings{For: time.Minute}, []step{
			{0, out, none}, {59 * time.Second, nil, none}, {2 * time.Second, nil, []string{fires}}, {time.Second, in, []string{over}},
		}},
		{"what fires again soon is told at once, its end only when it is calm", Settings{}, []step{
			{0, out, []string{fires}}, {time.Minute, in, []string{over}}, {11 * time.Minute, out, []string{fires}}, {time.Minute, in, none},
			{9 * time.Minute, nil, none}, {2 * time.Minute, nil, []string{over}},
		}},
		{"what fires again before its end is told is not sent again", Settings{}, []step{
			{0, out, []string{fires}}, {time.Minute, in, []string{over}}, {11 * time.Minute, out, []string{fires}}, {time.Minute, in, none},
			{5 * time.Minute, out, none}, {6 * time.Minute, in, none}, {19 * time.Minute, nil, none}, {2 * time.Minute, nil, []string{over}},
		}},
		{"what fires again much later is news, and so is its end", Settings{Repeat: time.Hour}, []step{
			{0, out, []string{fires}}, {time.Minute, in, []string{over}}, {2 * time.Hour, out, []string{fires}}, {time.Minute, in, []string{over}},
		}},
		{"flapping is told once, then how it ends when it is calm: over", Settings{}, []step{
			{0, out, []string{fires}}, {time.Minute, in, []string{over}}, {time.Minute, out, []string{fires}}, {time.Minute, in, none},
			{time.Minute, out, []string{flaps}}, {time.Minute, in, none}, {time.Minute, out, none}, {time.Minute, in, none},
			{9 * time.Minute, nil, none}, {2 * time.Minute, nil, []string{over}}, {time.Hour, nil, none},
		}},
		{"flapping is told once, then how it ends when it is calm: still out", Settings{}, []step{
			{0, out, []string{fires}}, {time.Second, in, []string{over}}, {time.Second, out, []string{fires}}, {time.Second, in, none},
			{time.Second, out, []string{flaps}}, {9 * time.Minute, nil, none}, {2 * time.Minute, nil, []string{fires}}, {time.Second, in, none},
			{31 * time.Minute, nil, []string{over}},
		}},
		{"five changes in more than ten minutes do not flap", Settings{}, []step{
			{0, out, []string{fires}}, {4 * time.Minute, in, []string{over}}, {4 * time.Minute, out, []string{fires}}, {4 * time.Minute, in, none}, {4 * time.Minute, out, none},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.set.Sinks = []Target{hook("ops")}
			inBubble(t, tt.set, func(t *testing.T, w *world) { w.play(w.receiver("ops"), tt.steps) })
		})
	}
}

func TestFactsBecomeAlerts(t *testing.T) {
	alert := func(reason string, e event.Event) event.Event {
		e.Name, e.Reason = event.Alert, reason
		return e
	}
	spend := func(percent string) event.Event {
		return alert("spend", event.Event{Pool: "big", Kind: "day", To: "pool big", From: percent, Detail: percent + " % of the $10 that pool big may spend in a day is reached: $5"})
	}
	denied := event.Event{Pool: "big", To: "a", Kind: "denied", Detail: "canary: the key sk-… of vendor.example is wrong"}
	otherPool := event.Event{Pool: "small", To: "a"}
	gone := event.Event{Pool: "big", To: "a", Model: "m"}
	merged := alert("merged", event.Event{Pool: "b", From: "b", To: "a", Detail: "canary: api.vendor.example"})
	confirm := event.Event{Name: event.Audit, Actor: "x", To: "pool b", Detail: "merge into a confirmed"}
	none := []string(nil)
	midnight := func() time.Duration { return time.Until(periodEnd(time.Now(), "day")) }
	for _, tt := range []struct {
		name  string
		steps func() []step
	}{
		{"an account is the backend's, whichever pool meets it", func() []step {
			return []step{{0, facts(alert("denied", denied)), []string{"denied backend a firing"}}, {time.Minute, facts(alert("denied resolved", otherPool)), []string{"denied backend a resolved"}}}
		}},
		{"a model is the pool's", func() []step {
			return []step{{0, facts(alert("gone", gone)), []string{"gone pool big model m firing"}}, {time.Minute, facts(alert("gone resolved", gone)), []string{"gone pool big model m resolved"}}}
		}},
		{"a merge is over when an operator has spoken", func() []step {
			return []step{{0, facts(merged), []string{"merged pool b firing"}}, {time.Hour, facts(confirm), []string{"merged pool b resolved"}}}
		}},
		{"a merge that nobody looks at is over after a day", func() []step {
			return []step{{0, facts(merged), []string{"merged pool b firing"}}, {23 * time.Hour, nil, none}, {2 * time.Hour, nil, []string{"merged pool b resolved"}}}
		}},
		{"more of a ceiling is told at once, less never, and the period's end ends it", func() []step {
			const fires = "spend pool big in a day firing"
			end := midnight()
			return []step{
				{0, facts(spend("50")), []string{fires}}, {time.Minute, facts(spend("80")), []string{fires}}, {time.Minute, facts(spend("50")), none},
				{time.Minute, facts(spend("100")), []string{fires}}, {end - 4*time.Minute, nil, none}, {2 * time.Minute, nil, []string{"spend pool big in a day resolved"}},
			}
		}},
		{"a shift that failed is over with one that did not", func() []step {
			shift := func(reason string) []event.Event { return facts(event.Event{Name: event.Shift, Reason: reason}) }
			return []step{{0, shift("shifted"), none}, {0, shift("failed"), []string{"shift the configuration firing"}}, {0, shift("changed"), none}, {time.Minute, shift("shifted"), []string{"shift the configuration resolved"}}}
		}},
		{"a configuration that nobody wanted serves until another one does", func() []step {
			return []step{{0, facts(alert("shift", event.Event{To: "3"})), []string{"shift the configuration firing"}}, {time.Minute, facts(alert("shift resolved", event.Event{To: "4"})), []string{"shift the configuration resolved"}}}
		}},
		{"a swap that failed likewise", func() []step {
			return []step{{0, facts(event.Event{Name: event.Swap, Pool: "p40s", Reason: "failed"}), []string{"swap device p40s firing"}}}
		}},
		{"what is done by hand is told nobody who does not ask for it", func() []step {
			return []step{{0, facts(event.Event{Name: event.Health, Pool: "big", Reason: "out", Detail: "taken out by x"}), none}}
		}},
		{"an alert of a part that has no words here says its own", func() []step {
			return []step{{0, facts(alert("config", event.Event{Detail: "the file changed while frozen"})), []string{"config weir firing"}}, {time.Minute, facts(alert("config resolved", event.Event{})), []string{"config weir resolved"}}}
		}},
		{"other facts are none", func() []step {
			return []step{{0, facts(event.Event{Name: event.Health, Pool: "big", Reason: "warming"}, event.Event{Name: event.Start}, event.Event{Name: event.Alert}), none}}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, Settings{Sinks: []Target{hook("ops")}}, func(t *testing.T, w *world) { w.play(w.receiver("ops"), tt.steps()) })
		})
	}
}

// What an upstream said, hosts and line ends never leave; the names of models are cleaned.
func TestMessagesHoldNothingForeign(t *testing.T) {
	sinks := []Target{hook("ops"), {Name: "chat", Sink: Slack{URL: Fixed("http://chat.sim/secret")}}, {Name: "am", Sink: Alertmanager{URL: "http://am.sim"}}, {Name: "phone", Sink: NTFY{URL: "http://phone.sim/weir"}}}
	inBubble(t, Settings{Sinks: sinks}, func(t *testing.T, w *world) {
		var all []*receiver
		for _, s := range sinks {
			all = append(all, w.receiver(s.Name))
		}
		w.emit(
			event.Event{Name: event.Alert, Reason: "denied", Pool: "big", To: "a", Detail: "canary"},
			event.Event{Name: event.Alert, Reason: "gone", Pool: "big", To: "a", Model: "x<!channel>\r\nX: y\x1b[2J" + strings.Repeat("long", 9000), Detail: "canary"},
			event.Event{Name: event.Alert, Reason: "merged", Pool: "b", To: "a", Detail: "canary"},
			event.Event{Name: event.Health, Reason: "ejected", Pool: "big", To: "a", Detail: "canary"},
		)
		after(time.Minute)
		for i, v := range all {
			got := v.take()
			if len(got) < 4 && sinks[i].Name != "am" || len(got) == 0 {
				t.Errorf("%s got %d messages", sinks[i].Name, len(got))
			}
			for _, r := range got {
				if strings.Contains(r.body, "canary") || strings.Contains(r.body, "\x1b") || len(r.body) > mostBody {
					t.Errorf("%s got %d bytes: %.600s", sinks[i].Name, len(r.body), r.body)
				}
				if sinks[i].Name == "chat" && strings.Contains(r.body, "<!channel>") {
					t.Errorf("a model's name calls everyone: %s", r.body)
				}
			}
		}
	})
}

func TestByHandIsToldWhoAsksForIt(t *testing.T) {
	ops := hook("ops")
	ops.Least = Info
	inBubble(t, Settings{Sinks: []Target{ops}}, func(t *testing.T, w *world) {
		hand := func(reason, backend string) event.Event {
			return event.Event{Name: event.Health, Pool: "big", To: backend, Reason: reason}
		}
		w.play(w.receiver("ops"), []step{
			{0, facts(hand("out", ""), hand("out", "a")), []string{"out pool big firing", "out pool big backend a firing"}},
			{24 * time.Hour, nil, nil},
		})
		v := w.receiver("later")
		later := hook("later")
		later.Least = Info
		w.desk.Configure(Settings{Sinks: []Target{later}}) // a shift replaces the sinks
		w.emit(hand("in", ""))                             // the pool and all of its backends
		got := said(t, v.take())
		slices.Sort(got)
		if d := cmp.Diff([]string{"out pool big backend a resolved", "out pool big resolved"}, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

func TestTooManyThingsAreBounded(t *testing.T) {
	inBubble(t, Settings{}, func(t *testing.T, w *world) {
		var list []event.Event
		for i := range mostStates + 10 {
			list = append(list, event.Event{Name: event.Alert, Reason: "gone", Pool: "big", Model: fmt.Sprint("m", i)})
		}
		w.emit(list...)
		if got := len(w.desk.Firing()); got != mostStates || w.count(" dropped") != 10 {
			t.Errorf("%d fire, %d dropped", got, w.count(" dropped"))
		}
	})
}

func TestWhatIsOverIsForgotten(t *testing.T) {
	inBubble(t, Settings{Repeat: time.Hour}, func(t *testing.T, w *world) {
		w.emit(ejected("a"), returned("a"))
		after(2 * time.Hour)
		w.desk.mu.Lock()
		defer w.desk.mu.Unlock()
		if len(w.desk.states) != 0 {
			t.Errorf("%d states are left", len(w.desk.states))
		}
	})
}
