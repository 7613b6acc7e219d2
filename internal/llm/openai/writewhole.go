package openai

import (
	"strconv"

	"weir/internal/llm"
)

// seal writes what proves a block of thinking, with its text: a client who sends the list back under the same name has
// all that the next request needs (C051).
func (w *writer) seal(d *llm.Delta) {
	if len(d.Text) == 0 {
		return
	}
	var b []byte
	switch {
	case d.Kind == llm.DeltaSignature:
		b = quoted([]byte(`{"type":"thinking","thinking":`), llm.Text(w.block))
		b = text(b, "signature", d.Text)
	case string(d.Name) == "redacted":
		b = text([]byte(`{"type":"redacted_thinking"`), "data", d.Text)
	default:
		b = text([]byte(`{"type":"reasoning"`), "thinking", llm.Text(w.block))
		b = text(b, "encrypted_content", d.Text)
	}
	b = append(b, '}')
	w.block = w.block[:0]
	if !w.stream {
		w.blocks = append(append(w.blocks, b...), ',')
		return
	}
	w.open(`{"thinking_blocks":[`)
	w.out = append(w.out, b...)
	w.close(`]}`)
}

// call begins a call. A client of the old kind is told of the first one alone.
func (w *writer) call(d *llm.Delta) {
	for len(w.calls) <= d.Call {
		w.calls = append(w.calls, written{})
	}
	c := &w.calls[d.Call]
	c.custom = d.Custom
	switch {
	case !w.stream:
		c.id, c.name = append(c.id[:0], d.ID...), append(c.name[:0], d.Name...)
	case w.old && d.Call > 0:
	case w.old:
		w.open(`{"function_call":{"name":"`)
		w.out = append(w.out, d.Name...)
		w.close(`","arguments":""}}`)
	default:
		kind, input := c.kind()
		w.open(`{"tool_calls":[{"index":`)
		w.out = quoted(append(strconv.AppendInt(w.out, int64(d.Call), 10), `,"id":`...), d.ID)
		w.out = append(append(append(w.out, `,"type":"`...), kind...), `","`...)
		w.out = quoted(append(append(w.out, kind...), `":{"name":`...), d.Name)
		w.out = append(append(append(w.out, `,"`...), input...), `":""}`...)
		w.close(`}]}`)
	}
}

// kind returns the kind of the call and the name of what it is called with.
func (c *written) kind() (kind, input string) {
	if c.custom {
		return "custom", "input"
	}
	return "function", "arguments"
}

// input writes the next piece of a call's arguments.
func (w *writer) input(k int, t llm.Text) {
	if len(t) == 0 || k >= len(w.calls) {
		return
	}
	c := &w.calls[k]
	c.begun = true
	switch {
	case !w.stream:
		c.input = append(c.input, t...)
	case w.old && k > 0:
	case w.old:
		w.open(`{"function_call":{"arguments":"`)
		w.out = append(w.out, t...)
		w.close(`"}}`)
	default:
		kind, input := c.kind()
		w.open(`{"tool_calls":[{"index":`)
		w.out = append(strconv.AppendInt(w.out, int64(k), 10), `,"`...)
		w.out = append(append(append(w.out, kind...), `":{"`...), input...)
		w.out = append(append(w.out, `":"`...), t...)
		w.close(`"}}]}`)
	}
}

// reason returns why the answer ended.
func (w *writer) reason() string {
	called := len(w.calls) > 0
	switch w.stop {
	case llm.StopLength, llm.StopWindow:
		return "length"
	case llm.StopRefused:
		return "content_filter"
	case llm.StopEnd, llm.StopCalls:
		if called && w.old {
			return "function_call"
		} else if called {
			return "tool_calls"
		}
	}
	return "stop"
}

func (w *writer) counted() bool { return w.total.In >= 0 || w.total.Out >= 0 }

// appendUsage appends a usage object. What is not known is left out, but for the three that every client reads.
func appendUsage(dst []byte, u llm.Usage) []byte {
	in, out := max(u.In, 0), max(u.Out, 0)
	dst = strconv.AppendInt(append(dst, `{"prompt_tokens":`...), in, 10)
	dst = strconv.AppendInt(append(dst, `,"completion_tokens":`...), out, 10)
	dst = strconv.AppendInt(append(dst, `,"total_tokens":`...), in+out, 10)
	detail := func(before, name string, n int64) {
		dst = append(append(append(append(dst, before...), '"'), name...), `":`...)
		dst = strconv.AppendInt(dst, n, 10)
	}
	if u.Cached >= 0 || u.Written > 0 {
		detail(`,"prompt_tokens_details":{`, "cached_tokens", max(u.Cached, 0))
		if u.Written > 0 {
			detail(",", "cache_write_tokens", u.Written)
		}
		dst = append(dst, '}')
	}
	if u.Reasoning >= 0 {
		detail(`,"completion_tokens_details":{`, "reasoning_tokens", u.Reasoning)
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// answer returns the whole answer.
func (w *writer) answer() []byte {
	out := w.frame(make([]byte, 0, len(w.content)+len(w.thinking)+len(w.blocks)+1<<10), "chat.completion")
	out = append(out, `"choices":[{"index":0,"message":{"role":"assistant","content":`...)
	if len(w.content) == 0 && len(w.calls)+len(w.refusal) > 0 {
		out = append(out, "null"...)
	} else {
		out = quoted(out, w.content)
	}
	out = text(out, "reasoning_content", w.thinking)
	if len(w.blocks) > 0 {
		out = closing(append(append(out, `,"thinking_blocks":[`...), w.blocks...), ']')
	}
	if len(w.refusal) > 0 {
		out = text(out, "refusal", w.refusal)
	} else {
		out = append(out, `,"refusal":null`...)
	}
	out = append(w.appendCalls(out), `},"logprobs":null,"finish_reason":"`...)
	out = append(append(out, w.reason()...), `"}]`...)
	if w.counted() {
		out = appendUsage(append(out, `,"usage":`...), w.total)
	}
	return append(out, '}')
}

func (w *writer) appendCalls(dst []byte) []byte {
	if len(w.calls) == 0 {
		return dst
	}
	if w.old {
		dst = quoted(append(dst, `,"function_call":{"name":`...), w.calls[0].name)
		return append(quoted(append(dst, `,"arguments":`...), w.calls[0].input), '}')
	}
	dst = append(dst, `,"tool_calls":[`...)
	for i := range w.calls {
		c := &w.calls[i]
		kind, input := c.kind()
		dst = append(append(append(quoted(append(dst, `{"id":`...), c.id), `,"type":"`...), kind...), `","`...)
		dst = quoted(append(append(dst, kind...), `":{"name":`...), c.name)
		dst = quoted(append(append(append(dst, `,"`...), input...), `":`...), c.input)
		dst = append(dst, "}},"...)
	}
	return closing(dst, ']')
}
