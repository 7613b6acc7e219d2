package anthropic

import (
	"bytes"
	"strings"

	"weir/internal/llm"
)

// Path returns the path of an operation under a base URL without /v1, empty where the dialect has none for it.
func (Dialect) Path(op llm.Op) string {
	switch op {
	case llm.Chat:
		return "/v1/messages"
	case llm.Count:
		return "/v1/messages/count_tokens"
	}
	return ""
}

// Edits returns the changes that make r's body what t wants. All else is kept byte for byte.
func (Dialect) Edits(r *llm.Request, t *llm.Target) (*llm.Edits, error) {
	e := new(llm.Edits)
	e.Set(r, "model", t.Quoted)
	if t.Attribution {
		attribution(e, r)
	}
	if r.Calls {
		if r.Repair == nil {
			r.Repair = repair(r)
		}
		for _, d := range r.Repair.Edits {
			e.Replace(d.At, d.With)
		}
	}
	if r.Op != llm.Chat {
		return e, nil
	}
	if t.Stream && !r.Stream {
		e.Set(r, "stream", rawTrue)
	}
	sample(e, r, t)
	return e, nil
}

var rawTrue, rawFalse = []byte("true"), []byte("false")

// limit is the member that limits the answer; other dialects' names for it are taken in a pool's rules.
const limit = "max_tokens"

var limits = []string{limit, "max_completion_tokens", "max_output_tokens"}

// defaultLimit is the max_tokens that a backend is sent where nobody set one: Messages cannot do without. It is what the
// present models all allow, and long enough that an agent's answer is not cut.
const defaultLimit = "32000"

// sample defaults, forces and strips sampling parameters.
func sample(e *llm.Edits, r *llm.Request, t *llm.Target) {
	for i := range t.Sampling {
		p := &t.Sampling[i]
		name := p.Name
		for _, l := range limits {
			if name == l {
				name = limit
			}
		}
		if m, ok := inOtherCase(r, name); ok {
			e.Remove(r, m) // some servers would read it in place of the pool's (S17)
		}
		switch {
		case p.Strip && name == limit:
			e.Set(r, name, []byte(defaultLimit)) // it cannot be left out
		case p.Strip:
			e.Remove(r, name)
		case p.Force != nil:
			e.Set(r, name, p.Force)
		case p.Default != nil && r.Value(name) == nil:
			e.Set(r, name, p.Default)
		}
	}
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

// attribution leaves out the line at the head of the system prompt that differs from version to version.
func attribution(e *llm.Edits, r *llm.Request) {
	m, ok := r.Member("system")
	if !ok {
		return
	}
	v := m.Value.Of(r.Body)
	if t := llm.Inside(v); llm.IsAttribution(t) {
		if rest := unattributed(t); len(rest) > 0 {
			e.Replace(m.Value, quoted(rest))
		} else {
			e.Remove(r, "system")
		}
		return
	}
	var list []llm.Span
	elements(v, func(_ int, at llm.Span) { list = append(list, at) })
	if len(list) == 0 {
		return
	}
	first := list[0].Of(v)
	var text llm.Span
	each(first, func(name []byte, at llm.Span) {
		if string(name) == "text" {
			text = at
		}
	})
	t := llm.Inside(text.Of(first))
	if !llm.IsAttribution(t) {
		return
	}
	from := m.Value.From + list[0].From
	switch rest := unattributed(t); {
	case len(rest) > 0:
		e.Replace(shift(text, from), quoted(rest))
	case len(list) > 1:
		e.Replace(llm.Span{From: from, To: m.Value.From + list[1].From}, nil)
	default:
		e.Remove(r, "system")
	}
}

// unattributed returns what follows the attribution line in a text that begins with it.
func unattributed(t llm.Text) llm.Text {
	const newline = `\n`
	_, rest, _ := bytes.Cut(t, []byte(newline))
	for bytes.HasPrefix(rest, []byte(newline)) {
		rest = rest[len(newline):]
	}
	return rest
}

func quoted(t llm.Text) []byte { return append(append([]byte{'"'}, t...), '"') }
