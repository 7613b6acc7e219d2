package llm

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

const (
	lsb = 0x0101010101010101
	msb = 0x8080808080808080
)

// SkipString returns the index after the closing quote of a JSON string in b, or -1 when it is not well formed. i lies
// after the opening quote. It is where a gateway spends its time on a large body, so it has two gaits: short strings, the
// names and roles, are walked eight bytes at a time; what is longer is looked at in blocks of 64, of which only the
// special bytes are touched: quotes, backslashes, control characters and what is beyond ASCII.
func SkipString(b []byte, i int) int {
	near := min(len(b), i+16)
	for i < near {
		if i+8 <= len(b) {
			x := binary.LittleEndian.Uint64(b[i:])
			q, s := x^lsb*'"', x^lsb*'\\'
			// The lowest flag is certain, higher ones may be borrows.
			m := ((q - lsb) | (s - lsb) | (x - lsb*0x20) | x) & msb
			if m == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(m) >> 3
		}
		if b[i] == '"' {
			return i + 1
		}
		if i = pass(b, i); i < 0 {
			return -1
		}
	}
	return skipBlocks(b, i)
}

// skipBlocks goes on in blocks of 64 bytes, and byte by byte in the last of b.
func skipBlocks(b []byte, i int) int {
	for i+64 <= len(b) {
		m := special((*[64]byte)(b[i:]))
		next := i + 64
		for m != 0 {
			at := i + bits.TrailingZeros64(m)
			if b[at] == '"' {
				return at + 1
			}
			end := at + 2 // of the common escape
			if b[at] != '\\' || at+1 >= len(b) || !plainEscape[b[at+1]] {
				if end = pass(b, at); end < 0 {
					return -1
				}
			}
			if end >= next {
				next = end // a rune or an escape reaches into the next block
				break
			}
			m = m >> (end - i) << (end - i)
		}
		i = next
	}
	for i < len(b) {
		if b[i] == '"' {
			return i + 1
		}
		if i = pass(b, i); i < 0 {
			return -1
		}
	}
	return -1
}

// pass returns the index after the escape, the run of runes or the plain byte at i, or -1 when it is not well formed.
func pass(b []byte, i int) int {
	c := b[i]
	switch {
	case c == '\\':
		if i+1 < len(b) && plainEscape[b[i+1]] {
			return i + 2
		}
		if n := escape(b[i:]); n > 0 {
			return i + n
		}
		return -1
	case c < 0x20:
		return -1
	case c < utf8.RuneSelf:
		return i + 1
	}
	for i < len(b) && b[i] >= utf8.RuneSelf {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			return -1
		}
		i += n
	}
	return i
}

// plainEscape are the bytes that make an escape of two bytes with a backslash.
var plainEscape = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

// specialGeneric is special in plain Go: the oracle of its test, and what machines without an own version use.
func specialGeneric(p *[64]byte) (m uint64) {
	for k := 0; k < 64; k += 8 {
		x := binary.LittleEndian.Uint64(p[k:])
		// Per byte and without borrows: the high bit of (byte & 0x7f) + 0x7f is clear only for zero.
		q, s := x^lsb*'"', x^lsb*'\\'
		zero := ^(((q &^ msb) + ^uint64(msb)) | q) | ^(((s &^ msb) + ^uint64(msb)) | s)
		low := ^(((x &^ msb) + lsb*(0x80-0x20)) | x)
		f := (zero | low | x) & msb
		m |= (f >> 7 * 0x0102040810204080 >> 56) << k
	}
	return m
}
