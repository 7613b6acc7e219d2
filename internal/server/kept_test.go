package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/event"
	"weir/internal/llm"
)

// plain is a dialect of one object with the members that keeping needs.
type plain struct{ Dialect }

func (plain) Name() string { return "responses" }

func (plain) Status(e *llm.Error) int { return e.HTTPStatus() }

func (plain) AppendError(dst []byte, e *llm.Error) []byte {
	return fmt.Appendf(dst, "%s %s", e.ErrorCode(), e.Param)
}

func (plain) Decode(op llm.Op, body []byte, depth int) (*llm.Request, error) {
	r := &llm.Request{Op: op, Body: body, Model: "m"}
	s := llm.NewScanner(body, depth)
	err := s.Members(func(name []byte) error {
		at, err := s.Value()
		r.Members = append(r.Members, llm.Member{Name: name, Value: at})
		return err
	})
	r.Stream = string(r.Value("stream")) == "true"
	return r, err
}

// echo answers with the input of the request as the response that has the request's id.
type echo struct {
	keep  time.Duration
	local bool
	saw   llm.Caller
	input string
}

func (e *echo) Keeps(string, *llm.Caller) (time.Duration, bool) { return e.keep, e.local }

func (e *echo) Models(*llm.Caller) []llm.Listed { return nil }

func (e *echo) Serve(_ context.Context, r *llm.Request, c *llm.Caller, _ *event.Record, out llm.Client) error {
	e.saw, e.input = *c, string(r.Value("input"))
	answer := fmt.Appendf(nil, `{"id":%s}`, r.Value("id"))
	if !r.Stream {
		return out.Answer(answer)
	}
	if err := out.Send([]byte("begin ")); err != nil {
		return err
	}
	return out.Last(append([]byte("end "), answer...))
}

// memory keeps responses as long as the test runs.
type memory struct {
	rows map[string]*Kept
	err  error
}

func (*memory) Input(r *llm.Request) []byte { return bytes.Clone(r.Value("input")) }

func (*memory) Answer(piece []byte, whole bool) (string, []byte, bool) {
	rest, ok := bytes.CutPrefix(piece, []byte("end "))
	id, _ := strings.CutPrefix(strings.TrimRight(string(rest), `"}`), `{"id":"`)
	return id, rest, ok || whole
}

func (*memory) Continue(_ *llm.Request, k *Kept) ([]byte, error) {
	return fmt.Appendf(nil, `{"id":"next","input":["continued",%s]}`, k.Input), nil
}

func (m *memory) Save(ctx context.Context, k *Kept) error {
	if d, ok := ctx.Deadline(); !ok || time.Until(d) > time.Second {
		return errors.New("nobody waits longer than a second for the end of an answer")
	}
	if m.err == nil {
		m.rows[k.Key+"/"+k.ID] = k
	}
	return m.err
}

func (m *memory) Load(_ context.Context, key, id string) (*Kept, error) {
	return m.rows[key+"/"+id], m.err
}

func (m *memory) Delete(_ context.Context, key, id string) (bool, error) {
	_, ok := m.rows[key+"/"+id]
	delete(m.rows, key+"/"+id)
	return ok, m.err
}

// keeping is a server with what it needs for kept responses alone.
type keeping struct {
	*Server
	relay  *echo
	memory *memory
	drops  []string
}

func newKeeping(keep time.Duration) *keeping {
	k := &keeping{relay: &echo{keep: keep}, memory: &memory{rows: map[string]*Kept{}}}
	k.Server = New(Options{
		Relay: k.relay, Keeper: k.memory, Responses: plain{}, OpenAI: plain{}, Log: slog.New(slog.DiscardHandler), MaxBody: 16 << 20, MaxDepth: 8,
		Emit: func(e event.Event) {
			if e.Name == event.Drop {
				k.drops = append(k.drops, e.Reason+" "+e.Detail)
			}
		},
	})
	return k
}

