package drill

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ask is one request of the drill's client.
type ask struct {
	model  string
	stream bool
	tools  bool
	pad    int           // bytes of prompt
	first  chan struct{} // closed at the first content; nil: nobody waits for it
}

// body writes the request.
func (a ask) body() string {
	text := "Say a few words."
	if a.pad > 0 {
		text = strings.Repeat("word ", a.pad/5)
	}
	b := `{"model":` + quoted(a.model)
	if a.stream {
		b += `,"stream":true`
	}
	if a.tools {
		b += `,"tools":[{"type":"function","function":{"name":"weather","description":"Weather of a city.","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]`
	}
	return b + `,"messages":[{"role":"user","content":` + quoted(text) + `}]}`
}

func quoted(s string) string {
	b, _ := json.Marshal(s) // a string always can be written
	return string(b)
}

// view is what the client saw of one answer.
type view struct {
	err     error // no answer at all
	status  int
	header  http.Header
	body    []byte
	cut     error // how reading broke off; nil is the proper end
	stream  bool
	took    time.Duration
	text    string
	finish  string
	done    int
	errors  int
	code    string
	message string
	wrong   []string // what no client could read, or what contradicts itself
}

// mostBody bounds an answer: more is never sent by a simulated server on purpose, but for the lines without an end.
const mostBody = 80 << 20

// send asks and reads the answer to its end.
func send(ctx context.Context, c *http.Client, url, key string, a ask) *view {
	v := &view{}
	begun := time.Now()
	defer func() { v.took = time.Since(begun) }()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(a.body()))
	if err != nil {
		v.err = err
		return v
	}
	req.GetBody = nil // nothing is to be sent twice
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := c.Do(req)
	if err != nil {
		v.err = err
		return v
	}
	defer resp.Body.Close()
	v.status, v.header = resp.StatusCode, resp.Header
	v.stream = strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	v.read(io.LimitReader(resp.Body, mostBody), a.first)
	v.parse()
	return v
}

var aContent = []byte(`"content":"answer`)

func (v *view) read(r io.Reader, first chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		v.body = append(v.body, buf[:n]...)
		if first != nil && bytes.Contains(v.body, aContent) {
			close(first)
			first = nil
		}
		if err != nil {
			if err != io.EOF {
				v.cut = err
			}
			return
		}
	}
}

func (v *view) wrongf(format string, args ...any) {
	v.wrong = append(v.wrong, fmt.Sprintf(format, args...))
}

// parse reads the answer as a strict client does.
func (v *view) parse() {
	if !v.stream {
		v.object(string(v.body))
		if v.status == http.StatusOK && v.errors > 0 {
			v.wrongf("an error came with status 200")
		}
		if v.status != http.StatusOK && v.errors == 0 {
			v.wrongf("status %d without an error object", v.status)
		}
		return
	}
	ended := false
	text := strings.ReplaceAll(string(v.body), "\r\n", "\n")
	for event := range strings.SplitSeq(text, "\n\n") {
		var data []string
		for line := range strings.SplitSeq(event, "\n") {
			if d, ok := strings.CutPrefix(line, "data:"); ok {
				data = append(data, strings.TrimPrefix(d, " "))
			}
		}
		payload := strings.Join(data, "\n")
		switch {
		case len(data) == 0:
			continue
		case ended:
			v.wrongf("I2: %.60q came after the end", payload)
		case payload == "[DONE]":
			v.done++
		default:
			v.object(payload)
		}
		ended = v.done+v.errors > 0
	}
}

// object reads an answer in one piece, or one event (I5).
func (v *view) object(text string) {
	var o struct {
		Error   json.RawMessage
		Choices []struct {
			Delta, Message struct{ Content *string }
			Finish         *string `json:"finish_reason"`
		}
	}
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		v.wrongf("I5: %.60q is not JSON", text)
		return
	}
	if o.Error != nil && string(o.Error) != "null" {
		v.errors++
		v.failure(o.Error)
		return
	}
	for _, c := range o.Choices {
		for _, s := range []*string{c.Delta.Content, c.Message.Content} {
			if s != nil {
				v.text += *s
			}
		}
		if c.Finish != nil && *c.Finish != "" {
			if v.finish != "" {
				v.wrongf("I2: the answer finished twice")
			}
			v.finish = *c.Finish
		}
	}
}

