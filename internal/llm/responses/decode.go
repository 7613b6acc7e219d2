package responses

import (
	"bytes"
	"fmt"

	"weir/internal/llm"
)

// Decode scans body once, strictly and whole, and returns what Weir needs to know of it. Errors are of kind Invalid and
// name the member at fault. The request keeps body and shares its bytes.
func (d Dialect) Decode(op llm.Op, body []byte, maxDepth int) (*llm.Request, error) {
	c := decoder{s: llm.NewScanner(body, maxDepth), r: &llm.Request{
		Op: op, Dialect: dialect, Body: body, Choices: 1, Members: make([]llm.Member, 0, 24),
		IncludeUsage: true, Speaks: d, Shape: llm.Shape{Bytes: len(body)},
	}}
	c.s.Note(&c.r.Long)
	if c.s.Peek() != '{' {
		return nil, invalid("", "the body must be one JSON object%s", got(body))
	}
	if err := c.object(); err != nil {
		return nil, c.explain(err)
	}
	if err := c.s.End(); err != nil {
		c.path = "" // no member is at fault
		return nil, c.explain(err)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	r := c.r
	r.Shape.Stream = r.Stream
	r.Shape.TokensEst = c.text/4 + r.Shape.Messages*4 + r.Shape.Images*800
	return r, nil
}

func got(body []byte) string {
	if len(bytes.TrimSpace(body)) == 0 {
		return "; it is empty"
	}
	return ""
}

type decoder struct {
	s     llm.Scanner
	r     *llm.Request
	names llm.Names
	path  string // where the scan stands, for the error
	text  int    // bytes that become prompt tokens
}

func (d *decoder) explain(err error) error { return llm.Unreadable(err, d.path) }

func (d *decoder) object() error {
	return d.s.Members(func(name []byte) error {
		d.path = llm.Brief(name)
		if err := d.names.Add(&d.s, name); err != nil {
			return err
		}
		if err := llm.Misspelt(name, read[:]); err != nil {
			return err
		}
		from := d.s.NameAt()
		at, err := d.member(name)
		if err != nil {
			return err
		}
		d.r.Members = append(d.r.Members, llm.Member{Name: name, At: llm.Span{From: from, To: at.To}, Value: at})
		d.path = "" // what is wrong after it is not its fault
		return nil
	})
}

// read are the outermost members that Weir reads, refuses or sets.
var read = [...]string{
	"model", "input", "instructions", "stream", "max_output_tokens", "tools", "background", "conversation", "prompt",
	"previous_response_id", "store", "api_base", "base_url", "api_key", "extra_headers",
}

// member walks the value of one outermost member and returns its place.
func (d *decoder) member(name []byte) (llm.Span, error) {
	from := d.s.Offset()
	switch string(name) {
	case "input":
		err := d.input()
		d.r.MessagesAt = llm.Span{From: from, To: d.s.Offset()}
		return d.r.MessagesAt, err
	case "tools":
		if d.s.Peek() == '[' {
			err := d.s.Elements(func(int) error {
				d.r.Shape.Tools++
				_, err := d.s.Value()
				return err
			})
			at := llm.Span{From: from, To: d.s.Offset()}
			d.text += at.To - at.From
			return at, err
		}
	}
	at, err := d.s.Value()
	if err != nil {
		return at, err
	}
	return at, d.scalar(string(name), at.Of(d.r.Body))
}

// scalar reads the members that policy needs, and refuses those that Weir cannot keep the promise of.
func (d *decoder) scalar(name string, v []byte) error {
	null := isNull(v)
	switch name {
	case "model":
		if v[0] != '"' {
			return invalid("model", "model must be a string")
		}
		d.r.Model = string(llm.Unquote(v))
	case "stream":
		if string(v) != "true" && string(v) != "false" && !null {
			return invalid("stream", "stream must be true or false")
		}
		d.r.Stream = string(v) == "true"
	case "instructions":
		d.text += len(v)
	case "max_output_tokens":
		n, ok := llm.Int(v)
		if !null && n != -1 && (!ok || n < 0) { // -1: no limit, to llama.cpp
			return invalid(name, "%s must be a whole number of at least 0", name)
		}
		d.r.Shape.MaxTokens = max(n, 0)
	case "previous_response_id":
		if v[0] != '"' && !null {
			return invalid(name, "previous_response_id must be a string")
		}
	case "background":
		if string(v) != "false" && !null {
			return invalid(name, "background is not served: Weir answers while the client waits; leave the member out, and set stream for a long answer")
		}
	case "conversation":
		if !null {
			return invalid(name, "conversation is not served: Weir keeps no conversations; send the items so far in input")
		}
	case "prompt":
		if !null {
			return invalid(name, "prompt is not served: Weir has no stored prompts; send the text in instructions and input")
		}
	case "api_base", "base_url", "api_key", "extra_headers":
		return invalid(name, "%s is refused: where a call goes and with which key is said in Weir's configuration alone; leave the member out", name)
	}
	return nil
}

func (d *decoder) input() error {
	switch d.s.Peek() {
	case '"':
		at, err := d.s.Value()
		d.text += at.To - at.From
		d.r.Shape.Messages = 1
		return err
	case '[':
		return d.s.Elements(func(i int) error {
			d.r.Shape.Messages++
			if d.s.Peek() != '{' {
				return invalid(fmt.Sprintf("input[%d]", i), "an input item must be an object")
			}
			return d.item(i)
		})
	}
	if _, err := d.s.Value(); err != nil {
		return err
	}
	return invalid("input", "input must be a string or an array of items")
}

// item walks one input item: text counts by its size, an image by the piece.
func (d *decoder) item(i int) error {
	var names llm.Names
	told := false // it says what it is
	err := d.s.Members(func(name []byte) error {
		if err := names.Add(&d.s, name); err != nil {
			d.path = fmt.Sprintf("input[%d].%s", i, llm.Brief(name))
			return err
		}
		if key := string(name); (key == "content" || key == "output") && d.s.Peek() == '[' {
			return d.parts(i, key)
		}
		at, err := d.s.Value()
		if err != nil {
			d.path = fmt.Sprintf("input[%d].%s", i, llm.Brief(name))
			return err
		}
		switch v := at.Of(d.r.Body); string(name) {
		case "type":
			told = told || v[0] == '"'
			d.r.Calls = d.r.Calls || isCall(v)
		case "role":
			if v[0] != '"' {
				return invalid(fmt.Sprintf("input[%d].role", i), "role must be a string")
			}
			told = true
			d.r.Developer = d.r.Developer || string(v) == `"developer"`
		case "id", "call_id", "status", "encrypted_content":
		default:
			d.text += len(v)
		}
		return nil
	})
	if err == nil && !told {
		return invalid(fmt.Sprintf("input[%d].type", i), "an input item needs a type, or the role of a message")
	}
	return err
}

func isCall(quoted []byte) bool {
	switch string(quoted) {
	case `"function_call"`, `"function_call_output"`, `"custom_tool_call"`, `"custom_tool_call_output"`:
		return true
	}
	return false
}

func (d *decoder) parts(i int, list string) error {
	return d.s.Elements(func(j int) error {
		if d.s.Peek() != '{' {
			_, err := d.s.Value()
			return err
		}
		return d.s.Members(func(name []byte) error {
			at, err := d.s.Value()
			if err != nil {
				d.path = fmt.Sprintf("input[%d].%s[%d].%s", i, list, j, llm.Brief(name))
				return err
			}
			switch string(name) {
			case "text", "refusal":
				d.text += at.To - at.From
			case "type":
				if string(at.Of(d.r.Body)) == `"input_image"` {
					d.r.Shape.Images++
				}
			}
			return nil
		})
	})
}

func (d *decoder) check() error {
	if d.r.Model == "" {
		return invalid("model", "model is missing: name an alias of this gateway; GET /v1/models lists them")
	}
	if PreviousID(d.r) != "" { // what it continues from is input enough
		return nil
	}
	if d.r.MessagesAt.IsZero() {
		return invalid("input", "input is missing")
	}
	if d.r.Shape.Messages == 0 {
		return invalid("input", "input must hold at least one item")
	}
	return nil
}
