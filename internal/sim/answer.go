package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"
)

// answer decides what a request is answered.
func (s *Server) answer(r *http.Request, a *Attempt, q *request, b *Behaviour) answer {
	script, since := s.current()
	flavour, age := script.flavour(), time.Since(since)
	if age < script.Loading || age < b.Loading {
		return s.failure(loading(flavour))
	}
	open := r.URL.Path == "/health" || r.URL.Path == "/v1/health" || r.URL.Path == "/"
	if !open && !s.authorized(r, script.Key) {
		return s.failure(scripted(http.StatusUnauthorized))
	}
	if ans, ok := s.instead(a, q, b); ok {
		return ans
	}
	if !a.Call() {
		return s.state(r, &script)
	}
	if f, bad := refuse(&script, q, b); bad {
		return s.failure(f)
	}
	if ans, over := s.overflow(&script, q, b); over {
		return ans
	}
	c := newCall(&script, a, q, b)
	ans := c.answer()
	if b.Status != 0 {
		ans.status = b.Status
	}
	if flavour == LlamaCPP {
		ans.early = false // its headers wait for the first token
		if ans.header == nil {
			ans.header = http.Header{}
		}
		ans.header.Set("Server", "llama.cpp")
	}
	return ans
}

// instead returns the answer that a behaviour gives whatever was asked.
func (s *Server) instead(a *Attempt, q *request, b *Behaviour) (answer, bool) {
	status := b.Status
	if status == 0 {
		status = http.StatusOK
	}
	switch {
	case b.NoBody || status == http.StatusNoContent || status == http.StatusNotModified:
		return answer{status: status, header: http.Header{"Content-Length": {"0"}}, pieces: func(func(piece) bool) {}}, true
	case b.Redirect != "":
		if b.Status == 0 {
			status = http.StatusTemporaryRedirect
		}
		ans := jsonAnswer(status, nil)
		ans.header = http.Header{"Location": {b.Redirect}}
		return ans, true
	case b.HTML:
		ans := jsonAnswer(status, []byte("<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body><h1>Simulated proxy page</h1><p>"+a.Nonce+"</p></body></html>\n"))
		ans.header.Set("Content-Type", "text/html; charset=utf-8")
		return ans, true
	case b.Body != "":
		return literal(status, a, q, b), true
	case b.StreamError != nil && !q.Stream && a.Call():
		f := overloaded()
		if b.StreamError.Error != nil {
			return jsonAnswer(status, encode(object{{"error", b.StreamError.Error}})), true
		}
		return jsonAnswer(status, f.event(s.flavour())), true
	case b.Error != nil:
		if b.Status == 0 {
			status = http.StatusInternalServerError
		}
		return jsonAnswer(status, encode(object{{"error", b.Error}})), true
	case status >= 300:
		return s.failure(scripted(status)), true
	case b.Gzip == "bomb":
		return bomb(), true
	case b.LineBytes > 0:
		return longLine(b.LineBytes), true
	}
	return answer{}, false
}

// literal is a script's whole body. A stream is sent event by event, so that Gap holds.
func literal(status int, a *Attempt, q *request, b *Behaviour) answer {
	body := []byte(strings.ReplaceAll(string(b.Body), "{nonce}", a.Nonce))
	if b.Fill {
		body = fill(body, a, q)
	}
	ans := jsonAnswer(status, body)
	switch {
	case bytes.HasPrefix(body, []byte("<")):
		ans.header.Set("Content-Type", "text/html; charset=utf-8")
	case looksLikeStream(body) || q.Stream && status == http.StatusOK && !bytes.HasPrefix(body, []byte("{")):
		ans = answer{status: status, header: streamHeader(), stream: true, early: true, pieces: func(yield func(piece) bool) {
			wait, rest := b.FirstDelay, body
			for event := range bytes.SplitAfterSeq(body, []byte("\n\n")) {
				rest = rest[len(event):]
				if len(event) > 0 && !yield(piece{wait: wait, data: event, content: true, over: len(rest) == 0}) {
					return
				}
				wait = b.Gap
			}
		}}
	}
	return ans
}

func looksLikeStream(body []byte) bool {
	for _, start := range []string{"data:", "event:", ":", "id:", "retry:", "\ufeff"} {
		if bytes.HasPrefix(body, []byte(start)) {
			return true
		}
	}
	return false
}

func streamHeader() http.Header {
	return http.Header{"Content-Type": {"text/event-stream"}, "Cache-Control": {"no-cache"}, "X-Accel-Buffering": {"no"}}
}

// jsonAnswer is a whole body.
func jsonAnswer(status int, body []byte) answer {
	return answer{
		status: status, header: http.Header{"Content-Type": {"application/json"}}, whole: true,
		pieces: func(yield func(piece) bool) { yield(piece{data: body, content: true, over: true}) },
	}
}

// block is what a long line is made of.
const block = 64 << 10

// longLine is a stream of one data line of n bytes that never ends.
func longLine(n int64) answer {
	return answer{status: http.StatusOK, header: streamHeader(), stream: true, early: true,
		pieces: lineOf(n)}
}

func lineOf(n int64) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		head := []byte(`data: {"choices":[{"index":0,"finish_reason":null,"delta":{"content":"`)
		filler := bytes.Repeat([]byte("x"), block)
		ok := yield(piece{data: head, content: true})
		for left := n; ok && left > 0; left -= block {
			ok = yield(piece{data: filler[:min(left, block)]})
		}
	}
}

