package anthropic

import (
	"bytes"

	"weir/internal/llm"
)

// Source returns what reads an answer of this dialect.
func (Dialect) Source() llm.Source { return &upstream{counts: noCounts} }

// upstream reads the answer of one upstream as deltas.
type upstream struct {
	walker walker
	counts counts
	blocks []reading
	calls  int
	delta  llm.Delta
}

// reading is a block under way.
type reading struct {
	index     int64
	call      int // which, -1 for a block that is no call of the client's tools
	input     llm.Raw
	begun     bool // a piece of the input has come
	signature llm.Text
	ended     bool
}

// Event takes one event of a stream. An error object is returned as a *llm.Fault, what cannot be read as an *llm.Error.
func (s *upstream) Event(f *llm.Frame, put func(*llm.Delta)) error {
	data := bytes.TrimSpace(f.Data)
	if len(data) == 0 {
		return nil
	}
	if string(data) == "[DONE]" { // other dialects' end mark, which some servers add
		s.put(put, llm.Delta{Kind: llm.DeltaDone})
		return nil
	}
	if err := s.walker.walk(f.Data); err != nil {
		return broken(err)
	}
	e := &s.walker.event
	switch {
	case e.isFault(f.Name):
		return &llm.Fault{Data: bytes.Clone(data)}
	case e.is(blockDelta):
		s.piece(e, put)
	case e.is(messageStart):
		s.start(e, e.inner.Of(e.data), put)
	case e.is(blockStart):
		s.begin(e, put)
	case e.is(blockStop):
		if b := s.block(e); b != nil {
			s.end(b, put)
		}
	case e.is(messageDelta):
		s.finish(e, put)
	case e.is(messageStop):
		s.put(put, llm.Delta{Kind: llm.DeltaDone})
	}
	return nil
}

// put passes a delta on; it is reused, so that a piece costs no memory.
func (s *upstream) put(put func(*llm.Delta), d llm.Delta) {
	s.delta = d
	put(&s.delta)
}

func (s *upstream) start(e *event, usage []byte, put func(*llm.Delta)) {
	s.put(put, llm.Delta{Kind: llm.DeltaStart, ID: llm.Inside(e.id.Of(e.data)), Model: llm.Inside(e.model.Of(e.data))})
	s.count(usage, put)
}

func (s *upstream) count(usage []byte, put func(*llm.Delta)) {
	if usage == nil {
		return
	}
	s.counts.merge(usage)
	s.put(put, llm.Delta{Kind: llm.DeltaUsage, Usage: s.counts.usage()})
}

// block returns the block that an event is about: by its number, or the last where the server gave none; nil for one
// that never began.
func (s *upstream) block(e *event) *reading {
	n, ok := llm.Int(e.index.Of(e.data))
	for i := len(s.blocks) - 1; i >= 0; i-- {
		if b := &s.blocks[i]; !ok || b.index == n {
			return b
		}
	}
	return nil
}

// begin takes the start of a block, which may hold its first piece.
func (s *upstream) begin(e *event, put func(*llm.Delta)) {
	n, ok := llm.Int(e.index.Of(e.data))
	if !ok {
		n = int64(len(s.blocks))
	}
	s.blocks = append(s.blocks, reading{index: n, call: -1})
	b := &s.blocks[len(s.blocks)-1]
	text := llm.Inside(e.text.Of(e.data))
	switch raw := e.block.Of(e.data); string(e.kind.Of(e.data)) {
	case `"text"`:
		s.text(llm.DeltaText, text, put)
	case `"thinking"`:
		s.text(llm.DeltaThinking, text, put)
		b.signature = bytes.Clone(llm.Inside(member(raw, "signature")))
	case `"redacted_thinking"`:
		s.put(put, llm.Delta{Kind: llm.DeltaSealed, Text: text, Name: redacted})
	case `"tool_use"`:
		b.call = s.calls
		s.calls++
		if in := member(raw, "input"); !isEmpty(in) || len(in) > 0 && in[0] != '{' {
			b.input = bytes.Clone(in)
		}
		s.put(put, llm.Delta{Kind: llm.DeltaCall, Call: b.call, ID: llm.Inside(member(raw, "id")), Name: llm.Inside(member(raw, "name"))})
	}
}

// redacted is the kind of sealed thinking that this dialect has.
var redacted = llm.Text("redacted")

func (s *upstream) text(kind llm.DeltaKind, text llm.Text, put func(*llm.Delta)) {
	if len(text) > 0 {
		s.put(put, llm.Delta{Kind: kind, Text: text})
	}
}

