package app

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/key"
	"weir/internal/sim"
	"weir/internal/store"
)

// pricedYAML has a vendor for each API with odd prices, one whose price nobody knows, and a floor that is free.
const pricedYAML = `
backends:
  chat:   {url: "http://chat.sim", tier: cloud}
  mail:   {url: "http://mail.sim", tier: cloud, server: anthropic}
  resp:   {url: "http://resp.sim", tier: cloud, dialect: responses}
  dark:   {url: "http://dark.sim", tier: cloud}
  floor:  {url: "http://floor.sim", tier: floor, server: llamacpp}
pools:
  chat:   {backend: chat, cap: 8, models: [m], price: {in: 0.4, out: 1.6, cached: 0.0375}}
  mail:   {backend: mail, cap: 8, models: [m], price: {in: 3, out: 15, cached: 0.3, written: 3.75}}
  resp:   {backend: resp, cap: 8, models: [{id: m, served_as: listed}]}
  dark:   {backend: dark, cap: 8, models: [dark-1]}
  floor:  {backend: floor, cap: 8, models: [m], price: {in: 0, out: 0}}
prices: {as_of: 2026-11-30, models: {listed: {in: 0.123456789, out: 7.000000001}}}
routes:
  chat:  {steps: [chat/m, floor/m]}
aliases: {chat: chat, mail: mail/m, resp: resp/m, dark: dark/dark-1, floor: floor/m}
`

// perMillion are the same prices as the referee reads them: in, out, cached, written; nil is unknown.
var perMillion = map[string][]string{
	"chat": {"0.4", "1.6", "0.0375", "0.4"}, "mail": {"3", "15", "0.3", "3.75"}, "resp": {"0.123456789", "7.000000001", "0.123456789", "0.123456789"},
	"dark": nil, "floor": {"0", "0", "0", "0"},
}

// metered is what a server says that it used.
type metered struct{ in, out, cached, written int64 }

