package anthropic

import (
	"bytes"

	"weir/internal/llm"
)

// Stream returns what turns a backend's stream into the client's: passed on event by event for clients who stream,
// assembled into one message for those who do not. model stands in for a served name that is a file's path.
func (Dialect) Stream(r *llm.Request, model string) llm.Stream {
	b := base{name: model, counts: noCounts}
	b.seen.Usage = llm.NoUsage
	if r.Stream {
		return &passing{base: b}
	}
	return &assembly{base: b}
}

// base is what both kinds of stream share: the cutting into events and what is learnt from them.
type base struct {
	frames     llm.Frames
	walker     walker
	seen       llm.Seen
	counts     counts
	name       string // shown in place of a path
	begun      bool   // an event of the answer has come
	lead, tail []byte // around the text of the last plain delta
}

// Space returns room for the next read.
func (b *base) Space() []byte { return b.frames.Space() }

// Seen tells what the stream has shown so far.
func (b *base) Seen() *llm.Seen { return &b.seen }

// known reports whether data is a plain delta with the frame of the last one, and where its text stands. Only the text
// can differ then, so nothing else needs a look.
func (b *base) known(f *llm.Frame) (llm.Span, bool) {
	n := len(b.lead)
	if n == 0 || !bytes.HasPrefix(f.Data, b.lead) {
		return llm.Span{}, false
	}
	e := llm.SkipString(f.Data, n)
	if e < 0 || string(f.Data[e-1:]) != string(b.tail) {
		return llm.Span{}, false
	}
	return llm.Span{From: n, To: e - 1}, true
}

// learn remembers the frame of a plain delta.
func (b *base) learn(e *event) {
	if !e.plain() {
		return
	}
	b.lead = append(b.lead[:0], e.data[:e.text.From+1]...)
	b.tail = append(b.tail[:0], e.data[e.text.To-1:]...)
}

// piece notes a piece of content, which may be empty: a sign of life all the same.
func (b *base) piece(hasText bool) {
	if !hasText {
		b.seen.Progress = true
		return
	}
	b.seen.Content = true
	b.seen.Events++
}

// note takes what a walked event tells of the answer as a whole.
func (b *base) note(e *event) {
	switch {
	case e.is(messageStart):
		b.begun = true
		if b.seen.Served == "" && !e.model.IsZero() {
			b.seen.Served = string(llm.Unquote(e.model.Of(e.data)))
		}
		b.count(e.inner.Of(e.data))
	case e.is(blockStart):
		b.begun = true
		b.piece(e.isCall() || e.hasText())
	case e.is(blockDelta):
		b.begun = true
		b.piece(e.hasText())
	case e.is(messageDelta):
		b.begun = true
		b.count(e.usage.Of(e.data))
		if !isBlank(e.stop.Of(e.data)) {
			b.seen.Content, b.seen.Finished = true, true // a proper finish without content is an answer
		}
	}
}

func (b *base) count(raw []byte) {
	b.counts.merge(raw)
	b.seen.Usage = b.counts.usage()
}

// over judges the end of the body.
func (b *base) over() error {
	switch {
	case b.seen.Finished:
		return nil
	case !b.begun:
		return &llm.Error{Kind: llm.Refused, Op: "anthropic.End", Sent: true, Msg: "the model's server ended its answer before it began"}
	}
	return &llm.Error{Kind: llm.Stalled, Op: "anthropic.End", Code: "incomplete_stream", Sent: true,
		Msg: "the answer broke off: the model's server ended it without a stop_reason"}
}

// late takes a fault of the stream: after the finish it ends what was whole already, before it it is what it is.
func (b *base) late(err error) error {
	if b.seen.Finished {
		b.seen.Done = true
		return nil
	}
	return err
}

// read walks an event's data. Both results are zero for one that is not of this dialect, or ends the stream.
func (b *base) read(f *llm.Frame) (*event, error) {
	data := bytes.TrimSpace(f.Data)
	if len(data) == 0 {
		return nil, nil
	}
	if string(data) == "[DONE]" { // other dialects' end mark, which some servers add
		b.seen.Done = true
		return nil, nil
	}
	if err := b.walker.walk(f.Data); err != nil {
		return nil, b.late(broken(err))
	}
	e := &b.walker.event
	if e.isFault(f.Name) {
		return nil, b.late(&llm.Fault{Data: bytes.Clone(data)})
	}
	b.note(e)
	return e, nil
}

