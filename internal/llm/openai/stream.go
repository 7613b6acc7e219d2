package openai

import (
	"bytes"
	"crypto/rand"
	"strconv"
	"strings"
	"time"

	"weir/internal/llm"
)

// Stream returns what turns a backend's stream into the client's: passed on event by event for clients who stream,
// assembled into one answer for those who do not. model stands in for a served name that is a file's path.
func (Dialect) Stream(r *llm.Request, model string) llm.Stream {
	b := base{op: r.Op, hide: !r.IncludeUsage, single: r.Choices <= 1, name: model}
	b.seen.Usage = llm.NoUsage
	if r.Stream {
		p := &passing{base: b}
		p.walker.each = p.once
		return p
	}
	return newAssembly(b)
}

// base is what both kinds of stream share: the cutting into events and what is learnt from them.
type base struct {
	frames llm.Frames
	walker walker
	seen   llm.Seen
	op     llm.Op
	hide   bool   // the client did not ask for usage
	single bool   // nor for several choices
	name   string // shown in place of a path

	begun, finished uint64 // choices, by index
	counted         bool   // a usage object came
	processed       int64  // tokens of the prompt, as the last progress said
	lead, tail      []byte // around the text of the last plain chunk
}

// Space returns room for the next read.
func (b *base) Space() []byte { return b.frames.Space() }

// Seen tells what the stream has shown so far.
func (b *base) Seen() *llm.Seen { return &b.seen }

// known reports whether data is a plain content chunk with the frame of the last one, and where its text stands. Only
// the text can differ then, so nothing else needs a look.
func (b *base) known(data []byte) (llm.Span, bool) {
	n := len(b.lead)
	if n == 0 || !bytes.HasPrefix(data, b.lead) {
		return llm.Span{}, false
	}
	e := llm.SkipString(data, n)
	if e < 0 || string(data[e-1:]) != string(b.tail) {
		return llm.Span{}, false
	}
	return llm.Span{From: n, To: e - 1}, true
}

// learn remembers the frame of a plain chunk.
func (b *base) learn(c *chunk) {
	if !c.plain {
		return
	}
	b.lead = append(b.lead[:0], c.data[:c.text.From+1]...)
	b.tail = append(b.tail[:0], c.data[c.text.To-1:]...)
}

// note takes what a walked chunk tells of the answer as a whole.
func (b *base) note(c *chunk) {
	if !c.usage.IsZero() {
		b.seen.Usage, b.counted = usageOf(c.usage.Of(c.data)), true
	}
	if !c.timings.IsZero() {
		b.timings(c.timings.Of(c.data))
	}
	if n := member(c.progress.Of(c.data), "processed"); n > b.processed {
		b.processed, b.seen.Progress = n, true // only growing progress is life
	}
	if b.seen.Served == "" && !c.model.IsZero() {
		b.seen.Served = string(llm.Unquote(c.model.Of(c.data)))
	}
	if c.content {
		b.content()
	}
}

func (b *base) timings(raw []byte) {
	n, out := member(raw, "prompt_n"), member(raw, "predicted_n")
	if n > 0 {
		b.seen.PromptN, b.seen.Prefill = n, number(raw, "prompt_per_second")
	}
	if u := &b.seen.Usage; n >= 0 && out >= 0 && !b.counted { // they count the same; a usage object says it better
		u.Cached = member(raw, "cache_n")
		u.In, u.Out = n+max(u.Cached, 0), out
	}
}

func (b *base) content() {
	b.seen.Content = true
	b.seen.Events++
}

// resume takes content that comes after the finish: this server writes a finish into any chunk, and none tells the end.
func (b *base) resume(finished, content bool) {
	if finished && content {
		b.single, b.seen.Finished = false, false
	}
}

// choice keeps account of the choices that began and finished.
func (b *base) choice(c *choice) {
	i := c.n & 63
	b.begun |= 1 << i
	if !c.finish.IsZero() {
		b.finished |= 1 << i
		if b.begun == b.finished {
			b.seen.Finished = b.single
			b.seen.Content = true // a proper finish without content is an answer
		}
	}
}

