package pool

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/backend"
	"weir/internal/event"
	"weir/internal/llm"
)

// vendors are pools that may merge, and what is told of them.
type vendors struct {
	t      *testing.T
	merges *Merges
	pools  map[string]*Pool
	told   []event.Event
	saved  []Merge
}

func newVendors(t *testing.T) *vendors {
	v := &vendors{t: t, pools: map[string]*Pool{}}
	v.merges = NewMerges(MergeOptions{
		Emit: func(e event.Event) { v.told = append(v.told, e) },
		Save: func(m Merge) { v.saved = append(v.saved, m) },
	})
	return v
}

// add makes a pool of a vendor with a cap and its models.
func (v *vendors) add(name, vendor string, capacity int, ids ...string) *Pool {
	v.pools[name] = New(Options{
		Name: name, Tier: "cloud", Backends: []*backend.Backend{new(backend.Backend)}, Slots: NewSlots(capacity, 100), Rate: NewRate("cloud", 0),
		Vendor: vendor, IDs: ids, Merges: v.merges,
	})
	return v.pools[name]
}

// story is two pools of one vendor, as in the middle of 2026.
func story(t *testing.T) *vendors {
	v := newVendors(t)
	v.add("va", "v", 6, "glm-5", "glm-4.9")
	v.add("vb", "v", 5, "kimi-k3")
	return v
}

// answers makes a call of a pool for each name that an answer gives, and returns what Served said of the last.
func (v *vendors) answers(pool, asked string, names ...string) (by string) {
	v.t.Helper()
	for _, name := range names {
		l, err := v.pools[pool].Acquire(v.t.Context(), Need{Model: asked})
		if err != nil {
			v.t.Fatal(err)
		}
		by = l.Served(name)
		l.Done(nil)
	}
	return by
}

func (v *vendors) usage(pool string) Usage { return v.pools[pool].Slots.Usage() }

// merged returns which pools are charged to which, in order.
func (v *vendors) merged() string {
	var list []string
	for name := range v.pools {
		if to := v.usage(name).MergedInto; to != "" {
			list = append(list, name+">"+to)
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// load runs n calls of each pool and returns how many ran at once on all of them, at the most.
func (v *vendors) load(n int, pools ...string) (peak int) {
	var mu sync.Mutex
	running := 0
	for range n {
		for _, name := range pools {
			go func() {
				l, err := v.pools[name].Acquire(v.t.Context(), Need{})
				if err != nil {
					v.t.Error(err)
					return
				}
				mu.Lock()
				running++
				peak = max(peak, running)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				running--
				mu.Unlock()
				l.Done(nil)
			}()
			synctest.Wait()
		}
	}
	time.Sleep(time.Hour)
	synctest.Wait()
	return peak
}

// The story: a pool of 6 and one of 5. Three of three answers of the one come back from the other, while six of its calls
// run and more wait. From then on all is charged to the pool that serves, and its cap rules.
func TestTheVendorMergesTwoPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := story(t)
		var held, theirs []Lease
		for range 6 {
			l, err := v.pools["va"].Acquire(t.Context(), Need{Model: "glm-5"})
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, l)
		}
		for range 2 {
			l, err := v.pools["vb"].Acquire(t.Context(), Need{})
			if err != nil {
				t.Fatal(err)
			}
			theirs = append(theirs, l)
		}
		var waited atomic.Int64
		for range 4 {
			go func() {
				if l, err := v.pools["va"].Acquire(t.Context(), Need{}); err == nil {
					waited.Add(1)
					l.Done(nil)
				}
			}()
		}
		synctest.Wait()
		for i := range 3 {
			if got := held[i].Served("kimi-k3"); got != "vb/kimi-k3" {
				t.Errorf("served by %q, want vb/kimi-k3", got)
			}
		}
		want := Usage{Cap: 5, Live: 5, Held: 8, Own: 2, Waiting: 4, Size: 100}
		if got := v.usage("vb"); got != want {
			t.Errorf("the pool that serves: got %+v, want %+v", got, want)
		}
		want = Usage{Cap: 6, Live: 5, Own: 6, Size: 100, MergedInto: "vb"}
		if got := v.usage("va"); got != want {
			t.Errorf("the pool asked: got %+v, want %+v", got, want)
		}
		for i := range held {
			held[i].Done(nil)
			synctest.Wait()
			if let := waited.Load() > 0; let != (i >= 3) { // 7, 6 and 5 that run are no room, 4 are
				t.Errorf("after %d ended %d waiters are let in", i+1, waited.Load())
			}
		}
		for i := range theirs {
			theirs[i].Done(nil)
		}
		if got := v.load(20, "va", "vb"); got != 5 {
			t.Errorf("%d calls ran at once after the merge, want the cap of 5", got)
		}
		if got := v.load(20, "va"); got != 5 {
			t.Errorf("%d calls ran at once after the merge, want the cap of 5", got)
		}
		v.oneAlert()
	})
}

