package openai

import (
	"fmt"

	"weir/internal/llm"
)

// tools reads the tools that may be called.
func (rd *reader) tools(v []byte) error {
	var err error
	ok := each(v, func(i int, e []byte) {
		if err == nil {
			err = rd.tool(i, e)
		}
	})
	if !ok {
		return invalid("tools", "tools must be a list of objects")
	}
	return err
}

func (rd *reader) tool(i int, v []byte) error {
	t := llm.Tool{}
	var kind, inner []byte
	ok := members(v, func(m, v []byte) {
		switch string(m) {
		case "type":
			kind = v
		case "function", "custom":
			inner = v
		case "cache_control":
			t.Cache = some(v)
		}
	})
	path := fmt.Sprintf("tools[%d]", i)
	switch {
	case !ok:
		return invalid(path, "a tool must be an object")
	case string(kind) == `"custom"`:
		t.Kind = llm.ToolCustom
	case kind == nil && inner != nil, string(kind) == `"function"`:
		t.Kind = llm.ToolFunction
	case len(kind) < 3 || kind[0] != '"':
		return invalid(path+".type", "a tool must name its type, such as \"function\"")
	default:
		t.Kind, t.Type, t.Raw = llm.ToolHosted, string(llm.Unquote(kind)), v
		rd.c.Tools = append(rd.c.Tools, t)
		return nil
	}
	describe(&t, inner)
	if len(t.Name) == 0 {
		return invalid(path+"."+string(llm.Unquote(kind))+".name", "a tool must have a name")
	}
	rd.c.Tools = append(rd.c.Tools, t)
	return nil
}

// describe reads what a function or a custom tool is.
func describe(t *llm.Tool, v []byte) {
	members(v, func(m, v []byte) {
		switch string(m) {
		case "name":
			t.Name = llm.Inside(v)
		case "description":
			t.Description = llm.Inside(v)
		case "parameters":
			t.Schema = some(v)
		case "strict":
			t.Strict = some(v)
		case "format":
			t.Format = some(v)
		}
	})
}

// functions reads the tools of the old kind.
func (rd *reader) functions(v []byte) error {
	bad := -1
	ok := each(v, func(i int, e []byte) {
		t := llm.Tool{Kind: llm.ToolFunction}
		if describe(&t, e); len(t.Name) == 0 {
			bad = i
		}
		rd.c.Tools = append(rd.c.Tools, t)
	})
	if !ok || bad >= 0 {
		return invalid("functions", "functions must be a list of objects with a name each")
	}
	return nil
}

// choice reads which tools are to be called; member is tool_choice, or function_call of the old kind.
func (rd *reader) choice(member string, v []byte) error {
	c := &rd.c.Choice
	switch string(v) {
	case `"auto"`:
		c.Mode = llm.ModeAuto
		return nil
	case `"none"`:
		c.Mode = llm.ModeNone
		return nil
	case `"required"`, `"any"`:
		c.Mode = llm.ModeAny
		return nil
	}
	var kind, inner, name []byte
	ok := members(v, func(m, v []byte) {
		switch string(m) {
		case "type":
			kind = v
		case "function", "custom", "allowed_tools":
			inner = v
		case "name":
			name = v
		}
	})
	if ok && string(kind) == `"allowed_tools"` {
		return rd.allowed(inner)
	}
	if inner != nil {
		name = nil
		members(inner, func(m, v []byte) {
			if string(m) == "name" {
				name = v
			}
		})
	}
	if c.Name = llm.Inside(name); len(c.Name) == 0 {
		return invalid(member, "%s must be \"auto\", \"none\", \"required\" or an object that names a tool", member)
	}
	c.Mode, c.Custom = llm.ModeNamed, string(kind) == `"custom"`
	return nil
}

func (rd *reader) allowed(v []byte) error {
	c := &rd.c.Choice
	c.Mode, c.Allowed = llm.ModeAuto, []llm.Text{}
	members(v, func(m, v []byte) {
		switch {
		case string(m) == "mode" && string(v) == `"required"`:
			c.Mode = llm.ModeAny
		case string(m) == "tools":
			each(v, func(_ int, e []byte) {
				members(e, func(m, v []byte) {
					var t llm.Tool
					if string(m) == "function" || string(m) == "custom" {
						describe(&t, v)
					} else if string(m) == "name" {
						t.Name = llm.Inside(v)
					}
					if len(t.Name) > 0 {
						c.Allowed = append(c.Allowed, t.Name)
					}
				})
			})
		}
	})
	if len(c.Allowed) == 0 {
		return invalid("tool_choice", "tool_choice.allowed_tools must name at least one tool")
	}
	return nil
}
