package sim

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
)

// request is what a Server reads of an inference request.
type request struct {
	path    string
	api     API
	header  http.Header
	body    []byte
	badJSON error

	Model    string          `json:"model"`
	Stream   bool            `json:"stream"`
	Messages []message       `json:"messages"`
	Tools    []tool          `json:"tools"`
	Choice   json.RawMessage `json:"tool_choice"`
	N        int             `json:"n"`
	Logprobs any             `json:"logprobs"` // bool on chat, a number on completions
	TopLogs  int             `json:"top_logprobs"`

	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxTokens           *int   `json:"max_tokens"`
	MaxCompletionTokens *int   `json:"max_completion_tokens"`
	MaxOutputTokens     *int   `json:"max_output_tokens"`
	ResponseFormat      format `json:"response_format"`
	ReturnProgress      bool   `json:"return_progress"`
	TimingsPerToken     bool   `json:"timings_per_token"`

	Prompt json.RawMessage `json:"prompt"`
	Echo   bool            `json:"echo"`

	Input          json.RawMessage `json:"input"`
	EncodingFormat json.RawMessage `json:"encoding_format"`
	Dimensions     int             `json:"dimensions"`

	Query           string            `json:"query"`
	Documents       []json.RawMessage `json:"documents"`
	TopN            *int              `json:"top_n"`
	ReturnDocuments bool              `json:"return_documents"`

	Sim json.RawMessage `json:"x_sim"`

	has map[string]json.RawMessage

	// What every conversation tells, whatever its API.

	results []string // the text of each tool's result in the history
	after   bool     // the conversation ends with a tool's result
	roles   []string // of the turns
}

type format struct {
	Type       string `json:"type"`
	JSONSchema struct {
		Schema json.RawMessage `json:"schema"`
	} `json:"json_schema"`
	Schema json.RawMessage `json:"schema"` // llama.cpp takes it here too
}

type message struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
	ToolCallID string `json:"tool_call_id"`
}

type tool struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters"`
}

// parse reads a request body. A body that is not JSON, or has a field of a wrong type,
// leaves badJSON.
func parse(path string, body []byte) *request {
	q := &request{path: path, api: paths[path], body: body}
	if len(bytes.TrimSpace(body)) == 0 {
		return q
	}
	if q.badJSON = json.Unmarshal(body, q); q.badJSON == nil {
		q.badJSON = json.Unmarshal(body, &q.has)
	}
	if q.badJSON == nil {
		q.badJSON = q.converse()
	}
	return q
}

// limit returns the most tokens to generate, or -1 for none.
func (q *request) limit() int {
	for _, p := range []*int{q.MaxCompletionTokens, q.MaxTokens, q.MaxOutputTokens} {
		if p != nil && *p >= 0 {
			return max(*p, 1)
		}
	}
	return -1
}

func (q *request) n() int { return max(q.N, 1) }

func (q *request) wantsLogprobs() bool {
	on, _ := q.Logprobs.(bool)
	num, _ := q.Logprobs.(float64)
	return on || num > 0
}

// encoding returns the encoding_format as text: "" when absent, "null" when null.
func (q *request) encoding() string { return strings.Trim(string(q.EncodingFormat), `"`) }

// text returns the text of a message, its parts joined.
func (m *message) text() string {
	var s string
	if json.Unmarshal(m.Content, &s) == nil {
		return s
	}
	var b strings.Builder
	for _, p := range m.parts() {
		b.WriteString(p.Text)
	}
	return b.String()
}

type part struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func (m *message) parts() []part {
	var parts []part
	_ = json.Unmarshal(m.Content, &parts) // a string or null has no parts
	return parts
}

// promptTokens estimates the tokens of the prompt: four bytes each, and a few per message.
// Those of Messages and Responses are their texts alone, so that a count depends on what
// is said and not on how it is written.
func (q *request) promptTokens() int {
	if q.api == Messages || q.api == CountTokens || q.api == Responses {
		n := 0
		for _, name := range []string{"system", "instructions", "messages", "input", "tools"} {
			n += textBytes(q.has[name])
		}
		return max(n/4, 1)
	}
	n := len(q.Prompt) + len(q.Input) + len(q.Query) + len(q.has["tools"])
	for _, d := range q.Documents {
		n += len(d)
	}
	for i := range q.Messages {
		n += len(q.Messages[i].Content) + 12
	}
	return max(n/4, 1)
}

// strings reads a member that is a string, a list of strings, a list of tokens or a
// list of token lists. Token lists come back as their JSON.
func stringsOf(raw json.RawMessage) []string {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}
	}
	var many []json.RawMessage
	if json.Unmarshal(raw, &many) != nil {
		return nil
	}
	var out []string
	for _, m := range many {
		var s string
		switch {
		case json.Unmarshal(m, &s) == nil:
			out = append(out, s)
		case bytes.HasPrefix(m, []byte("[")):
			out = append(out, string(m))
		default: // a flat list of tokens is one prompt
			return []string{string(raw)}
		}
	}
	return out
}
