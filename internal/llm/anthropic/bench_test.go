package anthropic

import (
	"fmt"
	"strings"
	"testing"

	"weir/internal/llm"
)

// large is an agent's request of 131 KB: a system prompt, tools, and a history of calls and results.
func large() []byte {
	var b strings.Builder
	b.WriteString(`{"model":"m","max_tokens":64000,"stream":true,"system":[{"type":"text","text":"` + strings.Repeat("You are an agent.\\n", 600) + `","cache_control":{"type":"ephemeral"}}],"tools":[`)
	for i := range 24 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":"tool_%d","description":"%s","input_schema":{"type":"object","properties":{"path":{"type":"string","description":"a path"}},"required":["path"]}}`, i, strings.Repeat("does things. ", 60))
	}
	b.WriteString(`],"messages":[{"role":"user","content":"go"}`)
	for i := 0; b.Len() < 131<<10; i++ {
		fmt.Fprintf(&b, `,{"role":"assistant","content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"toolu_%d","name":"tool_1","input":{"path":"src/file_%d.go"}}]}`, i, i)
		fmt.Fprintf(&b, `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_%d","content":"%s"}]}`, i, strings.Repeat(`\tif err != nil {\n\t\treturn fmt.Errorf(\"x: %w\", err)\n\t}\n`, 30))
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

func BenchmarkDecode131K(b *testing.B) {
	body := large()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (Dialect{}).Decode(llm.Chat, body, 512); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPass131K is what passing on costs: the measure of BenchmarkTranslate131K.
func BenchmarkPass131K(b *testing.B) {
	body := large()
	dst := make([]byte, 0, 2*len(body))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		r := decode(b, string(body))
		e, err := Dialect{}.Edits(r, target())
		if err != nil {
			b.Fatal(err)
		}
		dst = e.Apply(dst[:0], r)
	}
}

// BenchmarkTranslate131K reads a request and writes it anew: the dearer half of each direction at once.
func BenchmarkTranslate131K(b *testing.B) {
	body := large()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		r := decode(b, string(body))
		c, err := Dialect{}.Conversation(r)
		if err != nil {
			b.Fatal(err)
		}
		c.Mend()
		r.Dialect = "openai"
		if _, err := (Dialect{}).Compose(c, r, target()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkConversation131K(b *testing.B) {
	r := decode(b, string(large()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (Dialect{}).Conversation(r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompose131K(b *testing.B) {
	r := decode(b, string(large()))
	c, err := Dialect{}.Conversation(r)
	if err != nil {
		b.Fatal(err)
	}
	r.Dialect = "openai"
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (Dialect{}).Compose(c, r, target()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWriterChunk(b *testing.B) {
	w := Dialect{}.Writer(&llm.Request{Stream: true}, "m")
	d := &llm.Delta{Kind: llm.DeltaText, Text: llm.Text(" token\\n")}
	b.ReportAllocs()
	for b.Loop() {
		w.Put(d)
		w.Take()
	}
}

func BenchmarkSourceChunk(b *testing.B) {
	s := Dialect{}.Source()
	f := &llm.Frame{Data: []byte(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" token\n"}}`)}
	put := func(*llm.Delta) {}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Event(f, put); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPassingChunk(b *testing.B) {
	s := streaming(true)
	feedOne := func(p string) {
		if _, err := s.Feed(copy(s.Space(), p)); err != nil {
			b.Fatal(err)
		}
	}
	feedOne(evStart + evBlock)
	chunk := evText(" token")
	b.ReportAllocs()
	for b.Loop() {
		feedOne(chunk)
	}
}
