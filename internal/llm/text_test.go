package llm

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// skipSlow is SkipString byte by byte: the oracle.
func skipSlow(b []byte, i int) int {
	for i < len(b) {
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			n := escape(b[i:])
			if n == 0 {
				return -1
			}
			i += n
		case c < 0x20:
			return -1
		case c < utf8.RuneSelf:
			i++
		default:
			r, n := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && n <= 1 {
				return -1
			}
			i += n
		}
	}
	return -1
}

func TestSpecialFindsTheSameBytesOnEveryMachine(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var p [64]byte
		var want uint64
		for i := range p {
			p[i] = byte(r.UintN(256))
			if r.UintN(3) > 0 {
				p[i] = "ab\"\\\x1f\x20\x7f\x80"[r.UintN(8)]
			}
			if c := p[i]; c == '"' || c == '\\' || c < 0x20 || c >= 0x80 {
				want |= 1 << i
			}
		}
		if got := special(&p); got != want {
			t.Fatalf("special(%q) = %064b, want %064b", p, got, want)
		}
		if got := specialGeneric(&p); got != want {
			t.Fatalf("specialGeneric(%q) = %064b, want %064b", p, got, want)
		}
	}
}

func TestSkipStringAgreesWithTheSlowWalk(t *testing.T) {
	pieces := []string{"a", "plain text of some length ", `\n`, `\"`, `\\`, `\u00e9`, `\ud83d\ude00`, "é", "北京", "🌍", `\u12`, `\x`,
		"\x01", "\x7f", "\xff", "\xe4\xba", strings.Repeat("x", 63), strings.Repeat("y", 64), strings.Repeat("z", 130), `"`}
	r := rand.New(rand.NewPCG(3, 4))
	for range 60_000 {
		var b strings.Builder
		for range r.UintN(12) {
			// Faults and ends are rare, so that most strings are long.
			n := uint(10)
			if r.UintN(8) == 0 {
				n = uint(len(pieces))
			}
			b.WriteString(pieces[r.UintN(n)])
		}
		if r.UintN(4) > 0 {
			b.WriteByte('"')
		}
		b.WriteString(strings.Repeat(" ", int(r.UintN(80))))
		text := []byte(b.String())
		if got, want := SkipString(text, 0), skipSlow(text, 0); got != want {
			t.Fatalf("SkipString(%q) = %d, want %d", text, got, want)
		}
	}
}

func BenchmarkSkipString(b *testing.B) {
	for name, piece := range map[string]string{
		"code":  `\tif err != nil {\n\t\treturn \"none\", err\n\t}\n`,
		"prose": "The quick brown fox jumps over the lazy dog while nobody looks at it. ",
		"other": "Съешь ещё этих мягких французских булок, да выпей чаю. ",
		"role":  "",
	} {
		text := []byte(strings.Repeat(piece, 1+100_000/(len(piece)+1)) + `"`)
		if piece == "" {
			text = []byte(`assistant"`)
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if SkipString(text, 0) != len(text) {
					b.Fatal("not the whole string")
				}
			}
		})
	}
}
