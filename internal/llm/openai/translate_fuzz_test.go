package openai

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rogpeppe/go-internal/txtar"

	"weir/internal/llm"
)

// meaning makes two conversations that say the same look the same: where things stand, how arguments are kept, and which
// of two names a spelling took is not part of it.
func meaning(c *llm.Conversation) *llm.Conversation {
	m := *c
	m.Turns, m.Lost = nil, nil
	for _, t := range c.Turns {
		t.N, t.At, t.Mended = 0, llm.Span{}, false
		t.Parts = told(t.Parts)
		last := len(m.Turns) - 1
		if len(t.Parts) == 0 {
			continue
		}
		if last >= 0 && t.Role == llm.Assistant && m.Turns[last].Role == t.Role {
			m.Turns[last].Parts = append(m.Turns[last].Parts, t.Parts...)
			continue
		}
		m.Turns = append(m.Turns, t)
	}
	for i := range m.Turns { // words, then calls
		var said llm.Text
		var rest []llm.Part
		for _, p := range m.Turns[i].Parts {
			if p.Kind == llm.PartText && m.Turns[i].Role == llm.Assistant {
				said = append(said, p.Text...)
			} else {
				rest = append(rest, p)
			}
		}
		if m.Turns[i].Role == llm.Assistant {
			m.Turns[i].Parts = append([]llm.Part{{Kind: llm.PartText, Text: said}}, rest...)
		}
	}
	return &m
}

// told are the parts without what another server is not told, texts that stand together as one.
func told(parts []llm.Part) (out []llm.Part) {
	for _, p := range parts {
		p.At, p.Cache, p.Signature = llm.Span{}, nil, nil
		switch p.Kind {
		case llm.PartThinking:
			continue
		case llm.PartCall:
			if p.Custom {
				p.Custom, p.Input = false, llm.Input{Spelt: llm.AppendEscaped(nil, append(quoted([]byte(`{"input":`), p.Input.Spelt), '}'))}
			}
			p.Input = llm.Input{Spelt: p.Input.AppendSpelt(nil)}
		case llm.PartResult:
			p.Name = nil
			p.Parts = told(p.Parts)
		case llm.PartRefusal:
			p.Kind = llm.PartText
		case llm.PartImage:
			p.Media = assumed(p.Data, p.Media, "image/png")
		case llm.PartDocument:
			p.Media = assumed(p.Data, p.Media, "application/pdf")
			if len(p.FileID) > 0 { // which says it all
				p = llm.Part{Kind: p.Kind, FileID: p.FileID}
			} else {
				p.Name = assumed(llm.Text("x"), p.Name, "document.pdf")
			}
		}
		if last := len(out) - 1; last >= 0 && p.Kind == llm.PartText && out[last].Kind == p.Kind {
			out[last].Text = append(append(bytes.Clone(out[last].Text), gap...), p.Text...)
			continue
		}
		out = append(out, p)
	}
	return out
}

// assumed is what is written where a name or a media type is missing beside data.
func assumed(data, t llm.Text, otherwise string) llm.Text {
	if len(t) == 0 && len(data) > 0 {
		return llm.Text(otherwise)
	}
	return t
}

// FuzzConversation: a request that is read is written as JSON that is read again and says the same.
func FuzzConversation(f *testing.F) {
	files, _ := filepath.Glob("testdata/compose/*.txtar")
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(oneLine(a.Files[0].Data)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := Dialect{}.Decode(llm.Chat, bytes.Clone(body), 64)
		if err != nil {
			return
		}
		before := bytes.Clone(r.Body)
		if e, err := (Dialect{}).Edits(r, &llm.Target{Quoted: []byte(`"m"`), NullContent: "omit", Developer: "system"}); err == nil {
			if out := e.Apply(nil, r); !json.Valid(out) {
				t.Fatalf("the edits made no JSON of it: %s", out)
			}
		}
		out, c, err := carry(r, &llm.Target{Model: "m", Quoted: []byte(`"m"`)})
		if err != nil {
			_ = refusal(t, err)
			return
		}
		if !bytes.Equal(before, r.Body) {
			t.Fatal("the client's bytes were changed")
		}
		again, err := Dialect{}.Decode(llm.Chat, out, 128)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if notes := mended(again).Notes; notes != nil {
			t.Fatalf("not mended: %q: %s", notes, out)
		}
		next, err := Dialect{}.Conversation(again)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if diff := cmp.Diff(meaning(c).Turns, meaning(next).Turns, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("another meaning (-before +after):\n%s\n%s", diff, out)
		}
	})
}

