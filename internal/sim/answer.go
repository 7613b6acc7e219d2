package sim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"
)

// answer decides what a request is answered.
func (s *Server) answer(r *http.Request, a *Attempt, q *request, b *Behaviour) answer {
	script, since := s.current()
	flavour, age := script.flavour(), time.Since(since)
	v := s.voice(a)
	if age < script.Loading || age < b.Loading {
		return failure(v, loading(flavour))
	}
	open := r.URL.Path == "/health" || r.URL.Path == "/v1/health" || r.URL.Path == "/"
	if !open && !s.authorized(r, script.Key) {
		return failure(v, scripted(http.StatusUnauthorized))
	}
	if a.API != "" && !script.serves(a.API) {
		return s.unknown(r, v)
	}
	if ans, ok := s.instead(a, q, b); ok {
		return ans
	}
	if a.API == "" {
		return s.state(r, &script, v)
	}
	if f, bad := refuse(&script, q, b); bad {
		return failure(v, f)
	}
	if ans, over := s.overflow(a, &script, q, b); over {
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
	v, status := s.voice(a), b.Status
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
		script, _ := s.current()
		return newCall(&script, a, q, b).failedWhole(status), true
	case b.Error != nil:
		if b.Status == 0 {
			status = http.StatusInternalServerError
		}
		return jsonAnswer(status, v.wrap(b.Error)), true
	case status >= 300:
		return failure(v, scripted(status)), true
	case b.Gzip == "bomb":
		return bomb(a.API), true
	case b.LineBytes > 0:
		return longLine(a.API, b.LineBytes), true
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

// fillerBytes is the size of the pieces that a long line is made of.
const fillerBytes = 64 << 10

// heads holds how an event with content begins: where an API is not named, Chat's.
var heads = map[API]string{
	"":        `data: {"choices":[{"index":0,"finish_reason":null,"delta":{"content":"`,
	Messages:  "event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"`,
	Responses: "event: response.output_text.delta\n" + `data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"`,
}

// longLine is a stream of one data line of n bytes that never ends.
func longLine(api API, n int64) answer {
	return answer{status: http.StatusOK, header: streamHeader(), stream: true, early: true,
		pieces: lineOf(cmp.Or(heads[api], heads[""]), n)}
}

func lineOf(start string, n int64) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		head := []byte(start)
		filler := bytes.Repeat([]byte("x"), fillerBytes)
		ok := yield(piece{data: head, content: true})
		for left := n; ok && left > 0; left -= fillerBytes {
			ok = yield(piece{data: filler[:min(left, fillerBytes)]})
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
func (s *Server) overflow(a *Attempt, script *Script, q *request, b *Behaviour) (answer, bool) {
	limit := b.Context
	if limit == 0 {
		limit = script.Context
	}
	n := q.promptTokens()
	flavour, v := script.flavour(), s.voice(a)
	if limit == 0 || n <= limit || flavour == Ollama || !a.Call() {
		return answer{}, false
	}
	f := tooLong(v, n, limit)
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
		return failure(v, f), true
	}
	if q.Stream {
		return newCall(script, a, q, b).streamed(func(yield func(event) bool) {
			e := event{payload: v.wrap(f.inner(v))}
			if v.anthropic() || v.api == Messages {
				e.name = "error"
			}
			if yield(e) && v.api != Messages && v.api != Responses {
				yield(event{payload: []byte("[DONE]")})
			}
		}), true
	}
	return jsonAnswer(http.StatusOK, v.wrap(f.inner(v))), true
}
