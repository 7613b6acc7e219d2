package event

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sampleRecord() *Record {
	start := time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC)
	return &Record{
		Start: start, Op: "chat", Dialect: "openai", Alias: "coder", Route: "code", Tier: "cloud", Pool: "vendor-b", Backend: "vendor",
		Model: "kimi-k3", Served: "kimi-k3-0711", Status: 200, Reroute: "fallback",
		Attempts: []Attempt{
			{Pool: "vendor-a", Backend: "vendor", Model: "glm-5", Tier: "cloud", Kind: "busy", Status: 429, Message: "too many requests",
				At: 120 * time.Microsecond, First: -1, Took: 310 * time.Millisecond, Sent: true, Span: SpanID{1}},
			{Pool: "vendor-b", Backend: "vendor", Model: "kimi-k3", Tier: "cloud", Status: 200, Served: "kimi-k3-0711",
				At: 310 * time.Millisecond, Queue: 20 * time.Millisecond, First: 400*time.Millisecond + 500, Took: 2 * time.Second, Sent: true, Span: SpanID{2}},
		},
		Queue: 20 * time.Millisecond, First: 710 * time.Millisecond, Total: 2310 * time.Millisecond, Overhead: 187 * time.Microsecond,
		Tokens: Tokens{In: 1200, Out: 340, Cached: 800, Reasoning: -1, Written: -1}, Cost: -1, KeyName: "laptop", KeyID: "a1B2c3D4", Session: "s-77", Version: "3",
		Shape: Shape{Bytes: 12345, TokensEst: 3000, Messages: 12, Tools: 20, Stream: true, MaxTokens: 4096},
		Trace: TraceID{0x4b, 0xf9, 15: 1}, Span: SpanID{9}, Parent: SpanID{8}, Traced: true, Remote: "192.0.2.7",
	}
}

func sampleEvents() []Event {
	at := time.Date(2026, 11, 30, 12, 0, 2, 433000000, time.UTC)
	refused := &Record{Start: at, Op: "chat", Status: 401, Kind: "unauthorized", Queue: 0, First: -1, Total: 41 * time.Microsecond, Overhead: 41 * time.Microsecond,
		Tokens: Tokens{In: -1, Out: -1, Cached: -1, Reasoning: -1, Written: -1}, Cost: -1, Message: "no valid API key"}
	return []Event{
		{Time: at, Name: Start, Request: "req_1", Alias: "coder"},
		{Time: at, Name: Routing, Request: "req_1", Alias: "coder", Route: "code", Detail: "vendor-a/glm-5, vendor-b/kimi-k3"},
		{Time: at, Name: Skip, Request: "req_1", Tier: "gpu", Pool: "dense", Model: "qwen-27b", Reason: "not_serving"},
		{Time: at, Name: Reroute, Request: "req_1", Route: "code", From: "vendor-a/glm-5", To: "vendor-b/kimi-k3", Reason: "fallback", Kind: "busy"},
		{Time: at, Name: Reroute, Request: "req_2"},
		{Time: at, Name: End, Request: "req_1", Record: sampleRecord()},
		{Time: at, Name: End, Request: "req_3", Record: refused},
		{Time: at, Name: Health, Pool: "vendor-a", Reason: "down", Detail: "5 failures in a row"},
		{Time: at, Name: Alert, Pool: "vendor-a", Reason: "denied", Detail: "the account's key was refused"},
		{Time: at, Name: Audit, Actor: "weir keys, user ann", To: "key laptop (a1B2c3D4)", Detail: "key added"},
	}
}

