package openai

import (
	"fmt"
	"strconv"

	"weir/internal/llm"
)

// Compose writes a conversation as a Chat Completions request for t. What the API has no place for is noted with Lose; an
// *llm.Error of kind Invalid names what cannot be left out. A target whose token limit goes by the newer name is taken
// for OpenAI's own API or one that keeps up with it: such a one takes custom tools, allowed tools and reasoning off, and
// no top_k.
func (Dialect) Compose(c *llm.Conversation, r *llm.Request, t *llm.Target) ([]byte, error) {
	m := composer{c: c, r: r, t: t, modern: t.MaxTokens == newLimit, own: r.Dialect == "openai"}
	if err := m.turns(); err != nil {
		return nil, err
	}
	tools := m.tools()
	var b llm.Body
	b.Set("model", t.Quoted)
	if t.Stream {
		b.Set("stream", rawTrue)
		if t.Usage || r.IncludeUsage {
			b.Set("stream_options", []byte(`{"include_usage":true}`))
		}
	}
	m.taste(&b)
	m.settings(&b)
	m.think(&b)
	m.output(&b)
	if tools != nil {
		m.choice(&b)
		b.Set("tools", tools)
	}
	limit := oldLimit
	if m.modern {
		limit = newLimit
	}
	b.Rule(t.Sampling, limit, oldLimit, newLimit)
	out := b.AppendOpen(make([]byte, 0, len(m.out)+len(tools)+1<<10))
	out = append(append(out, `"messages":[`...), m.out...)
	return append(out, "]}"...), nil
}

// composer writes one request.
type composer struct {
	c      *llm.Conversation
	r      *llm.Request
	t      *llm.Target
	modern bool
	own    bool // the request is of this dialect: what only that knows has a place

	out  []byte      // messages, a comma behind each
	held []*llm.Part // what is to be said in the user's next message
}

func (m *composer) taste(b *llm.Body) {
	v := &m.c.Taste
	if m.modern {
		b.Set(newLimit, v.MaxTokens)
	} else {
		b.Set(oldLimit, v.MaxTokens)
	}
	b.Set("temperature", v.Temperature)
	b.Set("top_p", v.TopP)
	if v.TopK != nil && m.modern {
		m.c.Lose("top_k")
	} else {
		b.Set("top_k", v.TopK)
	}
	b.Set("seed", v.Seed)
	b.Set("presence_penalty", v.PresencePenalty)
	b.Set("frequency_penalty", v.FrequencyPenalty)
	if len(v.Stop) > 0 {
		list := []byte{'['}
		for _, s := range v.Stop {
			list = append(quoted(list, s), ',')
		}
		b.Set("stop", closing(list, ']'))
	}
}

func (m *composer) settings(b *llm.Body) {
	v := &m.c.Settings
	b.Text("user", v.User)
	if string(v.Tier) == `"standard_only"` { // what Messages calls it
		b.Set("service_tier", []byte(`"default"`))
	} else {
		b.Set("service_tier", v.Tier)
	}
	b.Set("metadata", v.Metadata)
	b.Set("prompt_cache_key", v.CacheKey)
	if string(v.Store) == "true" { // false is what is meant where nothing is said
		b.Set("store", v.Store)
	}
	b.Set("n", v.Choices)
	b.Set("logprobs", v.LogProbs)
	b.Set("top_logprobs", v.TopLogProbs)
	b.Set("logit_bias", v.LogitBias)
}

// think says how hard to think. A budget of tokens has no place; what it amounts to has.
func (m *composer) think(b *llm.Body) {
	v := &m.c.Think
	switch {
	case len(v.Effort) > 0 && !v.Off:
		b.Text("reasoning_effort", v.Effort)
	case v.Off && (m.modern || m.t.Timings): // llama.cpp takes it for thinking off
		b.Set("reasoning_effort", []byte(`"none"`))
	case v.Off: // a server that does not know the word refuses it
		m.c.Lose("thinking")
	case v.Budget != nil:
		b.Text("reasoning_effort", effortOf(v.Budget))
	}
}

// effortOf returns what a budget of thinking tokens amounts to.
func effortOf(budget llm.Raw) llm.Text {
	n, _ := llm.Int(budget)
	switch {
	case n < 4096:
		return llm.Text("low")
	case n < 16384:
		return llm.Text("medium")
	}
	return llm.Text("high")
}

