package app

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/sim"
)

// F27 through the whole gateway: however a stream is framed and however its bytes are sliced, down to one a write, text,
// reasoning, calls and finish are the same, streamed and assembled.
func TestF27FramingAndSlicing(t *testing.T) {
	b := sim.Behaviour{Reasoning: "über — 北", Calls: []sim.Call{{Name: "find", Arguments: `{"q":"🌍 \"x\"\n","n":[1,2]}`}},
		Tool: "text_and_call", Text: "grüße 北京 🌍 \u2028 data: x\n\nid: 1 \"end\""}
	type view struct {
		Text, Reasoning, Finish string
		Calls                   map[int]string
	}
	ask := func(t *testing.T, g *gateway, b sim.Behaviour, stream bool) view {
		t.Helper()
		if err := g.sim().Set("oai-m", b); err != nil {
			t.Fatal(err)
		}
		g.sim().Reset()
		s := g.chat(stream, `"tools":[{"type":"function","function":{"name":"find"}}]`).said()
		if s.failure != nil {
			t.Fatalf("failed: %+v", s.failure)
		}
		// The simulated server numbers its calls; the number is no part of the framing.
		for i, c := range s.calls {
			_, s.calls[i], _ = strings.Cut(c, " ")
		}
		return view{s.texts[0], s.reasoning[0], s.finish[0], s.calls}
	}
	for _, k := range kindsOfAnswer[:2] {
		t.Run(k.name, func(t *testing.T) {
			g := begin(t, setup{yaml: k.yaml, sims: oai(b)})
			want := ask(t, g, b, k.stream)
			if want.Text != b.Text || want.Reasoning != b.Reasoning || want.Calls[0] != "find"+b.Calls[0].Arguments {
				t.Fatalf("unsliced: %+v", want)
			}
			for _, sse := range framings() {
				for _, slice := range []int{1, 5} {
					b.SSE, b.Slice = sse, slice
					if diff := cmp.Diff(want, ask(t, g, b, k.stream)); diff != "" {
						t.Fatalf("%+v in slices of %d:\n%s", sse, slice, diff)
					}
				}
			}
		})
	}
}

// framings are all ways in which the simulated server frames a stream that has everything.
func framings() (list []sim.SSE) {
	for _, end := range []string{"lf", "cr", "crlf", "mixed"} {
		for n := range 16 {
			list = append(list, sim.SSE{LineEnd: end, BOM: n&1 > 0, Comments: n&2 > 0, Multiline: n&4 > 0, NoSpace: n&8 > 0})
		}
		list = append(list, sim.SSE{LineEnd: end, OpenEnd: true}, sim.SSE{LineEnd: end, NoDone: true}, sim.SSE{LineEnd: end, OneBlob: true}, sim.SSE{LineEnd: end, AfterDone: true})
	}
	return list
}
