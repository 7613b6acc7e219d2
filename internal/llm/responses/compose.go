package responses

import (
	"bytes"
	"fmt"

	"weir/internal/llm"
)

// Compose writes a conversation as a request of this dialect for t. What has no place is noted with Lose; where its
// silence would change the meaning, an *llm.Error of kind Invalid names it.
func (Dialect) Compose(c *llm.Conversation, r *llm.Request, t *llm.Target) ([]byte, error) {
	if err := refuse(c, r); err != nil {
		return nil, err
	}
	var b llm.Body
	b.Set("model", t.Quoted)
	if r.Op != llm.Count {
		if t.Stream {
			b.Set("stream", rawTrue)
		}
		b.Set("store", []byte("false"))
		composeTaste(&b, c, r)
	}
	composeForm(&b, c)
	if r.Op != llm.Count {
		b.Rule(t.Sampling, limit, oldLimits[:]...)
	}
	w := itemWriter{c: c, r: r, t: t}
	w.out = make([]byte, 0, len(r.Body)+len(r.Body)/8+1024)
	w.out = b.AppendOpen(w.out)
	w.tools()
	turns := w.instructions()
	w.str(`"input":[`)
	from := len(w.out)
	for i := range turns {
		if err := w.turn(&turns[i], i > 0 || len(turns) < len(c.Turns)); err != nil {
			return nil, err
		}
	}
	if len(w.out) == from {
		return nil, invalid("", "the request says nothing: send a message with some content")
	}
	return append(closed(w.out), "]}"...), nil
}

var rawTrue = []byte("true")

// limit is the dialect's name of the limit of tokens; oldLimits are those of others, by which rules may call it.
const limit = "max_output_tokens"

var oldLimits = [...]string{"max_tokens", "max_completion_tokens"}

// closed takes the comma off that stands behind the last element.
func closed(dst []byte) []byte { return bytes.TrimSuffix(dst, []byte{','}) }

// refuse refuses what would mean something else without saying so.
func refuse(c *llm.Conversation, r *llm.Request) error {
	if n, ok := llm.Int(c.Settings.Choices); ok && n > 1 {
		return invalid("n", "the servers behind this name give one choice; leave n out or send 1")
	}
	if string(c.Settings.LogProbs) == "true" {
		return invalid("logprobs", "the servers behind this name give no log probabilities; leave logprobs out")
	}
	return nil
}

func composeTaste(b *llm.Body, c *llm.Conversation, r *llm.Request) {
	s := &c.Taste
	b.Set(limit, s.MaxTokens)
	b.Set("temperature", s.Temperature)
	b.Set("top_p", s.TopP)
	for _, m := range [...]struct {
		name string
		set  bool
	}{
		{"top_k", s.TopK != nil}, {"seed", s.Seed != nil}, {stopName(r), len(s.Stop) > 0},
		{"presence_penalty", s.PresencePenalty != nil && !isZero(s.PresencePenalty)},
		{"frequency_penalty", s.FrequencyPenalty != nil && !isZero(s.FrequencyPenalty)},
		{"logit_bias", c.Settings.LogitBias != nil && len(c.Settings.LogitBias) > len("{}")},
		{"top_logprobs", c.Settings.TopLogProbs != nil && !isZero(c.Settings.TopLogProbs)},
	} {
		if m.set {
			c.Lose(m.name)
		}
	}
	b.Text("user", c.Settings.User)
	b.Set("metadata", c.Settings.Metadata)
	b.Set("prompt_cache_key", c.Settings.CacheKey)
	if r.Dialect == "anthropic" { // its tiers are others
		return
	}
	b.Set("service_tier", c.Settings.Tier)
}

func stopName(r *llm.Request) string {
	if r.Dialect == "anthropic" {
		return "stop_sequences"
	}
	return "stop"
}

// isZero reports a number that spells zero.
func isZero(raw []byte) bool { return len(bytes.Trim(raw, "-0.")) == 0 }

// composeForm sets the members that say what form the answer has and what may be called.
func composeForm(b *llm.Body, c *llm.Conversation) {
	if len(c.Tools) > 0 {
		b.Set("tool_choice", choice(&c.Choice, c.Tools))
		b.Set("parallel_tool_calls", c.Parallel)
	}
	b.Set("reasoning", reasoning(&c.Think))
	b.Set("text", form(&c.Output))
}

// choice writes which tools are to be called; nil where nothing was said.
func choice(c *llm.Choice, tools []llm.Tool) []byte {
	custom := map[string]bool{}
	for i := range tools {
		if tools[i].Kind == llm.ToolCustom {
			custom[string(tools[i].Name)] = true
		}
	}
	word := []byte(`"auto"`)
	switch {
	case c.Mode == llm.ModeNone:
		word = []byte(`"none"`)
	case c.Mode == llm.ModeAny:
		word = []byte(`"required"`)
	case c.Mode == llm.ModeNamed:
		return append(named(nil, c.Name, c.Custom || custom[string(c.Name)]), '}')
	case c.Mode == 0 && c.Allowed == nil:
		return nil
	}
	if c.Allowed == nil {
		return word
	}
	out := append([]byte(`{"type":"allowed_tools","mode":`), word...)
	out = append(out, `,"tools":[`...)
	for _, name := range c.Allowed {
		out = append(named(out, name, custom[string(name)]), "},"...)
	}
	return append(closed(out), "]}"...)
}

