package stability

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

type chatCall struct {
	Index    int
	ID       string
	Function struct{ Name, Arguments string }
}

type chatMessage struct {
	Content   *string
	ToolCalls []chatCall `json:"tool_calls"`
}

func chatAnswer(body []byte, stream bool) (s said, err error) {
	take := func(m chatMessage, whole bool) error {
		if m.Content != nil {
			s.text += *m.Content
		}
		for i, c := range m.ToolCalls {
			if whole {
				c.Index = i
			}
			if c.Index == len(s.calls) {
				s.calls = append(s.calls, call{id: c.ID, name: c.Function.Name})
			}
			if c.Index >= len(s.calls) {
				return errors.New("a call's index is ahead")
			}
			s.calls[c.Index].args += c.Function.Arguments
		}
		return nil
	}
	read := func(data []byte) error {
		var v struct {
			Choices []struct{ Message, Delta chatMessage }
		}
		if err := json.Unmarshal(data, &v); err != nil {
			return err
		}
		for _, c := range v.Choices {
			if err := errors.Join(take(c.Message, true), take(c.Delta, false)); err != nil {
				return err
			}
		}
		return nil
	}
	if stream {
		return s, events(body, read)
	}
	return s, read(body)
}

type block struct {
	Type, Text, ID, Name string
	Input                json.RawMessage
	PartialJSON          string `json:"partial_json"`
}

func messagesAnswer(body []byte, stream bool) (s said, err error) {
	take := func(b block) {
		switch b.Type {
		case "text", "text_delta":
			s.text += b.Text
		case "tool_use":
			s.calls = append(s.calls, call{id: b.ID, name: b.Name, args: string(b.Input)})
		case "input_json_delta":
			s.calls[len(s.calls)-1].args += b.PartialJSON
		}
	}
	if !stream {
		var v struct{ Content []block }
		err := json.Unmarshal(body, &v)
		for _, b := range v.Content {
			take(b)
		}
		return s, err
	}
	return s, events(body, func(data []byte) error {
		var v struct {
			Type         string
			ContentBlock block `json:"content_block"`
			Delta        block
		}
		if err := json.Unmarshal(data, &v); err != nil {
			return err
		}
		if v.Type == "content_block_start" {
			if v.ContentBlock.Type == "tool_use" && string(v.ContentBlock.Input) != "{}" {
				return errors.New("the input of a call that begins is not empty")
			}
			v.ContentBlock.Input = nil
			take(v.ContentBlock)
		}
		take(v.Delta)
		return nil
	})
}

type item struct {
	Type, Name, Arguments string
	CallID                string `json:"call_id"`
	Content               json.RawMessage
}

// itemsOf reads the items of an output or an input.
func itemsOf(list []item) (s said, err error) {
	for _, i := range list {
		switch i.Type {
		case "function_call":
			s.calls = append(s.calls, call{i.CallID, i.Name, i.Arguments})
		case "message":
			var parts []struct{ Text string }
			if err := json.Unmarshal(i.Content, &parts); err != nil {
				return s, err
			}
			for _, p := range parts {
				s.text += p.Text
			}
		}
	}
	return s, nil
}

func responsesAnswer(body []byte, stream bool) (s said, err error) {
	var v struct {
		Type        string
		Delta       string
		Arguments   *string
		OutputIndex int `json:"output_index"`
		Item        item
		Output      []item
		Response    struct{ Output []item }
	}
	if !stream {
		if err := json.Unmarshal(body, &v); err != nil {
			return s, err
		}
		return itemsOf(v.Output)
	}
	pieces, done := map[int]string{}, map[int]string{}
	text := ""
	err = events(body, func(data []byte) error {
		v.Arguments, v.Response.Output = nil, nil
		if err := json.Unmarshal(data, &v); err != nil {
			return err
		}
		switch v.Type {
		case "response.output_text.delta":
			text += v.Delta
		case "response.function_call_arguments.delta":
			pieces[v.OutputIndex] += v.Delta
		case "response.function_call_arguments.done":
			done[v.OutputIndex] = *v.Arguments
		case "response.completed":
			s, err = itemsOf(v.Response.Output)
			return err
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	var args []string
	for _, c := range s.calls {
		args = append(args, c.args)
	}
	for i, whole := range done {
		if pieces[i] != whole || !slices.Contains(args, whole) {
			return s, fmt.Errorf("the arguments %q came as %q in pieces, in the end as %q", whole, pieces[i], args)
		}
	}
	if len(done) != len(s.calls) || text != s.text {
		return s, fmt.Errorf("%d calls were done of %d, the text %q was %q in pieces", len(done), len(s.calls), s.text, text)
	}
	return s, nil
}
