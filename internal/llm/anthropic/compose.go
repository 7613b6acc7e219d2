package anthropic

import (
	"fmt"
	"strconv"

	"weir/internal/llm"
)

// Compose writes a conversation as a request for a message. What Messages has no place for is noted as lost; several
// choices, log probabilities, sound and other vendors' files are refused by name, for an answer without them would mean
// something else.
func (Dialect) Compose(c *llm.Conversation, r *llm.Request, t *llm.Target) ([]byte, error) {
	w := composer{c: c, r: r, t: t}
	if err := w.refuse(); err != nil {
		return nil, err
	}
	if err := w.gather(); err != nil {
		return nil, err
	}
	tools, n := w.tools()
	if c.Choice.Mode == llm.ModeNamed && c.Choice.Custom {
		return nil, invalid("tool_choice", "tool_choice names a tool that takes free text, which the model's server does not have")
	}
	var b llm.Body
	w.settings(&b, n > 0)
	dst := b.AppendOpen(make([]byte, 0, len(r.Body)+len(r.Body)/8+1024))
	dst = w.appendSystem(dst)
	if n > 0 {
		dst = append(append(append(dst, `"tools":[`...), tools...), "],"...)
	}
	dst = append(dst, `"messages":[`...)
	for i := range w.groups {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = w.groups[i].append(dst)
	}
	return append(dst, "]}"...), nil
}

type composer struct {
	c      *llm.Conversation
	r      *llm.Request
	t      *llm.Target
	system []*llm.Part
	groups []group
}

// at names a member of the client's request by the dialect it came in.
func (w *composer) at(chat, responses string) string {
	if w.r.Dialect == "responses" {
		return responses
	}
	return chat
}

// refuse refuses what would change the meaning of the answer (C158).
func (w *composer) refuse() error {
	s := &w.c.Settings
	const help = "this model's server does not have it; leave it out"
	if n, ok := llm.Int(s.Choices); ok && n > 1 {
		return invalid("n", "n above 1 is not possible: the model's server gives one answer to each request")
	}
	if string(s.LogProbs) == "true" {
		return invalid("logprobs", "logprobs are not possible: %s", help)
	}
	if n, ok := llm.Int(s.TopLogProbs); ok && n > 0 {
		return invalid("top_logprobs", "top_logprobs are not possible: %s", help)
	}
	return nil
}

// settings sets all members but the large ones.
func (w *composer) settings(b *llm.Body, hasTools bool) {
	b.Set("model", w.t.Quoted)
	if w.r.Op == llm.Chat {
		if w.t.Stream || w.r.Stream {
			b.Set("stream", rawTrue)
		}
		w.taste(b)
	}
	w.think(b)
	w.format(b)
	if hasTools {
		b.Set("tool_choice", w.choice())
	}
	w.manners(b)
	if w.r.Op == llm.Chat {
		b.Rule(w.t.Sampling, limit, limits...)
		if b.Value(limit) == nil {
			b.Set(limit, []byte(defaultLimit))
		}
	}
}

// taste sets how the next token is chosen and where to stop.
func (w *composer) taste(b *llm.Body) {
	t := &w.c.Taste
	// Below 1 it is "no limit" in other dialects.
	if n, ok := llm.Int(t.MaxTokens); ok && (n > 0 || n == 0 && w.r.Dialect == own) {
		b.Set(limit, t.MaxTokens)
	}
	b.Set("temperature", t.Temperature)
	if f, err := strconv.ParseFloat(string(t.Temperature), 64); err == nil && f > 1 {
		b.Set("temperature", []byte("1"))
	}
	b.Set("top_p", t.TopP)
	b.Set("top_k", t.TopK)
	var stop []byte
	for _, s := range t.Stop {
		switch {
		case isBlankText(s): // Anthropic refuses them
			w.c.Lose("stop")
			continue
		case stop == nil:
			stop = append(stop, '[')
		default:
			stop = append(stop, ',')
		}
		stop = append(append(append(stop, '"'), s...), '"')
	}
	if stop != nil {
		b.Set("stop_sequences", append(stop, ']'))
	}
	w.lose(t.Seed, "seed")
	w.lose(t.PresencePenalty, "presence_penalty")
	w.lose(t.FrequencyPenalty, "frequency_penalty")
}

func (w *composer) lose(v llm.Raw, path string) {
	if v != nil {
		w.c.Lose(path)
	}
}

// think sets how much is thought. Where the last turn that called tools has lost its thinking, none may go on: servers
// refuse a turn that does not begin with what was thought (C051).
func (w *composer) think(b *llm.Body) {
	t := &w.c.Think
	effort, off := t.Effort, t.Off
	switch string(effort) {
	case "", "low", "medium", "high", "xhigh", "max":
	case "minimal":
		effort = llm.Text("low")
	case "none":
		effort, off = nil, true
	default:
		w.c.Lose(w.at("reasoning_effort", "reasoning.effort"))
		effort = nil
	}
	forced := w.c.Choice.Mode == llm.ModeAny || w.c.Choice.Mode == llm.ModeNamed
	if t.On && forced || (t.On || len(effort) > 0) && w.hasLostThinking() {
		off = true
	}
	switch {
	case off:
		b.Set("thinking", []byte(`{"type":"disabled"}`))
	case t.On:
		b.Set("thinking", w.thinking(b))
		b.Remove("top_k") // thinking goes with neither
		if v := string(b.Value("temperature")); v != "1" && v != "1.0" {
			b.Remove("temperature")
		}
	}
	if len(effort) > 0 {
		b.Set("output_config", append(append([]byte(`{"effort":"`), effort...), `"}`...))
	}
}

