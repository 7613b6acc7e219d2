package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// events checks one stream while it arrives: every content chunk must be the
// next part, the usage chunk must come, and [DONE] must be last.
type events struct {
	carry   []byte // a line that is not whole yet
	content int
	usage   bool
	finish  bool
	done    bool
	err     error // the first thing that was wrong
}

func (e *events) reset() { *e = events{carry: e.carry[:0]} }

// feed takes the next bytes of the stream, cut anywhere.
func (e *events) feed(p []byte) {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			if e.carry = append(e.carry, p...); len(e.carry) > 64<<10 {
				e.fail(errors.New("a line of the stream does not end"))
				e.carry = e.carry[:0]
			}
			return
		}
		line := p[:i]
		if len(e.carry) > 0 {
			e.carry = append(e.carry, line...)
			line = e.carry
		}
		e.line(bytes.TrimSuffix(line, []byte("\r")))
		e.carry, p = e.carry[:0], p[i+1:]
	}
}

func (e *events) line(b []byte) {
	if len(b) == 0 || b[0] == ':' {
		return // end of an event, or a comment
	}
	data, ok := bytes.CutPrefix(b, []byte("data: "))
	switch {
	case !ok:
		e.fail(fmt.Errorf("unexpected line in the stream: %.80q", b))
	case e.done:
		e.fail(fmt.Errorf("data after [DONE]: %.80q", data))
	case string(data) == "[DONE]":
		e.done = true
	default:
		e.data(data)
	}
}

func (e *events) data(b []byte) {
	const content = `"content":"`
	if i := bytes.Index(b, []byte(content)); i >= 0 {
		text := b[i+len(content):]
		switch {
		case isPart(text, e.content):
			e.content++
		case len(text) > 0 && text[0] == '"': // the role chunk
		default:
			e.fail(fmt.Errorf("expected part %d, got %.80q", e.content, text))
		}
		return
	}
	switch {
	case bytes.Contains(b, []byte(`"usage":{`)):
		e.usage = true
	case bytes.Contains(b, []byte(`"finish_reason":"stop"`)):
		e.finish = true
	default:
		e.fail(fmt.Errorf("unexpected data in the stream: %.120q", b))
	}
}

func (e *events) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

// Faults of a stream, counted apart because they mean different things.
var (
	errBroken = errors.New("broken stream") // no proper end
	errShort  = errors.New("short stream")  // a proper end, but something is missing
)

// verdict says whether the finished stream was whole; want is its content chunks.
func (e *events) verdict(want int) error {
	switch {
	case e.err != nil:
		return fmt.Errorf("%w after %d chunks: %w", errBroken, e.content, e.err)
	case !e.done:
		return fmt.Errorf("%w: no [DONE] after %d chunks", errBroken, e.content)
	case e.content != want:
		return fmt.Errorf("%w: %d chunks of %d", errShort, e.content, want)
	case !e.finish:
		return fmt.Errorf("%w: no finish_reason", errShort)
	case !e.usage:
		return fmt.Errorf("%w: no usage chunk", errShort)
	}
	return nil
}

// checkAnswer returns the check for bodies that are not streamed. An answer that
// was passed on must be the upstream's, byte for byte; an assembled one must hold
// the text of all parts in one choice and the usage.
func checkAnswer(model string, assembled bool) func([]byte) error {
	if !assembled {
		want := answer(model)
		return func(got []byte) error {
			if !bytes.Equal(got, want) {
				return fmt.Errorf("the answer (%d bytes) is not the upstream's (%d bytes): %.300q", len(got), len(want), got)
			}
			return nil
		}
	}
	n := parseModel(model).chunks
	text := fmt.Appendf(nil, "%q", wholeText(n))
	usage := fmt.Appendf(nil, `"completion_tokens":%d`, n)
	return func(got []byte) error {
		if !bytes.Contains(got, text) || !bytes.Contains(got, usage) || !bytes.Contains(got, []byte(`"finish_reason":"stop"`)) {
			return fmt.Errorf("the assembled answer lacks text, usage or finish_reason: %.300q", got)
		}
		return nil
	}
}

// checkJSON is the thorough look that each connection gives its first answer.
func checkJSON(got []byte) error {
	var doc struct {
		Object  string
		Choices []struct {
			Message struct{ Role, Content string }
		}
	}
	if err := json.Unmarshal(got, &doc); err != nil {
		return fmt.Errorf("the answer is not JSON: %w", err)
	}
	if doc.Object != "chat.completion" || len(doc.Choices) != 1 || doc.Choices[0].Message.Role != "assistant" {
		return fmt.Errorf("the answer is not a chat completion with one choice: %.300q", got)
	}
	return nil
}
