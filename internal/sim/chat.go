package sim

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"
)

// endlessGap paces a stream that never ends and has no gap of its own.
const endlessGap = 10 * time.Millisecond

func rawJSON(s string) json.RawMessage { return json.RawMessage(s) }

// chat answers /chat/completions.
func (c *call) chat() answer {
	if c.q.Stream {
		return c.streamed(c.stream(c.chatEvents))
	}
	choices := make([]any, c.q.n())
	for i := range choices {
		choice := object{{"index", i}, {"message", c.message()}, {"logprobs", c.chatLogprobs(c.content)}, {"finish_reason", c.finish}}
		if !c.q.wantsLogprobs() && c.flavour != OpenAI {
			choice = choice.without([]string{"logprobs"})
		}
		choices[i] = choice.without(c.b.Omit)
	}
	o := c.label(0, "chat.completion", choices)
	if u := c.usage(); u != nil {
		o = append(o, member{"usage", u})
	}
	if c.flavour == LlamaCPP {
		o = append(o, member{"timings", c.timings()})
	}
	ans := jsonAnswer(http.StatusOK, encode(o))
	return c.pace(ans)
}

// stream is the events of a call: the script's own, or chunks and what stands around them.
func (c *call) stream(chunks iter.Seq[event]) iter.Seq[event] {
	if c.b.Events != nil {
		return c.scriptedEvents
	}
	return c.decorate(chunks)
}

// pace makes a whole answer take as long as the same stream would.
func (c *call) pace(ans answer) answer {
	wait := c.b.FirstDelay + time.Duration(max(len(c.content)-1, 0))*c.b.Gap
	inner := ans.pieces
	ans.pieces = func(yield func(piece) bool) {
		for p := range inner {
			p.wait += wait
			if !yield(p) {
				return
			}
		}
	}
	return ans
}

// label is what stands around the choices of an answer or of its i-th chunk.
func (c *call) label(i int, kind string, choices any) object {
	id := c.id
	switch c.b.IDs {
	case "change":
		id = fmt.Sprintf("%s-%d", c.id, i)
	case "empty":
		id = ""
	}
	o := object{{"id", id}, {"object", kind}, {"created", c.created}, {"model", c.model}}
	switch c.flavour {
	case OpenAI:
		o = append(o, member{"system_fingerprint", "fp_simulated"}, member{"service_tier", "default"})
	case LlamaCPP:
		o = append(o, member{"system_fingerprint", "b1-simulated"})
	case Ollama:
		o = append(o, member{"system_fingerprint", "fp_ollama"})
	}
	if c.b.IDs == "none" {
		o = o.without([]string{"id"})
	}
	return append(o, member{"choices", choices}).without(c.b.Omit)
}

func (c *call) message() object {
	content := any(strings.Join(c.content, ""))
	if len(c.tools) > 0 && len(c.content) == 0 && c.flavour != LlamaCPP {
		content = nil
	}
	m := object{{"role", "assistant"}, {"content", content}}
	if len(c.reasoning) > 0 {
		m = append(m, c.think(strings.Join(c.reasoning, ""))...)
	}
	if c.flavour == OpenAI {
		m = append(m, member{"refusal", nil}, member{"annotations", []any{}})
	}
	if len(c.tools) > 0 {
		list := make([]any, len(c.tools))
		for i, t := range c.tools {
			list[i] = c.toolObject(t, object{{"name", t.name}, {"arguments", t.args}})
		}
		m = append(m, member{"tool_calls", list})
	}
	return m.without(c.b.Omit)
}

func (c *call) toolObject(t toolCall, function object) object {
	o := object{{"id", t.id}, {"type", "function"}, {"function", function}}
	switch c.b.Tool {
	case "no_id":
		return o.without([]string{"id"})
	case "null_id":
		o[0].value = nil
	}
	return o
}

// think returns the members that carry reasoning.
func (c *call) think(text string) object {
	field := c.b.ReasoningField
	if field == "" {
		field = "reasoning_content"
		if c.flavour == Ollama || c.flavour == VLLM {
			field = "reasoning"
		}
	}
	if field == "both" {
		return object{{"reasoning", text}, {"reasoning_content", text}}
	}
	return object{{field, text}}
}

