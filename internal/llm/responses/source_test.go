package responses

import (
	"fmt"
	"strings"
	"testing"

	"weir/internal/llm"
)

// heardDeltas writes deltas as lines.
type heardDeltas struct{ strings.Builder }

func (h *heardDeltas) put(d *llm.Delta) {
	names := [...]string{"", "start", "text", "thinking", "signature", "sealed", "refusal", "call", "input", "finish", "usage", "done"}
	stops := [...]string{"", "end", "sequence", "length", "window", "calls", "refused", "paused"}
	fmt.Fprintf(h, "%s", names[d.Kind])
	switch d.Kind {
	case llm.DeltaCall, llm.DeltaInput:
		fmt.Fprintf(h, " %d", d.Call)
	case llm.DeltaUsage:
		fmt.Fprintf(h, " %+v", d.Usage)
	case llm.DeltaFinish:
		fmt.Fprintf(h, " %s", stops[d.Stop])
	}
	for _, t := range []llm.Text{d.ID, d.Name, d.Model, d.Text} {
		if len(t) > 0 {
			fmt.Fprintf(h, " %s", t)
		}
	}
	if d.Custom {
		h.WriteString(" custom")
	}
	h.WriteByte('\n')
}

// hear reads a stream as deltas.
func hear(src llm.Source, upstream string, put func(*llm.Delta)) error {
	var frames llm.Frames
	for len(upstream) > 0 {
		n := copy(frames.Space(), upstream)
		upstream = upstream[n:]
		frames.Took(n)
		for {
			f, ok := frames.Next()
			if !ok {
				break
			}
			if err := src.Event(&f, put); err != nil {
				return err
			}
		}
	}
	if f, ok := frames.Rest(); ok && llm.IsObject(f.Data) {
		return src.Event(&f, put)
	}
	return nil
}

// TestSource holds C034, C073 and what else servers leave out or say twice.
func TestSource(t *testing.T) {
	golden(t, "source", "want", func(t *testing.T, file func(string) string) string {
		var h heardDeltas
		err := hear(Dialect{}.Source(), strings.TrimSuffix(file("upstream"), "<cut>\n"), h.put)
		return h.String() + strings.SplitAfterN(told("", err, &llm.Seen{}, &llm.Request{}), "\n", 3)[2]
	})
}

func TestSourceWhole(t *testing.T) {
	for name, tc := range map[string]struct{ body, want string }{
		"an answer": {`{"id":"r","model":"up","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"hi"}]},{"type":"custom_tool_call","call_id":"c","name":"f","input":"x"}],"usage":{"input_tokens":1}}`,
			"start r up\ntext hi\ncall 0 c f custom\ninput 0 x\nusage {In:1 Out:-1 Cached:-1 Reasoning:-1 Written:-1}\nfinish calls\n"},
		"arguments that are an object": {`{"status":"completed","output":[{"type":"function_call","call_id":"c","name":"f","arguments":{"a":"b"}}]}`,
			"start\ncall 0 c f\ninput 0 {\\\"a\\\":\\\"b\\\"}\nfinish calls\n"},
		"nothing": {`{"status":"completed","output":[]}`, "start\nfinish end\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var h heardDeltas
			if err := (Dialect{}).Source().Whole([]byte(tc.body), h.put); err != nil {
				t.Fatal(err)
			}
			if h.String() != tc.want {
				t.Errorf("got\n%s\nwant\n%s", h.String(), tc.want)
			}
		})
	}
	for _, bad := range []string{``, `{}`, `{"status":"failed","output":[]}`, `{"error":{"message":"x"}}`} {
		if err := (Dialect{}).Source().Whole([]byte(bad), func(*llm.Delta) {}); err == nil {
			t.Errorf("took %q", bad)
		}
	}
}

// FuzzSource holds that no stream breaks the reader or the stream of the same dialect: texts are insides of strings,
// inputs belong to calls that have begun, and a client gets whole events.
func FuzzSource(f *testing.F) {
	f.Add("data: {\"type\":\"response.output_text.delta\",\"delta\":\"abc\"}\n\ndata: {\"type\":\"response.incomplete\",\"response\":{}}\n\n")
	f.Add("event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"item\":{\"type\":\"function_call\",\"name\":\"f\"}}\n\ndata: {\"type\":\"response.function_call_arguments.delta\",\"delta\":\"{\"}\n\n")
	f.Add("data: {\"type\":\"response.output_item.done\",\"output_index\":3,\"item\":{}}\n\ndata: {\"type\":\"response.completed\",\"response\":{ }}\n\n")
	f.Add("data: {\"error\":{\"message\":\"x\"}}\n\n")
	f.Add("event: response.completed\ndata: {}\n\n")
	f.Fuzz(func(t *testing.T, upstream string) {
		begun := 0
		_ = hear(Dialect{}.Source(), upstream, func(d *llm.Delta) {
			for _, text := range []llm.Text{d.Text, d.ID, d.Name, d.Model} {
				if !llm.IsJSON([]byte(`"` + string(text) + `"`)) {
					t.Errorf("no inside of a string: %q", text)
				}
			}
			switch d.Kind {
			case llm.DeltaCall:
				if d.Call != begun {
					t.Errorf("call %d began after %d others", d.Call, begun)
				}
				begun++
			case llm.DeltaInput:
				if d.Call < 0 || d.Call >= begun {
					t.Errorf("input of call %d of %d", d.Call, begun)
				}
			}
		})
		r := decode(t, streaming)
		s := Dialect{}.Stream(r, "m")
		out, err := feed(s, upstream, 0)
		if err != nil && s.Seen().Content {
			out += string(r.Broken.AppendBroken(nil, llm.AsError(err)))
		}
		for _, e := range strings.Split(out, "\n\n") {
			if _, data, ok := strings.Cut(e, "data: "); ok && strings.HasPrefix(e, "event: ") && !llm.IsObject([]byte(data)) {
				t.Errorf("from %q: no whole event: %q", upstream, e)
			}
		}
		waits := Dialect{}.Stream(decode(t, waiting), "m")
		if out, err := feed(waits, upstream, 0); err == nil && !llm.IsObject([]byte(out)) {
			t.Errorf("from %q: no whole answer: %q", upstream, out)
		}
	})
}