// oneAlert checks what is told and kept of the story, however often its evidence comes again.
func (v *vendors) oneAlert() {
	v.t.Helper()
	for range 63 {
		v.answers("va", "glm-5", "kimi-k3")
	}
	if len(v.told) != 1 || len(v.saved) != 1 {
		v.t.Fatalf("told %d times, saved %d times: want once", len(v.told), len(v.saved))
	}
	e := v.told[0]
	if e.Name != event.Alert || e.Reason != "merged" || e.From != "va" || e.To != "vb" || e.Pool != "va" ||
		!strings.Contains(e.Detail, "weir caps confirm va") || !strings.Contains(e.Detail, "weir caps undo va") {
		v.t.Errorf("told %+v", e)
	}
	if m := v.saved[0]; m.Asked != "va" || m.Serving != "vb" || m.Vendor != "v" || m.State != Learnt || m.Time.IsZero() || !strings.Contains(m.Evidence, "kimi-k3") {
		v.t.Errorf("saved %+v", m)
	}
}

func TestWhatIsEvidence(t *testing.T) {
	for name, c := range map[string]struct {
		pool, asked string
		names       []string
		by          string // of the last
		merged      string
	}{
		"three of another pool of the vendor":   {"va", "glm-5", []string{"kimi-k3", "kimi-k3", "kimi-k3"}, "vb/kimi-k3", "va>vb"},
		"two only":                              {"va", "glm-5", []string{"kimi-k3", "kimi-k3"}, "vb/kimi-k3", ""},
		"its own between":                       {"va", "glm-5", []string{"kimi-k3", "kimi-k3", "glm-5", "kimi-k3", "kimi-k3"}, "vb/kimi-k3", ""},
		"one that named none between":           {"va", "glm-5", []string{"kimi-k3", "kimi-k3", "", "kimi-k3"}, "vb/kimi-k3", "va>vb"},
		"two others in turn":                    {"va", "glm-5", []string{"kimi-k3", "kimi-k3", "qwen-9", "kimi-k3", "qwen-9", "qwen-9"}, "vc/qwen-9", ""},
		"two models of one other pool":          {"va", "glm-5", []string{"qwen-9", "qwen-9-mini", "qwen-9"}, "vc/qwen-9", "va>vc"},
		"another id of its own":                 {"va", "glm-5", []string{"glm-4.9", "glm-4.9", "glm-4.9"}, "", ""},
		"in other letters":                      {"va", "glm-5", []string{"GLM-5", "GLM-5", "GLM-5"}, "", ""},
		"with a date, although another has it":  {"va", "glm-5", []string{"glm-5-2026-11-20", "glm-5-2026-11-20", "glm-5-2026-11-20"}, "", ""},
		"another one's with a date":             {"va", "glm-5", []string{"kimi-k3-20261120", "kimi-k3-20261120", "kimi-k3-20261120"}, "", ""},
		"the latest of its own":                 {"vd", "fable-latest", []string{"fable-0613", "fable-0613", "fable-0613"}, "", ""},
		"dated itself, and another's date":      {"vf", "fable-20260101", []string{"fable-20260202", "fable-20260202", "fable-20260202"}, "ve/fable-20260202", "vf>ve"},
		"a file":                                {"va", "glm-5", []string{"/models/kimi-k3", "/models/kimi-k3", "/models/kimi-k3"}, "", ""},
		"a file that is an id of another":       {"va", "glm-5", []string{"kimi.gguf", "kimi.gguf", "kimi.gguf"}, "", ""},
		"an id that nobody has":                 {"va", "glm-5", []string{"glm-6", "glm-6", "glm-6"}, "", ""},
		"an id that two others have":            {"va", "glm-5", []string{"shared", "shared", "shared"}, "", ""},
		"another vendor's":                      {"va", "glm-5", []string{"other-1", "other-1", "other-1"}, "", ""},
		"an answer of a pool that takes any id": {"any", "glm-5", []string{"kimi-k3", "kimi-k3", "kimi-k3"}, "", ""},
		"an answer of a pool without a vendor":  {"alone", "glm-5", []string{"kimi-k3", "kimi-k3", "kimi-k3"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := story(t)
			v.add("vc", "v", 3, "qwen-9", "qwen-9-mini", "shared", "glm-5-2026-11-20", "kimi.gguf")
			v.add("vd", "v", 3, "fable-latest", "shared")
			v.add("vf", "v", 3, "fable-20260101")
			v.add("ve", "v", 3, "fable-20260202", "fable-0613")
			v.add("w", "w", 3, "other-1")
			v.add("any", "v", 3)
			v.add("alone", "", 3, "kimi-k3")
			if got := v.answers(c.pool, c.asked, c.names...); got != c.by {
				t.Errorf("served by %q, want %q", got, c.by)
			}
			if got := v.merged(); got != c.merged {
				t.Errorf("merged %q, want %q", got, c.merged)
			}
		})
	}
}

