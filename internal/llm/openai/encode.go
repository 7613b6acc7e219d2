package openai

import (
	"bytes"
	"errors"
	"strings"

	"weir/internal/llm"
)

// Path returns the path of an operation under a base URL without /v1, empty for one that the API does not have.
func (Dialect) Path(op llm.Op) string {
	switch op {
	case llm.Chat:
		return "/v1/chat/completions"
	case llm.Completions:
		return "/v1/completions"
	case llm.Embeddings:
		return "/v1/embeddings"
	case llm.Rerank:
		return "/v1/rerank"
	}
	return ""
}

// Edits returns the changes that make r's body what t wants. All else is kept byte for byte.
func (Dialect) Edits(r *llm.Request, t *llm.Target) (*llm.Edits, error) {
	e := new(llm.Edits)
	e.Set(r, "model", t.Quoted)
	if r.Op.Generates() {
		if t.Stream && !r.Stream {
			e.Set(r, "stream", rawTrue)
		}
		if t.Stream && t.Usage && !r.IncludeUsage && !(t.Timings && r.Stream) {
			askUsage(e, r)
		}
		if t.Stream && t.Progress {
			e.Set(r, "return_progress", rawTrue)
		}
		sample(e, r, t)
		if r.Op == llm.Chat && r.Calls {
			repair(e, r)
		}
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

const (
	oldLimit = "max_tokens"
	newLimit = "max_completion_tokens"
)

// sample defaults, forces and strips sampling parameters. The token limit is one parameter with two names.
func sample(e *llm.Edits, r *llm.Request, t *llm.Target) {
	var ruled *llm.Sampling
	for i := range t.Sampling {
		p := &t.Sampling[i]
		if m, ok := inOtherCase(r, p.Name); ok {
			e.Remove(r, m) // some servers would read it in place of the pool's (S17)
		}
		switch {
		case p.Name == oldLimit || p.Name == newLimit:
			ruled = p
		case p.Strip:
			e.Remove(r, p.Name)
		case p.Force != nil:
			e.Set(r, p.Name, p.Force)
		case p.Default != nil && r.Value(p.Name) == nil:
			e.Set(r, p.Name, p.Default)
		}
	}
	limit(e, r, t.MaxTokens, ruled)
}

// inOtherCase finds a member that differs from name in case only.
func inOtherCase(r *llm.Request, name string) (string, bool) {
	for _, m := range r.Members {
		if string(m.Name) != name && strings.EqualFold(string(m.Name), name) {
			return string(m.Name), true
		}
	}
	return "", false
}

// limit leaves exactly the one name of the token limit that the backend takes (C157), with the value that the client or
// the pool's rule says. A backend without a name of its own gets what the client sent.
func limit(e *llm.Edits, r *llm.Request, name string, p *llm.Sampling) {
	v := r.Value(newLimit) // both: the newer name wins, whichever is sent on
	if v == nil {
		v = r.Value(oldLimit)
	}
	if name != oldLimit && name != newLimit {
		if p == nil {
			return
		}
		if name = p.Name; r.Value(newLimit) != nil {
			name = newLimit
		} else if v != nil {
			name = oldLimit
		}
	}
	other := newLimit
	if name == other {
		other = oldLimit
	}
	sent := r.Value(other)
	switch {
	case p == nil:
	case p.Strip:
		e.Remove(r, oldLimit)
		e.Remove(r, newLimit)
		return
	case p.Force != nil:
		v = p.Force
	case v == nil:
		v = p.Default
	}
	if _, ok := r.Member(name); !ok && sent != nil && bytes.Equal(v, sent) {
		e.Rename(r, other, name)
		return
	}
	e.Remove(r, other)
	if v != nil {
		e.Set(r, name, v)
	}
}

// history mends the messages for backends that refuse null contents or the developer role.
func history(e *llm.Edits, r *llm.Request, t *llm.Target) error {
	merged := 0 // up to here the messages were rewritten
	if r.Developer && t.Developer == "system" {
		list, err := messages(r)
		if err != nil {
			return err
		}
		merged = mergeLeading(e, list)
	}
	var mended []llm.Edit
	if r.Repair != nil {
		mended = r.Repair.Edits
	}
	for i, at := range r.Nulls {
		for len(mended) > 0 && mended[0].At.To <= at.From {
			mended = mended[1:]
		}
		switch {
		case at.From < merged:
		case len(mended) > 0 && mended[0].At.From <= at.From: // the whole message was replaced
		case t.NullContent == "empty":
			e.Replace(at, []byte(`""`))
		case t.NullContent == "omit":
			e.Replace(r.NullMembers[i], nil)
		}
	}
	return nil
}

// mergeLeading is for templates that know one system turn at the start: developer becomes system, and the leading ones
// are merged in order (C160). All other messages keep their bytes. It returns the end of what it merged.
func mergeLeading(e *llm.Edits, list []message) int {
	n, end := 0, 0
	for n < len(list) && list[n].system() {
		n++
	}
	if n > 1 {
		end = list[n-1].at.To
		e.Replace(llm.Span{From: list[0].at.From, To: end}, merged(list[:n]))
		list = list[n:]
	}
	for _, m := range list {
		if string(m.role.Of(m.body)) == `"developer"` {
			e.Replace(m.role, []byte(`"system"`))
		}
	}
	return end
}

// message is one message by its places in the body.
type message struct {
	at, role, content llm.Span
	body              []byte
}

// system reports a system turn whose content can be joined with another's.
func (m *message) system() bool {
	if role := string(m.role.Of(m.body)); role != `"system"` && role != `"developer"` {
		return false
	}
	v := m.content.Of(m.body)
	return m.content.IsZero() || v[0] == '"' || v[0] == '[' || isNull(v)
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
