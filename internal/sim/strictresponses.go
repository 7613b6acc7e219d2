package sim

import (
	"fmt"
	"slices"
)

// itemTypes holds the input items that a Responses server knows.
var itemTypes = []string{"", "text", "message", "reasoning", "item_reference", "compaction",
	"function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
	"web_search_call", "file_search_call", "computer_call", "computer_call_output", "code_interpreter_call", "image_generation_call",
	"local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output",
	"mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "tool_search_call", "tool_search_output",
	"program", "program_output", "additional_tools"}

// responsesFault finds what OpenAI refuses of the conversation in a Responses request.
// A Server keeps no responses, so none can be continued.
func responsesFault(q *request) (fault, bool) {
	refuse := func(param, format string, args ...any) (fault, bool) {
		f := badRequest(fmt.Sprintf(format, args...))
		f.param, f.code = param, "invalid_value"
		return f, true
	}
	if raw := q.has["previous_response_id"]; raw != nil && string(raw) != "null" {
		return refuse("previous_response_id", "Previous response with id %s not found.", raw)
	}
	var calls, answered []string
	for i, item := range blocks(q.Input) {
		place := fmt.Sprintf("input[%d]", i)
		switch {
		case !slices.Contains(itemTypes, item.Type):
			return refuse(place+".type", "Invalid value: '%s'. Supported values are: %v.", item.Type, itemTypes[2:])
		case item.Type == "function_call" || item.Type == "custom_tool_call":
			calls = append(calls, item.CallID)
		case item.Type == "function_call_output" || item.Type == "custom_tool_call_output":
			if !slices.Contains(calls, item.CallID) {
				return refuse("input", "No tool call found for function call output with call_id %s.", item.CallID)
			}
			answered = append(answered, item.CallID)
		case item.Type == "reasoning" && item.Encrypted != "" && !genuine(item):
			return refuse(place+".encrypted_content", "The encrypted content for item %s could not be verified.", item.ID)
		}
	}
	for _, id := range calls {
		if !slices.Contains(answered, id) {
			return refuse("input", "No tool output found for function call %s.", id)
		}
	}
	return fault{}, false
}

// genuine reports whether a reasoning item is as a Server made it.
func genuine(item block) bool {
	text := ""
	for _, p := range item.Summary {
		text += p.Text
	}
	return item.Encrypted == Signature(text+contentText(item.Content))
}
