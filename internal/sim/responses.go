package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// responses answers /responses.
func (c *call) responses() answer {
	if c.q.Stream {
		return c.streamed(c.stream(c.responseEvents))
	}
	o := c.responseObject(c.status(), c.items(), c.responseUsage())
	return c.pace(jsonAnswer(http.StatusOK, encode(o)))
}

// failed is the response object of a failure.
func (c *call) failed(fail *StreamError) object {
	o := c.responseObject("failed", []any{}, nil)
	var inner any = object{{"code", "server_error"}, {"message", overloaded(c.voice()).message}}
	if fail.Error != nil {
		inner = fail.Error
	}
	return append(o.without([]string{"error"}), member{"error", inner})
}

// responseFailed is the event of a failure: response.failed, or a flat error.
func (c *call) responseFailed(fail *StreamError) event {
	if fail.Event != "error" {
		return c.named("response.failed", object{{"response", c.failed(fail)}})
	}
	o := object{{"code", "server_error"}, {"message", overloaded(c.voice()).message}, {"param", nil}}
	var given struct {
		Code, Message, Param any
	}
	if fail.Error != nil && json.Unmarshal(fail.Error, &given) == nil {
		o = object{{"code", given.Code}, {"message", given.Message}, {"param", given.Param}}
	}
	return c.named("error", o)
}

// status is how the answer ended: llama.cpp says completed whatever stopped it.
func (c *call) status() string {
	if c.flavour != LlamaCPP && (c.finish == "length" || c.finish == "content_filter") {
		return "incomplete"
	}
	return "completed"
}

// responseObject is the whole answer at one moment.
func (c *call) responseObject(status string, output []any, usage any) object {
	id := "resp_" + c.a.Nonce
	switch c.b.IDs {
	case "change":
		id = fmt.Sprintf("%s-%d", id, c.sequence)
	case "empty":
		id = ""
	}
	o := object{{"id", id}, {"object", "response"}, {"status", status}}
	if c.flavour == LlamaCPP && status == "in_progress" {
		return o
	}
	o = append(o, member{"created_at", c.created}, member{"model", c.model}, member{"output", output})
	if status == "completed" {
		o = append(o, member{"completed_at", time.Now().Unix()})
	}
	if c.flavour != LlamaCPP {
		o = append(o, c.echo(status)...)
	}
	if usage != nil {
		o = append(o, member{"usage", usage})
	}
	if c.b.IDs == "none" {
		o = o.without([]string{"id"})
	}
	return o.without(c.b.Omit)
}

// echo is what a response repeats of its request, and what it could have told.
func (c *call) echo(status string) object {
	var incomplete any
	switch {
	case status == "incomplete" && c.finish == "length":
		incomplete = object{{"reason", "max_output_tokens"}}
	case status == "incomplete":
		incomplete = object{{"reason", c.finish}}
	}
	given := func(name, otherwise string) json.RawMessage {
		if raw := c.q.has[name]; raw != nil {
			return raw
		}
		return json.RawMessage(otherwise)
	}
	return object{{"error", nil}, {"incomplete_details", incomplete}, {"instructions", given("instructions", "null")},
		{"max_output_tokens", given("max_output_tokens", "null")}, {"metadata", given("metadata", "{}")},
		{"parallel_tool_calls", given("parallel_tool_calls", "true")}, {"previous_response_id", nil},
		{"reasoning", given("reasoning", `{"effort":null,"summary":null}`)}, {"store", given("store", "true")},
		{"temperature", given("temperature", "1.0")}, {"text", given("text", `{"format":{"type":"text"}}`)},
		{"tool_choice", given("tool_choice", `"auto"`)}, {"tools", given("tools", "[]")}, {"top_p", given("top_p", "1.0")},
		{"truncation", "disabled"}}
}

// responseUsage is the usage, or nil for none.
func (c *call) responseUsage() any {
	const most = uint64(1) << 63
	in, out := c.prompt, c.completionTokens()
	switch c.b.Usage {
	case "none":
		return nil
	case "partial":
		return object{{"output_tokens", out}}
	case "negative":
		return object{{"input_tokens", -in}, {"output_tokens", -out}, {"total_tokens", -in - out}}
	case "huge":
		return object{{"input_tokens", most}, {"output_tokens", most}, {"total_tokens", most}}
	case "", "always", "every", "no_choices":
	default:
		return rawJSON(c.b.Usage)
	}
	cached := object{{"cached_tokens", c.b.Cached}}
	if c.b.CacheWrite > 0 {
		cached = append(cached, member{"cache_write_tokens", c.b.CacheWrite})
	}
	u := object{{"input_tokens", in}, {"input_tokens_details", cached}, {"output_tokens", out}}
	if c.flavour != LlamaCPP {
		u = append(u, member{"output_tokens_details", object{{"reasoning_tokens", len(c.reasoning)}}})
	}
	return append(u, member{"total_tokens", in + out})
}

