package llm

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The short words of these tests: a conversation is a list of turns such as "a: call 1 f {}", one part after the other,
// divided by semicolons. "-" is nothing.
func talk(turns ...string) *Conversation {
	c := new(Conversation)
	for n, line := range turns {
		who, rest, _ := strings.Cut(line, ":")
		t := Turn{N: n, Role: map[string]Role{"s": System, "u": User, "a": Assistant}[who]}
		for _, p := range strings.Split(rest, ";") {
			t.Parts = append(t.Parts, part(strings.TrimSpace(p))...)
		}
		c.Turns = append(c.Turns, t)
	}
	return c
}

func part(s string) []Part {
	f := strings.Fields(s)
	text := func(i int) Text {
		if i >= len(f) || f[i] == "-" {
			return nil
		}
		return Text(f[i])
	}
	switch {
	case s == "":
		return nil
	case f[0] == "call":
		return []Part{{Kind: PartCall, ID: text(1), Name: text(2), Input: Input{Spelt: text(3)}}}
	case f[0] == "input":
		return []Part{{Kind: PartCall, ID: text(1), Name: Text("f"), Input: Input{Object: Raw(text(2))}}}
	case f[0] == "free":
		return []Part{{Kind: PartCall, ID: text(1), Name: Text("f"), Custom: true, Input: Input{Spelt: text(2)}}}
	case f[0] == "result":
		return []Part{{Kind: PartResult, ID: text(1), Parts: []Part{{Kind: PartText, Text: text(2)}}}}
	case f[0] == "failed":
		return []Part{{Kind: PartResult, ID: text(1), Failed: true}}
	}
	return []Part{{Kind: PartText, Text: Text(s)}}
}

// shown is the way back, with a star at the turns that were mended.
func shown(c *Conversation) []string {
	var out []string
	for _, t := range c.Turns {
		line := map[Role]string{System: "s:", User: "u:", Assistant: "a:"}[t.Role]
		if t.Mended {
			line = "*" + line
		}
		for i, p := range t.Parts {
			if i > 0 {
				line += ";"
			}
			switch p.Kind {
			case PartCall:
				in := string(p.Input.Object) + string(p.Input.Spelt)
				line += fmt.Sprintf(" call %s %s %s", p.ID, p.Name, in)
			case PartResult:
				line += fmt.Sprintf(" result %s", p.ID)
				for _, q := range p.Parts {
					line += " " + string(q.Text)
				}
			default:
				line += " " + string(p.Text)
			}
		}
		out = append(out, line)
	}
	return out
}

