package llm

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Faults of a JSON text. Scanner methods return them wrapped in a SyntaxError.
var (
	errEnd       = errors.New("the text ends too early")
	errString    = errors.New("a string is not well formed (escape, control character or UTF-8)")
	errNumber    = errors.New("a number is not well formed")
	errLiteral   = errors.New("expected a value")
	errDepth     = errors.New("the text is nested too deeply")
	errTrailing  = errors.New("more text follows the value")
	errColon     = errors.New("expected a colon after the member's name")
	errComma     = errors.New("expected a comma or the closing bracket")
	errName      = errors.New("expected a member's name in quotes")
	errDuplicate = errors.New("the member stands twice")
)

// SyntaxError is a fault of a JSON text and its place.
type SyntaxError struct {
	Offset int
	Err    error
}

// Error says what is wrong and at which byte.
func (e *SyntaxError) Error() string { return fmt.Sprintf("%v at byte %d", e.Err, e.Offset) }

// Unwrap returns the fault.
func (e *SyntaxError) Unwrap() error { return e.Err }

// IsDuplicate reports whether err is a member that stands twice.
func IsDuplicate(err error) bool { return errors.Is(err, errDuplicate) }

// Scanner walks one JSON text strictly, once and without copying: structure, escapes, UTF-8, numbers and depth are
// checked of everything it passes (RFC 8259). It is a value: take it, use it on one goroutine, drop it.
type Scanner struct {
	b     []byte
	i     int
	depth int
	max   int
	name  int // place of the last member's name
	notes *[]Span
	known []Span // the long strings from here on, of a text that was scanned before
}

// longString is from what size on it is worth knowing where a string ends.
const longString = 128

// Note makes the scanner append the places of long strings to list, for Again.
func (s *Scanner) Note(list *[]Span) { s.notes = list }

// Again returns a scanner over a piece of a text that was scanned whole before, with the long strings that were noted
// then: they are passed without a look. Its offsets are places in the whole text.
func Again(text []byte, at Span, long []Span) Scanner {
	i, _ := slices.BinarySearchFunc(long, at.From, func(p Span, from int) int { return cmp.Compare(p.From, from) })
	return Scanner{b: text[:at.To:at.To], i: at.From, max: 1 << 20, known: long[i:]}
}

// NewScanner returns a scanner over b that refuses nesting deeper than maxDepth.
func NewScanner(b []byte, maxDepth int) Scanner {
	s := Scanner{b: b, max: maxDepth}
	s.space()
	return s
}

// Offset returns the place of the next byte.
func (s *Scanner) Offset() int { return s.i }

// Peek returns the next byte without passing it, or 0 at the end.
func (s *Scanner) Peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

func (s *Scanner) fault(err error) error {
	if s.i >= len(s.b) {
		err = errEnd
	}
	return &SyntaxError{Offset: s.i, Err: err}
}

func (s *Scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\n', '\t', '\r':
			s.i++
		default:
			return
		}
	}
}

// End checks that nothing but white space follows.
func (s *Scanner) End() error {
	s.space()
	if s.i != len(s.b) {
		return &SyntaxError{Offset: s.i, Err: errTrailing}
	}
	return nil
}

// Open passes the opening bracket c, '{' or '['. It reports whether the value is not empty; an empty one is passed whole.
func (s *Scanner) Open(c byte) (bool, error) {
	if s.i >= len(s.b) || s.b[s.i] != c {
		return false, s.fault(errLiteral)
	}
	if s.depth++; s.depth > s.max {
		return false, &SyntaxError{Offset: s.i, Err: errDepth}
	}
	s.i++
	s.space()
	if s.i < len(s.b) && s.b[s.i] == c+2 { // ']' and '}' stand two after their opening bracket
		s.i++
		s.depth--
		return false, nil
	}
	return true, nil
}

// More passes the comma or the bracket after a value of the object or array that c opened, and reports whether
// another value follows.
func (s *Scanner) More(c byte) (bool, error) {
	s.space()
	if s.i >= len(s.b) {
		return false, s.fault(errEnd)
	}
	switch s.b[s.i] {
	case ',':
		s.i++
		s.space()
		return true, nil
	case c + 2:
		s.i++
		s.depth--
		return false, nil
	}
	return false, s.fault(errComma)
}

// NameAt returns the place of the quote before the name that Name passed last.
func (s *Scanner) NameAt() int { return s.name }