// chatLogprobs makes up log probabilities for the pieces, or nil when none are wanted.
func (c *call) chatLogprobs(pieces []string) any {
	if !c.q.wantsLogprobs() {
		return nil
	}
	list := []any{}
	for _, p := range pieces {
		top := []any{}
		for i := range c.q.TopLogs {
			token := p
			if i > 0 {
				token = fmt.Sprintf("alt%d", i)
			}
			top = append(top, object{{"token", token}, {"logprob", -0.1 - float64(i)}, {"bytes", nil}})
		}
		list = append(list, object{{"token", p}, {"logprob", -0.1}, {"bytes", nil}, {"top_logprobs", top}})
	}
	return object{{"content", list}, {"refusal", nil}}
}

// chatEvents is a chat stream up to its usage; [DONE] comes from decorate.
func (c *call) chatEvents(yield func(event) bool) {
	s := &chatStream{call: c, yield: yield}
	role := object{{"role", "assistant"}, {"content", ""}}
	first, wait := time.Duration(0), c.b.FirstDelay
	if c.flavour == LlamaCPP { // nothing leaves before the first token
		role[1].value = nil
		first, wait = wait, 0
	}
	if c.flavour == LlamaCPP && c.q.ReturnProgress {
		first = s.progress(first)
	}
	if !s.each(first, role.without(c.b.Omit), false) {
		return
	}
	s.wait = wait
	for _, r := range c.reasoning {
		if !s.content(c.think(r), "") {
			return
		}
	}
	if c.b.Tool == "text_and_call" && len(c.tools) > 0 {
		if !s.content(append(object{{"content", strings.Join(c.content, "")}}, s.callDelta(0, c.tools[0], c.tools[0].args, true)...), "") {
			return
		}
	} else if !s.speak() || !s.callTools() {
		return
	}
	s.finish()
}

// chatStream makes the chunks of one stream.
type chatStream struct {
	*call
	yield func(event) bool
	wait  time.Duration // before the next content
	i     int           // chunks so far
}

// speak streams the content; an endless one never returns but when the reader stops.
func (s *chatStream) speak() bool {
	for text := range s.spoken() {
		if !s.content(object{{"content", text}}, text) {
			return false
		}
	}
	return true
}

// callTools streams the tool calls: name first, then the arguments in pieces.
func (s *chatStream) callTools() bool {
	switch s.b.Tool {
	case "no_index":
		return s.callsWithoutIndex()
	case "interleaved":
		return s.callsInterleaved()
	}
	for i, t := range s.tools {
		index := i
		if s.b.Tool == "index_zero" { // C034: whole calls, all under index 0
			if !s.content(s.callDelta(0, t, t.args, true), "") {
				return false
			}
			continue
		}
		pieces := split(t.args, 0, argumentBytes)
		head := ""
		if s.flavour == LlamaCPP && len(pieces) > 0 {
			head, pieces = pieces[0], pieces[1:]
		}
		if !s.content(s.callDelta(index, t, head, true), "") {
			return false
		}
		for _, p := range pieces {
			if !s.content(s.callDelta(index, t, p, false), "") {
				return false
			}
		}
	}
	return true
}

// callsWithoutIndex streams two calls as C037 saw them: both opened in one delta, the
// first one's arguments by id alone.
func (s *chatStream) callsWithoutIndex() bool {
	open := []any{}
	for i, t := range s.tools {
		args := t.args
		if i == 0 {
			args = ""
		}
		open = append(open, s.toolObject(t, object{{"name", t.name}, {"arguments", args}}))
	}
	first := s.tools[0]
	rest := object{{"id", first.id}, {"function", object{{"arguments", first.args}}}}
	return s.content(object{{"tool_calls", open}}, "") && s.content(object{{"tool_calls", []any{rest}}}, "")
}

// callsInterleaved opens all calls and then gives each a piece of its arguments in turn.
func (s *chatStream) callsInterleaved() bool {
	for i, t := range s.tools {
		if !s.content(s.callDelta(i, t, "", true), "") {
			return false
		}
	}
	for i, p := range interleaved(s.tools) {
		if !s.content(s.callDelta(i, s.tools[i], p, false), "") {
			return false
		}
	}
	return true
}

