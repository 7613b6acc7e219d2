package openai

import (
	"bytes"
	"cmp"
	"slices"

	"weir/internal/llm"
)

// repair adds what mends the history to e. It is found out once for all attempts. Where nothing is wrong not a byte
// changes.
func repair(e *llm.Edits, r *llm.Request) {
	if r.Repair == nil || len(r.Repair.Notes) > 0 && r.Repair.Edits == nil { // a translation leaves its notes alone
		r.Repair = mended(r)
	}
	for _, d := range r.Repair.Edits {
		e.Replace(d.At, d.With)
	}
}

// mended looks for what must be mended in r's messages. Those that are not read as a conversation stay as they are.
func mended(r *llm.Request) *llm.Repair {
	rd := reader{c: new(llm.Conversation), body: r.Body}
	if err := rd.turns(r); err != nil {
		return new(llm.Repair)
	}
	before := rd.c.Turns // Mend lists the turns anew where it adds or moves some
	places := make([]llm.Span, len(before))
	for i := range before {
		places[i] = before[i].At
	}
	m := mending{body: r.Body}
	notes := rd.c.Mend()
	if notes == nil {
		return new(llm.Repair)
	}
	m.messages(rd.c.Turns, places)
	if len(m.edits) == 0 {
		return new(llm.Repair)
	}
	// Where one edit inserts and another replaces at the same place, the insertion comes first.
	slices.SortStableFunc(m.edits, func(a, b llm.Edit) int {
		return cmp.Or(cmp.Compare(a.At.From, b.At.From), cmp.Compare(a.At.To, b.At.To))
	})
	return &llm.Repair{Edits: m.edits, Notes: notes}
}

// mending gathers the edits of one body.
type mending struct {
	body  []byte
	edits []llm.Edit
}

func (m *mending) replace(at llm.Span, with []byte) {
	m.edits = append(m.edits, llm.Edit{At: at, With: with})
}

// messages writes the changed turns in place of the messages at places.
func (m *mending) messages(turns []llm.Turn, places []llm.Span) {
	last := llm.Span{} // the message that stood last
	for i := range turns {
		t := &turns[i]
		if t.At.IsZero() {
			if out := retold(t); out != nil {
				m.replace(llm.Span{From: last.To, To: last.To}, append([]byte{','}, out...))
			}
			continue
		}
		for places[0] != t.At {
			m.remove(places[0])
			places = places[1:]
		}
		last, places = places[0], places[1:]
		if t.Mended {
			m.change(t)
		}
	}
	for _, at := range places {
		m.remove(at)
	}
}

// remove takes a message out with the comma before it: it is never the first, as calls stood before it.
func (m *mending) remove(at llm.Span) {
	at.From = bytes.LastIndexByte(m.body[:at.From], ',')
	m.replace(at, nil)
}

// change mends one message: the members of its calls, the id of its result, or all of it.
func (m *mending) change(t *llm.Turn) {
	if t.Role == llm.User && (len(t.Parts) != 1 || t.Parts[0].Kind != llm.PartResult) {
		if out := retold(t); out != nil {
			m.replace(t.At, out)
		}
		return
	}
	for k := range t.Parts {
		switch p := &t.Parts[k]; p.Kind {
		case llm.PartResult:
			m.set(t.At, "tool_call_id", quoted(nil, p.ID))
		case llm.PartCall:
			m.call(p)
		}
	}
}

// call mends the members of a call that changed and keeps the others.
func (m *mending) call(p *llm.Part) {
	v := p.At.Of(m.body)
	if isEmpty(v) {
		m.replace(p.At, appendCall(nil, p, true))
		return
	}
	at := p.At // of the object that holds name and arguments
	if !bytes.HasPrefix(p.ID, []byte(oldCall)) {
		m.set(p.At, "id", quoted(nil, p.ID))
		at = llm.Span{}
		members(v, func(name, in []byte) {
			if n := string(name); (n == "function" || n == "custom") && in[0] == '{' {
				at.From = p.At.From + cap(v) - cap(in)
				at.To = at.From + len(in)
			}
		})
	}
	input, member := append(p.Input.AppendSpelt([]byte{'"'}), '"'), "arguments"
	if p.Custom {
		input, member = quoted(nil, p.Input.Spelt), "input"
	}
	if at.IsZero() || isEmpty(at.Of(m.body)) {
		out := append(quoted([]byte(`{"name":`), p.Name), `,"`...)
		out = append(append(append(out, member...), `":`...), input...)
		if out = append(out, '}'); at.IsZero() {
			m.set(p.At, "function", out)
		} else {
			m.replace(at, out)
		}
		return
	}
	m.set(at, "name", quoted(nil, p.Name))
	m.set(at, member, input)
}

// isEmpty reports whether an object has no members.
func isEmpty(v []byte) bool { return len(bytes.TrimSpace(v[1:len(v)-1])) == 0 }

// set gives a member of the object at at, which has some, the value raw: in place, else as its first.
func (m *mending) set(at llm.Span, member string, raw []byte) {
	var old []byte
	v := at.Of(m.body)
	members(v, func(name, in []byte) {
		if string(name) == member {
			old = in
		}
	})
	if old == nil {
		raw = append(append(append(llm.AppendQuoted(nil, member), ':'), raw...), ',')
		m.replace(llm.Span{From: at.From + 1, To: at.From + 1}, raw)
	} else if !bytes.Equal(old, raw) {
		from := at.From + cap(v) - cap(old)
		m.replace(llm.Span{From: from, To: from + len(old)}, raw)
	}
}

// retold writes a turn as messages, divided by commas; nil is none.
func retold(t *llm.Turn) []byte {
	c := llm.Conversation{Turns: []llm.Turn{*t}}
	m := composer{c: &c, r: &llm.Request{Dialect: "openai"}, t: new(llm.Target), own: true}
	c.Turns[0].Parts = slices.DeleteFunc(slices.Clone(t.Parts), func(p llm.Part) bool {
		return p.Kind == llm.PartResult && bytes.HasPrefix(p.ID, []byte(oldCall)) // no result is asked for
	})
	if err := m.turns(); err != nil {
		return nil
	}
	return m.out
}
