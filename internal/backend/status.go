package backend

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"weir/internal/llm"
)

// report is what an upstream's error body says, in whatever shape.
type report struct {
	message, kind, code, param string
	status                     int    // a status named inside the body
	prompt, window             int    // tokens, where the body has them as members
	members                    string // names of the body's members, for a shape that is not known
}

// classify turns a status and a body into an error with a kind. A client's fault never becomes the backend's, and the
// other way round: statuses lie, so type and message are read first.
func (b *Backend) classify(status int, h Header, body []byte) error {
	r := read(body)
	e := &llm.Error{Op: "backend.Call", Upstream: status, Msg: b.hide(r.message), Param: b.hide(r.param)}
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
		if status = statusOf(r.kind); status == 500 {
			status = statusOf(r.code)
		}
	}
	e := &llm.Error{Op: "backend.Next", Upstream: status, Msg: b.hide(r.message), Param: b.hide(r.param)}
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
		e.Code = b.hide(r.code)
		if _, err := strconv.Atoi(e.Code); err == nil {
			e.Code = ""
		}
	case llm.TooLong:
		e.Code = "context_length_exceeded"
		e.Prompt, e.Window = r.tokens()
	}
	if r.message == "" && r.members != "" {
		// Names alone, never values: those may be the client's words.
		e.Err = fmt.Errorf("an error of an unknown shape: status %d, members %s", status, r.members)
	}
}

