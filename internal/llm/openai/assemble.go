package openai

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"slices"
	"strconv"
	"time"

	"weir/internal/llm"
)

// maxAnswer bounds an assembled answer, so that an endless stream ends as a failure and not as all of the memory.
const maxAnswer = 64 << 20

// assembly makes one whole answer from a stream, for clients who did not ask for one. Unknown members are kept; strings
// of a delta are joined piece by piece in their escaped form, arrays are joined, of anything else the last one stays.
type assembly struct {
	base
	top     fields
	usage   []byte
	choices []*gathered
	into    *field    // where the text of a known chunk goes
	now     *gathered // the choice whose delta is being walked
	delta   []named   // members of that delta
	size    int
}

// gathered is one choice of the answer to be.
type gathered struct {
	index    int64
	finish   []byte
	message  fields
	logprobs fields
	extra    fields
	calls    []*call
	numbers  numbering // of the calls
}

type named struct {
	name string
	at   llm.Span
}

// fields are the members of one object, in the order in which they first came.
type fields []*field

// field is one member: the joined pieces of a string or an array, or the last raw value.
type field struct {
	name string
	kind byte // '"', '[' or 0
	open bool // the last element of an array is text that may go on
	raw  []byte
}

func (f *fields) get(name string) *field {
	for _, m := range *f {
		if m.name == name {
			return m
		}
	}
	m := &field{name: name}
	*f = append(*f, m)
	return m
}

// last keeps the value, whatever was there before.
func (m *field) last(v []byte) { m.kind, m.open, m.raw = 0, false, append(m.raw[:0], v...) }

// join adds the value to what was there: strings and arrays grow, null changes nothing, else the last one stays. Where
// pieces of text and lists of parts come mixed, as Mistral's models stream their thinking, all become parts.
func (m *field) join(v []byte) {
	switch {
	case isNull(v):
		if m.kind == 0 && m.raw == nil {
			m.raw = append(m.raw, v...)
		}
	case v[0] == '"' && m.kind == '[':
		m.part(v[1 : len(v)-1])
	case v[0] == '[':
		if text := m.raw; m.kind == '"' {
			m.kind, m.raw = '[', nil
			m.part(text)
		}
		m.list(bytes.TrimSpace(v[1 : len(v)-1]))
	case v[0] == '"':
		if m.kind != '"' {
			m.kind, m.raw = '"', m.raw[:0]
		}
		m.raw = append(m.raw, v[1:len(v)-1]...)
	default:
		m.last(v)
	}
}

// list appends the elements of an array.
func (m *field) list(inner []byte) {
	if m.kind != '[' {
		m.kind, m.open, m.raw = '[', false, m.raw[:0]
	}
	if len(inner) == 0 {
		return
	}
	if len(m.raw) > 0 {
		m.raw = append(m.raw, ',')
	}
	m.raw, m.open = append(m.raw, inner...), false
}

// part appends escaped text to an array: to its last element where that is text of this kind too.
func (m *field) part(text []byte) {
	const end = `"}`
	if len(text) == 0 {
		return
	}
	if m.open {
		m.raw = append(append(m.raw[:len(m.raw)-len(end)], text...), end...)
		return
	}
	m.list(append(append([]byte(`{"type":"text","text":"`), text...), end...))
	m.open = true
}

func (m *field) append(dst []byte) []byte {
	switch m.kind {
	case '"':
		return append(append(append(dst, '"'), m.raw...), '"')
	case '[':
		return append(append(append(dst, '['), m.raw...), ']')
	}
	return append(dst, m.raw...)
}

// members appends name and value of each field, with a comma after each.
func (f fields) members(dst []byte) []byte {
	for _, m := range f {
		dst = append(llm.AppendQuoted(dst, m.name), ':')
		dst = append(m.append(dst), ',')
	}
	return dst
}

// object appends the fields as an object.
func (f fields) object(dst []byte) []byte {
	return closing(f.members(append(dst, '{')), '}')
}

