package openai

import (
	"bytes"
	"errors"

	"weir/internal/llm"
)

// Path returns the path of an operation under a base URL without /v1.
func (Dialect) Path(op llm.Op) string {
	switch op {
	case llm.Chat:
		return "/v1/chat/completions"
	case llm.Completions:
		return "/v1/completions"
	case llm.Embeddings:
		return "/v1/embeddings"
	default:
		return "/v1/rerank"
	}
}

// Edits returns the changes that make r's body what t wants. All else is kept byte for byte.
func (Dialect) Edits(r *llm.Request, t *llm.Target) (*llm.Edits, error) {
	e := new(llm.Edits)
	e.Set(r, "model", t.Quoted)
	if r.Op.Generates() {
		if t.Stream && !r.Stream {
			e.Set(r, "stream", rawTrue)
		}
		if t.Stream && t.Usage && !r.IncludeUsage {
			askUsage(e, r)
		}
		if t.Stream && t.Progress {
			e.Set(r, "return_progress", rawTrue)
		}
		limit(e, r, t.MaxTokens)
		sample(e, r, t.Sampling)
		if err := history(e, r, t); err != nil {
			return nil, err
		}
	}
	if r.Op == llm.Embeddings {
		switch m, ok := r.Member("encoding_format"); {
		case ok && string(m.Value.Of(r.Body)) == "null": // absent is not null: strict servers refuse it (C154)
			e.Remove(r, "encoding_format")
		case ok && t.Base64 == "float":
			e.Set(r, "encoding_format", []byte(`"float"`))
		}
	}
	return e, nil
}

var rawTrue = []byte("true")

// askUsage adds include_usage to the stream options and keeps the others.
func askUsage(e *llm.Edits, r *llm.Request) {
	out := []byte(`{"include_usage":true`)
	if v := r.Value("stream_options"); v != nil {
		s := llm.NewScanner(v, 1<<20)
		_ = s.Members(func(name []byte) error { // decoded before: it cannot fail
			at, err := s.Value()
			if string(name) != "include_usage" {
				out = append(llm.AppendQuoted(append(out, ','), name), ':')
				out = append(out, at.Of(v)...)
			}
			return err
		})
	}
	e.Set(r, "stream_options", append(out, '}'))
}

// limit leaves exactly the one name of the token limit that the backend takes (C157).
func limit(e *llm.Edits, r *llm.Request, name string) {
	if name != "max_tokens" && name != "max_completion_tokens" {
		return
	}
	other := "max_completion_tokens"
	if name == other {
		other = "max_tokens"
	}
	if _, ok := r.Member(other); !ok {
		return
	}
	// Both: the newer name wins, whichever is sent on.
	if v := r.Value("max_completion_tokens"); v != nil && r.Value("max_tokens") != nil {
		if name == "max_tokens" {
			e.Set(r, name, v)
		}
		e.Remove(r, other)
		return
	}
	if _, ok := r.Member(name); ok { // one of the two is null
		if v := r.Value(other); v != nil {
			e.Set(r, name, v)
		}
		e.Remove(r, other)
		return
	}
	e.Rename(r, other, name)
}

func sample(e *llm.Edits, r *llm.Request, list []llm.Sampling) {
	for _, p := range list {
		switch {
		case p.Strip:
			e.Remove(r, p.Name)
		case p.Force != nil:
			e.Set(r, p.Name, p.Force)
		case p.Default != nil && r.Value(p.Name) == nil:
			e.Set(r, p.Name, p.Default)
		}
	}
}

// history mends the messages for backends that refuse null contents or the developer role.
func history(e *llm.Edits, r *llm.Request, t *llm.Target) error {
	if r.Developer && t.Developer == "system" {
		out, err := mergeLeading(r, t.NullContent)
		if err != nil {
			return err
		}
		e.Replace(r.MessagesAt, out)
		return nil
	}
	for i, at := range r.Nulls {
		switch t.NullContent {
		case "empty":
			e.Replace(at, []byte(`""`))
		case "omit":
			e.Replace(r.NullMembers[i], nil)
		}
	}
	return nil
}

// mergeLeading rewrites the messages for templates that know one system turn at the start: developer becomes system, and
// the leading ones are merged in order (C160). All other messages keep their bytes.
func mergeLeading(r *llm.Request, nulls string) ([]byte, error) {
	list, err := messages(r)
	if err != nil {
		return nil, err
	}
	out := []byte{'['}
	add := func(raw []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, raw...)
	}
	n := 0
	for n < len(list) && list[n].system() {
		n++
	}
	if n > 0 {
		add(merged(list[:n]))
	}
	for _, m := range list[n:] {
		add(m.raw(r.Body, nulls))
	}
	return append(out, ']'), nil
}

// message is one message by its places in the body.
type message struct {
	at, role, content llm.Span
	body              []byte
}

func (m *message) system() bool {
	role := string(m.role.Of(m.body))
	return role == `"system"` || role == `"developer"`
}

// raw returns the message's bytes with developer as system and a null content as the backend wants it.
func (m *message) raw(body []byte, nulls string) []byte {
	var edits []llm.Edit
	if string(m.role.Of(body)) == `"developer"` {
		edits = append(edits, llm.Edit{At: m.role, With: []byte(`"system"`)})
	}
	if !m.content.IsZero() && string(m.content.Of(body)) == "null" && nulls != "keep" && nulls != "null" && nulls != "" {
		edits = append(edits, llm.Edit{At: m.content, With: []byte(`""`)})
		if m.content.From < m.role.From {
			edits[0], edits[len(edits)-1] = edits[len(edits)-1], edits[0]
		}
	}
	for i := range edits {
		edits[i].At.From -= m.at.From
		edits[i].At.To -= m.at.From
	}
	return llm.Splice(nil, m.at.Of(body), edits)
}

// merged joins leading system turns into one: as text where all are text, else as a list of parts.
func merged(list []message) []byte {
	var text []byte
	parts := []byte{'['}
	plain := true
	for _, m := range list {
		v := m.content.Of(m.body)
		switch {
		case m.content.IsZero() || string(v) == "null":
		case v[0] == '"':
			t := llm.Unquote(v)
			if len(text) > 0 && len(t) > 0 {
				text = append(text, "\n\n"...)
			}
			text = append(text, t...)
			parts = append(llm.AppendQuoted(append(parts, `{"type":"text","text":`...), t), "},"...)
		default:
			plain = false
			if inner := bytes.TrimSpace(v[1 : len(v)-1]); len(inner) > 0 {
				parts = append(append(parts, inner...), ',')
			}
		}
	}
	out := []byte(`{"role":"system","content":`)
	if plain {
		return append(llm.AppendQuoted(out, text), '}')
	}
	return append(append(out, bytes.TrimSuffix(parts, []byte{','})...), "]}"...)
}

func messages(r *llm.Request) ([]message, error) {
	v := r.MessagesAt.Of(r.Body)
	off := r.MessagesAt.From
	s := llm.NewScanner(v, 1<<20)
	var list []message
	shift := func(p llm.Span) llm.Span { return llm.Span{From: p.From + off, To: p.To + off} }
	err := s.Elements(func(int) error {
		m := message{body: r.Body}
		from := s.Offset()
		err := s.Members(func(name []byte) error {
			at, err := s.Value()
			switch string(name) {
			case "role":
				m.role = shift(at)
			case "content":
				m.content = shift(at)
			}
			return err
		})
		m.at = shift(llm.Span{From: from, To: s.Offset()})
		list = append(list, m)
		return err
	})
	if err != nil {
		return nil, errors.Join(errors.New("openai: messages changed under the scan"), err)
	}
	return list, nil
}
