package llm

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestUnquote(t *testing.T) {
	for _, c := range []struct{ raw, want string }{
		{`""`, ""},
		{`"plain"`, "plain"},
		{`"\"\\\/\b\f\n\r\t"`, "\"\\/\b\f\n\r\t"},
		{`"\u0041\u00e9\u5317"`, "Aé北"},
		{`"\ud83c\udf0d"`, "🌍"},
		{`"\uD83C\uDF0D!"`, "🌍!"},
		{`"\ud83c"`, "\ufffd"},
		{`"\udf0d"`, "\ufffd"},
		{`"\ud83cx"`, "\ufffdx"},
		{`"\ud83c\n"`, "\ufffd\n"},
		{`"\ud83c\u0041"`, "\ufffdA"},
		{`"\ud83c\ud83c\udf0d"`, "\ufffd🌍"},
		{`"a\u0000b"`, "a\x00b"},
		{`null`, ""}, {`[1]`, ""}, {`"`, ""}, {``, ""},
	} {
		if got := string(Unquote([]byte(c.raw))); got != c.want {
			t.Errorf("Unquote(%s) = %q, want %q", c.raw, got, c.want)
		}
	}
}

func TestQuotedTextReadsBack(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		b := make([]byte, r.IntN(20))
		for i := range b {
			b[i] = byte(r.IntN(256))
		}
		s := string(b)
		if r.IntN(2) == 0 {
			s = ""
			for range r.IntN(8) {
				s += string(rune(r.IntN(0x110000)))
			}
		}
		checkQuoted(t, s)
	}
	for _, s := range []string{"", `"`, `\`, "\u2028\u2029", "\x7f\x00\x1f", "é北🌍", "a\xffb", "</script>", "\ufffd"} {
		checkQuoted(t, s)
	}
}

func checkQuoted(t *testing.T, s string) {
	t.Helper()
	want := strings.ToValidUTF8(s, "\ufffd")
	if !utf8.ValidString(s) { // one replacement for each byte, as encoding/json does
		want = string([]rune(s))
	}
	q := AppendQuoted(nil, s)
	var back string
	if err := json.Unmarshal(q, &back); err != nil || back != want {
		t.Fatalf("AppendQuoted(%q) = %s, which reads back as %q (%v), want %q", s, q, back, err, want)
	}
	if got := string(Unquote(q)); got != want {
		t.Fatalf("Unquote(%s) = %q, want %q", q, got, want)
	}
	if err := value(q, 1); err != nil {
		t.Fatalf("AppendQuoted(%q) = %s is not valid: %v", s, q, err)
	}
	if strings.ContainsAny(string(q), "\n\r\u2028\u2029") {
		t.Fatalf("AppendQuoted(%q) = %s breaks a line", s, q)
	}
	if got := AppendQuoted(nil, []byte(s)); string(got) != string(q) {
		t.Fatalf("bytes and string differ: %s, %s", got, q)
	}
}

func TestInt(t *testing.T) {
	for _, c := range []struct {
		raw  string
		want int64
		ok   bool
	}{
		{"0", 0, true}, {"-0", 0, true}, {"7", 7, true}, {"-12", -12, true}, {"999999999999999999", 999999999999999999, true},
		{"1000000000000000000", 0, false}, {"-1000000000000000000", 0, false}, {"99999999999999999999999", 0, false},
		{"", 0, false}, {"-", 0, false}, {"1.0", 0, false}, {"1e3", 0, false}, {`"1"`, 0, false}, {"null", 0, false}, {"true", 0, false},
	} {
		if got, ok := Int([]byte(c.raw)); got != c.want || ok != c.ok {
			t.Errorf("Int(%s) = %d, %v, want %d, %v", c.raw, got, ok, c.want, c.ok)
		}
	}
}

func TestNamesFindsAMemberThatStandsTwice(t *testing.T) { // S17
	for _, c := range []struct {
		name string
		list []string
		want bool
	}{
		{"none", nil, false},
		{"different ones", []string{"a", "b", "ab"}, false},
		{"the same", []string{"model", "x", "model"}, true},
		{"another case", []string{"Model", "MODEL"}, true},
		{"a long s", []string{"messages", "me\u017f\u017fages"}, true},
		{"the Kelvin sign", []string{"k", "\u212a"}, true},
		{"beyond ASCII", []string{"É", "é"}, true},
		{"an empty one twice", []string{"", ""}, true},
	} {
		for _, before := range []int{0, 22, 23, 24, 25, 60} { // in the list, at its end, in the map
			t.Run(fmt.Sprintf("%s after %d others", c.name, before), func(t *testing.T) {
				var names Names
				var s Scanner
				got := false
				for i := range before {
					if names.Add(&s, []byte("other"+strconv.Itoa(i))) != nil {
						t.Fatal("a duplicate where there is none")
					}
				}
				for _, name := range c.list {
					err := names.Add(&s, []byte(name))
					if err != nil && !IsDuplicate(err) {
						t.Fatal(err)
					}
					got = got || err != nil
				}
				if got != c.want {
					t.Errorf("got %v, want %v", got, c.want)
				}
			})
		}
	}
}

func TestSplice(t *testing.T) {
	body := []byte("0123456789")
	got := string(Splice([]byte(">"), body, []Edit{{Span{0, 0}, []byte("a")}, {Span{2, 4}, nil}, {Span{4, 5}, []byte("four")}, {Span{10, 10}, []byte("z")}}))
	if want := ">a01four56789z"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
