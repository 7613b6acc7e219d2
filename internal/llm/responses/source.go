package responses

import (
	"bytes"

	"weir/internal/llm"
)

// Source returns what reads an answer of this dialect as deltas.
func (Dialect) Source() llm.Source { return &source{} }

// source turns events into deltas.
type source struct {
	event   event
	items   []heard
	calls   int
	refused bool
	put     func(*llm.Delta)
	delta   llm.Delta // of the call under way: one for all, as it is passed by its address
}

// heard is an item of which something was put.
type heard struct {
	index   int64 // -1: the server does not number its items
	id      llm.Text
	call    int  // its number, -1: none was put
	said    bool // its text was put, or some of it
	piece   kind // of its thinking: the text or the summary, whichever came first
	summary bool // another part of its summary begins
}

// Event takes one event of a stream. An error object is returned as a *llm.Fault, what cannot be read as an *llm.Error.
func (s *source) Event(f *llm.Frame, put func(*llm.Delta)) error {
	s.put = put
	data := bytes.TrimSpace(f.Data)
	switch {
	case len(data) == 0:
		return nil
	case string(data) == "[DONE]": // not of this dialect, yet some servers send it
		s.say(llm.Delta{Kind: llm.DeltaDone})
		return nil
	}
	e := &s.event
	if err := e.read(f); err != nil {
		return &llm.Error{Kind: llm.Stalled, Op: "responses.Event", Code: "incomplete_stream", Sent: true, Err: err,
			Msg: "the answer broke off: the model's server sent an event that is not valid JSON"}
	}
	switch {
	case e.kind == fault:
		return &llm.Fault{Data: flatFault(e)}
	case e.kind == created:
		return s.start(e.response.Of(e.data))
	case e.kind == itemAdded || e.kind == itemDone:
		s.item(e.item.Of(e.data), e.kind == itemDone)
	case e.kind.ofItem():
		s.within()
	case e.kind >= completed:
		return s.end(e.response.Of(e.data), e.kind)
	}
	return nil
}

func (s *source) say(d llm.Delta) {
	s.delta = d
	s.put(&s.delta)
}

func (s *source) start(v []byte) error {
	a, err := readAnswer(v)
	if err != nil {
		return nil
	}
	if err := a.over(created, "responses.Event", len(s.items) > 0); err != nil {
		return err
	}
	s.say(llm.Delta{Kind: llm.DeltaStart, ID: llm.Inside(a.id.Of(v)), Model: llm.Inside(a.model.Of(v))})
	return nil
}

// find returns the item that an event is about: by its number, else by its id, else the one that came last.
func (s *source) find(id llm.Text, fresh bool) *heard {
	index := int64(-1)
	if n, ok := llm.Int(s.event.output.Of(s.event.data)); ok {
		index = n
	}
	if index < 0 && len(id) == 0 && !fresh && len(s.items) > 0 {
		return &s.items[len(s.items)-1]
	}
	for i := len(s.items) - 1; i >= 0; i-- {
		it := &s.items[i]
		if index >= 0 && it.index == index || index < 0 && len(id) > 0 && bytes.Equal(it.id, id) {
			return it
		}
	}
	s.items = append(s.items, heard{index: index, id: bytes.Clone(id), call: -1})
	return &s.items[len(s.items)-1]
}

// item takes an item that begins or ends. Of one that ended, all is put that no event before it has told.
func (s *source) item(v []byte, done bool) {
	in := readOutput(v)
	it := s.find(in.id, !done)
	switch in.kind {
	case "message":
		if done && !it.said {
			it.said = s.message(in.content)
		}
	case "reasoning":
		if done {
			s.reasoning(it, &in)
		}
	case "function_call", "custom_tool_call":
		s.call(it, &in, done)
	}
}

// call begins a call once it has a name, and puts its arguments where only its end has them.
func (s *source) call(it *heard, in *outputItem, done bool) {
	if it.call < 0 && (len(in.name) > 0 || done) {
		it.call = s.calls
		s.calls++
		id := in.callID
		if len(id) == 0 {
			id = in.id
		}
		s.say(llm.Delta{Kind: llm.DeltaCall, Call: it.call, ID: id, Name: in.name, Custom: in.kind == "custom_tool_call"})
	}
	if done && !it.said && it.call >= 0 && len(in.arguments) > 0 {
		it.said = true
		s.say(llm.Delta{Kind: llm.DeltaInput, Call: it.call, Text: in.arguments})
	}
}

// message puts the parts of a whole message and reports whether there were any.
func (s *source) message(content []byte) (said bool) {
	elements(content, func(_ int, v []byte) {
		kind, text := llm.DeltaText, llm.Inside(member(v, "text"))
		if string(llm.Unquote(member(v, "type"))) == "refusal" {
			kind, text = llm.DeltaRefusal, llm.Inside(member(v, "refusal"))
			s.refused = true
		}
		if len(text) > 0 {
			said = true
			s.say(llm.Delta{Kind: kind, Text: text})
		}
	})
	return said
}

// reasoning puts the thinking of a whole item, and what is sealed beside it.
func (s *source) reasoning(it *heard, in *outputItem) {
	if !it.said {
		list := in.content
		if len(list) <= len("[]") {
			list = in.summary
		}
		elements(list, func(_ int, v []byte) {
			if text := llm.Inside(member(v, "text")); len(text) > 0 {
				s.think(it, text, it.said)
			}
		})
	}
	if len(in.encrypted) > 0 {
		s.say(llm.Delta{Kind: llm.DeltaSealed, Name: llm.Text("encrypted"), Text: in.encrypted})
	}
}

