package app

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// anyCertificate is for clients on loopback in tests.
func anyCertificate() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// chatBody is the smallest chat request; more are members, such as `"n":2`.
func chatBody(stream bool, more ...string) string {
	b := `{"model":"oai-m"`
	if stream {
		b += `,"stream":true`
	}
	for _, m := range more {
		b += "," + m
	}
	return b + `,"messages":[{"role":"user","content":"hi"}]}`
}

// reply is what a client got.
type reply struct {
	t      *testing.T
	status int
	header http.Header
	body   []byte
	err    error       // how reading ended; nil is the proper end
	at     []time.Time // of each read
	upTo   []int       // how much of body was there then
}

// chat posts the smallest chat request and reads the answer to its end.
func (g *gateway) chat(stream bool, more ...string) *reply {
	g.t.Helper()
	return g.post("/v1/chat/completions", chatBody(stream, more...))
}

// post sends a JSON body with the test's key; headers are pairs. It reads the answer to its end.
func (g *gateway) post(path, body string, headers ...string) *reply {
	g.t.Helper()
	return g.do(g.t.Context(), http.MethodPost, path, strings.NewReader(body), headers...)
}

// get is post for GET.
func (g *gateway) get(path string, headers ...string) *reply {
	g.t.Helper()
	return g.do(g.t.Context(), http.MethodGet, path, nil, headers...)
}

// do sends a request and reads the answer to its end. A header with the value "" is not sent.
func (g *gateway) do(ctx context.Context, method, path string, body io.Reader, headers ...string) *reply {
	g.t.Helper()
	resp, err := g.open(ctx, method, path, body, headers...)
	if err != nil {
		g.t.Fatalf("%s %s: %v", method, path, err)
	}
	return g.read(resp)
}

// open sends a request and returns once the headers are there.
func (g *gateway) open(ctx context.Context, method, path string, body io.Reader, headers ...string) (*http.Response, error) {
	g.t.Helper()
	url := path
	if strings.HasPrefix(path, "/") {
		url = g.url + path
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		g.t.Fatal(err)
	}
	req.GetBody = nil // the transport must not send anything twice
	if g.key != "" {
		req.Header.Set("Authorization", "Bearer "+g.key)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		switch {
		case headers[i] == "Host":
			req.Host = headers[i+1]
		case headers[i+1] == "":
			req.Header.Del(headers[i])
		default:
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	return g.client.Do(req)
}

// read reads an answer to its end, with the time of each read.
func (g *gateway) read(resp *http.Response) *reply {
	defer resp.Body.Close()
	r := &reply{t: g.t, status: resp.StatusCode, header: resp.Header}
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			r.body = append(r.body, buf[:n]...)
			r.at, r.upTo = append(r.at, time.Now()), append(r.upTo, len(r.body))
		}
		if err != nil {
			if !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				r.err = err
			}
			return r
		}
	}
}

// id returns the request's id.
func (r *reply) id() string { return r.header.Get("X-Weir-Request") }

// isStream reports whether the answer is an event stream.
func (r *reply) isStream() bool {
	return strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream")
}

// said is what an answer tells a client, streamed or not.
type said struct {
	texts     map[int]string // content by choice
	reasoning map[int]string // reasoning and reasoning_content by choice, as they came
	finish    map[int]string
	calls     map[int]string // id name(arguments) by index, of choice 0
	usage     map[string]any
	ids       map[string]bool
	objects   map[string]bool
	models    map[string]bool
	created   map[float64]bool
	failure   *failure // the one error, in the stream or as the answer
	done      bool     // [DONE]
	comments  []string
	chunks    []map[string]any
}

// failure is OpenAI's error object.
type failure struct {
	Message string
	Type    string
	Param   *string
	Code    any
}

