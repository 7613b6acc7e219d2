package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// wholeStream is what the mock sends for n chunks.
func wholeStream(n int) []byte {
	f := newFrames(modelPlain)
	out := f.appendRole(nil)
	for i := range n {
		out = f.appendContent(out, i)
	}
	return f.appendEnd(out, n, true)
}

func TestEventsAcceptAWholeStreamCutAnywhere(t *testing.T) {
	const n = 3
	stream := append([]byte(": a comment\n\n"), wholeStream(n)...)
	for _, raw := range [][]byte{stream, bytes.ReplaceAll(stream, []byte("\n"), []byte("\r\n"))} {
		for i := range raw {
			var e events
			e.feed(raw[:i])
			e.feed(raw[i:])
			if err := e.verdict(n); err != nil {
				t.Fatalf("cut at %d: %v", i, err)
			}
		}
	}
}

func TestEventsSeeEveryFault(t *testing.T) {
	const n = 5
	whole := string(wholeStream(n))
	lines := strings.SplitAfter(whole, "\n\n") // role, five parts, finish, usage, [DONE]
	without := func(drop int) string {
		return strings.Join(append(append([]string(nil), lines[:drop]...), lines[drop+1:]...), "")
	}
	tests := []struct {
		name, raw string
		want      error
	}{
		{"nothing", "", errBroken},
		{"no [DONE]", strings.TrimSuffix(whole, "data: [DONE]\n\n"), errBroken},
		{"a cut line", whole[:len(whole)-4], errBroken},
		{"an error object instead of the end", strings.Join(lines[:3], "") + `data: {"error":{"message":"upstream died"}}` + "\n\n", errBroken},
		{"a lost chunk in the middle", without(3), errBroken},
		{"a doubled chunk", strings.Join(lines[:3], "") + lines[2] + strings.Join(lines[3:], ""), errBroken},
		{"swapped chunks", lines[0] + lines[2] + lines[1] + strings.Join(lines[3:], ""), errBroken},
		{"data after [DONE]", whole + lines[1], errBroken},
		{"a line that is no data", "HTTP/1.1 502\n" + whole, errBroken},
		{"the last chunk lost", without(5), errShort},
		{"the finish lost", without(6), errShort},
		{"the usage lost", without(7), errShort},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var e events
			e.feed([]byte(tt.raw))
			if got := e.verdict(n); !errors.Is(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestCheckAnswerComparesBytes(t *testing.T) {
	check := checkAnswer(modelPlain, false)
	whole := answer(modelPlain)
	if err := errors.Join(check(whole), checkJSON(whole)); err != nil {
		t.Errorf("the mock's own answer is refused: %v", err)
	}
	for _, bad := range [][]byte{nil, whole[:len(whole)-1], append(bytes.Clone(whole), ' '), bytes.Replace(whole, []byte("gateway"), []byte("Gateway"), 1)} {
		if check(bad) == nil {
			t.Errorf("accepted %.60q", bad)
		}
	}
}

func TestCheckAnswerWantsTheWholeTextAssembled(t *testing.T) {
	check := checkAnswer("bench-3x0s", true)
	const good = `{"object":"chat.completion","choices":[{"message":{"role":"assistant","content":" part-0000 part-0001 part-0002"},"finish_reason":"stop"}],"usage":{"completion_tokens":3}}`
	if err := errors.Join(check([]byte(good)), checkJSON([]byte(good))); err != nil {
		t.Errorf("a good answer is refused: %v", err)
	}
	for _, cut := range []string{" part-0001", `"completion_tokens":3`, `"finish_reason":"stop"`} {
		if check([]byte(strings.Replace(good, cut, "", 1))) == nil {
			t.Errorf("accepted without %s", cut)
		}
	}
	for _, bad := range []string{"", "{", `{"object":"error"}`, `{"object":"chat.completion","choices":[]}`} {
		if checkJSON([]byte(bad)) == nil {
			t.Errorf("checkJSON accepted %q", bad)
		}
	}
}