// think puts a piece of thinking, in a paragraph of its own where it begins a new part.
func (s *source) think(it *heard, text llm.Text, apart bool) {
	if apart {
		s.say(llm.Delta{Kind: llm.DeltaThinking, Text: llm.Text(paragraph)})
	}
	it.said = true
	s.say(llm.Delta{Kind: llm.DeltaThinking, Text: text})
}

// within takes an event about a piece of an item.
func (s *source) within() {
	e := &s.event
	it := s.find(llm.Inside(e.itemID.Of(e.data)), false)
	text := e.piece()
	switch e.kind {
	case textDone, refusalDone, thoughtDone, summaryDone, argumentsDone, inputDone:
		if it.said || (e.kind == thoughtDone || e.kind == summaryDone) {
			return // the item's end says it again
		}
		text = e.whole()
	}
	if len(text) == 0 {
		if e.kind == summaryPart && it.said && it.piece == summaryDelta {
			it.summary = true
		}
		return
	}
	switch e.kind {
	case textDelta, textDone:
		it.said = true
		s.say(llm.Delta{Kind: llm.DeltaText, Text: text})
	case refusalDelta, refusalDone:
		it.said, s.refused = true, true
		s.say(llm.Delta{Kind: llm.DeltaRefusal, Text: text})
	case thoughtDelta, summaryDelta:
		if it.piece == other {
			it.piece = e.kind
		}
		if it.piece == e.kind { // a server that sends both says the same twice
			s.think(it, text, it.summary)
			it.summary = false
		}
	case argumentsDelta, argumentsDone, inputDelta, inputDone:
		if it.call >= 0 {
			it.said = true
			s.say(llm.Delta{Kind: llm.DeltaInput, Call: it.call, Text: text})
		}
	}
}

// end takes the response that a stream ends with.
func (s *source) end(v []byte, k kind) error {
	a, err := readAnswer(v)
	if err != nil && k != failed && k != cancelled {
		return &llm.Error{Kind: llm.Stalled, Op: "responses.Event", Code: "incomplete_stream", Sent: true, Err: err,
			Msg: "the answer broke off: the model's server ended it without the response"}
	}
	if err := a.over(k, "responses.Event", len(s.items) > 0); err != nil {
		return err
	}
	if len(s.items) == 0 {
		s.output(a.items())
	}
	s.finish(&a, k)
	s.say(llm.Delta{Kind: llm.DeltaDone})
	return nil
}

// output puts the items of an answer that came in one piece.
func (s *source) output(list []byte) {
	s.event = event{}
	elements(list, func(_ int, v []byte) {
		in := readOutput(v)
		s.items = append(s.items, heard{index: -1, call: -1})
		it := &s.items[len(s.items)-1]
		switch in.kind {
		case "message":
			s.message(in.content)
		case "reasoning":
			s.reasoning(it, &in)
		case "function_call", "custom_tool_call":
			s.call(it, &in, true)
		}
	})
}

// finish says why the answer ended and what it cost (C073).
func (s *source) finish(a *answer, k kind) {
	if u := usageOf(a.usage.Of(a.data)); u != llm.NoUsage {
		s.say(llm.Delta{Kind: llm.DeltaUsage, Usage: u})
	}
	stop := llm.StopEnd
	switch {
	case k == incomplete || string(a.status.Of(a.data)) == `"incomplete"`:
		stop = llm.StopLength
		if string(member(a.details.Of(a.data), "reason")) == `"content_filter"` {
			stop = llm.StopRefused
		}
	case s.calls > 0:
		stop = llm.StopCalls
	case s.refused:
		stop = llm.StopRefused
	}
	s.say(llm.Delta{Kind: llm.DeltaFinish, Stop: stop})
}

// Whole takes an answer that came in one piece.
func (s *source) Whole(body []byte, put func(*llm.Delta)) error {
	s.put = put
	data, a, err := wholeAnswer(body)
	if err != nil {
		return err
	}
	s.say(llm.Delta{Kind: llm.DeltaStart, ID: llm.Inside(a.id.Of(data)), Model: llm.Inside(a.model.Of(data))})
	s.output(a.items())
	s.finish(&a, completed)
	return nil
}

// outputItem is an item of an answer. Texts are the insides of strings.
type outputItem struct {
	kind                                   string
	id, callID, name, arguments, encrypted llm.Text
	content, summary                       []byte
}

func readOutput(v []byte) outputItem {
	var in outputItem
	s := llm.NewScanner(v, anyDepth)
	if s.Peek() != '{' {
		return in
	}
	_ = s.Members(func(name []byte) error {
		at, err := s.Value()
		m := at.Of(v)
		switch string(name) {
		case "type":
			in.kind = string(llm.Unquote(m))
		case "id":
			in.id = llm.Inside(m)
		case "call_id":
			in.callID = llm.Inside(m)
		case "name":
			in.name = llm.Inside(m)
		case "arguments", "input":
			if in.arguments = llm.Inside(m); in.arguments == nil && len(m) > 0 && m[0] == '{' { // an object, of servers that spell none
				in.arguments = llm.Escaped(m)
			}
		case "content":
			in.content = m
		case "summary":
			in.summary = m
		case "encrypted_content":
			in.encrypted = llm.Inside(m)
		}
		return err
	})
	return in
}
