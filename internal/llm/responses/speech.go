package responses

import (
	"bytes"

	"weir/internal/llm"
)

// speech is the open item that is no call: a message or a reasoning item.
type speech struct {
	open     bool
	thinking bool
	id       llm.Text
	n        int    // its item's number
	parts    []byte // that have ended, raw, each with a comma behind it
	count    int64  // of parts that have begun
	part     llm.DeltaKind
	text     []byte // of the open part
	sealed   llm.Text
	lead     []byte // of its deltas, behind the number
}

// names of the events of a part.
type names struct{ added, delta, done, partDone, index, before, after string }

var (
	textNames = names{"response.content_part.added", "response.output_text.delta", "response.output_text.done",
		"response.content_part.done", "content_index", `"text":"`, `","logprobs":[]`}
	refusalNames = names{"response.content_part.added", "response.refusal.delta", "response.refusal.done",
		"response.content_part.done", "content_index", `"refusal":"`, `"`}
	summaryNames = names{"response.reasoning_summary_part.added", "response.reasoning_summary_text.delta", "response.reasoning_summary_text.done",
		"response.reasoning_summary_part.done", "summary_index", `"text":"`, `"`}
)

func (s *speech) names() *names {
	switch s.part {
	case llm.DeltaRefusal:
		return &refusalNames
	case llm.DeltaThinking:
		return &summaryNames
	}
	return &textNames
}

// appendPart appends the open part with a text.
func (s *speech) appendPart(dst, text []byte) []byte {
	switch s.part {
	case llm.DeltaRefusal:
		return appendRefusal(dst, text)
	case llm.DeltaThinking:
		return append(append(append(dst, `{"type":"summary_text","text":"`...), text...), `"}`...)
	}
	return appendText(dst, text)
}

func (s *speech) append(dst []byte, status string) []byte {
	if s.thinking {
		var text llm.Text
		if len(s.parts) > 0 {
			text = s.text
		}
		return appendReasoning(dst, s.id, text, s.sealed, true)
	}
	return appendMessage(dst, s.id, status, closed(s.parts))
}

// say puts a piece of text, a refusal or thinking where it belongs, and opens what is not open yet.
func (w *writer) say(d *llm.Delta) {
	s := &w.said
	w.refused = w.refused || d.Kind == llm.DeltaRefusal
	if !s.open || s.thinking != (d.Kind == llm.DeltaThinking) {
		w.finishSpeech("completed")
		w.openSpeech(d.Kind == llm.DeltaThinking)
	}
	if s.part != d.Kind {
		w.endPart()
		w.openPart(d.Kind)
	}
	s.text = append(s.text, d.Text...)
	if w.stream {
		w.event(s.names().delta)
		w.raw(s.lead)
		w.raw(d.Text)
		if s.part == llm.DeltaText {
			w.str(`","logprobs":[]`)
		} else {
			w.str(`"`)
		}
		w.close()
	}
}

func (w *writer) openSpeech(thinking bool) {
	s := &w.said
	*s = speech{open: true, thinking: thinking, parts: s.parts[:0], text: s.text[:0], lead: s.lead[:0]}
	if thinking {
		s.id = newID("rs_")
	} else {
		s.id = newID("msg_")
	}
	s.n = w.item(s.append(nil, "in_progress"))
}

func (w *writer) openPart(kind llm.DeltaKind) {
	s := &w.said
	s.part = kind
	at := numbered(place(s.id, s.n), s.names().index, s.count)
	s.count++
	s.text = s.text[:0]
	s.lead = append(append(s.lead[:0], at...), `"delta":"`...)
	if w.stream {
		w.event(s.names().added)
		w.raw(at)
		w.str(`"part":`)
		w.out = s.appendPart(w.out, nil)
		w.close()
	}
}

// endPart ends the open part, where one is.
func (w *writer) endPart() {
	s := &w.said
	if s.part == 0 {
		return
	}
	if w.stream {
		names := s.names()
		at := s.lead[:len(s.lead)-len(`"delta":"`)]
		w.event(names.done)
		w.raw(at)
		w.str(names.before)
		w.raw(s.text)
		w.str(names.after)
		w.close()
		w.event(names.partDone)
		w.raw(at)
		w.str(`"part":`)
		w.out = s.appendPart(w.out, s.text)
		w.close()
	}
	s.parts = append(s.appendPart(s.parts, s.text), ',')
	s.part = 0
}

