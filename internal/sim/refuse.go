package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// refuse finds what of a request the server does not take.
func refuse(script *Script, q *request, b *Behaviour) (fault, bool) {
	if q.badJSON != nil {
		f := badRequest("simulated: the body is not a valid request: " + q.badJSON.Error())
		if script.flavour() == LlamaCPP {
			f.status = http.StatusInternalServerError // as llama-server does
		}
		return f, true
	}
	if script.Strict && !known(script, q.Model) {
		f := scripted(http.StatusNotFound)
		f.message = fmt.Sprintf("simulated: the model %q does not exist", q.Model)
		return f, true
	}
	for _, check := range checks(script, q) {
		if f, bad := check(q); bad {
			return f, true
		}
	}
	for _, what := range slices.Concat(script.Refuse, b.Refuse) {
		if refused(what, q) {
			f := badRequest("simulated: " + what + " is not supported by this server")
			f.code, f.param = "unsupported_parameter", what
			if what == "bad_arguments" {
				f = fault{status: http.StatusInternalServerError, message: "Failed to parse tool call arguments as JSON"} // as llama-server does
			}
			return f, true
		}
	}
	return fault{}, false
}

// checks are the rules by which a kind of server takes a request of an API.
func checks(script *Script, q *request) []func(*request) (fault, bool) {
	messages := q.api == Messages || q.api == CountTokens
	switch flavour := script.flavour(); {
	case messages && (flavour == Anthropic || flavour == OpenAI):
		return []func(*request) (fault, bool){messagesFault}
	case flavour == LlamaCPP:
		return []func(*request) (fault, bool){llamaMissing, llamaFault}
	case flavour == OpenAI && q.api == Responses:
		return []func(*request) (fault, bool){missing, responsesFault}
	}
	return []func(*request) (fault, bool){missing}
}

func known(script *Script, model string) bool {
	for _, m := range script.models() {
		if m == model {
			return true
		}
	}
	_, scripted := script.On[model]
	return scripted
}

// missing finds a required member that is not there.
func missing(q *request) (fault, bool) {
	need := map[API]string{Chat: "messages", Completions: "prompt", Embeddings: "input", Rerank: "documents",
		Messages: "messages", CountTokens: "messages", Responses: "input"}
	name := need[q.api]
	if q.has[name] != nil {
		return fault{}, false
	}
	f := badRequest(fmt.Sprintf("'%s' is required", name))
	f.param = name
	return f, true
}

// llamaMissing is missing as llama-server answers it: with 500 on Messages.
func llamaMissing(q *request) (fault, bool) {
	f, bad := missing(q)
	if bad && q.api == Messages {
		f.status = http.StatusInternalServerError
	}
	return f, bad
}

// llamaFault finds what llama-server refuses, mostly as a server's fault (500).
func llamaFault(q *request) (fault, bool) {
	broken := fault{status: http.StatusInternalServerError}
	if q.api == Responses && q.has["previous_response_id"] != nil {
		return badRequest("llama.cpp does not support 'previous_response_id'"), true
	}
	for _, m := range q.Messages {
		for _, p := range m.parts() {
			switch p.Type {
			case "image_url", "image":
				broken.message = "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"
				return broken, true
			case "text":
			default:
				if q.api == Chat {
					return badRequest("unsupported content[].type"), true
				}
			}
		}
		for _, c := range m.ToolCalls {
			if !json.Valid([]byte(c.Function.Arguments)) {
				broken.message = "Failed to parse tool call arguments as JSON: " + c.Function.Arguments
				return broken, true
			}
		}
	}
	for _, t := range q.Tools {
		if t.Type != "function" {
			broken.message = "Failed to parse tools: Unsupported tool type: " + t.Type
			return broken, true
		}
	}
	return fault{}, false
}

// refused reports whether a request uses the feature.
func refused(what string, q *request) bool {
	switch what {
	case "stream":
		return q.Stream
	case "n":
		return q.N > 1
	case "base64":
		return q.encoding() == "base64"
	case "null_content":
		return slices.ContainsFunc(q.Messages, func(m message) bool { return string(m.Content) == "null" })
	case "absent_content":
		return slices.ContainsFunc(q.Messages, func(m message) bool { return m.Content == nil })
	case "empty_content":
		return slices.ContainsFunc(q.Messages, func(m message) bool { return string(m.Content) == `""` })
	case "developer":
		return slices.Contains(q.roles, "developer")
	case "late_system":
		return lateSystem(q.roles)
	case "same_role":
		return sameRole(q.roles)
	case "tool_order":
		return toolOrder(q.Messages) != ""
	case "bad_arguments":
		return badArguments(q.Messages)
	}
	_, ok := q.has[what]
	return ok
}

// lateSystem reports a system turn behind the start, which many chat templates refuse.
func lateSystem(roles []string) bool {
	begun := false
	for _, r := range roles {
		switch {
		case r != "system" && r != "developer":
			begun = true
		case begun:
			return true
		}
	}
	return false
}

// sameRole reports two turns of the user, or of the assistant, in a row, which some chat
// templates refuse.
func sameRole(roles []string) bool {
	for i := 1; i < len(roles); i++ {
		if roles[i] == roles[i-1] && (roles[i] == "user" || roles[i] == "assistant") {
			return true
		}
	}
	return false
}

// toolOrder says what is wrong with the order of calls and results: each call must have
// its result directly behind it, and each result its call.
func toolOrder(messages []message) string {
	var open []string
	for _, m := range messages {
		if m.Role == "tool" {
			i := slices.Index(open, m.ToolCallID)
			if i < 0 {
				return "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
			}
			open = slices.Delete(open, i, i+1)
			continue
		}
		if len(open) > 0 {
			break
		}
		for _, c := range m.ToolCalls {
			open = append(open, c.ID)
		}
	}
	if len(open) > 0 {
		return "an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id': " + strings.Join(open, ", ")
	}
	return ""
}

func badArguments(messages []message) bool {
	for _, m := range messages {
		for _, c := range m.ToolCalls {
			if !json.Valid([]byte(c.Function.Arguments)) {
				return true
			}
		}
	}
	return false
}
