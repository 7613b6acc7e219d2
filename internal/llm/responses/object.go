package responses

import (
	"strconv"

	"weir/internal/llm"
)

// maxEcho is how large instructions and tools may be together that a response repeats: it is sent three times.
const maxEcho = 8 << 10

// echo is what a response repeats of its request, written once: the members before the output and those behind it.
type echo struct{ before, after []byte }

// newEcho copies what it needs of r, whose body's memory is reused before the answer ends.
func newEcho(r *llm.Request) echo {
	value := func(name, without string) []byte {
		if v := r.Value(name); v != nil {
			return v
		}
		return []byte(without)
	}
	instructions, tools := value("instructions", "null"), value("tools", "[]")
	if len(instructions)+len(tools) > maxEcho {
		instructions, tools = []byte("null"), []byte("[]")
	}
	var e echo
	set := func(dst *[]byte, name string, v []byte) {
		*dst = append(append(append(*dst, `,"`...), name...), `":`...)
		from := len(*dst)
		*dst = append(*dst, v...)
		oneLine((*dst)[from:])
	}
	set(&e.before, "instructions", instructions)
	set(&e.before, limit, value(limit, "null"))
	set(&e.after, "parallel_tool_calls", value("parallel_tool_calls", "true"))
	after := []byte("null")
	if r.After != "" {
		after = llm.AppendQuoted(nil, r.After)
	}
	set(&e.after, "previous_response_id", after)
	set(&e.after, "reasoning", value("reasoning", `{"effort":null,"summary":null}`))
	set(&e.after, "store", strconv.AppendBool(nil, r.Keeps)) // whatever was asked for: it says what is
	set(&e.after, "temperature", value("temperature", "1.0"))
	set(&e.after, "text", value("text", `{"format":{"type":"text"}}`))
	set(&e.after, "tool_choice", value("tool_choice", `"auto"`))
	set(&e.after, "tools", tools)
	set(&e.after, "top_p", value("top_p", "1.0"))
	set(&e.after, "truncation", value("truncation", `"disabled"`))
	set(&e.after, "metadata", value("metadata", "{}"))
	return e
}

// state is what changes of a response from event to event.
type state struct {
	status  string
	details string // why it is incomplete
	output  []byte // items, without brackets
	usage   []byte // raw; nil: not known yet
}

// object appends the response in a state.
func (w *writer) object(dst []byte, s *state) []byte {
	dst = append(append(append(dst, `{"id":"`...), w.id...), `","object":"response","created_at":`...)
	dst = strconv.AppendInt(dst, w.created, 10)
	dst = append(append(append(dst, `,"status":"`...), s.status...), `","error":null,"incomplete_details":`...)
	if s.details == "" {
		dst = append(dst, "null"...)
	} else {
		dst = append(append(append(dst, `{"reason":"`...), s.details...), `"}`...)
	}
	dst = append(dst, w.echo.before...)
	dst = append(append(append(dst, `,"model":"`...), w.model...), `","output":[`...)
	dst = append(append(dst, s.output...), ']')
	dst = append(dst, w.echo.after...)
	dst = append(dst, `,"usage":`...)
	if s.usage == nil {
		dst = append(dst, "null"...)
	}
	return append(append(dst, s.usage...), '}')
}

// appendUsage appends a usage object. What is not known counts as nothing, as the dialect has no other word for it.
func appendUsage(dst []byte, u *llm.Usage) []byte {
	in, out := max(u.In, 0), max(u.Out, 0)
	for _, m := range [...]struct {
		name string
		n    int64
	}{
		{`{"input_tokens":`, in}, {`,"input_tokens_details":{"cached_tokens":`, max(u.Cached, 0)},
		{`,"cache_write_tokens":`, max(u.Written, 0)}, {`},"output_tokens":`, out},
		{`,"output_tokens_details":{"reasoning_tokens":`, max(u.Reasoning, 0)}, {`},"total_tokens":`, in + out},
	} {
		dst = strconv.AppendInt(append(dst, m.name...), m.n, 10)
	}
	return append(dst, '}')
}

// appendText appends a part of a message that is text, and appendRefusal one that is a refusal.
func appendText(dst []byte, t llm.Text) []byte {
	dst = append(append(dst, `{"type":"output_text","text":"`...), t...)
	return append(dst, `","annotations":[],"logprobs":[]}`...)
}

func appendRefusal(dst []byte, t llm.Text) []byte {
	dst = append(append(dst, `{"type":"refusal","refusal":"`...), t...)
	return append(dst, `"}`...)
}

// appendMessage appends a message with parts, which are raw and without brackets.
func appendMessage(dst []byte, id llm.Text, status string, parts []byte) []byte {
	dst = append(append(dst, `{"id":"`...), id...)
	dst = append(append(dst, `","type":"message","status":"`...), status...)
	dst = append(append(dst, `","role":"assistant","content":[`...), parts...)
	return append(dst, "]}"...)
}

// appendReasoning appends a reasoning item: its text as a summary, or as what the model thought.
func appendReasoning(dst []byte, id, text, sealed llm.Text, summary bool) []byte {
	dst = append(append(append(dst, `{"id":"`...), id...), `","type":"reasoning","summary":[`...)
	switch {
	case len(text) == 0:
		dst = append(dst, ']')
	case summary:
		dst = append(append(append(dst, `{"type":"summary_text","text":"`...), text...), `"}]`...)
	default:
		dst = append(append(append(dst, `],"content":[{"type":"reasoning_text","text":"`...), text...), `"}]`...)
	}
	if len(sealed) > 0 {
		dst = append(append(append(dst, `,"encrypted_content":"`...), sealed...), '"')
	}
	return append(dst, '}')
}

// callItem is a call as an item of the answer.
type callItem struct {
	id, callID, name llm.Text
	custom           bool
}

func (c *callItem) append(dst []byte, status string, input llm.Text) []byte {
	dst = append(append(dst, `{"id":"`...), c.id...)
	if c.custom {
		dst = append(dst, `","type":"custom_tool_call","status":"`...)
	} else {
		dst = append(dst, `","type":"function_call","status":"`...)
	}
	dst = append(append(append(dst, status...), `","call_id":"`...), c.callID...)
	dst = append(append(append(dst, `","name":"`...), c.name...), '"')
	if c.custom {
		dst = append(dst, `,"input":"`...)
	} else {
		dst = append(dst, `,"arguments":"`...)
	}
	return append(append(dst, input...), `"}`...)
}
