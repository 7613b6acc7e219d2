package anthropic

import (
	"bytes"
	"crypto/rand"
	"strconv"

	"weir/internal/llm"
)

// Writer returns what writes an answer to r as a message: as a stream of events where r streams, else in one piece.
// Where the answer's server counts no tokens, those of the prompt and of the answer are estimated by their size.
func (Dialect) Writer(r *llm.Request, model string) llm.Writer {
	return &writer{stream: r.Stream, name: model, prompt: int64(r.Shape.TokensEst), usage: llm.NoUsage}
}

// writer is the one state machine of both forms. Blocks stand in the order in which they began; of a stream only the
// first that has not ended is open, and what comes for a later one waits in it (C033).
type writer struct {
	stream bool
	name   string
	prompt int64 // estimated tokens

	out   []byte
	taken bool // out has left

	id, model llm.Text
	begun     bool // message_start has been written
	blocks    []*writing
	head      int // the open block; those before it have ended
	calls     int
	size      int // bytes of the answer's texts
	refused   bool
	stop      llm.Stop
	sequence  llm.Text
	usage     llm.Usage
}

// writing is one block.
type writing struct {
	kind      llm.DeltaKind // DeltaText, DeltaThinking, DeltaSealed or DeltaCall
	call      int
	id, name  llm.Text
	custom    bool
	text      llm.Text // what waits; without a stream all of it
	signature llm.Text
	signed    bool
	open      bool // its start has been written
	fed       bool // a piece of a call's input has come
	balance   llm.Balance
}

// Put takes the next piece.
func (w *writer) Put(d *llm.Delta) {
	w.clear()
	switch d.Kind {
	case llm.DeltaStart:
		if w.id == nil && len(d.ID) > 0 {
			w.id = bytes.Clone(d.ID)
		}
		if w.model == nil && len(d.Model) > 0 && !isPath(quoted(d.Model)) {
			w.model = bytes.Clone(d.Model)
		}
	case llm.DeltaText, llm.DeltaRefusal:
		w.refused = w.refused || d.Kind == llm.DeltaRefusal
		w.say(llm.DeltaText, d.Text)
	case llm.DeltaThinking:
		w.say(llm.DeltaThinking, d.Text)
	case llm.DeltaSignature:
		b := w.last()
		if b == nil || b.kind != llm.DeltaThinking || b.signed {
			b = w.begin(&writing{kind: llm.DeltaThinking})
		}
		b.signature, b.signed = bytes.Clone(d.Text), true
	case llm.DeltaSealed:
		if string(d.Name) == string(redacted) && len(d.Text) > 0 { // another vendor's means nothing to a client of this dialect
			w.begin(&writing{kind: llm.DeltaSealed, text: bytes.Clone(d.Text)})
		}
	case llm.DeltaCall:
		w.callTool(d)
	case llm.DeltaInput:
		w.input(d)
	case llm.DeltaFinish:
		w.stop, w.sequence = d.Stop, bytes.Clone(d.Sequence)
	case llm.DeltaUsage:
		w.usage.Add(d.Usage)
	}
}

func (w *writer) clear() {
	if w.taken {
		w.out, w.taken = w.out[:0], false
	}
}

// Take returns the events that may go to a streaming client now, each once.
func (w *writer) Take() []byte {
	if w.taken {
		return nil
	}
	w.taken = true
	return w.out
}

func (w *writer) last() *writing {
	if len(w.blocks) == 0 {
		return nil
	}
	return w.blocks[len(w.blocks)-1]
}

func (w *writer) begin(b *writing) *writing {
	w.blocks = append(w.blocks, b)
	w.advance(false)
	return b
}

// say adds text to the last block of its kind, or begins one.
func (w *writer) say(kind llm.DeltaKind, text llm.Text) {
	if len(text) == 0 {
		return
	}
	b := w.last()
	if b == nil || b.kind != kind || b.signed {
		b = w.begin(&writing{kind: kind})
	}
	w.feed(b, text)
}

func (w *writer) callTool(d *llm.Delta) {
	if w.find(d.Call) != nil {
		return
	}
	w.calls++
	b := &writing{kind: llm.DeltaCall, call: d.Call, id: bytes.Clone(d.ID), name: bytes.Clone(d.Name), custom: d.Custom}
	if len(b.id) == 0 {
		b.id = llm.Text("toolu_" + rand.Text()) // C039
	}
	w.begin(b)
}

