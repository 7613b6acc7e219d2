package responses

import (
	"strings"
	"testing"

	"weir/internal/llm"
)

// large is a request of about 131 KB as a coding agent sends it: half of it tools, half turns with calls and results.
func large() string {
	var b strings.Builder
	b.WriteString(`{"model":"coder","instructions":"You are a coding agent.","stream":true,"store":false,"tool_choice":"auto","parallel_tool_calls":true,"tools":[`)
	for i := range 24 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"type":"function","name":"tool_` + string(rune('a'+i)) + `","description":"` + strings.Repeat(`Says what it does, \"at length\".\n`, 45) +
			`","strict":false,"parameters":{"type":"object","properties":{` + strings.Repeat(`"path":{"type":"string","description":"of a file"},`, 12) + `"x":{"type":"number"}},"required":["x"]}}`)
	}
	b.WriteString(`],"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"go on"}]}`)
	for b.Len() < 131<<10 {
		b.WriteString(`,{"type":"reasoning","summary":[{"type":"summary_text","text":"I should look at it."}],"encrypted_content":"` + strings.Repeat("Z", 200) + `"}` +
			`,{"type":"message","role":"assistant","content":[{"type":"output_text","text":"` + strings.Repeat("Let me look. ", 10) + `"}]}` +
			`,{"type":"function_call","id":"fc_1","call_id":"call_1","name":"tool_a","arguments":"{\"path\":\"/tmp/a\"}","status":"completed"}` +
			`,{"type":"function_call_output","call_id":"call_1","output":"` + strings.Repeat(`line of a file\n`, 120) + `"}`)
	}
	b.WriteString(`]}`)
	return b.String()
}

func BenchmarkPass(b *testing.B) {
	body, tg := []byte(large()), target()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		r, err := Dialect{}.Decode(llm.Chat, body, 100)
		if err != nil {
			b.Fatal(err)
		}
		r.Calls = false // without the look at the history, which both have
		e, err := Dialect{}.Edits(r, tg)
		if err != nil {
			b.Fatal(err)
		}
		_ = e.Apply(nil, r)
	}
}

// BenchmarkPassMend is passing on with the look at the history.
func BenchmarkPassMend(b *testing.B) {
	body, tg := []byte(large()), target()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		r, err := Dialect{}.Decode(llm.Chat, body, 100)
		if err != nil {
			b.Fatal(err)
		}
		e, err := Dialect{}.Edits(r, tg)
		if err != nil {
			b.Fatal(err)
		}
		_ = e.Apply(nil, r)
	}
}

func BenchmarkTranslate(b *testing.B) {
	body, tg := []byte(large()), target()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		r, err := Dialect{}.Decode(llm.Chat, body, 100)
		if err != nil {
			b.Fatal(err)
		}
		c, err := Dialect{}.Conversation(r)
		if err != nil {
			b.Fatal(err)
		}
		c.Mend()
		if _, err := (Dialect{}).Compose(c, r, tg); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWriterChunk(b *testing.B) {
	r := decode(b, streaming)
	w := Dialect{}.Writer(r, "shown")
	d := &llm.Delta{Kind: llm.DeltaText, Text: llm.Text("some words ")}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%10000 == 0 {
			w = Dialect{}.Writer(r, "shown")
		}
		w.Put(d)
		if len(w.Take()) == 0 {
			b.Fatal("nothing to send")
		}
	}
}

const chunk = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":99999999,\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\"delta\":\"some words \",\"logprobs\":[]}\n\n"

func BenchmarkSourceChunk(b *testing.B) {
	src := Dialect{}.Source()
	data := []byte(strings.TrimSpace(chunk[strings.Index(chunk, "data: ")+6:]))
	f := &llm.Frame{Data: data, Name: []byte("response.output_text.delta"), Plain: true}
	b.ReportAllocs()
	for b.Loop() {
		if err := src.Event(f, func(*llm.Delta) {}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPassChunk(b *testing.B) {
	var s llm.Stream
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%10000 == 0 {
			s = Dialect{}.Stream(decode(b, streaming), "shown")
		}
		n := copy(s.Space(), chunk)
		if _, err := s.Feed(n); err != nil {
			b.Fatal(err)
		}
	}
}
