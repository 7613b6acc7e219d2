package anthropic

import (
	"bytes"
	"crypto/rand"

	"weir/internal/llm"
)

// maxAnswer bounds an assembled answer, so that an endless stream ends as a failure and not as all of the memory.
const maxAnswer = 64 << 20

// assembly makes one whole message from a stream, for clients who did not ask for one. Members that Weir does not know
// are kept as they came.
type assembly struct {
	base
	message pieces
	blocks  []*gathered
	usage   pieces
	into    *piece // where the text of a known delta goes
	size    int
}

// gathered is one block of the message to be.
type gathered struct {
	index   int64
	fields  pieces
	partial piece // of the input
}

// pieces are the members of one object, in the order in which they first came.
type pieces []*piece

// piece is one member: the joined pieces of a string, the joined elements of a list, or the last raw value.
type piece struct {
	name string
	kind byte // '"', '[' or 0
	raw  []byte
}

func (p *pieces) get(name string) *piece {
	for _, m := range *p {
		if m.name == name {
			return m
		}
	}
	m := &piece{name: name}
	*p = append(*p, m)
	return m
}

// last keeps the value, whatever was there before; null replaces nothing.
func (m *piece) last(v []byte) {
	if m.raw == nil && m.kind == 0 || !isNull(v) {
		m.kind, m.raw = 0, append(m.raw[:0], v...)
	}
}

// join adds the value to what was there: strings grow, of anything else the last one stays.
func (m *piece) join(v []byte) {
	if len(v) == 0 || v[0] != '"' {
		m.last(v)
		return
	}
	text := llm.Inside(v)
	if m.kind != '"' {
		if was := llm.Inside(m.raw); was != nil {
			m.raw = append(m.raw[:0], was...)
		} else {
			m.raw = m.raw[:0]
		}
		m.kind = '"'
	}
	m.raw = append(m.raw, text...)
}

// add appends the value to a list.
func (m *piece) add(v []byte) {
	if m.kind != '[' {
		was := m.raw
		m.kind, m.raw = '[', nil
		if len(was) > 0 && was[0] == '[' {
			m.raw = append(m.raw, bytes.TrimSpace(was[1:len(was)-1])...)
		}
	}
	if len(m.raw) > 0 {
		m.raw = append(m.raw, ',')
	}
	m.raw = append(m.raw, v...)
}

func (m *piece) append(dst []byte) []byte {
	switch m.kind {
	case '"':
		return append(append(append(dst, '"'), m.raw...), '"')
	case '[':
		return append(append(append(dst, '['), m.raw...), ']')
	}
	return append(dst, m.raw...)
}

// append appends the fields as an object.
func (p pieces) append(dst []byte) []byte {
	dst = append(dst, '{')
	for i, m := range p {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = m.append(append(llm.AppendQuoted(dst, m.name), ':'))
	}
	return append(dst, '}')
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
	return &llm.Error{Kind: llm.Stalled, Op: "anthropic.Feed", Sent: true,
		Msg: "the model's server sends an answer without an end; set max_tokens"}
}

func (a *assembly) event(f *llm.Frame) error {
	if f.Empty || a.seen.Done {
		return nil
	}
	if text, ok := a.known(f); ok {
		a.piece(text.From < text.To)
		a.into.raw = append(a.into.raw, text.Of(f.Data)...)
		if len(a.into.raw) > maxAnswer {
			return tooMuch()
		}
		return nil
	}
	e, err := a.read(f)
	if e == nil {
		return err
	}
	switch {
	case e.is(messageStart):
		a.start(e)
	case e.is(blockStart):
		g := a.gather(e)
		each(e.block.Of(e.data), func(name []byte, at llm.Span) {
			g.fields.get(string(name)).last(shift(at, e.block.From).Of(e.data))
		})
	case e.is(blockDelta):
		a.delta(e)
	case e.is(messageDelta):
		a.finish(e)
	case e.is(messageStop):
		a.seen.Done = true
	}
	return nil
}

