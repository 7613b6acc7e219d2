package route

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/config"
	"weir/internal/llm"
)

const base = `
backends:
  floor:  {url: "http://127.0.0.1:9001", server: llamacpp, tier: floor}
  gpu:    {url: "http://127.0.0.1:9100", server: llamacpp, tier: gpu, limits: {idle: 11s, answer: 12s}}
  vendor: {url: "https://api.vendor.example", tier: cloud, key: "${env:VENDOR_KEY}"}
pools:
  helper: {backend: floor, cap: 1, models: [qwen3-4b, bge-m3]}
  dense:
    backend: gpu
    cap: 2
    models: [qwen-27b, bge-m3, "org/sub/model"]
    limits: {first_content: 21s, total: 22s}
    sampling: {temperature: {default: 0.2}, seed: {force: 1234567890123456789}, top_p: {strip: true}, stop: {force: ["a", "b\""]}}
  cloud:  {backend: vendor, cap: 6, models: [glm-5, {id: glm-4.9, served_as: "glm-5"}, {id: q, served_as: 'a"b'}, bge-m3]}
  any:    {backend: vendor, cap: 2, models: ["*"]}
  local:  {backend: floor, cap: 2, models: ["*"]}
routes:
  code:    {steps: [cloud/glm-5, {use: dense/qwen-27b, limits: {first_content: 31s}}, helper], limits: {idle: 41s, first_content: 42s}}
  private: {steps: [cloud/glm-5, dense/qwen-27b]}
  vectors: {steps: [dense/bge-m3, cloud/bge-m3, helper/qwen3-4b, helper/bge-m3]}
  away:    {steps: [cloud/bge-m3, helper/qwen3-4b, dense/bge-m3]}
  own:     {steps: [any/*, local/*]}
aliases:
  coder: code
  secret: private
  direct: dense/qwen-27b
  first: helper/qwen3-4b
  "cloud/glm-5": code
  "claude-*": code
  "claude-3-*": own
  "claude-3-x": private
  "*": own
`

func table(t *testing.T, text string) *Table {
	t.Helper()
	c, report := config.Parse([]byte(text), "weir.yaml")
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	// A file with this is refused: the table must hold the boundary all the same.
	c.Routes["private"].Boundary = "local"
	return New(c)
}

func TestFind(t *testing.T) {
	tab := table(t, base)
	bare := table(t, base[:strings.Index(base, `  "claude-*"`)])
	for _, c := range []struct {
		name, model string
		in          *Table
		route       string // empty: none
	}{
		{"an alias of a route", "coder", tab, "code"},
		{"an alias of a step", "direct", tab, "dense/qwen-27b"},
		{"an alias of another step", "first", tab, "helper/qwen3-4b"},
		{"a pool and a model", "dense/qwen-27b", tab, "dense/qwen-27b"},
		{"a model with slashes", "dense/org/sub/model", tab, "dense/org/sub/model"},
		{"an alias stands above an id", "cloud/glm-5", tab, "code"},
		{"an id that collapses onto another", "cloud/glm-4.9", tab, "cloud/glm-4.9"},
		{"an exact alias stands above a prefix", "claude-3-x", tab, "private"},
		{"the longest prefix", "claude-3-y", tab, "own"},
		{"a shorter prefix", "claude-4", tab, "code"},
		{"a prefix and no more", "claude-", tab, "code"},
		{"anything", "claude", tab, "own"},
		{"an empty name is anything too", "", tab, "own"},
		{"case counts", "Coder", tab, "own"},
		{"a pool that takes any id", "any/what/ever", tab, "any/*"},
		{"a pool that takes any id, without one", "any/", tab, "own"},
		{"nothing", "gpt-5", bare, ""},
		{"a pool without a model", "dense", bare, ""},
		{"a model that the pool has not", "dense/glm-5", bare, ""},
		{"an open pool without a model", "any/", bare, ""},
		{"a route is no alias", "code", bare, ""},
		{"nothing at all", "", bare, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, ok := c.in.Find(c.model)
			if ok != (c.route != "") || ok && r.Name != c.route {
				t.Errorf("got %+v, %v, want %q", r, ok, c.route)
			}
		})
	}
}

