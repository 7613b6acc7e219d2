package llm

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// scanned makes a request of a body as the dialects do.
func scanned(t testing.TB, body string) *Request {
	t.Helper()
	r := &Request{Op: Chat, Body: []byte(body)}
	s := NewScanner(r.Body, 64)
	s.Note(&r.Long)
	err := s.Members(func(name []byte) error {
		at, err := s.Value()
		r.Members = append(r.Members, Member{Name: name, Value: at})
		if n := string(name); n == "messages" || n == "input" {
			r.MessagesAt = at
		}
		return err
	})
	if err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return r
}

// turns are two turns of one conversation each, as clients of the three APIs send them.
var turns = []struct{ name, first, later string }{
	{
		"openai: answers and tool results follow",
		`{"model":"m","messages":[{"role":"system","content":"S"},{"role":"user","content":"hello"}]}`,
		`{"stream":true,"messages":[{"role":"system","content":"S"},{"role":"user","content":"hello"},{"role":"assistant","content":null,"tool_calls":[]},{"role":"tool","content":"x"},{"role":"user","content":"more"}],"model":"n"}`,
	},
	{
		"openai: a developer's message, content before role, and parts in place of a string",
		`{"messages":[{"role":"developer","content":"S"},{"content":"hello","role":"user"}]}`,
		`{"messages":[{"role":"developer","content":[{"text":"S","type":"text"}]},{"role":"user","content":[{"type":"text","text":"hello"}]},{"role":"assistant","content":"hi"},{"role":"developer","content":"late"},{"role":"user","content":"2"}]}`,
	},
	{
		"anthropic: the mark for the cache moves, and system stands behind messages",
		`{"system":[{"type":"text","text":"S","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"type":"ephemeral"}}]}]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"system","content":"agents"},{"role":"assistant","content":"x"},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r","cache_control":{"type":"ephemeral"}}]}],"system":[{"type":"text","text":"S","cache_control":{"type":"ephemeral"}}]}`,
	},
	{
		"anthropic: the attribution line of Claude Code changes in its block",
		`{"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=1; cc_entrypoint=cli;"},{"type":"text","text":"S"}],"messages":[{"role":"user","content":"a"}]}`,
		`{"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2; cc_entrypoint=sdk-cli;"},{"type":"text","text":"S"}],"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}`,
	},
	{
		"anthropic: the attribution line of Claude Code changes in a string",
		`{"system":"x-anthropic-billing-header: cc_version=1;\n\nS","messages":[{"role":"user","content":"a"}]}`,
		`{"system":"x-anthropic-billing-header: cc_version=2;\nS","messages":[{"role":"user","content":"a"}]}`,
	},
	{
		"anthropic: an image stays",
		`{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"AAAA"}}]}]}`,
		`{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"AAAA"},"cache_control":null}]},{"role":"assistant","content":"b"}]}`,
	},
	{
		"responses: a string, then a list of items",
		`{"instructions":"S","input":"hello"}`,
		`{"input":[{"role":"user","content":[{"type":"input_text","text":"hello"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"o"}],"instructions":"S"}`,
	},
	{
		"responses: Codex, whose system text is a developer's item",
		`{"input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"S"}]},{"type":"message","role":"user","content":[{"type":"input_text","text":"hello"}]}]}`,
		`{"input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"S"}]},{"type":"message","role":"user","content":[{"type":"input_text","text":"hello"}]},{"type":"reasoning","summary":[]},{"type":"message","role":"user","content":"x"}]}`,
	},
}

func TestEachTurnHasTheSessionOfItsConversation(t *testing.T) {
	form := regexp.MustCompile(`^h-[0-9a-f]{16}$`)
	for _, tt := range turns {
		t.Run(tt.name, func(t *testing.T) {
			first, later := scanned(t, tt.first).Session(), scanned(t, tt.later).Session()
			if first != later || !form.MatchString(first) {
				t.Errorf("first turn %q, later %q", first, later)
			}
		})
	}
}