// over judges the end of the body.
func (b *base) over() error {
	switch {
	case b.begun == 0:
		e := llm.Errorf(llm.Refused, "the model's server ended its answer without any choice")
		e.Sent = true
		return e
	case b.begun != b.finished:
		e := llm.Errorf(llm.Stalled, "the answer broke off: the model's server ended it without a finish_reason")
		e.Code, e.Sent = "incomplete_stream", true
		return e
	}
	return nil
}

// late takes a fault of the stream: after the finish it ends what was whole already, before it it is what it is.
func (b *base) late(finished bool, err error) error {
	if finished {
		b.seen.Done = true
		return nil
	}
	return err
}

func broken(data []byte, err error) error {
	e := llm.Errorf(llm.Stalled, "the answer broke off: the model's server sent an event that is not valid JSON")
	e.Code, e.Sent, e.Err = "incomplete_stream", true, err
	return e
}

// passing forwards whole events as they were and mends what must be.
type passing struct {
	base
	out     []byte // rewritten events, when the run of untouched ones is broken
	run     llm.Span
	id      []byte // raw, of the first chunk that had one
	created []byte
	calls   []passedCalls
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
		if err := p.event(&f); err != nil {
			return p.flush(), err
		}
	}
	return p.flush(), nil
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

// rewrite forwards data with edits as an event of one line.
func (p *passing) rewrite(data []byte, edits []llm.Edit) {
	p.out = append(p.out, p.frames.Raw(p.run)...)
	p.run = llm.Span{}
	p.out = append(p.out, "data: "...)
	from := len(p.out)
	p.out = llm.Splice(p.out, data, edits)
	for i := from; i < len(p.out); i++ {
		if p.out[i] == '\n' || p.out[i] == '\r' { // between tokens: an event of several data lines
			p.out[i] = ' '
		}
	}
	p.out = append(p.out, "\n\n"...)
}

func (p *passing) event(f *llm.Frame) error {
	if f.Empty {
		if f.Plain && p.seen.Content && !p.seen.Done {
			p.keep(f.At)
		}
		return nil
	}
	if p.seen.Done {
		return nil
	}
	if text, ok := p.known(f.Data); ok {
		if text.From < text.To {
			p.content()
			p.resume(p.seen.Finished, true)
		}
		if f.Plain {
			p.keep(f.At)
		} else {
			p.rewrite(f.Data, nil)
		}
		return nil
	}
	data := bytes.TrimSpace(f.Data)
	if len(data) == 0 {
		return nil
	}
	if string(data) == "[DONE]" {
		p.seen.Done = true
		return nil
	}
	finished := p.seen.Finished
	if err := p.walker.walk(f.Data); err != nil {
		return p.late(finished, broken(f.Data, err))
	}
	c := &p.walker.chunk
	if isFault(f, c) {
		return p.late(finished, &llm.Fault{Data: bytes.Clone(c.data)})
	}
	p.note(c)
	p.resume(finished, c.content)
	if c.count == 0 && !c.usage.IsZero() && p.hide {
		if c.timings.IsZero() || c.choices.IsZero() {
			return nil
		}
		// llama.cpp moves its timings to the usage chunk when usage is asked for: who did not ask gets them all the same.
		c.edits = append(c.edits, llm.Edit{At: c.usage, With: []byte("null")}, llm.Edit{At: c.choices, With: noChoice(p.op)})
	}
	p.mend(c)
	if f.Plain && len(c.edits) == 0 {
		p.learn(c)
		p.keep(f.At)
		return nil
	}
	p.rewrite(c.data, c.edits)
	return nil
}

// once takes a choice, and takes back the finish of one that has finished already: a client gets one end.
func (p *passing) once(c *choice) error {
	if !c.finish.IsZero() && p.finished&(1<<(c.n&63)) != 0 {
		p.walker.edits = append(p.walker.edits, llm.Edit{At: c.finish, With: []byte("null")})
	}
	if !c.calls.IsZero() {
		p.renumber(c)
	}
	p.choice(c)
	return nil
}

// isFault reports an error object in place of a chunk.
func isFault(f *llm.Frame, c *chunk) bool {
	return !c.fault.IsZero() || isFlatFault(c) || string(f.Name) == "error" && c.choices.IsZero()
}

