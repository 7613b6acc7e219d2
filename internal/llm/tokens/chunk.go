package tokens

import "unicode/utf8"

// chunkSize bounds what the vocabulary is given at once. It makes a copy of that in four times the size, and takes more
// than its share of time for a long run of one kind of characters.
const chunkSize = 16 << 10

// blankSize bounds the white space in a row that the vocabulary is given at once: its time for line ends amid white space
// grows with the square.
const blankSize = 128

// chunk returns how many bytes of s to count next. It ends where a token ends anyway, if there is such a place: behind a
// line's end, or between a word and the space before the next. Elsewhere the cut costs a token at most.
func chunk(s []byte) int {
	limit := min(len(s), chunkSize)
	blank := 0
	for i, c := range s[:limit] {
		if c > ' ' {
			blank = 0
		} else if blank++; blank == blankSize {
			return i + 1
		}
	}
	if limit == len(s) {
		return limit
	}
	for n := limit; n > limit/2; n-- {
		if seam(s, n) {
			return n
		}
	}
	for n := limit; n > limit-utf8.UTFMax; n-- {
		if utf8.RuneStart(s[n]) {
			return n
		}
	}
	return limit
}

// seam reports whether a token ends before s[n], whatever stands around.
func seam(s []byte, n int) bool {
	before, at := s[n-1], s[n]
	if before == '\n' {
		return at > ' ' && at != '/' && at < utf8.RuneSelf // a token may hold line ends with white space or slashes behind
	}
	return at == ' ' && isLetter(before) && n+1 < len(s) && isLetter(s[n+1])
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
