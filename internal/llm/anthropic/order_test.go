package anthropic

import (
	"encoding/json"
	"fmt"

	"weir/internal/llm"
)

// wellFormed checks the protocol of a stream: one message_start, blocks numbered from 0 that never overlap, deltas of the
// open block's kind alone, one message_delta, one message_stop, nothing behind it.
func wellFormed(stream []byte) error {
	var fr llm.Frames
	for len(stream) > 0 {
		n := copy(fr.Space(), stream)
		fr.Took(n)
		stream = stream[n:]
	}
	o := order{open: -1}
	for {
		f, ok := fr.Next()
		if !ok {
			break
		}
		if f.Empty {
			return fmt.Errorf("an event without data")
		}
		if err := o.event(&f); err != nil {
			return fmt.Errorf("%w in %s", err, f.Data)
		}
	}
	if rest, ok := fr.Rest(); ok {
		return fmt.Errorf("half an event: %q", rest.Data)
	}
	if !o.stopped {
		return fmt.Errorf("no message_stop")
	}
	return nil
}

type order struct {
	begun, finished, stopped bool
	open, next               int
	kind                     string
	signed                   bool
}

func (o *order) event(f *llm.Frame) error {
	var e struct {
		Type         string
		Index        int
		ContentBlock struct{ Type string } `json:"content_block"`
		Delta        struct {
			Type       string
			StopReason *string `json:"stop_reason"`
		}
		Usage *struct {
			OutputTokens *int64 `json:"output_tokens"`
		}
	}
	if err := json.Unmarshal(f.Data, &e); err != nil {
		return err
	}
	if e.Type != string(f.Name) {
		return fmt.Errorf("the event is named %s", f.Name)
	}
	if o.stopped || o.begun == (e.Type == messageStart) {
		return fmt.Errorf("out of its place")
	}
	switch e.Type {
	case messageStart:
		o.begun = true
	case blockStart:
		if o.finished || o.open >= 0 || e.Index != o.next {
			return fmt.Errorf("a block begins out of order")
		}
		o.open, o.next, o.kind, o.signed = e.Index, o.next+1, e.ContentBlock.Type, false
	case blockDelta:
		want := map[string]string{"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}[o.kind]
		if o.kind == "thinking" && e.Delta.Type == "signature_delta" {
			want, o.signed = e.Delta.Type, true
		} else if o.signed {
			return fmt.Errorf("thinking after its signature")
		}
		if e.Index != o.open || e.Delta.Type != want {
			return fmt.Errorf("a delta of another block or kind")
		}
	case blockStop:
		if e.Index != o.open || o.kind == "thinking" && !o.signed {
			return fmt.Errorf("a block ends out of order")
		}
		o.open = -1
	case messageDelta:
		if o.open >= 0 || o.finished || e.Delta.StopReason == nil || e.Usage == nil || e.Usage.OutputTokens == nil {
			return fmt.Errorf("the message ends out of order")
		}
		o.finished = true
	case messageStop:
		if !o.finished {
			return fmt.Errorf("a stop without an end")
		}
		o.stopped = true
	default:
		return fmt.Errorf("an unknown event")
	}
	return nil
}