func (w *composer) thinking(b *llm.Body) []byte {
	t := &w.c.Think
	most, _ := llm.Int(b.Value(limit))
	if b.Value(limit) == nil {
		most, _ = llm.Int([]byte(defaultLimit))
	}
	v := []byte(`{"type":"adaptive"`)
	if n, ok := llm.Int(t.Budget); ok && n < most { // servers refuse a budget that leaves no room for the answer
		v = append([]byte(`{"type":"enabled","budget_tokens":`), t.Budget...)
	}
	if s := string(t.Shown); s == "summarized" || s == "omitted" {
		v = append(append(append(v, `,"display":"`...), s...), '"')
	}
	return append(v, '}')
}

// hasLostThinking reports whether the last turn of the assistant called tools and holds nothing of what it thought.
func (w *composer) hasLostThinking() bool {
	for i := len(w.groups) - 1; i >= 0; i-- {
		if w.groups[i].role == llm.Assistant {
			return w.groups[i].has(llm.PartCall) && !w.groups[i].has(llm.PartThinking)
		}
	}
	return false
}

// format sets the form of the answer.
func (w *composer) format(b *llm.Body) {
	o := &w.c.Output
	switch {
	case o.Schema != nil:
		v := []byte(`{`)
		if old := b.Value("output_config"); old != nil {
			v = append(append(v[:0], old[:len(old)-1]...), ',')
		}
		v = append(append(v, `"format":{"type":"json_schema","schema":`...), o.Schema...)
		b.Set("output_config", append(v, "}}"...))
	case o.JSON:
		w.c.Lose(w.at("response_format", "text.format"))
	}
	w.lose(o.Verbosity, w.at("verbosity", "text.verbosity"))
}

// choice returns the tool_choice, nil for none.
func (w *composer) choice() []byte {
	var v []byte
	alone := string(w.c.Parallel) == "false"
	switch c := &w.c.Choice; c.Mode {
	case llm.ModeNone:
		return []byte(`{"type":"none"}`)
	case llm.ModeAuto:
		v = append(v, `{"type":"auto"`...)
	case llm.ModeAny:
		v = append(v, `{"type":"any"`...)
	case llm.ModeNamed:
		v = append(append(append(v, `{"type":"tool","name":"`...), c.Name...), '"')
	default:
		if !alone {
			return nil
		}
		v = append(v, `{"type":"auto"`...)
	}
	if alone {
		v = append(v, `,"disable_parallel_tool_use":true`...)
	}
	return append(v, '}')
}

// manners sets what says something about the call.
func (w *composer) manners(b *llm.Body) {
	s := &w.c.Settings
	if len(s.User) > 0 {
		b.Set("metadata", append(append([]byte(`{"user_id":"`), s.User...), `"}`...))
	}
	switch string(s.Tier) {
	case "":
	case `"auto"`:
		b.Set("service_tier", s.Tier)
	case `"default"`:
		b.Set("service_tier", []byte(`"standard_only"`))
	default:
		w.c.Lose("service_tier")
	}
	w.lose(s.Metadata, "metadata")
	w.lose(s.CacheKey, "prompt_cache_key")
	if string(s.Store) == "true" {
		w.c.Lose("store")
	}
	if len(s.LogitBias) > len("{}") {
		w.c.Lose("logit_bias")
	}
}

// noSchema is the schema of a tool that takes nothing (C035).
const noSchema = `{"type":"object","properties":{}}`

// tools returns the list of tools and how many they are.
func (w *composer) tools() (list []byte, n int) {
	for i := range w.c.Tools {
		t := &w.c.Tools[i]
		own := w.r.Dialect == own
		if t.Kind != llm.ToolFunction && !(own && t.Kind == llm.ToolHosted) {
			w.c.Lose(fmt.Sprintf("tools[%d]", i))
			continue
		}
		if !w.allowed(t.Name) {
			continue
		}
		if n++; n > 1 {
			list = append(list, ',')
		}
		if t.Kind == llm.ToolHosted {
			list = append(list, t.Raw...)
		} else {
			list = appendTool(list, t)
		}
	}
	return list, n
}

func (w *composer) allowed(name llm.Text) bool {
	for _, a := range w.c.Choice.Allowed {
		if string(a) == string(name) {
			return true
		}
	}
	return w.c.Choice.Allowed == nil
}

func appendTool(dst []byte, t *llm.Tool) []byte {
	dst = append(append(append(dst, `{"name":"`...), t.Name...), '"')
	if len(t.Description) > 0 {
		dst = append(append(append(dst, `,"description":"`...), t.Description...), '"')
	}
	dst = append(dst, `,"input_schema":`...)
	switch schema := object(t.Schema); {
	case schema == nil || member(schema, "type") == nil && isEmpty(schema):
		dst = append(dst, noSchema...)
	case member(schema, "type") == nil: // Messages cannot do without
		dst = append(append(dst, `{"type":"object",`...), schema[1:]...)
	default:
		dst = append(dst, schema...)
	}
	if s := string(t.Strict); s == "true" || s == "false" {
		dst = append(append(dst, `,"strict":`...), s...)
	}
	return append(appendCache(dst, t.Cache), '}')
}

func isEmpty(object []byte) bool {
	empty := true
	each(object, func([]byte, llm.Span) { empty = false })
	return empty
}

func appendCache(dst []byte, cache llm.Raw) []byte {
	if object(cache) == nil {
		return dst
	}
	return append(append(dst, `,"cache_control":`...), cache...)
}