func (w *writer) find(call int) *writing {
	for i := len(w.blocks) - 1; i >= 0; i-- {
		if b := w.blocks[i]; b.kind == llm.DeltaCall && b.call == call {
			return b
		}
	}
	return nil
}

func (w *writer) input(d *llm.Delta) {
	b := w.find(d.Call)
	if b == nil || len(d.Text) == 0 {
		return
	}
	b.fed = true
	b.balance.Add(d.Text)
	w.feed(b, d.Text)
}

// feed gives a block its next piece: at once where it is the open one, else it waits.
func (w *writer) feed(b *writing, text llm.Text) {
	w.size += len(text)
	if w.stream && w.head < len(w.blocks) && w.blocks[w.head] == b && !b.custom {
		w.piece(b, text)
	} else if !w.stream || !w.hasEnded(b) {
		b.text = append(b.text, text...)
	}
	w.advance(false)
}

func (w *writer) hasEnded(b *writing) bool {
	for _, old := range w.blocks[:w.head] {
		if old == b {
			return true
		}
	}
	return false
}

// advance ends blocks whose time is over and opens the next; all ends every one.
func (w *writer) advance(all bool) {
	for w.stream && w.head < len(w.blocks) {
		b := w.blocks[w.head]
		w.open(b)
		if !all && (w.head == len(w.blocks)-1 || !w.over(b)) {
			return
		}
		w.end(b)
		w.head++
	}
}

// over reports whether a block that another follows has ended: a call only once its input is whole, for the pieces of
// calls may alternate; one without any input when something else than a call follows.
func (w *writer) over(b *writing) bool {
	if b.kind != llm.DeltaCall {
		return true
	}
	return b.balance.Whole() || !b.fed && w.blocks[w.head+1].kind != llm.DeltaCall
}

// open writes the start of a block and what waited in it.
func (w *writer) open(b *writing) {
	if !b.open {
		b.open = true
		w.start()
		w.event(blockStart)
		w.out = strconv.AppendInt(append(w.out, `,"index":`...), int64(w.head), 10)
		w.out = append(w.out, `,"content_block":`...)
		switch b.kind {
		case llm.DeltaThinking:
			w.out = append(w.out, `{"type":"thinking","thinking":"","signature":""}`...)
		case llm.DeltaSealed:
			w.out = appendThinking(w.out, &llm.Part{Redacted: b.text})
			b.text = nil
		case llm.DeltaCall:
			w.out = append(append(w.out, `{"type":"tool_use","id":"`...), b.id...)
			w.out = append(append(append(w.out, `","name":"`...), b.name...), `","input":{}}`...)
		default:
			w.out = append(w.out, `{"type":"text","text":""}`...)
		}
		w.close()
	}
	if len(b.text) > 0 && !b.custom {
		w.piece(b, b.text)
		b.text = nil
	}
}

// piece writes a delta of the open block.
func (w *writer) piece(b *writing, text llm.Text) {
	switch b.kind {
	case llm.DeltaThinking:
		w.delta(`{"type":"thinking_delta","thinking":"`, text)
	case llm.DeltaCall:
		w.delta(`{"type":"input_json_delta","partial_json":"`, text)
	default:
		w.delta(`{"type":"text_delta","text":"`, text)
	}
}

func (w *writer) delta(lead string, text llm.Text) {
	w.event(blockDelta)
	w.out = strconv.AppendInt(append(w.out, `,"index":`...), int64(w.head), 10)
	w.out = append(append(append(w.out, `,"delta":`...), lead...), text...)
	w.out = append(w.out, `"}`...)
	w.close()
}

// end writes the end of the open block. A thinking block has its signature before it, an empty one where the answer has
// none: it cannot be made up.
func (w *writer) end(b *writing) {
	if b.kind == llm.DeltaThinking {
		w.delta(`{"type":"signature_delta","signature":"`, b.signature)
	}
	if b.custom && len(b.text) > 0 {
		w.piece(b, llm.Escaped(llm.Input{Spelt: b.text}.AppendObject(nil)))
	}
	w.event(blockStop)
	w.out = strconv.AppendInt(append(w.out, `,"index":`...), int64(w.head), 10)
	w.close()
}

// event writes the head of an event, up to its type; close ends it.
func (w *writer) event(typ string) {
	w.out = append(append(w.out, "event: "...), typ...)
	w.out = append(append(append(w.out, "\ndata: {\"type\":\""...), typ...), '"')
}

