package responses

import (
	"bytes"
	"strconv"
	"time"

	"weir/internal/llm"
)

// tracked is one item of an answer under way.
type tracked struct {
	index int64
	id    llm.Text
	kind  string // message, reasoning, function_call, custom_tool_call or another
	open  []byte // the item as it was added
	raw   []byte // the item once it is done
	text  []byte // of its deltas, until it is done
	parts int64  // parts that have begun
	piece kind   // of its deltas
}

// follower reads the stream of a server that speaks this dialect: it keeps account of the answer and finds what each
// event lacks.
type follower struct {
	frames  llm.Frames
	event   event
	seen    llm.Seen
	name    string // shown in place of a path
	edits   []llm.Edit
	lacks   []byte // members that the event lacks
	seq     int64  // the next number
	items   []*tracked
	last    *tracked
	id      llm.Text
	created int64
	model   llm.Text
	begun   bool
	answer  []byte // the response object of the end, mended
}

// Space returns room for the next read.
func (p *follower) Space() []byte { return p.frames.Space() }

// Seen tells what the stream has shown so far.
func (p *follower) Seen() *llm.Seen { return &p.seen }

// AppendBroken ends the stream with a failed response that agrees with what was sent (C007).
func (p *follower) AppendBroken(dst []byte, e *llm.Error) []byte {
	b := broken{id: p.id, model: p.model, created: p.created, seq: p.seq}
	if b.id == nil {
		b.id = newID("resp_")
	}
	if len(b.model) == 0 {
		b.model = llm.Escaped(p.name)
	}
	if b.created == 0 {
		b.created = time.Now().Unix()
	}
	for _, it := range p.items {
		if it.raw != nil {
			b.output = append(append(b.output, it.raw...), ',')
		}
	}
	b.output = closed(b.output)
	return b.appendFailed(dst, e)
}

// next reads an event into p.event and p.edits. It returns false for one that is not to go on.
func (p *follower) next(f *llm.Frame) (bool, error) {
	if len(bytes.TrimSpace(f.Data)) == 0 {
		return false, nil
	}
	if string(bytes.TrimSpace(f.Data)) == "[DONE]" { // not of this dialect, yet some servers send it
		p.seen.Done = true
		return false, nil
	}
	if err := p.event.read(f); err != nil {
		e := llm.Errorf(llm.Stalled, "the answer broke off: the model's server sent an event that is not valid JSON")
		e.Code, e.Sent, e.Err = "incomplete_stream", true, err
		return false, e
	}
	p.edits, p.lacks = p.edits[:0], p.lacks[:0]
	e := &p.event
	if e.kind == fault {
		return false, &llm.Fault{Data: flatFault(e)}
	}
	p.begun = true
	if e.typ.IsZero() && f.Name != nil {
		p.lacks = append(llm.AppendQuoted(append(p.lacks, `"type":`...), f.Name), ',')
	}
	before := p.seq
	p.number()
	if err := p.note(); err != nil {
		p.seq = before // the client does not see the event
		return false, err
	}
	if len(p.lacks) > 0 {
		from := bytes.IndexByte(e.data, '{')
		p.edits = append(p.edits, front(p.lacks, from, bytes.TrimSpace(e.data[from+1:])[0] == '}'))
	}
	return true, nil
}

// number gives the event its place in the stream where it has none, or one that does not rise.
func (p *follower) number() {
	n, ok := llm.Int(p.event.seq.Of(p.event.data))
	switch {
	case p.event.seq.IsZero():
		p.lacks = numbered(p.lacks, "sequence_number", p.seq)
	case !ok || n < p.seq:
		p.edits = append(p.edits, llm.Edit{At: p.event.seq, With: strconv.AppendInt(nil, p.seq, 10)})
	default:
		p.seq = n
	}
	p.seq++
}

// note takes what the event tells of the answer.
func (p *follower) note() error {
	e := &p.event
	switch {
	case e.kind == created:
		return p.response()
	case e.kind == itemAdded || e.kind == itemDone:
		p.item()
	case e.kind.ofItem():
		p.within()
	case e.kind >= completed:
		return p.end()
	case e.kind == other:
		p.seen.Progress = true
	}
	return nil
}

// response takes the response object that a stream begins with.
func (p *follower) response() error {
	if e := &p.event; !e.response.IsZero() {
		v := e.response.Of(e.data)
		a, err := readAnswer(v)
		if err != nil {
			return nil // no object: the client may know what it is
		}
		if err := a.over(e.kind, "responses.Feed", p.seen.Content); err != nil {
			return err
		}
		p.mend(&a, "in_progress", e.response.From)
	}
	return nil
}

// mend adds what a response object lacks. base is where it begins in the event.
func (p *follower) mend(a *answer, status string, base int) {
	p.identify(a)
	m := mending{follower: p, base: base}
	if isBlank(a.id.Of(a.data)) {
		m.set(a.id, "id", quoted(p.id))
	}
	if isBlank(a.object.Of(a.data)) {
		m.set(a.object, "object", []byte(`"response"`))
	}
	if a.createdAt.IsZero() {
		m.set(a.createdAt, "created_at", strconv.AppendInt(nil, p.created, 10))
	}
	if !bytes.Equal(p.model, llm.Inside(a.model.Of(a.data))) {
		m.set(a.model, "model", quoted(p.model))
	}
	if isBlank(a.status.Of(a.data)) {
		m.set(a.status, "status", llm.AppendQuoted(nil, status))
	}
	if len(m.lacks) > 0 {
		p.edits = append(p.edits, front(m.lacks, base+bytes.IndexByte(a.data, '{'), a.empty))
	}
}

// mending gathers what a response object lacks.
type mending struct {
	*follower
	base  int
	lacks []byte
}

