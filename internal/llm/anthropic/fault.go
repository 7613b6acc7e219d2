package anthropic

import (
	"net/http"
	"strconv"
	"strings"

	"weir/internal/llm"
)

// overloaded is the status by which Anthropic's clients know that a server is full.
const overloaded = 529

// Status returns the HTTP status that a client of this dialect gets for e: a full queue is 529, for clients know it and
// wait; all other kinds have the status they have elsewhere.
func (Dialect) Status(e *llm.Error) int {
	switch {
	case e.Status != 0:
		return e.HTTPStatus()
	case e.Kind == llm.Full, e.Kind == llm.Busy && e.Upstream >= 500:
		return overloaded
	}
	return e.HTTPStatus()
}

// AppendError appends e as Anthropic's error object: the body of an HTTP error.
func (d Dialect) AppendError(dst []byte, e *llm.Error) []byte {
	dst = llm.AppendQuoted(append(dst, `{"type":"error","error":{"type":`...), d.errorType(e))
	dst = llm.AppendQuoted(append(dst, `,"message":`...), message(e))
	dst = append(dst, '}')
	if e.ID != "" {
		dst = llm.AppendQuoted(append(dst, `,"request_id":`...), e.ID)
	}
	return append(dst, '}')
}

// AppendStreamError appends e as the last event of a stream that has begun. No message_stop follows it (C013).
func (d Dialect) AppendStreamError(dst []byte, e *llm.Error) []byte {
	dst = append(dst, "event: error\ndata: "...)
	return append(d.AppendError(dst, e), "\n\n"...)
}

// AppendPing appends the event that keeps the connection alive and that clients ignore.
func (Dialect) AppendPing(dst []byte) []byte {
	return append(dst, "event: ping\ndata: {\"type\":\"ping\"}\n\n"...)
}

// errorType returns the documented type: after a 200 it is all that a client has to tell the class by (C065, C089).
func (d Dialect) errorType(e *llm.Error) string {
	switch e.Kind {
	case llm.Unauthorized:
		return "authentication_error"
	case llm.Unknown:
		return "not_found_error"
	case llm.Limited:
		return "rate_limit_error"
	case llm.Busy:
		if e.Upstream >= 500 {
			return "overloaded_error"
		}
		return "rate_limit_error"
	case llm.Slow, llm.Stalled:
		return "timeout_error"
	case llm.Unavailable, llm.Loading, llm.Full, llm.None, llm.Draining:
		return "overloaded_error"
	case llm.Invalid, llm.TooLong:
		return refusalType(d.Status(e))
	}
	return "api_error"
}

// refusalType returns the type of a request that was refused, by the status that says so.
func refusalType(status int) string {
	switch status {
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	}
	return "invalid_request_error"
}

// message returns what the client reads. The dialect has no member for the parameter at fault, so the message names it.
func message(e *llm.Error) string {
	switch {
	case e.Kind == llm.TooLong:
		return tooLong(e)
	case e.Param != "" && !strings.Contains(e.Msg, e.Param):
		return e.Param + ": " + e.Msg
	}
	return e.Msg
}

// tooLong is worded as agents look for it before they make their context smaller.
func tooLong(e *llm.Error) string {
	const mark = "prompt is too long"
	switch {
	case e.Prompt > e.Window && e.Window > 0:
		return mark + ": " + strconv.Itoa(e.Prompt) + " tokens > " + strconv.Itoa(e.Window) + " maximum"
	case strings.Contains(e.Msg, mark):
		return e.Msg
	}
	return mark + ": " + e.Msg
}