func broken(err error) error {
	return &llm.Error{Kind: llm.Stalled, Op: "anthropic.Feed", Code: "incomplete_stream", Sent: true, Err: err,
		Msg: "the answer broke off: the model's server sent an event that is not valid JSON"}
}

// passing forwards whole events as they were and mends their framing.
type passing struct {
	base
	out  []byte // rewritten events, when the run of untouched ones is broken
	run  llm.Span
	last []byte // message_stop, kept for the end: what Weir itself says comes before it
}

// Feed takes the n bytes read.
func (p *passing) Feed(n int) ([]byte, error) {
	p.frames.Took(n)
	p.out, p.run = p.out[:0], llm.Span{}
	for {
		f, ok := p.frames.Next()
		if !ok {
			return p.flush(), nil
		}
		if err := p.event(&f); err != nil {
			return p.flush(), err
		}
	}
}

// flush returns what is to go out: the untouched run itself, or the buffer where events were rewritten.
func (p *passing) flush() []byte {
	if len(p.out) == 0 {
		return p.frames.Raw(p.run)
	}
	p.out = append(p.out, p.frames.Raw(p.run)...)
	p.run = llm.Span{}
	return p.out
}

// keep forwards an event as it was.
func (p *passing) keep(at llm.Span) {
	if p.run.To == at.From && !p.run.IsZero() {
		p.run.To = at.To
		return
	}
	p.out = append(p.out, p.frames.Raw(p.run)...)
	p.run = at
}

func (p *passing) event(f *llm.Frame) error {
	if p.seen.Done {
		return nil
	}
	if f.Empty {
		if f.Plain && p.seen.Content {
			p.keep(f.At)
		}
		return nil
	}
	if text, ok := p.known(f); ok && f.Plain && string(f.Name) == blockDelta {
		p.piece(text.From < text.To)
		p.keep(f.At)
		return nil
	}
	e, err := p.read(f)
	if e == nil {
		return err
	}
	edits := p.mend(e)
	whole := f.Plain && len(edits) == 0 && len(f.Name) > 0
	switch {
	case e.is(messageStop):
		p.seen.Done = true
		if whole {
			p.last = append(p.last, p.frames.Raw(f.At)...)
		} else {
			p.last = appendEvent(p.last, f.Name, e, edits)
		}
	case whole:
		p.learn(e)
		p.keep(f.At)
	default:
		p.out = append(p.out, p.frames.Raw(p.run)...)
		p.run = llm.Span{}
		p.out = appendEvent(p.out, f.Name, e, edits)
	}
	return nil
}

// mend returns the edits that the event needs: a model that is a file's path is not shown.
func (b *base) mend(e *event) []llm.Edit {
	if v := e.model.Of(e.data); len(v) == 0 || string(v) != `""` && !isPath(v) {
		return nil
	}
	return []llm.Edit{{At: e.model, With: llm.AppendQuoted(nil, b.name)}}
}

// appendEvent appends an event with edits as one line of data (C025), under its type where it came without a name.
func appendEvent(dst, name []byte, e *event, edits []llm.Edit) []byte {
	if len(name) == 0 {
		name = llm.Unquote(e.typ.Of(e.data))
	}
	if len(name) > 0 && bytes.IndexByte(name, '\n') < 0 && bytes.IndexByte(name, '\r') < 0 {
		dst = append(append(append(dst, "event: "...), name...), '\n')
	}
	dst = append(dst, "data: "...)
	from := len(dst)
	dst = llm.Splice(dst, e.data, edits)
	for i := from; i < len(dst); i++ {
		if dst[i] == '\n' || dst[i] == '\r' { // between tokens: an event of several data lines
			dst[i] = ' '
		}
	}
	return append(dst, "\n\n"...)
}

// End takes the end of the body.
func (p *passing) End() ([]byte, error) {
	p.out, p.run = p.out[:0], llm.Span{}
	if f, ok := p.frames.Rest(); ok && isEntire(f.Data) {
		if err := p.event(&f); err != nil {
			return p.flush(), err
		}
	}
	out := p.flush()
	if err := p.over(); err != nil {
		return out, err
	}
	if p.last == nil {
		p.last = append(p.last, stopEvent...)
	}
	return append(out[:len(out):len(out)], p.last...), nil
}

const stopEvent = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"

// isEntire reports whether the rest of a body is an event that only lacks its end. Half of one tells nothing, a finish
// in it least of all (C010).
func isEntire(data []byte) bool {
	data = bytes.TrimSpace(data)
	return string(data) == "[DONE]" || llm.IsObject(data)
}
