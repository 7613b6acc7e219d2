package alert

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/event"
)

func TestFailuresAreTriedAgainWithGrowingGaps(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request)
	}{
		{"500", status(500)},
		{"408", status(408)},
		{"429 without a time", status(429)},
		{"an answer that never comes", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{"a connection that breaks", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, Settings{Sinks: []Target{hook("ops")}}, func(t *testing.T, w *world) {
				v := w.receiver("ops")
				v.answers(tt.answer)
				w.emit(ejected("a"))
				after(time.Hour)
				got := v.take()
				for i := 1; i < len(got); i++ {
					gap, want := got[i].at.Sub(got[i-1].at), min(firstWait<<(i-1), mostWait)
					if gap < want/2 || gap > want+postFor+time.Second {
						t.Errorf("gap %d: %v, want about %v", i, gap, want)
					}
					if got[i].head.Get("Webhook-Id") != got[0].head.Get("Webhook-Id") {
						t.Errorf("try %d has another id", i+1)
					}
				}
				if len(got) < 15 || len(got) > 40 {
					t.Errorf("%d tries in an hour", len(got))
				}
				v.answers(nil)
				after(2 * mostWait)
				if got := said(t, v.take()); !cmp.Equal(got, []string{fires}) || w.store.waiting() != 0 || w.count("ops ok") != 1 {
					t.Errorf("once it is well: %q, %d wait, counts %v", got, w.store.waiting(), w.counts)
				}
				if n := strings.Count(w.log.String(), "an alert sink fails"); n != 1 {
					t.Errorf("the log tells it %d times:\n%s", n, w.log)
				}
			})
		})
	}
}

func TestWhatASinkRefusesIsNotSentAgain(t *testing.T) {
	for _, code := range []int{301, 307, 400, 401, 403, 404, 410, 413, 422} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			inBubble(t, Settings{Sinks: []Target{hook("ops")}}, func(t *testing.T, w *world) {
				v, other := w.receiver("ops"), w.receiver("other")
				v.answers(status(code, "Location", "http://other.sim/"))
				w.emit(ejected("a"))
				after(5 * time.Hour)
				if n := len(v.take()); n != 2 { // once, and the repeat of what still fires
					t.Errorf("%d messages", n)
				}
				if got := other.take(); len(got) != 0 {
					t.Errorf("a redirect was followed: %v", got)
				}
				if n := strings.Count(w.log.String(), "an alert sink refuses"); n != 1 || w.store.waiting() != 0 {
					t.Errorf("the log tells it %d times, %d wait", n, w.store.waiting())
				}
			})
		})
	}
}

func TestRetryAfterIsKept(t *testing.T) {
	for name, after429 := range map[string]func() string{
		"seconds": func() string { return "120" },
		"a date":  func() string { return time.Now().Add(2 * time.Minute).UTC().Format(http.TimeFormat) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Settings{Sinks: []Target{hook("ops")}}, func(t *testing.T, w *world) {
				v := w.receiver("ops")
				v.answers(status(429, "Retry-After", after429()))
				w.emit(ejected("a"))
				after(time.Second)
				v.answers(nil)
				w.emit(ejected("b")) // waits too: the sink as a whole has asked for it
				after(115 * time.Second)
				if n := len(v.take()); n != 1 {
					t.Errorf("%d messages before the time is over", n)
				}
				after(6 * time.Second)
				if n := len(v.take()); n != 2 {
					t.Errorf("%d messages after it", n)
				}
			})
		})
	}
}

// A sink that hangs holds up neither the reader of facts nor another sink.
func TestASinkThatHangsHoldsUpNobody(t *testing.T) {
	inBubble(t, Settings{Sinks: []Target{hook("ops"), hook("dead")}}, func(t *testing.T, w *world) {
		v, dead := w.receiver("ops"), w.receiver("dead")
		dead.answers(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(time.Minute):
			case <-r.Context().Done():
			}
		})
		w.emit(ejected("a")) // returns in 10 ms, or the messages below are late
		begun := time.Now()
		w.emit(ejected("b"))
		if got := said(t, v.take()); time.Since(begun) > 20*time.Millisecond || len(got) != 2 {
			t.Errorf("after %v the other sink has %q", time.Since(begun), got)
		}
		if n := len(dead.take()); n != 1 {
			t.Errorf("%d messages at the sink that hangs", n)
		}
	})
}