// set gives a member another value, or adds it.
func (m *mending) set(at llm.Span, name string, raw []byte) {
	if at.IsZero() {
		m.lacks = append(append(append(append(m.lacks, '"'), name...), `":`...), raw...)
		m.lacks = append(m.lacks, ',')
		return
	}
	m.edits = append(m.edits, llm.Edit{At: llm.Span{From: at.From + m.base, To: at.To + m.base}, With: raw})
}

func quoted(t llm.Text) []byte { return append(append([]byte{'"'}, t...), '"') }

// identify learns the id, the time and the model of the response, and makes up what it does not say.
func (p *follower) identify(a *answer) {
	if v := llm.Inside(a.id.Of(a.data)); p.id == nil && len(v) > 0 {
		p.id = bytes.Clone(v)
	}
	if p.id == nil {
		p.id = newID("resp_")
	}
	if n, ok := llm.Int(a.createdAt.Of(a.data)); ok && n > 0 {
		p.created = n
	}
	if p.created == 0 {
		p.created = time.Now().Unix()
	}
	if v := llm.Inside(a.model.Of(a.data)); len(v) > 0 {
		if p.seen.Served == "" {
			p.seen.Served = string(llm.Unescaped(v))
		}
		p.model = append(p.model[:0], v...)
	}
	if len(p.model) == 0 || isPath(p.model) {
		p.model = llm.Escaped(p.name)
	}
}

// find returns the item that an event is about, by number, by id, or the one that came last.
func (p *follower) find(id llm.Text) *tracked {
	e := &p.event
	n, numbered := llm.Int(e.output.Of(e.data))
	if len(id) == 0 && !numbered {
		return p.last
	}
	for i := len(p.items) - 1; i >= 0; i-- {
		it := p.items[i]
		if numbered && it.index == n || !numbered && bytes.Equal(it.id, id) {
			return it
		}
	}
	return nil
}

// track begins an item.
func (p *follower) track(id llm.Text, prefix string) *tracked {
	it := &tracked{id: bytes.Clone(id), index: int64(len(p.items))}
	if n, ok := llm.Int(p.event.output.Of(p.event.data)); ok {
		it.index = n
	}
	if len(it.id) == 0 {
		it.id = newID(prefix)
	}
	p.items = append(p.items, it)
	p.last = it
	return it
}

// item takes the event that begins or ends an item.
func (p *follower) item() {
	e := &p.event
	v := e.item.Of(e.data)
	if len(v) == 0 || v[0] != '{' {
		return
	}
	id := llm.Inside(member(v, "id"))
	it := (*tracked)(nil)
	if e.kind == itemDone || !e.output.IsZero() {
		it = p.find(id)
	}
	if it == nil || e.kind == itemAdded && it.raw != nil && e.output.IsZero() {
		kind := string(llm.Unquote(member(v, "type")))
		it = p.track(id, idPrefix(kind))
		it.kind = kind
	}
	if e.output.IsZero() {
		p.lacks = numbered(p.lacks, "output_index", it.index)
	}
	item := v
	if len(id) == 0 {
		d := front(spelt(nil, "id", it.id), 0, len(bytes.TrimSpace(v[1:len(v)-1])) == 0)
		item = llm.Splice(nil, v, []llm.Edit{d})
		p.edits = append(p.edits, llm.Edit{At: e.item, With: item})
	}
	if it.kind != "message" && it.kind != "reasoning" && e.kind == itemAdded {
		p.content() // a call has begun
	}
	if e.kind == itemDone {
		it.raw, it.text, it.open = append(it.raw[:0], item...), nil, nil
		oneLine(it.raw)
		p.content()
		return
	}
	it.open = append(it.open[:0], item...)
}

func idPrefix(kind string) string {
	switch kind {
	case "message":
		return "msg_"
	case "reasoning":
		return "rs_"
	case "custom_tool_call":
		return "ctc_"
	}
	return "fc_"
}

// within takes an event about a piece of an item.
func (p *follower) within() {
	e := &p.event
	id := llm.Inside(e.itemID.Of(e.data))
	it := p.find(id)
	if it == nil {
		kind := kindOf(e.kind)
		it = p.track(id, idPrefix(kind))
		it.kind = kind
	}
	if len(id) == 0 {
		if e.itemID.IsZero() {
			p.lacks = spelt(p.lacks, "item_id", it.id)
		} else {
			p.edits = append(p.edits, llm.Edit{At: e.itemID, With: quoted(it.id)})
		}
	}
	if e.output.IsZero() {
		p.lacks = numbered(p.lacks, "output_index", it.index)
	}
	if e.kind == partAdded || e.kind == summaryPart {
		it.parts++
	}
	if e.kind.ofPart() && e.content.IsZero() {
		p.lacks = numbered(p.lacks, "content_index", max(it.parts-1, 0))
	}
	if e.kind.ofSummary() && e.summary.IsZero() {
		p.lacks = numbered(p.lacks, "summary_index", max(it.parts-1, 0))
	}
	switch t := e.piece(); {
	case !e.kind.isDelta():
		if len(it.text) == 0 && it.raw == nil { // of a server that sends no deltas
			it.text = append(it.text, e.whole()...)
			it.piece = e.kind - 1
		}
	case len(t) > 0:
		p.content()
		it.text, it.piece = append(it.text, t...), e.kind
	}
}

// kindOf returns what item an event is about that no item was begun for.
func kindOf(k kind) string {
	switch k {
	case argumentsDelta, argumentsDone:
		return "function_call"
	case inputDelta, inputDone:
		return "custom_tool_call"
	case thoughtDelta, thoughtDone, summaryPart, summaryPartDone, summaryDelta, summaryDone:
		return "reasoning"
	}
	return "message"
}

func (p *follower) content() {
	p.seen.Content = true
	p.seen.Events++
}