// lazily compiles an expression at its first use: most runs of Weir never see an error of most kinds, and what is compiled
// at start stays in memory.
func lazily(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// How servers tell the numbers of an overflow: vLLM, SGLang, Anthropic, llama.cpp, LM Studio.
var (
	windowIs = lazily(`(?i)(?:context[ _](?:length|size|window)|maximum(?: model| context)? length|maximum)(?: is| of|\s*\(|:)?\s*(\d{3,9})|(\d{3,9})(?: tokens)? maximum`)
	promptIs = lazily(`(?i)(?:requested|request\s*\(|input\s*\(|prompt is too long:)\s*(\d{1,9})`)
)

// tokens returns how long the prompt was and what there is room for, 0 where the upstream does not say.
func (r *report) tokens() (prompt, window int) {
	prompt, window = r.prompt, r.window
	if window == 0 {
		if m := windowIs().FindStringSubmatch(r.message); m != nil {
			window, _ = strconv.Atoi(m[1] + m[2])
		}
	}
	if prompt == 0 {
		if m := promptIs().FindStringSubmatch(r.message); m != nil {
			prompt, _ = strconv.Atoi(m[1])
		}
	}
	return prompt, window
}

func statusOf(kind string) int {
	switch kind {
	case "invalid_request_error", "BadRequestError", "exceed_context_size_error", "validation":
		return 400
	case "authentication_error", "permission_error", "invalid_api_key":
		return 401
	case "insufficient_quota", "credit_balance_exhausted", "billing_error":
		return 402
	case "not_found_error", "NotFoundError", "model_not_found":
		return 404
	case "request_too_large":
		return 413
	case "timeout_error":
		return 504
	case "rate_limit_error", "rate_limit_exceeded", "overloaded":
		return 429
	case "overloaded_error":
		return 529
	case "unavailable_error":
		return 503
	}
	return 500
}

// What upstreams say. Their words may quote the client's (a tool's name, a piece of the prompt), and a client must not be
// able to take a backend or an account out by them: so a 400 counts as denied only by its type, its code, or how its
// message begins.
var (
	tooLong = lazily(`(?i)context[ _]length|context[ _]size|context[ _]window|maximum (context|model) length|longer than the model'?s context|prompt is too long|prompt too long|input (is )?too long|exceed_context|too many tokens|tokens to keep|too large to process`)
	loading = lazily(`(?i)loading model|model is (still )?loading|model_loading|is not loaded yet`)
	quota   = lazily(`(?i)insufficient[ _](quota|credits?|balance|funds)|credit[ _]balance|out of credits?|usage limit|billing|invalid[ _]api[ _]?key|incorrect api key|api[ _]key[ _](is )?(invalid|expired|not[ _]valid)|(exceeded|over) your (current )?quota|quota[ _](is )?exceeded|spend(ing)? limit|account[ _](is )?(not active|deactivated|suspended|disabled)|authentication_error|permission_error`)
	opening = lazily(`(?i)^\W*(your (account|credit balance|api key)|(invalid|incorrect) api[ _]key|api key (is )?(not valid|invalid|expired)|insufficient (quota|credits?|balance|funds)|you (have )?exceeded your current quota|you have reached your (specified )?(api )?usage limits?|billing)`)
	prompt  = lazily(`(?i)moderat|flagged|content|policy|safety|guardrail|prompt`)
	theirs  = lazily(`(?i)failed to parse (tool|messages|grammar|json)|parse error|image input is not supported|unsupported tool type|json.?exception|invalid json|does not support (images|tools)`)
	noModel = lazily(`(?i)\bmodels? (\S+ )?(is |was )?(not found|does not exist|not loaded)|\b(unknown|no such|invalid) model\b|model_not_found|not a valid model|no models? (is |are )?loaded`)
	noLoad  = lazily(`(?i)model\b.*failed to load|failed to load (the )?model`)
	full    = lazily(`(?i)queue is full|overloaded|too many requests|rate.?limit|server busy|(at|over|no|exceeds?) capacity`)
)

// kind decides. The order is the table of ARCHITECTURE.md: overflow before refusals of the client, money before rates.
func (b *Backend) kind(status int, r *report) llm.Kind {
	text := r.message + " " + r.kind + " " + r.code
	switch {
	case status != 429 && status != 401 && tooLong().MatchString(text):
		return llm.TooLong
	case status == 401 || status == 402 || status == 407:
		return llm.Denied
	case status == 400 && (quota().MatchString(r.kind+" "+r.code) || opening().MatchString(r.message)):
		return llm.Denied
	case status == 403 && (quota().MatchString(text) || !prompt().MatchString(text)):
		return llm.Denied
	case status == 429 && quota().MatchString(text):
		return llm.Denied
	case status == 429 || status == 529:
		return llm.Busy
	case status == 503 && loading().MatchString(text):
		return llm.Loading
	case status == 503:
		return llm.Unavailable
	case status == 404 || status == 405 || status == 400 && noModel().MatchString(text) || status == 500 && noLoad().MatchString(text):
		return llm.Gone
	case status >= 500 && (theirs().MatchString(text) || unread().MatchString(text)):
		return llm.Invalid
	case status == 501: // an operation that this server was not started for
		return llm.Invalid
	case status >= 500 && full().MatchString(text):
		return llm.Busy
	case status == 408 || status == 409 || status == 424 || status == 425 || status == 499: // of the server's own making
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
		if outer && string(name) == "response" && s.Peek() == '{' { // the end of a Responses stream that failed
			return r.response(s, body)
		}
		at, err := s.Value()
		if err != nil {
			return err
		}
		v := at.Of(body)
		text := string(llm.Unquote(v))
		if outer && len(r.members) < 100 {
			r.members = strings.TrimPrefix(r.members+","+clean(string(name)), ",")
		}
		switch string(name) {
		case "error", "message", "detail":
			if v[0] == '[' {
				text = firstFault(v)
			}
			if r.message == "" || !outer || string(name) == "message" && text != "" {
				r.message = text
			}
		case "type", "error_type":
			if r.kind == "" || !outer {
				r.kind = text
			}
		case "param":
			r.param = text
		case "n_prompt_tokens":
			r.prompt = small(v)
		case "n_ctx":
			r.window = small(v)
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

// response reads the error of a response object.
func (r *report) response(s *llm.Scanner, body []byte) error {
	return s.Members(func(name []byte) error {
		if string(name) == "error" && s.Peek() == '{' {
			return r.object(s, body, false)
		}
		_, err := s.Value()
		return err
	})
}

// small returns a number of tokens, 0 when it cannot be one.
func small(v []byte) int {
	if n, ok := llm.Int(v); ok && n > 0 && n < 1<<30 {
		return int(n)
	}
	return 0
}

// firstFault returns the message of the first entry of FastAPI's list of faults.
func firstFault(v []byte) (msg string) {
	s := llm.NewScanner(v, 64)
	_ = s.Elements(func(i int) error { // walked before: it cannot fail
		if i > 0 || s.Peek() != '{' {
			_, err := s.Value()
			return err
		}
		return s.Members(func(name []byte) error {
			at, err := s.Value()
			if err == nil && string(name) == "msg" {
				msg = string(llm.Unquote(at.Of(v)))
			}
			return err
		})
	})
	return msg
}

// retryAfter reads retry-after-ms, then Retry-After as seconds or a date (RFC 9110 §10.2.3). Zero means none, or one that
// makes no sense, negative ones included; a past date, or 0, is the smallest (C084).
func retryAfter(h Header, now time.Time) time.Duration {
	if d, ok := hint(h.Get("Retry-After-Ms"), time.Millisecond); ok {
		return d
	}
	v := strings.TrimSpace(h.Get("Retry-After"))
	if d, ok := hint(v, time.Second); ok {
		return d
	}
	if at, err := http.ParseTime(v); err == nil {
		return bounded(at.Sub(now))
	}
	return 0
}

// hint reads a number of units.
func hint(v string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || !(n >= 0) { // not a number is not at least 0 either
		return 0, false
	}
	return bounded(time.Duration(min(n, 1e9) * float64(unit))), true
}

func bounded(d time.Duration) time.Duration { return min(max(d, time.Millisecond), 24*time.Hour) }

// private is what no client may see: addresses, keys, hosts and paths of this side.
var private = lazily("(?i)" + strings.Join([]string{
	`(https?|wss?|tcp|unix|file)://[^\s"'<>]+`,
	`\b(sk|pk|rk|key|weir|gsk|hf|xai|nvapi|ghp)[-_][A-Za-z0-9_\-]{8,}`,
	`\bAIza[A-Za-z0-9_\-]{20,}`,
	`\bBearer\s+\S+`,
	`\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b`,
	`\[[0-9a-f]*:[0-9a-f:.]*\](:\d+)?`,
	`\blocalhost(:\d+)?\b`,
	`\b[a-z0-9-]+(\.[a-z0-9-]+)+:\d{2,5}\b`,
	`\b[a-z0-9-]+(\.[a-z0-9-]+)*\.(internal|local|lan|corp|svc|home|intranet|localdomain)\b(:\d+)?`,
	`\b[a-z]:\\[^\s"'<>]+`,
	"(?P<before>^|[\\s\"'`(=:,<\\[])~?(/[\\w.\\-]+){2,}",
}, "|"))

// hide is clean for an upstream that may quote what it was sent or is: its key, whatever that looks like, and its host.
func (b *Backend) hide(s string) string {
	const least = 8 // a shorter key, or a host of one word, may be any word
	if b.Key != nil {
		if key, err := b.Key(); err == nil && len(key) >= least {
			s = strings.ReplaceAll(s, key, "[removed]")
		}
	}
	if u, err := url.Parse(b.URL); err == nil && strings.Contains(u.Hostname(), ".") {
		s = strings.ReplaceAll(s, u.Hostname(), "[removed]")
	}
	return clean(s)
}

// clean makes an upstream's words fit for a client: one short line of printable text without keys, addresses and paths.
func clean(s string) string {
	const most = 500
	s = strings.Map(func(r rune) rune { // first: what is not printed could hide the rest
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s[:min(len(s), maxFault)])
	s = private().ReplaceAllString(s, "${before}[removed]")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strings.TrimSpace(s)
}
