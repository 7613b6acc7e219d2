package responses

import (
	"fmt"

	"weir/internal/llm"
)

// effectless are members that change nothing for a server that does not know them: hints, padding, what is only there
// for the vendor's own tools, and what the server's part decides on.
var effectless = map[string]bool{
	"model": true, "input": true, "instructions": true, "stream": true, "stream_options": true, "store": true,
	"previous_response_id": true, "include": true, "client_metadata": true, "background": true, "max_tool_calls": true,
	"prompt_cache_retention": true, "prompt_cache_options": true, "conversation": true, "prompt": true,
}

// setting reads one outermost member, whose value is not null.
func (rd *reader) setting(name string, v []byte) error {
	switch name {
	case "tools":
		return rd.tools(v)
	case "tool_choice":
		return rd.choice(v)
	case "text":
		return rd.output(v)
	case "reasoning":
		rd.think(v)
		return nil
	case "safety_identifier":
		rd.c.Settings.User = llm.Inside(v)
		return nil
	case "user": // its older name
		if len(rd.c.Settings.User) == 0 {
			rd.c.Settings.User = llm.Inside(v)
		}
		return nil
	}
	nothing := name == "truncation" && string(v) == `"disabled"` || name == "top_logprobs" && string(v) == "0"
	if at := rd.plain(name); at != nil {
		*at = v
	} else if !nothing && !effectless[name] {
		rd.lose(llm.Brief(name))
	}
	return nil
}

// plain returns where a member goes that is taken as it is, nil where it has no place.
func (rd *reader) plain(name string) *llm.Raw {
	taste, settings := &rd.c.Taste, &rd.c.Settings
	switch name {
	case "parallel_tool_calls":
		return &rd.c.Parallel
	case limit:
		return &taste.MaxTokens
	case "temperature":
		return &taste.Temperature
	case "top_p":
		return &taste.TopP
	case "top_k":
		return &taste.TopK
	case "seed":
		return &taste.Seed
	case "presence_penalty":
		return &taste.PresencePenalty
	case "frequency_penalty":
		return &taste.FrequencyPenalty
	case "prompt_cache_key":
		return &settings.CacheKey
	case "metadata":
		return &settings.Metadata
	case "service_tier":
		return &settings.Tier
	}
	return nil
}

// mostLost is how many losses are named: a request may hold any number of them, and an event names only so many.
const mostLost = 64

func (rd *reader) lose(path string) {
	if len(rd.c.Lost) < mostLost {
		rd.c.Lose(path)
	}
}

func (rd *reader) think(v []byte) {
	t := &rd.c.Think
	if effort := llm.Inside(member(v, "effort")); string(effort) == "none" {
		t.Off = true
	} else {
		t.Effort = effort
	}
	if t.Shown = llm.Inside(member(v, "summary")); len(t.Shown) == 0 {
		t.Shown = llm.Inside(member(v, "generate_summary")) // its older name
	}
}

// output reads the form that the answer is to have.
func (rd *reader) output(v []byte) error {
	o := &rd.c.Output
	o.Verbosity = member(v, "verbosity")
	f := member(v, "format")
	if f == nil {
		return nil
	}
	switch kind := string(llm.Unquote(member(f, "type"))); kind {
	case "text":
	case "json_object":
		o.JSON = true
	case "json_schema":
		o.Schema, o.Strict = member(f, "schema"), member(f, "strict")
		o.Name, o.Description = llm.Inside(member(f, "name")), llm.Inside(member(f, "description"))
		if o.Schema == nil {
			return invalid("text.format.schema", "a format of the type json_schema needs a schema")
		}
	default:
		return invalid("text.format.type", "formats of the type %q cannot be translated for the servers behind this name; use json_schema", llm.Brief(kind))
	}
	return nil
}

// tools reads the tools. Those that a vendor runs itself, and groups of them, are left out.
func (rd *reader) tools(v []byte) error {
	s := llm.NewScanner(v, anyDepth)
	if s.Peek() != '[' {
		return invalid("tools", "tools must be an array of objects")
	}
	return s.Elements(func(i int) error {
		if s.Peek() != '{' {
			return invalid(fmt.Sprintf("tools[%d]", i), "a tool must be an object")
		}
		var t llm.Tool
		if err := readTool(&s, v, &t); err != nil {
			return err
		}
		switch t.Type {
		case "function":
			t.Kind = llm.ToolFunction
		case "custom":
			t.Kind, t.Format = llm.ToolCustom, nestedFormat(t.Format)
		default:
			rd.lose(fmt.Sprintf("tools[%d] (%s)", i, llm.Brief(t.Type)))
			return nil
		}
		if len(t.Name) == 0 {
			return invalid(fmt.Sprintf("tools[%d].name", i), "a tool needs a name")
		}
		rd.c.Tools = append(rd.c.Tools, t)
		return nil
	})
}

func readTool(s *llm.Scanner, body []byte, t *llm.Tool) error {
	return s.Members(func(name []byte) error {
		at, err := s.Value()
		v := given(at.Of(body))
		switch string(name) {
		case "type":
			t.Type = string(llm.Unquote(v))
		case "name":
			t.Name = llm.Inside(v)
		case "description":
			t.Description = llm.Inside(v)
		case "parameters":
			t.Schema = v
		case "strict":
			t.Strict = v
		case "format":
			t.Format = v
		}
		return err
	})
}

// choice reads which tools are to be called.
func (rd *reader) choice(v []byte) error {
	c := &rd.c.Choice
	if v[0] == '"' {
		return mode(c, "tool_choice", string(llm.Unquote(v)))
	}
	kind := string(llm.Unquote(member(v, "type")))
	switch kind {
	case "function", "custom":
		c.Mode, c.Name, c.Custom = llm.ModeNamed, llm.Inside(member(v, "name")), kind == "custom"
		return nil
	case "allowed_tools":
		c.Allowed = []llm.Text{}
		elements(member(v, "tools"), func(_ int, v []byte) {
			if name := llm.Inside(member(v, "name")); len(name) > 0 {
				c.Allowed = append(c.Allowed, name)
			}
		})
		return mode(c, "tool_choice.mode", string(llm.Unquote(member(v, "mode"))))
	}
	return invalid("tool_choice", "a tool of the type %q must be called, which the servers behind this name do not have; leave tool_choice out", llm.Brief(kind))
}

func mode(c *llm.Choice, path, word string) error {
	switch word {
	case "auto":
		c.Mode = llm.ModeAuto
	case "none":
		c.Mode = llm.ModeNone
	case "required":
		c.Mode = llm.ModeAny
	default:
		return invalid(path, "%s must be auto, none or required, not %q", path, llm.Brief(word))
	}
	return nil
}

// choosable refuses a choice that the tools which are left cannot fulfil.
func (rd *reader) choosable() error {
	c := &rd.c.Choice
	switch {
	case c.Mode == llm.ModeAny && len(rd.c.Tools) == 0:
		return invalid("tool_choice", "a tool must be called, but the servers behind this name have none of those that were sent; send a tool of the type function")
	case c.Mode != llm.ModeNamed:
		return nil
	}
	for i := range rd.c.Tools {
		if string(rd.c.Tools[i].Name) == string(c.Name) {
			return nil
		}
	}
	return invalid("tool_choice", "tool_choice names the tool %q, which is not among those that can be sent on", llm.Brief(llm.Unescaped(c.Name)))
}
