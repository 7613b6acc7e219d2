package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// What Anthropic's Messages API takes at the top of a request: always, where it answers
// and does not only count, and where an anthropic-beta header asks for more.
var (
	messageMembers = []string{"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control", "speed", "x_sim"}
	answerMembers  = []string{"max_tokens", "stop_sequences", "temperature", "top_p", "top_k", "stream", "metadata", "service_tier",
		"container", "inference_geo", "diagnostics"}
	betaMembers = []string{"context_management", "compaction", "mcp_servers", "output_format", "fallbacks", "fallback_credit_token", "thread", "billing_policy"}
)

// blockMembers holds what each kind of content block may have beside its type, the
// required ones first, marked by an exclamation mark.
var blockMembers = map[string][]string{
	"text":              {"!text", "cache_control", "citations"},
	"image":             {"!source", "cache_control", "transformations"},
	"document":          {"!source", "title", "context", "citations", "cache_control"},
	"search_result":     {"!source", "!title", "!content", "citations", "cache_control"},
	"thinking":          {"!thinking", "!signature"},
	"redacted_thinking": {"!data"},
	"tool_use":          {"!id", "!name", "!input", "cache_control", "caller", "toolset_name"},
	"tool_result":       {"!tool_use_id", "content", "is_error", "cache_control", "toolset_name"},
	"tool_reference":    {"!tool_name", "cache_control"},
	"server_tool_use":   {"!id", "!name", "!input", "cache_control", "caller"},
	"container_upload":  {"!file_id", "cache_control"},
	"mid_conv_system":   {"!content", "cache_control"},
}

// The blocks that each place takes; other kinds that blockMembers lacks are unknown.
var (
	userBlocks      = []string{"text", "image", "document", "search_result", "tool_result", "container_upload", "mid_conv_system"}
	assistantBlocks = []string{"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use"}
	resultBlocks    = []string{"text", "image", "document", "search_result", "tool_reference"}
)

// The names that Anthropic takes for tools and for calls of them.
var (
	toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
	callName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
)

// jsonObject is a JSON object whose members are read one by one.
type jsonObject map[string]json.RawMessage

func (o jsonObject) text(name string) string {
	var s string
	_ = json.Unmarshal(o[name], &s) // another type is no text
	return s
}

// messagesFault finds what Anthropic refuses of a Messages request: it is as strict as
// the real API, so that a translation which passes here is one.
func messagesFault(q *request) (fault, bool) {
	for _, check := range []func(*request) string{checkTop, checkNumbers, checkTools, checkTurns, checkPairs, checkThinking} {
		if message := check(q); message != "" {
			return badRequest(message), true
		}
	}
	return fault{}, false
}

