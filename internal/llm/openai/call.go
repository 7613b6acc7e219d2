package openai

import (
	"crypto/rand"

	"weir/internal/llm"
)

// call is one tool call of the answer to be.
type call struct {
	function fields
	custom   fields
	extra    fields
}

// tools adds the deltas of tool calls.
func (g *gathered) tools(v []byte) {
	deltas(v, func(e []byte, d *callDelta) {
		k, begins := g.numbers.open(d)
		if begins {
			g.calls = append(g.calls, new(call))
		}
		c := g.calls[k]
		members(e, func(name, v []byte) {
			if new(callDelta).member(name, v) {
				return
			}
			if f := c.extra.get(string(name)); f.raw == nil || !isNull(v) {
				f.last(v)
			}
		})
		joinCall(&c.function, d.function)
		joinCall(&c.custom, d.custom)
	})
}

// joinCall adds a piece of a call's function, or of a custom tool's call: the name comes whole, the rest in pieces.
func joinCall(f *fields, v []byte) {
	s := llm.NewScanner(v, maxDepth)
	if s.Peek() != '{' {
		return
	}
	_ = s.Members(func(name []byte) error {
		at, err := s.Value()
		m := at.Of(v)
		if string(name) != "name" {
			f.get(string(name)).join(m)
		} else if !isBlank(m) {
			f.get("name").last(m)
		}
		return err
	})
}

func (c *call) append(dst, id []byte) []byte {
	if id == nil {
		id = llm.AppendQuoted(nil, "call_"+rand.Text())
	}
	kind := `"function"`
	if len(c.custom) > 0 && len(c.function) == 0 {
		kind = `"custom"`
	}
	if m := c.extra.get("type"); m.raw == nil || isNull(m.raw) {
		m.last([]byte(kind))
	}
	dst = append(append(dst, `{"id":`...), id...)
	dst = c.extra.members(append(dst, ','))
	if len(c.function) > 0 {
		c.function.get("arguments").text()
		dst = append(c.function.object(append(dst, `"function":`...)), ',')
	}
	if len(c.custom) > 0 {
		dst = append(c.custom.object(append(dst, `"custom":`...)), ',')
	}
	return closing(dst, '}')
}

// text makes the value a string: nothing becomes "", and what some servers send as an object is spelled out.
func (m *field) text() {
	if m.kind != '"' {
		raw := m.append(nil)
		if isNull(raw) {
			raw = nil
		}
		m.raw = llm.AppendQuoted(nil, raw)
		m.kind, m.raw = '"', m.raw[1:len(m.raw)-1]
	}
}
