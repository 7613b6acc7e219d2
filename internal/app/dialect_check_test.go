package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"weir/internal/sim"
)

// api is one of the three APIs, spoken by a client or by a backend.
type api struct {
	name   string // of the dialect, as events have it
	path   string
	yaml   string // members of a backend that speaks it
	server sim.Flavour
}

var (
	chatAPI      = &api{"openai", "/v1/chat/completions", "server: openai", sim.OpenAI}
	messagesAPI  = &api{"anthropic", "/v1/messages", "server: anthropic", sim.Anthropic}
	responsesAPI = &api{"responses", "/v1/responses", "server: openai, dialect: responses", sim.OpenAI}
	apis         = []*api{chatAPI, messagesAPI, responsesAPI}
)

// ask is the smallest request of the API; more are members.
func (a *api) ask(model string, stream bool, more ...string) string {
	say := `"messages":[{"role":"user","content":"hi"}]`
	switch a {
	case messagesAPI:
		say += `,"max_tokens":1000`
	case responsesAPI:
		say = `"input":"hi"`
	}
	return fmt.Sprintf(`{"model":%q,"stream":%v,%s}`, model, stream, strings.Join(append([]string{say}, more...), ","))
}

// talk asks in the API and reads the answer as its clients do.
func (g *gateway) talk(a *api, body string, headers ...string) (*reply, *told) {
	g.t.Helper()
	r := g.post(a.path, body, headers...)
	return r, r.told(a)
}

// told is what an answer tells a client, whatever the API.
type told struct {
	text, thinking string
	calls          []toldCall
	finish         string // in the API's own words; empty: none was told
	in, out        int    // tokens
	cached         int
	failure        *failure // the one error, in the stream or as the answer
	names          []string // of the events
	blocks         []string // kinds of the blocks or items
	comments       []string
}

type toldCall struct{ id, name, input string }

// told reads the answer as a strict client of the API does and checks that it is well formed: events in order, nothing
// open twice, exactly one end (I2, I5).
func (r *reply) told(a *api) *told {
	r.t.Helper()
	if r.id() == "" {
		r.t.Error("the answer has no X-Weir-Request")
	}
	t := new(told)
	switch {
	case a == chatAPI:
		r.toldChat(t)
	case a == messagesAPI && r.isStream():
		(&messageReader{r: r, told: t}).read()
	case r.isStream():
		(&responseReader{r: r, told: t}).read()
	case a == messagesAPI && r.status == http.StatusOK:
		r.toldMessage(t)
	case r.status == http.StatusOK:
		r.toldResponse(t, r.body)
	case a == messagesAPI:
		t.failure = r.refusedMessage()
	default:
		t.failure = r.failed()
	}
	if (t.failure == nil) == (t.finish == "") {
		r.t.Errorf("I2: want exactly one end, a finish or an error; the finish is %q, the error %+v: %.700q", t.finish, t.failure, r.body)
	}
	if got := r.header.Get("Request-Id"); (a == messagesAPI) != (got != "") || got != "" && got != r.id() {
		r.t.Errorf("Request-Id %q of request %s", got, r.id())
	}
	return t
}

func (r *reply) toldChat(t *told) {
	r.t.Helper()
	s := r.said()
	t.text, t.thinking, t.finish, t.failure, t.comments = s.texts[0], s.reasoning[0], s.finish[0], s.failure, s.comments
	for i := range len(s.calls) {
		head, input, ok := strings.Cut(s.calls[i], "{")
		id, name, _ := strings.Cut(head, " ")
		if ok {
			input = "{" + input
		}
		t.calls = append(t.calls, toldCall{id, name, input})
	}
	t.in, t.out = amount(s.usage, "prompt_tokens"), amount(s.usage, "completion_tokens")
	if d, ok := s.usage["prompt_tokens_details"].(map[string]any); ok {
		t.cached = amount(d, "cached_tokens")
	}
}

func amount(m map[string]any, name string) int {
	n, _ := m[name].(float64)
	return int(n)
}

// named is one event of a stream whose events have names.
type named struct{ name, data string }

