package openai

import (
	"fmt"
	"strings"
	"testing"

	"weir/internal/llm"
)

// agentic is the body of a coding agent's request: a long prompt, tools, many turns with calls and results.
func agentic(size int) []byte {
	var b strings.Builder
	text := strings.Repeat(`The file \"main.go\" says:\n\tpackage main — été\n`, 8)
	b.WriteString(`{"model":"m","stream":true,"max_tokens":4096,"tools":[`)
	for i := range 20 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"type":"function","function":{"name":"tool_%d","description":"%s","parameters":{"type":"object","properties":{"path":{"type":"string"},"n":{"type":"integer"}},"required":["path"]}}}`, i, text)
	}
	fmt.Fprintf(&b, `],"messages":[{"role":"system","content":"%s"},{"role":"user","content":"%s"}`, strings.Repeat(text, 20), text)
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, `,{"role":"assistant","content":"I look at it.","tool_calls":[{"id":"call_%d","type":"function","function":{"name":"tool_1","arguments":"{\"path\":\"a/b/c.go\",\"n\":%d,\"text\":\"one\\ntwo\"}"}}]}`, i, i)
		fmt.Fprintf(&b, `,{"role":"tool","tool_call_id":"call_%d","content":"%s"}`, i, strings.Repeat(text, 4))
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

func BenchmarkRequest(b *testing.B) {
	body := agentic(131 << 10)
	t := &llm.Target{Model: "m", Quoted: []byte(`"m"`), Stream: true, Usage: true}
	out := make([]byte, 0, 2*len(body))
	decoded := func(b *testing.B) *llm.Request {
		r, err := Dialect{}.Decode(llm.Chat, body, 64)
		if err != nil {
			b.Fatal(err)
		}
		return r
	}
	b.Run("pass", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			r := decoded(b)
			e, err := Dialect{}.Edits(r, t)
			if err != nil {
				b.Fatal(err)
			}
			out = e.Apply(out[:0], r)
		}
	})
	b.Run("pass without a look at the history", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			r := decoded(b)
			r.Calls = false
			e, err := Dialect{}.Edits(r, t)
			if err != nil {
				b.Fatal(err)
			}
			out = e.Apply(out[:0], r)
		}
	})
	b.Run("translate", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			r := decoded(b)
			if _, _, err := carry(r, t); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkChunk(b *testing.B) {
	tool := delta(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":1}"}}]}`)
	for _, c := range []struct{ name, data string }{{"text", delta(`{"content":"word "}`)}, {"call", tool}} {
		f := llm.Frame{Data: []byte(c.data), Plain: true}
		open := llm.Frame{Data: []byte(delta(`{"tool_calls":[{"index":0,"id":"1","type":"function","function":{"name":"f","arguments":""}}]}`))}
		b.Run(c.name+"/translate", func(b *testing.B) {
			s, w := Dialect{}.Source(), Dialect{}.Writer(&llm.Request{Stream: true}, "m")
			if err := s.Event(&open, w.Put); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Event(&f, w.Put); err != nil {
					b.Fatal(err)
				}
				w.Take()
			}
		})
		b.Run(c.name+"/pass", func(b *testing.B) {
			s := Dialect{}.Stream(&llm.Request{Op: llm.Chat, Stream: true, Choices: 1}, "m")
			in := lines(string(open.Data), c.data)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Feed(copy(s.Space(), in[len(in)-len(lines(c.data)):])); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
