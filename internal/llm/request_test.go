package llm

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// request makes a request of a body by the scanner alone.
func request(t *testing.T, body string) *Request {
	t.Helper()
	r := &Request{Body: []byte(body)}
	s := NewScanner(r.Body, 64)
	if err := s.Members(func(name []byte) error {
		from := s.NameAt()
		at, err := s.Value()
		r.Members = append(r.Members, Member{Name: name, At: Span{from, at.To}, Value: at})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEdits(t *testing.T) {
	const body = ` { "model" : "m" , "a":1,"b" : [1, {"c":null}],"z":9 } `
	for _, c := range []struct {
		name, want string
		edit       func(*Edits, *Request)
	}{
		{"nothing changes", body, func(*Edits, *Request) {}},
		{"a value is set in place", ` { "model" : "n" , "a":1,"b" : [1, {"c":null}],"z":9 } `, func(e *Edits, r *Request) {
			e.Set(r, "model", []byte(`"n"`))
		}},
		{"a value that is there already changes nothing", body, func(e *Edits, r *Request) { e.Set(r, "a", []byte("1")) }},
		{"a new member goes first", ` {"x":true,"q\"":{}, "model" : "m" , "a":1,"b" : [1, {"c":null}],"z":9 } `, func(e *Edits, r *Request) {
			e.Set(r, "x", []byte("true"))
			e.Set(r, `q"`, []byte("{}"))
		}},
		{"the last of two values holds", ` {"x":2, "model" : "m" , "a":3,"b" : [1, {"c":null}],"z":9 } `, func(e *Edits, r *Request) {
			e.Set(r, "x", []byte("1"))
			e.Set(r, "a", []byte("2"))
			e.Set(r, "x", []byte("2"))
			e.Set(r, "a", []byte("3"))
		}},
		{"a value is set back", body, func(e *Edits, r *Request) {
			e.Set(r, "a", []byte("2"))
			e.Set(r, "a", []byte("1"))
		}},
		{"a member is renamed", ` { "model" : "m" , "alpha":1,"b" : [1, {"c":null}],"z":9 } `, func(e *Edits, r *Request) { e.Rename(r, "a", "alpha") }},
		{"a member is renamed and set", ` { "model" : "m" , "alpha":5,"b" : [1, {"c":null}],"z":9 } `, func(e *Edits, r *Request) {
			e.Set(r, "a", []byte("5"))
			e.Rename(r, "a", "alpha")
		}},
		{"a piece within a value is replaced", ` { "model" : "m" , "a":1,"b" : [1, {"c":""}],"z":9 } `, func(e *Edits, r *Request) {
			at := r.Members[2].Value
			e.Replace(Span{at.From + 9, at.From + 13}, []byte(`""`))
		}},
		{"the first member is removed", `{"a":1,"b" : [1, {"c":null}],"z":9}`, func(e *Edits, r *Request) { e.Remove(r, "model") }},
		{"one in the middle is removed", `{"model" : "m","b" : [1, {"c":null}],"z":9}`, func(e *Edits, r *Request) { e.Remove(r, "a") }},
		{"the last one is removed", `{"model" : "m","a":1,"b" : [1, {"c":null}]}`, func(e *Edits, r *Request) { e.Remove(r, "z") }},
		{"all are removed", `{}`, func(e *Edits, r *Request) {
			for _, m := range r.Members {
				e.Remove(r, string(m.Name))
			}
		}},
		{"all are removed and one is new", `{"x":1}`, func(e *Edits, r *Request) {
			for _, m := range r.Members {
				e.Remove(r, string(m.Name))
			}
			e.Set(r, "x", []byte("1"))
		}},
		{"what is not there cannot be removed or renamed", body, func(e *Edits, r *Request) {
			e.Remove(r, "x")
			e.Rename(r, "x", "y")
		}},
		{"an added member is removed again", body, func(e *Edits, r *Request) {
			e.Set(r, "x", []byte("1"))
			e.Remove(r, "x")
		}},
		{"a removed member is set again", ` { "model" : "m" , "a":7,"b" : [1, {"c":null}],"z":9 } `, func(e *Edits, r *Request) {
			e.Remove(r, "a")
			e.Set(r, "a", []byte("7"))
		}},
		{"changes within a removed member are dropped, the others hold", `{"x":0,"model" : "n","zz":8}`, func(e *Edits, r *Request) {
			e.Set(r, "z", []byte("8"))
			e.Rename(r, "z", "zz")
			e.Replace(r.Members[2].Value, []byte("lost"))
			e.Remove(r, "b")
			e.Remove(r, "a")
			e.Set(r, "model", []byte(`"n"`))
			e.Set(r, "x", []byte("0"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request(t, body)
			var e Edits
			c.edit(&e, r)
			if got := string(e.Apply([]byte("dst"), r)); got != "dst"+c.want {
				t.Errorf("got %s, want %s", got[3:], c.want)
			}
			if e.Empty() != (c.want == body) {
				t.Errorf("Empty is %v", e.Empty())
			}
			if !json.Valid([]byte(c.want)) {
				t.Error("the wanted text is not valid JSON")
			}
			if string(r.Body) != body {
				t.Error("the request's own bytes changed")
			}
			n, ok := e.Head(r, len(body))
			if ok != (len(e.removed) == 0) {
				t.Fatalf("Head is possible = %v", ok)
			}
			if got := string(e.AppendHead(nil, r, n)) + body[n:]; ok && got != c.want {
				t.Errorf("head and rest are %s, want %s", got, c.want)
			}
			if _, ok := e.Head(r, n-1); ok {
				t.Error("Head keeps no limit")
			}
		})
	}
}

func TestRequestMembers(t *testing.T) {
	r := request(t, `{"a":null,"b":0,"\u0063":""}`)
	for _, c := range []struct{ name, want string }{{"a", ""}, {"b", "0"}, {"c", `""`}, {"d", ""}, {"B", ""}} {
		if got := string(r.Value(c.name)); got != c.want {
			t.Errorf("Value(%s) = %s, want %s", c.name, got, c.want)
		}
	}
	if _, ok := r.Member("a"); !ok {
		t.Error("a null member is there all the same")
	}
}

func TestBodyIsRecycledOnceAndOnlyWhenUnread(t *testing.T) {
	freed := 0
	r := &Request{Body: []byte("{}")}
	r.Recycles(func(b []byte) {
		if freed++; string(b) != "{}" {
			t.Errorf("got %q back", b)
		}
	})
	r.Release()
	r.Release()
	if freed != 1 || r.Body != nil {
		t.Errorf("freed %d times, want once", freed)
	}
	r = &Request{Body: []byte("{}")}
	r.Recycles(func([]byte) { t.Error("freed while a connection may read it") })
	r.Reading()
	r.Release()
	(&Request{Body: []byte("{}")}).Release() // nobody takes it: nothing happens
}

func TestOperations(t *testing.T) {
	type how struct{ Generates, Passes bool }
	got := map[string]how{}
	for op := Op(0); op < 10; op++ {
		got[op.String()] = how{op.Generates(), op.Passes()}
	}
	want := map[string]how{
		"": {}, "chat": {Generates: true}, "completions": {Generates: true}, "embeddings": {}, "rerank": {}, "count": {},
		"audio": {Passes: true}, "images": {Passes: true},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestCallerMayAskForEverythingUnlessToldOtherwise(t *testing.T) {
	if c := (&Caller{}); !c.Allows("x") {
		t.Error("a caller without a list is refused")
	}
	c := Caller{May: func(alias string) bool { return alias == "x" }}
	if !c.Allows("x") || c.Allows("y") {
		t.Error("the list is not kept")
	}
}
