package sim

import (
	"encoding/json"
	"slices"
	"strings"
)

// block is a content block of Messages, or an item or content part of Responses.
type block struct {
	Type string `json:"type"`
	Role string `json:"role"`
	Text string `json:"text"`

	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`

	CallID    string          `json:"call_id"`
	Output    json.RawMessage `json:"output"`
	Summary   []part          `json:"summary"`
	Encrypted string          `json:"encrypted_content"`
}

// blocks reads a content: a list of blocks, or a string, which is one block of text.
func blocks(raw json.RawMessage) []block {
	var text string
	if json.Unmarshal(raw, &text) == nil && len(raw) > 0 && raw[0] == '"' {
		return []block{{Type: "text", Text: text}}
	}
	var list []block
	_ = json.Unmarshal(raw, &list) // null, or a fault that validation tells
	return list
}

// contentText is the text of a content, its blocks joined.
func contentText(raw json.RawMessage) string {
	var b strings.Builder
	for _, p := range blocks(raw) {
		b.WriteString(p.Text)
	}
	return b.String()
}

// converse reads what a conversation offers and tells, in the words of its API.
func (q *request) converse() error {
	switch q.api {
	case Chat:
		for _, m := range q.Messages {
			q.roles = append(q.roles, m.Role)
			q.after = m.Role == "tool" || m.Role == "function"
			if q.after {
				q.results = append(q.results, m.text())
			}
		}
	case Messages, CountTokens:
		return q.converseMessages()
	case Responses:
		return q.converseResponses()
	}
	return nil
}

func (q *request) converseMessages() error {
	var more struct {
		Tools []struct {
			Type        string          `json:"type"`
			Name        string          `json:"name"`
			InputSchema json.RawMessage `json:"input_schema"`
		} `json:"tools"`
		OutputConfig struct {
			Format format `json:"format"`
		} `json:"output_config"`
	}
	if err := json.Unmarshal(q.body, &more); err != nil {
		return err
	}
	q.Tools = nil
	for _, t := range more.Tools {
		if t.Type == "" || t.Type == "custom" {
			q.Tools = append(q.Tools, tool{Type: "function", Function: function{t.Name, t.InputSchema}})
		}
	}
	q.ResponseFormat = more.OutputConfig.Format
	for _, m := range q.Messages {
		q.roles = append(q.roles, m.Role)
		if m.Role == "system" { // one may stand behind a result
			continue
		}
		q.after = false
		for _, b := range blocks(m.Content) {
			if b.Type == "tool_result" {
				q.after = true
				q.results = append(q.results, contentText(b.Content))
			}
		}
	}
	return nil
}

func (q *request) converseResponses() error {
	var more struct {
		Tools []struct {
			Type string `json:"type"`
			function
		} `json:"tools"`
		Text struct {
			Format format `json:"format"`
		} `json:"text"`
	}
	if err := json.Unmarshal(q.body, &more); err != nil {
		return err
	}
	q.Tools = nil
	for _, t := range more.Tools { // what is not a function is dropped, as llama-server does
		if t.Type == "function" {
			q.Tools = append(q.Tools, tool{t.Type, t.function})
		}
	}
	q.ResponseFormat = more.Text.Format
	for _, item := range blocks(q.Input) {
		if item.Role != "" {
			q.roles = append(q.roles, item.Role)
		}
		q.after = strings.HasSuffix(item.Type, "_output")
		if q.after {
			q.results = append(q.results, contentText(item.Output))
		}
	}
	return nil
}

// forced returns whether tool_choice demands a call, and of which tool: "" is any.
func (q *request) forced() (demanded bool, name string) {
	if string(q.Choice) == `"required"` {
		return true, ""
	}
	var c struct {
		Type, Name string
		Function   function
	}
	if json.Unmarshal(q.Choice, &c) != nil || !slices.Contains([]string{"function", "tool", "any"}, c.Type) {
		return false, ""
	}
	return true, c.Name + c.Function.Name
}

// notText holds the members of a conversation whose strings are no text of it.
var notText = []string{"type", "id", "role", "tool_use_id", "call_id", "signature", "data", "media_type", "encrypted_content", "cache_control", "status"}

// textBytes counts the bytes of all texts inside a JSON value.
func textBytes(raw json.RawMessage) int {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return 0
	}
	return weigh(v)
}

func weigh(v any) int {
	n := 0
	switch v := v.(type) {
	case string:
		return len(v)
	case []any:
		for _, e := range v {
			n += weigh(e)
		}
	case map[string]any:
		for name, e := range v {
			if !slices.Contains(notText, name) {
				n += weigh(e)
			}
		}
	}
	return n
}
