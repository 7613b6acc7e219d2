package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/sim"
)

// outline writes the turns of a request as the server had them, one line each: role or kind, and what it holds.
func outline(t *testing.T, a *sim.Attempt) (list []string) {
	t.Helper()
	type part struct {
		Type, Text, ID string
		ToolUseID      string          `json:"tool_use_id"`
		Content        json.RawMessage `json:"content"`
	}
	var body struct {
		Messages, Input []struct {
			Role, Type, Name string
			Content          json.RawMessage
			Output           json.RawMessage
			CallID           string                `json:"call_id"`
			ToolCallID       string                `json:"tool_call_id"`
			Calls            []struct{ ID string } `json:"tool_calls"`
		}
	}
	if err := json.Unmarshal(a.Body, &body); err != nil {
		t.Fatalf("%v: %.300q", err, a.Body)
	}
	for _, m := range append(body.Messages, body.Input...) {
		line := m.Role
		if m.Type != "" && m.Type != "message" {
			line = m.Type
		}
		for _, id := range []string{m.CallID, m.ToolCallID} {
			if id != "" {
				line += " " + id
			}
		}
		var text string
		var parts []part
		switch content := append(m.Content, m.Output...); {
		case json.Unmarshal(content, &text) == nil && text != "":
			line += " " + text
		case json.Unmarshal(content, &parts) == nil:
			for _, p := range parts {
				line += strings.TrimRight(fmt.Sprintf(" %s:%s%s%s", p.Type, p.Text, p.ID, p.ToolUseID), ":")
				var said string
				if json.Unmarshal(p.Content, &said) == nil {
					line += "=" + said
				}
			}
		}
		for _, c := range m.Calls {
			line += " call:" + c.ID
		}
		list = append(list, line)
	}
	return list
}

// C047, C051, C054, C055, C066, C068, C069: what each kind of server is shown of a conversation, turn by turn. The servers
// are as strict as the real ones and take it.
func TestConversationsAsServersSeeThem(t *testing.T) {
	const png = `iVBORw0KGgo=`
	sealed := sim.Signature("secret")
	thought := fmt.Sprintf(`{"model":"%%s","max_tokens":50,"messages":[{"role":"user","content":"1+1"},{"role":"assistant","content":[{"type":"thinking","thinking":"secret","signature":%q},{"type":"redacted_thinking","data":"BBB="},{"type":"text","text":"2"}]},{"role":"user","content":"+1"}]}`, sealed)
	const beside = `{"model":"%s","max_tokens":50,"messages":[{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"tool_use","id":"call_1","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1","content":"ok"},{"type":"text","text":"Reply now"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + png + `"}}]}],"tools":[{"name":"f","input_schema":{"type":"object","properties":{}}}]}`
	const order = `{"model":"%s","max_tokens":50,"messages":[{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"f","input":{}},{"type":"tool_use","id":"t2","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t2","content":"r2"},{"type":"tool_result","tool_use_id":"t1","content":"r1"},{"type":"text","text":"be brief"}]}]}`
	const loop = `{"model":"%s","reasoning_effort":"low","messages":[{"role":"user","content":"w?"},{"role":"assistant","content":null,"tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"t1","content":"r"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}]}`
	const empty = `{"model":"%s","messages":[{"role":"user","content":[{"type":"text","text":""},{"type":"text","text":"hi"}]},{"role":"assistant","content":""},{"role":"user","content":"x"},{"role":"assistant","content":"   "}]}`
	const items = `{"model":"%s","store":false,"include":["reasoning.encrypted_content"],"input":[{"role":"user","content":"w?"},{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"ZZZ"},{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"rain"}]}]}`
	const narrated = `{"model":"%s","messages":[{"role":"user","content":"go"},{"role":"assistant","content":"Let me look","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"r"}]}`
	const back = `{"model":"%s","input":[{"role":"user","content":"go"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me look"}]},{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"r"}]}`
	for _, c := range []struct {
		name   string
		client *api
		model  string
		body   string
		want   []string
		has    []string // bytes upstream
		hasNot []string
	}{
		{"C047 to Responses", messagesAPI, "res-m", beside, []string{"user input_text:go", "function_call call_1", "function_call_output call_1 ok", "user input_text:Reply now input_image"},
			[]string{`data:image/png;base64,` + png}, nil},
		{"C047 to Chat", messagesAPI, "oai-m", beside, []string{"user go", "assistant call:call_1", "tool call_1 ok", "user text:Reply now image_url"}, []string{`data:image/png;base64,` + png}, nil},
		{"C054 to Chat", messagesAPI, "oai-m", thought, []string{"user 1+1", "assistant 2", "user +1"}, nil, []string{"secret", "BBB=", sealed}},
		{"C054 to Responses", messagesAPI, "res-m", thought, nil, nil, []string{"BBB="}},
		{"C054 to Messages", messagesAPI, "ant-m", thought, nil, []string{fmt.Sprintf(`[{"type":"thinking","thinking":"secret","signature":%q},{"type":"redacted_thinking","data":"BBB="},{"type":"text","text":"2"}]`, sealed)}, nil},
		{"C055 to Chat", messagesAPI, "oai-m", order, []string{"user go", "assistant call:t1 call:t2", "tool t2 r2", "tool t1 r1", "user be brief"}, nil, nil},
		{"C055 to a llama-server", messagesAPI, "loc-m", order, []string{"user go", "assistant call:t1 call:t2", "tool t2 r2", "tool t1 r1", "user be brief"}, nil, nil},
		{"C051 to Messages", chatAPI, "ant-m", loop, []string{"user w?", "assistant tool_use:t1", "user tool_result:t1=r"}, nil, []string{`"type":"enabled"`}},
		{"C066 to Messages", chatAPI, "ant-m", empty, nil, []string{"hi", "x"}, []string{`""`, `"   "`}},
		{"C068 to Responses", responsesAPI, "res-m", items, nil, []string{rawInput(t, items)}, nil},
		{"C068 to Chat", responsesAPI, "oai-m", items, []string{"user w?", "assistant call:c1", "tool c1 rain"}, nil, []string{"ZZZ"}},
		{"C068 to Messages", responsesAPI, "ant-m", items, []string{"user w?", "assistant tool_use:c1", "user tool_result:c1=rain"}, nil, []string{"ZZZ"}},
		{"C069 to Responses", chatAPI, "res-m", narrated, []string{"user input_text:go", "assistant output_text:Let me look", "function_call c1", "function_call_output c1 r"}, nil, nil},
		{"C069 back", responsesAPI, "oai-m", back, []string{"user go", "assistant Let me look call:c1", "tool c1 r"}, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := polyglot(t, sim.Behaviour{Text: "fine"})
			r, got := g.talk(c.client, fmt.Sprintf(c.body, c.model))
			up := g.upstream(c.model)
			if foreign := strings.Contains(c.body, "ZZZ") || strings.Contains(c.body, "BBB="); got.text != "fine" && !(foreign && r.status == 400) { // sealed by another
				t.Errorf("status %d: %s; upstream %s", r.status, r.body, up.Body)
			}
			if diff := cmp.Diff(c.want, outline(t, &up)); c.want != nil && diff != "" {
				t.Errorf("turns (-want +got):\n%s%s", diff, up.Body)
			}
			for _, s := range c.has {
				if !strings.Contains(string(up.Body), s) {
					t.Errorf("upstream lacks %s: %s", s, up.Body)
				}
			}
			for _, s := range c.hasNot {
				if strings.Contains(string(up.Body), s) {
					t.Errorf("upstream has %s: %s", s, up.Body)
				}
			}
		})
	}
}