// said reads the answer as a strict client does and checks that it is well formed: status, headers, JSON whole (I5),
// exactly one end per stream (I2).
func (r *reply) said() *said {
	r.t.Helper()
	s := &said{
		texts: map[int]string{}, reasoning: map[int]string{}, finish: map[int]string{}, calls: map[int]string{},
		ids: map[string]bool{}, objects: map[string]bool{}, models: map[string]bool{}, created: map[float64]bool{},
	}
	if r.id() == "" {
		r.t.Error("the answer has no X-Weir-Request")
	}
	for _, h := range []string{"Content-Encoding", "Transfer-Encoding", "Connection"} {
		if v := r.header.Get(h); v != "" && !(h == "Connection" && v == "close") {
			r.t.Errorf("the answer has %s: %s", h, v)
		}
	}
	switch {
	case r.isStream():
		r.events(s)
	case r.status == http.StatusOK:
		r.whole(s)
	default:
		s.failure = r.failed()
	}
	return s
}

// failed checks that the answer is an HTTP error in OpenAI's shape and returns it.
func (r *reply) failed() *failure {
	r.t.Helper()
	var e struct{ Error *failure }
	var members struct{ Error map[string]json.RawMessage }
	if err := json.Unmarshal(r.body, &e); err != nil || e.Error == nil || json.Unmarshal(r.body, &members) != nil {
		r.t.Fatalf("status %d: the body is no error object: %.300q", r.status, r.body)
	}
	for _, m := range []string{"message", "type", "param", "code"} {
		if members.Error[m] == nil {
			r.t.Errorf("the error has no %s: %s", m, r.body)
		}
	}
	if r.status < 400 {
		r.t.Errorf("an error came with status %d", r.status)
	}
	if e.Error.Message == "" || e.Error.Type == "" || e.Error.Code == "" {
		r.t.Errorf("message, type or code is empty: %s", r.body)
	}
	if r.header.Get("Content-Type") != "application/json" || r.err != nil {
		r.t.Errorf("error with Content-Type %q, read %v", r.header.Get("Content-Type"), r.err)
	}
	if again, after := r.header.Get("X-Should-Retry"), r.header.Get("Retry-After"); (again == "false") == (after != "") {
		r.t.Errorf("status %d has X-Should-Retry %q and Retry-After %q: exactly one tells clients what to do", r.status, again, after)
	}
	return e.Error
}

func (r *reply) whole(s *said) {
	r.t.Helper()
	if r.err != nil {
		r.t.Errorf("reading the answer: %v", r.err)
	}
	if got := r.header.Get("Content-Type"); got != "application/json" {
		r.t.Errorf("Content-Type %q", got)
	}
	r.chunk(s, string(r.body))
}

// events reads a stream: LF alone, one data line per event, one end.
func (r *reply) events(s *said) {
	r.t.Helper()
	if got := r.header.Get("Content-Length"); got != "" || r.status != http.StatusOK {
		r.t.Errorf("stream with status %d and Content-Length %q", r.status, got)
	}
	if !utf8.Valid(r.body) || strings.Contains(string(r.body), "\r") {
		r.t.Errorf("the stream has CRs or bytes that are not UTF-8: %.300q", r.body)
	}
	text := string(r.body)
	if r.err == nil && !strings.HasSuffix(text, "\n\n") {
		r.t.Errorf("the stream's last event is open: %.300q", text[max(0, len(text)-300):])
	}
	ends := 0
	for _, e := range strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		var data []string
		for _, line := range strings.Split(e, "\n") {
			if d, ok := strings.CutPrefix(line, "data:"); ok {
				data = append(data, strings.TrimPrefix(d, " "))
			} else if c, ok := strings.CutPrefix(line, ":"); ok {
				s.comments = append(s.comments, strings.TrimSpace(c))
			}
		}
		switch {
		case len(data) > 1:
			r.t.Errorf("an event has %d data lines: %.300q", len(data), e)
		case len(data) == 0:
		case ends > 0:
			r.t.Errorf("I2: after the end came %.300q", e)
		case data[0] == "[DONE]":
			s.done = true
			ends++
		default:
			if r.chunk(s, data[0]); s.failure != nil {
				ends++
			}
		}
	}
	if ends != 1 {
		r.t.Errorf("I2: the stream has %d ends, want 1: %.500q (read %v)", ends, text, r.err)
	}
	if s.done && r.err != nil {
		r.t.Errorf("the stream ended with [DONE] and then broke: %v", r.err)
	}
	if s.failure != nil && r.err == nil {
		r.t.Error("the stream ended with an error, but its connection is passed off as done")
	}
	if len(s.ids) > 1 || len(s.created) > 1 {
		r.t.Errorf("the chunks have %d ids and %d times: %v %v", len(s.ids), len(s.created), s.ids, s.created)
	}
}