func checkTop(q *request) string {
	if q.header.Get("Anthropic-Version") == "" {
		return "anthropic-version: header is required"
	}
	allowed, required := messageMembers, []string{"model", "messages"}
	if q.api == Messages {
		allowed, required = slices.Concat(allowed, answerMembers), append(required, "max_tokens")
	}
	if q.header.Get("Anthropic-Beta") != "" {
		allowed = slices.Concat(allowed, betaMembers)
	}
	for _, name := range required {
		if q.has[name] == nil {
			return name + ": Field required"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(q.has)) {
		if !slices.Contains(allowed, name) {
			return name + ": Extra inputs are not permitted"
		}
	}
	return ""
}

func checkNumbers(q *request) string {
	if q.MaxTokens != nil && *q.MaxTokens < 1 {
		return "max_tokens: Input should be greater than or equal to 1"
	}
	for _, name := range []string{"temperature", "top_p"} {
		var n float64
		if raw := q.has[name]; raw != nil && (json.Unmarshal(raw, &n) != nil || n < 0 || n > 1) {
			return name + ": range: 0..1"
		}
	}
	var stops []string
	if raw := q.has["stop_sequences"]; raw != nil && json.Unmarshal(raw, &stops) != nil {
		return "stop_sequences: Input should be a valid array"
	}
	for i, s := range stops {
		if strings.TrimSpace(s) == "" {
			return fmt.Sprintf("stop_sequences.%d: each stop sequence must contain non-whitespace", i)
		}
	}
	return ""
}

// checkTools reads the tools and the choice among them.
func checkTools(q *request) string {
	var list []jsonObject
	if raw := q.has["tools"]; raw != nil && json.Unmarshal(raw, &list) != nil {
		return "tools: Input should be a valid array"
	}
	var names []string
	for i, t := range list {
		place := fmt.Sprintf("tools.%d", i)
		if kind := t.text("type"); kind != "" && kind != "custom" {
			if !strings.Contains(kind, "_20") { // a server tool is named by its date
				return fmt.Sprintf("%s: Input tag '%s' found using 'type' does not match any of the expected tags: 'custom', 'bash_20250124', …", place, kind)
			}
			names = append(names, t.text("name"))
			continue
		}
		if message := checkTool(place+".custom", t); message != "" {
			return message
		}
		if names = append(names, t.text("name")); slices.Contains(names[:len(names)-1], t.text("name")) {
			return "tools: Tool names must be unique."
		}
	}
	return checkChoice(q, names)
}

func checkTool(place string, t jsonObject) string {
	known := []string{"type", "name", "input_schema", "description", "strict", "cache_control", "defer_loading", "eager_input_streaming", "input_examples", "allowed_callers"}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if !slices.Contains(known, name) {
			return place + "." + name + ": Extra inputs are not permitted"
		}
	}
	if !toolName.MatchString(t.text("name")) {
		return place + ".name: String should match pattern '" + toolName.String() + "'"
	}
	var schema jsonObject
	switch {
	case t["input_schema"] == nil:
		return place + ".input_schema: Field required"
	case json.Unmarshal(t["input_schema"], &schema) != nil:
		return place + ".input_schema: Input should be a valid dictionary"
	case schema["type"] == nil:
		return place + ".input_schema.type: Field required"
	case schema.text("type") != "object":
		return place + ".input_schema.type: Input should be 'object'"
	}
	return ""
}

func checkChoice(q *request, names []string) string {
	if q.Choice == nil {
		return ""
	}
	var choice jsonObject
	if json.Unmarshal(q.Choice, &choice) != nil {
		return "tool_choice: Input should be a valid dictionary or object to extract fields from"
	}
	kind := choice.text("type")
	switch {
	case !slices.Contains([]string{"auto", "any", "tool", "none"}, kind):
		return fmt.Sprintf("tool_choice: Input tag '%s' found using 'type' does not match any of the expected tags: 'auto', 'any', 'tool', 'none'", kind)
	case len(names) == 0 && kind != "none":
		return "tool_choice: may only be specified while providing tools"
	case kind == "tool" && !slices.Contains(names, choice.text("name")):
		return fmt.Sprintf("tool_choice: Tool '%s' not found in provided tools", choice.text("name"))
	}
	return ""
}

// checkTurns reads every turn by itself.
func checkTurns(q *request) string {
	if raw := q.has["system"]; raw != nil && string(raw) != `""` {
		if message := checkContent("system", raw, []string{"text"}); message != "" {
			return message
		}
	}
	if len(q.Messages) == 0 {
		return "messages: at least one message is required"
	}
	for i, m := range q.Messages {
		takes := map[string][]string{"user": userBlocks, "assistant": assistantBlocks, "system": {"text"}}[m.Role]
		place := fmt.Sprintf("messages.%d", i)
		switch {
		case takes == nil:
			return fmt.Sprintf("%s.role: Input should be 'user', 'assistant' or 'system'", place)
		case i == 0 && m.Role != "user":
			return `messages: first message must use the "user" role`
		case m.Content == nil:
			return place + ".content: Field required"
		case emptyContent(m.Content):
			if m.Role != "assistant" || i < len(q.Messages)-1 {
				return place + ": all messages must have non-empty content except for the optional final assistant message"
			}
			continue
		}
		if message := checkContent(place+".content", m.Content, takes); message != "" {
			return message
		}
	}
	last := q.Messages[len(q.Messages)-1]
	if text := contentText(last.Content); last.Role == "assistant" && text != strings.TrimRight(text, " \t\r\n") {
		return "messages: final assistant content cannot end with trailing whitespace"
	}
	return ""
}

func emptyContent(raw json.RawMessage) bool { return string(raw) == `""` || string(raw) == "[]" }

