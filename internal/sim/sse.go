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
	payload []byte
	raw     []byte // written as it is, instead of payload
	content bool   // counts as a content chunk
	finish  bool   // carries the finish_reason
	over    bool   // the work is done when it is written
}

// streamAnswer is the answer that sends events as b frames and breaks them.
func streamAnswer(b *Behaviour, events iter.Seq[event]) answer {
	ans := answer{status: http.StatusOK, header: streamHeader(), stream: true, early: true}
	ans.pieces = frames(b.SSE, events)
	if b.SSE.OneBlob {
		ans.pieces = blob(ans.pieces)
	}
	return ans
}

// decorate adds what stands around the chunks: inserted bytes, a scripted error, [DONE],
// repetitions.
func (c *call) decorate(chunks iter.Seq[event]) iter.Seq[event] {
	return func(yield func(event) bool) {
		n, sse := 0, c.b.SSE
		if !c.interject(yield, 0) {
			return
		}
		for e := range chunks {
			if e.finish && sse.NoFinish {
				continue
			}
			if !yield(e) {
				return
			}
			if e.finish && sse.Twice && !yield(e) {
				return
			}
			if e.content {
				if n++; !c.interject(yield, n) {
					return
				}
			}
		}
		c.done(yield)
	}
}

// interject yields what the script puts after n content chunks; false ends the stream.
func (c *call) interject(yield func(event) bool, n int) bool {
	for _, in := range c.b.Insert {
		if in.After == n && !yield(event{raw: []byte(strings.ReplaceAll(in.Raw, "{nonce}", c.a.Nonce))}) {
			return false
		}
	}
	fail := c.b.StreamError
	if fail == nil || fail.After != n {
		return true
	}
	wait := c.b.Gap
	if n == 0 {
		wait = c.b.FirstDelay
	}
	payload := overloaded().event(c.flavour)
	if fail.Error != nil {
		payload = encode(object{{"error", fail.Error}})
	}
	if yield(event{wait: wait, payload: payload, over: true}) && fail.Done {
		yield(event{payload: []byte("[DONE]")})
	}
	return false
}

func (c *call) done(yield func(event) bool) {
	sse, end := c.b.SSE, event{payload: []byte("[DONE]"), over: true}
	if !sse.NoDone && !yield(end) {
		return
	}
	if sse.Twice && !sse.NoDone && !yield(end) {
		return
	}
	if sse.AfterDone {
		late := c.label(0, "chat.completion.chunk", []any{object{{"index", 0}, {"delta", object{{"content", "after the end"}}}, {"finish_reason", nil}}})
		yield(event{payload: encode(late)})
	}
}

// scriptedEvents are the payloads a script gives, each as an event.
func (c *call) scriptedEvents(yield func(event) bool) {
	wait := c.b.FirstDelay
	for i, text := range c.b.Events {
		payload := []byte(strings.ReplaceAll(text, "{nonce}", c.a.Nonce))
		if c.b.Fill {
			payload = fillOne(payload, "chat.completion.chunk", c.a, c.q)
		}
		if !yield(event{wait: wait, payload: payload, content: true, over: i == len(c.b.Events)-1}) {
			return
		}
		wait = c.b.Gap
	}
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
				data = frame(sse, i, e.payload)
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

func frame(sse SSE, i int, payload []byte) []byte {
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