// closing replaces a comma at the end of dst by the bracket, or appends it.
func closing(dst []byte, bracket byte) []byte {
	if dst[len(dst)-1] == ',' {
		dst[len(dst)-1] = bracket
		return dst
	}
	return append(dst, bracket)
}

func newAssembly(b base) *assembly {
	a := &assembly{base: b}
	a.walker.part = func(name []byte, at llm.Span) error {
		a.delta = append(a.delta, named{string(name), at})
		return nil
	}
	a.walker.each = a.take
	return a
}

// Feed takes the n bytes read. Nothing goes out before the end.
func (a *assembly) Feed(n int) ([]byte, error) {
	a.frames.Took(n)
	if a.size += n; a.size > 4*maxAnswer {
		return nil, tooMuch()
	}
	for {
		f, ok := a.frames.Next()
		if !ok {
			return nil, nil
		}
		if err := a.event(&f); err != nil {
			return nil, err
		}
	}
}

func tooMuch() error {
	e := llm.Errorf(llm.Stalled, "the model's server sends an answer without an end; set max_tokens")
	e.Sent = true
	return e
}

func (a *assembly) event(f *llm.Frame) error {
	if f.Empty || a.seen.Done {
		return nil
	}
	if text, ok := a.known(f.Data); ok && a.into.kind == '"' {
		if text.From < text.To {
			a.content()
			a.resume(a.seen.Finished, true)
			a.into.raw = append(a.into.raw, text.Of(f.Data)...)
			if len(a.into.raw) > maxAnswer {
				return tooMuch()
			}
		}
		return nil
	}
	data := bytes.TrimSpace(f.Data)
	if len(data) == 0 {
		return nil
	}
	if string(data) == "[DONE]" {
		a.seen.Done = true
		return nil
	}
	return a.chunk(f)
}

func (a *assembly) chunk(f *llm.Frame) error {
	data := f.Data
	a.delta, a.now = a.delta[:0], nil
	finished := a.seen.Finished
	if err := a.walker.walk(data); err != nil {
		return a.late(finished, broken(data, err))
	}
	c := &a.walker.chunk
	if isFault(f, c) {
		return a.late(finished, &llm.Fault{Data: bytes.Clone(data)})
	}
	a.note(c)
	a.resume(finished, c.content)
	if !c.usage.IsZero() {
		a.usage = append(a.usage[:0], c.usage.Of(data)...)
	}
	a.outer(c)
	if c.plain && a.now != nil {
		a.learn(c)
		a.into = a.now.message.get(string(c.field))
	}
	return nil
}

// outer keeps the members beside the choices.
func (a *assembly) outer(c *chunk) {
	s := llm.NewScanner(c.data, maxDepth)
	_ = s.Members(func(name []byte) error { // walked before: it cannot fail
		at, err := s.Value()
		v := at.Of(c.data)
		switch string(name) {
		case "choices", "usage", "object", "error", "prompt_progress", "obfuscation":
		case "id", "created", "model": // the first valid one stays
			valid := !isBlank(v)
			if string(name) == "created" {
				valid = count(v) > 0
			}
			if m := a.top.get(string(name)); m.raw == nil && valid {
				m.last(v)
			}
		default:
			if m := a.top.get(string(name)); m.raw == nil || !isNull(v) {
				m.last(v)
			}
		}
		return err
	})
}

// take adds one walked choice.
func (a *assembly) take(c *choice) error {
	data := a.walker.data
	a.choice(c)
	g := a.gather(c.n)
	a.now = g
	if !c.finish.IsZero() {
		g.finish = append(g.finish[:0], c.finish.Of(data)...)
	}
	for _, m := range a.delta {
		switch v := m.at.Of(data); {
		case m.name == "tool_calls":
			g.tools(v)
		case m.name == "role":
			g.message.get("role").last(v)
		default:
			g.message.get(m.name).join(v)
		}
	}
	a.delta = a.delta[:0]
	if !c.text.IsZero() {
		g.message.get("text").join(c.text.Of(data))
	}
	if !c.logprobs.IsZero() {
		joinAll(&g.logprobs, c.logprobs.Of(data))
	}
	if c.extra {
		g.more(c.at.Of(data))
	}
	return nil
}

