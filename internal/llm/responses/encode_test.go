package responses

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
)

func TestPaths(t *testing.T) {
	d := Dialect{}
	if d.Name() != "responses" || d.Path(llm.Chat) != "/v1/responses" || d.Path(llm.Count) != "/v1/responses/input_tokens" {
		t.Errorf("got %s %s %s", d.Name(), d.Path(llm.Chat), d.Path(llm.Count))
	}
}

func TestEdits(t *testing.T) {
	for name, tc := range map[string]struct {
		body, want string
		t          llm.Target
	}{
		"only the model changes, and nothing is stored there (C068)": {
			body: `{ "model":"m", "store":true, "previous_response_id":"r", "input":[{"role":"user","content":"w?"},{"type":"time_travel","n":1.0}] }`,
			want: `{ "model":"up", "store":false, "previous_response_id":"r", "input":[{"role":"user","content":"w?"},{"type":"time_travel","n":1.0}] }`},
		"a stream is asked for": {t: llm.Target{Stream: true},
			body: `{"model":"m","input":"a"}`, want: `{"stream":true,"store":false,"model":"up","input":"a"}`},
		"rules, by any name of the limit": {t: llm.Target{Sampling: []llm.Sampling{{Name: "max_tokens", Force: []byte("5")}, {Name: "top_p", Strip: true}, {Name: "temperature", Default: []byte("0.1")}}},
			body: `{"model":"m","max_output_tokens":9,"top_p":1,"input":"a","temperature":0.7}`, want: `{"store":false,"model":"up","max_output_tokens":5,"input":"a","temperature":0.7}`},
		"a rule's member in other case": {t: llm.Target{Sampling: []llm.Sampling{{Name: "temperature", Force: []byte("0")}}},
			body: `{"model":"m","Temperature":2,"input":"a"}`, want: `{"store":false,"temperature":0,"model":"up","input":"a"}`},
	} {
		t.Run(name, func(t *testing.T) {
			tc.t.Quoted = []byte(`"up"`)
			r := decode(t, tc.body)
			e, err := Dialect{}.Edits(r, &tc.t)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(e.Apply(nil, r)); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

func TestRepair(t *testing.T) {
	const ask, sound = `{"role":"user","content":"w?"}`, `{"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"x"}`
	for name, tc := range map[string]struct {
		input, want string
		notes       int
	}{
		"a sound history keeps its bytes": {ask + ` , ` + sound, "", 0},
		"no repair of what is not known":  {ask + `,` + sound + `,{"type":"time_travel"}`, "", 0},
		"a call without a name": {ask + `,{"type":"function_call","call_id":"c1","name":"","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"x"}`,
			ask + `,{"type":"function_call","call_id":"c1","name":"unknown_tool","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"x"}`, 1},
		"arguments that are no JSON, beside thinking and items that are not known": {
			ask + `,{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"Z"},{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\":"},{"type":"function_call_output","call_id":"c1","output":"x"},{"type":"time_travel"},` + ask,
			ask + `,{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"Z"},{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"unparsed_arguments\":\"{\\\"a\\\":\"}"},{"type":"function_call_output","call_id":"c1","output":"x"},{"type":"time_travel"},` + ask, 1},
		"a result that belongs to no call": {ask + `,{"type":"function_call_output","call_id":"zz","output":"x"}`,
			ask + `,{"type":"message","role":"user","content":[{"type":"input_text","text":"Result of a tool call that is not in this conversation:"},{"type":"input_text","text":"x"}]}`, 1},
		"a call that was never answered": {`{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},` + ask,
			`{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"No result was recorded."},` + ask, 1},
	} {
		t.Run(name, func(t *testing.T) {
			body := `{"model":"m","store":false,"instructions":"i","input":[` + tc.input + `]}`
			r := decode(t, body)
			tg := target()
			e, err := Dialect{}.Edits(r, tg)
			if err != nil {
				t.Fatal(err)
			}
			want := tc.want
			if want == "" {
				want = tc.input
			}
			want = `{"model":"up","store":false,"instructions":"i","input":[` + want + `]}`
			if d := cmp.Diff(want, string(e.Apply(nil, r))); d != "" {
				t.Error(d)
			}
			if n := len(r.Repair.Notes); n != tc.notes || n > 0 && !strings.HasPrefix(r.Repair.Notes[0], "input[") {
				t.Errorf("noted %q", r.Repair.Notes)
			}
		})
	}
}

func TestContinuing(t *testing.T) {
	r := decode(t, `{"model":"m","store":true,"input":"what is 1+1?"}`)
	if PreviousID(r) != "" || !WantsStore(r) || WantsStore(decode(t, `{"model":"m","input":"a","store":false}`)) {
		t.Error("read the wrong wish")
	}
	answer := []byte(`{"id":"resp_1","status":"completed","output":[ {"type":"message","role":"assistant","content":[{"type":"output_text","text":"2"}]} ]}`)
	id, items, ok := Keep(Input(r), answer)
	if !ok || id != "resp_1" {
		t.Fatalf("kept %q %v", id, ok)
	}
	next := decode(t, `{"model":"m","previous_response_id":"resp_1","input":[{"role":"user","content":"+1?"}]}`)
	if PreviousID(next) != "resp_1" {
		t.Errorf("continues %q", PreviousID(next))
	}
	body, err := Continue(next, items)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"model":"m","input":[{"type":"message","role":"user","content":"what is 1+1?"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"2"}]},{"role":"user","content":"+1?"}]}`
	if string(body) != want {
		t.Errorf("got\n%s\nwant\n%s", body, want)
	}
	if c, _ := conversation(t, string(body)); len(c.Turns) != 3 {
		t.Errorf("got %s", dump(c))
	}
	if body, err = Continue(decode(t, `{"model":"m","previous_response_id":"resp_1"}`), items); err != nil || !strings.Contains(string(body), `"input":[{"type":"message"`) {
		t.Errorf("got %s, %v", body, err)
	}
	if _, err := Continue(next, []byte(`{`)); llm.KindOf(err) != llm.Internal {
		t.Errorf("got %v", err)
	}
	for _, bad := range []string{`{"id":"r","status":"failed","output":[]}`, `{"status":"completed","output":[]}`, `{"id":"r","status":"completed"}`, ``} {
		if _, _, ok := Keep(Input(r), []byte(bad)); ok {
			t.Errorf("kept %s", bad)
		}
	}
}

// What a server stored under an id is not there for one that is asked to store nothing.
func TestWhatIsSaidAgain(t *testing.T) {
	for name, tc := range map[string]struct{ output, want string }{
		"a message loses its id":      {`{"id":"msg_1","type":"message","role":"assistant","content":[]}`, `{"type":"message","role":"assistant","content":[]}`},
		"so does a call":              {`{"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{}"}`, `{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"}`},
		"the last member too":         {`{"type":"function_call","call_id":"c1", "id":"fc_1"}`, `{"type":"function_call","call_id":"c1"}`},
		"sealed thinking stays":       {`{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"Z"}`, `{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"Z"}`},
		"open thinking stays":         {`{"id":"rs_1","type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]}`, `{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]}`},
		"stored thinking is nobody's": {`{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]},{"type":"message","role":"assistant"}`, `{"type":"message","role":"assistant"}`},
		"null seals nothing":          {`{"id":"rs_1","type":"reasoning","summary":[],"content":null,"encrypted_content":null}`, ``},
		"what is not known stays":     {`{"type":"time_travel","id":"x","n":1.0}`, `{"type":"time_travel","n":1.0}`},
		"no items":                    {``, ``},
	} {
		_, items, ok := Keep([]byte("[]"), []byte(`{"id":"r","status":"completed","output":[`+tc.output+`]}`))
		if want := "[" + tc.want + "]"; !ok || string(items) != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, items, want)
		}
	}
}

func TestTerminal(t *testing.T) {
	const data = `{"type":"response.incomplete","response":{"id":"r"}}`
	before := "event: response.output_text.done\ndata: {\"type\":\"x\",\"text\":\"event: response.completed\\ndata: {}\"}\n\n"
	for name, piece := range map[string]string{
		"as most send it":       before + "event: response.incomplete\ndata: " + data + "\n\n",
		"without a space":       before + "event:response.incomplete\ndata:" + data + "\n\n",
		"the name behind":       "data: " + data + "\nevent: response.incomplete\n\n",
		"a comment after it":    before + "event: response.incomplete\ndata: " + data + "\n\n: weir {}\n\n",
		"with more than a read": strings.Repeat(before, 1000) + "event: response.incomplete\ndata: " + data + "\n\n",
	} {
		if got, ok := Terminal([]byte(piece)); !ok || string(got) != `{"id":"r"}` {
			t.Errorf("%s: got %s, %v", name, got, ok)
		}
	}
	if _, ok := Terminal([]byte(before)); ok {
		t.Error("found the end of a stream that has none")
	}
}
