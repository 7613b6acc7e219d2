package sim

import (
	"cmp"
	"fmt"
	"net/http"
)

// fault is an error that a real server would answer, before it takes a flavour's shape.
type fault struct {
	status  int
	kind    string // the type; the flavour's own for the status when empty
	code    any
	param   any
	message string
	extra   object
}

func badRequest(message string) fault { return fault{status: http.StatusBadRequest, message: message} }

// kinds holds the error type of a status: OpenAI's, llama.cpp's, and the class names of
// vLLM and SGLang.
var kinds = map[int][3]string{
	400: {"invalid_request_error", "invalid_request_error", "BadRequestError"},
	401: {"invalid_request_error", "authentication_error", "AuthenticationError"},
	402: {"insufficient_quota", "permission_error", "PaymentRequiredError"},
	403: {"permission_error", "permission_error", "PermissionDeniedError"},
	404: {"invalid_request_error", "not_found_error", "NotFoundError"},
	429: {"rate_limit_error", "unavailable_error", "RateLimitError"},
	501: {"server_error", "not_supported_error", "NotImplementedError"},
	503: {"server_error", "unavailable_error", "ServiceUnavailableError"},
	529: {"overloaded_error", "unavailable_error", "OverloadedError"},
}

// anthropicKinds holds Anthropic's error types; another 4xx is as 400, another 5xx as 500.
var anthropicKinds = map[int]string{
	400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error",
	413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 504: "timeout_error", 529: "overloaded_error",
}

// names returns the error types of a status, in the order of kinds.
func (f fault) names() [3]string {
	if names, ok := kinds[f.status]; ok {
		return names
	}
	if f.status < 500 {
		return kinds[400]
	}
	return [3]string{"server_error", "server_error", "InternalServerError"}
}

// inner returns the error member of the body.
func (f fault) inner(v voice) object {
	names := f.names()
	pick := func(name string) string { return cmp.Or(f.kind, name) }
	if v.anthropic() {
		base := 400
		if f.status >= 500 {
			base = 500
		}
		return object{{"type", pick(cmp.Or(anthropicKinds[f.status], anthropicKinds[base]))}, {"message", f.message}}
	}
	switch v.flavour {
	case LlamaCPP:
		return append(object{{"code", f.status}, {"message", f.message}, {"type", pick(names[1])}}, f.extra...)
	case VLLM:
		return object{{"message", f.message}, {"type", pick(names[2])}, {"param", f.param}, {"code", f.status}}
	case SGLang:
		return object{{"object", "error"}, {"message", f.message}, {"type", pick(names[2])}, {"param", f.param}, {"code", f.status}}
	case Ollama:
		kind := "api_error"
		switch f.status {
		case 400:
			kind = "invalid_request_error"
		case 404:
			kind = "not_found_error"
		}
		return object{{"message", f.message}, {"type", kind}, {"param", nil}, {"code", nil}}
	}
	return append(object{{"message", f.message}, {"type", pick(names[0])}, {"param", f.param}, {"code", f.code}}, f.extra...)
}

// body returns the whole error body.
func (f fault) body(v voice) []byte {
	switch {
	case v.anthropic():
	case v.flavour == SGLang:
		return encode(f.inner(v))
	case v.flavour == LMStudio:
		return encode(object{{"error", f.message}})
	}
	return v.wrap(f.inner(v))
}

// failure is the answer that tells f.
func failure(v voice, f fault) answer { return jsonAnswer(f.status, f.body(v)) }

func loading(flavour Flavour) fault {
	f := fault{status: http.StatusServiceUnavailable, message: "Loading model"}
	if flavour != LlamaCPP {
		f.message = "simulated: the model is loading"
		f.code = "model_loading"
	}
	return f
}

func overloaded(v voice) fault {
	f := scripted(http.StatusServiceUnavailable)
	if v.anthropic() {
		f.status = 529
	}
	return f
}

// scripted is the fault of a script's bare status.
func scripted(status int) fault {
	f := fault{status: status, message: fmt.Sprintf("simulated: status %d by script", status)}
	switch status {
	case 401:
		f.message, f.code = "simulated: incorrect API key provided", "invalid_api_key"
	case 404:
		f.message, f.code = "simulated: the model does not exist", "model_not_found"
	case 429:
		f.message, f.code = "simulated: rate limit reached, please slow down", "rate_limit_exceeded"
	case 503, 529:
		f.message, f.code = "simulated: the engine is overloaded, please try again later", "overloaded"
	}
	return f
}

// tooLong is the fault of a prompt of n tokens that a context of limit does not hold, in
// the words of the flavour. Ollama has none: it cuts the prompt in silence.
func tooLong(v voice, n, limit int) fault {
	f := badRequest(fmt.Sprintf("This model's maximum context length is %d tokens. However, your messages resulted in %d tokens. Please reduce the length of the messages.", limit, n))
	f.code, f.param = "context_length_exceeded", "messages"
	if v.api == Responses {
		f.param = "input"
	}
	switch v.flavour {
	case LlamaCPP:
		f.kind = "exceed_context_size_error"
		f.message = fmt.Sprintf("request (%d tokens) exceeds the available context size (%d tokens), try increasing it", n, limit)
		f.extra = object{{"n_prompt_tokens", n}, {"n_ctx", limit}}
	case Anthropic:
		f.message = fmt.Sprintf("prompt is too long: %d tokens > %d maximum", n, limit)
	case OpenAI:
		if v.anthropic() {
			f.message = fmt.Sprintf("prompt is too long: %d tokens > %d maximum", n, limit)
		}
	case VLLM:
		f.message = fmt.Sprintf("This model's maximum context length is %d tokens. However, you requested %d tokens in the messages, Please reduce the length of the messages.", limit, n)
		f.param = nil
	case SGLang:
		f.message = fmt.Sprintf("The input (%d tokens) is longer than the model's context length (%d tokens).", n, limit)
		f.param = nil
	case LMStudio:
		f.message = fmt.Sprintf("simulated: the number of tokens to keep (%d) is larger than the context length (%d)", n, limit)
	}
	return f
}
