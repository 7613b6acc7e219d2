package openai

import (
	"bytes"
	"crypto/rand"

	"weir/internal/llm"
)

// Source returns what reads a Chat Completions answer. Of several choices it reads the first.
func (Dialect) Source() llm.Source {
	s := new(source)
	s.seen.Usage = llm.NoUsage
	s.walker.each = s.take
	return s
}

// source reads one answer.
type source struct {
	base
	put     func(*llm.Delta)
	d       llm.Delta     // what is passed on, used again and again
	kind    llm.DeltaKind // of the text in plain chunks
	now     choice        // the first choice of the chunk
	has     bool
	started bool
	named   bool // the model was told
	thought bool // thinking came as text: the block behind it holds the same once more
	stopped bool
	numbers numbering
	calls   []*called
	passed  int // calls that were passed on
}

// called is one call of the answer.
type called struct {
	n      int // as it was passed on, -1 before that
	custom bool
	id     llm.Text
	held   llm.Text // arguments that came before the name
}

// take keeps the first choice until the chunk is read: its frame is passed on before it.
func (s *source) take(c *choice) error {
	if c.n == 0 {
		s.now, s.has = *c, true
	}
	return nil
}

func (s *source) send(d llm.Delta) {
	s.d = d
	s.put(&s.d)
}

// Event takes one event of a stream.
func (s *source) Event(f *llm.Frame, put func(*llm.Delta)) error {
	s.put = put
	if text, ok := s.known(f.Data); ok && s.kind != 0 {
		s.text(s.kind, text.Of(f.Data)) // of thinking too: its first chunk was walked
		return nil
	}
	data := bytes.TrimSpace(f.Data)
	if len(data) == 0 {
		return nil
	}
	if string(data) == "[DONE]" {
		s.send(llm.Delta{Kind: llm.DeltaDone})
		return nil
	}
	s.has = false
	if err := s.walker.walk(f.Data); err != nil {
		return broken(f.Data, err)
	}
	c := &s.walker.chunk
	if isFault(f, c) {
		return &llm.Fault{Data: bytes.Clone(c.data)}
	}
	s.start(c)
	if s.has {
		s.delta(s.now.delta.Of(c.data))
		s.frame(c)
		if err := s.finish(c); err != nil {
			return err
		}
	}
	s.count(c)
	return nil
}

// frame remembers how a plain chunk looks around its text.
func (s *source) frame(c *chunk) {
	if !c.plain {
		return
	}
	s.learn(c)
	switch string(c.field) {
	case "content":
		s.kind = llm.DeltaText
	case "reasoning_content", "reasoning":
		s.kind = llm.DeltaThinking
	case "refusal":
		s.kind = llm.DeltaRefusal
	default:
		s.kind = 0
	}
}

// Whole takes an answer that came in one piece.
func (s *source) Whole(body []byte, put func(*llm.Delta)) error {
	s.put, s.has = put, false
	data := bytes.TrimSpace(body)
	if len(data) == 0 {
		return refused("the model's server answered with an empty body")
	}
	if err := s.walker.walk(data); err != nil {
		e := refused("the model's server answered with something that is not valid JSON")
		e.Err = err
		return e
	}
	c := &s.walker.chunk
	if !c.fault.IsZero() || isFlatFault(c) {
		return &llm.Fault{Data: bytes.Clone(data)}
	}
	if !s.has {
		return refused("the model's server answered without any choice")
	}
	s.start(c)
	members(s.now.at.Of(data), func(name, v []byte) {
		if string(name) == "message" {
			s.delta(v)
		}
	})
	if err := s.finish(c); err != nil {
		return err
	}
	s.count(c)
	s.send(llm.Delta{Kind: llm.DeltaDone})
	return nil
}

// start tells the answer's id and model once they are known. A model that is a file's path is not shown.
func (s *source) start(c *chunk) {
	id, model := llm.Inside(c.id.Of(c.data)), llm.Inside(c.model.Of(c.data))
	if len(model) > 0 && isPath(c.model.Of(c.data)) {
		model = nil
	}
	if s.named || s.started && len(model) == 0 {
		return
	}
	s.started, s.named = true, len(model) > 0
	s.send(llm.Delta{Kind: llm.DeltaStart, ID: id, Model: model})
}

// count tells the tokens, and how fast the prompt was read where the server says so.
func (s *source) count(c *chunk) {
	if c.usage.IsZero() && c.timings.IsZero() {
		return
	}
	s.note(c)
	s.send(llm.Delta{Kind: llm.DeltaUsage, Usage: s.seen.Usage})
	if !c.timings.IsZero() && s.seen.PromptN > 0 {
		s.send(llm.Delta{Kind: llm.DeltaPrefill, Prefill: s.seen.Prefill, PromptN: s.seen.PromptN})
	}
}

// text passes a piece of text on; an empty one is none.
func (s *source) text(kind llm.DeltaKind, t llm.Text) {
	if len(t) == 0 {
		return
	}
	s.stopped = false
	s.send(llm.Delta{Kind: kind, Text: t})
}

