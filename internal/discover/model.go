package discover

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what is taken over from a server.
const (
	maxModels = 100
	maxID     = 200 // bytes
	maxWord   = 40  // runes of a version
	maxSlots  = 1024
	maxWindow = 100_000_000
)

// keyLike finds a name that looks like a vendor's key or token: it is neither written down nor shown.
var keyLike = regexp.MustCompile(`(?:^|[^A-Za-z0-9])(?:sk[-_]|hf_|gh[opsru]_|github_pat_|gsk_|xai-|nvapi-|AIza|AKIA|eyJ)[A-Za-z0-9_-]{12,}`)

// safeID tells whether a model's name may stand in the config. A reference to a secret or a wildcard would mean
// something there that the server must not decide, and names with spaces are none to Weir.
func safeID(id string) bool {
	switch {
	case id == "" || len(id) > maxID || !utf8.ValidString(id):
		return false
	case strings.ContainsAny(id, "$*") || keyLike.MatchString(id):
		return false
	}
	return !strings.ContainsFunc(id, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) })
}

// plain makes foreign text fit for a terminal and for one line of a comment.
func plain(s string, limit int) string {
	var b strings.Builder
	n := 0
	for _, r := range strings.ToValidUTF8(s, "") {
		if !unicode.IsPrint(r) {
			continue
		}
		if n++; n > limit {
			b.WriteString("...")
			break
		}
		b.WriteRune(r)
	}
	return strings.TrimSpace(b.String())
}

// hints tell the use of a model by a word of its name, tried in this order: a reranker is often named after the
// embedding model it stems from.
var hints = []struct {
	word  string
	whole bool // the word must stand alone: e5 is part of many names
	use   Use
}{
	{"rerank", false, Rerank},
	{"embed", false, Embedding},
	{"minilm", false, Embedding},
	{"bge", true, Embedding},
	{"gte", true, Embedding},
	{"e5", true, Embedding},
}

func useOf(id string) Use {
	low := strings.ToLower(id)
	words := strings.FieldsFunc(low, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	for _, h := range hints {
		if !h.whole && strings.Contains(low, h.word) {
			return h.use
		}
		for _, w := range words {
			if h.whole && w == h.word {
				return h.use
			}
		}
	}
	return Chat
}

// sizes finds a count of parameters: 4b, 0.5B, 8x7b, 137M, standing alone or between marks.
var sizes = regexp.MustCompile(`(?i)(?:^|[^a-z0-9.])(?:(\d{1,3})x)?(\d{1,4}(?:\.\d{1,3})?)([bm])(?:[^a-z0-9]|$)`)

// paramsIn reads the first count of parameters in a name or in a size such as 4.3B; zero when there is none.
func paramsIn(s string) int64 {
	m := sizes.FindStringSubmatch(s)
	if m == nil {
		return 0
	}
	n, err := strconv.ParseFloat(m[2], 64)
	if err != nil {
		return 0
	}
	if times, err := strconv.Atoi(m[1]); err == nil {
		n *= float64(times)
	}
	if strings.EqualFold(m[3], "m") {
		return int64(math.Round(n * 1e6))
	}
	return int64(math.Round(n * 1e9))
}

func window(n int) int {
	if n < 1 || n > maxWindow {
		return 0
	}
	return n
}

func slots(n int) int {
	if n < 1 || n > maxSlots {
		return 0
	}
	return n
}
