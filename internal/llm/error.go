package llm

import (
	"errors"
	"fmt"
	"time"
)

// Kind says what went wrong, and with that what may follow. The table below is the only place that knows.
type Kind uint8

// The kinds. Zero is no error.
const (
	Invalid Kind = iota + 1
	TooLong
	Gone
	Denied
	Busy
	Unavailable
	Loading
	Stale
	Refused
	Slow
	Stalled
	Rejected
	Full
	None
	Unauthorized
	Unknown
	Limited
	Draining
	Canceled
	Internal
)

// rule is one row of the failure table of ARCHITECTURE.md.
type rule struct {
	name   string
	status int  // what the client gets before headers are sent
	retry  bool // the same step may be tried once more, after a pause
	next   bool // the next step may be tried
	blames bool // the backend's health suffers
	final  bool // clients are told not to retry
	code   string
}

var rules = [...]rule{
	Invalid:      {name: "invalid", status: 400, final: true, code: "invalid_request"},
	TooLong:      {name: "too_long", status: 400, next: true, final: true, code: "context_length_exceeded"},
	Gone:         {name: "gone", status: 502, next: true, final: true, code: "upstream_gone"},
	Denied:       {name: "denied", status: 502, next: true, final: true, code: "upstream_denied"},
	Busy:         {name: "busy", status: 429, retry: true, next: true, code: "upstream_busy"},
	Unavailable:  {name: "unavailable", status: 503, retry: true, next: true, blames: true, code: "upstream_unavailable"},
	Loading:      {name: "loading", status: 503, next: true, code: "model_loading"},
	Stale:        {name: "stale", status: 502, retry: true, next: true, final: true, code: "upstream_stale"},
	Refused:      {name: "refused", status: 502, next: true, blames: true, final: true, code: "upstream_refused"},
	Slow:         {name: "slow", status: 504, next: true, blames: true, final: true, code: "upstream_slow"},
	Stalled:      {name: "stalled", status: 504, next: true, blames: true, final: true, code: "upstream_stalled"},
	Rejected:     {name: "rejected", status: 502, next: true, final: true, code: "answer_rejected"},
	Full:         {name: "full", status: 503, next: true, code: "queue_full"},
	None:         {name: "none", status: 503, code: "no_backend"},
	Unauthorized: {name: "unauthorized", status: 401, final: true, code: "invalid_api_key"},
	Unknown:      {name: "unknown", status: 404, final: true, code: "model_not_found"},
	Limited:      {name: "limited", status: 429, code: "rate_limit_exceeded"},
	Draining:     {name: "draining", status: 503, code: "shutting_down"},
	Canceled:     {name: "canceled", status: 499, final: true, code: "client_left"},
	Internal:     {name: "internal", status: 500, final: true, code: "internal_error"},
}

// String returns the kind's name as events, metrics and messages write it; empty for zero.
func (k Kind) String() string {
	if int(k) >= len(rules) {
		return "internal"
	}
	return rules[k].name
}

// Status returns the HTTP status that a client gets for the kind before headers are sent.
func (k Kind) Status() int { return k.rule().status }

// Code returns the stable error code that a client gets for the kind.
func (k Kind) Code() string { return k.rule().code }

// Retries reports whether the same step may be tried once more after a pause.
func (k Kind) Retries() bool { return k.rule().retry }

// FallsBack reports whether the next step may be tried, as long as no content has left.
func (k Kind) FallsBack() bool { return k.rule().next }

// Blames reports whether the backend's health suffers.
func (k Kind) Blames() bool { return k.rule().blames }

// Final reports whether clients are told not to retry (x-should-retry: false).
func (k Kind) Final() bool { return k.rule().final }

func (k Kind) rule() rule {
	if k == 0 || int(k) >= len(rules) {
		return rules[Internal]
	}
	return rules[k]
}

// Error is a failure with a kind. Msg is for the client and never holds keys, hosts or paths of this side;
// Err is for the log alone.
type Error struct {
	Kind       Kind
	Op         string
	Msg        string
	Param      string        // the request's member at fault, such as messages[3].content
	Code       string        // replaces the kind's code where the upstream or a rule has a better one
	Status     int           // replaces the kind's status: for a 4xx of the client's making, kept as the upstream sent it
	Upstream   int           // what the upstream answered; 0: nothing
	RetryAfter time.Duration // 0: none known
	Prompt     int           // too_long: tokens of the prompt, 0 when unknown
	Window     int           // too_long: tokens that there is room for, 0 when unknown
	ID         string        // of the request, for dialects whose errors name it
	Final      bool          // clients are told not to retry although the kind would allow it
	Sent       bool          // the upstream may have worked on it: counts as a generation
	Err        error
}

// Error returns the whole chain for the log.
func (e *Error) Error() string {
	s := e.Kind.String() + ": " + e.Msg
	if e.Op != "" {
		s = e.Op + ": " + s
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// HTTPStatus returns the status a client gets. A status outside 200–599 becomes 502.
func (e *Error) HTTPStatus() int {
	s := e.Kind.Status()
	if e.Status != 0 {
		s = e.Status
	}
	if s < 200 || s > 599 {
		return 502
	}
	return s
}

// ErrorCode returns the code a client gets.
func (e *Error) ErrorCode() string {
	if e.Code != "" {
		return e.Code
	}
	return e.Kind.Code()
}

// IsFinal reports whether the client is told not to retry.
func (e *Error) IsFinal() bool { return e.Final || e.Kind.Final() }

// KindOf returns the kind of err: zero for nil, Internal for an error without one.
func KindOf(err error) Kind {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}

// AsError returns err as an *Error; one without a kind becomes Internal with a message that shows nothing of it.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Kind: Internal, Msg: "something went wrong inside Weir; its log holds the cause under this request's id", Err: err}
}

// Errorf returns an Error of kind k whose message for the client is formatted.
func Errorf(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Msg: fmt.Sprintf(format, args...)}
}
