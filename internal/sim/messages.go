package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Signature is what a Server signs a text of reasoning with. Messages demands it of
// every thinking block that comes back, so whoever makes one up is found out.
func Signature(thinking string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte("sim" + thinking))
	return fmt.Sprintf("sig_%016x", h.Sum64())
}

// messages answers /messages, Anthropic's API.
func (c *call) messages() answer {
	c.id = "msg_" + c.a.Nonce
	if c.flavour == LlamaCPP {
		c.id = "chatcmpl-" + c.a.Nonce
	}
	if c.q.Stream {
		return c.streamed(c.stream(c.messageEvents))
	}
	o := c.messageObject(c.messageContent(), c.stopReason(), c.messageUsage(c.completionTokens(), true))
	return c.pace(jsonAnswer(http.StatusOK, encode(o)))
}

// messageObject is an answer, or the head of a stream.
func (c *call) messageObject(content []any, stop string, usage any) object {
	o := object{{"id", c.id}, {"type", "message"}, {"role", "assistant"}, {"model", c.model}, {"content", content},
		{"stop_reason", nil}, {"stop_sequence", c.stopSequence(stop)}}
	if stop != "" {
		o[5].value = stop
	}
	if c.flavour == Anthropic {
		o = append(o, member{"stop_details", nil})
	}
	if usage != nil {
		o = append(o, member{"usage", usage})
	}
	switch c.b.IDs {
	case "none":
		o = o.without([]string{"id"})
	case "empty":
		o[0].value = ""
	}
	return o.without(c.b.Omit)
}