// fill gives every chunk of a body that lacks them an id, object, created and model.
func fill(body []byte, a *Attempt, q *request) []byte {
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
		return fillOne(body, "chat.completion", a, q)
	}
	var out []byte
	for len(body) > 0 {
		end := bytes.IndexAny(body, "\r\n")
		if end < 0 {
			end = len(body)
		}
		line := body[:end]
		if payload, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			line = append([]byte("data: "), fillOne(payload, "chat.completion.chunk", a, q)...)
		}
		out = append(out, line...)
		rest := body[end:]
		text := bytes.TrimLeft(rest, "\r\n")
		out = append(out, rest[:len(rest)-len(text)]...)
		body = text
	}
	return out
}

func fillOne(payload []byte, kind string, a *Attempt, q *request) []byte {
	var has map[string]json.RawMessage
	if json.Unmarshal(payload, &has) != nil || has["choices"] == nil && has["usage"] == nil || has["error"] != nil && has["choices"] == nil {
		return payload
	}
	add := object{{"id", "chatcmpl-" + a.Nonce}, {"object", kind}, {"created", a.Arrived.Unix()}, {"model", q.Model}}
	var b bytes.Buffer
	for _, m := range add {
		if has[m.key] == nil {
			fmt.Fprintf(&b, "%s:%s,", encode(m.key), encode(m.value))
		}
	}
	at := bytes.IndexByte(payload, '{') + 1
	return append(append(append([]byte{}, payload[:at]...), b.Bytes()...), payload[at:]...)
}

// overflow answers a prompt that is longer than the context.
func (s *Server) overflow(script *Script, q *request, b *Behaviour) (answer, bool) {
	limit := b.Context
	if limit == 0 {
		limit = script.Context
	}
	n := q.promptTokens()
	flavour := script.flavour()
	if limit == 0 || n <= limit || flavour == Ollama {
		return answer{}, false
	}
	f := tooLong(flavour, n, limit)
	status := b.ContextStatus
	if status == 0 {
		status = f.status
		if flavour == SGLang && q.Stream {
			status = http.StatusOK
		}
	}
	if status != http.StatusOK {
		if status >= 500 {
			f.status = status
		}
		return s.failure(f), true
	}
	if q.Stream {
		return streamAnswer(b, func(yield func(event) bool) {
			_ = yield(event{payload: f.event(flavour)}) && yield(event{payload: []byte("[DONE]")})
		}), true
	}
	return jsonAnswer(http.StatusOK, f.event(flavour)), true
}

// refuse finds what of a request the server does not take.
func refuse(script *Script, q *request, b *Behaviour) (fault, bool) {
	if q.badJSON != nil {
		f := badRequest("simulated: the body is not a valid request: " + q.badJSON.Error())
		if script.flavour() == LlamaCPP {
			f.status = http.StatusInternalServerError // as llama-server does
		}
		return f, true
	}
	if script.Strict && !known(script, q.Model) {
		f := scripted(http.StatusNotFound)
		f.message = fmt.Sprintf("simulated: the model %q does not exist", q.Model)
		return f, true
	}
	if f, bad := missing(q); bad {
		return f, true
	}
	if script.flavour() == LlamaCPP && strings.HasPrefix(q.path, "/chat") {
		if f, bad := llamaFault(q); bad {
			return f, true
		}
	}
	for _, what := range b.Refuse {
		if refused(what, q) {
			f := badRequest("simulated: " + what + " is not supported by this server")
			f.code, f.param = "unsupported_parameter", what
			return f, true
		}
	}
	return fault{}, false
}

func known(script *Script, model string) bool {
	for _, m := range script.models() {
		if m == model {
			return true
		}
	}
	_, scripted := script.On[model]
	return scripted
}

// missing finds a required member that is not there.
func missing(q *request) (fault, bool) {
	need := map[string]string{"/chat/completions": "messages", "/completions": "prompt", "/embeddings": "input", "/rerank": "documents"}
	name := need[q.path]
	if q.has[name] != nil {
		return fault{}, false
	}
	f := badRequest(fmt.Sprintf("'%s' is required", name))
	f.param = name
	return f, true
}

// llamaFault finds what llama-server refuses, mostly as a server's fault (500).
func llamaFault(q *request) (fault, bool) {
	broken := fault{status: http.StatusInternalServerError}
	for _, m := range q.Messages {
		for _, p := range m.parts() {
			switch p.Type {
			case "text":
			case "image_url":
				broken.message = "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"
				return broken, true
			default:
				return badRequest("unsupported content[].type"), true
			}
		}
		for _, c := range m.ToolCalls {
			if !json.Valid([]byte(c.Function.Arguments)) {
				broken.message = "Failed to parse tool call arguments as JSON: " + c.Function.Arguments
				return broken, true
			}
		}
	}
	for _, t := range q.Tools {
		if t.Type != "function" {
			broken.message = "Failed to parse tools: Unsupported tool type: " + t.Type
			return broken, true
		}
	}
	return fault{}, false
}

// refused reports whether a request uses the feature.
func refused(what string, q *request) bool {
	switch what {
	case "stream":
		return q.Stream
	case "n":
		return q.N > 1
	case "base64":
		return q.encoding() == "base64"
	case "null_content":
		return slices.ContainsFunc(q.Messages, func(m message) bool { return string(m.Content) == "null" })
	case "absent_content":
		return slices.ContainsFunc(q.Messages, func(m message) bool { return m.Content == nil })
	case "developer":
		return slices.ContainsFunc(q.Messages, func(m message) bool { return m.Role == "developer" })
	}
	_, ok := q.has[what]
	return ok
}