// usage is that as the API of a server writes it.
func (m metered) usage(server string) string {
	switch server {
	case "mail":
		return fmt.Sprintf(`{"input_tokens":%d,"output_tokens":%d,"cache_read_input_tokens":%d,"cache_creation_input_tokens":%d}`, m.in-m.cached-m.written, m.out, m.cached, m.written)
	case "resp":
		return fmt.Sprintf(`{"input_tokens":%d,"output_tokens":%d,"total_tokens":%d,"input_tokens_details":{"cached_tokens":%d},"output_tokens_details":{"reasoning_tokens":0}}`, m.in, m.out, m.in+m.out, m.cached)
	}
	return fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}`, m.in, m.out, m.in+m.out, m.cached)
}

// nanos is what the referee takes for it: exact, and rounded half up once.
func (m metered) nanos(server string) (*big.Int, bool) {
	list := perMillion[server]
	if list == nil {
		return nil, false
	}
	sum := new(big.Rat)
	for i, n := range []int64{m.in - m.cached - m.written, m.out, m.cached, m.written} {
		p, _ := new(big.Rat).SetString(list[i])
		sum.Add(sum, p.Mul(p, new(big.Rat).SetInt64(n)))
	}
	sum.Mul(sum, big.NewRat(1000, 1)) // dollars of a million are 1,000 nano-dollars of one
	sum.Add(sum, big.NewRat(1, 2))
	return new(big.Int).Quo(sum.Num(), sum.Denom()), true
}

// nano is the cost of an event line, read as text so that nothing is rounded.
func nano(t *testing.T, raw string) (*big.Int, bool) {
	t.Helper()
	var line struct {
		Cost json.Number `json:"cost_usd"`
	}
	if err := json.Unmarshal([]byte(raw), &line); err != nil {
		t.Fatal(err)
	}
	if line.Cost == "" {
		return nil, false
	}
	r, ok := new(big.Rat).SetString(string(line.Cost))
	if !ok {
		t.Fatalf("cost %q is no number", line.Cost)
	}
	r.Mul(r, big.NewRat(1_000_000_000, 1))
	if !r.IsInt() {
		t.Fatalf("cost %q is no whole number of nano-dollars", line.Cost)
	}
	return r.Num(), true
}

// TestADayCostsWhatTheRefereeSays plays a day of traffic of every API to every kind of backend, with restarts, failures and
// clients that leave: what is recorded for each request, and what the book says at the end, is the referee's to the nano-dollar.
func TestADayCostsWhatTheRefereeSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := repeats(400, 20_000)
		rng := rand.New(rand.NewPCG(1, 5))
		data, total := t.TempDir(), map[string]*big.Int{}
		for _, name := range []string{"chat", "mail", "resp", "floor", ""} {
			total[name] = new(big.Int)
		}
		var unpriced int
		var of atomic.Int64 // the day is shorter for all but the calendar
		begun := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
		today := func() time.Time { return begun.Add(time.Duration(of.Load())) }
		servers := []string{"chat", "mail", "resp", "dark", "floor"}
		for part := range 4 { // three restarts
			g := begin(t, setup{yaml: pricedYAML, data: data, today: today, sims: map[string]sim.Script{
				"chat": {}, "mail": {Server: sim.Anthropic}, "resp": {}, "dark": {}, "floor": {Server: sim.LlamaCPP}}})
			for range requests / 4 {
				of.Add(int64(24 * time.Hour / time.Duration(requests)))
				time.Sleep(time.Second)
				server := servers[rng.IntN(len(servers))]
				m := metered{in: 1 + rng.Int64N(9000), out: 1 + rng.Int64N(3000)}
				m.cached = rng.Int64N(m.in)
				if server == "mail" {
					m.written = rng.Int64N(m.in - m.cached)
				}
				at, model := server, "m"
				failing := server == "chat" && rng.IntN(4) == 0 // then the floor answers
				if failing {
					at = "floor"
					must(t, g.sims["chat"].Set("m", sim.Behaviour{Status: 500}))
				}
				switch at {
				case "resp":
					model = "listed"
				case "dark":
					model = "dark-1"
				}
				must(t, g.sims[at].Set(model, sim.Behaviour{Usage: m.usage(at)}))
				if server == "chat" { // the floor answers too while the breaker has taken the vendor out
					must(t, g.sims["floor"].Set("m", sim.Behaviour{Usage: m.usage("floor")}))
				}
				client := []*api{chatAPI, messagesAPI, responsesAPI}[rng.IntN(3)]
				r, got := g.talk(client, client.ask(server, rng.IntN(2) == 0))
				if got.failure != nil {
					t.Fatalf("%s to %s: %+v", client.name, server, got.failure)
				}
				e := g.end(r.id())
				if at = *e.Pool; at != server && (server != "chat" || at != "floor") {
					t.Fatalf("%s was answered by %s", server, at)
				}
				want, known := m.nanos(at)
				cost, has := nano(t, e.Raw)
				if has != known || known && cost.Cmp(want) != 0 {
					t.Fatalf("part %d: %s to %s: recorded %v (%v), the referee says %v (%v): %s", part, client.name, at, cost, has, want, known, e.Raw)
				}
				if !known {
					unpriced++
					continue
				}
				total[at].Add(total[at], want)
				total[""].Add(total[""], want)
				if failing {
					must(t, g.sims["chat"].Set("m", sim.Behaviour{}))
					time.Sleep(10 * time.Second) // what failed is forgotten
				}
			}
			g.settle()
			g.stop()
			if part == 3 {
				g.totals(t, total, unpriced)
			}
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// repriced is a configuration with ceilings: a vendor, and a floor behind it.
func repriced(pool, top string) string {
	return `
backends:
  v: {url: "http://v.sim", tier: cloud}
  w: {url: "http://w.sim", tier: cloud}
  f: {url: "http://f.sim", tier: floor, server: llamacpp}
pools:
  v: {backend: v, cap: 200, models: [m], price: {in: 0, out: 1000}` + pool + `}
  w: {backend: w, cap: 200, models: [m], price: {in: 0, out: 1000}}
  f: {backend: f, cap: 200, models: [m], price: {in: 0, out: 0}}
` + top + `
routes:
  all:  {steps: [v/m, w/m]}
  free: {steps: [v/m, f/m]}