// named reads the events of a stream: LF alone, a name and one data line each.
func (r *reply) named(t *told) (list []named) {
	r.t.Helper()
	text := string(r.body)
	if r.status != http.StatusOK || r.header.Get("Content-Length") != "" {
		r.t.Errorf("a stream with status %d and Content-Length %q", r.status, r.header.Get("Content-Length"))
	}
	if !utf8.ValidString(text) || strings.Contains(text, "\r") || !strings.HasSuffix(text, "\n\n") {
		r.t.Errorf("the stream is not UTF-8, has CRs or an open end: %.300q", text)
	}
	for _, e := range strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		var n named
		for _, line := range strings.Split(e, "\n") {
			switch field, value, _ := strings.Cut(line, ": "); {
			case strings.HasPrefix(line, ":"):
				t.comments = append(t.comments, strings.TrimSpace(line[1:]))
			case field == "event" && n.name == "":
				n.name = value
			case field == "data" && n.data == "":
				n.data = value
			default:
				r.t.Errorf("the line %.200q in an event of name %q", line, n.name)
			}
		}
		if n == (named{}) {
			continue
		}
		var kind struct{ Type string }
		if err := json.Unmarshal([]byte(n.data), &kind); err != nil || kind.Type != n.name {
			r.t.Errorf("I5: the event %q has the data %.300q: %v", n.name, n.data, err)
			continue
		}
		list = append(list, n)
		t.names = append(t.names, n.name)
	}
	return list
}

// closed checks that a stream ended once, and broke off exactly when it told an error.
func (r *reply) closed(t *told, ends int) {
	r.t.Helper()
	if ends != 1 {
		r.t.Errorf("I2: the stream has %d ends, want 1: %.700q (read %v)", ends, r.body, r.err)
	}
	if (t.failure != nil) != (r.err != nil) {
		r.t.Errorf("the stream's error is %+v and its connection ended with %v", t.failure, r.err)
	}
}

// block is a content block of Messages.
type block struct {
	Type, Text, Thinking, Signature, ID, Name, Data string
	Input                                           json.RawMessage
}

func (t *told) block(b *block) {
	t.blocks = append(t.blocks, b.Type)
	switch b.Type {
	case "text":
		t.text += b.Text
	case "thinking":
		t.thinking += b.Thinking
	case "tool_use":
		t.calls = append(t.calls, toldCall{b.ID, b.Name, string(b.Input)})
	}
}

// messageUsage is the usage of Messages, whose parts of the prompt stand apart.
type messageUsage struct {
	In      *int `json:"input_tokens"`
	Out     *int `json:"output_tokens"`
	Read    *int `json:"cache_read_input_tokens"`
	Written *int `json:"cache_creation_input_tokens"`
}

// add takes totals; what they do not name stays.
func (t *told) add(u messageUsage, whole bool) {
	if u.Read != nil {
		t.cached = *u.Read
	}
	if u.In != nil {
		t.in = *u.In
	}
	if u.Out != nil && (whole || *u.Out > 0) {
		t.out = *u.Out
	}
}

func (r *reply) toldMessage(t *told) {
	r.t.Helper()
	var m struct {
		ID, Type, Role, Model string
		Content               []block
		Stop                  string `json:"stop_reason"`
		Usage                 *messageUsage
	}
	if err := json.Unmarshal(r.body, &m); err != nil || m.ID == "" || m.Type != "message" || m.Role != "assistant" || m.Model == "" || m.Content == nil || m.Usage == nil {
		r.t.Errorf("I5: no message: %.500q, %v", r.body, err)
		return
	}
	for i := range m.Content {
		b := &m.Content[i]
		if b.Type == "tool_use" && (b.ID == "" || b.Name == "" || len(b.Input) == 0 || b.Input[0] != '{') {
			r.t.Errorf("the call %+v has no id, name or object as input", b)
		}
		if b.Type == "text" && b.Text == "" {
			r.t.Error("an empty text block")
		}
		t.block(b)
	}
	t.finish = m.Stop
	t.add(*m.Usage, true)
}

// refusedMessage checks that the answer is an HTTP error in Anthropic's shape and returns it.
func (r *reply) refusedMessage() *failure {
	r.t.Helper()
	var e struct {
		Type  string
		Error *failure
		ID    string `json:"request_id"`
	}
	if err := json.Unmarshal(r.body, &e); err != nil || e.Type != "error" || e.Error == nil || e.Error.Type == "" || e.Error.Message == "" {
		r.t.Fatalf("status %d: the body is no error of Messages: %.300q", r.status, r.body)
	}
	if r.status < 400 || e.ID != r.id() || r.header.Get("Content-Type") != "application/json" || r.err != nil {
		r.t.Errorf("status %d, request_id %q, Content-Type %q, read %v: %s", r.status, e.ID, r.header.Get("Content-Type"), r.err, r.body)
	}
	if again, after := r.header.Get("X-Should-Retry"), r.header.Get("Retry-After"); (again == "false") == (after != "") {
		r.t.Errorf("status %d has X-Should-Retry %q and Retry-After %q: exactly one tells clients what to do", r.status, again, after)
	}
	return e.Error
}

