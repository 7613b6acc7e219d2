package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// depthOf returns the deepest nesting of a valid JSON text.
func depthOf(b []byte) (deepest int) {
	depth, inString := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// oracle says whether b is what a strict scan takes: by encoding/json, with our own rules of UTF-8 and depth.
func oracle(b []byte, maxDepth int) bool {
	return json.Valid(b) && utf8.Valid(b) && depthOf(b) <= maxDepth
}

// value passes b with one Value.
func value(b []byte, maxDepth int) error {
	s := NewScanner(b, maxDepth)
	if _, err := s.Value(); err != nil {
		return err
	}
	return s.End()
}

// walk passes the next value by opening everything in it.
func walk(s *Scanner) error {
	switch s.Peek() {
	case '{':
		return s.Members(func([]byte) error { return walk(s) })
	case '[':
		return s.Elements(func(int) error { return walk(s) })
	}
	_, err := s.Value()
	return err
}

func walked(b []byte, maxDepth int) error {
	s := NewScanner(b, maxDepth)
	if err := walk(&s); err != nil {
		return err
	}
	return s.End()
}

// texts are seeds for the scan: valid ones, and ones that break one rule each.
var texts = []string{
	`{}`, `[]`, `""`, `0`, `-0`, `-0.0e+0`, `1e5`, `1E-5`, `0.5`, `123456789012345678901234567890`, `true`, `false`, `null`,
	` { "a" : [ 1 , 2 , { } , [ ] ] , "b" : "c" } `, "\t\n\r{\"a\":\n1}\r\n", `{"a":{"b":{"c":[[[1]]]}}}`,
	`"\"\\\/\b\f\n\r\té\uD83C\udf0d"`, `"\ud800"`, `"北京 🌍"`, "\"\u2028\"", "\"\x7f\"", `"0123456\"89"`, `"01234567"`,
	`{"":0}`, `{"a":1,"a":2}`, `[1,[2,[3,[4]]]]`,
	``, ` `, `{`, `[`, `"`, `"a`, `"\`, `"\u`, `"\u12`, `"\u12g4"`, `"\x"`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `[1`, `[1,`,
	`[1,]`, `[,1]`, `{,}`, `{"a" 1}`, `{a:1}`, `{1:2}`, `{"a":1 "b":2}`, `[1 2]`, `01`, `-`, `+1`, `.5`, `1.`, `1e`, `1e+`, `0x1`, `1_0`,
	`tru`, `True`, `nul`, `nulll`, `NaN`, `Infinity`, `'a'`, `{}{}`, `[]]`, `{}}`, `1 2`, `//`, `/**/1`, "\ufeff{}",
	"\"\x00\"", "\"\x1f\"", "\"a\nb\"", "\"\xff\"", "\"\xc3\"", "\"\xed\xa0\x80\"", "\"\xc0\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xe2\x82\"", "\xff",
	"{\"\xff\":1}", "{\"a\x01\":1}", `[1,2}`, `{"a":1]`, "[1\x0b]", "\u00a01",
}

func TestScanAgreesWithEncodingJSON(t *testing.T) {
	for _, text := range texts {
		checkScan(t, []byte(text), 8)
	}
	for _, text := range texts { // a cut at every byte, and every byte changed
		for i := range text {
			checkScan(t, []byte(text[:i]), 8)
			for _, c := range []byte{0, '"', '\\', '{', '}', '[', ']', ',', ':', '0', ' ', 0x80, 0xff} {
				b := []byte(text)
				b[i] = c
				checkScan(t, b, 8)
			}
		}
	}
}

func checkScan(t *testing.T, b []byte, maxDepth int) {
	t.Helper()
	want := oracle(b, maxDepth)
	for name, err := range map[string]error{"Value": value(b, maxDepth), "a walk": walked(b, maxDepth)} {
		if got := err == nil; got != want {
			t.Errorf("%s takes %q = %v (%v), want %v", name, b, got, err, want)
		}
		if e, ok := errors.AsType[*SyntaxError](err); err != nil && (!ok || e.Offset < 0 || e.Offset > len(b)) {
			t.Errorf("%s of %q: %v is no fault with a place within the text", name, b, err)
		}
	}
}

func FuzzScan(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Add([]byte(strings.Repeat("[", 70) + strings.Repeat("]", 70)))
	f.Fuzz(func(t *testing.T, b []byte) {
		checkScan(t, b, 64)
		if oracle(b, 64) {
			checkNames(t, b)
			checkStrings(t, b)
		}
	})
}

// checkNames compares the duplicates found in the outermost object with those that a decoder's tokens show.
func checkNames(t *testing.T, b []byte) {
	t.Helper()
	s := NewScanner(b, 64)
	if s.Peek() != '{' {
		return
	}
	var names Names
	got := IsDuplicate(s.Members(func(name []byte) error {
		if err := names.Add(&s, name); err != nil {
			return err
		}
		_, err := s.Value()
		return err
	}))
	var seen []string
	want := false
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	_, _ = d.Token()
	for d.More() {
		k, _ := d.Token()
		for _, old := range seen {
			want = want || strings.EqualFold(old, k.(string))
		}
		seen = append(seen, k.(string))
		var skip json.RawMessage
		if err := d.Decode(&skip); err != nil {
			t.Fatal(err)
		}
	}
	if got != want {
		t.Errorf("%q has a duplicate member = %v, want %v", b, got, want)
	}
}

// checkStrings compares Unquote with encoding/json where b is a string.
func checkStrings(t *testing.T, b []byte) {
	t.Helper()
	b = bytes.TrimSpace(b)
	if b[0] != '"' {
		return
	}
	var want string
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	if got := string(Unquote(b)); got != want {
		t.Errorf("Unquote(%s) = %q, want %q", b, got, want)
	}
}

func TestDepthIsBoundedAtEveryLevel(t *testing.T) {
	for _, depth := range []int{1, 2, 63, 64, 65, 511, 512, 513, 514, 600, 1200} { // around the words of the bit stack
		for _, mixed := range []bool{false, true} {
			b := nested(depth, mixed)
			for _, limit := range []int{depth, depth - 1} {
				want := depth <= limit
				if got := value(b, limit) == nil; got != want {
					t.Errorf("Value takes depth %d (mixed %v) with limit %d = %v, want %v", depth, mixed, limit, got, want)
				}
				if got := walked(b, limit) == nil; got != want {
					t.Errorf("a walk takes depth %d (mixed %v) with limit %d = %v, want %v", depth, mixed, limit, got, want)
				}
			}
			b[len(b)-1] ^= '}' ^ ']' // the outermost bracket is of the wrong kind
			if value(b, depth) == nil {
				t.Errorf("depth %d (mixed %v): a wrong bracket at the end was taken", depth, mixed)
			}
		}
	}
}

// nested returns depth levels, mixed or of arrays alone, with values before and after the inner ones.
func nested(depth int, mixed bool) []byte {
	var b []byte
	object := func(level int) bool { return mixed && level%3 != 0 }
	for i := range depth {
		if object(i) {
			b = append(b, `{"x":1,"y":`...)
		} else {
			b = append(b, `[0,`...)
		}
	}
	b = append(b, '0')
	for i := depth - 1; i >= 0; i-- {
		after := `{}`
		if i == depth-1 {
			after = `2` // an empty object would be one level more
		}
		if object(i) {
			b = append(b, `,"z":`+after+`}`...)
		} else {
			b = append(b, `,`+after+`]`...)
		}
	}
	return b
}

func TestHostileDepthIsRefusedAtOnce(t *testing.T) { // S16
	b := bytes.Repeat([]byte(`{"a":[`), 50_000)
	begun := time.Now()
	if err := value(b, 100); !errors.Is(err, errDepth) {
		t.Errorf("got %v, want %v", err, errDepth)
	}
	if took := time.Since(begun); took > 50*time.Millisecond {
		t.Errorf("it took %v", took)
	}
	if err := value(b, 1<<20); err == nil || err.Error() != "the text ends too early at byte 300000" {
		t.Errorf("without a bound: got %v", err)
	}
}

// skipSlowly is SkipString by a table of states, a byte at a time.
func skipSlowly(b []byte, i int) int {
	from := i
	for ; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			if !utf8.Valid(b[from:i]) {
				return -1
			}
			return i + 1
		case c < 0x20:
			return -1
		case c == '\\':
			if i++; i >= len(b) {
				return -1
			}
			if b[i] == 'u' {
				for range 4 {
					if i++; i >= len(b) || !strings.ContainsRune("0123456789abcdefABCDEF", rune(b[i])) {
						return -1
					}
				}
			} else if !strings.ContainsRune(`"\/bfnrt`, rune(b[i])) {
				return -1
			}
		}
	}
	return -1
}

