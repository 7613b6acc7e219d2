package responses

import (
	"bytes"
	"strconv"

	"weir/internal/llm"
)

// kind is what an event of a stream says.
type kind uint8

// The kinds. Each that ends a text stands behind that of its deltas.
const (
	other   kind = iota // of the vendor's own tools, or not known
	alive               // says nothing
	created             // created, queued, in_progress: with a response
	itemAdded
	itemDone
	partAdded
	partDone
	textDelta
	textDone
	refusalDelta
	refusalDone
	thoughtDelta
	thoughtDone
	summaryPart
	summaryPartDone
	summaryDelta
	summaryDone
	argumentsDelta
	argumentsDone
	inputDelta
	inputDone
	completed
	incomplete
	failed
	cancelled
	fault
)

var kinds = map[string]kind{
	"keepalive":                              alive,
	"response.created":                       created,
	"response.queued":                        created,
	"response.in_progress":                   created,
	"response.output_item.added":             itemAdded,
	"response.output_item.done":              itemDone,
	"response.content_part.added":            partAdded,
	"response.content_part.done":             partDone,
	"response.output_text.delta":             textDelta,
	"response.output_text.done":              textDone,
	"response.refusal.delta":                 refusalDelta,
	"response.refusal.done":                  refusalDone,
	"response.reasoning_text.delta":          thoughtDelta,
	"response.reasoning_text.done":           thoughtDone,
	"response.reasoning_summary_part.added":  summaryPart,
	"response.reasoning_summary_part.done":   summaryPartDone,
	"response.reasoning_summary_text.delta":  summaryDelta,
	"response.reasoning_summary_text.done":   summaryDone,
	"response.function_call_arguments.delta": argumentsDelta,
	"response.function_call_arguments.done":  argumentsDone,
	"response.custom_tool_call_input.delta":  inputDelta,
	"response.custom_tool_call_input.done":   inputDone,
	"response.completed":                     completed,
	"response.incomplete":                    incomplete,
	"response.failed":                        failed,
	"response.cancelled":                     cancelled,
	"response.canceled":                      cancelled,
	"error":                                  fault,
}

// ofItem reports an event about a piece of an item, which names it.
func (k kind) ofItem() bool { return k >= partAdded && k <= inputDone }

// ofPart and ofSummary report an event that says which part it is about.
func (k kind) ofPart() bool    { return k >= partAdded && k <= thoughtDone }
func (k kind) ofSummary() bool { return k >= summaryPart && k <= summaryDone }

// isDelta reports an event with a piece of content.
func (k kind) isDelta() bool {
	switch k {
	case textDelta, refusalDelta, thoughtDelta, summaryDelta, argumentsDelta, inputDelta:
		return true
	}
	return false
}

// event is one event by its places in data. A zero span is absent.
type event struct {
	data                             []byte
	kind                             kind
	typ, seq                         llm.Span
	itemID, output, content, summary llm.Span
	delta, text, item, response, err llm.Span
	s                                llm.Scanner
}

// read reads an event. Errors are syntax errors: the data is no JSON object.
func (e *event) read(f *llm.Frame) error {
	*e = event{data: f.Data, s: llm.NewScanner(f.Data, maxDepth)}
	if err := e.s.Members(e.member); err != nil {
		return err
	}
	if err := e.s.End(); err != nil {
		return err
	}
	name := []byte(llm.Inside(e.typ.Of(f.Data)))
	if len(name) == 0 {
		name = f.Name
	}
	e.kind = kinds[string(name)]
	if e.kind == other && e.isFault() {
		e.kind = fault
	}
	return nil
}

// isFault reports an error object in place of an event: of servers that report so what they find out after the status.
func (e *event) isFault() bool {
	return isError(e.err.Of(e.data)) && e.typ.IsZero() && e.response.IsZero()
}

func (e *event) member(name []byte) error {
	at, err := e.s.Value()
	if err != nil || isNull(at.Of(e.data)) {
		return err
	}
	switch string(name) {
	case "type":
		e.typ = at
	case "sequence_number":
		e.seq = at
	case "item_id":
		e.itemID = at
	case "output_index":
		e.output = at
	case "content_index":
		e.content = at
	case "summary_index":
		e.summary = at
	case "delta":
		e.delta = at
	case "text", "refusal", "arguments", "input":
		e.text = at
	case "item":
		e.item = at
	case "response":
		e.response = at
	case "error":
		e.err = at
	}
	return nil
}

// piece returns the text of a delta, and whole that of the event that ends it.
func (e *event) piece() llm.Text { return llm.Inside(e.delta.Of(e.data)) }
func (e *event) whole() llm.Text { return llm.Inside(e.text.Of(e.data)) }