func TestPlan(t *testing.T) {
	tab := table(t, base)
	for _, c := range []struct {
		name, model string
		op          llm.Op
		local       bool
		want        string // steps, then those left out
	}{
		{"all steps, in order", "coder", llm.Chat, false, "cloud/glm-5 dense/qwen-27b helper/qwen3-4b"},
		{"a caller who may not leave", "coder", llm.Chat, true, "dense/qwen-27b helper/qwen3-4b -cloud/glm-5:boundary"},
		{"a route that may not leave", "secret", llm.Completions, false, "dense/qwen-27b -cloud/glm-5:boundary"},
		{"nothing is left", "cloud/q", llm.Chat, true, "-cloud/q:boundary"},
		{"the client's own name", "some/model", llm.Chat, false, "any/some/model local/some/model"},
		{"the client's own name, kept here", "some/model", llm.Chat, true, "local/some/model -any/some/model:boundary"},
		{"the client's own name for vectors is the same model", "some/model", llm.Embeddings, false, "any/some/model local/some/model"},
		{"a name in a pool that takes any id", "any/x/y", llm.Chat, false, "any/x/y"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, ok := tab.Find(c.model)
			if !ok {
				t.Fatal("no route")
			}
			if got := planned(r, Need{Op: c.op, Model: c.model, Local: c.local}); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	for _, c := range []struct {
		name, alias string
		op          llm.Op
		local       bool
		want        string
	}{
		{"chat may change the model", "vectors", llm.Chat, false, "dense/bge-m3 cloud/bge-m3 helper/qwen3-4b helper/bge-m3"},
		{"embeddings may not", "vectors", llm.Embeddings, false, "dense/bge-m3 cloud/bge-m3 helper/bge-m3 -helper/qwen3-4b:model"},
		{"rerank neither", "vectors", llm.Rerank, true, "dense/bge-m3 helper/bge-m3 -cloud/bge-m3:boundary -helper/qwen3-4b:model"},
		{"the first step's model holds where that step is left out", "away", llm.Embeddings, true, "dense/bge-m3 -cloud/bge-m3:boundary -helper/qwen3-4b:model"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tab := table(t, strings.Replace(base, "aliases:\n", "aliases:\n  vectors: vectors\n  away: away\n", 1))
			r, _ := tab.Find(c.alias)
			if got := planned(r, Need{Op: c.op, Model: c.alias, Local: c.local}); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func planned(r *Route, n Need) string {
	steps, skipped := r.Plan(n)
	var out []string
	for _, s := range steps {
		out = append(out, s.Name())
	}
	for _, s := range skipped {
		out = append(out, "-"+s.Step.Name()+":"+s.Reason)
	}
	return strings.Join(out, " ")
}

func TestPlanLeavesTheRouteAsItIs(t *testing.T) {
	tab := table(t, base)
	r, _ := tab.Find("x")
	before := fmt.Sprintf("%+v", *r)
	for _, model := range []string{"a", `b"c`, "d/e"} {
		steps, _ := r.Plan(Need{Op: llm.Chat, Model: model})
		if s := steps[0]; s.Model != model || s.Sent != model || s.Own || string(s.Quoted) != string(llm.AppendQuoted(nil, model)) {
			t.Errorf("got %+v", s)
		}
	}
	if after := fmt.Sprintf("%+v", *r); after != before {
		t.Errorf("the route was %s and is %s", before, after)
	}
}

func TestStepsKnowAllThatACallNeeds(t *testing.T) {
	tab := table(t, base)
	r, _ := tab.Find("coder")
	type view struct {
		Pool, Tier, Model, Sent, Quoted string
		Outside                         bool
		First, Idle, Total, Answer      time.Duration
	}
	var got []view
	for _, s := range r.Steps {
		l := s.Limits
		got = append(got, view{s.Pool, s.Tier, s.Model, s.Sent, string(s.Quoted), s.Outside, l.FirstContent.D(), l.Idle.D(), l.Total.D(), l.Answer.D()})
	}
	const s = time.Second
	want := []view{ // the first of step, route, pool, backend and top level that says a limit has it
		{"cloud", "cloud", "glm-5", "glm-5", `"glm-5"`, true, 42 * s, 41 * s, time.Hour, 60 * s},
		{"dense", "gpu", "qwen-27b", "qwen-27b", `"qwen-27b"`, false, 31 * s, 41 * s, 22 * s, 12 * s},
		{"helper", "floor", "qwen3-4b", "qwen3-4b", `"qwen3-4b"`, false, 42 * s, 41 * s, time.Hour, 60 * s},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	r, _ = tab.Find("cloud/q")
	if s := r.Steps[0]; s.Model != "q" || s.Sent != `a"b` || string(s.Quoted) != `"a\"b"` {
		t.Errorf("an id that is sent under another name: %+v", s)
	}
	r, _ = tab.Find("dense/org/sub/model")
	if l := r.Steps[0].Limits; l.FirstContent.D() != 21*s || l.Idle.D() != 11*s || l.Total.D() != 22*s {
		t.Errorf("limits of a single step: %+v", l)
	}
}

func TestSamplingIsRawJSONInOrder(t *testing.T) {
	tab := table(t, base)
	r, _ := tab.Find("direct")
	var got []string
	for _, p := range r.Steps[0].Sampling {
		got = append(got, fmt.Sprintf("%s strip=%v force=%s default=%s", p.Name, p.Strip, p.Force, p.Default))
	}
	want := []string{
		`seed strip=false force=1234567890123456789 default=`,
		`stop strip=false force=["a","b\""] default=`,
		`temperature strip=false force= default=0.2`,
		`top_p strip=true force= default=`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestIDsAreListedInOrder(t *testing.T) {
	got := table(t, base).IDs()
	want := []ID{
		{"claude-3-x", "weir", true}, {"cloud/bge-m3", "cloud", false}, {"cloud/glm-4.9", "cloud", false}, {"cloud/glm-5", "weir", true}, {"cloud/q", "cloud", false},
		{"coder", "weir", true}, {"dense/bge-m3", "gpu", true}, {"dense/org/sub/model", "gpu", true}, {"dense/qwen-27b", "gpu", true},
		{"direct", "weir", true}, {"first", "weir", true}, {"helper/bge-m3", "floor", true}, {"helper/qwen3-4b", "floor", true}, {"secret", "weir", true},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestTableIsTheSameEachTime(t *testing.T) {
	want := fmt.Sprintf("%+v %v", table(t, base).IDs(), prefixesOf(table(t, base)))
	for range 20 { // maps have no order: what comes of them must
		tab := table(t, base)
		if got := fmt.Sprintf("%+v %v", tab.IDs(), prefixesOf(tab)); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
}

func prefixesOf(t *Table) (list []string) {
	for _, p := range t.prefixes {
		list = append(list, p.text+">"+p.route.Name)
	}
	return list
}

func TestNear(t *testing.T) {
	tab := table(t, base)
	all := func(string) bool { return true }
	for _, c := range []struct {
		model string
		may   func(string) bool
		want  []string
	}{
		{"codr", all, []string{"coder"}},
		{"CODER", all, []string{"coder"}},
		{"secrt", all, []string{"secret"}},
		{"dense/qwen-27", all, []string{"dense/qwen-27b"}},
		{"codr", func(name string) bool { return name != "coder" }, nil}, // what a key may not use is not shown
		{"something else entirely", all, nil},
		{strings.Repeat("x", 1<<20), all, nil},
	} {
		if got := tab.Near(c.model, c.may); len(got) > 3 || !slices.Equal(got[:min(len(got), max(1, len(c.want)))], c.want) {
			t.Errorf("Near(%.20s) = %v, want %v", c.model, got, c.want)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"abc", "abc", 0}, {"ab", "ba", 2}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%s, %s) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
