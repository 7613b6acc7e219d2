package openai

import (
	"bytes"
	"crypto/rand"

	"weir/internal/llm"
)

// call is one tool call of the answer to be.
type call struct {
	index    int64 // as the server numbered it, -1 when it did not
	id       []byte
	function fields
	custom   fields
	extra    fields
}

// tools adds the deltas of tool calls.
func (g *gathered) tools(v []byte) {
	s := llm.NewScanner(v, maxDepth)
	if s.Peek() != '[' {
		return
	}
	var list []llm.Span
	_ = s.Elements(func(int) error { // walked before: it cannot fail
		at, err := s.Value()
		list = append(list, at)
		return err
	})
	for i, at := range list {
		g.tool(at.Of(v), int64(i), len(list) > 1)
	}
}

// tool adds one delta of a call, the i-th of its list. One that has neither id nor index is told by its place among many;
// alone it goes on with the call opened last, unless it has a name: that comes only at a call's start (C037).
func (g *gathered) tool(v []byte, i int64, many bool) {
	d := callDelta{index: -1}
	s := llm.NewScanner(v, maxDepth)
	if s.Peek() != '{' {
		return
	}
	_ = s.Members(func(name []byte) error {
		at, err := s.Value()
		d.member(string(name), at.Of(v))
		return err
	})
	if d.index < 0 && d.id == nil && many {
		d.index = i
	}
	c := g.open(&d)
	for _, m := range d.rest {
		if f := c.extra.get(m.name); f.raw == nil || !isNull(m.raw) {
			f.last(m.raw)
		}
	}
	joinCall(&c.function, d.function)
	joinCall(&c.custom, d.custom)
}

// callDelta is one piece of a tool call as it came.
type callDelta struct {
	index                int64 // -1: none
	id, function, custom []byte
	named                bool
	rest                 fields
}

func (d *callDelta) member(name string, v []byte) {
	switch {
	case name == "id":
		if !isBlank(v) {
			d.id = v
		}
	case name == "index":
		d.index = count(v)
	case name == "function" && (v[0] == '{' || isNull(v)):
		d.function = v
		d.named = d.named || hasName(v)
	case name == "custom" && (v[0] == '{' || isNull(v)):
		d.custom = v
		d.named = d.named || hasName(v)
	default:
		d.rest.get(name).last(v)
	}
}

func hasName(v []byte) (yes bool) {
	s := llm.NewScanner(v, maxDepth)
	if s.Peek() != '{' {
		return false
	}
	_ = s.Members(func(name []byte) error {
		at, err := s.Value()
		yes = yes || string(name) == "name" && !isBlank(at.Of(v))
		return err
	})
	return yes
}

// open returns the call that a delta belongs to: by id; else by the server's index; else the one opened last. A new id
// at an index that is taken starts a new call: some servers number every call 0 (C034).
func (g *gathered) open(d *callDelta) *call {
	for i := len(g.calls) - 1; i >= 0; i-- {
		c := g.calls[i]
		switch {
		case d.id != nil && bytes.Equal(c.id, d.id),
			d.id != nil && c.id == nil && c.index == d.index && d.index >= 0,
			d.id == nil && d.index >= 0 && c.index == d.index,
			d.id == nil && d.index < 0 && !d.named:
			if d.id != nil {
				c.id = bytes.Clone(d.id)
			}
			return c
		}
	}
	c := &call{index: d.index, id: bytes.Clone(d.id)}
	g.calls = append(g.calls, c)
	return c
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

func (c *call) append(dst []byte) []byte {
	if c.id == nil {
		c.id = llm.AppendQuoted(nil, "call_"+rand.Text())
	}
	kind := `"function"`
	if len(c.custom) > 0 && len(c.function) == 0 {
		kind = `"custom"`
	}
	if m := c.extra.get("type"); m.raw == nil || isNull(m.raw) {
		m.last([]byte(kind))
	}
	dst = append(append(dst, `{"id":`...), c.id...)
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