func TestOtherConversationsHaveOtherSessions(t *testing.T) {
	long := strings.Repeat("a", 100_000)
	for _, pair := range [][2]string{
		{`{"messages":[{"role":"user","content":"a"}]}`, `{"messages":[{"role":"user","content":"b"}]}`},
		{`{"messages":[{"role":"system","content":"1"},{"role":"user","content":"a"}]}`, `{"messages":[{"role":"system","content":"2"},{"role":"user","content":"a"}]}`},
		{`{"messages":[{"role":"system","content":"a"},{"role":"user","content":""}]}`, `{"messages":[{"role":"system","content":""},{"role":"user","content":"a"}]}`},
		{`{"system":[{"text":"a"},{"text":"b"}],"messages":[{"role":"user","content":"c"}]}`, `{"system":"a","messages":[{"role":"user","content":[{"text":"b"},{"text":"c"}]}]}`},
		{`{"system":"1","messages":[{"role":"user","content":"a"}]}`, `{"system":"2","messages":[{"role":"user","content":"a"}]}`},
		{`{"instructions":"1","input":"a"}`, `{"instructions":"2","input":"a"}`},
		{`{"messages":[{"role":"user","content":[{"text":"ab"},{"text":"c"}]}]}`, `{"messages":[{"role":"user","content":[{"text":"a"},{"text":"bc"}]}]}`},
		{`{"messages":[{"role":"assistant","content":"hi"},{"role":"user","content":"a"}]}`, `{"messages":[{"role":"assistant","content":"hi"},{"role":"user","content":"b"}]}`},
		{`{"messages":[{"role":"user","content":"` + long + `"}]}`, `{"messages":[{"role":"user","content":"a` + long + `"}]}`},
		{`{"messages":[{"role":"user","content":"` + long + `b"}]}`, `{"messages":[{"role":"user","content":"` + long + `c"}]}`},
		{`{"messages":[{"role":"user","content":"` + long[:20_000] + `b` + long + `"}]}`, `{"messages":[{"role":"user","content":"` + long[:20_000] + `c` + long + `"}]}`},
		{`{"messages":[{"role":"user","content":"b` + long + `"}]}`, `{"messages":[{"role":"user","content":"c` + long + `"}]}`},
		{`{"messages":[{"role":"user","content":[{"image_url":{"url":"1"}}]}]}`, `{"messages":[{"role":"user","content":[{"image_url":{"url":"2"}}]}]}`},
		// What only looks like the attribution line is the user's own.
		{`{"messages":[{"role":"user","content":"x-anthropic-billing-header: 1"}]}`, `{"messages":[{"role":"user","content":"x-anthropic-billing-header: 2"}]}`},
	} {
		a, b := scanned(t, pair[0]).Session(), scanned(t, pair[1]).Session()
		if a == b || a == "" || b == "" {
			t.Errorf("%q and %q for\n%.80s\n%.80s", a, b, pair[0], pair[1])
		}
	}
}

func TestWhatIsNoConversationHasNoSession(t *testing.T) {
	for _, body := range []string{
		`{"input_text":"a"}`, `{"prompt":"a"}`, `{"messages":[]}`, `{"messages":[{"role":"system","content":"S"}]}`,
		`{"messages":[{"role":"assistant","content":"a"},{}]}`, `{"input":[]}`,
	} {
		if got := scanned(t, body).Session(); got != "" {
			t.Errorf("%q for %s", got, body)
		}
	}
}

// Odd but well-formed values are no reason to fail.
func FuzzSession(f *testing.F) {
	for _, tt := range turns {
		f.Add(tt.later)
	}
	for _, odd := range []string{`{"messages":[{"role":1,"content":{}},{"role":"user","content":[[],1,null,{}]}]}`, `{"system":{},"input":[{"role":"user"}]}`, `{"messages":7}`, `{"messages":[1,2]}`} {
		f.Add(odd)
	}
	f.Fuzz(func(t *testing.T, body string) {
		s := NewScanner([]byte(body), 64)
		if _, err := s.Value(); err != nil || s.End() != nil || body[0] != '{' {
			return
		}
		r := scanned(t, body)
		if got := r.Session(); got != r.Session() || got != "" && len(got) != 18 {
			t.Errorf("%q", got)
		}
	})
}

// BenchmarkSession takes a request of 1 MB with a system text of 30 KB, as agents send it: under 5 µs, one allocation.
func BenchmarkSession(b *testing.B) {
	var body strings.Builder
	fmt.Fprintf(&body, `{"model":"m","system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=1;"},{"type":"text","text":%q}],"messages":[{"role":"user","content":[{"type":"text","text":%q}]}`,
		strings.Repeat("You are an agent. ", 30<<10/18), strings.Repeat("Do this. ", 200))
	for body.Len() < 1<<20 {
		fmt.Fprintf(&body, `,{"role":"assistant","content":%q},{"role":"user","content":"go on"}`, strings.Repeat("text ", 1000))
	}
	body.WriteString("]}")
	r := scanned(b, body.String())
	b.ReportAllocs()
	for b.Loop() {
		if r.Session() == "" {
			b.Fatal("none")
		}
	}
}
