package llm

import "bytes"

// AppendEscaped appends the inside of the JSON string that spells s: AppendQuoted without the quotes.
func AppendEscaped[T ~string | ~[]byte](dst []byte, s T) []byte {
	n := len(dst)
	dst = AppendQuoted(dst, s)
	return append(dst[:n], dst[n+1:len(dst)-1]...)
}

// Escaped returns s as a Text.
func Escaped[T ~string | ~[]byte](s T) Text { return AppendEscaped(nil, s) }

// Unescaped returns the text that t spells. Without escapes it shares t's bytes.
func Unescaped(t Text) []byte {
	if bytes.IndexByte(t, '\\') < 0 {
		return t
	}
	quoted := make([]byte, 0, len(t)+2)
	return Unquote(append(append(append(quoted, '"'), t...), '"'))
}

// Inside returns the inside of a raw JSON string, nil where raw is none.
func Inside(raw []byte) Text {
	if len(raw) < 2 || raw[0] != '"' {
		return nil
	}
	return Text(raw[1 : len(raw)-1])
}

// IsObject reports whether v is one well-formed JSON object and nothing else.
func IsObject(v []byte) bool {
	s := NewScanner(v, 1<<10)
	if s.Peek() != '{' {
		return false
	}
	_, err := s.Value()
	return err == nil && s.End() == nil
}

// IsJSON reports whether v is one well-formed JSON value and nothing else.
func IsJSON(v []byte) bool {
	s := NewScanner(v, 1<<10)
	_, err := s.Value()
	return err == nil && s.End() == nil
}

func trim(v []byte) []byte { return bytes.TrimSpace(v) }

// Balance follows pieces of the inside of a JSON string that spells a JSON object, and knows when the object is whole.
// The zero value is ready.
type Balance struct {
	depth  int
	begun  bool
	quoted bool // inside a string of the object
	next   bool // the next unit of that string is escaped
	half   bool // the last piece ended between a backslash and what it escapes
}

// Add takes the next piece.
func (b *Balance) Add(piece Text) {
	for _, c := range piece {
		if b.half {
			b.half = false
			if c == 'u' || c == 'n' || c == 't' || c == 'r' || c == 'b' || c == 'f' {
				b.next = false // a spelt character that is neither quote nor bracket
				continue
			}
		} else if c == '\\' {
			b.half = true
			continue
		}
		b.unit(c)
	}
}

func (b *Balance) unit(c byte) {
	switch {
	case b.next:
		b.next = false
	case b.quoted:
		b.next = c == '\\'
		b.quoted = c != '"'
	case c == '"':
		b.quoted = true
	case c == '{' || c == '[':
		b.depth++
		b.begun = true
	case c == '}' || c == ']':
		b.depth--
	}
}

// Whole reports whether an object has begun and ended.
func (b *Balance) Whole() bool { return b.begun && b.depth <= 0 && !b.quoted }
