package backend

import (
	"bytes"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"weir/internal/llm"
)

// report is what an upstream's error body says, in whatever shape.
type report struct {
	message, kind, code, param string
	status                     int // a status named inside the body
}

// classify turns a status and a body into an error with a kind. A client's fault never becomes the backend's, and the
// other way round: statuses lie, so type and message are read first.
func (b *Backend) classify(status int, h http.Header, body []byte) error {
	r := read(body)
	e := &llm.Error{Op: "backend.Call", Upstream: status, Msg: clean(r.message), Param: r.param}
	e.Kind = b.kind(status, &r)
	e.Sent = status >= 500 && status != 503 && status != 529
	if e.Kind == llm.Busy || e.Kind == llm.Unavailable || e.Kind == llm.Loading {
		e.RetryAfter = retryAfter(h, time.Now())
	}
	b.shape(e, status, &r)
	return e
}

// classifyFault does the same for an error object inside a 200.
func (b *Backend) classifyFault(data []byte) *llm.Error {
	r := read(data)
	status := r.status
	if status < 400 || status > 599 {
		status = statusOf(r.kind)
	}
	e := &llm.Error{Op: "backend.Next", Upstream: status, Msg: clean(r.message), Param: r.param}
	e.Kind = b.kind(status, &r)
	b.shape(e, status, &r)
	return e
}

// shape fills in what clients see beside the kind.
func (b *Backend) shape(e *llm.Error, status int, r *report) {
	if e.Msg == "" {
		e.Msg = "the model's server answered with status " + strconv.Itoa(status)
	}
	switch e.Kind {
	case llm.Invalid:
		if status >= 400 && status < 500 {
			e.Status = status // same class, kept
		}
		e.Code = r.code
		if _, err := strconv.Atoi(e.Code); err == nil {
			e.Code = ""
		}
	case llm.TooLong:
		e.Code = "context_length_exceeded"
	}
}

func statusOf(kind string) int {
	switch kind {
	case "invalid_request_error", "BadRequestError", "exceed_context_size_error":
		return 400
	case "authentication_error", "permission_error":
		return 401
	case "not_found_error", "NotFoundError":
		return 404
	case "rate_limit_error", "rate_limit_exceeded":
		return 429
	case "overloaded_error":
		return 529
	case "unavailable_error":
		return 503
	}
	return 500
}

var (
	tooLong = regexp.MustCompile(`(?i)context[ _]length|context[ _]size|context[ _]window|maximum (context|model) length|longer than the model'?s context|prompt is too long|input (is )?too long|exceed_context|too many tokens|tokens to keep`)
	loading = regexp.MustCompile(`(?i)loading model|model is (still )?loading|model_loading|is not loaded yet`)
	quota   = regexp.MustCompile(`(?i)insufficient[ _](quota|credit|balance|funds)|credit_balance|out of credit|usage limits?\b|billing|invalid[ _]api[ _]key|incorrect api key|api key (is )?(invalid|expired|not valid)|quota exceeded|spend(ing)? limit|account`)
	ourFor5 = regexp.MustCompile(`(?i)failed to parse (tool|messages|input|grammar|json)|parse error|image input is not supported|unsupported tool type|json.?exception|invalid json|does not support (images|tools)`)
	noModel = regexp.MustCompile(`(?i)model.*(not found|does not exist|not loaded|unknown)|(not found|unknown|no such).*model|failed to load`)
	full    = regexp.MustCompile(`(?i)queue is full|overloaded|too many requests|rate.?limit|server busy|capacity`)
)

// kind decides. The order is the table of ARCHITECTURE.md: overflow before refusals of the client, money before rates.
func (b *Backend) kind(status int, r *report) llm.Kind {
	text := r.message + " " + r.kind + " " + r.code
	switch {
	case status != 429 && tooLong.MatchString(text):
		return llm.TooLong
	case status == 401 || status == 402:
		return llm.Denied
	case (status == 400 || status == 403 || status == 429) && quota.MatchString(text) && !strings.Contains(r.kind, "content"):
		return llm.Denied
	case status == 429 || status == 529:
		return llm.Busy
	case status == 503 && loading.MatchString(text):
		return llm.Loading
	case status == 503:
		return llm.Unavailable
	case status == 404 || status == 400 && noModel.MatchString(text):
		return llm.Gone
	case status >= 500 && ourFor5.MatchString(text):
		return llm.Invalid
	case status >= 500 && full.MatchString(text):
		return llm.Busy
	case status == 403 || status == 400 || status == 413 || status == 415 || status == 422:
		return llm.Invalid
	case status == 408 || status == 409 || status == 425:
		return llm.Refused
	case status >= 400 && status < 500:
		return llm.Invalid
	}
	return llm.Refused // 3xx, 5xx and what is no status at all
}

// read finds message, type and code in any of the shapes that servers use: error as object or text, flat, or none.
func read(body []byte) report {
	var r report
	s := llm.NewScanner(body, 64)
	if s.Peek() != '{' {
		return r
	}
	if err := r.object(&s, body, true); err != nil {
		return report{}
	}
	return r
}

func (r *report) object(s *llm.Scanner, body []byte, outer bool) error {
	return s.Members(func(name []byte) error {
		if outer && string(name) == "error" && s.Peek() == '{' {
			return r.object(s, body, false)
		}
		at, err := s.Value()
		if err != nil {
			return err
		}
		v := at.Of(body)
		text := string(llm.Unquote(v))
		switch string(name) {
		case "error", "message", "detail":
			if r.message == "" || !outer {
				r.message = text
			}
		case "type", "error_type":
			if r.kind == "" || !outer {
				r.kind = text
			}
		case "param":
			r.param = text
		case "code":
			r.code = text
			if n, ok := llm.Int(v); ok {
				r.status, r.code = int(n), string(v)
			} else if n, err := strconv.Atoi(text); err == nil {
				r.status = n
			}
		}
		return nil
	})
}

// retryAfter reads retry-after-ms, then Retry-After as seconds or a date (RFC 9110 §10.2.3). Zero means none, or one that
// cannot be read; a negative or past one is the smallest.
func retryAfter(h http.Header, now time.Time) time.Duration {
	const most = 24 * time.Hour
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return min(max(time.Duration(min(ms, 1e9))*time.Millisecond, time.Millisecond), most)
	}
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if sec, err := strconv.ParseFloat(v, 64); err == nil {
		if sec < 0 || sec != sec {
			return 0
		}
		return min(max(time.Duration(min(sec, 1e6)*float64(time.Second)), time.Millisecond), most)
	}
	if at, err := http.ParseTime(v); err == nil {
		return min(max(at.Sub(now), time.Millisecond), most)
	}
	return 0
}

var private = regexp.MustCompile(`(?i)(https?|wss?|tcp|unix)://[^\s"'<>]+|\b(sk|pk|key|weir)[-_][A-Za-z0-9_\-]{8,}|\bBearer\s+\S+|\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b|(^|[\s"'(=])(/[\w.\-]+){2,}`)

// clean makes an upstream's words fit for a client: one short line of printable text without keys, addresses and paths.
func clean(s string) string {
	const most = 500
	s = private.ReplaceAllStringFunc(s, func(m string) string {
		if m[0] == ' ' || m[0] == '"' || m[0] == '\'' || m[0] == '(' || m[0] == '=' {
			return m[:1] + "[removed]"
		}
		return "[removed]"
	})
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return string(bytes.TrimSpace([]byte(s)))
}
