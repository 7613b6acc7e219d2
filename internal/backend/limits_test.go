package backend

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/llm"
	"weir/internal/sim"
)

func TestLimitsHoldToTheMillisecond(t *testing.T) {
	const s = time.Second
	words := sim.Behaviour{Deltas: []string{"a", "b", "c"}}
	with := func(set func(*sim.Behaviour)) sim.Behaviour {
		b := words
		set(&b)
		return b
	}
	for _, c := range []struct {
		name   string
		does   sim.Behaviour
		server sim.Flavour
		body   string // askStream when empty
		stream string // of the backend; always when empty
		limits Limits // the usual ones when zero
		kind   string
		took   time.Duration
	}{
		{name: "no first content", does: with(func(b *sim.Behaviour) { b.FirstDelay = 16 * s }), kind: "slow", took: 15 * s},
		{name: "no headers", does: with(func(b *sim.Behaviour) { b.HeaderDelay = 16 * s }), kind: "slow", took: 15 * s},
		{name: "not a byte", does: sim.Behaviour{Hang: true}, kind: "slow", took: 15 * s},
		{name: "first content just in time", does: with(func(b *sim.Behaviour) { b.FirstDelay = 15*s - time.Millisecond }), took: 15*s - time.Millisecond},
		{name: "no first content for one who gets it whole", body: askWhole, does: with(func(b *sim.Behaviour) { b.FirstDelay = 16 * s }), kind: "slow", took: 15 * s},
		{name: "silence after content", does: with(func(b *sim.Behaviour) { b.Gap = 2 * s; b.Cut = &sim.Cut{After: 2, Of: "chunks", How: "stall"} }), kind: "stalled", took: 32 * s},
		{name: "silence within an event", does: sim.Behaviour{Fill: true, Gap: s, Body: "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"cho", Cut: &sim.Cut{After: 1 << 20, How: "stall"}}, kind: "stalled", took: 31 * s},
		{name: "an idle limit shorter than the first content's", limits: Limits{FirstContent: 60 * s, Idle: 5 * s},
			does: with(func(b *sim.Behaviour) { b.FirstDelay = 20 * s; b.Cut = &sim.Cut{After: 1, Of: "chunks", How: "stall"} }), kind: "stalled", took: 25 * s},
		{name: "an idle limit longer than the first content's", limits: Limits{FirstContent: 5 * s, Idle: 60 * s},
			does: with(func(b *sim.Behaviour) { b.FirstDelay = 4 * s; b.Cut = &sim.Cut{After: 1, Of: "chunks", How: "stall"} }), kind: "stalled", took: 64 * s},
		{name: "gaps just within the idle limit", does: with(func(b *sim.Behaviour) { b.Gap = 30*s - time.Millisecond }), took: 60*s - 2*time.Millisecond},
		{name: "the total limit", limits: Limits{FirstContent: 15 * s, Idle: 30 * s, Total: 10 * s}, does: sim.Behaviour{Endless: true, Gap: s}, kind: "stalled", took: 10 * s},
		{name: "the total limit before content", limits: Limits{FirstContent: 15 * s, Total: 10 * s}, does: sim.Behaviour{Hang: true}, kind: "stalled", took: 10 * s},
		{name: "no limits at all", limits: Limits{Idle: 0}, does: with(func(b *sim.Behaviour) { b.FirstDelay, b.Gap = 90*s, 90*s }), took: 270 * s},
		{name: "an answer in one piece", body: askWhole, stream: "as_asked", does: with(func(b *sim.Behaviour) { b.HeaderDelay = 61 * s }), kind: "slow", took: 60 * s},
		{name: "an answer in one piece, just in time", body: askWhole, stream: "as_asked", does: with(func(b *sim.Behaviour) { b.HeaderDelay = 60*s - time.Millisecond }), took: 60*s - time.Millisecond},
		{name: "half an answer", body: askWhole, stream: "as_asked", does: sim.Behaviour{Cut: &sim.Cut{After: 20, How: "stall"}}, kind: "slow", took: 60 * s},
		{name: "C076 a token each second for three times the limit", limits: Limits{FirstContent: 5 * s, Idle: 5 * s}, does: sim.Behaviour{Chunks: 16, Gap: s}, took: 15 * s},
		{name: "C076 one token, then silence", limits: Limits{FirstContent: 5 * s, Idle: 5 * s}, does: with(func(b *sim.Behaviour) { b.Cut = &sim.Cut{After: 1, Of: "chunks", How: "stall"} }), kind: "stalled", took: 5 * s},
		{name: "C076 a long prefill with comments, within the limit", limits: Limits{FirstContent: 100 * s, Idle: 5 * s}, does: with(func(b *sim.Behaviour) { b.FirstDelay, b.Ping = 90*s, 10*s }), took: 90 * s},
		{name: "C076 comments are no first content", does: with(func(b *sim.Behaviour) { b.FirstDelay, b.Ping = 90*s, 10*s }), kind: "slow", took: 15 * s},
		{name: "C076 comments reset the idle limit", does: with(func(b *sim.Behaviour) { b.Gap, b.Ping = 40*s, 10*s }), took: 80 * s},
		{name: "growing progress counts as life", server: sim.LlamaCPP, body: askWhole, does: with(func(b *sim.Behaviour) { b.FirstDelay = 56 * s }), took: 56 * s},
		{name: "progress that comes too slowly", server: sim.LlamaCPP, body: askWhole, does: with(func(b *sim.Behaviour) { b.FirstDelay = 64 * s }), kind: "slow", took: 15 * s},
		{name: "progress is not asked for where the client would see it", server: sim.LlamaCPP, does: with(func(b *sim.Behaviour) { b.FirstDelay = 56 * s }), kind: "slow", took: 15 * s},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script := on(c.does)
				script.Server = c.server
				w := newWorld(t, script, func(o *Options) {
					o.Target.Progress = c.server == sim.LlamaCPP
					if c.stream != "" {
						o.Stream = c.stream
					}
				})
				if c.body == "" {
					c.body = askStream
				}
				r := call(t, llm.Chat, c.body)
				if c.limits != (Limits{}) || c.name == "no limits at all" {
					r.Limits = c.limits
				}
				got := run(t.Context(), w.b, r)
				if got.kind() != c.kind || got.took != c.took {
					t.Fatalf("got %q after %v (%v), want %q after %v", got.kind(), got.took, got.err, c.kind, c.took)
				}
				if got.err != nil && !got.err.Sent {
					t.Error("the upstream may have worked on it, but Sent is false")
				}
				synctest.Wait()
				if n := len(w.Calls("m")); n != 1 {
					t.Errorf("the upstream saw %d calls", n)
				}
				a := w.Calls("m")[0]
				if c.kind != "" && (a.End != sim.Left && a.End != sim.CutOff || a.Ended.Sub(a.Arrived) > c.took) {
					t.Errorf("the upstream ended as %s after %v, want left after %v", a.End, a.Ended.Sub(a.Arrived), c.took)
				}
			})
		})
	}
}