func (v *view) failure(raw json.RawMessage) {
	var e struct {
		Message string
		Code    any
	}
	if json.Unmarshal(raw, &e) != nil { // some have a text in place of the object
		_ = json.Unmarshal(raw, &e.Message)
	}
	v.message = e.Message
	if e.Code != nil {
		v.code = fmt.Sprint(e.Code)
	}
	if v.message == "" {
		v.wrongf("the error has no message")
	}
}

// whole reports an answer that is all there, and looks so.
func (v *view) whole() bool {
	return v.err == nil && v.status == http.StatusOK && v.cut == nil && v.errors == 0 && v.finish != "" && (!v.stream || v.done == 1)
}

// refused reports a proper error before anything was answered.
func (v *view) refused() bool {
	return v.err == nil && v.cut == nil && v.status >= 400 && v.errors == 1 && v.text == ""
}

// broken reports a stream that ended with exactly one error and nothing that could pass for a proper end.
func (v *view) broken() bool {
	return v.err == nil && v.stream && v.status == http.StatusOK && v.errors == 1 && v.done == 0 && v.finish == ""
}

var aNonce = regexp.MustCompile(`[\w.-]+-\d{6}`)

// server returns the simulated server whose answer it is, by the nonce in its text; empty when there is none.
func (v *view) server() string {
	n := aNonce.FindString(v.text)
	if n == "" {
		return ""
	}
	return n[:len(n)-7]
}

// retryAfter returns the seconds of Retry-After; -1 when there is none.
func (v *view) retryAfter() int {
	n, err := strconv.Atoi(v.header.Get("Retry-After"))
	if err != nil {
		return -1
	}
	return n
}

// saw says in a few words what the client saw.
func (v *view) saw() string {
	switch {
	case v.err != nil:
		return "no answer: " + short(v.err.Error())
	case v.whole():
		if s := v.server(); s != "" {
			return "whole answer by " + s
		}
		return "whole answer"
	case v.errors > 0 && !v.stream:
		s := strconv.Itoa(v.status)
		if v.code != "" {
			s += " " + v.code
		}
		if after := v.retryAfter(); after >= 0 {
			s += fmt.Sprintf(", Retry-After %d", after)
		}
		return s
	case v.errors > 0:
		s := fmt.Sprintf("%d words, then error", len(strings.Fields(v.text)))
		if v.code != "" {
			s += " " + v.code
		}
		if v.done > 0 || v.finish != "" {
			s += " and an end that looks proper"
		}
		return s
	case v.cut != nil:
		return fmt.Sprintf("%d words, then nothing", len(strings.Fields(v.text)))
	}
	return fmt.Sprintf("status %d, %d words, no proper end", v.status, len(strings.Fields(v.text)))
}

func short(s string) string {
	const most = 120
	if i := strings.LastIndex(s, `": `); i >= 0 {
		s = s[i+3:]
	}
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// prefixed reports whether the client got the beginning of the answer of one of the servers, and nothing else (I6, I7).
func (v *view) prefixed(servers []string) bool {
	if v.text == "" {
		return true
	}
	n := aNonce.FindString(v.text)
	if n == "" {
		return strings.HasPrefix("answer ", v.text)
	}
	return slices.Contains(servers, v.server()) && strings.HasPrefix(strings.ReplaceAll(answerText, "{nonce}", n), v.text)
}

// answerText is what a healthy simulated server says.
const answerText = "answer {nonce} one two three four"

// exact reports whether the client got all of one server's answer (I6).
func (v *view) exact() bool {
	n := aNonce.FindString(v.text)
	return n != "" && v.text == strings.ReplaceAll(answerText, "{nonce}", n)
}