// isFlatFault reports an error without an error member: the flat shape of vLLM and SGLang.
func isFlatFault(c *chunk) bool {
	return c.choices.IsZero() && !c.object.IsZero() && string(c.object.Of(c.data)) == `"error"`
}

// mend adds to c.edits what makes the chunk one of a single, well-formed stream.
func (p *passing) mend(c *chunk) {
	front := []byte(nil)
	add := func(name, raw string) { front = append(append(append(front, '"'), name...), `":`+raw+","...) }
	switch {
	case isBlank(c.id.Of(c.data)):
		if p.id == nil {
			p.id = llm.AppendQuoted(nil, prefix(p.op)+rand.Text())
		}
		p.set(c, c.id, "id", p.id, add)
	case p.id == nil:
		p.id = bytes.Clone(c.id.Of(c.data))
	case !bytes.Equal(p.id, c.id.Of(c.data)):
		p.set(c, c.id, "id", p.id, add)
	}
	switch v := c.created.Of(c.data); {
	case c.created.IsZero() || count(v) <= 0:
		if p.created == nil {
			p.created = strconv.AppendInt(nil, time.Now().Unix(), 10)
		}
		p.set(c, c.created, "created", p.created, add)
	case p.created == nil:
		p.created = bytes.Clone(v)
	case !bytes.Equal(p.created, v):
		p.set(c, c.created, "created", p.created, add)
	}
	if isBlank(c.object.Of(c.data)) {
		p.set(c, c.object, "object", []byte(`"`+object(p.op, true)+`"`), add)
	}
	if c.choices.IsZero() || isNull(c.choices.Of(c.data)) {
		p.set(c, c.choices, "choices", []byte("[]"), add)
	}
	if v := c.model.Of(c.data); isBlank(v) || isPath(v) {
		p.set(c, c.model, "model", llm.AppendQuoted(nil, p.name), add)
	}
	if front != nil {
		at := bytes.IndexByte(c.data, '{') + 1
		if bytes.TrimSpace(c.data[at:])[0] == '}' {
			front = front[:len(front)-1] // no member follows
		}
		c.edits = append(c.edits, llm.Edit{At: llm.Span{From: at, To: at}, With: front})
	}
	sortEdits(c.edits)
}

func (p *passing) set(c *chunk, at llm.Span, name string, raw []byte, add func(name, raw string)) {
	if at.IsZero() {
		add(name, string(raw))
		return
	}
	c.edits = append(c.edits, llm.Edit{At: at, With: raw})
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
	return append(out[:len(out):len(out)], "data: [DONE]\n\n"...), nil
}

// noChoice are the choices of a chunk that tells nothing of the answer. Clients that did not ask for usage index choices[0].
func noChoice(op llm.Op) []byte {
	if op == llm.Completions {
		return []byte(`[{"index":0,"text":"","finish_reason":null}]`)
	}
	return []byte(`[{"index":0,"delta":{},"finish_reason":null}]`)
}

// isEntire reports whether the rest of a body is an event that only lacks its end. Half of one tells nothing, a finish
// in it least of all (C010).
func isEntire(data []byte) bool {
	if string(bytes.TrimSpace(data)) == "[DONE]" {
		return true
	}
	s := llm.NewScanner(data, maxDepth)
	if s.Peek() != '{' {
		return false
	}
	_, err := s.Value()
	return err == nil && s.End() == nil
}

func prefix(op llm.Op) string {
	if op == llm.Completions {
		return "cmpl-"
	}
	return "chatcmpl-"
}

func object(op llm.Op, stream bool) string {
	switch {
	case op == llm.Completions:
		return "text_completion"
	case stream:
		return "chat.completion.chunk"
	}
	return "chat.completion"
}

// isPath reports whether a raw JSON string names a file of the backend's machine.
func isPath(raw []byte) bool {
	s := string(llm.Unquote(raw))
	return strings.HasPrefix(s, "/") || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "~") ||
		strings.Contains(s, `\`) || strings.HasSuffix(s, ".gguf") && strings.Contains(s, "/")
}
