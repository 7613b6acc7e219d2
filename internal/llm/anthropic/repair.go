package anthropic

import (
	"bytes"

	"weir/internal/llm"
)

// repair looks at the history of calls once and returns what must be changed in it. A history that cannot be read is
// left as it is: the server says what is wrong with it.
func repair(r *llm.Request) *llm.Repair {
	c, err := converse(r, true)
	if err != nil {
		return new(llm.Repair)
	}
	was := make([]llm.Span, 0, len(c.Turns))
	for i := range c.Turns {
		if c.Turns[i].N >= 0 {
			was = append(was, c.Turns[i].At)
		}
	}
	out := &llm.Repair{Notes: c.Mend()}
	if len(out.Notes) > 0 {
		out.Edits = rewritten(r, c, was)
	}
	return out
}

// rewritten returns the edits that make the messages of r, which stood at was, those of c.
func rewritten(r *llm.Request, c *llm.Conversation, was []llm.Span) []llm.Edit {
	open := r.MessagesAt.From + 1
	gap := llm.Span{From: open, To: open} // from the last turn that is still there to the next
	var list []llm.Edit
	var added []byte
	next := 0 // of was
	end := func(to int, last bool) {
		gap.To = to
		first := gap.From == open
		if !first && (len(added) > 0 || !last) {
			added = append([]byte{','}, added...)
		}
		if !last && len(added) > 0 && added[len(added)-1] != ',' {
			added = append(added, ',')
		}
		list = append(list, llm.Edit{At: gap, With: bytes.Clone(added)})
	}
	changed := false
	for i := range c.Turns {
		t := &c.Turns[i]
		switch {
		case t.N < 0:
			continue
		case t.At.IsZero():
			if len(added) > 0 {
				added = append(added, ',')
			}
			added, changed = appendMended(added, r.Body, t), true
			continue
		}
		for was[next] != t.At {
			next, changed = next+1, true
		}
		next++
		if changed {
			end(t.At.From, false)
		}
		if t.Mended {
			list = append(list, llm.Edit{At: t.At, With: appendMended(nil, r.Body, t)})
		}
		gap.From, added, changed = t.At.To, added[:0], false
	}
	if changed || next < len(was) {
		end(r.MessagesAt.To-1, true)
	}
	return list
}

// appendMended appends a turn that was mended. Blocks keep their bytes but for what was mended in them.
func appendMended(dst, body []byte, t *llm.Turn) []byte {
	dst = append(append(dst, `{"role":"`...), roleOf(t.Role)...)
	dst = append(dst, `","content":[`...)
	for i := range t.Parts {
		if i > 0 {
			dst = append(dst, ',')
		}
		p := &t.Parts[i]
		raw := p.At.Of(body)
		if p.At.IsZero() || len(raw) == 0 || raw[0] != '{' {
			dst = exact.part(dst, p)
			continue
		}
		switch p.Kind {
		case llm.PartCall:
			dst = patched(dst, raw, patch{"id", quoted(p.ID)}, patch{"name", quoted(p.Name)}, patch{"input", p.Input.AppendObject(nil)})
		case llm.PartResult:
			dst = patched(dst, raw, patch{"tool_use_id", quoted(p.ID)})
		default:
			dst = append(dst, raw...)
		}
	}
	return append(dst, "]}"...)
}

// patch is a member and the raw value that it is to have.
type patch struct {
	name string
	raw  []byte
}

// patched appends the object raw with its members as the patches say.
func patched(dst, raw []byte, patches ...patch) []byte {
	dst = append(dst, '{')
	open := len(dst)
	put := func(name, v []byte) {
		if len(dst) > open {
			dst = append(dst, ',')
		}
		dst = append(append(llm.AppendQuoted(dst, name), ':'), v...)
	}
	each(raw, func(name []byte, at llm.Span) {
		v := at.Of(raw)
		for i := range patches {
			if patches[i].name == string(name) {
				v, patches[i].name = patches[i].raw, ""
			}
		}
		put(name, v)
	})
	for _, p := range patches {
		if p.name != "" {
			put([]byte(p.name), p.raw)
		}
	}
	return append(dst, '}')
}

func roleOf(r llm.Role) string {
	switch r {
	case llm.User:
		return "user"
	case llm.Assistant:
		return "assistant"
	}
	return "system"
}
