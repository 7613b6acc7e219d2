package anthropic

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"weir/internal/llm"
)

var deltaNames = map[llm.DeltaKind]string{
	llm.DeltaStart: "start", llm.DeltaText: "text", llm.DeltaThinking: "thinking", llm.DeltaSignature: "signature",
	llm.DeltaSealed: "sealed", llm.DeltaRefusal: "refusal", llm.DeltaCall: "call", llm.DeltaInput: "input",
	llm.DeltaFinish: "finish", llm.DeltaUsage: "usage", llm.DeltaDone: "done",
}

var stopNames = []string{"", "end", "sequence", "length", "window", "calls", "refused", "paused"}

// line writes a delta as the golden files have it: its kind, then its fields.
func line(d *llm.Delta) string {
	s := deltaNames[d.Kind]
	switch d.Kind {
	case llm.DeltaStart:
		return fmt.Sprintf("%s %s %s", s, d.ID, d.Model)
	case llm.DeltaSealed:
		return fmt.Sprintf("%s %s %s", s, d.Name, d.Text)
	case llm.DeltaCall:
		return fmt.Sprintf("%s %d %s %s", s, d.Call, d.ID, d.Name)
	case llm.DeltaInput:
		return fmt.Sprintf("%s %d %s", s, d.Call, d.Text)
	case llm.DeltaFinish:
		return strings.TrimRight(fmt.Sprintf("%s %s %s", s, stopNames[d.Stop], d.Sequence), " ")
	case llm.DeltaUsage:
		u := d.Usage
		return fmt.Sprintf("%s %d %d %d %d %d", s, u.In, u.Out, u.Cached, u.Reasoning, u.Written)
	case llm.DeltaDone:
		return s
	}
	return s + " " + string(d.Text)
}

// deltas reads lines as line writes them.
func deltas(t testing.TB, lines string) (list []llm.Delta) {
	t.Helper()
	for l := range strings.SplitSeq(lines, "\n") {
		if l == "" {
			continue
		}
		name, rest, _ := strings.Cut(l, " ")
		first, second, _ := strings.Cut(rest, " ")
		var d llm.Delta
		for k, n := range deltaNames {
			if n == name {
				d.Kind = k
			}
		}
		switch name {
		case "start":
			d.ID, d.Model = llm.Text(first), llm.Text(second)
		case "sealed":
			d.Name, d.Text = llm.Text(first), llm.Text(second)
		case "call":
			id, tool, _ := strings.Cut(second, " ")
			d.Call, d.ID, d.Name = number(t, first), llm.Text(id), llm.Text(tool)
		case "input":
			d.Call, d.Text = number(t, first), llm.Text(second)
		case "finish":
			for i, n := range stopNames {
				if n == first {
					d.Stop = llm.Stop(i)
				}
			}
			d.Sequence = llm.Text(second)
		case "usage":
			f := strings.Fields(rest)
			d.Usage = llm.Usage{In: int64(number(t, f[0])), Out: int64(number(t, f[1])), Cached: int64(number(t, f[2])),
				Reasoning: int64(number(t, f[3])), Written: int64(number(t, f[4]))}
		default:
			d.Text = llm.Text(rest)
		}
		list = append(list, d)
	}
	return list
}

func number(t testing.TB, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