// piece takes a delta of a block.
func (s *upstream) piece(e *event, put func(*llm.Delta)) {
	text := llm.Inside(e.text.Of(e.data))
	switch string(e.kind.Of(e.data)) {
	case `"text_delta"`:
		s.text(llm.DeltaText, text, put)
	case `"thinking_delta"`:
		s.text(llm.DeltaThinking, text, put)
	case `"signature_delta"`:
		if b := s.block(e); b != nil {
			b.signature = append(b.signature, llm.Inside(member(e.delta.Of(e.data), "signature"))...)
		}
	case `"input_json_delta"`:
		if b := s.block(e); b != nil && b.call >= 0 && len(text) > 0 {
			b.begun = true
			s.put(put, llm.Delta{Kind: llm.DeltaInput, Call: b.call, Text: text})
		}
	}
}

// end takes the end of a block: what is known only then goes on.
func (s *upstream) end(b *reading, put func(*llm.Delta)) {
	if b.ended {
		return
	}
	b.ended = true
	if len(b.signature) > 0 {
		s.put(put, llm.Delta{Kind: llm.DeltaSignature, Text: b.signature})
	}
	if b.call >= 0 && !b.begun && b.input != nil { // it came whole, with the start
		s.put(put, llm.Delta{Kind: llm.DeltaInput, Call: b.call, Text: spelt(b.input)})
	}
}

// spelt returns the inside of the string that spells an input; one that is a string already is it.
func spelt(input llm.Raw) llm.Text {
	if t := llm.Inside(input); t != nil {
		return t
	}
	return llm.Escaped(input)
}

func (s *upstream) finish(e *event, put func(*llm.Delta)) {
	for i := range s.blocks { // some servers leave the stops out
		s.end(&s.blocks[i], put)
	}
	s.count(e.usage.Of(e.data), put)
	s.stop(e, put)
}

func (s *upstream) stop(e *event, put func(*llm.Delta)) {
	if raw := e.stop.Of(e.data); !isBlank(raw) {
		s.put(put, llm.Delta{Kind: llm.DeltaFinish, Stop: stopOf(raw), Sequence: llm.Inside(e.sequence.Of(e.data))})
	}
}

// stopOf returns the neutral reason (C046). One that is not known yet is an end.
func stopOf(raw []byte) llm.Stop {
	switch string(raw) {
	case `"stop_sequence"`:
		return llm.StopSequence
	case `"max_tokens"`:
		return llm.StopLength
	case `"model_context_window_exceeded"`:
		return llm.StopWindow
	case `"tool_use"`:
		return llm.StopCalls
	case `"refusal"`:
		return llm.StopRefused
	case `"pause_turn"`:
		return llm.StopPaused
	}
	return llm.StopEnd
}

// Whole takes an answer that came in one piece.
func (s *upstream) Whole(body []byte, put func(*llm.Delta)) error {
	b := base{}
	e, err := b.whole(body)
	if err != nil {
		return err
	}
	content := e.content.Of(e.data)
	if len(content) == 0 || content[0] != '[' {
		return refused("the model's server answered without any content")
	}
	s.start(e, e.usage.Of(e.data), put)
	elements(content, func(_ int, at llm.Span) { s.whole(at.Of(content), put) })
	s.stop(e, put)
	s.put(put, llm.Delta{Kind: llm.DeltaDone})
	return nil
}

// whole takes a block that came in one piece.
func (s *upstream) whole(raw []byte, put func(*llm.Delta)) {
	switch string(member(raw, "type")) {
	case `"text"`:
		s.text(llm.DeltaText, llm.Inside(member(raw, "text")), put)
	case `"thinking"`:
		s.text(llm.DeltaThinking, llm.Inside(member(raw, "thinking")), put)
		s.text(llm.DeltaSignature, llm.Inside(member(raw, "signature")), put)
	case `"redacted_thinking"`:
		s.put(put, llm.Delta{Kind: llm.DeltaSealed, Text: llm.Inside(member(raw, "data")), Name: redacted})
	case `"tool_use"`:
		call := s.calls
		s.calls++
		s.put(put, llm.Delta{Kind: llm.DeltaCall, Call: call, ID: llm.Inside(member(raw, "id")), Name: llm.Inside(member(raw, "name"))})
		if input := member(raw, "input"); len(input) > 0 {
			s.put(put, llm.Delta{Kind: llm.DeltaInput, Call: call, Text: spelt(input)})
		}
	}
}