// finishSpeech ends the open message or reasoning item, where one is.
func (w *writer) finishSpeech(status string) {
	s := &w.said
	if !s.open {
		return
	}
	w.endPart()
	s.open = false
	w.ended(s.n, s.append(nil, status))
}

// seal keeps thinking that cannot be read, where it is of this dialect's kind; that of another vendor is worth nothing
// here. It belongs to the thinking before it, or stands alone.
func (w *writer) seal(d *llm.Delta) {
	if string(d.Name) != "encrypted" || len(d.Text) == 0 {
		return
	}
	w.settle()
	if s := &w.said; !s.open || !s.thinking || s.sealed != nil {
		w.finishSpeech("completed")
		w.openSpeech(true)
	}
	w.said.sealed = bytes.Clone(d.Text)
}

// call takes a call that begins.
func (w *writer) call(d *llm.Delta) {
	prefix := "fc_"
	if d.Custom {
		prefix = "ctc_"
	}
	c := &callUnder{n: -1, callItem: callItem{id: newID(prefix), callID: bytes.Clone(d.ID), name: bytes.Clone(d.Name), custom: d.Custom}}
	if len(c.callID) == 0 {
		c.callID = newID("call_")
	}
	w.calls = append(w.calls, c)
}

// input takes a piece of a call's arguments.
func (w *writer) input(d *llm.Delta) {
	if d.Call < w.open || d.Call >= len(w.calls) || len(d.Text) == 0 {
		return // of a call that has ended: white space behind its arguments
	}
	c := w.calls[d.Call]
	c.input = append(c.input, d.Text...)
	if !c.custom {
		c.balance.Add(d.Text)
	}
	w.advance()
}

// advance tells what can be told of the calls: the first that has not ended, and the next once that is whole.
func (w *writer) advance() {
	for w.open < len(w.calls) {
		c := w.calls[w.open]
		w.tell(c)
		if w.open == len(w.calls)-1 || c.custom || !c.balance.Whole() {
			return
		}
		w.finishCall("completed")
	}
}

// settle ends the open call where its arguments are whole, as something else begins. One that is not whole stays open:
// items are numbered, so another may be told beside it.
func (w *writer) settle() {
	if w.open == len(w.calls)-1 && w.calls[w.open].balance.Whole() {
		w.finishCall("completed")
	}
}

// tell tells that a call has begun, and what of its arguments was not told.
func (w *writer) tell(c *callUnder) {
	if c.n < 0 {
		c.n = w.item(c.append(nil, "in_progress", nil))
		c.lead = place(c.id, c.n)
	}
	if c.told == len(c.input) {
		return
	}
	if w.stream {
		if c.custom {
			w.event("response.custom_tool_call_input.delta")
		} else {
			w.event("response.function_call_arguments.delta")
		}
		w.raw(c.lead)
		w.str(`"delta":"`)
		w.raw(c.input[c.told:])
		w.str(`"`)
		w.close()
	}
	c.told = len(c.input)
}

// finishCall ends the first call that has not.
func (w *writer) finishCall(status string) {
	c := w.calls[w.open]
	if len(c.input) == 0 && !c.custom && status == "completed" {
		c.input = append(c.input, "{}"...)
	}
	w.tell(c)
	w.open++
	if w.stream {
		if c.custom {
			w.event("response.custom_tool_call_input.done")
			w.raw(c.lead)
			w.str(`"input":"`)
		} else {
			w.event("response.function_call_arguments.done")
			w.raw(c.lead)
			w.str(`"name":"`)
			w.raw(c.name)
			w.str(`","arguments":"`)
		}
		w.raw(c.input)
		w.str(`"`)
		w.close()
	}
	w.ended(c.n, c.append(nil, status, c.input))
}

// finishCalls ends the calls that are left. Of an answer that was cut by its limit only the last is incomplete.
func (w *writer) finishCalls(status string) {
	for w.open < len(w.calls) {
		s := status
		if w.calls[w.open].balance.Whole() {
			s = "completed"
		}
		w.finishCall(s)
	}
}