aliases: {v: v/m, all: all, free: free}
`
}

// oneToken is a request that may cost a thousandth of a dollar at most in these configurations, and does.
func oneToken(model string) string {
	return `{"model":"` + model + `","messages":[{"role":"user","content":"hi"}],"max_tokens":1}`
}

// oneUsed makes every server say that it used one token.
func oneUsed() map[string]sim.Script {
	b := sim.Sequence{{Text: "x", Usage: `{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}`, FirstDelay: time.Second}}
	return map[string]sim.Script{"v": {On: map[string]sim.Sequence{"m": b}}, "w": {On: map[string]sim.Sequence{"m": b}}, "f": {Server: sim.LlamaCPP, On: map[string]sim.Sequence{"m": b}}}
}

// F62, C102, S43: of a hundred requests at once with room for so many, exactly so many pass, whichever ceiling it is.
func TestF62ExactlyWhatACeilingLeavesPasses(t *testing.T) {
	const dollarThousandth = 1_000_000
	for name, c := range map[string]struct {
		pool, top string
		key       key.Spec
		status    int
		kind      string
	}{
		"the pool's, a day":   {pool: ", spend: {day: 0.003}", status: 503, kind: "none"},
		"the pool's, a month": {pool: ", spend: {month: 0.003}", status: 503, kind: "none"},
		"the total":           {top: "spend: {day: 0.003}", status: 503, kind: "none"},
		"the key's, a day":    {key: key.Spec{SpendDay: 3 * dollarThousandth}, status: 429, kind: "limited"},
		"the key's, a month":  {key: key.Spec{SpendMonth: 3 * dollarThousandth}, status: 429, kind: "limited"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				data := t.TempDir()
				var jump atomic.Int64
				today := func() time.Time { return time.Now().Add(time.Duration(jump.Load())) }
				g := begin(t, setup{yaml: repriced(c.pool, c.top), sims: oneUsed(), data: data, today: today})
				c.key.Name = "limited"
				token := g.newKey(c.key)
				ask := func(g *gateway, model string) *reply {
					return g.post("/v1/chat/completions", oneToken(model), "Authorization", "Bearer "+token)
				}
				burst := func(g *gateway, n int) (passed int) {
					var all sync.WaitGroup
					var ok atomic.Int64
					for range n {
						all.Go(func() {
							r := ask(g, "v")
							switch {
							case r.status == 200:
								ok.Add(1)
							case r.status != c.status:
								t.Errorf("%d %s", r.status, r.body)
							case !strings.Contains(string(r.body), "$0.003"):
								t.Errorf("the error does not name the ceiling: %s", r.body)
							}
							if e := g.end(r.id()); r.status != 200 && e.Kind != c.kind {
								t.Errorf("kind %s, want %s", e.Kind, c.kind)
							}
						})
					}
					all.Wait()
					return int(ok.Load())
				}
				if got := burst(g, 2) + burst(g, 100); got != 3 {
					t.Errorf("%d passed, want 3", got)
				}
				if n := len(g.sims["v"].Calls("")); n != 3 {
					t.Errorf("the vendor saw %d calls, want 3", n)
				}
				// A step that costs nothing is taken all the same; one that costs as much only where the ceiling is not its own.
				if r := ask(g, "free"); r.status != 200 || r.header.Get("X-Weir-Pool") != "f" || !strings.HasPrefix(strings.Join(g.skips(r.id()), ";"), "spend v/m") {
					t.Errorf("a free step behind it: %d from %q, skips %q", r.status, r.header.Get("X-Weir-Pool"), g.skips(r.id()))
				}
				want := c.status
				if c.pool != "" {
					want = 200
				}
				if r := ask(g, "all"); r.status != want {
					t.Errorf("another priced step behind it: %d %s, want %d", r.status, r.body, want)
				}
				g.settle()
				g.stop()
				again := begin(t, setup{yaml: repriced(c.pool, c.top), sims: oneUsed(), data: data, today: today})
				if got := burst(again, 10); got != 0 {
					t.Errorf("%d passed after a restart on the same day, want none", got)
				}
				now := time.Now().UTC()
				next := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 1, 0, time.UTC)
				if strings.Contains(name, "month") {
					next = time.Date(now.Year(), now.Month()+1, 1, 0, 0, 1, 0, time.UTC)
				}
				jump.Store(int64(time.Until(next)))
				if got := burst(again, 50); got != 3 {
					t.Errorf("%d passed in the next one, want 3", got)
				}
			})
		})
	}
}

// Half, four fifths and all of a ceiling are told once each, also over a restart.
func TestWarningsOfACeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := t.TempDir()
		var told []string
		for range 3 {
			g := begin(t, setup{yaml: repriced(", spend: {day: 0.01}", ""), sims: oneUsed(), data: data})
			for range 4 {
				if r := g.post("/v1/chat/completions", oneToken("v")); r.status != 200 && len(told) < 2 {
					t.Errorf("%d %s", r.status, r.body)
				}
			}
			g.settle()
			time.Sleep(time.Second)
			for _, l := range g.lines.all() {
				if l.Event == "alert" && l.Reason == "spend" {
					told = append(told, l.Detail)
				}
			}
			g.stop()
		}
		if len(told) != 3 || !strings.Contains(told[0], "50 %") || !strings.Contains(told[1], "80 %") || !strings.Contains(told[2], "100 %") {
			t.Errorf("told %q, want 50, 80 and 100 %%", told)
		}
	})
}

// C153, and what is booked apart: an attempt that failed costs nothing; a client who leaves amid the answer is charged by
// Weir's own count, which is marked, as a disconnect.
func TestWhatIsChargedToWhom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: repriced("", ""), sims: oneUsed()})
		must(t, g.sims["v"].Set("m", sim.Behaviour{Status: 401}))
		for _, stream := range []bool{true, false} {
			r := g.askFor("all", stream)
			e := g.end(r.id())
			if cost, _ := nano(t, e.Raw); cost == nil || cost.Int64() != 1_000_000 || *e.Pool != "w" || *e.Tokens.In != 3 || *e.Tokens.Out != 1 || len(e.Attempts) > 2 {
				t.Errorf("stream %v: %s", stream, e.Raw)
			}
		}
		must(t, g.sims["w"].Set("m", sim.Behaviour{Deltas: []string{"a ", "b ", "c ", "d "}, Gap: time.Second}))
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		resp, err := g.open(ctx, "POST", "/v1/chat/completions", strings.NewReader(strings.Replace(chatBody(true), "oai-m", "all", 1)))
		if err != nil {
			t.Fatal(err)
		}
		id := resp.Header.Get("X-Weir-Request")
		g.read(resp)
		e := g.end(id)
		if cost, has := nano(t, e.Raw); e.Kind != "canceled" || !has || cost.Sign() <= 0 || !e.Tokens.Estimated || *e.Tokens.Out < 2 {
			t.Errorf("a client who left: %s", e.Raw)
		}
		g.settle()
		g.stop()
	})
}

// Usage that is missing or cannot be is Weir's own count, and says so.
func TestAbsurdUsageIsEstimated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: repriced("", ""), sims: oneUsed()})
		for name, usage := range map[string]string{
			"none": "none", "zeros": `{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`, "negative": `{"prompt_tokens":-5,"completion_tokens":-1}`,
			"huge": `{"prompt_tokens":9223372036854775807,"completion_tokens":9223372036854775807}`, "beyond a number": `{"prompt_tokens":1e400,"completion_tokens":99999999999999999999}`,
			"more cached than there is": `{"prompt_tokens":10,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":500}}`,
		} {
			must(t, g.sims["v"].Set("m", sim.Behaviour{Text: "some words here", Usage: usage}))
			for _, stream := range []bool{true, false} {
				r := g.askFor("v", stream)
				e := g.end(r.id())
				cost, has := nano(t, e.Raw)
				if r.status != 200 || !e.Tokens.Estimated || !has || cost.Sign() < 0 || cost.Int64() > 50_000_000 || e.Tokens.In == nil || *e.Tokens.In > 1000 || *e.Tokens.In <= 0 {
					t.Errorf("%s, stream %v: %d, %s", name, stream, r.status, e.Raw)
				}
			}
		}
	})
}

