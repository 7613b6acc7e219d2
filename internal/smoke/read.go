package smoke

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"weir/internal/llm"
)

// reading is what an answer says, as far as it is judged.
type reading struct {
	fault         string // it is malformed
	text, thought int    // characters
	narrated      bool   // the text has a call in it
	finish        string
	calls         []call
	in, out       int64 // tokens; -1: not told
}

type call struct{ name, arguments string }

// message is a message of a whole answer, or a delta of a stream.
type message struct {
	Content          any    `json:"content"`
	Reasoning        string `json:"reasoning"`
	ReasoningContent string `json:"reasoning_content"`
	ToolCalls        []struct {
		Index    int `json:"index"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// chunk is a whole answer, or one event of a stream.
type chunk struct {
	Choices []struct {
		Message *message `json:"message"`
		Delta   *message `json:"delta"`
		Finish  string   `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		In  int64 `json:"prompt_tokens"`
		Out int64 `json:"completion_tokens"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

func readWhole(body []byte) reading {
	r := reading{in: -1, out: -1}
	var c chunk
	if err := json.Unmarshal(body, &c); err != nil {
		r.fault = "the answer is no JSON of Chat Completions"
		return r
	}
	if len(c.Choices) != 1 || c.Choices[0].Message == nil {
		r.fault = fmt.Sprintf("the answer has %d choices, which should be one with a message", len(c.Choices))
		return r
	}
	text := r.take(c.Choices[0].Message, false)
	r.finish = c.Choices[0].Finish
	r.usage(&c)
	r.settle(text)
	return r
}

// readStream reads a stream as a strict client does: one event a chunk, one finish reason, then the end mark, and nothing
// behind it.
func readStream(body []byte) reading {
	r := reading{in: -1, out: -1}
	var text strings.Builder
	ended := false
	var f llm.Frames
	for len(body) > 0 && r.fault == "" {
		n := copy(f.Space(), body)
		if n == 0 {
			r.fault = "one event of the stream is larger than any may be"
		}
		body = body[n:]
		f.Took(n)
		for e, ok := f.Next(); ok && r.fault == ""; e, ok = f.Next() {
			r.event(&e, &ended, &text)
		}
	}
	if _, more := f.Rest(); more && r.fault == "" {
		r.fault = "the stream breaks off amid an event"
	}
	r.settle(text.String())
	if r.fault == "" {
		switch {
		case r.finish == "":
			r.fault = "the stream ended without a finish reason"
		case !ended:
			r.fault = "the stream ended without its end mark"
		}
	}
	return r
}

func (r *reading) event(e *llm.Frame, ended *bool, text *strings.Builder) {
	switch {
	case e.Empty:
		return
	case *ended:
		r.fault = "an event came after the end mark"
		return
	case string(e.Data) == "[DONE]":
		*ended = true
		return
	}
	var c chunk
	if err := json.Unmarshal(e.Data, &c); err != nil {
		r.fault = "an event of the stream is no JSON of Chat Completions"
		return
	}
	if len(c.Error) > 0 {
		r.fault = "an error came amid the stream"
		return
	}
	r.usage(&c)
	for i := range c.Choices {
		if d := c.Choices[i].Delta; d != nil {
			text.WriteString(r.take(d, true))
		}
		switch f := c.Choices[i].Finish; {
		case f == "":
		case r.finish != "":
			r.fault = "the stream has two finish reasons"
		default:
			r.finish = f
		}
	}
}

// take counts what a message says, and returns its text.
func (r *reading) take(m *message, delta bool) string {
	text, _ := m.Content.(string)
	r.text += utf8.RuneCountInString(strings.TrimSpace(text))
	r.thought += utf8.RuneCountInString(m.Reasoning) + utf8.RuneCountInString(m.ReasoningContent)
	for _, t := range m.ToolCalls {
		at := len(r.calls)
		if delta {
			at = t.Index
		}
		if at < 0 || at > 64 {
			continue
		}
		for len(r.calls) <= at {
			r.calls = append(r.calls, call{})
		}
		r.calls[at].name += t.Function.Name
		r.calls[at].arguments += t.Function.Arguments
	}
	return text
}

func (r *reading) usage(c *chunk) {
	if c.Usage != nil {
		r.in, r.out = c.Usage.In, c.Usage.Out
	}
}

// settle looks for a call that was written down in place of one that was made.
func (r *reading) settle(text string) {
	r.narrated = strings.Contains(text, toolName) || strings.Contains(text, "<tool_call") || strings.Contains(text, `"arguments"`) || strings.Contains(text, "<function")
}
