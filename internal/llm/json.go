package llm

import (
	"bytes"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Unquote returns the text of a well-formed JSON string, quotes included in raw. Without escapes it shares raw's bytes.
// A lone surrogate becomes U+FFFD.
func Unquote(raw []byte) []byte {
	if len(raw) < 2 || raw[0] != '"' {
		return nil
	}
	raw = raw[1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		c := raw[i]
		if c != '\\' || i+1 >= len(raw) {
			out = append(out, c)
			i++
			continue
		}
		i++
		switch raw[i] {
		case 'u':
			r := unit(raw[i-1:])
			i += 5
			if utf16.IsSurrogate(r) {
				if lo := unit(raw[min(i, len(raw)):]); lo >= 0 {
					if full := utf16.DecodeRune(r, lo); full != utf8.RuneError {
						out = utf8.AppendRune(out, full)
						i += 6
						continue
					}
				}
				r = utf8.RuneError
			}
			out = utf8.AppendRune(out, r)
			continue
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		default:
			out = append(out, raw[i])
		}
		i++
	}
	return out
}

// unit returns the UTF-16 unit of a \uXXXX escape at the start of b, or -1.
func unit(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range b[2:6] {
		h := hex(c)
		if h < 0 {
			return -1
		}
		r = r<<4 | h
	}
	return r
}

// AppendQuoted appends s as a JSON string. Bytes that are not UTF-8 become U+FFFD, and the line separators U+2028 and
// U+2029 are escaped, so that the result is safe in any line of text.
func AppendQuoted[T ~string | ~[]byte](dst []byte, s T) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= 0x20 && c < utf8.RuneSelf && c != 0x7f:
			dst = append(dst, c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c < utf8.RuneSelf:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			r, n := utf8.DecodeRuneInString(string(s[i:min(len(s), i+utf8.UTFMax)]))
			if r == 0x2028 || r == 0x2029 {
				dst = append(dst, '\\', 'u', '2', '0', '2', digits[r&15])
			} else {
				dst = utf8.AppendRune(dst, r)
			}
			i += n
			continue
		}
		i++
	}
	return append(dst, '"')
}

// Int returns the whole number that raw spells, and false when it is none, or too large.
func Int(raw []byte) (int64, bool) {
	neg := false
	if len(raw) > 0 && raw[0] == '-' {
		neg, raw = true, raw[1:]
	}
	if len(raw) == 0 || len(raw) > 18 {
		return 0, false
	}
	var n int64
	for _, c := range raw {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if neg {
		n = -n
	}
	return n, true
}

// Members calls f with each member of the object at the start of s. f must pass the value, with Value or by walking it.
// The name is valid until the next call.
func (s *Scanner) Members(f func(name []byte) error) error {
	more, err := s.Open('{')
	for ; more && err == nil; more, err = s.More('{') {
		name, err := s.Name()
		if err != nil {
			return err
		}
		if err := f(name); err != nil {
			return err
		}
	}
	return err
}

// Elements calls f with the index of each element of the array at the start of s. f must pass the element.
func (s *Scanner) Elements(f func(i int) error) error {
	more, err := s.Open('[')
	for i := 0; more && err == nil; i++ {
		if err := f(i); err != nil {
			return err
		}
		more, err = s.More('[')
	}
	return err
}

// Names remembers the names of one object's members and finds one that stands twice. Names that differ only in case
// count as the same: some servers match them so (Go's encoding/json does), others do not, and both must see one value.
type Names struct {
	list [24][]byte
	n    int
	more map[string]bool
}

// Add remembers name and returns a fault when it was there before.
func (n *Names) Add(s *Scanner, name []byte) error {
	for _, old := range n.list[:n.n] {
		if bytes.EqualFold(old, name) {
			return &SyntaxError{Offset: s.i, Err: errDuplicate}
		}
	}
	if n.n < len(n.list) {
		n.list[n.n] = name
		n.n++
		return nil
	}
	if n.more == nil {
		n.more = map[string]bool{}
	}
	key := string(bytes.Map(fold, name))
	if n.more[key] {
		return &SyntaxError{Offset: s.i, Err: errDuplicate}
	}
	n.more[key] = true
	return nil
}

// fold returns one and the same letter for all that differ from it in case only, as bytes.EqualFold sees it. Lower case is
// not enough: U+017F is another s, and U+212A another k.
func fold(r rune) rune {
	least := r
	for o := unicode.SimpleFold(r); o != r; o = unicode.SimpleFold(o) {
		least = min(least, o)
	}
	return least
}

// Edit replaces the bytes of At by With. An empty span inserts.
type Edit struct {
	At   Span
	With []byte
}

// Splice appends body with the edits applied to dst. The edits must be sorted and must not overlap.
func Splice(dst, body []byte, edits []Edit) []byte { return splice(dst, body, 0, len(body), edits) }
