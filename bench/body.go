package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Bodies of requests: bodySmall is a question of about 290 bytes, bodyTools adds
// 20 function definitions (12 KB), bodyBig is an agent's history of 60 messages
// full of code (131 KB).
const (
	bodySmall = "small"
	bodyTools = "tools"
	bodyBig   = "big"
)

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// chatRequest has its members in the order in which the SDKs send them.
type chatRequest struct {
	Model         string         `json:"model"`
	Messages      []chatMessage  `json:"messages"`
	Temperature   float64        `json:"temperature"`
	MaxTokens     int            `json:"max_tokens"`
	Stream        bool           `json:"stream"`
	StreamOptions *streamOptions `json:"stream_options,omitempty"`
	Tools         []any          `json:"tools,omitempty"`
	ToolChoice    string         `json:"tool_choice,omitempty"`
}

// code is what an agent pastes: quotes, tabs, newlines and a backslash, so that
// about a tenth of the encoded text is escapes.
const code = "\tfor _, row := range rows {\n\t\tif row.Name == \"\" || strings.Contains(row.Path, `\\`) {\n" +
	"\t\t\treturn nil, fmt.Errorf(\"row %d has no usable name: %q\", row.Number, row.Name)\n\t\t}\n" +
	"\t\tout = append(out, convert(row))\n\t}\n"

// requestBody encodes one chat request. Streams ask for the usage chunk.
func requestBody(kind, model string, stream bool) ([]byte, error) {
	req := chatRequest{Model: model, Temperature: 0.7, MaxTokens: 256, Stream: stream, Messages: []chatMessage{
		{"system", "You answer briefly and to the point, without lists."},
		{"user", "In one short sentence please, as if to a colleague: what does a gateway do for its clients and its servers?"},
	}}
	if stream {
		req.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	switch kind {
	case bodySmall:
	case bodyTools:
		req.Tools, req.ToolChoice = toolList(20), "auto"
	case bodyBig:
		page := strings.Repeat(code, 10)[:2010]
		for i := range 58 {
			role := [...]string{"assistant", "user"}[i%2]
			req.Messages = append(req.Messages, chatMessage{role, fmt.Sprintf("file %d\n%s", i, page)})
		}
	default:
		return nil, fmt.Errorf("unknown body %q: use %s, %s or %s", kind, bodySmall, bodyTools, bodyBig)
	}
	return json.Marshal(req)
}

// toolList is n function definitions of the size agents send.
func toolList(n int) []any {
	type object = map[string]any
	list := make([]any, n)
	for i := range list {
		list[i] = object{"type": "function", "function": object{
			"name":        fmt.Sprintf("workspace_action_%02d", i),
			"description": "Search the workspace for lines that match a pattern and return each with its file and line number; results are cut after the limit.",
			"parameters": object{"type": "object", "additionalProperties": false, "required": []string{"pattern", "limit"},
				"properties": object{
					"pattern": object{"type": "string", "description": "regular expression, RE2 syntax"},
					"folder":  object{"type": "string", "description": "where to start"},
					"limit":   object{"type": "integer", "minimum": 1, "maximum": 500},
					"order":   object{"type": "string", "enum": []string{"path", "time", "relevance"}},
				}},
		}}
	}
	return list
}
