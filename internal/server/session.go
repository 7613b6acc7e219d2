package server

import (
	"bytes"
	"strings"

	"weir/internal/llm"
)

const (
	tagHeader  = "X-Weir-Tag"
	maxTag     = 64  // bytes
	maxSession = 128 // bytes
	idDepth    = 8   // nesting of what a client hides in one of its ids
)

// sessionHeaders are where clients name their conversation; the first that does holds. They are spelt as net/http has them.
var sessionHeaders = [...]string{
	"X-Weir-Session",           // any client that wants to
	"X-Claude-Code-Session-Id", // Claude Code
	"Session-Id",               // Codex
	"X-Session-Id",             // opencode
	"X-Session-Affinity",       // opencode
}

// attribute notes which conversation the request belongs to, and the client's own label of it. Neither goes upstream.
func (x *exchange) attribute(req *llm.Request) error {
	tag, err := x.tag()
	if err != nil {
		return err
	}
	session := x.session(req)
	x.caller.Session, x.caller.Tag = session, tag
	x.rec.Session, x.rec.Tag = session, tag
	return nil
}

// tag returns the client's label, which stands in accounts as it came: so it must be short and plain.
func (x *exchange) tag() (string, error) {
	sent := x.r.Header[tagHeader]
	switch {
	case len(sent) == 0 || len(sent) == 1 && sent[0] == "":
		return "", nil
	case len(sent) == 1 && len(sent[0]) <= maxTag && strings.IndexFunc(sent[0], notOfTag) < 0:
		return sent[0], nil
	}
	e := llm.Errorf(llm.Invalid, "%s takes one label of at most %d letters, digits and . _ - : / @ +, not %q", tagHeader, maxTag, short(strings.Join(sent, ", ")))
	e.Code = "invalid_header"
	return "", e
}

func notOfTag(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	return !letter && !strings.ContainsRune("._-:/@+", r)
}

// session returns the conversation's id: as the headers name it, as the body does, else a hash of how it began. Empty
// where there is none.
func (x *exchange) session(req *llm.Request) string {
	for _, name := range sessionHeaders {
		if sent := x.r.Header[name]; len(sent) > 0 {
			if id := strings.Trim(sent[0], " \t"); id != "" {
				return fit(id)
			}
		}
	}
	if id := x.bodySession(req); len(id) > 0 {
		return fit(string(id))
	}
	return req.Session()
}

// bodySession returns the id that a body has: Claude Code's in metadata.user_id, Codex's in prompt_cache_key. It shares the
// body's bytes.
func (x *exchange) bodySession(req *llm.Request) []byte {
	if x.dialect != x.Anthropic {
		return bytes.TrimSpace(llm.Unquote(req.Value("prompt_cache_key")))
	}
	user := member(req.Value("metadata"), "user_id")
	if len(user) > 0 && user[0] == '{' {
		return bytes.TrimSpace(member(user, "session_id"))
	}
	_, id, _ := bytes.Cut(user, []byte("_session_")) // as older versions wrote it
	return id
}

// member returns the text of an object's member; nil where there is no such thing, or where v is no object.
func member(v []byte, name string) (text []byte) {
	if len(v) == 0 || v[0] != '{' {
		return nil
	}
	s := llm.NewScanner(v, idDepth)
	err := s.Members(func(n []byte) error {
		at, err := s.Value()
		if err == nil && string(n) == name {
			text = llm.Unquote(at.Of(v))
		}
		return err
	})
	if err != nil {
		return nil
	}
	return text
}

// fit returns an id that is fit for logs and accounts: as it came where it is short and printable, else a hash of it.
func fit(id string) string {
	if len(id) <= maxSession && strings.IndexFunc(id, unprintable) < 0 {
		return id
	}
	return llm.NameOf([]byte(id))
}

func unprintable(r rune) bool { return r < ' ' || r > '~' }
