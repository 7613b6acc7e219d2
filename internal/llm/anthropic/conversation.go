package anthropic

import (
	"fmt"

	"weir/internal/llm"
)

// Conversation reads a request of this dialect as a conversation. What only Anthropic's own servers could do is noted as
// lost; blocks that have no neutral form are kept as they are. Errors are *llm.Error of kind Invalid.
func (Dialect) Conversation(r *llm.Request) (*llm.Conversation, error) {
	c, err := converse(r, false)
	if err != nil {
		return nil, err
	}
	options(c, r)
	return c, nil
}

// converse reads what was said. As history for a backend of the same dialect, asIs, nothing of it is taken apart.
func converse(r *llm.Request, asIs bool) (*llm.Conversation, error) {
	rd := reader{body: r.Body, long: r.Long, asIs: asIs, c: &llm.Conversation{Turns: make([]llm.Turn, 0, r.Shape.Messages+1)}}
	if err := rd.system(r); err != nil {
		return nil, err
	}
	if err := rd.messages(r.MessagesAt); err != nil {
		return nil, err
	}
	return rd.c, nil
}

// reader reads the messages of a request that was scanned before, in one pass.
type reader struct {
	body []byte
	long []llm.Span
	s    llm.Scanner
	c    *llm.Conversation
	asIs bool
}

// over makes the scanner stand at the start of a piece of the body.
func (rd *reader) over(at llm.Span) { rd.s = llm.Again(rd.body, at, rd.long) }

// here returns the place of what the scanner passed since from.
func (rd *reader) here(from int) llm.Span {
	return llm.Span{From: from, To: rd.s.Offset()}
}

// value passes a value and returns it, nil for null.
func (rd *reader) value() ([]byte, llm.Span, error) {
	at, err := rd.s.Value()
	if err != nil {
		return nil, at, err
	}
	if v := at.Of(rd.body); !isNull(v) {
		return v, at, nil
	}
	return nil, at, nil
}

// system reads the system prompt as the first turn.
func (rd *reader) system(r *llm.Request) error {
	m, ok := r.Member("system")
	if !ok || r.Value("system") == nil {
		return nil
	}
	rd.over(m.Value)
	t := llm.Turn{Role: llm.System, N: system, At: m.Value}
	var err error
	if t.Parts, err = rd.content(system, 0); err != nil {
		return err
	}
	rd.c.Turns = append(rd.c.Turns, t)
	return nil
}

func (rd *reader) messages(at llm.Span) error {
	rd.over(at)
	more, err := rd.s.Open('[')
	for i := 0; more && err == nil; i++ {
		if err := rd.message(i); err != nil {
			return err
		}
		more, err = rd.s.More('[')
	}
	return err
}

