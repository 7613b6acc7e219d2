package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// turn is what consecutive messages of one role say together, as Anthropic joins them.
type turn struct {
	role   string
	at     int // the first message
	blocks []block
}

// turns joins the messages. Those of the system in the middle stand beside the others.
func (q *request) turns() []turn {
	var list []turn
	for i, m := range q.Messages {
		if m.Role == "system" {
			continue
		}
		if len(list) == 0 || list[len(list)-1].role != m.Role {
			list = append(list, turn{role: m.Role, at: i})
		}
		last := &list[len(list)-1]
		last.blocks = append(last.blocks, blocks(m.Content)...)
	}
	return list
}

// checkPairs holds calls and results together: each result answers a call of the turn
// before it, and each call has its result in the turn behind it.
func checkPairs(q *request) string {
	var open, seen []string
	opened := 0
	unanswered := func() string {
		return fmt.Sprintf("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
			opened, strings.Join(open, ", "))
	}
	for _, t := range q.turns() {
		before := slices.Clone(open)
		for i, b := range t.blocks {
			switch b.Type {
			case "tool_use":
				if slices.Contains(seen, b.ID) {
					return "messages: `tool_use` ids must be unique"
				}
				seen, open, opened = append(seen, b.ID), append(open, b.ID), t.at
			case "tool_result":
				if !slices.Contains(before, b.ToolUseID) {
					return fmt.Sprintf("messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.",
						t.at, i, b.ToolUseID)
				}
				if !slices.Contains(open, b.ToolUseID) {
					return fmt.Sprintf("messages.%d.content.%d: each tool_use must have a single result. Found multiple `tool_result` blocks with id: %s", t.at, i, b.ToolUseID)
				}
				open = slices.DeleteFunc(open, func(id string) bool { return id == b.ToolUseID })
			}
		}
		if t.role == "user" && len(open) > 0 {
			return unanswered()
		}
	}
	if len(open) > 0 {
		return unanswered()
	}
	return ""
}

// checkThinking reads what thinking demands: of the settings beside it, and of the last
// turn of the assistant while its tools are answered.
func checkThinking(q *request) string {
	raw := q.has["thinking"]
	if raw == nil {
		return ""
	}
	var thinking struct {
		Type   string `json:"type"`
		Budget *int   `json:"budget_tokens"`
	}
	if json.Unmarshal(raw, &thinking) != nil || !slices.Contains([]string{"enabled", "adaptive", "disabled"}, thinking.Type) {
		return fmt.Sprintf("thinking: Input tag '%s' found using 'type' does not match any of the expected tags: 'adaptive', 'disabled', 'enabled'", thinking.Type)
	}
	if thinking.Type == "disabled" {
		return ""
	}
	if n := q.has["temperature"]; n != nil && string(n) != "1" && string(n) != "1.0" {
		return "`temperature` may only be set to 1 when thinking is enabled"
	}
	if demanded, _ := q.forced(); demanded {
		return "Thinking may not be enabled when tool_choice forces tool use."
	}
	if thinking.Type == "adaptive" {
		return ""
	}
	switch {
	case thinking.Budget == nil:
		return "thinking.enabled.budget_tokens: Field required"
	case *thinking.Budget < 1024:
		return "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
	case q.MaxTokens != nil && *thinking.Budget >= *q.MaxTokens:
		return "`max_tokens` must be greater than `thinking.budget_tokens`"
	}
	return checkThought(q.turns())
}

// checkThought demands that an assistant turn whose tools were just answered begins with
// the thinking that led to them. checkBlock has read the signatures.
func checkThought(turns []turn) string {
	if len(turns) < 2 {
		return ""
	}
	last := turns[len(turns)-2]
	calls := slices.ContainsFunc(last.blocks, func(b block) bool { return b.Type == "tool_use" })
	first := last.blocks[:min(1, len(last.blocks))]
	if last.role != "assistant" || !calls || first[0].Type == "thinking" || first[0].Type == "redacted_thinking" {
		return ""
	}
	return fmt.Sprintf("messages.%d.content.0.type: Expected `thinking` or `redacted_thinking`, but found `%s`. When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceding the lastmost set of `tool_use` and `tool_result` blocks).",
		last.at, first[0].Type)
}