// messageReader reads a stream of Messages.
type messageReader struct {
	*told
	r       *reply
	started bool
	open    *block
	next    int // index of the next block
	ends    int
	input   string
}

type messageEvent struct {
	Index   *int
	Message *struct {
		ID, Type, Role, Model string
		Content               []block
		Stop                  *string `json:"stop_reason"`
		Usage                 *messageUsage
	}
	Block *block `json:"content_block"`
	Delta *struct {
		Type, Text, Thinking, Signature string
		Partial                         string  `json:"partial_json"`
		Stop                            *string `json:"stop_reason"`
	}
	Usage *messageUsage
	Error *failure
	ID    string `json:"request_id"`
}

func (m *messageReader) read() {
	m.r.t.Helper()
	for _, n := range m.r.named(m.told) {
		var e messageEvent
		if err := json.Unmarshal([]byte(n.data), &e); err != nil {
			m.r.t.Errorf("I5: %.300q: %v", n.data, err)
		}
		if fault := m.event(n.name, &e); fault != "" {
			m.r.t.Errorf("%s: %.300s", fault, n.data)
		}
	}
	m.r.closed(m.told, m.ends)
}

// event takes one event and says what is wrong with it.
func (m *messageReader) event(name string, e *messageEvent) string {
	if m.ends > 0 {
		return "I2: it came after the end"
	}
	switch name {
	case "ping":
		return ""
	case "error":
		m.ends++
		if m.failure = e.Error; e.Error == nil || e.Error.Type == "" || e.Error.Message == "" {
			return "an error without type or message"
		}
		if m.finish != "" {
			return "an error after the finish"
		}
		if m.open != nil { // what it has told so far
			m.text, m.thinking = m.text+m.open.Text, m.thinking+m.open.Thinking
		}
		return ""
	case "message_start":
		again := m.started
		if m.started = true; again || e.Message == nil || e.Message.ID == "" || e.Message.Role != "assistant" || e.Message.Model == "" || e.Message.Content == nil ||
			len(e.Message.Content) > 0 || e.Message.Stop != nil || e.Message.Usage == nil || e.Message.Usage.In == nil {
			return "a second start, or one that is not whole"
		}
		m.add(*e.Message.Usage, false)
		return ""
	}
	if !m.started {
		return "it came before message_start"
	}
	switch name {
	case "message_delta":
		if e.Delta == nil || e.Delta.Stop != nil && (m.open != nil || m.finish != "" && m.finish != *e.Delta.Stop) {
			return "a finish while a block is open, or another finish than before"
		}
		if e.Delta.Stop != nil { // it may come again with later totals
			m.finish = *e.Delta.Stop
		}
		if e.Usage != nil {
			m.add(*e.Usage, true)
		}
	case "message_stop":
		if m.ends++; m.open != nil || m.finish == "" {
			return "message_stop with an open block or without a stop_reason"
		}
	case "content_block_start", "content_block_delta", "content_block_stop":
		return m.piece(name, e)
	}
	return ""
}

func (m *messageReader) piece(name string, e *messageEvent) string {
	switch {
	case m.finish != "":
		return "content after the finish"
	case e.Index == nil || *e.Index != m.next:
		return fmt.Sprintf("the index is not %d", m.next)
	case (name == "content_block_start") != (m.open == nil):
		return "blocks overlap, or a piece of a block that is not open"
	}
	switch name {
	case "content_block_start":
		if m.open, m.input = e.Block, ""; e.Block == nil || e.Block.Type == "tool_use" && (e.Block.ID == "" || e.Block.Name == "") {
			return "a block without a kind, or a call without id and name"
		}
		return ""
	case "content_block_stop":
		b := m.open
		m.open = nil
		m.next++
		if b.Type == "tool_use" {
			if m.input == "" {
				m.input = "{}"
			}
			if b.Input = json.RawMessage(m.input); !json.Valid(b.Input) || b.Input[0] != '{' {
				return fmt.Sprintf("F28: the input of the closed call is %q", m.input)
			}
		}
		m.block(b)
		return ""
	}
	b, d := m.open, e.Delta
	if d == nil || map[string]string{"text_delta": "text", "input_json_delta": "tool_use", "thinking_delta": "thinking", "signature_delta": "thinking"}[d.Type] != b.Type {
		return "a delta that does not fit its block of kind " + b.Type
	}
	b.Text += d.Text
	b.Thinking += d.Thinking
	m.input += d.Partial
	return ""
}
