package llm

import (
	"bytes"
	"hash/crc32"
	"math/bits"
)

// Session returns a name of the conversation that the request is a turn of, "h-" and 16 hex digits: a hash of the system's
// text and of the first user's turn, and so the same for each of its turns, however many messages follow. Empty where there
// is no user's turn, as in embeddings. The three APIs differ in where the system's text stands; here all places count.
//
// It costs the way to the first user's turn, over which long strings are passed without a look, and the hash of at most
// 32 KiB of each text. What changes from turn to turn is left out: marks for the vendor's cache, and the attribution line of
// Claude Code. It must be called before Release.
func (r *Request) Session() string {
	if r.MessagesAt.IsZero() {
		return ""
	}
	var f fingerprint
	for _, name := range [...]string{"system", "instructions"} {
		if m, ok := r.Member(name); ok {
			f.content(r, m.Value, true)
		}
	}
	if !f.opening(r) {
		return ""
	}
	return f.name()
}

// NameOf returns a name for a text that cannot stand for itself, of the form that Session has.
func NameOf(text []byte) string {
	var f fingerprint
	f.add(text)
	return f.name()
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fingerprint is two hashes of 32 bits, both of which processors have instructions for: b of all that counts, a, which is
// half as fast, of both ends of it. It tells conversations apart, and protects nothing.
type fingerprint struct{ a, b uint32 }

const (
	fullHead  = 24 << 10 // bytes of a longer text that b takes at its start, and at its end
	fullTail  = 8 << 10
	shortEnd  = 3 << 10 // that a takes at either end
	mostParts = 64      // of a content, and messages before the first of a user: what is beyond them is not looked at
)

// add takes a text, with its end.
func (f *fingerprint) add(text []byte) {
	head, tail := ends(text, shortEnd, shortEnd)
	f.a = crc32.Update(crc32.Update(f.a, crc32.IEEETable, head), crc32.IEEETable, tail)
	head, tail = ends(text, fullHead, fullTail)
	f.b = crc32.Update(crc32.Update(f.b, castagnoli, head), castagnoli, tail)
	f.mark(uint32(len(text)))
}

// ends returns the first and last bytes of a text that has more than both, else all of it.
func ends(text []byte, head, tail int) (first, last []byte) {
	if len(text) <= head+tail {
		return text, nil
	}
	return text[:head], text[len(text)-tail:]
}

// mark takes a number, so that where one text ends and the next begins tells too.
func (f *fingerprint) mark(n uint32) {
	const odd = 0x9e3779b1
	f.a = bits.RotateLeft32(f.a^n, 7) * odd
	f.b = bits.RotateLeft32(f.b^n, 11) * odd
}

func (f *fingerprint) name() string {
	const digits = "0123456789abcdef"
	var out [18]byte
	out[0], out[1] = 'h', '-'
	n := uint64(f.a)<<32 | uint64(f.b)
	for i := len(out) - 1; i >= 2; i-- {
		out[i] = digits[n&15]
		n >>= 4
	}
	return string(out[:])
}

// opening takes the system's messages up to the first one of a user, and that one. It reports whether there is one.
func (f *fingerprint) opening(r *Request) bool {
	if at := r.MessagesAt; r.Body[at.From] == '"' { // of a Responses request: all of it is the user's
		f.content(r, at, false)
		return true
	}
	s := r.Again(r.MessagesAt)
	more, err := s.Open('[')
	for i := 0; more && err == nil && i < mostParts; i++ {
		var role, content Span
		if err = s.Members(func(name []byte) error {
			at, err := s.Value()
			switch string(name) {
			case "role":
				role = at
			case "content":
				content = at
			}
			return err
		}); err != nil {
			return false
		}
		switch string(role.Of(r.Body)) {
		case `"user"`:
			f.content(r, content, false)
			return true
		case `"system"`, `"developer"`:
			f.content(r, content, true)
		}
		more, err = s.More('[')
	}
	return false
}

// content takes the texts of a string or of a list of parts. Of a part all counts but its type, so that a text is the same
// in either form, and its mark for the cache.
func (f *fingerprint) content(r *Request, at Span, system bool) {
	f.mark(uint32(len("content")))
	switch v := at.Of(r.Body); {
	case len(v) == 0:
	case v[0] == '"':
		f.text(v, system)
	case v[0] == '[':
		s := r.Again(at)
		more, err := s.Open('[')
		for i := 0; more && err == nil && i < mostParts; i++ {
			if f.part(r, &s, system) != nil {
				return
			}
			more, err = s.More('[')
		}
	}
}

func (f *fingerprint) part(r *Request, s *Scanner, system bool) error {
	if s.Peek() != '{' {
		at, err := s.Value()
		f.text(at.Of(r.Body), system)
		return err
	}
	return s.Members(func(name []byte) error {
		at, err := s.Value()
		if n := string(name); n != "type" && n != "cache_control" {
			f.text(at.Of(r.Body), system)
		}
		return err
	})
}

// text takes a raw value: what is between the quotes of a string.
func (f *fingerprint) text(raw []byte, system bool) {
	if len(raw) >= 2 && raw[0] == '"' {
		raw = raw[1 : len(raw)-1]
	}
	if system && IsAttribution(raw) {
		const newline = `\n`
		_, raw, _ = bytes.Cut(raw, []byte(newline))
		for bytes.HasPrefix(raw, []byte(newline)) {
			raw = raw[len(newline):]
		}
		if len(raw) == 0 {
			return
		}
	}
	f.add(raw)
}