func TestWhatTheOperatorSaysStands(t *testing.T) {
	v := story(t)
	v.add("vc", "v", 3, "qwen-9")
	three := func(name string) { v.answers("va", "glm-5", name, name, name) }
	check := func(when, merged, state string, alerts int) {
		t.Helper()
		list := v.merges.List()
		if got := v.merged(); got != merged || len(list) != 1 || list[0].State != state || len(v.told) != alerts || v.saved[len(v.saved)-1] != list[0] {
			t.Errorf("%s: merged %q, %+v, %d alerts, last saved %+v", when, got, list, len(v.told), v.saved[len(v.saved)-1])
		}
	}
	for _, err := range []error{v.merges.Undo("va"), v.merges.Confirm("va")} {
		if err == nil || !strings.Contains(err.Error(), "weir caps") {
			t.Errorf("what is not known: %v", err)
		}
	}
	three("kimi-k3")
	check("learnt", "va>vb", Learnt, 1)
	three("qwen-9")
	check("learnt anew", "va>vc", Learnt, 2)
	if err := v.merges.Undo("va"); err != nil {
		t.Error(err)
	}
	check("undone", "", Undone, 2)
	three("qwen-9")
	three("kimi-k3")
	check("undone stays undone", "", Undone, 2)
	if err := v.merges.Confirm("va"); err != nil {
		t.Error(err)
	}
	check("confirmed after all", "va>vc", Confirmed, 2)
	three("kimi-k3")
	check("confirmed stays confirmed", "va>vc", Confirmed, 2)
	saved := len(v.saved)
	if err := v.merges.Confirm("va"); err != nil || len(v.saved) != saved {
		t.Errorf("confirmed twice: %v, saved %d times more", err, len(v.saved)-saved)
	}
}

