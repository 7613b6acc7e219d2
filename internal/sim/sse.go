package sim

import (
	"bytes"
	"encoding/json"
	"iter"
	"net/http"
	"strings"
	"time"
)

// event is one event of a stream before it is framed.
type event struct {
	wait    time.Duration // before it
	name    string        // of the event, where the API names them
	payload []byte
	raw     []byte // written as it is, instead of payload
	content bool   // counts as a content chunk
	opening bool   // tells only that the answer begins
	finish  bool   // carries the finish_reason
	over    bool   // the work is done when it is written
}

// streamed is the answer that sends events as the script frames and breaks them.
func (c *call) streamed(events iter.Seq[event]) answer {
	ans := answer{status: http.StatusOK, header: streamHeader(), stream: true, early: true}
	ans.pieces = frames(c.b.SSE, events)
	if c.b.SSE.OneBlob {
		ans.pieces = blob(ans.pieces)
	}
	if c.q.api == Messages && c.flavour != LlamaCPP {
		ans.ping = frame(c.b.SSE, 0, c.named("ping", nil))
	}
	return ans
}

// decorate adds what stands around the chunks: inserted bytes, a scripted error, [DONE],
// repetitions.
func (c *call) decorate(chunks iter.Seq[event]) iter.Seq[event] {
	return func(yield func(event) bool) {
		n, sse := 0, c.b.SSE
		opened := c.b.streamError().Opened
		if !c.insert(yield, 0) || !opened && !c.failHere(yield, 0) {
			return
		}
		for e := range chunks {
			if opened && !e.opening {
				if opened = false; !c.failHere(yield, 0) {
					return
				}
			}
			if e.finish && (sse.NoFinish || sse.NoDone && c.q.api == Responses) {
				continue
			}
			if !yield(e) {
				return
			}
			if e.finish && sse.Twice && !yield(e) {
				return
			}
			if e.content {
				if n++; !c.insert(yield, n) || !c.failHere(yield, n) {
					return
				}
			}
		}
		c.done(yield)
	}
}

// insert yields the bytes that the script puts after n content chunks; false ends the stream.
func (c *call) insert(yield func(event) bool, n int) bool {
	for _, in := range c.b.Insert {
		if in.After == n && !yield(event{raw: []byte(strings.ReplaceAll(in.Raw, "{nonce}", c.a.Nonce))}) {
			return false
		}
	}
	return true
}

// failHere yields the script's error when it is due after n content chunks, and says
// whether the stream goes on.
func (c *call) failHere(yield func(event) bool, n int) bool {
	fail := c.b.StreamError
	if fail == nil || fail.After != n {
		return true
	}
	e := c.errorEvent(fail)
	e.over, e.wait = true, c.b.Gap
	if n == 0 {
		e.wait = c.b.FirstDelay
	}
	if yield(e) && fail.Done {
		yield(c.ending())
	}
	return false
}

// errorEvent is how a stream of the API tells that it failed.
func (c *call) errorEvent(fail *StreamError) event {
	switch {
	case c.q.api == Responses && c.flavour != LlamaCPP:
		return c.responseFailed(fail)
	case c.q.api == Messages:
		return event{name: "error", payload: c.errorBody(fail)}
	}
	return event{payload: c.errorBody(fail)}
}

// errorBody is a script's error, or an overload, in the shape of the API.
func (c *call) errorBody(fail *StreamError) []byte {
	v := c.voice()
	if fail.Error != nil {
		return v.wrap(fail.Error)
	}
	return v.wrap(overloaded(v).inner(v))
}

// failedWhole is an answer that is not streamed and tells in a 200 that it failed.
func (c *call) failedWhole(status int) answer {
	if c.q.api == Responses {
		return jsonAnswer(status, encode(c.failed(c.b.StreamError)))
	}
	return jsonAnswer(status, c.errorBody(c.b.StreamError))
}

// ending is the event that says that a stream is over. Responses has none of its own.
func (c *call) ending() event {
	switch c.q.api {
	case Messages:
		return c.named("message_stop", nil)
	case Responses:
		return event{raw: []byte{}}
	}
	return event{payload: []byte("[DONE]")}
}

func (c *call) done(yield func(event) bool) {
	sse, end := c.b.SSE, c.ending()
	end.over = true
	if !sse.NoDone && !yield(end) {
		return
	}
	if sse.Twice && !sse.NoDone && !yield(end) {
		return
	}
	if sse.AfterDone {
		yield(c.late())
	}
}

