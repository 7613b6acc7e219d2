// Package anthropic speaks Anthropic's Messages: it reads requests, writes them for a backend, follows streams, writes
// errors, and translates to and from the neutral form of package llm.
package anthropic

import (
	"bytes"
	"fmt"

	"weir/internal/llm"
)

// Dialect is the anthropic dialect. Its zero value is ready and safe for concurrent use.
type Dialect struct{}

// own is what requests, configuration and events call the dialect.
const own = "anthropic"

// Name returns "anthropic".
func (Dialect) Name() string { return own }

// Decode scans body once, strictly and whole, and returns what Weir needs to know of it: for llm.Chat a request for a
// message, for llm.Count one for the count of its tokens, which needs no max_tokens. Errors are of kind Invalid and name
// the member at fault. The request keeps body and shares its bytes.
func (Dialect) Decode(op llm.Op, body []byte, maxDepth int) (*llm.Request, error) {
	d := decoder{s: llm.NewScanner(body, maxDepth), r: &llm.Request{
		Op: op, Dialect: own, Body: body, Choices: 1, IncludeUsage: true, Members: make([]llm.Member, 0, 16),
		Shape: llm.Shape{Bytes: len(body)}, Speaks: Dialect{},
	}}
	d.s.Note(&d.r.Long)
	if d.s.Peek() != '{' {
		return nil, invalid("", "the body must be one JSON object%s", got(body))
	}
	if err := d.object(); err != nil {
		return nil, d.explain(err)
	}
	if err := d.s.End(); err != nil {
		d.path = "" // no member is at fault
		return nil, d.explain(err)
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	r := d.r
	r.Shape.Stream = r.Stream
	r.Shape.TokensEst = d.text/4 + r.Shape.Messages*4 + r.Shape.Images*800
	return r, nil
}

func got(body []byte) string {
	if len(bytes.TrimSpace(body)) == 0 {
		return "; it is empty"
	}
	return ""
}

func invalid(param, format string, args ...any) *llm.Error {
	e := llm.Errorf(llm.Invalid, format, args...)
	e.Param = param
	return e
}

type decoder struct {
	s       llm.Scanner
	r       *llm.Request
	names   llm.Names
	path    string // where the scan stands, for the error
	text    int    // bytes that become prompt tokens
	limited bool   // max_tokens was given
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
	"model", "messages", "system", "stream", "max_tokens", "tools", "tool_choice", "thinking", "output_config", "stop_sequences",
	"temperature", "top_p", "top_k", "metadata", "service_tier", "api_base", "base_url", "api_key", "extra_headers",
}

// member walks the value of one outermost member and returns its place.
func (d *decoder) member(name []byte) (llm.Span, error) {
	from := d.s.Offset()
	switch {
	case string(name) == "messages":
		err := d.messages()
		d.r.MessagesAt = llm.Span{From: from, To: d.s.Offset()}
		return d.r.MessagesAt, err
	case string(name) == "system" && d.s.Peek() == '[':
		err := d.blocks(system, 0)
		return llm.Span{From: from, To: d.s.Offset()}, err
	case string(name) == "tools" && d.s.Peek() == '[':
		err := d.s.Elements(func(int) error {
			d.r.Shape.Tools++
			_, err := d.s.Value()
			return err
		})
		at := llm.Span{From: from, To: d.s.Offset()}
		d.text += at.To - at.From
		return at, err
	}
	at, err := d.s.Value()
	if err != nil {
		return at, err
	}
	return at, d.scalar(name, at.Of(d.r.Body))
}

// scalar reads the members that policy needs.
func (d *decoder) scalar(name, v []byte) error {
	null := isNull(v)
	switch string(name) {
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
	case "max_tokens":
		// 0 is allowed: it fills the prompt cache without an answer.
		n, ok := llm.Int(v)
		if !null && (!ok || n < 0) {
			return invalid("max_tokens", "max_tokens must be a whole number of at least 0")
		}
		d.r.Shape.MaxTokens, d.limited = n, !null
	case "system":
		if v[0] != '"' && !null {
			return invalid("system", "system must be a string or a list of text blocks")
		}
		d.text += len(v)
	case "tools":
		if !null {
			return invalid("tools", "tools must be an array of objects")
		}
	case "api_base", "base_url", "api_key", "extra_headers":
		return invalid(string(name), "%s is refused: where a call goes and with which key is said in Weir's configuration alone; leave the member out", name)
	}
	return nil
}

func (d *decoder) messages() error {
	if d.s.Peek() != '[' {
		if _, err := d.s.Value(); err != nil {
			return err
		}
		return invalid("messages", "messages must be an array of objects")
	}
	return d.s.Elements(func(i int) error {
		d.r.Shape.Messages++
		if d.s.Peek() != '{' {
			return invalid(fmt.Sprintf("messages[%d]", i), "a message must be an object")
		}
		return d.message(i)
	})
}

func (d *decoder) message(i int) error {
	var names llm.Names
	return d.s.Members(func(name []byte) error {
		if err := names.Add(&d.s, name); err != nil {
			d.path = fmt.Sprintf("messages[%d].%s", i, llm.Brief(name))
			return err
		}
		if string(name) == "content" && d.s.Peek() == '[' {
			return d.blocks(i, 0)
		}
		at, err := d.s.Value()
		if err != nil {
			d.path = fmt.Sprintf("messages[%d].%s", i, llm.Brief(name))
			return err
		}
		v := at.Of(d.r.Body)
		if string(name) == "role" && v[0] != '"' {
			return invalid(fmt.Sprintf("messages[%d].role", i), "role must be a string")
		}
		d.text += len(v)
		return nil
	})
}

// check looks at what must be there.
func (d *decoder) check() error {
	switch {
	case d.r.Model == "":
		return invalid("model", "model is missing: name an alias of this gateway; GET /v1/models lists them")
	case d.r.Op == llm.Chat && !d.limited: // C059
		return invalid("max_tokens", "max_tokens is missing: say how many tokens the answer may have at most")
	case d.r.MessagesAt.IsZero():
		return invalid("messages", "messages is missing")
	case d.r.Shape.Messages == 0:
		return invalid("messages", "messages must hold at least one message")
	}
	return nil
}

func isNull(v []byte) bool { return string(v) == "null" }
