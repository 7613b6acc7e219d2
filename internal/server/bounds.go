package server

import (
	"strconv"

	"weir/internal/llm"
)

// Bounds is the most that one request may ask for (S44). 0 is no bound.
type Bounds struct {
	MaxTokens   int64 // tokens of an answer; more are lowered to it
	Choices     int64 // answers; more are refused, as the others are
	Tools       int
	ToolBytes   int64 // of the whole list of tools
	TopLogprobs int64
}

// bounded are the members that bounds are about, and the names that servers have for the same beside the APIs' own.
var bounded = []string{
	"max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", "n", "best_of", "n_cmpl", "tools", "functions",
	"logprobs", "top_logprobs", "prompt_logprobs", "n_probs",
}

// bound holds a request to the bounds: it returns req, or one that asks for less in its place. On an error req is released.
func (x *exchange) bound(req *llm.Request) (*llm.Request, error) {
	if x.Bounds == (Bounds{}) {
		return req, nil
	}
	var lower llm.Edits
	err := x.Bounds.check(req, &lower)
	if err == nil && lower.Empty() {
		return req, nil
	}
	defer req.Release()
	if err != nil {
		return nil, err
	}
	return x.dialect.Decode(req.Op, lower.Apply(make([]byte, 0, len(req.Body)+32), req), x.MaxDepth)
}

// check refuses what is above a bound, and notes in lower what is to be less.
func (b *Bounds) check(r *llm.Request, lower *llm.Edits) error {
	for i := range r.Members {
		m := &r.Members[i]
		if err := llm.Misspelt(m.Name, bounded); err != nil {
			return err
		}
		if v := m.Value.Of(r.Body); string(v) != "null" {
			if err := b.member(r, string(m.Name), v, lower); err != nil {
				return err
			}
		}
	}
	if !lower.Empty() {
		if err := b.think(r, lower); err != nil {
			return err
		}
	}
	if b.Choices > 0 && r.Choices > b.Choices {
		return invalid("prompt", "this request asks for %d answers; this Weir takes %d (requests.choices in its configuration)", r.Choices, b.Choices)
	}
	return nil
}

func (b *Bounds) member(r *llm.Request, name string, v []byte, lower *llm.Edits) error {
	switch name {
	case "max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict":
		n, ok := llm.Int(v)
		switch {
		case b.MaxTokens == 0:
		case !ok:
			return above(name, b.MaxTokens, "max_tokens")
		case n > b.MaxTokens || n < 0: // below zero: without end
			lower.Set(r, name, strconv.AppendInt(nil, b.MaxTokens, 10))
		}
	case "n", "best_of", "n_cmpl":
		return atMost(name, v, b.Choices, "choices")
	case "tools":
		return b.tools(name, v, r.Shape.Tools)
	case "functions":
		return b.tools(name, v, elements(v))
	case "logprobs":
		if v[0] == 't' || v[0] == 'f' { // Chat Completions has a switch of that name
			return nil
		}
		return atMost(name, v, b.TopLogprobs, "top_logprobs")
	case "top_logprobs", "prompt_logprobs", "n_probs":
		return atMost(name, v, b.TopLogprobs, "top_logprobs")
	}
	return nil
}

// tools checks a list of n tools, which a server is shown with every turn.
func (b *Bounds) tools(name string, v []byte, n int) error {
	switch {
	case b.Tools > 0 && n > b.Tools:
		return invalid(name, "%s holds %d; this Weir takes %d (requests.tools in its configuration)", name, n, b.Tools)
	case b.ToolBytes > 0 && int64(len(v)) > b.ToolBytes:
		return invalid(name, "%s takes %d bytes; this Weir takes %d (requests.tool_bytes in its configuration)", name, len(v), b.ToolBytes)
	}
	return nil
}

// atMost checks a number. What is none is refused: some servers would read "50" or 50.0 as one.
func atMost(name string, v []byte, most int64, setting string) error {
	if n, ok := llm.Int(v); most > 0 && (!ok || n < 0 || n > most) {
		return above(name, most, setting)
	}
	return nil
}

func above(name string, most int64, setting string) error {
	return invalid(name, "%s must be a whole number of at most %d (requests.%s in this Weir's configuration)", name, most, setting)
}

func invalid(param, format string, args ...any) error {
	e := llm.Errorf(llm.Invalid, format, args...)
	e.Param = param
	return e
}

// elements counts those of a list.
func elements(v []byte) (n int) {
	if v[0] == '[' {
		s := llm.NewScanner(v, 1<<20) // it was bounded when it came
		_ = s.Elements(func(int) error {
			n++
			_, err := s.Value()
			return err
		})
	}
	return n
}

// leastThinking is the smallest budget for thinking that the Messages API takes.
const leastThinking = 1024

// think keeps the budget for thinking below a limit that was lowered: servers refuse one that is not.
func (b *Bounds) think(r *llm.Request, lower *llm.Edits) error {
	v := r.Value("thinking")
	if len(v) == 0 || v[0] != '{' {
		return nil
	}
	s := llm.NewScanner(v, 1<<20)
	var at llm.Span
	var budget int64
	var off bool
	_ = s.Members(func(name []byte) error { // it was scanned when it came: it cannot fail
		member := string(name)
		span, err := s.Value()
		switch n, ok := llm.Int(span.Of(v)); {
		case member == "budget_tokens" && ok:
			at, budget = span, n
		case member == "type":
			off = string(span.Of(v)) == `"disabled"`
		}
		return err
	})
	switch {
	case off || budget < b.MaxTokens:
		return nil
	case b.MaxTokens <= leastThinking:
		return invalid("thinking", "this Weir lets an answer have %d tokens (requests.max_tokens in its configuration), which leaves none for thinking: leave it out", b.MaxTokens)
	}
	text := strconv.AppendInt(append([]byte(nil), v[:at.From]...), b.MaxTokens-1, 10)
	lower.Set(r, "thinking", append(text, v[at.To:]...))
	return nil
}
