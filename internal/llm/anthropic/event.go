package anthropic

import (
	"bytes"
	"strings"

	"weir/internal/llm"
)

// maxDepth bounds the nesting of what upstreams send.
const maxDepth = 512

// The events of a stream.
const (
	messageStart = "message_start"
	blockStart   = "content_block_start"
	blockDelta   = "content_block_delta"
	blockStop    = "content_block_stop"
	messageDelta = "message_delta"
	messageStop  = "message_stop"
)

// event is what the walk of one event's data, or of a whole message, found. Spans are places in data; zero means absent.
type event struct {
	data                                     []byte
	typ, index, message, block, delta, usage llm.Span
	fault, object                            llm.Span
	id, model                                llm.Span // of the message
	inner, kind                              llm.Span // usage of the message in message_start; type of the block or delta
	text                                     llm.Span // text, thinking or partial_json of the delta or the block
	stop, sequence                           llm.Span
	content                                  llm.Span // of a whole message, and input_tokens of a count
	tokens                                   llm.Span
	members                                  int // of the event
	parts                                    int // of its delta
}

// walker walks events. It is reused from event to event.
type walker struct {
	event
	s llm.Scanner
}

// walk reads data strictly. Errors are syntax errors: the event is no JSON object.
func (w *walker) walk(data []byte) error {
	w.event = event{data: data}
	w.s = llm.NewScanner(data, maxDepth)
	if err := w.s.Members(w.member); err != nil {
		return err
	}
	return w.s.End()
}

func (w *walker) member(name []byte) error {
	w.members++
	from := w.s.Offset()
	if w.s.Peek() == '{' {
		var f func([]byte) error
		var at *llm.Span
		switch string(name) {
		case "message":
			f, at = w.messageMember, &w.message
		case "content_block":
			f, at = w.blockMember, &w.block
		case "delta":
			f, at = w.deltaMember, &w.delta
		}
		if f != nil {
			err := w.s.Members(f)
			*at = llm.Span{From: from, To: w.s.Offset()}
			return err
		}
	}
	at, err := w.s.Value()
	if err != nil || isNull(at.Of(w.data)) {
		return err
	}
	switch string(name) {
	case "type":
		w.typ = at
	case "index":
		w.index = at
	case "usage":
		w.usage = at
	case "error":
		w.fault = at
	case "object":
		w.object = at
	case "content":
		w.content = at
	case "input_tokens":
		w.tokens = at
	case "stop_reason":
		w.stop = at
	case "stop_sequence":
		w.sequence = at
	case "id":
		w.id = at
	case "model":
		w.model = at
	}
	return nil
}

func (w *walker) messageMember(name []byte) error {
	at, err := w.s.Value()
	if err != nil || isNull(at.Of(w.data)) {
		return err
	}
	switch string(name) {
	case "id":
		w.id = at
	case "model":
		w.model = at
	case "usage":
		w.inner = at
	}
	return nil
}

func (w *walker) blockMember(name []byte) error {
	at, err := w.s.Value()
	if err != nil {
		return err
	}
	switch string(name) {
	case "type":
		w.kind = at
	case "text", "thinking", "data":
		if w.data[at.From] == '"' {
			w.text = at
		}
	}
	return nil
}

func (w *walker) deltaMember(name []byte) error {
	w.parts++
	at, err := w.s.Value()
	if err != nil {
		return err
	}
	null := isNull(at.Of(w.data))
	switch string(name) {
	case "type":
		w.kind = at
	case "text", "thinking", "partial_json":
		if w.data[at.From] == '"' {
			w.text = at
		}
	case "stop_reason":
		if !null {
			w.stop = at
		}
	case "stop_sequence":
		if !null {
			w.sequence = at
		}
	}
	return nil
}

// is reports whether the event is of that type.
func (e *event) is(typ string) bool { return isText(e.typ.Of(e.data), typ) }

// isText reports whether raw is the JSON string that spells s, which needs no escapes.
func isText(raw []byte, s string) bool {
	return len(raw) == len(s)+2 && raw[0] == '"' && string(raw[1:len(raw)-1]) == s
}

