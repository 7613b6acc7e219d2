package alert

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"weir/internal/event"
	"weir/internal/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is a web server that takes messages, in memory.
type receiver struct {
	mu     sync.Mutex // guards the fields below
	got    []received
	answer func(w http.ResponseWriter, r *http.Request) // nil: 200
}

type received struct {
	at   time.Time
	path string
	head http.Header
	body string
}

func (v *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	v.mu.Lock()
	v.got = append(v.got, received{time.Now(), r.URL.Path, r.Header, string(body)})
	answer := v.answer
	v.mu.Unlock()
	if answer != nil {
		answer(w, r)
	}
}

func (v *receiver) answers(f func(w http.ResponseWriter, r *http.Request)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.answer = f
}

// take returns what has come and forgets it.
func (v *receiver) take() []received {
	v.mu.Lock()
	defer v.mu.Unlock()
	got := v.got
	v.got = nil
	return got
}

// status is an answer of that status.
func status(code int, head ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(head); i += 2 {
			w.Header().Set(head[i], head[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "so it is")
	}
}

// memory is a store in memory.
type memory struct {
	mu         sync.Mutex // guards the fields below
	rows       []Row
	deliveries map[string]Delivery // by sink and alert's id
	broken     error
}

var _ Store = (*memory)(nil)

func newMemory() *memory { return &memory{deliveries: map[string]Delivery{}} }

func (m *memory) PutAlert(_ context.Context, a Alert, sinks []string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken != nil {
		return 0, m.broken
	}
	r := Row{int64(len(m.rows) + 1), a}
	m.rows = append(m.rows, r)
	for _, s := range sinks {
		m.deliveries[s+a.ID] = Delivery{Row: r, Sink: s, Next: a.Time}
	}
	return r.ID, nil
}

func (m *memory) PutDelivery(_ context.Context, d Delivery, done bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if done {
		delete(m.deliveries, d.Sink+d.Alert.ID)
	} else if _, is := m.deliveries[d.Sink+d.Alert.ID]; is {
		m.deliveries[d.Sink+d.Alert.ID] = d
	}
	return m.broken
}

func (m *memory) Open(context.Context) (rows []Row, deliveries []Delivery, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	newest := map[identity]Row{}
	for _, r := range m.rows {
		newest[identity{r.Alert.Name, r.Alert.Subject}] = r
	}
	for _, r := range newest {
		if r.Alert.State == Firing {
			rows = append(rows, r)
		}
	}
	for _, d := range m.deliveries {
		deliveries = append(deliveries, d)
	}
	slices.SortFunc(deliveries, func(a, b Delivery) int { return int(a.ID - b.ID) })
	return rows, deliveries, m.broken
}

func (m *memory) waiting() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.deliveries)
}

// world is a Desk in a bubble, with receivers on a network in memory.
type world struct {
	t      *testing.T
	net    *sim.Net
	desk   *Desk
	store  *memory
	log    *strings.Builder
	mu     sync.Mutex     // guards the field below
	counts map[string]int // by sink and outcome
	stop   func()
}

// inBubble runs a test in a bubble with the settings; the desk runs.
func inBubble(t *testing.T, s Settings, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, net: sim.NewNet(), store: newMemory(), counts: map[string]int{}, log: &strings.Builder{}}
		w.start(s)
		defer func() { w.stop() }()
		test(t, w)
	})
}

// start makes and runs a desk on the world's store.
func (w *world) start(s Settings) {
	s.Weir = "w1"
	w.desk = New(w.t.Context(), Options{
		Settings: s, Store: w.store, Dial: w.net.DialContext, Agent: "weir/test", Log: slog.New(slog.NewTextHandler(w.log, nil)),
		Count: func(sink, outcome string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.counts[sink+" "+outcome]++
		},
	})
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.desk.Run(ctx) }()
	w.stop = func() { cancel(); <-done }
}

func (w *world) count(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[key]
}

// receiver starts one at http://NAME.sim.
func (w *world) receiver(name string) *receiver {
	w.t.Helper()
	v := &receiver{}
	l, err := w.net.Listen(name + ".sim:80")
	if err != nil {
		w.t.Fatal(err)
	}
	s := &http.Server{Handler: v}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	w.t.Cleanup(func() { s.Close(); <-done })
	return v
}

// hook is a webhook of the name, which is its host too.
func hook(name string) Target {
	return Target{Name: name, Sink: Webhook{URL: "http://" + name + ".sim/in"}}
}

// after lets time pass.
func after(d time.Duration) { time.Sleep(d); synctest.Wait() }

// emit hands facts to the desk and gives it a moment.
func (w *world) emit(list ...event.Event) {
	for i := range list {
		if list[i].Time.IsZero() {
			list[i].Time = time.Now()
		}
	}
	w.desk.Read(w.t.Context(), list)
	after(10 * time.Millisecond)
}

func ejected(backend string) event.Event {
	return event.Event{Name: event.Health, Pool: "big", To: backend, Model: "m", Reason: "ejected", Kind: "refused", Detail: "live traffic failed"}
}

func returned(backend string) event.Event {
	return event.Event{Name: event.Health, Pool: "big", To: backend, Model: "m", Reason: "returned"}
}

// said puts the messages of a webhook in short words: name, subject, state.
func said(t *testing.T, list []received) (words []string) {
	t.Helper()
	for _, r := range list {
		var b struct {
			Type string `json:"type"`
			Data struct {
				Alert
				Count int `json:"count"`
			} `json:"data"`
		}
		if err := json.Unmarshal([]byte(r.body), &b); err != nil {
			t.Fatalf("%v in %s", err, r.body)
		}
		word := b.Data.Name + " " + b.Data.Subject + " " + b.Data.State
		switch {
		case b.Type == "weir.alerts":
			word = b.Data.Summary
		case b.Data.Flapping:
			word += " flapping"
		}
		words = append(words, word)
	}
	return words
}

var errBroken = errors.New("the disk is full")