func (s *chatStream) callDelta(index int, t toolCall, args string, first bool) object {
	if first {
		o := append(object{{"index", index}}, s.toolObject(t, object{{"name", t.name}, {"arguments", args}})...)
		return object{{"tool_calls", []any{o}}}
	}
	return object{{"tool_calls", []any{object{{"index", index}, {"function", object{{"arguments", args}}}}}}}
}

// content yields a content chunk for each choice, after the wait that is due.
func (s *chatStream) content(delta object, token string) bool {
	if s.flavour == Ollama { // it repeats the role
		delta = append(object{{"role", "assistant"}}, delta...)
	}
	ok := s.chunks(s.wait, delta.without(s.b.Omit), nil, token, true)
	s.wait = s.b.Gap
	return ok
}

// each yields a chunk that is not content for each choice.
func (s *chatStream) each(wait time.Duration, delta object, content bool) bool {
	return s.chunks(wait, delta, nil, "", content)
}

func (s *chatStream) chunks(wait time.Duration, delta object, finish any, token string, content bool) bool {
	for n := range s.q.n() {
		choice := object{{"index", n}, {"delta", delta}, {"logprobs", nil}, {"finish_reason", finish}}
		if token != "" {
			choice[2].value = s.chatLogprobs([]string{token})
		}
		if choice[2].value == nil && s.flavour != OpenAI {
			choice = choice.without([]string{"logprobs"})
		}
		o := s.label(s.i, "chat.completion.chunk", []any{choice.without(s.b.Omit)})
		if s.flavour == LlamaCPP && s.q.TimingsPerToken && content {
			o = append(o, member{"timings", s.timings()})
		}
		if s.b.Usage == "every" {
			o = append(o, member{"usage", s.usage()})
		} else if s.flavour == OpenAI && s.q.StreamOptions.IncludeUsage {
			o = append(o, member{"usage", nil})
		}
		if s.flavour == LlamaCPP && finish != nil && !s.q.StreamOptions.IncludeUsage {
			o = append(o, member{"timings", s.timings()})
		}
		if !s.send(event{wait: wait, payload: encode(o), content: content && n == 0, finish: finish != nil, opening: !content && finish == nil}) {
			return false
		}
		wait = 0
	}
	return true
}

func (s *chatStream) send(e event) bool {
	s.i++
	return s.yield(e)
}

// finish yields the terminal chunk and the usage.
func (s *chatStream) finish() {
	delta := object{}
	if s.flavour == Ollama {
		delta = object{{"role", "assistant"}, {"content", ""}}
	}
	if !s.chunks(0, delta, s.call.finish, "", false) {
		return
	}
	asked := s.q.StreamOptions.IncludeUsage || s.b.Usage == "always" || s.b.Usage == "no_choices"
	u := s.usage()
	if !asked || u == nil {
		return
	}
	o := append(s.label(s.i, "chat.completion.chunk", []any{}), member{"usage", u})
	if s.flavour == LlamaCPP {
		o = append(o, member{"timings", s.timings()})
	}
	if s.b.Usage == "no_choices" {
		o = o.without([]string{"choices"})
	}
	s.send(event{payload: encode(o)})
}

// progress tells of the prompt's reading in four steps and returns the wait that is left.
func (s *chatStream) progress(total time.Duration) time.Duration {
	const steps = 4
	for i := range steps {
		done := s.prompt * (i + 1) / steps
		choice := object{{"finish_reason", nil}, {"index", 0}, {"delta", object{{"role", "assistant"}, {"content", nil}}}}
		o := append(s.label(s.i, "chat.completion.chunk", []any{choice}), member{"prompt_progress", object{
			{"total", s.prompt}, {"cache", 0}, {"processed", done}, {"time_ms", (total * time.Duration(i+1) / steps).Milliseconds()}}})
		if !s.send(event{wait: total / steps, payload: encode(o), opening: true}) {
			break
		}
	}
	return 0
}
