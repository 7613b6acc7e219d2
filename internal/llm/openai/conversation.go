package openai

import (
	"weir/internal/llm"
)

// Conversation reads a Chat Completions request as a conversation. Its texts share r's body. Members that the neutral
// form has no place for are named in Lost. Errors are *llm.Error of kind Invalid and name the member at fault.
func (Dialect) Conversation(r *llm.Request) (*llm.Conversation, error) {
	rd := reader{c: new(llm.Conversation), body: r.Body}
	for i := range r.Members {
		m := &r.Members[i]
		if v := m.Value.Of(r.Body); !isNull(v) {
			if err := rd.member(string(m.Name), v); err != nil {
				return nil, err
			}
		}
	}
	rd.limit(r)
	if err := rd.turns(r); err != nil {
		return nil, err
	}
	return rd.c, nil
}

// reader reads one request.
type reader struct {
	c     *llm.Conversation
	body  []byte
	store []llm.Part // room for the parts of many turns
	calls int        // function calls of the old kind, which have no ids
}

// mostLost bounds how many members are named as lost: nobody reads more.
const mostLost = 32

func (rd *reader) lose(path string) {
	if len(rd.c.Lost) < mostLost {
		rd.c.Lose(path)
	}
}

// limit takes the limit of tokens: the newer of its two names wins (C157), and -1 is none.
func (rd *reader) limit(r *llm.Request) {
	v := r.Value(newLimit)
	if v == nil {
		v = r.Value(oldLimit)
	}
	if n, ok := llm.Int(v); ok && n >= 0 {
		rd.c.Taste.MaxTokens = v
	}
}

// member takes one outermost member whose value is not null.
func (rd *reader) member(name string, v []byte) error {
	c := rd.c
	if raw := place(c, name); raw != nil {
		*raw = v
		return nil
	}
	switch name {
	case "model", "messages", "stream", "stream_options", oldLimit, newLimit, "return_progress":
	case "stop":
		return rd.stop(v)
	case "tools":
		return rd.tools(v)
	case "functions":
		return rd.functions(v)
	case "tool_choice", "function_call":
		return rd.choice(name, v)
	case "response_format":
		return rd.output(v)
	case "user", "safety_identifier":
		if v[0] != '"' {
			return invalid(name, "%s must be a string", name)
		}
		if name == "user" || c.Settings.User == nil {
			c.Settings.User = llm.Inside(v)
		}
	case "reasoning_effort":
		if v[0] != '"' {
			return invalid(name, "reasoning_effort must be a string")
		}
		rd.effort(llm.Inside(v))
	case "reasoning", "thinking":
		rd.think(name, v)
	case "modalities":
		if string(compact(v)) != `["text"]` {
			return invalid(name, "this model answers in text alone; leave modalities out, or name only \"text\"")
		}
	case "audio":
		return invalid(name, "this model answers in text alone; leave audio out")
	default:
		rd.lose(llm.Brief(name))
	}
	return nil
}

// place returns where a member goes that is kept as it stands.
func place(c *llm.Conversation, name string) *llm.Raw {
	switch name {
	case "temperature":
		return &c.Taste.Temperature
	case "top_p":
		return &c.Taste.TopP
	case "top_k":
		return &c.Taste.TopK
	case "seed":
		return &c.Taste.Seed
	case "presence_penalty":
		return &c.Taste.PresencePenalty
	case "frequency_penalty":
		return &c.Taste.FrequencyPenalty
	case "parallel_tool_calls":
		return &c.Parallel
	case "verbosity":
		return &c.Output.Verbosity
	case "service_tier":
		return &c.Settings.Tier
	case "metadata":
		return &c.Settings.Metadata
	case "prompt_cache_key":
		return &c.Settings.CacheKey
	case "store":
		return &c.Settings.Store
	case "n":
		return &c.Settings.Choices
	case "logprobs":
		return &c.Settings.LogProbs
	case "top_logprobs":
		return &c.Settings.TopLogProbs
	case "logit_bias":
		return &c.Settings.LogitBias
	}
	return nil
}