// FuzzSource: whatever a server sends, the deltas are in order and their texts are the inside of JSON strings.
func FuzzSource(f *testing.F) {
	for _, s := range streams {
		f.Add([]byte(s.in))
	}
	f.Add([]byte(lines(bare(`{"reasoning":"a","tool_calls":[{"id":"a","custom":{"name":"c","input":"x"}}]}`, `"stop"`), usage)))
	f.Fuzz(func(t *testing.T, in []byte) {
		calls := 0
		put := func(d *llm.Delta) {
			if s := quoted(nil, d.Text); !json.Valid(s) {
				t.Fatalf("no inside of a string: %s", s)
			}
			switch d.Kind {
			case llm.DeltaCall:
				if d.Call != calls || len(d.ID) == 0 || len(d.Name) == 0 {
					t.Fatalf("call %d of %d, %q, %q", d.Call, calls, d.ID, d.Name)
				}
				calls++
			case llm.DeltaInput:
				if d.Call >= calls {
					t.Fatalf("input of call %d, of %d", d.Call, calls)
				}
			}
		}
		s := Dialect{}.Source()
		var frames llm.Frames
		for rest := in; len(rest) > 0; {
			room := frames.Space()
			if room == nil {
				return
			}
			n := copy(room, rest)
			rest = rest[n:]
			frames.Took(n)
			for {
				e, ok := frames.Next()
				if !ok {
					break
				}
				if !e.Empty && s.Event(&e, put) != nil {
					return
				}
			}
		}
		calls = 0
		_ = Dialect{}.Source().Whole(in, put)
	})
}

// FuzzWriter: of any deltas the client gets JSON, in chunks and whole.
func FuzzWriter(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 10, 11}, "text", true)
	f.Add([]byte{7, 7, 8, 0, 8, 1, 9}, `{\"a\":1}`, false)
	f.Fuzz(func(t *testing.T, kinds []byte, text string, old bool) {
		in := llm.Escaped(text)
		for _, streams := range []bool{true, false} {
			w := Dialect{}.Writer(&llm.Request{Stream: streams, IncludeUsage: old}, text)
			w.(*writer).old = old
			var out []byte
			calls := 0
			for _, k := range kinds {
				d := llm.Delta{Kind: llm.DeltaKind(k%12 + 1), Text: in, ID: in, Name: in, Custom: k&16 != 0, Stop: llm.Stop(k % 9), Call: int(k >> 4)}
				if d.Kind == llm.DeltaCall {
					d.Call = calls
					calls++
				}
				w.Put(&d)
				if streams {
					out = append(out, w.Take()...)
				}
			}
			out = append(out, w.End()...)
			if !streams {
				if !json.Valid(out) {
					t.Fatalf("no JSON: %s", out)
				}
				continue
			}
			if !bytes.HasSuffix(out, []byte("data: [DONE]\n\n")) {
				t.Fatalf("no end: %s", out)
			}
			for e := range bytes.SplitSeq(bytes.TrimSuffix(out, []byte("data: [DONE]\n\n")), []byte("\n\n")) {
				if data, ok := bytes.CutPrefix(e, []byte("data: ")); len(e) > 0 && (!ok || !json.Valid(data)) {
					t.Fatalf("no chunk: %s", e)
				}
			}
		}
	})
}