func (m *composer) output(b *llm.Body) {
	o := &m.c.Output
	switch {
	case o.Schema != nil:
		f := append([]byte(`{"type":"json_schema","json_schema":{"name":`), quotedOr(o.Name, "answer")...)
		f = text(f, "description", o.Description)
		f = append(append(f, `,"schema":`...), o.Schema...)
		f = raw(f, "strict", o.Strict)
		b.Set("response_format", append(f, "}}"...))
	case o.JSON:
		b.Set("response_format", []byte(`{"type":"json_object"}`))
	}
	if o.Verbosity != nil && !m.modern {
		m.c.Lose("verbosity")
	} else {
		b.Set("verbosity", o.Verbosity)
	}
}

// tools returns the list of tools, nil where none is left.
func (m *composer) tools() []byte {
	var out []byte
	for i := range m.c.Tools {
		t := &m.c.Tools[i]
		switch {
		case t.Kind == llm.ToolHosted:
			m.c.Lose("tools[" + strconv.Itoa(i) + "] (" + llm.Brief(t.Type) + ")")
		case t.Kind == llm.ToolCustom && !m.modern:
			m.c.Lose("tools[" + strconv.Itoa(i) + "] (custom)")
		case !m.modern && !m.allowed(t.Name): // what cannot be said is done
		case t.Kind == llm.ToolCustom:
			out = quoted(append(out, `{"type":"custom","custom":{"name":`...), t.Name)
			out = raw(text(out, "description", t.Description), "format", t.Format)
			out = append(out, "}},"...)
		default:
			out = quoted(append(out, `{"type":"function","function":{"name":`...), t.Name)
			out = append(text(out, "description", t.Description), `,"parameters":`...)
			if t.Schema == nil {
				out = append(out, `{"type":"object","properties":{}}`...)
			}
			out = raw(append(out, t.Schema...), "strict", t.Strict)
			out = append(out, "}},"...)
		}
	}
	if len(out) == 0 {
		if m.c.Choice.Mode == llm.ModeAny || m.c.Choice.Mode == llm.ModeNamed {
			m.c.Lose("tool_choice")
		}
		return nil
	}
	return closing(append(append(make([]byte, 0, len(out)+2), '['), out...), ']')
}

// allowed reports whether the client's choice leaves room for that tool.
func (m *composer) allowed(name llm.Text) bool {
	if m.c.Choice.Allowed == nil {
		return true
	}
	for _, a := range m.c.Choice.Allowed {
		if string(a) == string(name) {
			return true
		}
	}
	return false
}

// choice says which of the tools are to be called.
func (m *composer) choice(b *llm.Body) {
	c := &m.c.Choice
	b.Set("parallel_tool_calls", m.c.Parallel)
	mode := [...]string{llm.ModeAuto: "auto", llm.ModeNone: "none", llm.ModeAny: "required"}
	switch {
	case c.Mode == llm.ModeNamed:
		kind := "function"
		if c.Custom {
			kind = "custom"
		}
		v := quoted(fmt.Appendf(nil, `{"type":%q,%[1]q:{"name":`, kind), c.Name)
		b.Set("tool_choice", append(v, "}}"...))
	case c.Allowed != nil && m.modern && (c.Mode == llm.ModeAuto || c.Mode == llm.ModeAny):
		v := fmt.Appendf(nil, `{"type":"allowed_tools","allowed_tools":{"mode":%q,"tools":[`, mode[c.Mode])
		for _, name := range c.Allowed {
			v = append(quoted(fmt.Appendf(v, `{"type":%q,%[1]q:{"name":`, m.kind(name)), name), "}},"...)
		}
		b.Set("tool_choice", append(closing(v, ']'), "}}"...))
	case c.Mode != 0:
		b.Text("tool_choice", llm.Text(mode[c.Mode]))
	}
}

// kind returns the kind of the tool of that name, as the API calls it.
func (m *composer) kind(name llm.Text) string {
	for i := range m.c.Tools {
		if t := &m.c.Tools[i]; t.Kind == llm.ToolCustom && string(t.Name) == string(name) {
			return "custom"
		}
	}
	return "function"
}

// quoted appends a text with its quotes.
func quoted(dst []byte, t llm.Text) []byte { return append(append(append(dst, '"'), t...), '"') }

// quotedOr returns a text with its quotes, or what stands for an empty one.
func quotedOr(t llm.Text, otherwise string) []byte {
	if len(t) == 0 {
		t = llm.Text(otherwise)
	}
	return quoted(nil, t)
}

// text appends a member behind others; an empty text is none.
func text(dst []byte, name string, t llm.Text) []byte {
	if len(t) == 0 {
		return dst
	}
	return quoted(append(append(append(dst, `,"`...), name...), `":`...), t)
}

// raw appends a member behind others; nil is none.
func raw(dst []byte, name string, v llm.Raw) []byte {
	if v == nil {
		return dst
	}
	return append(append(append(append(dst, `,"`...), name...), `":`...), v...)
}