// The lines of all events, as the contract has them.
func TestGolden(t *testing.T) {
	t.Setenv("TZ", "UTC")
	time.Local = time.UTC
	for name, write := range map[string]func([]byte, *Event) []byte{
		"events.jsonl":      AppendJSON,
		"events.txt":        func(b []byte, e *Event) []byte { return AppendText(b, e, false) },
		"events-colour.txt": func(b []byte, e *Event) []byte { return AppendText(b, e, true) },
	} {
		t.Run(name, func(t *testing.T) {
			var got []byte
			for _, e := range sampleEvents() {
				got = append(write(got, &e), '\n')
			}
			file := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), string(got)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestEndHasEveryFieldOfTheContract(t *testing.T) {
	for name, r := range map[string]*Record{"full": sampleRecord(), "empty": {Cost: -1}} {
		var got map[string]any
		line := AppendJSON(nil, &Event{Name: End, Request: "req_1", Record: r})
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%s: %v in %s", name, err, line)
		}
		for _, f := range strings.Fields(`time event request alias class route tier pool backend model served status kind attempts queue_ms first_ms
			total_ms overhead_ms tokens cost_usd key session version gate nudge shape`) {
			if _, ok := got[f]; !ok {
				t.Errorf("%s lacks %s: %s", name, f, line)
			}
		}
		for object, fields := range map[string]string{"tokens": "in out cached reasoning written estimated", "shape": "bytes tokens_est messages tools images stream max_tokens"} {
			for _, f := range strings.Fields(fields) {
				if _, ok := got[object].(map[string]any)[f]; !ok {
					t.Errorf("%s lacks %s.%s: %s", name, object, f, line)
				}
			}
		}
		if got["cost_usd"] != nil {
			t.Errorf("%s: an unknown price is %v, want null", name, got["cost_usd"])
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, tt := range []struct {
		name string
		got  []byte
		want string
	}{
		{"three decimals", appendMS(nil, 1234567*time.Nanosecond), "1.234"},
		{"zero", appendMS(nil, 0), "0.000"},
		{"under a microsecond", appendMS(nil, 999), "0.000"},
		{"hours", appendMS(nil, 3*time.Hour+7*time.Microsecond), "10800000.007"},
		{"unknown", appendMS(nil, -1), "null"},
		{"free is 0", appendNanos(nil, 0), "0"},
		{"a nano-dollar has no exponent", appendNanos(nil, 1), "0.000000001"},
		{"no zeros at the end", appendNanos(nil, 1_250_000_000), "1.25"},
		{"whole dollars", appendNanos(nil, 3_000_000_000), "3"},
		{"the largest", appendNanos(nil, math.MaxInt64), "9223372036.854775807"},
		{"an unknown price is none", appendNanos(nil, -1), "null"},
	} {
		if string(tt.got) != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, tt.got, tt.want)
		}
	}
}

// S15: whatever a field holds, there is one line per event, it is JSON, and no byte steers a terminal.
func FuzzLine(f *testing.F) {
	for _, s := range []string{"", "plain", "a\nb\r\n", "\x1b[31mred\x1b[0m", `{"event":"end"}`, "\xff\xfe", "\u2028\u202e\u200b\u0085", "é→", `"\`, "\x00\x7f", "\U0001f600"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := sampleRecord()
		r.Alias, r.Served, r.Message, r.Session, r.Tag = s, s, s, s, s
		r.Attempts[0].Message = s
		for _, e := range []Event{{Name: End, Request: s, Record: r}, {Name: Reroute, Request: s, Alias: s, From: s, To: s, Reason: s, Detail: s}} {
			line := AppendJSON(nil, &e)
			var got map[string]any
			if err := json.Unmarshal(line, &got); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if want := strings.ToValidUTF8(s, "\ufffd"); s != "" && utf8.ValidString(s) && got["request"] != want {
				t.Errorf("request %q, want %q", got["request"], want)
			}
			for _, out := range [][]byte{line, AppendText(nil, &e, false)} {
				if !utf8.Valid(out) || bytes.ContainsFunc(out, func(r rune) bool { return r < ' ' || r == 0x7f || hidden(r) }) {
					t.Errorf("unsafe: %q", out)
				}
			}
		}
	})
}

func TestAttemptsComeBackFromJSON(t *testing.T) {
	want := sampleRecord().Attempts
	b := AppendAttempts(nil, want)
	var got []Attempt
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		want[i].Span = SpanID{} // not in the text
		if want[i].First > 0 {
			want[i].First = want[i].First.Truncate(time.Microsecond)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	again, err := json.Marshal(got)
	if err != nil || string(again) != string(b) {
		t.Errorf("json.Marshal: %s, %v, want %s", again, err, b)
	}
}

// gather is a Reader that keeps all and may be held.
type gather struct {
	mu   sync.Mutex
	got  []Event
	hold chan struct{} // nil: never held
}

func (g *gather) Read(ctx context.Context, batch []Event) {
	if g.hold != nil {
		<-g.hold
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.got = append(g.got, batch...)
}

func (g *gather) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.got)
}

func start(t *testing.T, o Options) (r *Recorder, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r = New(o)
	done := make(chan struct{})
	go func() {
		r.Run(ctx)
		close(done)
	}()
	return r, func() {
		cancel()
		<-done
	}
}

func TestReadersGetWhatTheyWantInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all, ends gather
		r, stop := start(t, Options{Readers: []Source{
			{Name: "all", Reader: &all},
			{Name: "ends", Reader: &ends, Wants: func(e *Event) bool { return e.Name == End }},
		}})
		for i := range 10 {
			r.Emit(Event{Name: Start, Request: fmt.Sprint(i)})
			r.Emit(Event{Name: End, Request: fmt.Sprint(i)})
		}
		synctest.Wait()
		if n := all.count(); n != 0 {
			t.Errorf("%d facts before the tick: a wake-up per fact", n)
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if all.count() != 20 || ends.count() != 10 {
			t.Fatalf("%d and %d facts after a tick, want 20 and 10", all.count(), ends.count())
		}
		for i, e := range ends.got {
			if e.Request != fmt.Sprint(i) || e.Time.IsZero() {
				t.Errorf("fact %d is %+v", i, e)
			}
		}
		stop()
	})
}

func TestHalfFullDoesNotWaitForTheTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all gather
		r, stop := start(t, Options{Readers: []Source{{Name: "all", Reader: &all}}})
		synctest.Wait()
		for range bufferSize/2 + 1 {
			r.Emit(Event{Name: Start})
		}
		synctest.Wait()
		if all.count() != bufferSize/2+1 {
			t.Errorf("%d facts at half full, want all", all.count())
		}
		stop()
	})
}

func TestEndFlushesWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all gather
		r, stop := start(t, Options{Readers: []Source{{Name: "all", Reader: &all}}})
		synctest.Wait()
		for range 5 {
			r.Emit(Event{Name: Start})
		}
		stop()
		if all.count() != 5 {
			t.Errorf("%d facts after the end, want 5", all.count())
		}
	})
}

// F56, F57: a reader that blocks stops neither Emit nor the others; what it misses is counted, its memory bounded.
func TestABlockedReaderStopsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := gather{hold: make(chan struct{})}
		var free gather
		r, stop := start(t, Options{FlushWithin: time.Second, Readers: []Source{{Name: "stdout", Reader: &blocked}, {Name: "store", Reader: &free}}})
		const rounds, each = 20, 1000
		for range rounds {
			for range each {
				r.Emit(Event{Name: Start})
			}
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if free.count() != rounds*each {
			t.Errorf("the free reader has %d facts, want %d", free.count(), rounds*each)
		}
		d := r.Dropped()
		if held := rounds*each - int(d["stdout"]); d["emit"] != 0 || d["store"] != 0 || held > 2*readerSize || held < readerSize {
			t.Errorf("dropped %v: the blocked reader holds %d, want %d to twice that", d, held, readerSize)
		}
		begun := time.Now()
		stop()
		if took := time.Since(begun); took != time.Second {
			t.Errorf("the last flush took %v, want its bound of 1s", took)
		}
		close(blocked.hold)
		synctest.Wait()
	})
}

func TestEmitWithoutRunIsBounded(t *testing.T) {
	r := New(Options{})
	for range bufferSize + 10 {
		r.Emit(Event{Name: Start})
	}
	if d := r.Dropped()["emit"]; d != 10 {
		t.Errorf("%d dropped, want 10", d)
	}
	if n := testing.AllocsPerRun(100, func() { r.Emit(Event{Name: Start}) }); n != 0 {
		t.Errorf("Emit allocates %v times", n)
	}
}

func TestManyEmitters(t *testing.T) {
	var all gather
	r, stop := start(t, Options{Readers: []Source{{Name: "all", Reader: &all}}, Observers: []Observer{NewMetrics("test")}})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				r.Emit(Event{Name: End, Record: sampleRecord()})
			}
		})
	}
	wg.Wait()
	stop()
	d := r.Dropped()
	if got := all.count() + int(d["emit"]) + int(d["all"]); got != 4000 {
		t.Errorf("%d facts read or counted as dropped, want 4000", got)
	}
}

// brokenWriter is a full disk.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestALogThatCannotBeWrittenIsCounted(t *testing.T) { // F56
	l := NewLog(brokenWriter{}, JSON)
	l.Read(t.Context(), sampleEvents())
	if l.Failed() != 1 || len(l.buf) != 0 {
		t.Errorf("%d failures and %d bytes kept, want 1 and 0", l.Failed(), len(l.buf))
	}
}

func TestManyLinesShareAWrite(t *testing.T) {
	var writes int
	var lines int
	l := NewLog(writerFunc(func(b []byte) (int, error) {
		writes++
		lines += bytes.Count(b, []byte("\n"))
		return len(b), nil
	}), JSON)
	l.Read(t.Context(), sampleEvents())
	if writes != 1 || lines != len(sampleEvents()) {
		t.Errorf("%d lines in %d writes", lines, writes)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