// items is the whole output.
func (c *call) items() []any {
	list := []any{}
	if len(c.reasoning) > 0 {
		list = append(list, c.reasoningItem(strings.Join(c.reasoning, "")))
	}
	if len(c.content) > 0 {
		list = append(list, c.messageItem(strings.Join(c.content, "")))
	}
	for i, t := range c.tools {
		list = append(list, c.callItem(i, t, t.args, "completed"))
	}
	return list
}

// summarizes reports whether reasoning is told as a summary: open models show its text.
func (c *call) summarizes() bool { return c.flavour == OpenAI }

// reasoningItem is finished reasoning; without text it has only begun.
func (c *call) reasoningItem(text string) object {
	o := object{{"id", "rs_" + c.a.Nonce}, {"type", "reasoning"}, {"summary", []any{}}}
	if text == "" {
		return o
	}
	if c.summarizes() {
		o[2].value = []any{object{{"type", "summary_text"}, {"text", text}}}
	} else {
		o = append(o, member{"content", []any{object{{"type", "reasoning_text"}, {"text", text}}}})
	}
	var include []string
	_ = json.Unmarshal(c.q.has["include"], &include) // what is no list includes nothing
	if slices.Contains(include, "reasoning.encrypted_content") {
		o = append(o, member{"encrypted_content", Signature(text)})
	}
	return o
}

func textPart(text string) object {
	return object{{"type", "output_text"}, {"text", text}, {"annotations", []any{}}, {"logprobs", []any{}}}
}

// messageItem is a finished message; without text it has only begun.
func (c *call) messageItem(text string) object {
	o := object{{"id", "msg_" + c.a.Nonce}, {"type", "message"}, {"role", "assistant"}, {"status", "in_progress"}, {"content", []any{}}}
	if text != "" {
		o[3].value, o[4].value = c.status(), []any{textPart(text)}
	}
	return o
}

func (c *call) callItem(i int, t toolCall, args, status string) object {
	o := object{{"id", fmt.Sprintf("fc_%s_%d", c.a.Nonce, i)}, {"type", "function_call"}, {"status", status},
		{"call_id", t.id}, {"name", t.name}, {"arguments", args}}
	switch c.b.Tool {
	case "no_id":
		return o.without([]string{"call_id"})
	case "null_id":
		o[3].value = nil
	}
	return o
}

// responseStream makes the events of one stream.
type responseStream struct {
	*call
	yield func(event) bool
	wait  time.Duration // before the next content
	index int           // of the item
}

// responseEvents is a whole stream: its last event is its end.
func (c *call) responseEvents(yield func(event) bool) {
	s := &responseStream{call: c, yield: yield, wait: c.b.FirstDelay}
	if s.open() && s.think() && s.speak() && s.callTools() {
		e := s.named("response."+s.status(), object{{"response", s.responseObject(s.status(), s.items(), s.responseUsage())}})
		e.finish = true
		s.yield(e)
	}
}

func (s *responseStream) open() bool {
	for _, name := range []string{"response.created", "response.in_progress"} {
		e := s.named(name, object{{"response", s.responseObject("in_progress", []any{}, nil)}})
		e.opening = true
		if s.flavour == LlamaCPP { // nothing leaves before the first token
			e.wait, s.wait = s.wait, 0
		}
		if !s.yield(e) {
			return false
		}
	}
	return true
}

// tell yields events that are not content, until one is not taken.
func (s *responseStream) tell(list ...event) bool {
	for _, e := range list {
		if !s.yield(e) {
			return false
		}
	}
	return true
}

// content yields an event with content when it is due.
func (s *responseStream) content(e event) bool {
	e.content, e.wait, s.wait = true, s.wait, s.b.Gap
	return s.yield(e)
}

// at makes an event that belongs to a place in an item: the part kind names the index.
func (s *responseStream) at(name, item, kind string, more ...member) event {
	o := object{{"item_id", item}, {"output_index", s.index}, {kind, 0}}
	return s.named(name, append(o, more...).without([]string{""}))
}

