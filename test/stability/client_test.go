package stability

import (
	"encoding/json"
	"fmt"
	"strings"
)

// api is one dialect as a client and as a backend's reader see it, written apart from the code it judges.
type api struct {
	name, path string
	request    func(a ask) string
	answer     func(body []byte, stream bool) (said, error)
	asked      func(body []byte) (asked, error)
	spliced    []string // members that Weir may change, add or take out where the dialect stays the same
}

// ask is what a client wants: a whole conversation so far.
type ask struct {
	model   string
	tools   []tool
	history []message
	stream  bool
	style   int // how it spells JSON
}

// said is an answer as the client sees it.
type said struct {
	calls []call
	text  string
}

// asked is a request as a backend sees it.
type asked struct {
	front string // all that stands before the first message in a prompt, tools and system text
	turns string // the inside of the list of messages, to the byte
	tools []tool // name and parameters
	calls []call // of the history
}

// spelling is how a client spells JSON.
type spelling struct {
	comma, colon string
	ascii        bool
}

var spellings = []spelling{{",", ":", false}, {", ", ": ", true}, {",\n  ", " : ", false}}

// object spells an object of name and raw value in turn; an empty value leaves the member out.
func (s spelling) object(pairs ...string) string {
	var list []string
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			list = append(list, quote(pairs[i], s.ascii)+s.colon+pairs[i+1])
		}
	}
	return "{" + strings.Join(list, s.comma) + "}"
}

func (s spelling) list(items []string) string { return "[" + strings.Join(items, s.comma) + "]" }

func (s spelling) quote(text string) string { return quote(text, s.ascii) }

var apis = map[string]api{
	"chat": {name: "chat", path: "/v1/chat/completions", request: chatRequest, answer: chatAnswer, asked: chatAsked,
		spliced: []string{"model", "stream", "stream_options"}},
	"messages": {name: "messages", path: "/v1/messages", request: messagesRequest, answer: messagesAnswer, asked: messagesAsked,
		spliced: []string{"model", "stream"}},
	"responses": {name: "responses", path: "/v1/responses", request: responsesRequest, answer: responsesAnswer, asked: responsesAsked,
		spliced: []string{"model", "stream"}},
}

// raw returns a member's value, or nothing.
func raw(v json.RawMessage) string { return string(v) }

// whole puts the members of a request together, in an order of its own for each style.
func (s spelling) whole(a ask, turns string, list []string, tools []string, more ...string) string {
	stream := map[bool]string{true: "true", false: map[bool]string{true: "false"}[a.style == 2]}[a.stream]
	pairs := append([]string{"model", quote(a.model, false), turns, s.list(list), "tools", s.list(tools)}, more...)
	if a.style == 2 {
		pairs = append(append([]string{"tools", s.list(tools), turns, s.list(list)}, more...), "model", quote(a.model, false))
	}
	return s.object(append(pairs, "stream", stream)...)
}

func chatRequest(a ask) string {
	s := spellings[a.style]
	var list, tools []string
	for _, m := range a.history {
		switch {
		case m.calls != nil:
			var calls []string
			for _, c := range m.calls {
				calls = append(calls, s.object("id", s.quote(c.id), "type", `"function"`, "function", s.object("name", s.quote(c.name), "arguments", s.quote(c.args))))
			}
			list = append(list, s.object("role", `"assistant"`, "content", "null", "tool_calls", s.list(calls)))
		case m.results != nil:
			for _, r := range m.results {
				list = append(list, s.object("role", `"tool"`, "tool_call_id", s.quote(r.id), "content", `"`+r.args+`"`))
			}
		default:
			list = append(list, s.object("role", s.quote(m.role), "content", `"`+m.text+`"`))
		}
	}
	for _, t := range a.tools {
		tools = append(tools, s.object("type", `"function"`, "function", raw(t.raw)))
	}
	return s.whole(a, "messages", list, tools, "seed", "12345678901234567890", "temperature", "1.0", "x_unknown", `{"a" :[1.10,1e5,"\u00e9\/"],"b":null}`)
}

func messagesRequest(a ask) string {
	s := spellings[a.style]
	var list, tools []string
	system := ""
	for _, m := range a.history {
		var blocks []string
		role := m.role
		switch {
		case m.role == "system" && system == "":
			system = `"` + m.text + `"`
			continue
		case m.calls != nil:
			for _, c := range m.calls {
				blocks = append(blocks, s.object("type", `"tool_use"`, "id", s.quote(c.id), "name", s.quote(c.name), "input", c.args))
			}
		case m.results != nil:
			role = "user"
			for _, r := range m.results {
				blocks = append(blocks, s.object("type", `"tool_result"`, "tool_use_id", s.quote(r.id), "content", `"`+r.args+`"`))
			}
		default:
			blocks = append(blocks, s.object("type", `"text"`, "text", `"`+m.text+`"`))
		}
		list = append(list, s.object("role", s.quote(role), "content", s.list(blocks)))
	}
	for _, t := range a.tools {
		tools = append(tools, s.object("name", raw(t.name), "description", raw(t.description), "input_schema", raw(t.parameters)))
	}
	return s.whole(a, "messages", list, tools, "system", system, "max_tokens", "1024", "temperature", "1.0")
}

func responsesRequest(a ask) string {
	s := spellings[a.style]
	var list, tools []string
	for _, m := range a.history {
		for _, c := range m.calls {
			list = append(list, s.object("type", `"function_call"`, "call_id", s.quote(c.id), "name", s.quote(c.name), "arguments", s.quote(c.args)))
		}
		for _, r := range m.results {
			list = append(list, s.object("type", `"function_call_output"`, "call_id", s.quote(r.id), "output", `"`+r.args+`"`))
		}
		if m.calls == nil && m.results == nil {
			kind := map[bool]string{true: `"output_text"`, false: `"input_text"`}[m.role == "assistant"]
			list = append(list, s.object("type", `"message"`, "role", s.quote(m.role), "content", s.list([]string{s.object("type", kind, "text", `"`+m.text+`"`)})))
		}
	}
	for _, t := range a.tools {
		tools = append(tools, s.object("type", `"function"`, "name", raw(t.name), "description", raw(t.description), "parameters", raw(t.parameters)))
	}
	return s.whole(a, "input", list, tools, "store", "false", "temperature", "1.0")
}

// events calls do with the data of each event of a stream.
func events(body []byte, do func(data []byte) error) error {
	for event := range strings.SplitSeq(string(body), "\n\n") {
		for line := range strings.Lines(event) {
			data, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "data: ")
			if !ok || data == "[DONE]" {
				continue
			}
			if err := do([]byte(data)); err != nil {
				return fmt.Errorf("event %s: %w", data, err)
			}
		}
	}
	return nil
}