func TestSkipStringAgreesWithATable(t *testing.T) {
	const rounds = 60_000
	r := rand.New(rand.NewPCG(1, 2))
	pieces := []string{
		"a", "Z", " ", "!", "#", "[", "]", "\x7f", "~", "abcdefg", "01234567890123", "\x1f", "\x00", "\n", `"`, `\"`, `\\`, `\n`, `\u00e9`, `\ud83c`,
		`\u12`, `\x`, `\`, "é", "北", "🌍", "\x80", "\xff", "\xc3", "\xe2\x82", "\xf0\x9f", "\xa2", "\xdc", "\xa0",
	}
	for range rounds {
		var b []byte
		for range r.IntN(12) {
			n := len(pieces)
			if r.IntN(3) > 0 { // mostly well formed, so that the ends are reached
				n = 11
			}
			b = append(b, pieces[r.IntN(n)]...)
			if r.IntN(8) == 0 { // to both sides of a block's end
				b = append(b, strings.Repeat("x", 50+r.IntN(90))...)
			}
		}
		b = append(b, `"tail"`[:r.IntN(7)]...)
		from := 0
		if len(b) > 0 {
			from = r.IntN(min(8, len(b)))
		}
		if got, want := SkipString(b, from), skipSlowly(b, from); got != want {
			t.Fatalf("SkipString(%q, %d) = %d, want %d", b, from, got, want)
		}
	}
}

func TestSkipStringFindsEachByteInEachPlace(t *testing.T) {
	for _, length := range []int{1, 7, 8, 9, 15, 16, 17, 23, 24, 31, 78, 79, 80, 81, 82, 142, 144, 146} {
		for at := range length {
			for c := range 256 {
				b := bytes.Repeat([]byte{'a'}, length)
				b[at] = byte(c)
				b = append(b, '"')
				if got, want := SkipString(b, 0), skipSlowly(b, 0); got != want {
					t.Fatalf("%q: got %d, want %d", b, got, want)
				}
			}
		}
	}
}

func TestFaultsNameTheirPlace(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a missing colon", `{"a" 1}`, "expected a colon after the member's name at byte 5"},
		{"a missing comma", `{"a":1 "b":2}`, "expected a comma or the closing bracket at byte 7"},
		{"a name without quotes", `{a:1}`, "expected a member's name in quotes at byte 1"},
		{"an unknown word", `[nil]`, "expected a value at byte 1"},
		{"a number with a leading zero", `[01]`, "expected a comma or the closing bracket at byte 2"},
		{"a number without digits", `[-]`, "a number is not well formed at byte 1"},
		{"a string with a line feed", "[\"a\nb\"]", "a string is not well formed (escape, control character or UTF-8) at byte 1"},
		{"an early end", `{"a":`, "the text ends too early at byte 5"},
		{"more text", `{} {}`, "more text follows the value at byte 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, err := range []error{value([]byte(c.text), 9), walked([]byte(c.text), 9)} {
				if err == nil || err.Error() != c.want {
					t.Errorf("got %v, want %s", err, c.want)
				}
			}
		})
	}
}

func TestScannerTellsPlaces(t *testing.T) {
	b := []byte(` {"a" : 1 , "\u0062\"" : [ true ]} `)
	type found struct {
		name, value, raw string
	}
	var got []found
	s := NewScanner(b, 4)
	err := s.Members(func(name []byte) error {
		from := s.NameAt()
		at, err := s.Value()
		got = append(got, found{string(name), string(at.Of(b)), string(b[from:at.To])})
		return err
	})
	if err != nil || s.End() != nil {
		t.Fatal(err, s.End())
	}
	want := []found{{"a", "1", `"a" : 1`}, {`b"`, "[ true ]", `"\u0062\"" : [ true ]`}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %q, want %q", got, want)
	}
	if (Span{}).IsZero() != true || (Span{0, 1}).IsZero() {
		t.Error("only a span that was never set is zero")
	}
	if empty := NewScanner(nil, 1); empty.Peek() != 0 || empty.Offset() != 0 {
		t.Error("an empty text has a next byte")
	}
}

func TestErrorsOfTheCallerPass(t *testing.T) {
	stop := errors.New("stop")
	s := NewScanner([]byte(`{"a":1}`), 4)
	if err := s.Members(func([]byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("Members: got %v", err)
	}
	s = NewScanner([]byte(`[1]`), 4)
	if err := s.Elements(func(int) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("Elements: got %v", err)
	}
}