// ask makes a request and returns the status and the body.
func (k *keeping) ask(method, path, body string) (int, string) {
	r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	k.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestWhatIsKept(t *testing.T) {
	long := `["` + strings.Repeat("x", maxKept) + `"]`
	for name, c := range map[string]struct {
		keep         time.Duration
		body         string
		err          error
		status       int
		kept, events []string
	}{
		"a whole answer":                       {keep: time.Hour, body: `{"id":"a","input":[1]}`, status: 200, kept: []string{"/a"}},
		"a stream":                             {keep: time.Hour, body: `{"id":"a","input":[1],"stream":true}`, status: 200, kept: []string{"/a"}},
		"store: true where responses are kept": {keep: time.Hour, body: `{"id":"a","input":[1],"store":true}`, status: 200, kept: []string{"/a"}},
		"store: null says nothing":             {keep: time.Hour, body: `{"id":"a","input":[1],"store":null}`, status: 200, kept: []string{"/a"}},
		"store: false leaves nothing":          {keep: time.Hour, body: `{"id":"a","input":[1],"store":false}`, status: 200},
		"not kept here":                        {body: `{"id":"a","input":[1]}`, status: 200},
		"store: true where nothing is kept":    {body: `{"id":"a","input":[1],"store":true}`, status: 200, events: []string{"setting store"}},
		"a conversation that is too large":     {keep: time.Hour, body: `{"id":"a","input":` + long + `}`, status: 200, events: []string{"size store"}},
		"an id that is too long":               {keep: time.Hour, body: `{"id":"` + strings.Repeat("x", 300) + `","input":[1]}`, status: 200, events: []string{"size store"}},
		"a store that is gone":                 {keep: time.Hour, body: `{"id":"a","input":[1]}`, err: errors.New("gone"), status: 200, events: []string{"store store"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeping(c.keep)
			k.memory.err = c.err
			if status, body := k.ask("POST", "/v1/responses", c.body); status != c.status {
				t.Errorf("status %d, want %d: %.200s", status, c.status, body)
			}
			var got []string
			for at := range k.memory.rows {
				got = append(got, at)
			}
			if d := cmp.Diff(c.kept, got) + cmp.Diff(c.events, k.drops); d != "" {
				t.Errorf("kept and events (-want +got):\n%s", d)
			}
		})
	}
}

func TestContinuing(t *testing.T) {
	const next = `{"id":"b","previous_response_id":"a","input":[2]}`
	t.Run("what was kept goes before the input", func(t *testing.T) {
		k := newKeeping(time.Hour)
		k.ask("POST", "/v1/responses", `{"id":"a","input":[1]}`)
		if status, body := k.ask("POST", "/v1/responses", next); status != 200 || k.relay.input != `["continued",[1]]` || k.relay.saw.Local {
			t.Errorf("%d %s; the relay got %s, local %v", status, body, k.relay.input, k.relay.saw.Local)
		}
		if got := k.memory.rows["/next"]; got == nil || string(got.Input) != `["continued",[1]]` {
			t.Errorf("of the second turn is kept %+v, want the whole conversation", got)
		}
	})
	t.Run("for counting too, which keeps nothing", func(t *testing.T) {
		k := newKeeping(time.Hour)
		k.ask("POST", "/v1/responses", `{"id":"a","input":[1]}`)
		if status, _ := k.ask("POST", "/v1/responses/input_tokens", next); status != 200 || k.relay.input != `["continued",[1]]` || len(k.memory.rows) != 1 {
			t.Errorf("%d; the relay got %s; %d are kept", status, k.relay.input, len(k.memory.rows))
		}
	})
	t.Run("what a local route answered goes on locally", func(t *testing.T) {
		k := newKeeping(time.Hour)
		k.relay.local = true
		k.ask("POST", "/v1/responses", `{"id":"a","input":[1]}`)
		k.relay.local = false
		for _, body := range []string{next, `{"id":"c","previous_response_id":"next","input":[3]}`} { // and from turn to turn
			if k.ask("POST", "/v1/responses", body); !k.relay.saw.Local {
				t.Errorf("%s: it may leave", body)
			}
		}
	})
	for name, c := range map[string]struct {
		keep   time.Duration
		err    error
		status int
		want   string
	}{
		"nothing is kept here":    {0, nil, 400, "unsupported_parameter previous_response_id"},
		"there is no such one":    {time.Hour, nil, 400, "previous_response_not_found previous_response_id"},
		"the store is gone":       {time.Hour, errors.New("gone"), 503, "upstream_unavailable "},
		"and nothing kept anyway": {0, errors.New("gone"), 400, "unsupported_parameter previous_response_id"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeping(c.keep)
			k.memory.err = c.err
			for _, path := range []string{"/v1/responses", "/v1/responses/input_tokens"} {
				if status, body := k.ask("POST", path, next); status != c.status || body != c.want {
					t.Errorf("%s: got %d %s, want %d %s", path, status, body, c.status, c.want)
				}
			}
			if k.relay.input != "" {
				t.Error("the relay was asked")
			}
		})
	}
}