func TestChainsAndCircles(t *testing.T) {
	v := newVendors(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		v.add(name, "v", 4, "m"+name)
	}
	link := func(from, to string) { v.answers(from, "m"+from, "m"+to, "m"+to, "m"+to) }
	check := func(when, want string) {
		t.Helper()
		if got := v.merged(); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	link("a", "b")
	link("b", "c")
	check("the last of a chain rules", "a>c b>c")
	if got := v.answers("c", "mc", "ma", "ma", "ma", "ma"); got != "a/ma" {
		t.Errorf("served by %q, want a/ma", got)
	}
	check("a circle is not closed", "a>c b>c")
	link("b", "a")
	check("nor by a new end", "a>c b>c")
	link("c", "d")
	check("a longer chain", "a>d b>d c>d")
	if err := v.merges.Undo("b"); err != nil {
		t.Error(err)
	}
	check("parted in the middle", "a>b c>d")
	link("d", "b")
	check("joined elsewhere", "a>b c>b d>b")
	if err := v.merges.Confirm("b"); err == nil || !strings.Contains(err.Error(), "undo") {
		t.Errorf("confirmed into a circle: %v", err)
	}
	check("a word that would close a circle", "a>b c>b d>b")
	if err := v.merges.Undo("c"); err != nil {
		t.Error(err)
	}
	if err := v.merges.Confirm("b"); err != nil {
		t.Error(err)
	}
	check("no circle any more", "a>c b>c d>c")
}

func TestLoadedMerges(t *testing.T) {
	v := story(t)
	v.add("vc", "v", 3, "qwen-9")
	v.add("w", "w", 3, "other")
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	list := []Merge{
		{Asked: "gone", Serving: "vb", Vendor: "v", State: Learnt, Time: at(1)},
		{Asked: "va", Serving: "vb", Vendor: "v", State: Confirmed, Time: at(2)},
		{Asked: "vb", Serving: "vc", Vendor: "v", State: Learnt, Time: at(3)},
		{Asked: "vc", Serving: "va", Vendor: "v", State: Learnt, Time: at(4)}, // a circle
		{Asked: "w", Serving: "vb", Vendor: "v", State: Learnt, Time: at(5)},  // of another vendor by now
	}
	v.merges.Load(list)
	if got, want := v.merged(), "va>vc vb>vc"; got != want {
		t.Errorf("merged %q, want %q", got, want)
	}
	slices.SortFunc(list, func(a, b Merge) int { return strings.Compare(a.Asked, b.Asked) })
	if got := v.merges.List(); !slices.Equal(got, list) {
		t.Errorf("got %+v, want all that was loaded", got)
	}
	if len(v.told)+len(v.saved) != 0 {
		t.Errorf("told %+v, saved %+v", v.told, v.saved)
	}
	v.add("gone", "v", 3, "new") // it is back
	if got, want := v.merged(), "gone>vc va>vc vb>vc"; got != want {
		t.Errorf("merged %q, want %q", got, want)
	}
	if err := v.merges.Undo("vb"); err != nil {
		t.Error(err)
	}
	if got, want := v.merged(), "gone>vb va>vb vc>vb"; got != want { // what the circle kept from holding holds now
		t.Errorf("merged %q, want %q", got, want)
	}
}

// A shift builds pools anew, on the same slots; some go, some come to another vendor. Whatever runs stays counted.
func TestMergesOutliveAShift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := story(t)
		v.answers("va", "glm-5", "kimi-k3", "kimi-k3", "kimi-k3")
		l, err := v.pools["va"].Acquire(t.Context(), Need{})
		if err != nil {
			t.Fatal(err)
		}
		again := func(name, vendor string, ids ...string) {
			o := v.pools[name].Options
			o.Vendor, o.IDs = vendor, ids
			v.pools[name] = New(o)
		}
		again("va", "v", "glm-5")
		again("vb", "v", "kimi-k3", "kimi-k4")
		v.merges.Keep("va", "vb")
		if got := v.usage("vb"); v.merged() != "va>vb" || got.Held != 1 || got.Own != 0 {
			t.Errorf("after a shift: %q, %+v", v.merged(), got)
		}
		again("va", "") // takes any id now, and never merges
		if got := v.usage("va"); v.merged() != "" || got.Held != 1 || v.usage("vb").Held != 0 {
			t.Errorf("as one that never merges: %q, %+v, %+v", v.merged(), got, v.usage("vb"))
		}
		again("va", "v", "glm-5")
		if v.merged() != "va>vb" {
			t.Errorf("back: %q", v.merged())
		}
		again("va", "elsewhere", "glm-5")
		if got := v.usage("va"); v.merged() != "" || got.Held != 1 || got.Own != 1 || v.usage("vb").Held != 0 {
			t.Errorf("at another vendor: %q, %+v, %+v", v.merged(), got, v.usage("vb"))
		}
		again("va", "v", "glm-5")
		v.merges.Keep("vb") // the pool has gone, its call runs on
		if got := v.usage("va"); v.merged() != "" || got.Held != 1 || v.usage("vb").Held != 0 {
			t.Errorf("gone: %q, %+v, %+v", v.merged(), got, v.usage("vb"))
		}
		if l.Served("kimi-k3"); len(v.told) != 1 {
			t.Errorf("told %+v", v.told)
		}
		l.Done(nil)
		if u := v.usage("va"); u.Held != 0 || u.Own != 0 || len(v.merges.List()) != 1 {
			t.Errorf("left over: %+v, %+v", u, v.merges.List())
		}
		v.add("va", "v", 6, "glm-5") // and back, on new slots
		if v.merged() != "va>vb" {
			t.Errorf("back: %q", v.merged())
		}
	})
}

