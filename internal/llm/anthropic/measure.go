package anthropic

import (
	"bytes"
	"fmt"

	"weir/internal/llm"
)

// system stands for a message's number where blocks are those of the system prompt.
const system = -1

// deepest is how far blocks are walked that stand in blocks: a tool's result holds blocks, and those hold none.
const deepest = 2

// blocks walks a list of content blocks: text counts by its size, an image by the piece.
func (d *decoder) blocks(i, depth int) error {
	return d.s.Elements(func(j int) error {
		if d.s.Peek() != '{' {
			_, err := d.s.Value()
			return err
		}
		return d.block(i, j, depth)
	})
}

// measure is what the size of a block comes from, which its type, that may stand last, decides.
type measure struct {
	kind   []byte // raw
	source int    // bytes of data that the source holds
	plain  bool   // and they are text
}

func (d *decoder) block(i, j, depth int) error {
	var names llm.Names
	var m measure
	err := d.s.Members(func(name []byte) error {
		err := names.Add(&d.s, name)
		if err == nil {
			err = d.field(&m, name, i, depth)
		}
		if err != nil && d.path != "" { // not yet made exact further in
			d.path = blockPath(i, j, name)
		}
		return err
	})
	if err != nil {
		return err
	}
	switch string(m.kind) {
	case `"image"`:
		d.r.Shape.Images++
	case `"tool_use"`, `"tool_result"`:
		d.r.Calls = true
	}
	if string(m.kind) != `"image"` {
		if m.plain {
			d.text += m.source
		} else {
			d.text += m.source / 8 // of a PDF, about what its pages hold
		}
	}
	return nil
}

func blockPath(i, j int, name []byte) string {
	if i == system {
		return fmt.Sprintf("system[%d].%s", j, llm.Brief(name))
	}
	return fmt.Sprintf("messages[%d].content[%d].%s", i, j, llm.Brief(name))
}

// field walks one member of a block.
func (d *decoder) field(m *measure, name []byte, i, depth int) error {
	switch c := d.s.Peek(); {
	case c == '[' && string(name) == "content" && depth < deepest:
		return d.blocks(i, depth+1)
	case c == '{' && string(name) == "source":
		return d.s.Members(func(name []byte) error { return d.source(m, name) })
	}
	at, err := d.s.Value()
	if err != nil {
		return err
	}
	v := at.Of(d.r.Body)
	switch string(name) {
	case "type":
		m.kind = v
	case "cache_control", "signature":
	default:
		d.text += len(v)
	}
	return nil
}

func (d *decoder) source(m *measure, name []byte) error {
	at, err := d.s.Value()
	if err != nil {
		return err
	}
	v := at.Of(d.r.Body)
	switch string(name) {
	case "data":
		m.source = len(v)
	case "media_type":
		m.plain = bytes.HasPrefix(v, []byte(`"text/`))
	case "content":
		d.text += len(v)
	}
	return nil
}