// shift returns the place in the whole text of what was found in a piece of it that begins at from.
func shift(at llm.Span, from int) llm.Span { return llm.Span{From: at.From + from, To: at.To + from} }

func (a *assembly) start(e *event) {
	raw := e.message.Of(e.data)
	each(raw, func(name []byte, at llm.Span) {
		v := at.Of(raw)
		switch string(name) {
		case "usage":
			a.count(v)
			a.total(v)
		case "model":
			if isBlank(v) || isPath(v) {
				v = llm.AppendQuoted(nil, a.name)
			}
			fallthrough
		default:
			a.message.get(string(name)).last(v)
		}
	})
}

// total merges a usage object: what it says replaces what was known, the rest stays.
func (a *assembly) total(raw []byte) {
	each(raw, func(name []byte, at llm.Span) { a.usage.get(string(name)).last(at.Of(raw)) })
}

// gather returns the block that an event is about: by its number, or the last where the server gave none.
func (a *assembly) gather(e *event) *gathered {
	n, ok := llm.Int(e.index.Of(e.data))
	if !ok {
		if n = int64(len(a.blocks)); !e.is(blockStart) && n > 0 {
			return a.blocks[n-1]
		}
	}
	for _, g := range a.blocks {
		if g.index == n {
			return g
		}
	}
	g := &gathered{index: n, partial: piece{kind: '"'}}
	a.blocks = append(a.blocks, g)
	return g
}

// delta adds a piece to its block.
func (a *assembly) delta(e *event) {
	g, raw, kind := a.gather(e), e.delta.Of(e.data), string(llm.Unquote(e.kind.Of(e.data)))
	var into *piece
	each(raw, func(name []byte, at llm.Span) {
		v := at.Of(raw)
		switch n := string(name); {
		case n == "type":
		case n == "partial_json":
			into = &g.partial
			into.join(v)
		case n == "signature":
			g.fields.get(n).last(v)
		case n == "citation":
			g.fields.get("citations").add(v)
		case n == "text" || n == "thinking":
			into = g.fields.get(n)
			into.join(v)
		case kind == "thinking_delta": // what it counts beside its text is no part of a block
		default:
			g.fields.get(n).join(v)
		}
	})
	if into != nil && into.kind == '"' && e.plain() {
		a.learn(e)
		a.into = into
	}
}

// finish takes the end of the message: why it ended, and what came with that.
func (a *assembly) finish(e *event) {
	each(e.data, func(name []byte, at llm.Span) {
		v := at.Of(e.data)
		switch string(name) {
		case "type":
		case "usage":
			a.total(v)
		case "delta":
			each(v, func(name []byte, at llm.Span) { a.message.get(string(name)).last(at.Of(v)) })
		default:
			a.message.get(string(name)).last(v)
		}
	})
}

// End takes the end of the body and returns the whole message.
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
	for _, must := range []struct{ name, value string }{
		{"id", `"msg_` + rand.Text() + `"`}, {"type", `"message"`}, {"role", `"assistant"`},
		{"model", string(llm.AppendQuoted(nil, a.name))}, {"stop_sequence", "null"},
	} {
		if m := a.message.get(must.name); isBlank(m.raw) {
			m.last([]byte(must.value))
		}
	}
	content := a.message.get("content")
	content.kind, content.raw = '[', content.raw[:0]
	for i, g := range a.blocks {
		if i > 0 {
			content.raw = append(content.raw, ',')
		}
		content.raw = g.append(content.raw)
	}
	usage := a.message.get("usage")
	usage.kind, usage.raw = 0, a.usage.append(usage.raw[:0])
	return a.message.append(make([]byte, 0, len(content.raw)+1024))
}

func (g *gathered) append(dst []byte) []byte {
	if len(g.partial.raw) > 0 {
		input := g.fields.get("input")
		input.kind, input.raw = 0, llm.Input{Spelt: g.partial.raw}.AppendObject(nil)
	}
	return g.fields.append(dst)
}