// delta passes on what a delta or a message holds: thinking, words, calls, in this order.
func (s *source) delta(v []byte) {
	var content, refusal, reasoning, thought, blocks, calls, old []byte
	members(v, func(name, v []byte) {
		switch string(name) {
		case "content":
			content = v
		case "refusal":
			refusal = v
		case "reasoning_content":
			reasoning = v
		case "reasoning":
			thought = v
		case "thinking_blocks":
			blocks = v
		case "tool_calls":
			calls = v
		case "function_call":
			old = v
		}
	})
	if reasoning = llm.Inside(reasoning); len(reasoning) == 0 {
		reasoning = llm.Inside(thought) // where both names are set they hold the same (C161)
	}
	s.thinking(reasoning, blocks)
	if t := llm.Inside(content); t != nil {
		s.text(llm.DeltaText, t)
	} else { // Mistral's models stream lists of parts
		each(content, func(_ int, e []byte) {
			b := blockOf(e)
			if b.text != nil {
				s.text(llm.DeltaText, llm.Inside(b.text))
			} else if p := b.thinking(); p.Kind != 0 {
				s.text(llm.DeltaThinking, p.Text)
			}
		})
	}
	s.text(llm.DeltaRefusal, llm.Inside(refusal))
	deltas(calls, func(_ []byte, d *callDelta) { s.call(d) })
	if len(old) > 0 && old[0] == '{' {
		s.call(&callDelta{function: old, named: hasName(old)})
	}
}

// thinking passes on what was thought. It may come as text, as blocks, as both at once or as text first and then once
// more as a block: that is told once, and what seals it as well.
func (s *source) thinking(t llm.Text, blocks []byte) {
	told := s.thought
	if !told {
		each(blocks, func(_ int, e []byte) {
			b := blockOf(e)
			told = told || len(b.thinking().Text) > 0
		})
		told = !told
	}
	if told && len(t) > 0 {
		s.thought = true
		s.text(llm.DeltaThinking, t)
	}
	each(blocks, func(_ int, e []byte) {
		b := blockOf(e)
		p := b.thinking()
		if !told {
			s.text(llm.DeltaThinking, p.Text)
		}
		switch {
		case len(p.Signature) > 0:
			s.thought = false
			s.send(llm.Delta{Kind: llm.DeltaSignature, Text: p.Signature})
		case len(p.Redacted) > 0:
			s.send(llm.Delta{Kind: llm.DeltaSealed, Text: p.Redacted, Name: llm.Text("redacted")})
		case len(p.Encrypted) > 0:
			s.send(llm.Delta{Kind: llm.DeltaSealed, Text: p.Encrypted, Name: llm.Text("encrypted")})
		}
	})
}

// call passes on a piece of a call. It begins once its name is known; arguments that came before wait for it.
func (s *source) call(d *callDelta) {
	k, begins := s.numbers.open(d)
	if begins {
		s.calls = append(s.calls, &called{n: -1})
	}
	c := s.calls[k]
	if t := llm.Inside(d.id); len(c.id) == 0 && len(t) > 0 {
		c.id = bytes.Clone(t)
	}
	f := d.function
	if len(f) == 0 || isNull(f) {
		f = d.custom
		c.custom = c.custom || len(f) > 0 && !isNull(f)
	}
	p := llm.Part{}
	function(&p, f)
	if c.n < 0 && len(p.Name) > 0 {
		s.open(c, p.Name)
	}
	in := p.Input.Spelt
	if p.Input.Object != nil {
		in = llm.Escaped(p.Input.Object)
	}
	if c.n < 0 {
		c.held = append(c.held, in...)
	} else {
		s.input(c, in)
	}
}

func (s *source) open(c *called, name llm.Text) {
	if len(c.id) == 0 {
		c.id = llm.Text("call_" + rand.Text())
	}
	c.n = s.passed
	s.passed++
	s.stopped = false
	s.send(llm.Delta{Kind: llm.DeltaCall, Call: c.n, ID: c.id, Name: name, Custom: c.custom})
	s.input(c, c.held)
	c.held = nil
}

func (s *source) input(c *called, t llm.Text) {
	if len(t) > 0 {
		s.stopped = false
		s.send(llm.Delta{Kind: llm.DeltaInput, Call: c.n, Text: t})
	}
}

// finish passes on why the answer ended, once. Some servers write their reason into every chunk.
func (s *source) finish(c *chunk) error {
	if s.now.finish.IsZero() || s.stopped {
		return nil
	}
	for _, k := range s.calls {
		if k.n < 0 && len(k.held)+len(k.id) > 0 {
			s.open(k, llm.Text(llm.UnnamedTool))
		}
	}
	d := llm.Delta{Kind: llm.DeltaFinish, Stop: llm.StopEnd}
	switch string(s.now.finish.Of(c.data)) {
	case `"length"`, `"max_tokens"`:
		d.Stop = llm.StopLength
	case `"content_filter"`:
		d.Stop = llm.StopRefused
	case `"abort"`, `"error"`:
		e := llm.Errorf(llm.Stalled, "the answer broke off: the model's server gave it up")
		e.Code, e.Sent = "incomplete_stream", true
		return e
	default:
		if d.Sequence = s.sequence(c); d.Sequence != nil {
			d.Stop = llm.StopSequence
		}
		if s.passed > 0 { // what some call stop; and a reason alone makes no call (C043)
			d.Stop = llm.StopCalls
		}
	}
	s.stopped = true
	s.send(d)
	return nil
}

// sequence returns the stop sequence that was met, where the server says so.
func (s *source) sequence(c *chunk) (t llm.Text) {
	if !s.now.extra {
		return nil
	}
	members(s.now.at.Of(c.data), func(name, v []byte) {
		if string(name) == "stop_reason" || string(name) == "matched_stop" { // vLLM, SGLang
			if in := llm.Inside(v); len(in) > 0 {
				t = in
			}
		}
	})
	return t
}
