package responses

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
)

// deltas reads lines as heardDeltas writes them; usage has In, Out, Cached and Reasoning.
func deltas(t testing.TB, lines string) []*llm.Delta {
	t.Helper()
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	var out []*llm.Delta
	for line := range strings.Lines(lines) {
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		d := &llm.Delta{Text: llm.Text(rest)}
		f := strings.Fields(rest)
		switch word {
		case "start":
			*d = llm.Delta{Kind: llm.DeltaStart, ID: llm.Text(f[0]), Model: llm.Text(f[1])}
		case "text":
			d.Kind = llm.DeltaText
		case "thinking":
			d.Kind = llm.DeltaThinking
		case "refusal":
			d.Kind = llm.DeltaRefusal
		case "signature":
			d.Kind = llm.DeltaSignature
		case "sealed":
			*d = llm.Delta{Kind: llm.DeltaSealed, Name: llm.Text(f[0]), Text: llm.Text(f[1])}
		case "call", "custom":
			*d = llm.Delta{Kind: llm.DeltaCall, Call: number(f[0]), ID: llm.Text(f[1]), Name: llm.Text(f[2]), Custom: word == "custom"}
		case "input":
			n, text, _ := strings.Cut(rest, " ")
			*d = llm.Delta{Kind: llm.DeltaInput, Call: number(n), Text: llm.Text(text)}
		case "finish":
			stops := []string{"", "end", "sequence", "length", "window", "calls", "refused", "paused"}
			*d = llm.Delta{Kind: llm.DeltaFinish, Stop: llm.Stop(slices.Index(stops, rest))}
		case "usage":
			*d = llm.Delta{Kind: llm.DeltaUsage, Usage: llm.Usage{In: int64(number(f[0])), Out: int64(number(f[1])), Cached: int64(number(f[2])), Reasoning: int64(number(f[3])), Written: -1}}
		default:
			t.Fatalf("no delta: %q", line)
		}
		out = append(out, d)
	}
	return out
}

// written writes deltas as a stream, taken after each, and as one answer.
func written(t testing.TB, request string, list []*llm.Delta) (stream, whole string) {
	t.Helper()
	r := decode(t, request)
	r.Stream = true
	w := Dialect{}.Writer(r, "shown")
	clear(r.Body) // its memory is reused at the commit point
	for _, d := range list {
		w.Put(d)
		stream += string(w.Take())
	}
	stream += string(w.End())
	r = decode(t, request)
	r.Stream = false
	w = Dialect{}.Writer(r, "shown")
	clear(r.Body)
	for _, d := range list {
		w.Put(d)
	}
	return stream, string(w.End())
}

// TestWriter holds C034 and C067 and what else an answer can hold.
func TestWriter(t *testing.T) {
	golden(t, "writer", "want", func(t *testing.T, file func(string) string) string {
		stream, whole := written(t, file("request.json"), deltas(t, file("deltas")))
		checkStream(t, stream, true)
		terminal, ok := Terminal([]byte(stream))
		if !ok {
			t.Fatal("no end")
		}
		if d := cmp.Diff(plain(string(terminal)), plain(whole)); d != "" {
			t.Errorf("streamed and whole differ: %s", d)
		}
		return plain(stream) + plain(whole)
	})
}