// plain reports a delta of one text and nothing else that matters.
func (e *event) plain() bool {
	return e.is(blockDelta) && e.members == 3 && e.parts == 2 && !e.index.IsZero() && !e.kind.IsZero() && !e.text.IsZero()
}

// hasText reports a piece of content that is not empty.
func (e *event) hasText() bool { return e.text.To > e.text.From+len(`""`) }

// isCall reports a block that calls a tool, the client's or the vendor's own.
func (e *event) isCall() bool {
	return bytes.HasSuffix(e.kind.Of(e.data), []byte(`tool_use"`))
}

// isFault reports an error object in place of an event or an answer, in Anthropic's shape or in another server's.
func (e *event) isFault(name []byte) bool {
	switch {
	case e.is("error"), !e.fault.IsZero(), string(name) == "error" && e.typ.IsZero():
		return true
	}
	return e.typ.IsZero() && isText(e.object.Of(e.data), "error")
}

// counts are the numbers of tokens as the dialect tells them, which leaves the cached ones out of the input. Negative: unknown.
type counts struct{ in, read, written, out, thinking int64 }

var noCounts = counts{-1, -1, -1, -1, -1}

// merge takes a usage object. Its numbers are totals: what it says replaces what was known, the rest stays (C149).
func (c *counts) merge(raw []byte) {
	s := llm.NewScanner(raw, maxDepth)
	if s.Peek() != '{' {
		return
	}
	_ = s.Members(func(name []byte) error { // walked before: it cannot fail
		at, err := s.Value()
		v := at.Of(raw)
		switch string(name) {
		case "input_tokens":
			set(&c.in, v)
		case "cache_read_input_tokens":
			set(&c.read, v)
		case "cache_creation_input_tokens":
			set(&c.written, v)
		case "output_tokens":
			set(&c.out, v)
		case "output_tokens_details":
			set(&c.thinking, member(v, "thinking_tokens"))
		}
		return err
	})
}

func set(dst *int64, raw []byte) {
	if n, ok := llm.Int(raw); ok && n >= 0 {
		*dst = n
	}
}

// usage returns the numbers as Weir counts: the whole prompt, with its cached parts (C152).
func (c *counts) usage() llm.Usage {
	u := llm.Usage{In: c.in, Out: c.out, Cached: c.read, Written: c.written, Reasoning: c.thinking}
	if u.In >= 0 {
		u.In += max(c.read, 0) + max(c.written, 0)
	}
	return u
}

// member returns the raw value of a member of the object raw, nil when there is none or it is null.
func member(raw []byte, name string) (v []byte) {
	each(raw, func(n []byte, at llm.Span) {
		if string(n) == name && !isNull(at.Of(raw)) {
			v = at.Of(raw)
		}
	})
	return v
}

// each calls f with the members of the object raw, which was scanned before. For what is no object it calls nothing.
func each(raw []byte, f func(name []byte, at llm.Span)) {
	s := llm.NewScanner(raw, 1<<20)
	if s.Peek() != '{' {
		return
	}
	_ = s.Members(func(name []byte) error { // scanned before: it cannot fail
		at, err := s.Value()
		if err == nil {
			f(name, at)
		}
		return err
	})
}

// elements calls f with the elements of the array raw, which was scanned before. For what is no array it calls nothing.
func elements(raw []byte, f func(i int, at llm.Span)) {
	s := llm.NewScanner(raw, 1<<20)
	if s.Peek() != '[' {
		return
	}
	_ = s.Elements(func(i int) error { // scanned before: it cannot fail
		at, err := s.Value()
		if err == nil {
			f(i, at)
		}
		return err
	})
}

// isBlank reports a raw value that says nothing: absent, null or "".
func isBlank(raw []byte) bool { return len(raw) == 0 || isNull(raw) || string(raw) == `""` }

// isPath reports whether a raw JSON string names a file of the backend's machine.
func isPath(raw []byte) bool {
	s := string(llm.Unquote(raw))
	return strings.HasPrefix(s, "/") || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "~") ||
		strings.Contains(s, `\`) || strings.HasSuffix(s, ".gguf") && strings.Contains(s, "/")
}
