package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/event"
	"weir/internal/store"
)

const eventsConfig = `
backends: {floor: {url: "sim://floor", tier: floor}}
pools: {helper: {backend: floor, cap: 1, models: [m]}}
routes: {quick: {steps: [helper/m]}}
aliases: {auto: quick}
`

// recorded makes a config file and a store with two requests: one that fell back, one refused.
func recorded(t *testing.T) (configFile string, st *store.Store) {
	t.Helper()
	dir := t.TempDir()
	configFile = filepath.Join(dir, "weir.yaml")
	if err := os.WriteFile(configFile, []byte(eventsConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), filepath.Join(dir, "data"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	attempts := event.AppendAttempts(nil, []event.Attempt{
		{Pool: "vendor-a", Backend: "vendor", Model: "glm-5", Tier: "cloud", Kind: "slow", Message: "no \x1b[31mcontent", At: 0, Queue: 200 * time.Millisecond, First: -1,
			Took: time.Second, Sent: true},
		{Pool: "dense", Backend: "gpu", Model: "qwen-27b", Tier: "gpu", Kind: "none", At: time.Second, First: -1},
		{Pool: "helper", Backend: "floor", Model: "m", Tier: "floor", Status: 200, At: time.Second, First: 500 * time.Millisecond, Took: time.Second, Sent: true},
	})
	rows := []store.Request{
		{Time: time.Now().Add(-time.Minute), Request: "req_1", Op: "chat", Alias: "coder", Route: "code", Tier: "floor", Pool: "helper", Backend: "floor",
			Model: "m", Status: 200, Reroute: "fallback", Attempts: string(attempts), Queue: 200 * time.Millisecond, First: 1500 * time.Millisecond,
			Total: 2 * time.Second, Overhead: 300 * time.Microsecond, TokensIn: 10, TokensOut: 20, TokensCached: -1, TokensReasoning: -1,
			TokensWritten: -1, Cost: 12_500_000, Key: "laptop", KeyID: "a1B2c3D4", Bytes: 123, Messages: 1, Stream: true, Trace: "4bf92f3577b34da6a3ce929d0e0e4736"},
		{Time: time.Now(), Request: "req_2", Op: "chat", Status: 401, Kind: "unauthorized", Attempts: "[]", First: -1, TokensIn: -1, TokensOut: -1,
			TokensCached: -1, TokensReasoning: -1, TokensWritten: -1, Cost: -1},
	}
	if err := st.WriteRequests(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	if err := st.WriteFacts(t.Context(), []store.Fact{{Time: time.Now(), Event: "health", Pool: "vendor-a", Reason: "down"}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return configFile, st
}

func weirEvents(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(t.Context(), append([]string{"events"}, args...), &Streams{Out: &out, Err: &errs}); code != exitOK {
		t.Fatalf("weir events %q: exit code %d: %s", args, code, errs.String())
	}
	return out.String()
}

func TestEventsTable(t *testing.T) {
	file, _ := recorded(t)
	for _, tt := range []struct {
		name string
		args []string
		want []string
		not  []string
	}{
		{"all", nil, []string{"TIME", "req_1", "coder → helper/m", "reroute=fallback", "key=laptop", "attempts=3", "2.00s", "req_2", "kind=unauthorized", "health"}, nil},
		{"reroutes", []string{"--event", "reroute"}, []string{"req_1"}, []string{"req_2", "health"}},
		{"skips", []string{"--event", "skip"}, []string{"req_1"}, []string{"req_2"}},
		{"requests", []string{"--event", "end"}, []string{"req_1", "req_2"}, []string{"health"}},
		{"health", []string{"--event", "health"}, []string{"vendor-a", "down"}, []string{"req_1"}},
		{"of late", []string{"--since", "30s"}, []string{"req_2"}, []string{"req_1"}},
		{"of a key", []string{"--key", "laptop"}, []string{"req_1"}, []string{"req_2", "health"}},
		{"the last", []string{"--event", "end", "--limit", "1"}, []string{"req_2"}, []string{"req_1"}},
		{"counted", []string{"--count"}, []string{"3\n"}, []string{"req"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := weirEvents(t, append(tt.args, "--config", file)...)
			for _, w := range tt.want {
				if !strings.Contains(got, w) {
					t.Errorf("no %q in:\n%s", w, got)
				}
			}
			for _, w := range tt.not {
				if strings.Contains(got, w) {
					t.Errorf("%q in:\n%s", w, got)
				}
			}
		})
	}
}

func TestEventsJSONIsTheLineOfTheLog(t *testing.T) {
	file, _ := recorded(t)
	var got struct {
		Event    string
		Request  string
		Attempts []event.Attempt
		Cost     float64 `json:"cost_usd"`
		Total    float64 `json:"total_ms"`
		Trace    string
		Shape    struct{ Bytes int }
	}
	line := weirEvents(t, "--json", "--request", "req_1", "--config", file)
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		t.Fatalf("%v in %s", err, line)
	}
	if got.Event != "end" || got.Request != "req_1" || len(got.Attempts) != 3 || got.Cost != 0.0125 || got.Total != 2000 || got.Shape.Bytes != 123 ||
		got.Trace != "4bf92f3577b34da6a3ce929d0e0e4736" {
		t.Errorf("got %+v", got)
	}
}

func TestEventsWaterfall(t *testing.T) {
	file, _ := recorded(t)
	got := weirEvents(t, "--request", "req_1", "--config", file)
	want := []string{
		"answer   200 from helper/m",
		"tokens   in 10, out 20, cost 0.012500 USD",
		"                                                                                              ",
		"vendor-a/glm-5 @vendor  ░░░░▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒                      slow  1.00s  “no \\u001b[31mcontent”",
		"dense/qwen-27b @gpu                         ▒                     none  0  not sent",
		"helper/m @floor                             ▒▒▒▒▒▒▒▒▒▒██████████  ok  200  1.00s",
	}
	for _, w := range want {
		if w = strings.TrimRight(w, " "); !strings.Contains(got, w) {
			t.Errorf("no line %q in:\n%s", w, got)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Error("a terminal escape came through")
	}
}

func TestBarsStayInTheirFrame(t *testing.T) {
	for _, a := range []event.Attempt{
		{}, {At: time.Hour, First: -1}, {Took: time.Hour, First: time.Hour}, {At: -1, Queue: -1, First: -1, Took: -1}, {Queue: time.Hour, First: -1}, {First: time.Hour, Took: 1},
	} {
		for _, total := range []time.Duration{0, 1, time.Second, time.Hour} {
			if got := bar(&a, total); len([]rune(got)) != barWidth {
				t.Errorf("bar of %+v in %v has %d columns", a, total, len([]rune(got)))
			}
		}
	}
}

// Following shows what another process writes, each row once, and ends without a failure.
func TestEventsFollow(t *testing.T) {
	file, st := recorded(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		reader, err := store.Open(ctx, filepath.Dir(st.Path()), store.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		var out bytes.Buffer
		word := &Events{configFlag: configFlag{file}, Follow: true, Limit: 50}
		done := make(chan error, 1)
		go func() { done <- word.show(ctx, &Streams{Out: &out}, reader, store.Query{Limit: 50}) }()
		time.Sleep(time.Second)
		for _, id := range []string{"req_3", "req_4"} {
			if err := st.WriteRequests(context.WithoutCancel(ctx), []store.Request{{Time: time.Now(), Request: id, Status: 200, Attempts: "[]"}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("following ended with %v", err)
		}
		for _, id := range []string{"req_1", "req_2", "req_3", "req_4"} {
			if n := strings.Count(out.String(), id); n != 1 {
				t.Errorf("%s is shown %d times, want once", id, n)
			}
		}
	})
}

func TestEventsByReason(t *testing.T) {
	configFile, _ := recorded(t)
	for args, want := range map[string]string{
		"--event reroute --since 30m --reasons":   "COUNT  POOL    REASON\n1      helper  fallback\n",
		"--event reroute --reason slow --reasons": "COUNT  POOL  REASON\n",
		"--event health --reasons --json":         `{"count":1,"pool":"vendor-a","reason":"down"}` + "\n",
	} {
		if got := weirEvents(t, append(strings.Fields(args), "--config", configFile)...); got != want {
			t.Errorf("weir events %s: got %q, want %q", args, got, want)
		}
	}
}