func rawInput(t *testing.T, body string) string { return rawMember(t, []byte(body), "input") }

// C049: the conversation of one turn is, as the server sees it, the beginning of the next turn's, notes of the system in
// the middle included.
func TestC049PrefixStays(t *testing.T) {
	turns := []string{`{"role":"user","content":[{"type":"text","text":"go","cache_control":{"type":"ephemeral"}}]}`}
	ask := func() string {
		return `{"model":"%s","max_tokens":50,"system":"be good","tools":[{"name":"f","input_schema":{"type":"object","properties":{}}}],"messages":[` + strings.Join(turns, ",") + `]}`
	}
	for _, model := range []string{"oai-m", "loc-m", "res-m", "ant-m"} {
		t.Run(model, func(t *testing.T) {
			g := polyglot(t, sim.Behaviour{Text: "fine"})
			member, before := "messages", ""
			if model == "res-m" {
				member = "input"
			}
			saved := turns
			defer func() { turns = saved }()
			for n := range 4 {
				if _, got := g.talk(messagesAPI, fmt.Sprintf(ask(), model)); got.text != "fine" {
					t.Fatalf("turn %d: %+v", n, got.failure)
				}
				up := g.upstream(model)
				list := strings.TrimSuffix(rawMember(t, up.Body, member), "]")
				if !strings.HasPrefix(list, before) || len(list) <= len(before) {
					t.Errorf("turn %d does not begin with the one before:\n%s\n%s", n, before, list)
				}
				before = list
				note := fmt.Sprintf("%d tokens left", 900-n)
				turns = append(turns, fmt.Sprintf(`{"role":"assistant","content":[{"type":"text","text":"t"},{"type":"tool_use","id":"c%d","name":"f","input":{"n":%d}}]}`, n, n),
					fmt.Sprintf(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c%d","content":"r%d"}]}`, n, n), `{"role":"system","content":"`+note+`"}`)
				if n > 0 && !strings.Contains(list, fmt.Sprintf("%d tokens left", 900-n+1)) {
					t.Errorf("turn %d lacks its note: %s", n, list)
				}
			}
		})
	}
}

// C059: Messages gets the limit that it demands: the client's, the newer name first, else a generous one.
func TestC059MaxTokens(t *testing.T) {
	g := polyglot(t, sim.Behaviour{Text: "fine"})
	for more, want := range map[string]string{`"metadata":{}`: "", `"max_completion_tokens":77`: "77", `"max_tokens":50,"max_completion_tokens":77`: "77", `"max_tokens":50`: "50"} {
		g.post(chatAPI.path, chatAPI.ask("ant-m", false, more)).text()
		up := g.upstream("ant-m")
		if got := rawMember(t, up.Body, "max_tokens"); got == "" || want != "" && got != want || want == "" && len(got) < 4 {
			t.Errorf("%s: max_tokens %s", more, got)
		}
	}
	g.forget()
	for _, model := range []string{"oai-m", "ant-m", "res-m"} {
		for _, body := range []string{`{"model":"%s","messages":[{"role":"user","content":"hi"}]}`, `{"model":"%s","max_tokens":-1,"messages":[{"role":"user","content":"hi"}]}`} {
			r := g.post(messagesAPI.path, fmt.Sprintf(body, model))
			if f := r.refusedMessage(); r.status != 400 || f.Type != "invalid_request_error" || !strings.Contains(f.Message, "max_tokens") {
				t.Errorf("%d %s", r.status, r.body)
			}
		}
	}
	for name, s := range g.sims {
		if n := len(s.Calls("")); n != 0 {
			t.Errorf("%s had %d calls", name, n)
		}
	}
}

// C066: what a backend refuses never takes it out, and a request without content goes nowhere.
func TestC066RefusalsCoolNothing(t *testing.T) {
	g := polyglot(t, sim.Behaviour{Status: 400, Times: 20}, sim.Behaviour{Text: "fine"})
	for i := range 20 {
		if r, got := g.talk(apis[i%3], apis[i%3].ask("ant-m", false)); r.status != 400 || got.failure == nil {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	if _, got := g.talk(messagesAPI, messagesAPI.ask("ant-m", true)); got.text != "fine" {
		t.Errorf("after 20 refusals: %+v", got)
	}
	before := len(g.sims["m"].Calls(""))
	r := g.post(chatAPI.path, `{"model":"ant-m","messages":[{"role":"user","content":""},{"role":"assistant","content":" "}]}`)
	if f := r.failed(); r.status != 400 || f.Type != "invalid_request_error" || len(g.sims["m"].Calls("")) != before {
		t.Errorf("a request without content: %d %s", r.status, r.body)
	}
}

// C068: an item that has no counterpart is refused by its name where it cannot be passed on.
func TestC068UnknownItems(t *testing.T) {
	g := polyglot(t, sim.Behaviour{Text: "fine"})
	for _, model := range []string{"oai-m", "ant-m"} {
		r := g.post(responsesAPI.path, `{"model":"`+model+`","input":[{"role":"user","content":"hi"},{"type":"quantum_item","id":"q"}]}`)
		if f := r.failed(); r.status != 400 || !strings.Contains(f.Message+*f.Param, "input[1]") || !strings.Contains(f.Message, "quantum_item") {
			t.Errorf("%s: %d %s", model, r.status, r.body)
		}
	}
}

// C126: 40 images of 700 KiB pass as they are, there and back between the APIs, in a moment and with few copies, a step
// that fails first included. The server does not read them, so that what is measured is Weir.
func TestC126ManyImages(t *testing.T) {
	const most, copies = 10 * time.Second, 5
	const chatAnswer = `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"fine"},"finish_reason":"stop"}]}`
	const messagesAnswer = `{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"fine"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}`
	var data []string
	var messages, chat strings.Builder
	for i := range 40 {
		data = append(data, strings.Repeat(string(rune('A'+i%26))+"bc/", 175<<10)+"AAA=")
		fmt.Fprintf(&messages, `,{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"%s"}}`, data[i])
		fmt.Fprintf(&chat, `,{"type":"image_url","image_url":{"url":"data:image/jpeg;base64,%s"}}`, data[i])
	}
	for _, c := range []struct {
		client           *api
		back             *api
		say, answer, pre string // pre stands before the data
	}{
		{messagesAPI, chatAPI, messages.String(), chatAnswer, `"data:image/jpeg;base64,`},
		{chatAPI, messagesAPI, chat.String(), messagesAnswer, `"data":"`},
	} {
		t.Run(c.client.name, func(t *testing.T) {
			up := make([]byte, 0, 64<<20)
			calls := 0
			server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n, _ := io.ReadFull(r.Body, up[:cap(up)])
				up = up[:n]
				w.Header().Set("Content-Type", "application/json")
				if calls++; calls == 1 {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				_, _ = io.WriteString(w, c.answer)
			})
			g := begin(t, setup{yaml: bridge(c.back, ", stream: as_asked"), other: map[string]http.Handler{"s1": server}})
			body := `{"model":"alone","max_tokens":50,"messages":[{"role":"user","content":[{"type":"text","text":"look"}` + c.say + `]}]}`
			for _, want := range []string{"", "fine"} {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				start := time.Now()
				r, got := g.talk(c.client, body)
				took := time.Since(start)
				runtime.ReadMemStats(&after)
				if got.text != want || took > most {
					t.Errorf("%d after %v: %.300q", r.status, took, r.body)
				}
				if n := after.TotalAlloc - before.TotalAlloc; n > copies*uint64(len(body)) {
					t.Errorf("%d bytes were allocated for a body of %d", n, len(body))
				}
			}
			at := 0
			for i, d := range data {
				n := bytes.Index(up[at:], []byte(c.pre+d+`"`))
				if n < 0 {
					t.Fatalf("image %d is not there, or not in its place", i)
				}
				at += n + len(d)
			}
		})
	}
}

// C145: a model that has no such endpoint says so, and its server hears nothing.
func TestC145UnsupportedEndpoints(t *testing.T) {
	g := polyglot(t)
	for _, model := range []string{"ant-m", "res-m"} {
		for path, body := range map[string]string{"/v1/embeddings": `"input":"x"`, "/v1/completions": `"prompt":"x"`, "/v1/rerank": `"query":"q","documents":["a"]`} {
			r := g.post(path, `{"model":"`+model+`",`+body+`}`)
			if f := r.failed(); r.status != 400 || f.Code != "unsupported_endpoint" || f.Param == nil || *f.Param != "model" || !strings.Contains(f.Message, model) {
				t.Errorf("%s %s: %d %s", model, path, r.status, r.body)
			}
		}
	}
	if n := len(g.sims["m"].Attempts()) + len(g.sims["r"].Attempts()); n != 0 {
		t.Errorf("%d requests upstream", n)
	}
}

// C160: developer turns reach a server that knows them as they are, others as the one system turn at the start.
func TestC160Developer(t *testing.T) {
	const chat = `{"model":"%s","messages":[{"role":"developer","content":"Be brief"},{"role":"system","content":"S"},{"role":"user","content":"hi"}]}`
	const items = `{"model":"%s","instructions":"I","input":[{"role":"developer","content":"Be brief"},{"role":"system","content":"S"},{"role":"user","content":"hi"}]}`
	refuse := []string{"developer", "late_system", "same_role"}
	yaml := strings.Replace(tongues, "server: llamacpp}", "server: vllm}", 1)
	g := begin(t, setup{yaml: yaml, sims: map[string]sim.Script{"c": {}, "m": {Server: sim.Anthropic}, "r": {}, "l": {Server: sim.VLLM, Refuse: refuse}}})
	for _, c := range []struct {
		client *api
		model  string
		want   []string
		has    string
	}{
		{chatAPI, "loc-m", []string{"system Be brief\n\nS", "user hi"}, ""},
		{responsesAPI, "loc-m", []string{"system I\n\nBe brief\n\nS", "user hi"}, ""},
		{chatAPI, "oai-m", []string{"developer Be brief", "system S", "user hi"}, ""},
		{chatAPI, "ant-m", []string{"user hi"}, `"system":`},
		{responsesAPI, "ant-m", []string{"user hi"}, `"system":`},
		{responsesAPI, "res-m", []string{"developer Be brief", "system S", "user hi"}, `"instructions":"I"`},
	} {
		body := chat
		if c.client == responsesAPI {
			body = items
		}
		r, got := g.talk(c.client, fmt.Sprintf(body, c.model))
		up := g.upstream(c.model)
		if got.failure != nil || !strings.Contains(string(up.Body), c.has) {
			t.Errorf("%s to %s: %d %s; upstream %s", c.client.name, c.model, r.status, r.body, up.Body)
		}
		if diff := cmp.Diff(c.want, outline(t, &up)); diff != "" {
			t.Errorf("%s to %s: turns (-want +got):\n%s%s", c.client.name, c.model, diff, up.Body)
		}
		if c.model == "ant-m" {
			system := rawMember(t, up.Body, "system")
			if brief, s := strings.Index(system, "Be brief"), strings.Index(system, "S"); brief < 0 || s < brief {
				t.Errorf("system is %s", system)
			}
		}
	}
}
