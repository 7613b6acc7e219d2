package stability

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// listInside returns what stands between the brackets of a list.
func listInside(v json.RawMessage) string {
	if len(v) < 2 || v[0] != '[' {
		return string(v)
	}
	return strings.TrimSpace(string(v[1 : len(v)-1]))
}

func chatAsked(body []byte) (a asked, err error) {
	var v struct{ Messages, Tools json.RawMessage }
	var list []struct {
		ToolCalls []chatCall `json:"tool_calls"`
	}
	var tools []struct {
		Function struct{ Name, Parameters json.RawMessage }
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return a, err
	}
	if err := errors.Join(json.Unmarshal(v.Messages, &list), unmarshalSome(v.Tools, &tools)); err != nil {
		return a, err
	}
	a.front, a.turns = string(v.Tools), listInside(v.Messages)
	for _, t := range tools {
		a.tools = append(a.tools, tool{name: t.Function.Name, parameters: t.Function.Parameters})
	}
	for _, m := range list {
		for _, c := range m.ToolCalls {
			a.calls = append(a.calls, call{c.ID, c.Function.Name, c.Function.Arguments})
		}
	}
	return a, nil
}

func messagesAsked(body []byte) (a asked, err error) {
	var v struct{ Messages, Tools, System json.RawMessage }
	var list []struct{ Content json.RawMessage }
	var tools []struct {
		Name   json.RawMessage
		Schema json.RawMessage `json:"input_schema"`
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return a, err
	}
	if err := errors.Join(json.Unmarshal(v.Messages, &list), unmarshalSome(v.Tools, &tools)); err != nil {
		return a, err
	}
	a.front, a.turns = string(v.Tools)+string(v.System), listInside(v.Messages)
	for _, t := range tools {
		a.tools = append(a.tools, tool{name: t.Name, parameters: t.Schema})
	}
	for _, m := range list {
		var blocks []block
		if m.Content[0] != '[' {
			continue
		}
		if err := json.Unmarshal(m.Content, &blocks); err != nil {
			return a, err
		}
		for _, b := range blocks {
			if b.Type == "tool_use" {
				a.calls = append(a.calls, call{b.ID, b.Name, string(b.Input)})
			}
		}
	}
	return a, nil
}

func responsesAsked(body []byte) (a asked, err error) {
	var v struct{ Input, Tools, Instructions json.RawMessage }
	var list []item
	var tools []struct{ Name, Parameters json.RawMessage }
	if err := json.Unmarshal(body, &v); err != nil {
		return a, err
	}
	if err := errors.Join(json.Unmarshal(v.Input, &list), unmarshalSome(v.Tools, &tools)); err != nil {
		return a, err
	}
	a.front, a.turns = string(v.Tools)+string(v.Instructions), listInside(v.Input)
	for _, t := range tools {
		a.tools = append(a.tools, tool{name: t.Name, parameters: t.Parameters})
	}
	for _, i := range list {
		if i.Type == "function_call" {
			a.calls = append(a.calls, call{i.CallID, i.Name, i.Arguments})
		}
	}
	return a, nil
}

// unmarshalSome is json.Unmarshal for what may be missing.
func unmarshalSome(v json.RawMessage, into any) error {
	if len(v) == 0 {
		return nil
	}
	return json.Unmarshal(v, into)
}

// member is one member of an object as it stands.
type member struct {
	name string
	raw  []byte
	end  int // where the value ends in the object
}

// membersOf splits an object into its members, to the byte.
func membersOf(body []byte) (list []member, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		list = append(list, member{fmt.Sprint(name), v, int(d.InputOffset())})
	}
	return list, nil
}

// sameBut reports how got differs from want in other members than those spliced; their order counts, and every byte of
// their values. Where both have the same members, the bytes between them count too.
func sameBut(got, want []byte, spliced []string) error {
	g, err := membersOf(got)
	if err != nil {
		return fmt.Errorf("the backend's request: %w", err)
	}
	w, err := membersOf(want)
	if err != nil {
		return fmt.Errorf("the client's request: %w", err)
	}
	if len(g) == len(w) { // nothing was added: put the client's values back, and compare all
		back, from := []byte(nil), 0
		for i := range g {
			if slices.Contains(spliced, g[i].name) && g[i].name == w[i].name {
				back = append(append(back, got[from:g[i].end-len(g[i].raw)]...), w[i].raw...)
				from = g[i].end
			}
		}
		back = append(back, got[from:]...)
		if !bytes.Equal(back, want) {
			return fmt.Errorf("the request was\n%s\nand went on as\n%s", want, got)
		}
		return nil
	}
	own := func(m member) bool { return slices.Contains(spliced, m.name) }
	g, w = slices.DeleteFunc(g, own), slices.DeleteFunc(w, own)
	same := func(a, b member) bool { return a.name == b.name && bytes.Equal(a.raw, b.raw) }
	if !slices.EqualFunc(g, w, same) {
		return fmt.Errorf("the request was\n%s\nand went on as\n%s", want, got)
	}
	return nil
}
