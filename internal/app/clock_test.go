package app

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"weir/internal/key"
	"weir/internal/sim"
)

// wallClock are the calls that make or leave a time without its monotonic reading, or make a number of it. A deadline from
// one of them moves when somebody sets the clock.
var wallClock = map[string]bool{
	"Round": true, "Truncate": true, "UTC": true, "Local": true, "In": true, "AddDate": true, "Unix": true, "UnixMilli": true, "UnixMicro": true, "UnixNano": true, "Date": true, "Parse": true, "ParseTime": true,
}

// wallTimes are the places where the wall clock is what is meant, by package and function, with the reason.
var wallTimes = map[string]string{
	"backend.retryAfter": "a Retry-After that is a date is a time on the wall",
	"backend.resetIn":    "a reset that is a date is a time on the wall; it is shown and no more",
	"pool.PutIn":         "a date for people",
	"pool.reason":        "a date for people",
	"server.rates":       "a reset is a date for clients of Messages",
	"key.Rotate":         "the end of the overlap is a date, kept in the store",
	"key.describe":       "dates for people",
	"server.entry":       "created_at is a date",
	"server.listed":      "created is a date",
	"server.newID":       "an id that rises with the wall is near its neighbours in the index; no more depends on it",
}

// F63: limits, deadlines, waits, windows and pauses come from the monotonic clock, so that a step of the clock moves none of
// them: nothing on a request's path computes with the wall.
func TestF63NoDeadlineComesFromTheWall(t *testing.T) {
	seen := map[string]bool{}
	for _, dir := range []string{"backend", "pool", "server", "relay", "key", "route"} {
		files, err := filepath.Glob("../" + dir + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				for _, call := range wallCalls(fn) {
					place := dir + "." + fn.Name.Name
					if seen[place] = true; wallTimes[place] == "" {
						t.Errorf("%s, in %s, takes a time on the wall, which somebody may set; use the one from time.Now as it is, or give the reason in wallTimes", set.Position(call.Pos()), place)
					}
				}
			}
		}
	}
	for place := range wallTimes {
		if !seen[place] {
			t.Errorf("%s is excused and no longer there", place)
		}
	}
}

// wallCalls returns the calls of a function that take a time's monotonic reading away.
func wallCalls(fn *ast.FuncDecl) (calls []ast.Node) {
	ast.Inspect(fn, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		s, ok := c.Fun.(*ast.SelectorExpr)
		if !ok || !wallClock[s.Sel.Name] {
			return true
		}
		if p, ok := s.X.(*ast.Ident); ok && (p.Name == "url" || p.Name == "slog" || p.Name == "netip" || p.Name == "mime") {
			return true // another Parse
		}
		calls = append(calls, c)
		return true
	})
	return calls
}

// stepped is t after somebody set the clock: the wall moves by d, the monotonic reading stays. Package time has no way to
// say that, so it is written into the value, whose seconds stand above its nanoseconds.
func stepped(t *testing.T, at time.Time, d time.Duration) time.Time {
	t.Helper()
	const nanoseconds = 30 // bits
	*(*uint64)(unsafe.Pointer(&at)) += uint64(int64(d/time.Second)) << nanoseconds
	if now := time.Now(); at.Sub(now).Abs() > time.Minute || at.Round(0).Sub(now.Round(0)) < d-time.Minute || at.Round(0).Sub(now.Round(0)) > d+time.Minute {
		t.Fatalf("the clock was not stepped: %v", at)
	}
	return at
}

// F62, F63: a clock that is set an hour forth or back opens no window of a limit early and holds none longer; a date, such as
// a key's expiry, goes by the wall.
func TestF63SetClocksMoveNoWindow(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		g := begin(t, setup{sims: oai(sim.Behaviour{})})
		token, now := g.newKey(key.Spec{Name: "few", RPM: 3}), time.Now()
		k, err := g.app.Keys().Verify(token, now)
		if err != nil {
			t.Fatal(err)
		}
		admitted := func(at time.Time) bool {
			a, err := g.app.Keys().Admit(k, at)
			if err == nil {
				a.Release()
			}
			return err == nil
		}
		for i := range 3 {
			if !admitted(now) {
				t.Fatalf("request %d of 3 is refused", i+1)
			}
		}
		set := stepped(t, now, step)
		if admitted(set) || admitted(set.Add(59*time.Second)) {
			t.Errorf("a step of %v opens the window", step)
		}
		if !admitted(set.Add(61 * time.Second)) {
			t.Errorf("a step of %v holds the window shut", step)
		}
		var guard key.Guard
		from := netip.MustParseAddr("192.0.2.1")
		for range 100 {
			guard.Failed(from, now)
		}
		if guard.Failed(from, set) == 0 || guard.Failed(from, set.Add(61*time.Second)) != 0 {
			t.Errorf("a step of %v moves the minute of bad keys", step)
		}
		dated, err := g.app.Keys().Verify(g.newKey(key.Spec{Name: "dated", Expires: now.Add(30 * time.Minute)}), now)
		if err != nil || dated.Usable(set) != (step < 0) {
			t.Errorf("after a step of %v a key that expires in half an hour is usable: %v, %v", step, dated.Usable(set), err)
		}
	}
}