func TestMend(t *testing.T) {
	for _, tt := range []struct {
		name        string
		turns, want []string
		notes       []string
	}{
		{"what is right stays", []string{"s: be kind", "u: hi", `a: ok; call 1 f {\"a\":\"\\n\"}; call 2 g {}`, "u: result 1 x", "s: note", "u: result 2 y; more", "a: done"}, nil, nil},
		{"the calls of the last turn may still be answered", []string{"u: hi", "a: call 1 f {}"}, nil, nil},
		{"C031 arguments are told by their brackets, and escapes are read", []string{`a: call 1 f {\u0022a\u0022:\u0022\u00e9\ud83c\udf0d\u0022}`, "u: result 1 x"}, nil, nil},
		{"free text of a custom tool is what it is", []string{"a: free 1 ls", "u: result 1 x"}, nil, nil},
		{"arguments that were cut are kept", []string{`a: call 1 f {\"city`, "u: result 1 x"},
			[]string{`*a: call 1 f {"unparsed_arguments":"{\"city"}`, "u: result 1 x"},
			[]string{"messages[0].tool_calls[0]: arguments that are no JSON object kept under unparsed_arguments"}},
		{"a list is no object", []string{`a: input 1 [1]`, "u: result 1 x"},
			[]string{`*a: call 1 f {"unparsed_arguments":"[1]"}`, "u: result 1 x"},
			[]string{"messages[0].tool_calls[0]: arguments that are no JSON object kept under unparsed_arguments"}},
		{"C031 an object in a string is taken out of it", []string{`a: input 1 "{\"a\":1.0}"`, "u: result 1 x"},
			[]string{`*a: call 1 f {\"a\":1.0}`, "u: result 1 x"},
			[]string{"messages[0].tool_calls[0]: arguments taken out of a string"}},
		{"no arguments are empty ones", []string{"a: call 1 f -; input 2 null", "u: result 1 x; result 2 y"},
			[]string{"*a: call 1 f {}; call 2 f {}", "u: result 1 x; result 2 y"},
			[]string{"messages[0].tool_calls[0]: given empty arguments, as it had none", "messages[0].tool_calls[1]: given empty arguments, as it had none"}},
		{"a call without a name", []string{"a: call 1 - {}", "u: result 1 x"},
			[]string{"*a: call 1 unknown_tool {}", "u: result 1 x"},
			[]string{"messages[0].tool_calls[0]: named unknown_tool, as it had no name"}},
		{"C039 calls and results without ids belong together by their places", []string{"u: x", "a: call - f {}; call - g {}", "u: result - 1", "u: result - 2"},
			[]string{"u: x", "*a: call call_0 f {}; call call_1 g {}", "*u: result call_0 1", "*u: result call_1 2"},
			[]string{"messages[1].tool_calls[0]: given an id, as it had none", "messages[1].tool_calls[1]: given an id, as it had none",
				"messages[2]: given the id of its call", "messages[3]: given the id of its call"}},
		{"C039 a result without an id takes the call that waits", []string{"a: call 1 f {}; call 2 f {}", "u: result 1 x", "u: result - y"},
			[]string{"a: call 1 f {}; call 2 f {}", "u: result 1 x", "*u: result 2 y"}, []string{"messages[2]: given the id of its call"}},
		{"C039 a call without an id takes the result whose id nobody has", []string{"a: call - f {}", "u: result 7 x"},
			[]string{"*a: call call_0 f {}", "*u: result call_0 x"}, []string{"messages[0].tool_calls[0]: given an id, as it had none", "messages[1]: given the id of its call"}},
		{"two calls of one id", []string{"a: call 1 f {}", "a: call 1 g {}", "u: result 1 x", "u: result 1 y"},
			[]string{"a: call 1 f {}", "*a: call call_1 g {}", "u: result 1 x", "*u: result call_1 y"},
			[]string{"messages[1].tool_calls[0]: given an id of its own, as another call has the same", "messages[3]: given the id of its call"}},
		{"a made id differs from the client's", []string{"a: call call_1 f {}; call - f {}", "u: result call_1 x; result - y"},
			[]string{"*a: call call_1 f {}; call call_1x f {}", "*u: result call_1 x; result call_1x y"},
			[]string{"messages[0].tool_calls[1]: given an id, as it had none", "messages[1]: given the id of its call"}},
		{"ids may come again in later turns", []string{"a: call 1 f {}", "u: result 1 x", "a: call 1 f {}", "u: result 1 y"}, nil, nil},
		{"a result without a call", []string{"u: hi", "u: result 9 x", "u: more"},
			[]string{"u: hi", "*u: Result of a tool call that is not in this conversation:; x", "u: more"},
			[]string{"messages[1]: a result that belongs to no call made the user's text"}},
		{"a failed result without a call", []string{"u: failed 9"},
			[]string{"*u: Error from a tool call that is not in this conversation:"},
			[]string{"messages[0]: a result that belongs to no call made the user's text"}},
		{"a result that comes twice waits for the others", []string{"a: call 1 f {}; call 2 f {}", "u: result 1 x", "u: result 1 z", "u: result 2 y", "a: done"},
			[]string{"a: call 1 f {}; call 2 f {}", "u: result 1 x", "u: result 2 y", "*u: Result of a tool call that is not in this conversation:; z", "a: done"},
			[]string{"messages[2]: a result that belongs to no call made the user's text"}},
		{"a call that nobody answered", []string{"a: call 1 f {}; call 2 g {}", "s: note", "u: result 2 y", "u: go on"},
			[]string{"a: call 1 f {}; call 2 g {}", "*u: result 1 No result was recorded.", "s: note", "u: result 2 y", "u: go on"},
			[]string{"messages[0].tool_calls[0]: given a result, as it had none"}},
		{"an answer that comes after the user went on", []string{"a: call 1 f {}", "u: stop", "u: result 1 x"},
			[]string{"a: call 1 f {}", "*u: result 1 No result was recorded.", "u: stop", "*u: Result of a tool call that is not in this conversation:; x"},
			[]string{"messages[0].tool_calls[0]: given a result, as it had none", "messages[2]: a result that belongs to no call made the user's text"}},
		{"a call that is not in the last turn is answered", []string{"a: call 1 f {}; call 2 f {}", "u: result 1 x"},
			[]string{"a: call 1 f {}; call 2 f {}", "*u: result 2 No result was recorded.", "u: result 1 x"},
			[]string{"messages[0].tool_calls[1]: given a result, as it had none"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := talk(tt.turns...)
			want := tt.want
			if want == nil {
				want = shown(c)
			}
			notes := c.Mend()
			if diff := cmp.Diff(want, shown(c)); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.notes, notes); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
			if again := c.Mend(); again != nil {
				t.Errorf("a second Mend says %q", again)
			}
		})
	}
}

// C039: what a turn becomes depends on what stood before it alone, so that the prefix of a growing history stays.
func TestMendKeepsThePrefix(t *testing.T) {
	turns := []string{"u: x", "a: call - f {}", "u: result - 1", "a: call - g [", "u: result - 2", "a: call call_2 - -; call call_2 f {}", "u: result call_2 3; result - 4", "a: ok"}
	last := []string{}
	for n := 3; n <= len(turns); n += 2 {
		c := talk(turns[:n]...)
		c.Mend()
		now := shown(c)
		if diff := cmp.Diff(last, now[:len(last)]); diff != "" {
			t.Errorf("after %d turns (-before +now):\n%s", n, diff)
		}
		last = now
	}
}