// Name passes a member's name and its colon and returns the name without quotes. A name with escapes is unescaped.
func (s *Scanner) Name() ([]byte, error) {
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		return nil, s.fault(errName)
	}
	e := SkipString(s.b, s.i+1)
	if e < 0 {
		return nil, s.fault(errString)
	}
	s.name = s.i
	name := s.b[s.i+1 : e-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		name = Unquote(s.b[s.i:e])
	}
	s.i = e
	s.space()
	if s.i >= len(s.b) || s.b[s.i] != ':' {
		return nil, s.fault(errColon)
	}
	s.i++
	s.space()
	return name, nil
}

// Value passes any value and returns its bytes.
func (s *Scanner) Value() (Span, error) {
	from := s.i
	if err := s.skip(); err != nil {
		return Span{}, err
	}
	return Span{from, s.i}, nil
}

// Span is a piece of a text: the bytes from From up to To.
type Span struct{ From, To int }

// Of returns the piece of b.
func (p Span) Of(b []byte) []byte { return b[p.From:p.To] }

// IsZero reports whether the span was never set.
func (p Span) IsZero() bool { return p.To == 0 }

// skip passes one value. It is iterative: nesting costs a bit each, not a stack frame.
func (s *Scanner) skip() error {
	var stack [8]uint64 // bit per level: 1 for an object; levels over 512 go to the slow list
	var deep []bool
	level := 0
	for {
		if s.i >= len(s.b) {
			return s.fault(errEnd)
		}
		opened := false
		switch c := s.b[s.i]; c {
		case '"':
			if err := s.text(); err != nil {
				return err
			}
		case '{', '[':
			if s.depth+level+1 > s.max {
				return &SyntaxError{Offset: s.i, Err: errDepth}
			}
			s.i++
			s.space()
			if s.i < len(s.b) && s.b[s.i] == c+2 {
				s.i++
				break
			}
			if level < 512 {
				if c == '{' {
					stack[level>>6] |= 1 << (level & 63)
				} else {
					stack[level>>6] &^= 1 << (level & 63)
				}
			} else {
				deep = append(deep[:level-512], c == '{')
			}
			level++
			opened = true
		default:
			if err := s.scalar(c); err != nil {
				return err
			}
		}
		for {
			object := level > 0 && (level <= 512 && stack[(level-1)>>6]>>((level-1)&63)&1 == 1 || level > 512 && deep[level-513])
			if !opened {
				if level == 0 {
					return nil
				}
				s.space()
				if s.i >= len(s.b) {
					return s.fault(errEnd)
				}
				end := byte(']')
				if object {
					end = '}'
				}
				if s.b[s.i] == end {
					s.i++
					level--
					continue
				}
				if s.b[s.i] != ',' {
					return s.fault(errComma)
				}
				s.i++
				s.space()
			}
			if object {
				if err := s.member(); err != nil {
					return err
				}
			}
			break
		}
	}
}

// text passes a string.
func (s *Scanner) text() error {
	for len(s.known) > 0 && s.known[0].From < s.i {
		s.known = s.known[1:]
	}
	if len(s.known) > 0 && s.known[0].From == s.i {
		s.i = s.known[0].To
		return nil
	}
	e := SkipString(s.b, s.i+1)
	if e < 0 {
		return s.fault(errString)
	}
	if s.notes != nil && e-s.i >= longString {
		*s.notes = append(*s.notes, Span{s.i, e})
	}
	s.i = e
	return nil
}

// member passes a name and its colon without looking at it.
func (s *Scanner) member() error {
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		return s.fault(errName)
	}
	e := SkipString(s.b, s.i+1)
	if e < 0 {
		return s.fault(errString)
	}
	s.i = e
	s.space()
	if s.i >= len(s.b) || s.b[s.i] != ':' {
		return s.fault(errColon)
	}
	s.i++
	s.space()
	return nil
}

func (s *Scanner) scalar(c byte) error {
	switch c {
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	}
	if c == '-' || '0' <= c && c <= '9' {
		e := skipNumber(s.b, s.i)
		if e < 0 {
			return s.fault(errNumber)
		}
		s.i = e
		return nil
	}
	return s.fault(errLiteral)
}

func (s *Scanner) literal(w string) error {
	if len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		return s.fault(errLiteral)
	}
	s.i += len(w)
	return nil
}

// skipNumber returns the index after the number at i, or -1.
func skipNumber(b []byte, i int) int {
	digits := func() bool {
		from := i
		for i < len(b) && '0' <= b[i] && b[i] <= '9' {
			i++
		}
		return i > from
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		i++
		if !digits() {
			return -1
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return -1
		}
	}
	return i
}

// escape returns the length of the escape at the start of b, or 0 when it is none.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 {
			return 0
		}
		for _, c := range b[2:6] {
			if hex(c) < 0 {
				return 0
			}
		}
		return 6
	}
	return 0
}

func hex(c byte) rune {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return rune(c|0x20-'a') + 10
	}
	return -1
}