// stopReason is why the answer ends, in Anthropic's words; a script may use any other.
func (c *call) stopReason() string {
	reasons := map[string]string{"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
	return cmp.Or(reasons[c.finish], c.finish)
}

// stopSequence is the first that the request names, when one has ended the answer.
func (c *call) stopSequence(stop string) any {
	var list []string
	if stop != "stop_sequence" || json.Unmarshal(c.q.has["stop_sequences"], &list) != nil || len(list) == 0 {
		return nil
	}
	return list[0]
}

// messageUsage is the usage after so many tokens of output, or nil for none. That of the
// whole answer, and of a stream's head, tells more than that of its end.
func (c *call) messageUsage(out int, whole bool) any {
	const most = uint64(1) << 63
	in := c.prompt - c.b.Cached - c.b.CacheWrite
	switch c.b.Usage {
	case "none":
		return nil
	case "partial":
		return object{{"output_tokens", out}}
	case "negative":
		return object{{"input_tokens", -in}, {"output_tokens", -out}}
	case "huge":
		return object{{"input_tokens", most}, {"output_tokens", most}}
	case "", "always", "every", "no_choices":
	default:
		return rawJSON(c.b.Usage)
	}
	cached := object{{"cache_creation_input_tokens", c.b.CacheWrite}, {"cache_read_input_tokens", c.b.Cached}}
	switch {
	case c.flavour == LlamaCPP && !whole:
		return object{{"output_tokens", out}}
	case c.flavour == LlamaCPP:
		return object{{"cache_read_input_tokens", c.b.Cached}, {"input_tokens", in}, {"output_tokens", out}}
	case c.flavour == Ollama:
		return object{{"input_tokens", in}, {"output_tokens", out}}
	}
	u := append(append(object{{"input_tokens", in}}, cached...), member{"output_tokens", out})
	if len(c.reasoning) > 0 && out > 1 {
		u = append(u, member{"output_tokens_details", object{{"thinking_tokens", len(c.reasoning)}}})
	}
	if whole {
		u = append(u, member{"cache_creation", object{{"ephemeral_5m_input_tokens", c.b.CacheWrite}, {"ephemeral_1h_input_tokens", 0}}},
			member{"service_tier", "standard"})
	}
	return u
}

// messageContent is the blocks of an answer that is not streamed.
func (c *call) messageContent() []any {
	list := []any{}
	if len(c.reasoning) > 0 {
		list = append(list, c.thinkingBlock(strings.Join(c.reasoning, "")))
	}
	if len(c.content) > 0 {
		list = append(list, object{{"type", "text"}, {"text", strings.Join(c.content, "")}})
	}
	for _, t := range c.tools {
		var input any = rawJSON(cmp.Or(t.args, "{}"))
		if !json.Valid([]byte(t.args)) { // the stream of such a call is not JSON either
			input = object{{"INVALID_JSON", t.args}}
		}
		list = append(list, append(c.toolBlock(t), member{"input", input}))
	}
	return list
}

// thinkingBlock is reasoning with its signature, or hidden where the script says so.
func (c *call) thinkingBlock(text string) object {
	if c.b.ReasoningField == "redacted" {
		return object{{"type", "redacted_thinking"}, {"data", Signature(text)}}
	}
	return object{{"type", "thinking"}, {"thinking", text}, {"signature", Signature(text)}}
}

// toolBlock is a call without its input.
func (c *call) toolBlock(t toolCall) object {
	o := object{{"type", "tool_use"}, {"id", t.id}, {"name", t.name}}
	switch c.b.Tool {
	case "no_id":
		return o.without([]string{"id"})
	case "null_id":
		o[1].value = nil
	}
	return o
}

// messageStream makes the events of one stream.
type messageStream struct {
	*call
	yield func(event) bool
	wait  time.Duration // before the next content
	index int           // of the block
	out   int           // content chunks so far
}

// messageEvents is a stream up to its message_delta; message_stop comes from decorate.
func (c *call) messageEvents(yield func(event) bool) {
	s := &messageStream{call: c, yield: yield, wait: c.b.FirstDelay}
	if s.open() && s.think() && s.speak() && s.callTools() {
		s.finish()
	}
}

// open yields what stands before the first block.
func (s *messageStream) open() bool {
	start := s.named("message_start", object{{"message", s.messageObject([]any{}, "", s.messageUsage(s.first(), true))}})
	start.opening = true
	if s.flavour == LlamaCPP { // nothing leaves before the first token, and it sends no ping
		start.wait, s.wait = s.wait, 0
		return s.yield(start)
	}
	ping := s.named("ping", nil)
	ping.opening = true
	return s.yield(start) && s.yield(ping)
}

// first is the output that is counted at the start already.
func (s *messageStream) first() int {
	if s.flavour == LlamaCPP {
		return 0
	}
	return 1
}

func (s *messageStream) think() bool {
	if len(s.reasoning) == 0 {
		return true
	}
	text := strings.Join(s.reasoning, "")
	if s.b.ReasoningField == "redacted" {
		return s.block(s.thinkingBlock(text), func(func(object) bool) {})
	}
	return s.block(object{{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}, func(yield func(object) bool) {
		for _, r := range s.reasoning {
			if !yield(object{{"type", "thinking_delta"}, {"thinking", r}}) {
				return
			}
		}
		yield(object{{"type", "signature_delta"}, {"signature", Signature(text)}})
	})
}

func (s *messageStream) speak() bool {
	if len(s.call.content) == 0 && !s.b.Endless {
		return true
	}
	return s.block(object{{"type", "text"}, {"text", ""}}, func(yield func(object) bool) {
		for text := range s.spoken() {
			if !yield(object{{"type", "text_delta"}, {"text", text}}) {
				return
			}
		}
	})
}

// callTools streams the calls one block after the other: this API interleaves none.
func (s *messageStream) callTools() bool {
	for _, t := range s.tools {
		start := s.toolBlock(t)
		if s.flavour != LlamaCPP { // it leaves it out
			start = append(start, member{"input", object{}})
		}
		pieces := append([]string{""}, split(t.args, 0, argumentBytes)...)
		ok := s.block(start, func(yield func(object) bool) {
			for _, p := range pieces {
				if !yield(object{{"type", "input_json_delta"}, {"partial_json", p}}) {
					return
				}
			}
		})
		if !ok {
			return false
		}
	}
	return true
}

// block streams one block: its start, its deltas and its end.
func (s *messageStream) block(start object, deltas iter.Seq[object]) bool {
	kind := start[0].value
	if !s.send("content_block_start", object{{"content_block", start}}, kind == "tool_use" || kind == "redacted_thinking") {
		return false
	}
	for d := range deltas {
		if !s.send("content_block_delta", object{{"delta", d}}, d[0].value != "signature_delta") {
			return false
		}
		if s.b.Usage == "every" && !s.yield(s.named("message_delta", s.delta(nil, s.out))) {
			return false
		}
	}
	ok := s.send("content_block_stop", nil, false)
	if s.b.Tool != "index_zero" { // C034 in this API's shape
		s.index++
	}
	return ok
}

// send yields an event of the open block; content waits until it is due.
func (s *messageStream) send(name string, o object, content bool) bool {
	if s.b.Tool != "no_index" {
		o = append(object{{"index", s.index}}, o...)
	}
	e := s.named(name, o)
	if e.content = content; content {
		e.wait, s.wait = s.wait, s.b.Gap
		s.out++
	}
	return s.yield(e)
}

// delta is the body of a message_delta: why the answer ends, and the usage so far.
func (s *messageStream) delta(stop any, out int) object {
	reason, _ := stop.(string)
	o := object{{"delta", object{{"stop_reason", stop}, {"stop_sequence", s.stopSequence(reason)}}.without(s.b.Omit)}}
	if u := s.messageUsage(out, false); u != nil {
		o = append(o, member{"usage", u})
	}
	return o
}

func (s *messageStream) finish() {
	e := s.named("message_delta", s.delta(s.stopReason(), s.completionTokens()))
	e.finish = true
	s.yield(e)
}

// anthropicState answers Anthropic's own paths beside the conversation.
func anthropicState(r *http.Request, script *Script, v voice) (answer, bool) {
	id, one := strings.CutPrefix(r.URL.Path, "/v1/models/")
	if r.URL.Path != "/v1/models" && !one {
		return answer{}, false
	}
	if r.Header.Get("Anthropic-Version") == "" {
		return failure(v, badRequest("anthropic-version: header is required")), true
	}
	models := script.models()
	if one {
		if !slices.Contains(models, id) {
			return failure(v, fault{status: http.StatusNotFound, message: "model: " + id}), true
		}
		return ok(anthropicModel(script, id))
	}
	return ok(anthropicList(r, script, models))
}

// anthropicList is a page of the models: limit of them, behind after_id.
func anthropicList(r *http.Request, script *Script, models []string) object {
	limit := 20
	_, _ = fmt.Sscan(r.URL.Query().Get("limit"), &limit) // what is no number is the default
	if i := slices.Index(models, r.URL.Query().Get("after_id")); i >= 0 {
		models = models[i+1:]
	}
	page := models[:min(max(limit, 1), len(models))]
	data := []any{}
	for _, id := range page {
		data = append(data, anthropicModel(script, id))
	}
	o := object{{"data", data}, {"has_more", len(page) < len(models)}, {"first_id", nil}, {"last_id", nil}}
	if len(page) > 0 {
		o[2].value, o[3].value = page[0], page[len(page)-1]
	}
	return o
}

func anthropicModel(script *Script, id string) object {
	return object{{"type", "model"}, {"id", id}, {"display_name", id}, {"created_at", time.Unix(created, 0).UTC().Format(time.RFC3339)},
		{"max_input_tokens", window(script)}, {"max_tokens", 8192}}
}
