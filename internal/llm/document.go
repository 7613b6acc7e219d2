package llm

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"
)

// Unreadable says what is wrong with a request's body that a Scanner or Names refused; path is the member at fault, empty
// for none. An error that is an *Error already is returned as it is.
func Unreadable(err error, path string) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if IsDuplicate(err) {
		e := Errorf(Invalid, "%q stands twice (names that differ only in case count as the same); servers disagree which one they read, so send it once", path)
		e.Param = path
		return e
	}
	e := Errorf(Invalid, "the body is not valid JSON: %v", err)
	e.Param, e.Code, e.Err = path, "invalid_json", err
	return e
}

// Misspelt refuses a member that differs in case only from one of those that a dialect reads, refuses or sets: servers in
// Go would read it, others would not, and what Weir reads must be what the server reads (S17).
func Misspelt(name []byte, read []string) error {
	if !bytes.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf || 'A' <= r && r <= 'Z' }) {
		return nil
	}
	for _, w := range read {
		if strings.EqualFold(w, string(name)) {
			e := Errorf(Invalid, "%q is not a member that servers agree on; write it %s", Brief(name), w)
			e.Param = Brief(name)
			return e
		}
	}
	return nil
}

// Brief cuts a client's text for a message.
func Brief[T ~string | ~[]byte](s T) string {
	const most = 64
	t := string(s)
	if len(t) > most {
		n := most
		for n > 0 && !utf8.RuneStart(t[n]) {
			n--
		}
		t = t[:n] + "…"
	}
	return strings.ToValidUTF8(t, "�")
}