func (rd *reader) message(i int) error {
	from := rd.s.Offset()
	var role []byte
	var parts []llm.Part
	more, err := rd.s.Open('{')
	for ; more && err == nil; more, err = rd.s.More('{') {
		name, err := rd.s.Name()
		if err != nil {
			return err
		}
		switch string(name) {
		case "role":
			role, _, err = rd.value()
		case "content":
			parts, err = rd.content(i, 0)
		default:
			_, _, err = rd.value()
		}
		if err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	return rd.turn(llm.Turn{Parts: parts, N: i, At: rd.here(from)}, role)
}

// turn adds a turn. A block with the system's words in it is a turn of its own, in its place.
func (rd *reader) turn(t llm.Turn, role []byte) error {
	switch string(role) {
	case `"user"`:
		t.Role = llm.User
	case `"assistant"`:
		t.Role = llm.Assistant
	case `"system"`:
		t.Role = llm.System
	default:
		return invalid(fmt.Sprintf("messages[%d].role", t.N), "role must be user, assistant or system")
	}
	from := 0
	for j := range t.Parts {
		p := &t.Parts[j]
		if rd.asIs || p.Kind != llm.PartOther || p.Type != midSystem {
			continue
		}
		if j > from {
			before := t
			before.Parts = t.Parts[from:j:j]
			rd.c.Turns = append(rd.c.Turns, before)
		}
		rd.c.Turns = append(rd.c.Turns, llm.Turn{Role: llm.System, Parts: p.Parts, N: t.N, At: p.At})
		from = j + 1
	}
	if from > 0 && from == len(t.Parts) {
		return nil
	}
	t.Parts = t.Parts[from:]
	rd.c.Turns = append(rd.c.Turns, t)
	return nil
}

// options reads what is asked for beside what was said.
func options(c *llm.Conversation, r *llm.Request) {
	for _, m := range r.Members {
		v := llm.Raw(m.Value.Of(r.Body))
		if isNull(v) {
			continue
		}
		switch n := string(m.Name); n {
		case "model", "messages", "system", "stream":
		case "max_tokens":
			c.Taste.MaxTokens = v
		case "temperature":
			c.Taste.Temperature = v
		case "top_p":
			c.Taste.TopP = v
		case "top_k":
			c.Taste.TopK = v
		case "stop_sequences":
			elements(v, func(_ int, at llm.Span) { c.Taste.Stop = append(c.Taste.Stop, llm.Inside(at.Of(v))) })
		case "tools":
			elements(v, func(i int, at llm.Span) { c.Tools = append(c.Tools, tool(c, i, at.Of(v))) })
		case "tool_choice":
			choice(c, v)
		case "thinking":
			think(c, v)
		case "output_config":
			output(c, v)
		case "metadata":
			c.Settings.User = llm.Inside(member(v, "user_id"))
		case "service_tier":
			tier(c, v)
		default:
			c.Lose(llm.Brief(n))
		}
	}
}

// tier maps to the words of the neutral form, which are OpenAI's.
func tier(c *llm.Conversation, v llm.Raw) {
	switch string(v) {
	case `"auto"`:
		c.Settings.Tier = v
	case `"standard_only"`:
		c.Settings.Tier = llm.Raw(`"default"`)
	default:
		c.Lose("service_tier")
	}
}

func tool(c *llm.Conversation, i int, raw []byte) llm.Tool {
	t := llm.Tool{Kind: llm.ToolFunction, Raw: raw}
	if k := llm.Unquote(member(raw, "type")); len(k) > 0 && string(k) != "custom" {
		t.Kind, t.Type = llm.ToolHosted, string(k)
	}
	each(raw, func(name []byte, at llm.Span) {
		v := llm.Raw(at.Of(raw))
		if isNull(v) {
			return
		}
		switch string(name) {
		case "type":
		case "name":
			t.Name = llm.Inside(v)
		case "description":
			t.Description = llm.Inside(v)
		case "input_schema":
			t.Schema = v
		case "strict":
			t.Strict = v
		case "cache_control":
			t.Cache = v
		case "eager_input_streaming", "defer_loading": // hints; without them the tool is there all the same
		default:
			if t.Kind == llm.ToolFunction {
				c.Lose(fmt.Sprintf("tools[%d].%s", i, llm.Brief(name)))
			}
		}
	})
	return t
}

func choice(c *llm.Conversation, v []byte) {
	switch string(member(v, "type")) {
	case `"auto"`:
		c.Choice.Mode = llm.ModeAuto
	case `"any"`:
		c.Choice.Mode = llm.ModeAny
	case `"none"`:
		c.Choice.Mode = llm.ModeNone
	case `"tool"`:
		c.Choice.Mode, c.Choice.Name = llm.ModeNamed, llm.Inside(member(v, "name"))
	}
	if string(member(v, "disable_parallel_tool_use")) == "true" {
		c.Parallel = rawFalse
	}
}

func think(c *llm.Conversation, v []byte) {
	switch string(member(v, "type")) {
	case `"enabled"`:
		c.Think.On, c.Think.Budget = true, member(v, "budget_tokens")
	case `"adaptive"`:
		c.Think.On = true
	case `"disabled"`:
		c.Think.Off = true
	}
	c.Think.Shown = llm.Inside(member(v, "display"))
}

func output(c *llm.Conversation, raw []byte) {
	each(raw, func(name []byte, at llm.Span) {
		v := at.Of(raw)
		if isNull(v) {
			return
		}
		switch string(name) {
		case "effort":
			c.Think.Effort = llm.Inside(v)
		case "format":
			if c.Output.Schema = member(v, "schema"); c.Output.Schema == nil {
				c.Lose("output_config.format")
			}
		default:
			c.Lose("output_config." + llm.Brief(name))
		}
	})
}
