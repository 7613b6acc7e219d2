package responses

import (
	"bytes"
	"strconv"
	"time"

	"weir/internal/llm"
)

// Writer returns what writes an answer to r in this dialect. model is the name to show where the answer gives none. To a
// streaming client it also is r.Broken.
func (Dialect) Writer(r *llm.Request, model string) llm.Writer {
	w := &writer{stream: r.Stream, id: newID("resp_"), created: time.Now().Unix(), model: llm.Escaped(model), echo: newEcho(r)}
	w.usage = llm.NoUsage
	if r.Stream {
		r.Broken = w
	}
	return w
}

// writer writes the items of an answer one after the other: one that is no call ends where another begins, and a call
// is told once the one before it is whole. Pieces of a call that come early wait for that.
type writer struct {
	stream  bool
	begun   bool
	out     []byte // events that may go
	taken   bool   // out has been handed out
	seq     int64
	id      llm.Text
	created int64
	model   llm.Text
	echo    echo

	done  [][]byte // items that have ended, by their number; nil: not yet
	said  speech   // the item that is no call, where one is open
	calls []*callUnder
	open  int // the first call that has not ended

	refused bool // the model said so
	stop    llm.Stop
	usage   llm.Usage
}

// callUnder is a call under way.
type callUnder struct {
	callItem
	n       int // its item's number, -1: it waits
	input   []byte
	told    int // of input
	balance llm.Balance
	lead    []byte // of its events, behind the number
}

// Put takes the next piece.
func (w *writer) Put(d *llm.Delta) {
	if w.taken {
		w.out, w.taken = w.out[:0], false
	}
	if d.Kind == llm.DeltaStart && !w.begun && len(d.Model) > 0 && !isPath(d.Model) {
		w.model = bytes.Clone(d.Model)
	}
	w.begin()
	switch d.Kind {
	case llm.DeltaText, llm.DeltaRefusal, llm.DeltaThinking:
		if len(d.Text) > 0 {
			w.settle()
			w.say(d)
		}
	case llm.DeltaSealed:
		w.seal(d)
	case llm.DeltaCall:
		w.finishSpeech("completed")
		w.call(d)
		w.advance()
	case llm.DeltaInput:
		w.input(d)
	case llm.DeltaFinish:
		w.stop = d.Stop
	case llm.DeltaUsage:
		w.usage.Add(d.Usage)
	}
}

// Take returns what may go to a streaming client now. It is valid until the next Put.
func (w *writer) Take() []byte {
	if w.taken {
		return nil
	}
	w.taken = true
	return w.out
}

// begin opens the stream.
func (w *writer) begin() {
	if w.begun {
		return
	}
	w.begun = true
	if w.stream {
		s := state{status: "in_progress"}
		for _, name := range [...]string{"response.created", "response.in_progress"} {
			w.event(name)
			w.str(`"response":`)
			w.out = w.object(w.out, &s)
			w.close()
		}
	}
}

// event begins an event: close ends it.
func (w *writer) event(name string) {
	w.out = append(append(w.out, "event: "...), name...)
	w.out = append(append(w.out, "\ndata: {\"type\":\""...), name...)
	w.out = strconv.AppendInt(append(w.out, `","sequence_number":`...), w.seq, 10)
	w.out = append(w.out, ',')
	w.seq++
}

func (w *writer) str(s string) { w.out = append(w.out, s...) }
func (w *writer) raw(v []byte) { w.out = append(w.out, v...) }
func (w *writer) close()       { w.out = append(w.out, "}\n\n"...) }

// item takes a number for a new item and tells that it begins. raw is the item so far.
func (w *writer) item(raw []byte) int {
	n := len(w.done)
	w.done = append(w.done, nil)
	w.itemEvent("response.output_item.added", n, raw)
	return n
}

func (w *writer) itemEvent(name string, n int, raw []byte) {
	if !w.stream {
		return
	}
	w.event(name)
	w.out = strconv.AppendInt(append(w.out, `"output_index":`...), int64(n), 10)
	w.str(`,"item":`)
	w.raw(raw)
	w.close()
}

// ended keeps an item that is whole and tells that it is.
func (w *writer) ended(n int, raw []byte) {
	w.done[n] = raw
	w.itemEvent("response.output_item.done", n, raw)
}

// place returns the members that say which item an event is about, each with a comma behind it.
func place(id llm.Text, n int) []byte {
	return numbered(spelt(nil, "item_id", id), "output_index", int64(n))
}

// output appends the items that have ended, in order and without brackets.
func (w *writer) output(dst []byte) []byte {
	for _, raw := range w.done {
		if raw != nil {
			dst = append(append(dst, raw...), ',')
		}
	}
	return closed(dst)
}

// End returns what is left: the last events of a stream, or the whole answer.
func (w *writer) End() []byte {
	if w.taken {
		w.out, w.taken = w.out[:0], false
	}
	w.begin()
	s := state{status: "completed"}
	switch {
	case w.stop == llm.StopLength || w.stop == llm.StopWindow:
		s.status, s.details = "incomplete", "max_output_tokens"
	case w.stop == llm.StopRefused && !w.refused:
		s.status, s.details = "incomplete", "content_filter"
	}
	w.finishSpeech(s.status)
	w.finishCalls(s.status)
	s.output = w.output(nil)
	s.usage = appendUsage(nil, &w.usage)
	if !w.stream {
		return w.object(nil, &s)
	}
	w.event("response." + s.status)
	w.str(`"response":`)
	w.out = w.object(w.out, &s)
	w.close()
	w.taken = true
	return w.out
}

// AppendBroken ends the stream with a failed response of the same id and with the next number (C007).
func (w *writer) AppendBroken(dst []byte, e *llm.Error) []byte {
	b := broken{id: w.id, model: w.model, created: w.created, seq: w.seq, output: w.output(nil)}
	return b.appendFailed(dst, e)
}