// late is content behind the end.
func (c *call) late() event {
	const text = "after the end"
	switch c.q.api {
	case Messages:
		return c.named("content_block_delta", object{{"index", 0}, {"delta", object{{"type", "text_delta"}, {"text", text}}}})
	case Responses:
		return c.named("response.output_text.delta", object{{"item_id", "msg_" + c.a.Nonce}, {"output_index", 0}, {"content_index", 0}, {"delta", text}})
	}
	choice := object{{"index", 0}, {"delta", object{{"content", text}}}, {"finish_reason", nil}}
	return event{payload: encode(c.label(0, "chat.completion.chunk", []any{choice}))}
}

// named is an event of an API that gives its events names. Those of Responses are also
// numbered, but not by llama.cpp, which leaves out their places in the output too.
func (c *call) named(name string, o object) event {
	o = append(object{{"type", name}}, o...)
	if c.q.api == Responses {
		if c.flavour == LlamaCPP {
			o = o.without([]string{"output_index", "content_index", "summary_index"})
		} else {
			o = append(o, member{"sequence_number", c.sequence})
		}
		c.sequence++
	}
	return event{name: name, payload: encode(o.without(c.b.Omit))}
}

// scriptedEvents are the payloads a script gives, each as an event.
func (c *call) scriptedEvents(yield func(event) bool) {
	wait := c.b.FirstDelay
	for i, text := range c.b.Events {
		payload := []byte(strings.ReplaceAll(text, "{nonce}", c.a.Nonce))
		if c.b.Fill {
			payload = fillOne(payload, "chat.completion.chunk", c.a, c.q)
		}
		if !yield(event{wait: wait, name: c.nameOf(payload), payload: payload, content: true, over: i == len(c.b.Events)-1}) {
			return
		}
		wait = c.b.Gap
	}
}

// nameOf returns the name of a payload's event: its type, where the API names events.
func (c *call) nameOf(payload []byte) string {
	var o struct{ Type string }
	if c.q.api != Messages && c.q.api != Responses || json.Unmarshal(payload, &o) != nil {
		return ""
	}
	return o.Type
}

// lineEnds holds how a data line and its event end, by the name a script uses.
var lineEnds = map[string][]string{
	"":      {"\n\n"},
	"lf":    {"\n\n"},
	"cr":    {"\r\r"},
	"crlf":  {"\r\n\r\n"},
	"mixed": {"\r\n\r\n", "\r\r", "\n\r\n", "\n\n"},
}

// frames writes events as an event stream.
func frames(sse SSE, events iter.Seq[event]) iter.Seq[piece] {
	framed := func(yield func(piece) bool) {
		i := 0
		for e := range events {
			data := e.raw
			if data == nil {
				data = frame(sse, i, e)
			}
			if len(data) == 0 {
				continue
			}
			if i == 0 && sse.BOM {
				data = append([]byte("\ufeff"), data...)
			}
			i++
			if !yield(piece{wait: e.wait, data: data, content: e.content, over: e.over || e.finish}) {
				return
			}
		}
	}
	if sse.OpenEnd {
		return openEnd(framed)
	}
	return framed
}

func frame(sse SSE, i int, e event) []byte {
	payload := e.payload
	ends := lineEnds[sse.LineEnd]
	end := ends[i%len(ends)]
	line := strings.TrimPrefix(end, "\n") // the end of one line inside the event
	if end != "\n\r\n" {
		line = end[:len(end)/2]
	}
	name := "data: "
	if sse.NoSpace {
		name = "data:"
	}
	var b bytes.Buffer
	if sse.Comments {
		b.WriteString(": simulated comment" + line)
	}
	if e.name != "" && !sse.NoEvent {
		b.WriteString(strings.Replace(name, "data", "event", 1) + e.name + line)
	}
	if sse.Multiline {
		var pretty bytes.Buffer
		if json.Indent(&pretty, payload, "", " ") == nil {
			payload = pretty.Bytes()
		}
	}
	b.WriteString(name)
	b.Write(bytes.ReplaceAll(payload, []byte("\n"), []byte(line+name)))
	b.WriteString(end)
	return b.Bytes()
}

// openEnd takes the line ends off the last piece.
func openEnd(pieces iter.Seq[piece]) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		var held *piece
		for p := range pieces {
			if held != nil && !yield(*held) {
				return
			}
			held = &p
		}
		if held != nil {
			held.data = bytes.TrimRight(held.data, "\r\n")
			yield(*held)
		}
	}
}

// blob joins all pieces into one, which takes as long as they took.
func blob(pieces iter.Seq[piece]) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		all := piece{content: true, over: true}
		for p := range pieces {
			all.wait += p.wait
			all.data = append(all.data, p.data...)
		}
		yield(all)
	}
}
