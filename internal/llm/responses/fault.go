package responses

import (
	"strconv"
	"time"

	"weir/internal/llm"
)

// Status returns the HTTP status for e. One agent makes thirty requests of a 503 and none of a 429, so what is final
// here is said by a 429; AppendError says why.
func (Dialect) Status(e *llm.Error) int {
	if s := e.HTTPStatus(); s != 503 {
		return s
	}
	return 429
}

// because is added to the message of a 503 that is sent as a 429.
const because = " (sent as 429 and not 503, which clients of this API answer with a storm of retries; no limit of this key was reached)"

// AppendError appends e as OpenAI's error object: the body of an HTTP error.
func (Dialect) AppendError(dst []byte, e *llm.Error) []byte {
	msg := e.Msg
	if e.HTTPStatus() == 503 {
		msg += because
	}
	dst = llm.AppendQuoted(append(dst, `{"error":{"message":`...), msg)
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

// AppendStreamError appends e as the only event of a stream in which no answer has begun. One that has begun is ended by
// Request.Broken, which knows its id and number.
func (Dialect) AppendStreamError(dst []byte, e *llm.Error) []byte {
	b := broken{id: newID("resp_"), created: time.Now().Unix()}
	return b.appendFailed(dst, e)
}

// AppendPing appends a comment that keeps the connection alive and that clients ignore.
func (Dialect) AppendPing(dst []byte) []byte { return append(dst, ": waiting\n\n"...) }

// errorType returns the type of an HTTP error's body.
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

// failCode returns the code of a failed response: clients act on these alone.
func failCode(k llm.Kind) string {
	switch k {
	case llm.TooLong:
		return "context_length_exceeded"
	case llm.Invalid:
		return "invalid_prompt"
	case llm.Busy, llm.Limited:
		return "rate_limit_exceeded"
	}
	return "server_error"
}

// broken is what the last event of a stream that failed must agree on with those before it.
type broken struct {
	id      llm.Text
	model   llm.Text
	created int64
	seq     int64
	output  []byte // the items that were whole, without brackets
}

// appendFailed appends the event that ends a stream which failed.
func (b *broken) appendFailed(dst []byte, e *llm.Error) []byte {
	dst = append(dst, "event: response.failed\ndata: {\"type\":\"response.failed\",\"sequence_number\":"...)
	dst = strconv.AppendInt(dst, b.seq, 10)
	dst = append(append(dst, `,"response":{"id":"`...), b.id...)
	dst = append(dst, `","object":"response","created_at":`...)
	dst = strconv.AppendInt(dst, b.created, 10)
	dst = append(dst, `,"status":"failed","error":{"code":"`...)
	dst = append(append(dst, failCode(e.Kind)...), `","message":`...)
	dst = llm.AppendQuoted(dst, e.Msg)
	dst = append(append(dst, `},"incomplete_details":null,"instructions":null,"metadata":{},"model":"`...), b.model...)
	dst = append(append(dst, `","output":[`...), b.output...)
	return append(dst, `],"parallel_tool_calls":true,"temperature":null,"tool_choice":"auto","tools":[],"top_p":null,"usage":null}}`+"\n\n"...)
}