// totals compares the book and the rows with the referee.
func (g *gateway) totals(t *testing.T, want map[string]*big.Int, unpriced int) {
	t.Helper()
	check := func(what string, got *big.Int, name string) {
		if got.Cmp(want[name]) != 0 {
			t.Errorf("%s: %v, the referee says %v", what, got, want[name])
		}
	}
	day := new(big.Int)
	sums := map[string]*big.Int{}
	var unknown int
	err := openStore(t, g.cfg.Beside(g.cfg.Data), func(s *store.Store) error {
		rows, err := s.Spending(t.Context())
		for _, r := range rows {
			switch r.Scope {
			case "pool":
				if sums[r.Name] == nil {
					sums[r.Name] = new(big.Int)
				}
				sums[r.Name].Add(sums[r.Name], big.NewInt(r.Cost))
			case "total":
				day.Add(day, big.NewInt(r.Cost))
				unknown += int(r.Unpriced)
			}
			if r.Reserved != 0 {
				t.Errorf("%d nano-dollars are held when all has ended: %+v", r.Reserved, r)
			}
		}
		return err
	})
	must(t, err)
	check("the total", day, "")
	for _, name := range []string{"chat", "mail", "resp", "floor"} {
		check("pool "+name, sums[name], name)
	}
	if unknown != unpriced {
		t.Errorf("%d requests at an unknown price, the referee says %d", unknown, unpriced)
	}
	err = openStore(t, g.cfg.Beside(g.cfg.Data), func(s *store.Store) error {
		all, err := s.Requests(t.Context(), store.Query{Limit: 1 << 20})
		sum := new(big.Int)
		for _, r := range all {
			if r.Cost > 0 {
				sum.Add(sum, big.NewInt(r.Cost))
			}
		}
		check("the sum of all rows", sum, "")
		return err
	})
	must(t, err)
}

// openStore reads the store of an App that has ended.
func openStore(t *testing.T, dir string, f func(*store.Store) error) error {
	t.Helper()
	s, err := store.Open(t.Context(), dir, store.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer s.Close()
	return f(s)
}
