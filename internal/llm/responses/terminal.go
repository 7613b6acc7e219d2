package responses

import (
	"bytes"
	"cmp"
	"slices"

	"weir/internal/llm"
)

// end takes the event that ends the stream. One that says that the answer failed is an error (C073).
func (p *follower) end() error {
	e := &p.event
	v := e.response.Of(e.data)
	a, err := readAnswer(v)
	if err != nil {
		if e.kind == failed || e.kind == cancelled {
			return a.over(e.kind, "responses.Feed", p.seen.Content)
		}
		return &llm.Error{Kind: llm.Stalled, Op: "responses.Feed", Code: "incomplete_stream", Sent: true, Err: err,
			Msg: "the answer broke off: the model's server ended it without the response"}
	}
	if err := a.over(e.kind, "responses.Feed", p.seen.Content); err != nil {
		return err
	}
	status := "completed"
	if e.kind == incomplete {
		status = "incomplete"
	}
	before := len(p.edits)
	p.mend(&a, status, e.response.From)
	if a.items() == nil && (len(p.items) > 0 || a.output.IsZero() || isNull(a.output.Of(v))) {
		p.fill(&a)
	}
	p.seen.Usage.Add(usageOf(a.usage.Of(v)))
	p.answered(before)
	p.seen.Content, p.seen.Finished, p.seen.Done = true, true, true // a proper finish without content is an answer
	return nil
}

// fill gives the response of the end the items that went before it.
func (p *follower) fill(a *answer) {
	out := append(p.output([]byte{'['}), ']')
	base := p.event.response.From
	if !a.output.IsZero() {
		p.edits = append(p.edits, llm.Edit{At: llm.Span{From: base + a.output.From, To: base + a.output.To}, With: out})
		return
	}
	at := base + bytes.IndexByte(a.data, '{')
	for i := range p.edits {
		if p.edits[i].At.From == at+1 { // what else it lacks
			with := p.edits[i].With
			if a.empty {
				with = append(with, ',')
			}
			p.edits[i].With = closeIf(append(append(append(with, `"output":`...), out...), ','), a.empty)
			return
		}
	}
	p.edits = append(p.edits, front(append(append([]byte(`"output":`), out...), ','), at, a.empty))
}

func closeIf(members []byte, empty bool) []byte {
	if empty {
		return closed(members)
	}
	return members
}

// output appends the items in order, without brackets. Those that never ended are made of their deltas.
func (p *follower) output(dst []byte) []byte {
	list := slices.Clone(p.items)
	slices.SortStableFunc(list, func(a, b *tracked) int { return cmp.Compare(a.index, b.index) })
	for _, it := range list {
		n := len(dst)
		if it.raw != nil {
			dst = append(dst, it.raw...)
		} else {
			dst = it.make(dst)
		}
		if len(dst) > n {
			dst = append(dst, ',')
		}
	}
	return closed(dst)
}

// make appends the item as its deltas tell it; nothing where they do not say enough.
func (it *tracked) make(dst []byte) []byte {
	t := it.text
	switch it.kind {
	case "message":
		if it.piece == refusalDelta {
			return appendMessage(dst, it.id, "completed", appendRefusal(nil, t))
		}
		return appendMessage(dst, it.id, "completed", appendText(nil, t))
	case "reasoning":
		if len(t) > 0 {
			return appendReasoning(dst, it.id, t, nil, it.piece == summaryDelta)
		}
	case "function_call", "custom_tool_call":
		c := callItem{id: it.id, callID: bytes.Clone(llm.Inside(member(it.open, "call_id"))), name: bytes.Clone(llm.Inside(member(it.open, "name"))),
			custom: it.kind == "custom_tool_call"}
		if len(c.name) > 0 {
			return c.append(dst, "completed", t)
		}
	}
	return dst
}

// answered keeps the response object for a client who wants it whole. The edits of the event from before on are of it.
func (p *follower) answered(before int) {
	e := &p.event
	base := e.response.From
	edits := slices.Clone(p.edits[before:])
	for i := range edits {
		edits[i].At.From -= base
		edits[i].At.To -= base
	}
	sortEdits(edits)
	p.answer = llm.Splice(nil, e.response.Of(e.data), edits)
}

func sortEdits(list []llm.Edit) {
	slices.SortStableFunc(list, func(a, b llm.Edit) int { return cmp.Compare(a.At.From, b.At.From) })
}