func TestDismissEndsTheWaitsOfOnePoolOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := story(t)
		v.answers("va", "glm-5", "kimi-k3", "kimi-k3", "kimi-k3")
		v.pools["vb"].Slots.Resize(0, 10)
		var mu sync.Mutex
		got := map[string]llm.Kind{}
		for _, name := range []string{"va", "vb"} {
			go func() {
				l, err := v.pools[name].Acquire(t.Context(), Need{})
				mu.Lock()
				got[name] = llm.KindOf(err)
				mu.Unlock()
				l.Done(nil)
			}()
		}
		synctest.Wait()
		v.pools["va"].Slots.Dismiss(llm.Errorf(llm.None, "out"))
		synctest.Wait()
		if u := v.usage("vb"); len(got) != 1 || got["va"] != llm.None || u.Waiting != 1 {
			t.Errorf("got %v, %+v; want an end for va alone", got, u)
		}
		v.pools["vb"].Slots.Resize(1, 10)
		synctest.Wait()
		if k, ended := got["vb"]; k != 0 || !ended {
			t.Errorf("got %v", got)
		}
	})
}

// A merge keeps who came first, and its waiters may stand over the size of the queue.
func TestWaitersMoveInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := story(t)
		var order []string
		for i, name := range []string{"va", "vb", "vb", "va", "vb", "va"} {
			v.pools[name].Slots.Resize(0, 4)
			priority := min(i, 1) * (i % 3) // 0 1 2 0 1 2
			go func() {
				l, err := v.pools[name].Acquire(t.Context(), Need{Priority: priority})
				if err == nil {
					order = append(order, fmt.Sprint(name, i))
					l.Done(nil)
				}
			}()
			time.Sleep(time.Millisecond)
		}
		l := Lease{pool: v.pools["va"], model: "glm-5"}
		for range 3 {
			l.Served("kimi-k3")
		}
		if u := v.usage("vb"); u.Waiting != 6 || u.Size != 4 {
			t.Errorf("got %+v", u)
		}
		v.pools["vb"].Slots.Resize(1, 4)
		synctest.Wait()
		if want := []string{"vb2", "va5", "vb1", "vb4", "va0", "va3"}; !slices.Equal(order, want) {
			t.Errorf("got %q, want %q", order, want)
		}
	})
}