// checkContent reads a content, a string or blocks of the given kinds.
func checkContent(place string, raw json.RawMessage, takes []string) string {
	where, _, _ := strings.Cut(place, ".")
	if raw[0] == '"' {
		if strings.TrimSpace(contentText(raw)) == "" {
			return where + ": text content blocks must contain non-whitespace text"
		}
		return ""
	}
	var list []jsonObject
	if json.Unmarshal(raw, &list) != nil || list == nil {
		return place + ": Input should be a valid string or a valid array"
	}
	for i, b := range list {
		if message := checkBlock(fmt.Sprintf("%s.%d", place, i), b, takes); message != "" {
			return message
		}
		switch text := b.text("text"); {
		case b.text("type") != "text":
		case text == "":
			return where + ": text content blocks must be non-empty"
		case strings.TrimSpace(text) == "":
			return where + ": text content blocks must contain non-whitespace text"
		}
	}
	return ""
}

func checkBlock(place string, b jsonObject, takes []string) string {
	kind := b.text("type")
	members := blockMembers[kind]
	if members == nil {
		if strings.HasSuffix(kind, "_tool_result") { // of a server's own tool
			return ""
		}
		return fmt.Sprintf("%s: Input tag '%s' found using 'type' does not match any of the expected tags: '%s'", place, kind, strings.Join(takes, "', '"))
	}
	if !slices.Contains(takes, kind) {
		return fmt.Sprintf("%s: `%s` blocks are not allowed here; expected one of '%s'", place, kind, strings.Join(takes, "', '"))
	}
	for _, m := range members {
		if name, required := strings.CutPrefix(m, "!"); required && b[name] == nil {
			return fmt.Sprintf("%s.%s.%s: Field required", place, kind, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if name != "type" && !slices.Contains(members, name) && !slices.Contains(members, "!"+name) {
			return fmt.Sprintf("%s.%s.%s: Extra inputs are not permitted", place, kind, name)
		}
	}
	return checkInside(place, kind, b)
}

// checkInside reads what single kinds of blocks hold.
func checkInside(place, kind string, b jsonObject) string {
	var inner jsonObject
	switch kind {
	case "tool_use":
		if !callName.MatchString(b.text("id")) {
			return place + ".tool_use.id: String should match pattern '" + callName.String() + "'"
		}
		if !toolName.MatchString(b.text("name")) {
			return place + ".tool_use.name: String should match pattern '" + toolName.String() + "'"
		}
		if json.Unmarshal(b["input"], &inner) != nil || inner == nil {
			return place + ".tool_use.input: Input should be a valid dictionary"
		}
	case "tool_result":
		if b["content"] == nil || emptyContent(b["content"]) {
			if string(b["is_error"]) == "true" {
				return place + ".tool_result: content cannot be empty if `is_error` is true"
			}
			return ""
		}
		return checkResult(place+".tool_result.content", b["content"])
	case "image":
		_ = json.Unmarshal(b["source"], &inner) // what is no object has no type
		return checkImage(place+".image.source", inner)
	case "thinking":
		if b.text("signature") != Signature(b.text("thinking")) {
			return place + ": Invalid `signature` in `thinking` block"
		}
	}
	return ""
}

func checkResult(place string, content json.RawMessage) string {
	if message := checkContent(place, content, resultBlocks); message != "" {
		return message
	}
	var list []jsonObject
	_ = json.Unmarshal(content, &list) // a string has no blocks
	for i, b := range list {
		if b["cache_control"] != nil {
			return fmt.Sprintf("%s.%d.%s.cache_control: Extra inputs are not permitted", place, i, b.text("type"))
		}
	}
	return ""
}

func checkImage(place string, source jsonObject) string {
	switch kind := source.text("type"); kind {
	case "url", "file":
		return ""
	case "base64":
		if media := source.text("media_type"); !slices.Contains([]string{"image/jpeg", "image/png", "image/gif", "image/webp"}, media) {
			return place + ".base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
		}
		if source.text("data") == "" {
			return place + ".base64.data: Field required"
		}
		return ""
	default:
		return fmt.Sprintf("%s: Input tag '%s' found using 'type' does not match any of the expected tags: 'base64', 'url', 'file'", place, kind)
	}
}
