package tokens

import (
	"strings"
	"unicode/utf8"
)

// family is how models of one vocabulary differ from one that we carry. A weight says how many tokens there are for each
// of something; han, kana, hangul and other are characters that are taken out of the text and not counted by
// the vocabulary, as vocabularies differ most in them. How the weights were found is told in docs/tokens.md.
type family struct {
	names  []string // what a model's name holds, in lower case
	cl100k bool     // the vocabulary that counts: else o200k
	own    bool     // it is that vocabulary: nothing is weighed

	base                      float64 // for each token of the vocabulary
	digit                     float64 // for each digit more than there are groups of three
	line                      float64 // for each line
	han, kana, hangul, others float64 // for each character of these scripts; others: Greek, Cyrillic, Arabic and the like
}

// families are the known ones; the first that has a piece of the model's name is taken, and the very first where none has.
var families = []family{
	{own: true, names: []string{"gpt-oss", "gpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5", "chatgpt-4o"}},
	{own: true, cl100k: true, names: []string{"gpt-4", "gpt-3.5", "gpt-35", "text-embedding-3", "text-embedding-ada", "phi-4", "phi4"}},
	{names: []string{"claude"}, cl100k: true, base: 1.15, line: 1, han: 1.06, kana: 0.97, hangul: 1.17, others: 0.52},
	{names: []string{"deepseek-r1-distill-llama"}, cl100k: true, base: 1, han: 0.83, kana: 0.57, hangul: 0.67, others: 0.3},
	{names: []string{"deepseek-r1-distill-qwen"}, cl100k: true, base: 1, digit: 1, han: 0.67, kana: 0.63, hangul: 0.72, others: 0.33},
	{names: []string{"deepseek"}, cl100k: true, base: 1.02, line: 0.23, han: 0.6, kana: 0.66, hangul: 0.75, others: 0.28},
	{names: []string{"qwen", "qwq", "qvq"}, cl100k: true, base: 1, digit: 1, han: 0.67, kana: 0.63, hangul: 0.72, others: 0.33},
	{names: []string{"llama-2", "llama2", "codellama", "vicuna", "mixtral", "mistral-7b", "tinyllama"},
		cl100k: true, base: 1.13, digit: 0.87, line: 1.2, han: 1.4, kana: 1.05, hangul: 1.9, others: 0.35},
	{names: []string{"mistral", "ministral", "pixtral", "devstral", "magistral", "codestral"},
		base: 1.04, digit: 0.95, han: 1, kana: 0.54, hangul: 0.6, others: 0.3},
	{names: []string{"gemma", "gemini"}, base: 1.02, digit: 0.94, line: 1.1, han: 0.67, kana: 0.4, hangul: 0.57, others: 0.24},
	{names: []string{"glm"}, cl100k: true, base: 1, han: 0.67, kana: 0.63, hangul: 0.72, others: 0.33},
	{names: []string{"kimi", "moonshot"}, base: 1.02, han: 0.62, kana: 0.65, hangul: 0.72, others: 0.3},
	{names: []string{"llama", "hermes"}, cl100k: true, base: 1, han: 0.83, kana: 0.57, hangul: 0.67, others: 0.3}, // last: ollama/…
}

// familyOf returns the family of a model by its name.
func familyOf(model string) *family {
	model = strings.ToLower(model)
	for i := range families {
		for _, name := range families[i].names {
			if strings.Contains(model, name) {
				return &families[i]
			}
		}
	}
	return &families[0]
}

// count returns the tokens of one chunk.
func (f *family) count(v *vocabularies, chunk []byte) (float64, error) {
	text := string(chunk)
	extra := 0.0
	if !f.own {
		text, extra = f.weigh(chunk)
	}
	n, err := v.of(f).Count(text)
	if f.own {
		return float64(n), err
	}
	return max(0, f.base*float64(n)+extra), err
}

// weigh takes out what the vocabulary is not asked for, and returns the rest with the tokens of what was taken out or has
// a weight of its own.
func (f *family) weigh(chunk []byte) (rest string, tokens float64) {
	var b strings.Builder
	b.Grow(len(chunk))
	run := 0 // digits so far
	for i := 0; i < len(chunk); {
		c := chunk[i]
		if c >= '0' && c <= '9' {
			if run%3 != 0 {
				tokens += f.digit
			}
			run++
		} else {
			run = 0
		}
		if c < utf8.RuneSelf {
			if c == '\n' {
				tokens += f.line
			}
			b.WriteByte(c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(chunk[i:])
		if w, out := f.script(r); out {
			tokens += w
		} else {
			b.Write(chunk[i : i+n])
		}
		i += n
	}
	return b.String(), tokens
}

// script returns the weight of a character of a script that is taken out.
func (f *family) script(r rune) (weight float64, out bool) {
	switch {
	case r < 0x370 || r >= 0x2000 && r < 0x2E80 || r >= 0x1F000 && r < 0x20000: // Latin, signs, emoji; U+FFFD is no matter
		return 0, false
	case r < 0x2000:
		return f.others, true
	case r >= 0x3040 && r < 0x3100:
		return f.kana, true
	case r >= 0xAC00 && r < 0xD7B0 || r >= 0x3130 && r < 0x3190:
		return f.hangul, true
	}
	return f.han, true
}
