package openai

import (
	"bytes"

	"weir/internal/llm"
)

// numbering tells the calls of one answer apart and numbers them in the order in which they began.
type numbering []numbered

type numbered struct {
	index int64  // as the server numbered it, -1 when it did not
	id    []byte // raw, nil when there was none
}

// open returns the number of the call that a delta belongs to, and whether it begins with it: by id; else by the server's
// index; else the one opened last. A new id at an index that is taken starts a new call: some servers number every call 0
// (C034).
func (n *numbering) open(d *callDelta) (int, bool) {
	list := *n
	for i := len(list) - 1; i >= 0; i-- {
		c := &list[i]
		switch {
		case d.id != nil && bytes.Equal(c.id, d.id),
			d.id != nil && c.id == nil && c.index == d.index && d.index >= 0,
			d.id == nil && d.index >= 0 && c.index == d.index,
			d.id == nil && d.index < 0 && !d.named:
			if d.id != nil && c.id == nil {
				c.id = bytes.Clone(d.id)
			}
			return i, false
		}
	}
	*n = append(list, numbered{d.index, bytes.Clone(d.id)})
	return len(list), true
}

// deltas calls f with each delta of a list of calls. One that has neither id nor index is told by its place among many;
// alone it goes on with the call opened last, unless it has a name: that comes only at a call's start (C037).
func deltas(v []byte, f func(e []byte, d *callDelta)) {
	s := llm.NewScanner(v, maxDepth)
	if s.Peek() != '[' {
		return
	}
	var d callDelta
	many := false
	_ = s.Elements(func(i int) error { // walked before: it cannot fail
		at, err := s.Value()
		if err != nil || v[at.From] != '{' {
			return err
		}
		many = many || i > 0 || more(v[at.To:])
		e := at.Of(v)
		if d = deltaOf(e); d.index < 0 && d.id == nil && many {
			d.index = int64(i)
		}
		f(e, &d)
		return nil
	})
}

// more reports whether another element follows.
func more(rest []byte) bool {
	rest = bytes.TrimLeft(rest, " \t\r\n")
	return len(rest) > 0 && rest[0] == ','
}

// callDelta is one piece of a tool call as it came.
type callDelta struct {
	index                int64 // -1: none; the place in the list where that tells calls apart
	given                int64 // the index as it came
	id, function, custom []byte
	named                bool
}

func deltaOf(v []byte) callDelta {
	d := callDelta{index: -1}
	members(v, func(name, v []byte) { d.member(name, v) })
	d.given = d.index
	return d
}

// member takes a member of the delta and reports whether it is one of those that tell calls apart.
func (d *callDelta) member(name, v []byte) bool {
	object := v[0] == '{' || isNull(v)
	switch {
	case string(name) == "id":
		if !isBlank(v) {
			d.id = v
		}
	case string(name) == "index":
		d.index = count(v)
	case string(name) == "function" && object:
		d.function = v
		d.named = d.named || hasName(v)
	case string(name) == "custom" && object:
		d.custom = v
		d.named = d.named || hasName(v)
	default:
		return false
	}
	return true
}

func hasName(v []byte) (yes bool) {
	members(v, func(name, v []byte) { yes = yes || string(name) == "name" && !isBlank(v) })
	return yes
}