// answer is a response object by its places.
type answer struct {
	data                                                              []byte
	id, object, createdAt, model, status, output, usage, err, details llm.Span
	empty                                                             bool // the object has no member
}

func readAnswer(data []byte) (answer, error) {
	a := answer{data: data, empty: true}
	s := llm.NewScanner(data, maxDepth)
	err := s.Members(func(name []byte) error {
		a.empty = false
		at, err := s.Value()
		if err != nil {
			return err
		}
		if isNull(at.Of(data)) && string(name) != "output" {
			return nil
		}
		switch string(name) {
		case "id":
			a.id = at
		case "object":
			a.object = at
		case "created_at":
			a.createdAt = at
		case "model":
			a.model = at
		case "status":
			a.status = at
		case "output":
			a.output = at
		case "usage":
			a.usage = at
		case "error":
			a.err = at
		case "incomplete_details":
			a.details = at
		}
		return nil
	})
	if err == nil {
		err = s.End()
	}
	return a, err
}

// items returns the list of what was answered, nil where there is none.
func (a *answer) items() []byte {
	v := a.output.Of(a.data)
	if len(v) < 2 || v[0] != '[' || len(bytes.TrimSpace(v[1:len(v)-1])) == 0 {
		return nil
	}
	return v
}

// over says how the answer ended: nil for a good end, and for one that has not come.
func (a *answer) over(k kind, op string, content bool) error {
	status := string(a.status.Of(a.data))
	switch {
	case k == failed || status == `"failed"` || isError(a.err.Of(a.data)):
		return &llm.Fault{Data: faultData(a.err.Of(a.data))}
	case k == cancelled || status == `"cancelled"`:
		e := &llm.Error{Kind: llm.Refused, Op: op, Sent: true, Msg: "the model's server cancelled the answer"}
		if content {
			e.Kind, e.Code = llm.Stalled, "incomplete_stream"
		}
		return e
	}
	return nil
}

// isError reports an error member that tells of one.
func isError(v []byte) bool { return !isBlank(v) && string(v) != "{}" && string(v) != "false" }

// faultData writes the error of a failed response as an HTTP error's body has it, which is how faults are told apart.
func faultData(e []byte) []byte {
	code := member(e, "code")
	out := append([]byte(`{"error":{"message":`), or(member(e, "message"), `"the model's server failed without saying why"`)...)
	out = append(append(out, `,"code":`...), or(code, `"server_error"`)...)
	out = append(out, `,"type":`...)
	switch c := string(code); {
	case c == `"invalid_prompt"`, bytes.HasPrefix(code, []byte(`"invalid_`)) && c != `"invalid_api_key"`, c == `"image_content_policy_violation"`:
		out = append(out, `"invalid_request_error"`...)
	case c == `"server_is_overloaded"`, c == `"slow_down"`:
		out = append(out, `"overloaded_error"`...)
	default:
		out = append(out, or(member(e, "type"), `"server_error"`)...)
	}
	return append(out, "}}"...)
}

// flatFault returns an error event as an HTTP error's body has it: the event is flat, some servers put an object in it.
func flatFault(e *event) []byte {
	if v := e.err.Of(e.data); len(v) > 0 && v[0] == '{' {
		return faultData(v)
	}
	if member(e.data, "message") == nil {
		return bytes.Clone(e.data)
	}
	out := faultData(withoutType(e.data))
	if p := member(e.data, "param"); p != nil {
		out = append(append(append(out[:len(out)-2], `,"param":`...), p...), "}}"...)
	}
	return out
}

// withoutType returns code and message of a flat error event, whose type is always "error".
func withoutType(data []byte) []byte {
	out := append([]byte(`{"message":`), or(member(data, "message"), "null")...)
	out = append(append(out, `,"code":`...), or(member(data, "code"), "null")...)
	return append(out, '}')
}

// front returns the edit that puts members, each with a comma behind it, at the start of the object that begins at from.
func front(members []byte, from int, empty bool) llm.Edit {
	if empty {
		members = closed(members)
	}
	return llm.Edit{At: llm.Span{From: from + 1, To: from + 1}, With: members}
}

func numbered(dst []byte, name string, n int64) []byte {
	dst = append(append(append(dst, '"'), name...), `":`...)
	return append(strconv.AppendInt(dst, n, 10), ',')
}

func spelt(dst []byte, name string, t llm.Text) []byte {
	dst = append(append(append(dst, '"'), name...), `":"`...)
	return append(append(dst, t...), `",`...)
}
