package openai

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
)

// passed is the body that a backend of this dialect gets, and what was mended in it.
func passed(t *testing.T, body string, target *llm.Target) (string, []string) {
	t.Helper()
	r := decode(t, llm.Chat, body)
	e, err := Dialect{}.Edits(r, target)
	if err != nil {
		t.Fatal(err)
	}
	if r.Repair == nil {
		return string(e.Apply(nil, r)), nil
	}
	return string(e.Apply(nil, r)), r.Repair.Notes
}

func TestEditsMendTheHistory(t *testing.T) {
	call := func(id, name, args string) string {
		return `{"id":` + id + `,"type":"function","x":[1, 2],"function":{"name":` + name + `,"arguments":` + args + `}}`
	}
	said := func(calls ...string) string {
		return `{"role":"assistant", "content":null,"tool_calls":[` + strings.Join(calls, ", ") + `]}`
	}
	result := func(id, text string) string {
		return `{"role":"tool","tool_call_id":` + id + `,"content":"` + text + `"}`
	}
	const hi, more = `{"role":"user","content":"hi"}`, `{ "role":"user" ,"content":"more"}`
	good := call(`"1"`, `"f"`, `"{\"n\": 1.0}"`)
	for _, tt := range []struct {
		name     string
		in, want []string
		notes    int
	}{
		{"what is right keeps every byte", []string{hi, said(good), result(`"1"`, "r"), more}, nil, 0},
		{"calls of the old kind are right", []string{hi, `{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}`, `{"role":"function","name":"f","content":"r"}`}, nil, 0},
		{"what cannot be read is left to the server", []string{`{"role":"robot"}`, said(call(`null`, `"f"`, `"{}"`))}, nil, 0},
		{"arguments that were cut, and only they, change", []string{hi, said(good, call(`"2"`, `"f"`, `"{\"city"`)), result(`"1"`, "r"), result(`"2"`, "r")},
			[]string{hi, said(good, call(`"2"`, `"f"`, `"{\"unparsed_arguments\":\"{\\\"city\"}"`)), result(`"1"`, "r"), result(`"2"`, "r")}, 1},
		{"a call without a name", []string{said(call(`"1"`, `""`, `"{}"`)), result(`"1"`, "r")}, []string{said(call(`"1"`, `"unknown_tool"`, `"{}"`)), result(`"1"`, "r")}, 1},
		{"C039 null ids", []string{hi, said(call(`null`, `"f"`, `"{}"`)), result(`null`, "1")}, []string{hi, said(call(`"call_0"`, `"f"`, `"{}"`)), result(`"call_0"`, "1")}, 2},
		{"C039 no ids at all", []string{said(`{"function":{"name":"f","arguments":"{}"}}`), `{"role":"tool","content":"1"}`},
			[]string{said(`{"id":"call_0","function":{"name":"f","arguments":"{}"}}`), `{"tool_call_id":"call_0","role":"tool","content":"1"}`}, 2},
		{"a call that is empty", []string{said(`{}`), result(`""`, "1")},
			[]string{said(`{"id":"call_0","type":"function","function":{"name":"unknown_tool","arguments":"{}"}}`), result(`"call_0"`, "1")}, 4},
		{"a call whose function is empty", []string{said(`{"id":"1","function":{}}`), result(`"1"`, "1")},
			[]string{said(`{"id":"1","function":{"name":"unknown_tool","arguments":"{}"}}`), result(`"1"`, "1")}, 2},
		{"a result without a call becomes the user's text", []string{hi, result(`"9"`, `a \"b\"`), more},
			[]string{hi, `{"role":"user","content":"Result of a tool call that is not in this conversation:\n\na \"b\""}`, more}, 1},
		{"a result without a call and without content", []string{hi, `{"role":"tool","tool_call_id":"9","content":null}`, more},
			[]string{hi, `{"role":"user","content":"Result of a tool call that is not in this conversation:"}`, more}, 1},
		{"a result that comes twice is told behind the others", []string{said(good, call(`"2"`, `"f"`, `"{}"`)), result(`"1"`, "r"), result(`"1"`, "s"), result(`"2"`, "r")},
			[]string{said(good, call(`"2"`, `"f"`, `"{}"`)), result(`"1"`, "r"), result(`"2"`, "r"), `{"role":"user","content":"Result of a tool call that is not in this conversation:\n\ns"}`}, 1},
		{"a call without a result is given one", []string{hi, said(good), more},
			[]string{hi, said(good), `{"role":"tool","tool_call_id":"1","content":"No result was recorded."}`, more}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := func(list []string) string { return `{"model":"m","messages":[` + strings.Join(list, ",") + `],"x":1}` }
			if tt.want == nil {
				tt.want = tt.in
			}
			target := &llm.Target{Quoted: []byte(`"m"`)}
			got, notes := passed(t, body(tt.in), target)
			if diff := cmp.Diff(body(tt.want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(notes) != tt.notes {
				t.Errorf("notes %q, want %d", notes, tt.notes)
			}
			if again, notes := passed(t, got, target); again != got || notes != nil {
				t.Errorf("mended again: %s\n%q", again, notes)
			}
			for _, target.NullContent = range []string{"empty", "omit"} { // both change the same messages
				if got, _ := passed(t, body(tt.in), target); !json.Valid([]byte(got)) {
					t.Errorf("null content %s: no JSON: %s", target.NullContent, got)
				}
			}
		})
	}
}

// A translation for an earlier step leaves notes and no edits; a step of this dialect finds them all the same.
func TestEditsMendAfterATranslation(t *testing.T) {
	r := decode(t, llm.Chat, `{"model":"m","messages":[{"role":"tool","tool_call_id":"9","content":"r"}]}`)
	r.Repair = &llm.Repair{Notes: []string{"messages[0]: …"}}
	e, err := Dialect{}.Edits(r, &llm.Target{Quoted: []byte(`"m"`)})
	if err != nil {
		t.Fatal(err)
	}
	if out := string(e.Apply(nil, r)); !strings.Contains(out, "not in this conversation") {
		t.Errorf("not mended: %s", out)
	}
}