func (a *assembly) gather(index int64) *gathered {
	for _, g := range a.choices {
		if g.index == index {
			return g
		}
	}
	g := &gathered{index: index}
	a.choices = append(a.choices, g)
	return g
}

// joinAll joins each member of the object v.
func joinAll(f *fields, v []byte) {
	s := llm.NewScanner(v, maxDepth)
	if s.Peek() != '{' {
		return
	}
	_ = s.Members(func(name []byte) error {
		at, err := s.Value()
		f.get(string(name)).join(at.Of(v))
		return err
	})
}

// more keeps the members of a choice that Weir does not know.
func (g *gathered) more(v []byte) {
	s := llm.NewScanner(v, maxDepth)
	_ = s.Members(func(name []byte) error {
		at, err := s.Value()
		switch string(name) {
		case "index", "delta", "finish_reason", "logprobs", "text":
		default:
			if m := g.extra.get(string(name)); m.raw == nil || !isNull(at.Of(v)) {
				m.last(at.Of(v))
			}
		}
		return err
	})
}

// End takes the end of the body and returns the whole answer.
func (a *assembly) End() ([]byte, error) {
	if f, ok := a.frames.Rest(); ok && isEntire(f.Data) {
		if err := a.event(&f); err != nil {
			return nil, err
		}
	}
	if err := a.over(); err != nil {
		return nil, err
	}
	return a.answer(), nil
}

func (a *assembly) answer() []byte {
	id, created, model := a.top.get("id"), a.top.get("created"), a.top.get("model")
	if id.raw == nil {
		id.raw = llm.AppendQuoted(nil, prefix(a.op)+rand.Text())
	}
	if created.raw == nil {
		created.raw = strconv.AppendInt(nil, time.Now().Unix(), 10)
	}
	if model.raw == nil || isPath(model.raw) {
		model.raw = llm.AppendQuoted(nil, a.name)
	}
	out := append([]byte(`{"object":"`), object(a.op, false)...)
	out = a.top.members(append(out, `",`...))
	out = append(out, `"choices":[`...)
	slices.SortStableFunc(a.choices, func(x, y *gathered) int { return cmp.Compare(x.index, y.index) })
	for _, g := range a.choices {
		out = append(g.append(out, a.op), ',')
	}
	out = append(closing(out, ']'), ',')
	if a.usage != nil {
		out = append(append(append(out, `"usage":`...), a.usage...), ',')
	}
	return closing(out, '}')
}

func (g *gathered) append(dst []byte, op llm.Op) []byte {
	dst = strconv.AppendInt(append(dst, `{"index":`...), g.index, 10)
	dst = append(dst, ',')
	if op == llm.Completions {
		text := g.message.get("text")
		if text.kind != '"' {
			text.kind, text.raw = '"', nil // null in every chunk: no text
		}
		dst = append(text.append(append(dst, `"text":`...)), ',')
	} else {
		dst = append(g.reply(append(dst, `"message":`...)), ',')
	}
	dst = append(dst, `"logprobs":`...)
	if g.logprobs == nil {
		dst = append(dst, "null,"...)
	} else {
		dst = append(g.logprobs.object(dst), ',')
	}
	dst = g.extra.members(dst)
	if g.finish == nil {
		g.finish = []byte("null")
	}
	dst = append(append(dst, `"finish_reason":`...), g.finish...)
	return append(dst, '}')
}

// reply appends the message of a chat choice.
func (g *gathered) reply(dst []byte) []byte {
	if role := g.message.get("role"); role.raw == nil || isNull(role.raw) {
		role.last([]byte(`"assistant"`))
	}
	if m := g.message.get("content"); m.raw == nil && m.kind == 0 {
		m.last([]byte("null"))
	}
	dst = g.message.members(append(dst, '{'))
	if len(g.calls) > 0 {
		dst = append(dst, `"tool_calls":[`...)
		for i, c := range g.calls {
			dst = append(c.append(dst, g.numbers[i].id), ',')
		}
		dst = append(closing(dst, ']'), ',')
	}
	return closing(dst, '}')
}
