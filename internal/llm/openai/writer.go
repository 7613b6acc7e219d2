package openai

import (
	"crypto/rand"
	"strconv"
	"time"

	"weir/internal/llm"
)

// Writer returns what writes an answer to r as Chat Completions: as chunks for a client who streams, else whole. model
// is shown where the answer names none. Thinking goes into reasoning_content; what seals it, so that the client can carry
// it back, into thinking_blocks.
func (Dialect) Writer(r *llm.Request, model string) llm.Writer {
	w := &writer{stream: r.Stream, usage: r.IncludeUsage, total: llm.NoUsage, model: llm.Escaped(model), created: time.Now().Unix()}
	_, tools := r.Member("tools")
	w.old = !tools && r.Value("functions") != nil
	return w
}

// writer writes one answer.
type writer struct {
	stream  bool
	usage   bool // the client asked for usage in the stream
	old     bool // the client knows function_call alone
	created int64
	id      llm.Text
	model   llm.Text
	head    []byte // of a chunk, up to its delta
	tail    []byte // behind the delta
	out     []byte // what may go to a streaming client
	taken   bool   // and went

	content, thinking, refusal []byte // of a whole answer
	block                      []byte // thinking that is not sealed yet
	blocks                     []byte // thinking_blocks, a comma behind each
	calls                      []written
	stop                       llm.Stop
	total                      llm.Usage
}

// written is one call of the answer.
type written struct {
	id, name, input []byte
	custom, begun   bool // begun: arguments came
}

// Put takes the next piece.
func (w *writer) Put(d *llm.Delta) {
	w.clear()
	if w.head == nil {
		if d.Kind == llm.DeltaStart {
			w.name(d)
		}
		w.begin()
	}
	switch d.Kind {
	case llm.DeltaText:
		w.block = w.block[:0] // what was thought before it was not sealed
		w.text(`{"content":"`, &w.content, d.Text)
	case llm.DeltaThinking:
		w.block = append(w.block, d.Text...)
		w.text(`{"reasoning_content":"`, &w.thinking, d.Text)
	case llm.DeltaRefusal:
		w.text(`{"refusal":"`, &w.refusal, d.Text)
	case llm.DeltaSignature, llm.DeltaSealed:
		w.seal(d)
	case llm.DeltaCall:
		w.block = w.block[:0]
		w.call(d)
	case llm.DeltaInput:
		w.input(d.Call, d.Text)
	case llm.DeltaFinish:
		w.stop = d.Stop
	case llm.DeltaUsage:
		w.total.Add(d.Usage)
	}
}

// Take returns the chunks that may go now.
func (w *writer) Take() []byte {
	w.clear()
	w.taken = true
	return w.out
}

// clear makes room once what was taken is no longer used.
func (w *writer) clear() {
	if w.taken {
		w.out, w.taken = w.out[:0], false
	}
}

// End returns the last chunks, or the whole answer. Only the documented reasons are ever written (C046).
func (w *writer) End() []byte {
	w.clear()
	w.begin()
	for i := range w.calls {
		if c := &w.calls[i]; !c.begun && !c.custom { // an empty string is no JSON
			w.input(i, llm.Text("{}"))
		}
	}
	if !w.stream {
		return w.answer()
	}
	w.out = append(append(append(w.out, w.head...), `{},"finish_reason":"`...), w.reason()...)
	w.out = append(append(w.out, `"}]`...), w.tail...)
	if w.usage && w.counted() {
		w.out = append(w.frame(append(w.out, "data: "...), "chat.completion.chunk"), `"choices":[],"usage":`...)
		w.out = append(appendUsage(w.out, w.total), "}\n\n"...)
	}
	return append(w.out, "data: [DONE]\n\n"...)
}

// name takes what the answer says of itself.
func (w *writer) name(d *llm.Delta) {
	w.id = append(w.id, d.ID...)
	if len(d.Model) > 0 {
		w.model = append(w.model[:0], d.Model...)
	}
}

// begin fixes what all chunks have and writes the one that names the role, once.
func (w *writer) begin() {
	if w.head != nil {
		return
	}
	if len(w.id) == 0 {
		w.id = llm.Text("chatcmpl-" + rand.Text())
	}
	w.head = append(w.frame([]byte("data: "), "chat.completion.chunk"), `"choices":[{"index":0,"delta":`...)
	w.tail = []byte("}\n\n")
	if w.usage {
		w.tail = []byte(`,"usage":null}` + "\n\n")
	}
	if w.stream {
		w.open(`{"role":"assistant","content":"`)
		w.close(`"}`)
	}
}

// frame appends the members that every chunk has, and the answer as well.
func (w *writer) frame(dst []byte, object string) []byte {
	dst = quoted(append(dst, `{"id":`...), w.id)
	dst = append(append(append(dst, `,"object":"`...), object...), `","created":`...)
	dst = strconv.AppendInt(dst, w.created, 10)
	return append(quoted(append(dst, `,"model":`...), w.model), ',')
}

// open begins a chunk, up to where its text stands.
func (w *writer) open(delta string) { w.out = append(append(w.out, w.head...), delta...) }

// close ends it.
func (w *writer) close(delta string) {
	w.out = append(append(append(w.out, delta...), `,"finish_reason":null}]`...), w.tail...)
}

// text writes a piece of text, or gathers it for a whole answer. An empty one is none.
func (w *writer) text(delta string, whole *[]byte, t llm.Text) {
	switch {
	case len(t) == 0:
	case !w.stream:
		*whole = append(*whole, t...)
	default:
		w.open(delta)
		w.out = append(w.out, t...)
		w.close(`"}`)
	}
}
