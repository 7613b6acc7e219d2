// Package openai speaks OpenAI's Chat Completions, Completions and Embeddings and the rerank shape of Jina and vLLM:
// it reads requests, writes them for a backend, follows streams and writes errors.
package openai

import (
	"bytes"
	"fmt"

	"weir/internal/llm"
)

// Dialect is the openai dialect. Its zero value is ready and safe for concurrent use.
type Dialect struct{}

// Name returns "openai".
func (Dialect) Name() string { return "openai" }

// Decode scans body once, strictly and whole, and returns what Weir needs to know of it. Errors are of kind Invalid and
// name the member at fault. The request keeps body and shares its bytes.
func (Dialect) Decode(op llm.Op, body []byte, maxDepth int) (*llm.Request, error) {
	d := decoder{s: llm.NewScanner(body, maxDepth), r: &llm.Request{
		Op: op, Dialect: "openai", Body: body, Choices: 1, Members: make([]llm.Member, 0, 16),
		Shape: llm.Shape{Bytes: len(body)},
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
	if d.prompts > 1 {
		r.Choices = min(r.Choices, 1<<31) * d.prompts
	}
	if op == llm.Chat {
		r.Speaks = Dialect{}
	}
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
	s     llm.Scanner
	r     *llm.Request
	names llm.Names
	path  string // where the scan stands, for the error
	text  int    // bytes that become prompt tokens

	prompts int64 // each of which is answered
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
	"model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n", "best_of", "echo", "audio", "tools",
	"prompt", "input", "query", "documents", "encoding_format", "api_base", "base_url", "api_key", "extra_headers", "return_progress",
}

// member walks the value of one outermost member and returns its place.
func (d *decoder) member(name []byte) (llm.Span, error) {
	from := d.s.Offset()
	var err error
	switch string(name) {
	case "messages":
		if d.r.Op == llm.Chat {
			err = d.messages()
			at := llm.Span{From: from, To: d.s.Offset()}
			d.r.MessagesAt = at
			return at, err
		}
	case "tools":
		if d.s.Peek() == '[' {
			err = d.s.Elements(func(int) error {
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
	return at, d.scalar(name, at.Of(d.r.Body))
}

// scalar reads the members that policy needs.
func (d *decoder) scalar(name, v []byte) error {
	null := string(v) == "null"
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
	case "stream_options":
		if v[0] != '{' && !null {
			return invalid("stream_options", "stream_options must be an object")
		}
		u, err := flag(v, "include_usage")
		if err != nil {
			return invalid("stream_options", "stream_options names a member twice")
		}
		d.r.IncludeUsage = u
	case "max_tokens", "max_completion_tokens":
		return d.number(name, v, null)
	case "n", "best_of":
		n, ok := llm.Int(v)
		if !null && (!ok || n < 1) {
			return invalid(string(name), "%s must be a whole number of at least 1", name)
		}
		if !null {
			d.r.Choices = max(d.r.Choices, n)
			d.r.Whole = d.r.Whole || n > 1
		}
	case "echo":
		d.r.Whole = d.r.Whole || string(v) == "true"
	case "audio":
		d.r.Whole = d.r.Whole || !null
	case "prompt", "input", "query", "documents":
		d.text += len(v)
		if string(name) == "prompt" {
			d.prompts = prompts(v)
		}
	case "messages":
		d.text += len(v)
	case "api_base", "base_url", "api_key", "extra_headers":
		return invalid(string(name), "%s is refused: where a call goes and with which key is said in Weir's configuration alone; leave the member out", name)
	case "encoding_format":
		if s := string(v); d.r.Op == llm.Embeddings && !null && s != `"float"` && s != `"base64"` {
			return invalid("encoding_format", "encoding_format must be \"float\" or \"base64\"")
		}
	}
	return nil
}

// prompts counts the prompts of a list: of texts, or of lists of tokens. One list of tokens is one prompt.
func prompts(v []byte) (n int64) {
	s := llm.NewScanner(v, 1<<20) // it was scanned before
	if s.Peek() != '[' {
		return 1
	}
	_ = s.Elements(func(int) error {
		if c := s.Peek(); c == '"' || c == '[' {
			n++
		}
		_, err := s.Value()
		return err
	})
	return max(n, 1)
}

func (d *decoder) number(name, v []byte, null bool) error {
	n, ok := llm.Int(v)
	if ok && n == -1 { // "no limit" to llama.cpp and LM Studio
		return nil
	}
	if !null && (!ok || n < 0) {
		return invalid(string(name), "%s must be a whole number of at least 0", name)
	}
	// Where both names are given the newer one wins (C157).
	if !null && (d.r.Shape.MaxTokens == 0 || string(name) == "max_completion_tokens") {
		d.r.Shape.MaxTokens = n
	}
	return nil
}

// flag reports whether the object v has the member name with the value true.
func flag(v []byte, name string) (on bool, err error) {
	if v[0] != '{' {
		return false, nil
	}
	s := llm.NewScanner(v, 1<<20)
	var names llm.Names
	err = s.Members(func(m []byte) error {
		if err := names.Add(&s, m); err != nil {
			return err
		}
		at, err := s.Value()
		if err == nil && string(m) == name {
			on = string(at.Of(v)) == "true"
		}
		return err
	})
	return on, err
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
			return d.parts(i)
		}
		from := d.s.NameAt()
		at, err := d.s.Value()
		if err != nil {
			d.path = fmt.Sprintf("messages[%d].%s", i, llm.Brief(name))
			return err
		}
		switch v := at.Of(d.r.Body); string(name) {
		case "role":
			if v[0] != '"' {
				return invalid(fmt.Sprintf("messages[%d].role", i), "role must be a string")
			}
			d.r.Developer = d.r.Developer || string(v) == `"developer"`
			d.r.Calls = d.r.Calls || string(v) == `"tool"` || string(v) == `"function"`
		case "content":
			if string(v) == "null" {
				d.null(from, at)
			} else {
				d.text += len(v) - 2
			}
		case "tool_calls", "function_call":
			d.r.Calls = d.r.Calls || !isNull(v)
			d.text += len(v)
		default:
			d.text += len(v)
		}
		return nil
	})
}

// null notes a "content": null, and the whole member with one comma beside it.
func (d *decoder) null(from int, at llm.Span) {
	d.r.Nulls = append(d.r.Nulls, at)
	b := d.r.Body
	m := llm.Span{From: from, To: at.To}
	i := m.To
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	if i < len(b) && b[i] == ',' {
		m.To = i + 1
	} else {
		for i = m.From - 1; i > 0 && b[i] != ',' && b[i] != '{'; i-- {
		}
		if b[i] == ',' {
			m.From = i
		}
	}
	d.r.NullMembers = append(d.r.NullMembers, m)
}

// parts walks a message's content parts: text counts by its size, an image by the piece.
func (d *decoder) parts(i int) error {
	return d.s.Elements(func(j int) error {
		if d.s.Peek() != '{' {
			_, err := d.s.Value()
			return err
		}
		return d.s.Members(func(name []byte) error {
			at, err := d.s.Value()
			if err != nil {
				d.path = fmt.Sprintf("messages[%d].content[%d].%s", i, j, llm.Brief(name))
				return err
			}
			switch string(name) {
			case "text":
				d.text += at.To - at.From - 2
			case "image_url":
				d.r.Shape.Images++
			}
			return nil
		})
	})
}

func (d *decoder) check() error {
	if d.r.Model == "" {
		return invalid("model", "model is missing: name an alias of this gateway; GET /v1/models lists them")
	}
	switch d.r.Op {
	case llm.Chat:
		if d.r.MessagesAt.IsZero() {
			return invalid("messages", "messages is missing")
		}
		if d.r.Shape.Messages == 0 {
			return invalid("messages", "messages must hold at least one message")
		}
	case llm.Completions:
		return d.present("prompt")
	case llm.Embeddings:
		return d.present("input")
	case llm.Rerank:
		return d.present("query", "documents")
	}
	return nil
}

// present checks that each of the outermost members is there and not null.
func (d *decoder) present(names ...string) error {
	for _, name := range names {
		if d.r.Value(name) == nil {
			return invalid(name, "%s is missing", name)
		}
	}
	return nil
}