func TestPathsOfWhatIsKept(t *testing.T) {
	const input = `[{"role":"user"},{"id":"i\u0031"},{"id":"i2"}]`
	const one, two, three = `{"id":"item_0","role":"user"}`, `{"id":"i\u0031"}`, `{"id":"i2"}`
	list := func(items, more, first, last string) string {
		return fmt.Sprintf(`{"object":"list","data":[%s],"has_more":%s,"first_id":%s,"last_id":%s}`, items, more, first, last)
	}
	for name, c := range map[string]struct {
		method, path string
		status       int
		want         string
	}{
		"a response":                {"GET", "/a", 200, `{"id":"a"}`},
		"a response streamed":       {"GET", "/a?stream=true", 400, "invalid_request stream"},
		"another":                   {"GET", "/b", 404, "response_not_found "},
		"its items, newest first":   {"GET", "/a/input_items", 200, list(three+","+two+","+one, "false", `"i2"`, `"item_0"`)},
		"oldest first":              {"GET", "/a/input_items?order=asc", 200, list(one+","+two+","+three, "false", `"item_0"`, `"i2"`)},
		"a page":                    {"GET", "/a/input_items?limit=1&after=i2", 200, list(two, "true", `"i1"`, `"i1"`)},
		"the last page":             {"GET", "/a/input_items?limit=1&after=i1", 200, list(one, "false", `"item_0"`, `"item_0"`)},
		"behind it":                 {"GET", "/a/input_items?after=item_0", 200, list("", "false", "null", "null")},
		"no limit":                  {"GET", "/a/input_items?limit=0", 400, "invalid_request limit"},
		"items of another":          {"GET", "/b/input_items", 404, "response_not_found "},
		"cancelling":                {"POST", "/a/cancel", 400, "invalid_request "},
		"cancelling another":        {"POST", "/b/cancel", 404, "response_not_found "},
		"deleting":                  {"DELETE", "/a", 200, `{"id":"a","object":"response","deleted":true}`},
		"deleting another":          {"DELETE", "/b", 404, "response_not_found "},
		"a method that it lacks":    {"PUT", "/a", 405, "method_not_allowed "},
		"deleting items":            {"DELETE", "/a/input_items", 405, "method_not_allowed "},
		"nothing of that kind":      {"GET", "/a/output", 404, "unknown_path "},
		"no id":                     {"GET", "/", 404, "unknown_path "},
		"a slash at the end":        {"GET", "/a/", 404, "unknown_path "},
		"compacting is not there":   {"POST", "/compact", 404, "unknown_path "},
		"the counter keeps its own": {"GET", "/input_tokens", 405, "method_not_allowed "},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeping(0) // what is kept stays within reach when no more is
			k.memory.rows["/a"] = &Kept{ID: "a", Input: []byte(input), Answer: []byte(`{"id":"a"}`)}
			if status, body := k.ask(c.method, "/v1/responses"+c.path, ""); status != c.status || body != c.want {
				t.Errorf("got %d %s\nwant %d %s", status, body, c.status, c.want)
			}
			if _, there := k.memory.rows["/a"]; there == (name == "deleting") {
				t.Errorf("it is there %v", there)
			}
		})
	}
	t.Run("a store that is gone is no 404", func(t *testing.T) {
		k := newKeeping(time.Hour)
		k.memory.err = errors.New("gone")
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			if status, body := k.ask(method, "/v1/responses/a", ""); status != 503 {
				t.Errorf("%s: %d %s", method, status, body)
			}
		}
	})
}