func TestMendIsCheapWhereNothingIsWrong(t *testing.T) {
	turns := []string{"s: x", "u: hi", "a: ok", "u: more"}
	for range 2 {
		c := talk(turns...)
		want := 0.0
		if len(turns) > 10 {
			want = 2 // the room for a turn's calls, and for the arguments of one
		}
		if n := testing.AllocsPerRun(20, func() { c.Mend() }); n > want {
			t.Errorf("%v allocations for %d sound turns, want %v", n, len(turns), want)
		}
		for range 50 {
			turns = append(turns, `a: ok; call 1 f {\"a\":\"b\\n\"}; call 2 g {}`, "u: result 1 x; result 2 y")
		}
	}
}

// history draws a history in which anything may be wrong.
func history(t *rapid.T) *Conversation {
	id := rapid.SampledFrom([]string{"-", "1", "2", "3", "call_0", "call_1", "call_2", "call_2x"})
	args := rapid.SampledFrom([]string{"{}", "-", `{\"a\"`, "[1]", "null", `{\"a\":\"\\u0041\"}`, `\"{}\"`})
	p := rapid.Custom(func(t *rapid.T) string {
		switch rapid.IntRange(0, 6).Draw(t, "kind") {
		case 0, 1:
			return "call " + id.Draw(t, "id") + " " + rapid.SampledFrom([]string{"f", "-"}).Draw(t, "name") + " " + args.Draw(t, "args")
		case 2:
			return "input " + id.Draw(t, "id") + " " + rapid.SampledFrom([]string{"{}", "null", "[]", `"{}"`, `"x"`, "-"}).Draw(t, "input")
		case 3, 4, 5:
			return "result " + id.Draw(t, "id") + " r"
		}
		return "text"
	})
	turn := rapid.Custom(func(t *rapid.T) string {
		most := 4
		if rapid.IntRange(0, 9).Draw(t, "long") == 0 {
			most = 40
		}
		return rapid.SampledFrom([]string{"s", "u", "u", "a", "a"}).Draw(t, "who") + ": " +
			strings.Join(rapid.SliceOfN(p, 0, most).Draw(t, "parts"), ";")
	})
	return talk(rapid.SliceOfN(turn, 0, 12).Draw(t, "turns")...)
}

// paired fails where a server would: it reads the turns as a strict one does.
func paired(t *rapid.T, c *Conversation) {
	var open map[string]bool
	talks := false
	for i, turn := range c.Turns {
		other := len(turn.Parts) == 0
		if turn.Role == Assistant && !talks {
			open = map[string]bool{}
		}
		for _, p := range turn.Parts {
			switch {
			case turn.Role == Assistant && p.Kind == PartCall:
				if _, twice := open[string(p.ID)]; twice || isBlankText(p.ID) || isBlankText(p.Name) {
					t.Fatalf("turn %d: call %q of %q", i, p.ID, p.Name)
				}
				if !json.Valid(p.Input.AppendObject(nil)) {
					t.Fatalf("turn %d: arguments %s", i, p.Input.AppendObject(nil))
				}
				open[string(p.ID)] = true
			case turn.Role == User && p.Kind == PartResult:
				if !open[string(p.ID)] {
					t.Fatalf("turn %d: a result for %q, which waits for none", i, p.ID)
				}
				open[string(p.ID)] = false
			default:
				other = true
			}
		}
		if turn.Role == User {
			talks = false
		}
		if turn.Role == Assistant {
			talks = true
		} else if turn.Role == User && other {
			for id, waits := range open {
				if waits {
					t.Fatalf("turn %d: the user goes on, call %q has no result", i, id)
				}
			}
		}
	}
}

// results counts the texts of results, wherever they stand.
func results(c *Conversation) (n int) {
	for _, t := range c.Turns {
		for _, p := range t.Parts {
			if string(p.Text) == "r" || len(p.Parts) == 1 && string(p.Parts[0].Text) == "r" {
				n++
			}
		}
	}
	return n
}

func TestMendHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := history(t)
		before := results(c)
		c.Mend()
		paired(t, c)
		if after := results(c); after < before {
			t.Fatalf("results were lost: %q", shown(c))
		}
		want := shown(c)
		if notes := c.Mend(); notes != nil {
			t.Fatalf("a second Mend says %q of %q", notes, want)
		}
		if diff := cmp.Diff(want, shown(c)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func BenchmarkMend(b *testing.B) {
	for _, bad := range []string{"1", "-"} {
		turns := []string{}
		for range 100 {
			turns = append(turns, "u: go on", "a: well; call "+bad+` f {\"path\":\"a/b\",\"text\":\"`+strings.Repeat(`one\\n`, 100)+`\"}`, "u: result "+bad+" x")
		}
		c := talk(turns...)
		b.Run(bad, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Mend()
			}
		})
	}
}