// TestWriterC067 holds the order of the events, whatever the pieces are.
func TestWriterC067(t *testing.T) {
	for name, tc := range map[string]struct{ deltas, want string }{
		"text": {"text Hel\ntext lo\nfinish end\nusage 2 2 0 0\n",
			"created in_progress output_item.added content_part.added output_text.delta output_text.delta output_text.done content_part.done output_item.done completed"},
		"thinking, text and a call": {"start x up\nthinking hm\nsignature AAA=\ntext a\ncall 0 c f\ninput 0 {}\nfinish calls\n",
			"created in_progress output_item.added reasoning_summary_part.added reasoning_summary_text.delta reasoning_summary_text.done reasoning_summary_part.done output_item.done " +
				"output_item.added content_part.added output_text.delta output_text.done content_part.done output_item.done " +
				"output_item.added function_call_arguments.delta function_call_arguments.done output_item.done completed"},
		"a refusal behind text": {"text a\nrefusal b\nfinish refused\n",
			"created in_progress output_item.added content_part.added output_text.delta output_text.done content_part.done content_part.added refusal.delta refusal.done content_part.done output_item.done completed"},
		"a call of free text without any": {"custom 0 c f\nfinish calls\n",
			"created in_progress output_item.added custom_tool_call_input.done output_item.done completed"},
		"the limit":              {"text a\nfinish length\n", "created in_progress output_item.added content_part.added output_text.delta output_text.done content_part.done output_item.done incomplete"},
		"nothing":                {"finish end\n", "created in_progress completed"},
		"empty pieces":           {"text \nthinking \nfinish end\n", "created in_progress completed"},
		"a filter":               {"finish refused\n", "created in_progress incomplete"},
		"a seal of another kind": {"sealed redacted ZZ\nfinish end\n", "created in_progress completed"},
	} {
		t.Run(name, func(t *testing.T) {
			stream, _ := written(t, streaming, deltas(t, tc.deltas))
			got := strings.ReplaceAll(strings.Join(checkStream(t, stream, true), " "), "response.", "")
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestWriterC007(t *testing.T) {
	r := decode(t, streaming)
	w := Dialect{}.Writer(r, "shown")
	for _, d := range deltas(t, "thinking hm\ntext Par\n") {
		w.Put(d)
	}
	out := append([]byte(nil), w.Take()...)
	out = r.Broken.AppendBroken(out, &llm.Error{Kind: llm.Stalled, Msg: "the answer broke off"})
	names := checkStream(t, string(out), true)
	if got := names[len(names)-1]; got != "response.failed" {
		t.Errorf("ends with %s", got)
	}
	if !bytes.Contains(out, []byte(`"status":"failed","error":{"code":"server_error","message":"the answer broke off"}`)) {
		t.Errorf("got %s", out)
	}
}

// TestWriterStreamsCalls holds that the arguments of the call that is open go at once, and that the next waits for its end.
func TestWriterStreamsCalls(t *testing.T) {
	w := Dialect{}.Writer(decode(t, streaming), "shown")
	for _, step := range []struct {
		delta string
		has   []string
		lacks []string
	}{
		{"call 0 a f\n", []string{`"call_id":"a"`}, nil},
		{"call 1 b g\n", nil, []string{`"call_id":"b"`}},
		{"input 1 {}\n", nil, []string{"delta"}},
		{"input 0 {\\\"x\\\":\n", []string{`"delta":"{\"x\":"`}, []string{`"call_id":"b"`}},
		{"input 0 1}\n", []string{`"delta":"1}"`, `"arguments":"{\"x\":1}"`, `"call_id":"b"`, `"delta":"{}"`}, nil},
		{"text late\n", []string{`"delta":"late"`, `"arguments":"{}"`}, nil},
	} {
		for _, d := range deltas(t, step.delta) {
			w.Put(d)
		}
		out := string(w.Take())
		for _, s := range step.has {
			if !strings.Contains(out, s) {
				t.Errorf("after %q: %s lacks %s", step.delta, out, s)
			}
		}
		for _, s := range step.lacks {
			if strings.Contains(out, s) {
				t.Errorf("after %q: %s has %s", step.delta, out, s)
			}
		}
		if again := w.Take(); len(again) > 0 {
			t.Errorf("after %q: given twice: %s", step.delta, again)
		}
	}
}

func TestWriterEchoes(t *testing.T) {
	large := strings.Repeat("x", maxEcho)
	for name, tc := range map[string]struct {
		request     string
		want, never []string
	}{
		"the API's defaults": {waiting, []string{`"instructions":null,"max_output_tokens":null,"model":"shown"`, `"parallel_tool_calls":true,"previous_response_id":null`,
			`"reasoning":{"effort":null,"summary":null},"store":false,"temperature":1.0,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":1.0,"truncation":"disabled","metadata":{}`}, nil},
		"what the client sent": {`{"model":"m","input":"a","instructions":"be brief","tools":[{"type":"web_search"}],"temperature":0.50,"metadata":{"a":
"b"},"store":true}`,
			[]string{`"instructions":"be brief"`, `"tools":[{"type":"web_search"}]`, `"temperature":0.50`, `"metadata":{"a": "b"}`, `"store":false`}, nil},
		"nothing large": {`{"model":"m","input":"a","instructions":"` + large + `","tools":[{"type":"web_search"}]}`, []string{`"instructions":null`, `"tools":[]`}, []string{large}},
	} {
		t.Run(name, func(t *testing.T) {
			_, whole := written(t, tc.request, deltas(t, "finish end\n"))
			for _, s := range tc.want {
				if !strings.Contains(whole, s) {
					t.Errorf("%s lacks %s", whole, s)
				}
			}
			for _, s := range tc.never {
				if strings.Contains(whole, s) {
					t.Errorf("%.200s… has %.50s…", whole, s)
				}
			}
		})
	}
}

// What is kept here says so, whatever the client sent: the server decides.
func TestWriterSaysWhatIsKept(t *testing.T) {
	r := decode(t, waiting)
	r.Keeps, r.After = true, "resp_0"
	w := Dialect{}.Writer(r, "shown")
	w.Put(&llm.Delta{Kind: llm.DeltaFinish, Stop: llm.StopEnd})
	if got := string(w.End()); !strings.Contains(got, `"store":true`) || !strings.Contains(got, `"previous_response_id":"resp_0"`) {
		t.Errorf("got %s", got)
	}
}

// FuzzWriter holds that whatever the pieces are, in whatever order, a client gets a stream that keeps the protocol and
// says all of them, and that a client who waits gets the same.
func FuzzWriter(f *testing.F) {
	f.Add([]byte("tTrc0123i0i1f"))
	f.Add([]byte("ccci2i1i0tti0uf"))
	f.Add([]byte("CiixTsSttrrl"))
	f.Fuzz(func(t *testing.T, script []byte) { checkScript(t, script) })
}

// TestWriterTakesAnyOrder holds the same for scripts by chance, in which calls alternate.
func TestWriterTakesAnyOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		script := make([]byte, 2+r.IntN(30))
		for i := range script {
			script[i] = "tTrsSucCccfl012345678901234567890123456789"[r.IntN(42)]
		}
		if checkScript(t, script); t.Failed() {
			t.Fatalf("script %s", script)
		}
	}
}

func checkScript(t *testing.T, script []byte) {
	t.Helper()
	list, want := scripted(script)
	r := decode(t, streaming)
	w := Dialect{}.Writer(r, "shown")
	var stream []byte
	for i, d := range list {
		w.Put(d)
		if i%3 > 0 { // what is not taken waits
			stream = append(stream, w.Take()...)
		}
		if i == len(list)/2 {
			held := append(bytes.Clone(stream), bytes.Clone(w.Take())...)
			stream = append(stream[:0], held...)
			checkStream(t, string(r.Broken.AppendBroken(held, &llm.Error{Kind: llm.Stalled, Msg: "x"})), true)
		}
	}
	stream = append(append(stream, w.Take()...), w.End()...)
	checkStream(t, string(stream), true)
	answer, ok := Terminal(stream)
	if !ok {
		t.Fatalf("no end: %s", stream)
	}
	var got said
	if err := (Dialect{}).Source().Whole(answer, got.put); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got.told()); d != "" {
		t.Errorf("%s\n%s", answer, d)
	}
	var streamed said
	if err := hear(Dialect{}.Source(), string(stream), streamed.put); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, streamed.told()); d != "" {
		t.Errorf("%s\n%s", stream, d)
	}
}