func TestClientWhoLeavesIsSeenUpstreamAtOnce(t *testing.T) {
	for name, does := range map[string]sim.Behaviour{
		"before headers":       {Hang: true},
		"before content":       {FirstDelay: time.Minute, Deltas: []string{"a"}},
		"in the middle":        {Endless: true, Gap: time.Second},
		"in a silence":         {Deltas: []string{"a", "b"}, Gap: time.Hour},
		"of an error's body":   {Status: 500, Body: Bytes(3), Cut: &sim.Cut{After: 1, How: "stall"}},
		"of a whole one, half": {Cut: &sim.Cut{After: 10, How: "stall"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body, stream := askStream, "always"
				if strings.HasPrefix(name, "of a whole") {
					body, stream = askWhole, "as_asked"
				}
				w := newWorld(t, on(does), func(o *Options) { o.Stream = stream })
				c := call(t, llm.Chat, body)
				c.Limits = Limits{}
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(3500*time.Millisecond, cancel)
				got := run(ctx, w.b, c)
				if got.took != 3500*time.Millisecond {
					t.Errorf("noticed after %v", got.took)
				}
				if strings.HasPrefix(name, "of an error") { // its head said enough
					if got.kind() != "refused" {
						t.Errorf("got %q", got.kind())
					}
				} else if got.kind() != "canceled" || got.err.Kind.Blames() {
					t.Errorf("got %q: %v", got.kind(), got.err)
				}
				synctest.Wait()
				if a := w.Calls("m")[0]; a.Ended.Sub(a.Arrived) > 3500*time.Millisecond {
					t.Errorf("the upstream saw it after %v", a.Ended.Sub(a.Arrived))
				}
			})
		})
	}
}

// Bytes is a body of n bytes.
func Bytes(n int) sim.Bytes { return sim.Bytes(strings.Repeat("x", n)) }

func TestIdleLimitDoesNotCountWhileTheClientIsWrittenTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, on(sim.Behaviour{Deltas: []string{"a", "b", "c"}, Gap: 10 * time.Second}), nil)
		a, err := w.b.Call(t.Context(), call(t, llm.Chat, askStream))
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		for {
			out, err := a.Next()
			if err != nil {
				if llm.KindOf(err) == llm.Stalled {
					t.Fatal("the backend is blamed for a client who reads slowly")
				}
				break
			}
			if len(out) > 0 && a.Seen().Content { // before that it is held
				time.Sleep(time.Minute) // one write to a slow client
			}
		}
		if _, err := a.Finish(); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseDoesNotWaitForABodyThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, l := range []Limits{limits, {}} {
			w := newWorld(t, on(sim.Behaviour{Deltas: []string{"a"}, Cut: &sim.Cut{After: 1 << 40, How: "stall"}}), nil)
			c := call(t, llm.Chat, askStream)
			c.Limits = l
			got := run(t.Context(), w.b, c)
			if got.err != nil || !strings.HasSuffix(got.out, "data: [DONE]\n\n") || got.took > 100*time.Millisecond {
				t.Errorf("limits %+v: %q after %v (%v)", l, got.out, got.took, got.err)
			}
			w.b.Close()
			w.Close()
		}
	})
}

func TestFirstTellsTheTimeToContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, on(sim.Behaviour{Deltas: []string{"a", "b"}, FirstDelay: 3 * time.Second, Gap: time.Second}), nil)
		for _, body := range []string{askStream, askWhole} {
			if got := run(t.Context(), w.b, call(t, llm.Chat, body)); got.err != nil || got.first != 3*time.Second || got.seen.Events != 2 {
				t.Errorf("%s: got %v, %d events (%v), want 3s, 2", body, got.first, got.seen.Events, got.err)
			}
		}
	})
}
