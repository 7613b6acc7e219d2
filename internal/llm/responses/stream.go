package responses

import (
	"weir/internal/llm"
)

// Stream returns what turns the stream of a server that speaks this dialect into the client's: passed on event by event
// for clients who stream, reduced to the response of its end for those who do not. model stands in for a served name that
// is a file's path.
func (Dialect) Stream(r *llm.Request, model string) llm.Stream {
	f := follower{name: model}
	f.seen.Usage = llm.NoUsage
	if !r.Stream {
		return &reducing{follower: f}
	}
	p := &passing{follower: f}
	r.Broken = p
	return p
}

// passing forwards whole events as they were and mends what must be.
type passing struct {
	follower
	out []byte // rewritten events, when the run of untouched ones is broken
	run llm.Span
}

// Feed takes the n bytes read.
func (p *passing) Feed(n int) ([]byte, error) {
	p.frames.Took(n)
	p.out, p.run = p.out[:0], llm.Span{}
	for {
		f, ok := p.frames.Next()
		if !ok {
			break
		}
		if err := p.take(&f); err != nil {
			return p.flush(), err
		}
	}
	return p.flush(), nil
}

func (p *passing) take(f *llm.Frame) error {
	if p.seen.Done {
		return nil
	}
	if f.Empty {
		if f.Plain && p.seen.Content {
			p.keep(f.At)
		}
		return nil
	}
	on, err := p.next(f)
	if err != nil || !on {
		return err
	}
	e := &p.event
	name := llm.Inside(e.typ.Of(e.data))
	if f.Plain && len(p.edits) == 0 && string(name) == string(f.Name) {
		p.keep(f.At)
		return nil
	}
	if len(name) == 0 {
		name = f.Name
	}
	p.rewrite(name, e.data)
	return nil
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

// rewrite forwards data with the event's edits, named after its type.
func (p *passing) rewrite(name llm.Text, data []byte) {
	p.out = append(p.out, p.frames.Raw(p.run)...)
	p.run = llm.Span{}
	if len(name) > 0 {
		p.out = append(append(append(p.out, "event: "...), name...), '\n')
	}
	p.out = append(p.out, "data: "...)
	from := len(p.out)
	sortEdits(p.edits)
	p.out = llm.Splice(p.out, data, p.edits)
	oneLine(p.out[from:])
	p.out = append(p.out, "\n\n"...)
}

// End takes the end of the body.
func (p *passing) End() ([]byte, error) {
	p.out, p.run = p.out[:0], llm.Span{}
	if f, ok := p.frames.Rest(); ok && llm.IsObject(f.Data) { // half an event tells nothing (C010)
		if err := p.take(&f); err != nil {
			return p.flush(), err
		}
	}
	return p.flush(), p.over()
}

// over judges the end of the body.
func (p *follower) over() error {
	switch {
	case p.seen.Finished:
		return nil
	case !p.begun:
		return &llm.Error{Kind: llm.Refused, Op: "responses.End", Msg: "the model's server ended its answer before it began", Sent: true}
	}
	return &llm.Error{Kind: llm.Stalled, Op: "responses.End", Code: "incomplete_stream", Sent: true,
		Msg: "the answer broke off: the model's server ended it without an event that says so"}
}

// reducing keeps the response of the end alone.
type reducing struct{ follower }

// Feed takes the n bytes read.
func (p *reducing) Feed(n int) ([]byte, error) {
	p.frames.Took(n)
	for !p.seen.Done {
		f, ok := p.frames.Next()
		if !ok {
			break
		}
		if f.Empty {
			continue
		}
		if _, err := p.next(&f); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// End takes the end of the body and returns the answer.
func (p *reducing) End() ([]byte, error) {
	if f, ok := p.frames.Rest(); ok && !p.seen.Done && llm.IsObject(f.Data) {
		if _, err := p.next(&f); err != nil {
			return nil, err
		}
	}
	return p.answer, p.over()
}
