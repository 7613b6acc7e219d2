// Package responses speaks OpenAI's Responses API in every direction: it reads requests and writes them, follows streams
// and mends them, turns answers into deltas and deltas into answers, and knows what a later request continues from.
package responses

import (
	"bytes"
	"crypto/rand"
	"strings"

	"weir/internal/llm"
)

// Dialect is the responses dialect. Its zero value is ready and safe for concurrent use.
type Dialect struct{}

var _ llm.Dialect = Dialect{}

// dialect is the name of the dialect.
const dialect = "responses"

// maxDepth bounds the nesting of what upstreams send.
const maxDepth = 512

// anyDepth is for walking again what was walked before with a bound.
const anyDepth = 1 << 20

// Name returns "responses".
func (Dialect) Name() string { return dialect }

// Path returns the path of an operation under a base URL without /v1.
func (Dialect) Path(op llm.Op) string {
	if op == llm.Count {
		return "/v1/responses/input_tokens"
	}
	return "/v1/responses"
}

func invalid(param, format string, args ...any) *llm.Error {
	e := llm.Errorf(llm.Invalid, format, args...)
	e.Param = param
	return e
}

func isNull(v []byte) bool { return string(v) == "null" }

// isBlank reports a raw value that says nothing: absent, null or "".
func isBlank(v []byte) bool { return len(v) == 0 || isNull(v) || string(v) == `""` }

// given returns v, or nil where it is null.
func given(v []byte) []byte {
	if isNull(v) {
		return nil
	}
	return v
}

// newID makes an id that no other answer has.
func newID(prefix string) llm.Text { return llm.Text(prefix + rand.Text()) }

// isPath reports whether a served model's name is a file of the backend's machine.
func isPath(t llm.Text) bool {
	s := string(llm.Unescaped(t))
	return strings.HasPrefix(s, "/") || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "~") ||
		strings.Contains(s, `\`) || strings.HasSuffix(s, ".gguf") && strings.Contains(s, "/")
}

// member returns the raw value of a member of the object v, nil where v is none or has no such member or it is null.
func member(v []byte, want string) (found []byte) {
	s := llm.NewScanner(v, anyDepth)
	if s.Peek() != '{' {
		return nil
	}
	_ = s.Members(func(name []byte) error {
		at, err := s.Value()
		if err == nil && string(name) == want {
			found = given(at.Of(v))
		}
		return err
	})
	return found
}

// elements calls f with each element of the array v; nothing where v is none.
func elements(v []byte, f func(i int, v []byte)) {
	s := llm.NewScanner(v, anyDepth)
	if s.Peek() != '[' {
		return
	}
	_ = s.Elements(func(i int) error {
		at, err := s.Value()
		if err == nil {
			f(i, at.Of(v))
		}
		return err
	})
}

// count returns a token count, -1 when it cannot be one.
func count(v []byte) int64 {
	const most = 1 << 40
	n, ok := llm.Int(v)
	if !ok || n < 0 || n > most {
		return -1
	}
	return n
}

// usageOf reads a usage object. What is absent, negative or absurd is unknown.
func usageOf(raw []byte) llm.Usage {
	u := llm.NoUsage
	s := llm.NewScanner(raw, 64)
	if s.Peek() != '{' {
		return u
	}
	_ = s.Members(func(name []byte) error {
		at, err := s.Value()
		if err != nil {
			return err
		}
		v := at.Of(raw)
		switch string(name) {
		case "input_tokens":
			u.In = count(v)
		case "output_tokens":
			u.Out = count(v)
		case "input_tokens_details":
			u.Cached, u.Written = count(member(v, "cached_tokens")), count(member(v, "cache_write_tokens"))
		case "output_tokens_details":
			u.Reasoning = count(member(v, "reasoning_tokens"))
		}
		return nil
	})
	return u
}

// oneLine makes the line feeds between the tokens of a JSON text spaces, so that it is one data line.
func oneLine(b []byte) {
	if bytes.IndexByte(b, '\n') < 0 && bytes.IndexByte(b, '\r') < 0 {
		return
	}
	for i, c := range b {
		if c == '\n' || c == '\r' {
			b[i] = ' '
		}
	}
}