// item makes an event that opens or closes the item at an index.
func (s *responseStream) item(name string, index int, item object) event {
	return s.named("response.output_item."+name, s.place(object{{"output_index", index}, {"item", item}}))
}

// place takes off, or falsifies, the places of calls as the script says.
func (s *responseStream) place(o object) object {
	switch {
	case len(s.tools) == 0:
	case s.b.Tool == "no_index":
		return o.without([]string{"output_index"})
	case s.b.Tool == "index_zero":
		for i := range o {
			if o[i].key == "output_index" {
				o[i].value = 0
			}
		}
	}
	return o
}

func (s *responseStream) think() bool {
	if len(s.reasoning) == 0 {
		return true
	}
	id, text := "rs_"+s.a.Nonce, strings.Join(s.reasoning, "")
	part, kind, stem := "response.reasoning_summary_part.", "summary_index", "response.reasoning_summary_text."
	if !s.summarizes() {
		part, kind, stem = "", "content_index", "response.reasoning_text."
	}
	summary := func(text string) member { return member{"part", object{{"type", "summary_text"}, {"text", text}}} }
	if !s.tell(s.item("added", s.index, s.reasoningItem(""))) {
		return false
	}
	if part != "" && !s.tell(s.at(part+"added", id, kind, summary(""))) {
		return false
	}
	for _, r := range s.reasoning {
		if !s.content(s.at(stem+"delta", id, kind, member{"delta", r})) {
			return false
		}
	}
	if !s.tell(s.at(stem+"done", id, kind, member{"text", text})) {
		return false
	}
	if part != "" && !s.tell(s.at(part+"done", id, kind, summary(text))) {
		return false
	}
	ok := s.tell(s.item("done", s.index, s.reasoningItem(text)))
	s.index++
	return ok
}

func (s *responseStream) speak() bool {
	if len(s.call.content) == 0 && !s.b.Endless {
		return true
	}
	id, kind, none := "msg_"+s.a.Nonce, "content_index", member{"logprobs", []any{}}
	if !s.tell(s.item("added", s.index, s.messageItem("")), s.at("response.content_part.added", id, kind, member{"part", textPart("")})) {
		return false
	}
	for text := range s.spoken() {
		if !s.content(s.at("response.output_text.delta", id, kind, member{"delta", text}, none)) {
			return false
		}
	}
	text := strings.Join(s.call.content, "")
	ok := s.tell(s.at("response.output_text.done", id, kind, member{"text", text}, none),
		s.at("response.content_part.done", id, kind, member{"part", textPart(text)}),
		s.item("done", s.index, s.messageItem(text)))
	s.index++
	return ok
}

// callTools streams the calls, one after the other or piece by piece in turn.
func (s *responseStream) callTools() bool {
	if s.b.Tool == "interleaved" {
		for i, t := range s.tools {
			if !s.openCall(i, t) {
				return false
			}
		}
		for i, p := range interleaved(s.tools) {
			if !s.argument(i, p) {
				return false
			}
		}
		for i, t := range s.tools {
			if !s.closeCall(i, t) {
				return false
			}
		}
		return true
	}
	for i, t := range s.tools {
		if !s.openCall(i, t) {
			return false
		}
		for _, p := range split(t.args, 0, argumentBytes) {
			if !s.argument(i, p) {
				return false
			}
		}
		if !s.closeCall(i, t) {
			return false
		}
	}
	return true
}

func (s *responseStream) openCall(i int, t toolCall) bool {
	return s.content(s.item("added", s.index+i, s.callItem(i, t, "", "in_progress")))
}

func (s *responseStream) argument(i int, text string) bool {
	return s.content(s.ofCall("delta", i, member{"delta", text}))
}

func (s *responseStream) closeCall(i int, t toolCall) bool {
	return s.tell(s.ofCall("done", i, member{"name", t.name}, member{"arguments", t.args}), s.item("done", s.index+i, s.callItem(i, t, t.args, "completed")))
}

// ofCall makes an event about the arguments of a call.
func (s *responseStream) ofCall(name string, i int, more ...member) event {
	o := s.place(object{{"item_id", fmt.Sprintf("fc_%s_%d", s.a.Nonce, i)}, {"output_index", s.index + i}})
	return s.named("response.function_call_arguments."+name, append(o, more...))
}
