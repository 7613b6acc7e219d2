package anthropic

import (
	"bytes"
	"fmt"

	"weir/internal/llm"
)

// midSystem is the type of the block that holds the system's words within another's turn.
const midSystem = "mid_conv_system"

// block is a content block by its members, each nil where it is absent or null.
type block struct {
	kind, text, thinking, signature, data []byte
	id, name, input, useID, failed        []byte
	cache, title, context, citations      []byte
	parts                                 []llm.Part // of its content
	source                                source
	at                                    llm.Span
}

// source is where an image or a document comes from.
type source struct {
	kind, media, data, url, file []byte
	parts                        []llm.Part
}

// content reads the value that a message, a result or the system prompt holds: a string or blocks. i is the message's number.
func (rd *reader) content(i, depth int) ([]llm.Part, error) {
	if rd.s.Peek() != '[' {
		v, at, err := rd.value()
		if err != nil || v == nil {
			return nil, err
		}
		if v[0] != '"' {
			return nil, invalid(where(i), "%s must be a string or a list of blocks", where(i))
		}
		return []llm.Part{{Kind: llm.PartText, Text: llm.Inside(v), At: at}}, nil
	}
	var parts []llm.Part
	more, err := rd.s.Open('[')
	for j := 0; more && err == nil; j++ {
		p, err := rd.part(i, j, depth)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
		if more, err = rd.s.More('['); err != nil {
			return nil, err
		}
	}
	return parts, err
}

func where(i int) string {
	if i == system {
		return "system"
	}
	return fmt.Sprintf("messages[%d].content", i)
}

// part reads one block.
func (rd *reader) part(i, j, depth int) (llm.Part, error) {
	path := func() string { return fmt.Sprintf("%s[%d]", where(i), j) }
	if rd.s.Peek() != '{' || depth > deepest {
		v, at, err := rd.value()
		if err == nil && !rd.asIs && depth <= deepest {
			err = invalid(path(), "a block must be an object")
		}
		return llm.Part{Kind: llm.PartOther, Raw: v, At: at}, err
	}
	var b block
	from := rd.s.Offset()
	more, err := rd.s.Open('{')
	for ; more && err == nil; more, err = rd.s.More('{') {
		name, err := rd.s.Name()
		if err != nil {
			return llm.Part{}, err
		}
		if err := rd.field(&b, name, i, depth); err != nil {
			return llm.Part{}, err
		}
	}
	if err != nil {
		return llm.Part{}, err
	}
	b.at = rd.here(from)
	p := rd.neutral(&b)
	if fault := b.fault(&p); fault != "" && !rd.asIs {
		return p, invalid(path(), "%s: %s", path(), fault)
	}
	return p, nil
}

// field reads one member of a block.
func (rd *reader) field(b *block, name []byte, i, depth int) (err error) {
	var dst *[]byte
	switch string(name) {
	case "content":
		if c := rd.s.Peek(); c == '[' || c == '"' {
			b.parts, err = rd.content(i, depth+1)
			return err
		}
	case "source":
		if rd.s.Peek() == '{' {
			return rd.from(&b.source, i, depth)
		}
	case "type":
		dst = &b.kind
	case "text":
		dst = &b.text
	case "thinking":
		dst = &b.thinking
	case "signature":
		dst = &b.signature
	case "data":
		dst = &b.data
	case "id":
		dst = &b.id
	case "name":
		dst = &b.name
	case "input":
		dst = &b.input
	case "tool_use_id":
		dst = &b.useID
	case "is_error":
		dst = &b.failed
	case "cache_control":
		dst = &b.cache
	case "title":
		dst = &b.title
	case "context":
		dst = &b.context
	case "citations":
		dst = &b.citations
	}
	v, _, err := rd.value()
	if dst != nil {
		*dst = v
	}
	return err
}