func named(dst []byte, name llm.Text, custom bool) []byte {
	kind := `{"type":"function","name":"`
	if custom {
		kind = `{"type":"custom","name":"`
	}
	return append(append(append(dst, kind...), name...), '"')
}

// reasoning writes how much thinking is wanted; nil where nothing was said.
func reasoning(t *llm.Think) []byte {
	if t.Off {
		return []byte(`{"effort":"none"}`)
	}
	out := []byte{'{'}
	if effort := effortOf(t); len(effort) > 0 {
		out = append(append(append(out, `"effort":"`...), effort...), `",`...)
	}
	switch shown := string(t.Shown); {
	case shown == "auto" || shown == "concise" || shown == "detailed":
		out = append(append(append(out, `"summary":"`...), shown...), `",`...)
	case shown == "summarized" || shown == "" && t.On: // who asks for thinking by name is shown it
		out = append(out, `"summary":"auto",`...)
	}
	if len(out) == 1 {
		return nil
	}
	return append(closed(out), '}')
}

// effortOf returns the effort, or what a budget of tokens comes close to.
func effortOf(t *llm.Think) llm.Text {
	if len(t.Effort) > 0 {
		return t.Effort
	}
	n, ok := llm.Int(t.Budget)
	switch {
	case !ok || n <= 0:
		return nil
	case n < 4096:
		return llm.Text("low")
	case n < 16384:
		return llm.Text("medium")
	}
	return llm.Text("high")
}

// form writes the form of the answer; nil where nothing was said.
func form(o *llm.Output) []byte {
	out := []byte{'{'}
	switch {
	case o.Schema != nil:
		name := o.Name
		if len(name) == 0 {
			name = llm.Text("answer")
		}
		out = append(append(append(out, `"format":{"type":"json_schema","name":"`...), name...), '"')
		if len(o.Description) > 0 {
			out = append(append(append(out, `,"description":"`...), o.Description...), '"')
		}
		out = append(append(out, `,"schema":`...), o.Schema...)
		if o.Strict != nil {
			out = append(append(out, `,"strict":`...), o.Strict...)
		}
		out = append(out, "},"...)
	case o.JSON:
		out = append(out, `"format":{"type":"json_object"},`...)
	}
	if o.Verbosity != nil {
		out = append(append(append(out, `"verbosity":`...), o.Verbosity...), ',')
	}
	if len(out) == 1 {
		return nil
	}
	return append(closed(out), '}')
}

// tools writes the tools, flat. A schema and strict are required here; strict is false unless it was asked for, as the
// dialects that it may come from have it: here a tool that says nothing is strict, and its optional members required.
func (w *itemWriter) tools() {
	n := len(w.out)
	w.str(`"tools":[`)
	empty := len(w.out)
	for i := range w.c.Tools {
		t := &w.c.Tools[i]
		switch t.Kind {
		case llm.ToolHosted:
			w.c.Lose(fmt.Sprintf("tools[%d] (%s)", i, t.Type))
			continue
		case llm.ToolCustom:
			w.text(`{"type":"custom","name":"`, t.Name, `"`)
			if f := flatFormat(t.Format); f != nil {
				w.str(`,"format":`).raw(f)
			}
		default:
			w.text(`{"type":"function","name":"`, t.Name, `"`)
			w.str(`,"parameters":`).raw(or(t.Schema, `{"type":"object","properties":{}}`))
			w.str(`,"strict":`).raw(or(t.Strict, `false`))
		}
		if len(t.Description) > 0 {
			w.text(`,"description":"`, t.Description, `"`)
		}
		w.str(`},`)
	}
	if len(w.out) == empty {
		w.out = w.out[:n]
		return
	}
	w.out = append(closed(w.out), "],"...)
}

func or(v llm.Raw, other string) []byte {
	if v == nil {
		return []byte(other)
	}
	return v
}

// flatFormat returns the format of a custom tool as this dialect spells it. In the neutral form a grammar stands one level
// deeper, as Chat Completions has it.
func flatFormat(f []byte) []byte {
	g := member(f, "grammar")
	if len(g) < 2 || g[0] != '{' {
		return f
	}
	if inner := bytes.TrimSpace(g[1 : len(g)-1]); len(inner) > 0 {
		return append(append([]byte(`{"type":"grammar",`), inner...), '}')
	}
	return f
}

// nestedFormat is the way back.
func nestedFormat(f []byte) []byte {
	if string(member(f, "type")) != `"grammar"` || member(f, "grammar") != nil {
		return f
	}
	out := append([]byte(`{"type":"grammar","grammar":{"syntax":`), or(member(f, "syntax"), `"lark"`)...)
	out = append(append(out, `,"definition":`...), or(member(f, "definition"), `""`)...)
	return append(out, "}}"...)
}
