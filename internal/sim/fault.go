package sim

import (
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

// inner returns the error member of the body.
func (f fault) inner(flavour Flavour) object {
	names, ok := kinds[f.status]
	if !ok {
		names = [3]string{"server_error", "server_error", "InternalServerError"}
		if f.status < 500 {
			names = kinds[400]
		}
	}
	pick := func(i int) string {
		if f.kind != "" {
			return f.kind
		}
		return names[i]
	}
	switch flavour {
	case LlamaCPP:
		return append(object{{"code", f.status}, {"message", f.message}, {"type", pick(1)}}, f.extra...)
	case VLLM:
		return object{{"message", f.message}, {"type", pick(2)}, {"param", f.param}, {"code", f.status}}
	case SGLang:
		return object{{"object", "error"}, {"message", f.message}, {"type", pick(2)}, {"param", f.param}, {"code", f.status}}
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
	return append(object{{"message", f.message}, {"type", pick(0)}, {"param", f.param}, {"code", f.code}}, f.extra...)
}

// body returns the whole error body.
func (f fault) body(flavour Flavour) []byte {
	switch flavour {
	case SGLang:
		return encode(f.inner(flavour))
	case LMStudio:
		return encode(object{{"error", f.message}})
	}
	return f.event(flavour)
}

// event returns the error as the payload of an event in a stream.
func (f fault) event(flavour Flavour) []byte { return encode(object{{"error", f.inner(flavour)}}) }

// failure is the answer that tells f.
func (s *Server) failure(f fault) answer {
	return jsonAnswer(f.status, f.body(s.flavour()))
}

func loading(flavour Flavour) fault {
	f := fault{status: http.StatusServiceUnavailable, message: "Loading model"}
	if flavour != LlamaCPP {
		f.message = "simulated: the model is loading"
		f.code = "model_loading"
	}
	return f
}

func overloaded() fault {
	return fault{status: http.StatusServiceUnavailable, message: "simulated: the engine is overloaded, please try again later", code: "overloaded"}
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
func tooLong(flavour Flavour, n, limit int) fault {
	f := badRequest(fmt.Sprintf("This model's maximum context length is %d tokens. However, your messages resulted in %d tokens. Please reduce the length of the messages.", limit, n))
	f.code, f.param = "context_length_exceeded", "messages"
	switch flavour {
	case LlamaCPP:
		f.kind = "exceed_context_size_error"
		f.message = fmt.Sprintf("request (%d tokens) exceeds the available context size (%d tokens), try increasing it", n, limit)
		f.extra = object{{"n_prompt_tokens", n}, {"n_ctx", limit}}
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
