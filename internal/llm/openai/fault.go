package openai

import "weir/internal/llm"

// AppendError appends e as OpenAI's error object: the body of an HTTP error.
func (Dialect) AppendError(dst []byte, e *llm.Error) []byte {
	dst = llm.AppendQuoted(append(dst, `{"error":{"message":`...), e.Msg)
	dst = llm.AppendQuoted(append(dst, `,"type":`...), errorType(e))
	dst = append(dst, `,"param":`...)
	if e.Param == "" {
		dst = append(dst, "null"...)
	} else {
		dst = llm.AppendQuoted(dst, e.Param)
	}
	dst = llm.AppendQuoted(append(dst, `,"code":`...), e.ErrorCode())
	return append(dst, "}}"...)
}

// Status returns the HTTP status that a client of the API gets for e.
func (Dialect) Status(e *llm.Error) int { return e.HTTPStatus() }

// AppendStreamError appends e as the last event of a stream that has begun. No end mark follows it.
func (d Dialect) AppendStreamError(dst []byte, e *llm.Error) []byte {
	dst = append(dst, "data: "...)
	return append(d.AppendError(dst, e), "\n\n"...)
}

// AppendPing appends a comment that keeps the connection alive and that clients ignore.
func (Dialect) AppendPing(dst []byte) []byte { return append(dst, ": waiting\n\n"...) }

func errorType(e *llm.Error) string {
	switch e.Kind {
	case llm.Invalid, llm.TooLong, llm.Unknown:
		return "invalid_request_error"
	case llm.Unauthorized:
		return "authentication_error"
	case llm.Busy, llm.Limited:
		if e.Upstream >= 500 { // a server that is full, and not a rate of ours that was reached (C065)
			return "overloaded_error"
		}
		return "rate_limit_error"
	case llm.Slow, llm.Stalled:
		return "timeout_error"
	case llm.Unavailable, llm.Loading, llm.Full, llm.None, llm.Draining:
		return "overloaded_error"
	}
	return "server_error"
}