// Everything at once, for the race detector: nothing hangs, nothing is left, and sums are right all the time.
func TestMergesUnderLoad(t *testing.T) {
	v := newVendors(t)
	v.merges.o.Emit, v.merges.o.Save = func(event.Event) {}, func(Merge) {}
	names := []string{"a", "b", "c"}
	for _, name := range names {
		v.add(name, "v", 3, "m"+name)
	}
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			for range 400 {
				name := names[rand.IntN(3)]
				l, err := v.pools[name].Acquire(context.Background(), Need{Model: "m" + name, Priority: rand.IntN(2), Wait: time.Duration(rand.IntN(3)) * time.Millisecond})
				if err != nil {
					continue
				}
				for range 3 {
					l.Served("m" + names[rand.IntN(3)])
				}
				l.Done([]error{nil, nil, failure(llm.Busy), failure(llm.Canceled)}[rand.IntN(4)])
			}
		})
	}
	for _, name := range names {
		all.Go(func() {
			for range 200 {
				s := v.pools[name].Slots
				_, _ = v.merges.Undo(name), v.merges.Confirm(name)
				s.Resize(1+rand.IntN(4), 20)
				s.Ramp(time.Millisecond)
				s.Dismiss(llm.Errorf(llm.None, "out"))
				if u := s.Usage(); u.Held < 0 || u.Own < 0 || u.MergedInto != "" && u.Held+u.Waiting != 0 {
					t.Errorf("%s: %+v", name, u)
				}
			}
		})
	}
	all.Wait()
	for _, name := range names {
		if u := v.usage(name); u.Held+u.Own+u.Waiting != 0 {
			t.Errorf("%s is left with %+v", name, u)
		}
	}
}

func TestUndated(t *testing.T) {
	for id, want := range map[string]string{
		"glm-5": "glm-5", "glm-5-2026-11-20": "glm-5", "glm-5-20261120": "glm-5", "glm-5@20261120": "glm-5", "glm-5:1120": "glm-5", "glm-5-11-20": "glm-5",
		"glm-5-2026-11": "glm-5", "glm-5-001": "glm-5", "glm-5-latest": "glm-5", "glm-52": "glm-52", "-0613": "-0613", "": "", "20261120": "20261120", "kimi-k3-thinking": "kimi-k3-thinking",
	} {
		if got := undated(id); got != want {
			t.Errorf("%q: got %q, want %q", id, got, want)
		}
	}
}

func FuzzServed(f *testing.F) {
	for _, s := range []string{"", "kimi-k3", "glm-5-2026-11-20", "/m/x.gguf", "-0000", "é-2026-11-20"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, named string) {
		v := story(t)
		l := Lease{pool: v.pools["va"], model: "glm-5"}
		want := ""
		if named == "kimi-k3" {
			want = "vb/kimi-k3"
		}
		if got := l.Served(named); got != want {
			t.Errorf("%q: got %q, want %q", named, got, want)
		}
		if bare := undated(named); !strings.HasPrefix(named, bare) {
			t.Errorf("%q: %q", named, bare)
		}
	})
}

// An id that two pools list says nothing, but it hides no other id of theirs.
func TestASharedIDHidesNoOther(t *testing.T) {
	for range 50 { // the order of a map decides
		v := newVendors(t)
		v.add("va", "v", 6, "shared", "glm-5")
		v.add("vb", "v", 5, "shared", "kimi-k3")
		if by := v.answers("va", "glm-5", "kimi-k3", "kimi-k3", "kimi-k3"); by != "vb/kimi-k3" || v.merged() != "va>vb" {
			t.Fatalf("served by %q, merged %q", by, v.merged())
		}
	}
}

// Answers that name no model, such as counts, sound and images, say nothing for or against.
func TestNamelessAnswersEndNoRow(t *testing.T) {
	v := story(t)
	v.answers("va", "glm-5", "kimi-k3", "kimi-k3", "", "kimi-k3")
	if v.merged() == "" {
		t.Error("three answers came from another pool, and one between them that names none hides it")
	}
}