func TestABurstIsSummedUp(t *testing.T) {
	inBubble(t, Settings{Sinks: []Target{hook("ops")}}, func(t *testing.T, w *world) {
		v := w.receiver("ops")
		var list []event.Event
		for i := range 57 {
			list = append(list, ejected(fmt.Sprint("b", i)))
		}
		w.emit(list...)
		after(time.Second)
		if n := len(v.take()); n != perMinute {
			t.Errorf("%d messages at once, want %d", n, perMinute)
		}
		after(58 * time.Second)
		if n := len(v.take()); n != 0 {
			t.Errorf("%d messages within the minute", n)
		}
		after(2 * time.Second)
		got := v.take()
		if d := cmp.Diff([]string{"and 37 more alerts: 37 ejected firing"}, said(t, got)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		var sum webhookBody
		if err := json.Unmarshal([]byte(got[0].body), &sum); err != nil || len(sum.Data.Alerts) != 37 || sum.Data.Alerts[36].Subject != "pool big backend b56" {
			t.Errorf("%v %+v", err, sum)
		}
		if w.store.waiting() != 0 {
			t.Errorf("%d wait", w.store.waiting())
		}
		w.emit(returned("b56"))
		if got := said(t, v.take()); !cmp.Equal(got, []string{"ejected pool big backend b56 resolved"}) {
			t.Errorf("after it: %q", got)
		}
	})
}

func TestWhatIsSaidOfOneThingGoesOutInOrder(t *testing.T) {
	inBubble(t, Settings{Sinks: []Target{hook("ops")}}, func(t *testing.T, w *world) {
		v := w.receiver("ops")
		v.answers(status(500))
		w.emit(ejected("a"))
		after(time.Minute)
		w.emit(returned("a"))
		after(time.Minute)
		if n := len(v.take()); n < 5 {
			t.Errorf("%d tries", n)
		}
		v.answers(nil)
		after(2 * mostWait)
		if d := cmp.Diff([]string{fires, over}, said(t, v.take())); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

// Messages that a sink chokes on hold up no other ones for long, and are not tried all the time.
func TestPoisonedMessagesHoldUpNoOther(t *testing.T) {
	inBubble(t, Settings{Sinks: []Target{{Name: "phone", Sink: NTFY{URL: "http://phone.sim/weir"}}}}, func(t *testing.T, w *world) {
		v := w.receiver("phone")
		v.answers(func(rw http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "account") || strings.Contains(string(body), "denied") {
				rw.WriteHeader(500)
			}
		})
		for i := range 10 {
			w.emit(event.Event{Name: event.Alert, Reason: "denied", To: fmt.Sprint("a", i)})
		}
		after(20 * time.Minute)
		for i := range 3 {
			w.emit(ejected(fmt.Sprint("b", i)))
		}
		after(mostWait)
		if n := w.store.waiting(); n != 10 {
			t.Errorf("%d wait, want the 10 alone", n)
		}
		w.mu.Lock()
		w.counts = map[string]int{}
		w.mu.Unlock()
		for i := range 60 {
			w.emit(ejected(fmt.Sprint("c", i)))
			after(10 * time.Second)
		}
		after(time.Minute)
		if n := w.store.waiting(); n != 10 {
			t.Errorf("%d wait, want the 10 alone", n)
		}
		if n := w.count("phone retry"); n > 120 { // a few of each
			t.Errorf("%d tries of the ten in ten minutes", n)
		}
	})
}

func TestItIsGivenUpAfterADay(t *testing.T) {
	inBubble(t, Settings{Sinks: []Target{hook("ops")}, Repeat: 1000 * time.Hour}, func(t *testing.T, w *world) {
		v := w.receiver("ops")
		v.answers(status(500))
		w.emit(ejected("a"))
		after(giveUp + 2*mostWait)
		v.take()
		after(time.Hour)
		if n := len(v.take()); n != 0 || w.count("ops gave_up") != 1 || w.store.waiting() != 0 {
			t.Errorf("%d tries, counts %v, %d wait", n, w.counts, w.store.waiting())
		}
	})
}

func TestWhatWasNotDeliveredGoesOutAfterARestart(t *testing.T) {
	set := Settings{Sinks: []Target{hook("ops"), hook("was")}}
	inBubble(t, set, func(t *testing.T, w *world) {
		v := w.receiver("ops")
		v.answers(status(503))
		w.receiver("was").answers(status(503))
		w.emit(ejected("a"))
		first := v.take()[0]
		w.stop()
		after(time.Hour)
		v.answers(nil)
		w.start(Settings{Sinks: []Target{hook("ops")}}) // the other sink is not configured any more
		after(time.Minute)
		got := v.take()
		if d := cmp.Diff([]string{fires}, said(t, got)); d != "" || got[0].head.Get("Webhook-Id") != first.head.Get("Webhook-Id") {
			t.Errorf("another id, or (-want +got):\n%s", d)
		}
		if w.store.waiting() != 0 {
			t.Errorf("%d wait", w.store.waiting())
		}
		after(calm) // nothing is heard of it any more
		if d := cmp.Diff([]string{over}, said(t, v.take())); d != "" {
			t.Errorf("after the restart (-want +got):\n%s", d)
		}
		w.stop()
		w.start(set)
		after(time.Hour)
		if got := v.take(); len(got) != 0 {
			t.Errorf("what is done was sent again: %v", got)
		}
	})
}

func TestWhatFiresOverARestartIsNotToldAgain(t *testing.T) {
	set := Settings{Sinks: []Target{hook("ops")}}
	inBubble(t, set, func(t *testing.T, w *world) {
		v := w.receiver("ops")
		w.emit(ejected("a"), event.Event{Name: event.Alert, Reason: "merged", Pool: "b", To: "a"})
		v.take()
		w.stop()
		w.start(set)
		after(time.Minute)
		w.emit(ejected("a"))
		after(time.Hour)
		if got := v.take(); len(got) != 0 {
			t.Errorf("%q", said(t, got))
		}
		w.emit(returned("a"))
		if d := cmp.Diff([]string{over}, said(t, v.take())); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

func TestAlertsGoOutWhereTheStoreIsGone(t *testing.T) {
	inBubble(t, Settings{Sinks: []Target{hook("ops")}}, func(t *testing.T, w *world) {
		v := w.receiver("ops")
		w.store.broken = errBroken
		w.emit(ejected("a"), ejected("b"), returned("a"))
		if got := v.take(); len(got) != 3 {
			t.Errorf("%q", said(t, got))
		}
		if n := strings.Count(w.log.String(), "alerts cannot be stored"); n != 1 {
			t.Errorf("the log tells it %d times:\n%s", n, w.log)
		}
		w.stop()
		w.start(Settings{Sinks: []Target{hook("ops")}})
		w.emit(ejected("a"))
		if got := v.take(); len(got) != 1 {
			t.Errorf("after a restart: %q", said(t, got))
		}
	})
}

// An Alertmanager forgets what is not sent again, and gets several alerts at a time.
func TestAlertmanagerIsKeptUpToDate(t *testing.T) {
	inBubble(t, Settings{Sinks: []Target{{Name: "am", Sink: Alertmanager{URL: "http://am.sim/base/"}}}}, func(t *testing.T, w *world) {
		v := w.receiver("am")
		began := time.Now()
		w.emit(ejected("a"))
		after(10*time.Minute + time.Second)
		got := v.take()
		if len(got) < 10 || len(got) > 12 {
			t.Errorf("%d messages in ten minutes", len(got))
		}
		for i, r := range got {
			want := []managed{{
				Labels:      map[string]string{"alertname": "WeirEjected", "severity": "warning", "subject": "pool big backend a", "pool": "big", "backend": "a", "weir": "w1"},
				Annotations: map[string]string{"summary": "backend a of pool big is out: it failed again and again", "description": "The kind of failure: refused."},
				Starts:      began.UTC(), Ends: r.at.Add(4 * time.Minute).UTC(),
			}}
			var list []managed
			if err := json.Unmarshal([]byte(r.body), &list); err != nil || r.path != "/base/api/v2/alerts" {
				t.Fatal(r.path, err)
			}
			if d := cmp.Diff(want, list); d != "" {
				t.Errorf("message %d (-want +got):\n%s", i, d)
			}
		}
		w.emit(returned("a"))
		at := time.Now()
		got = v.take()
		var list []managed
		if err := json.Unmarshal([]byte(got[0].body), &list); err != nil || len(got) != 1 || len(list) != 1 || list[0].Ends.After(at) || list[0].Labels["alertname"] != "WeirEjected" {
			t.Errorf("%v %d messages, %+v", err, len(got), list)
		}
		after(10 * time.Minute)
		if got := v.take(); len(got) != 0 {
			t.Errorf("%d messages when all is well: %s", len(got), got[0].body)
		}
		var burst []event.Event
		for i := range 100 {
			burst = append(burst, ejected(fmt.Sprint("b", i)))
		}
		w.emit(burst...)
		after(time.Second)
		seen := map[string]bool{}
		for _, r := range v.take() {
			var list []managed
			if err := json.Unmarshal([]byte(r.body), &list); err != nil || len(r.body) > mostBody {
				t.Fatal(err, len(r.body))
			}
			for _, a := range list {
				seen[a.Labels["backend"]] = true
			}
		}
		if len(seen) != 100 {
			t.Errorf("%d of 100 alerts came", len(seen))
		}
	})
}

func TestASinkIsTested(t *testing.T) {
	inBubble(t, Settings{Sinks: []Target{hook("ops"), hook("sick"), hook("dead"), hook("gone")}}, func(t *testing.T, w *world) {
		v := w.receiver("ops")
		w.receiver("sick").answers(status(403))
		w.receiver("dead").answers(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		got, err := w.desk.Test(t.Context(), "")
		if err != nil || len(got) != 4 {
			t.Fatal(got, err)
		}
		if d := cmp.Diff([]string{"test weir alert test firing"}, said(t, v.take())); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		for i, want := range []Outcome{
			{Sink: "ops", OK: true, Status: 200}, {Sink: "sick", Status: 403, Err: "the sink answered 403: so it is"}, {Sink: "dead", Err: "no answer within 8s"}, {Sink: "gone"},
		} {
			if g := got[i]; g.Sink != want.Sink || g.OK != want.OK || g.Status != want.Status || want.Sink != "gone" && g.Err != want.Err || g.Took > 9*time.Second {
				t.Errorf("got %+v, want %+v", g, want)
			}
			if !got[i].OK && (got[i].Err == "" || strings.Contains(got[i].Err, "http://")) {
				t.Errorf("%s says %q", got[i].Sink, got[i].Err)
			}
		}
		if got, err := w.desk.Test(t.Context(), "ops"); err != nil || len(got) != 1 {
			t.Error(got, err)
		}
		if _, err := w.desk.Test(t.Context(), "oops"); err == nil || !strings.Contains(err.Error(), "ops, sick, dead, gone") {
			t.Error(err)
		}
		w.desk.Configure(Settings{})
		if _, err := w.desk.Test(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "none is configured") {
			t.Error(err)
		}
	})
}

// A shift changes sinks under way: what waits for a sink that stays goes out, to its new place.
func TestSinksChange(t *testing.T) {
	inBubble(t, Settings{Sinks: []Target{hook("ops"), hook("was")}}, func(t *testing.T, w *world) {
		w.receiver("ops").answers(status(503))
		w.receiver("was").answers(status(503))
		v := w.receiver("moved")
		w.emit(ejected("a"))
		moved := hook("moved")
		moved.Name = "ops"
		fresh := w.receiver("fresh")
		w.desk.Configure(Settings{Sinks: []Target{moved, hook("fresh")}})
		after(time.Minute)
		w.emit(ejected("b"))
		if got := said(t, v.take()); len(got) != 2 || got[0] != fires {
			t.Errorf("the sink that moved got %q", got)
		}
		if got := said(t, fresh.take()); len(got) != 1 {
			t.Errorf("the new sink got %q", got)
		}
		if w.store.waiting() != 0 {
			t.Errorf("%d wait", w.store.waiting())
		}
	})
}

// What waits is bounded: the oldest goes.
func TestWhatWaitsForADeadSinkIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dropped := 0
		d := New(t.Context(), Options{Settings: Settings{Sinks: []Target{hook("ops")}}, Count: func(string, string) { dropped++ }})
		for i := range mostItems + 5 {
			d.Read(context.Background(), facts(ejected(fmt.Sprint("b", i))))
		}
		if n := len(d.now.Load().outlets[0].items); n != mostItems || dropped != 5 {
			t.Errorf("%d wait, %d dropped", n, dropped)
		}
	})
}