// said gathers what an answer says.
type said struct {
	text, thinking, refusal string
	calls                   []string
}

func (s *said) put(d *llm.Delta) {
	switch d.Kind {
	case llm.DeltaText:
		s.text += string(d.Text)
	case llm.DeltaThinking:
		if string(d.Text) != paragraph {
			s.thinking += string(d.Text)
		}
	case llm.DeltaRefusal:
		s.refusal += string(d.Text)
	case llm.DeltaCall:
		s.calls = append(s.calls, string(d.Name)+" ")
	case llm.DeltaInput:
		s.calls[d.Call] += string(d.Text)
	}
}

// told returns what was said; calls in any order, as each has a name of its own.
func (s *said) told() [4]string {
	for i, c := range s.calls {
		if strings.HasSuffix(c, " ") && strings.HasPrefix(c, "f") {
			s.calls[i] += "{}" // no arguments are empty ones
		}
	}
	slices.Sort(s.calls)
	return [4]string{s.text, s.thinking, s.refusal, strings.Join(s.calls, "\n")}
}

// scripted makes deltas of letters. A call's arguments come whole before its next piece is dropped: what follows a whole
// object is nothing that a server sends.
func scripted(script []byte) ([]*llm.Delta, [4]string) {
	var list []*llm.Delta
	var s said
	var names []bool // of calls: custom
	ended := map[int]bool{}
	put := func(d llm.Delta) {
		list = append(list, &d)
		s.put(&d)
	}
	for i, b := range script {
		n := llm.Text(strconv.Itoa(i))
		switch b {
		case 't':
			put(llm.Delta{Kind: llm.DeltaText, Text: n})
		case 'T':
			put(llm.Delta{Kind: llm.DeltaThinking, Text: n})
		case 'r':
			put(llm.Delta{Kind: llm.DeltaRefusal, Text: n})
		case 's':
			put(llm.Delta{Kind: llm.DeltaSealed, Name: llm.Text("encrypted"), Text: n})
		case 'S':
			put(llm.Delta{Kind: llm.DeltaStart, Model: n})
		case 'u':
			put(llm.Delta{Kind: llm.DeltaUsage, Usage: llm.Usage{In: int64(i), Out: -1}})
		case 'c', 'C':
			name := "f"
			if b == 'C' {
				name = "C"
			}
			put(llm.Delta{Kind: llm.DeltaCall, Call: len(names), Name: llm.Text(name + string(n)), Custom: b == 'C'})
			names = append(names, b == 'C')
		case 'f':
			put(llm.Delta{Kind: llm.DeltaFinish, Stop: llm.StopEnd})
		case 'l':
			put(llm.Delta{Kind: llm.DeltaFinish, Stop: llm.StopLength})
		default:
			if len(names) == 0 {
				continue
			}
			k := int(b>>1) % len(names)
			if ended[k] {
				continue
			}
			text := llm.Text(`{\"a\":\"}\\\"\",\"b\":[`)
			if b&1 == 1 && !names[k] {
				ended[k] = true
				text = llm.Text(`{}`)
				if n := strings.Count(s.calls[k], `b\":[`); n > 0 {
					text = llm.Text(strings.Repeat("]}", n))
				}
			}
			put(llm.Delta{Kind: llm.DeltaInput, Call: k, Text: text})
		}
	}
	return list, s.told()
}