func (rd *reader) stop(v []byte) error {
	if v[0] == '"' {
		if len(v) > 2 {
			rd.c.Taste.Stop = []llm.Text{llm.Inside(v)}
		}
		return nil
	}
	ok := each(v, func(_ int, e []byte) {
		if t := llm.Inside(e); len(t) > 0 {
			rd.c.Taste.Stop = append(rd.c.Taste.Stop, t)
		}
	})
	if !ok {
		return invalid("stop", "stop must be a string or a list of strings")
	}
	return nil
}

// effort takes how hard the model is to think.
func (rd *reader) effort(t llm.Text) {
	if string(t) == "none" {
		rd.c.Think.Off = true
		return
	}
	rd.c.Think.Effort = t
}

// think takes the objects that some vendors have in place of reasoning_effort.
func (rd *reader) think(name string, v []byte) {
	th := &rd.c.Think
	ok := members(v, func(m, v []byte) {
		switch {
		case string(m) == "effort" && v[0] == '"':
			rd.effort(llm.Inside(v))
		case string(m) == "type":
			th.Off, th.On = string(v) == `"disabled"`, string(v) == `"enabled"` || string(v) == `"adaptive"`
		case string(m) == "enabled":
			th.Off, th.On = string(v) == "false", string(v) == "true"
		case string(m) == "max_tokens" || string(m) == "budget_tokens":
			if n, ok := llm.Int(v); ok && n > 0 {
				th.On, th.Budget = true, v
			}
		case string(m) == "exclude" && string(v) == "true":
			th.Shown = llm.Text("omitted")
		}
	})
	if !ok {
		rd.lose(name)
	}
}

func (rd *reader) output(v []byte) error {
	o := &rd.c.Output
	var kind, schema []byte
	ok := members(v, func(m, v []byte) {
		switch string(m) {
		case "type":
			kind = v
		case "json_schema":
			members(v, func(m, v []byte) {
				switch string(m) {
				case "name":
					o.Name = llm.Inside(v)
				case "description":
					o.Description = llm.Inside(v)
				case "schema":
					o.Schema = some(v)
				case "strict":
					o.Strict = some(v)
				}
			})
		case "schema": // llama.cpp takes one beside json_object
			schema = some(v)
		}
	})
	switch {
	case ok && string(kind) == `"text"`:
	case ok && string(kind) == `"json_object"`:
		o.JSON, o.Schema = schema == nil, schema
	case ok && string(kind) == `"json_schema"`:
		if o.Schema == nil {
			o.Schema = schema
		}
		if o.JSON = o.Schema == nil; o.JSON {
			o.Strict = nil
		}
	default:
		return invalid("response_format", "response_format must be an object whose type is text, json_object or json_schema")
	}
	return nil
}

// some is v, nil where it is null.
func some(v []byte) []byte {
	if isNull(v) {
		return nil
	}
	return v
}

// members calls f with each member of the object v, and reports whether it is one. v is well formed.
func members(v []byte, f func(name, v []byte)) bool {
	s := llm.NewScanner(v, 1<<20)
	if s.Peek() != '{' {
		return false
	}
	return s.Members(func(name []byte) error {
		at, err := s.Value()
		if err == nil {
			f(name, at.Of(v))
		}
		return err
	}) == nil
}

// each calls f with each element of the array v, and reports whether it is one. v is well formed.
func each(v []byte, f func(i int, e []byte)) bool {
	s := llm.NewScanner(v, 1<<20)
	if s.Peek() != '[' {
		return false
	}
	return s.Elements(func(i int) error {
		at, err := s.Value()
		if err == nil {
			f(i, at.Of(v))
		}
		return err
	}) == nil
}

// compact returns a small value without the white space between its tokens; strings in it must have none.
func compact(v []byte) []byte {
	out := make([]byte, 0, len(v))
	for _, c := range v {
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			out = append(out, c)
		}
	}
	return out
}