// from reads a source.
func (rd *reader) from(s *source, i, depth int) error {
	more, err := rd.s.Open('{')
	for ; more && err == nil; more, err = rd.s.More('{') {
		name, err := rd.s.Name()
		if err != nil {
			return err
		}
		if c := rd.s.Peek(); string(name) == "content" && (c == '[' || c == '"') {
			if s.parts, err = rd.content(i, depth+1); err != nil {
				return err
			}
			continue
		}
		v, _, err := rd.value()
		if err != nil {
			return err
		}
		switch string(name) {
		case "type":
			s.kind = v
		case "media_type":
			s.media = v
		case "data":
			s.data = v
		case "url":
			s.url = v
		case "file_id":
			s.file = v
		}
	}
	return err
}

// neutral returns the block in the neutral form; what has none is kept whole.
func (rd *reader) neutral(b *block) llm.Part {
	p := llm.Part{At: b.at, Cache: object(b.cache)}
	kind := string(llm.Unquote(b.kind))
	switch kind {
	case "text":
		p.Kind, p.Text = llm.PartText, llm.Inside(b.text)
		rd.lose(len(b.citations) > len("[]"), "messages[].content[].citations")
	case "thinking":
		p.Kind, p.Text, p.Signature = llm.PartThinking, llm.Inside(b.thinking), llm.Inside(b.signature)
	case "redacted_thinking":
		p.Kind, p.Redacted = llm.PartThinking, llm.Inside(b.data)
	case "image":
		p.Kind = llm.PartImage
		b.source.fill(&p)
	case "document":
		p.Kind, p.Name = llm.PartDocument, llm.Inside(b.title)
		b.source.fill(&p)
		rd.lose(b.context != nil, "messages[].content[].context")
		rd.lose(string(member(b.citations, "enabled")) == "true", "messages[].content[].citations")
	case "search_result":
		p.Kind, p.Name, p.Text = llm.PartDocument, llm.Inside(b.title), joined(b.parts)
	case "tool_use":
		p.Kind, p.ID, p.Name, p.Input = llm.PartCall, llm.Inside(b.id), llm.Inside(b.name), llm.Input{Object: b.input}
	case "tool_result":
		p.Kind, p.ID, p.Parts, p.Failed = llm.PartResult, llm.Inside(b.useID), b.parts, string(b.failed) == "true"
	default:
		p.Kind, p.Type, p.Raw = llm.PartOther, kind, b.at.Of(rd.body)
		if kind == midSystem {
			p.Parts = b.parts
		}
	}
	return p
}

func (rd *reader) lose(yes bool, path string) {
	if yes && !rd.asIs {
		rd.c.Lose(path)
	}
}

// fill takes an image or a document from its source.
func (s *source) fill(p *llm.Part) {
	p.Media, p.Data, p.URL, p.FileID = llm.Inside(s.media), llm.Inside(s.data), llm.Inside(s.url), llm.Inside(s.file)
	switch string(s.kind) {
	case `"text"`:
		p.Text, p.Data = p.Data, nil
	case `"content"`:
		p.Text = joined(s.parts)
	}
}

// joined returns the texts of parts with blank lines between them.
func joined(parts []llm.Part) llm.Text {
	var out llm.Text
	for i := range parts {
		if parts[i].Kind != llm.PartText || len(parts[i].Text) == 0 {
			continue
		}
		if out == nil {
			out = bytes.Clone(parts[i].Text)
			continue
		}
		out = append(append(out, `\n\n`...), parts[i].Text...)
	}
	return out
}

// fault says what a block lacks, so that no server is sent half of one.
func (b *block) fault(p *llm.Part) string {
	switch {
	case len(b.kind) == 0 || b.kind[0] != '"':
		return "a block must have a type"
	case p.Kind == llm.PartText && p.Text == nil:
		return "text must be a string"
	case (p.Kind == llm.PartImage || p.Kind == llm.PartDocument) && p.Data == nil && p.URL == nil && p.FileID == nil && p.Text == nil:
		return "source must hold data, a url, a file_id or text"
	}
	return ""
}

// object returns raw where it is a JSON object.
func object(raw []byte) llm.Raw {
	if len(raw) > 0 && raw[0] == '{' {
		return raw
	}
	return nil
}