// chunk reads one object of an answer.
func (r *reply) chunk(s *said, data string) {
	r.t.Helper()
	var c struct {
		ID, Object, Model string
		Created           *float64
		Error             *failure
		Usage             map[string]any
		Choices           []struct {
			Index   *int
			Delta   *message
			Message *message
			Text    *string
			Finish  *string `json:"finish_reason"`
		}
	}
	var all map[string]any
	if err := json.Unmarshal([]byte(data), &c); err != nil || json.Unmarshal([]byte(data), &all) != nil {
		r.t.Errorf("I5: %.300q does not parse: %v", data, err)
		return
	}
	if s.chunks = append(s.chunks, all); c.Error != nil {
		s.failure = c.Error
		return
	}
	if s.ids[c.ID], s.objects[c.Object], s.models[c.Model] = true, true, true; c.Created != nil {
		s.created[*c.Created] = true
	}
	if c.Usage != nil {
		s.usage = c.Usage
	}
	for _, o := range c.Choices {
		if o.Index == nil {
			r.t.Errorf("a choice has no index: %.300s", data)
			continue
		}
		if o.Text != nil {
			s.texts[*o.Index] += *o.Text
		}
		for _, m := range []*message{o.Delta, o.Message} {
			if m != nil {
				m.add(s, *o.Index)
			}
		}
		if o.Finish != nil {
			if s.finish[*o.Index] != "" {
				r.t.Errorf("choice %d finished twice", *o.Index)
			}
			s.finish[*o.Index] = *o.Finish
		}
	}
}

// message is a message or a delta.
type message struct {
	Content   *string
	Reasoning *string
	Thought   *string `json:"reasoning_content"`
	Calls     []struct {
		Index    int
		ID       string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

func (m *message) add(s *said, choice int) {
	if m.Content != nil {
		s.texts[choice] += *m.Content
	}
	for _, t := range []*string{m.Reasoning, m.Thought} {
		if t != nil {
			s.reasoning[choice] += *t
		}
	}
	for i, c := range m.Calls {
		if choice == 0 {
			if c.ID != "" {
				c.ID += " "
			}
			s.calls[max(i, c.Index)] += c.ID + c.Function.Name + c.Function.Arguments
		}
	}
}

// text checks that the answer is a success of one choice and returns its text.
func (r *reply) text() string {
	r.t.Helper()
	s := r.said()
	if r.status != http.StatusOK || s.failure != nil || r.isStream() && !s.done || s.finish[0] == "" {
		r.t.Fatalf("no whole answer: status %d, %.500q", r.status, r.body)
	}
	return s.texts[0]
}

// broke checks that a stream delivered text and then told its one error, which it returns.
func (r *reply) broke(text string) *failure {
	r.t.Helper()
	s := r.said()
	if s.failure == nil || !r.isStream() || s.done || len(s.finish) > 0 {
		r.t.Fatalf("want the text, one error and no finish: status %d, %.500q", r.status, r.body)
	}
	if s.texts[0] != text {
		r.t.Errorf("the client got the text %q before the error, want %q", s.texts[0], text)
	}
	return s.failure
}

// jsonText returns s as JSON.
func jsonText(s string) string {
	b, _ := json.Marshal(s) // a string always can be written
	return string(b)
}