func (w *writer) close() { w.out = append(w.out, "}\n\n"...) }

// start writes message_start, once (C064).
func (w *writer) start() {
	if w.begun {
		return
	}
	w.begun = true
	w.event(messageStart)
	w.out = w.appendHead(append(w.out, `,"message":`...))
	w.out = append(w.out, `"content":[],"stop_reason":null,"stop_sequence":null,"usage":`...)
	w.out = append(w.appendUsage(w.out), '}')
	w.close()
}

// appendHead appends the opening bracket and the first members of the message.
func (w *writer) appendHead(dst []byte) []byte {
	if w.id == nil {
		w.id = llm.Text("msg_" + rand.Text())
	}
	if w.model == nil {
		w.model = llm.Escaped(w.name)
	}
	dst = append(append(append(dst, `{"id":"`...), w.id...), `","type":"message","role":"assistant","model":"`...)
	return append(append(dst, w.model...), `",`...)
}

// appendUsage appends the usage as Anthropic counts: without what was read from the cache or written to it in the input.
func (w *writer) appendUsage(dst []byte) []byte {
	u := &w.usage
	cached, written := max(u.Cached, 0), max(u.Written, 0)
	in, out := u.In-cached-written, u.Out
	if u.In < 0 {
		in = w.prompt - cached - written
	}
	if out < 0 {
		out = int64(w.size+3) / 4
	}
	dst = strconv.AppendInt(append(dst, `{"input_tokens":`...), max(in, 0), 10)
	dst = strconv.AppendInt(append(dst, `,"cache_creation_input_tokens":`...), written, 10)
	dst = strconv.AppendInt(append(dst, `,"cache_read_input_tokens":`...), cached, 10)
	dst = strconv.AppendInt(append(dst, `,"output_tokens":`...), out, 10)
	if u.Reasoning >= 0 {
		dst = strconv.AppendInt(append(dst, `,"output_tokens_details":{"thinking_tokens":`...), u.Reasoning, 10)
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// End returns the last events of a stream, or the whole message.
func (w *writer) End() []byte {
	w.clear()
	if !w.stream {
		return w.message()
	}
	w.advance(true)
	w.start()
	w.event(messageDelta)
	w.out = w.appendStop(append(w.out, `,"delta":{`...))
	w.out = w.appendUsage(append(w.out, `},"usage":`...))
	w.close()
	w.out = append(w.out, stopEvent...)
	return w.out
}

func (w *writer) message() []byte {
	dst := w.appendHead(make([]byte, 0, 2*w.size+1024))
	dst = append(dst, `"content":[`...)
	for i, b := range w.blocks {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = exact.part(dst, b.part())
	}
	dst = append(w.appendStop(append(dst, "],"...)), `,"usage":`...)
	return append(w.appendUsage(dst), '}')
}

// part returns the whole block.
func (b *writing) part() *llm.Part {
	switch b.kind {
	case llm.DeltaThinking:
		return &llm.Part{Kind: llm.PartThinking, Text: b.text, Signature: b.signature}
	case llm.DeltaSealed:
		return &llm.Part{Kind: llm.PartThinking, Redacted: b.text}
	case llm.DeltaCall:
		return &llm.Part{Kind: llm.PartCall, ID: b.id, Name: b.name, Input: llm.Input{Spelt: b.text}}
	}
	return &llm.Part{Kind: llm.PartText, Text: b.text}
}

func (w *writer) appendStop(dst []byte) []byte {
	reason := w.reason()
	dst = append(append(append(dst, `"stop_reason":"`...), reason...), `","stop_sequence":`...)
	if reason != "stop_sequence" || len(w.sequence) == 0 {
		return append(dst, "null"...)
	}
	return append(append(append(dst, '"'), w.sequence...), '"')
}

// reason returns why the answer ended. Whatever its server says, an answer that calls a tool and was not cut off waits
// for the tool, and one that calls none does not.
func (w *writer) reason() string {
	switch w.stop {
	case llm.StopLength:
		return "max_tokens"
	case llm.StopWindow:
		return "model_context_window_exceeded"
	case llm.StopRefused:
		return "refusal"
	case llm.StopPaused:
		return "pause_turn"
	}
	switch {
	case w.calls > 0:
		return "tool_use"
	case w.stop == llm.StopSequence:
		return "stop_sequence"
	case w.refused:
		return "refusal"
	}
	return "end_turn"
}
