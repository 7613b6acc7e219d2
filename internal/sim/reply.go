package sim

import (
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"
)

// call is one piece of work: a request, how to behave, and what to reply.
type call struct {
	script  *Script
	flavour Flavour
	q       *request
	b       *Behaviour
	a       *Attempt
	id      string
	model   string
	created int64

	reasoning []string
	content   []string
	tools     []toolCall
	finish    string
	prompt    int // tokens
	sequence  int // events so far, where the API counts them
}

type toolCall struct{ id, name, args string }

func newCall(script *Script, a *Attempt, q *request, b *Behaviour) *call {
	c := &call{
		script: script, flavour: script.flavour(), q: q, b: b, a: a,
		id: "chatcmpl-" + a.Nonce, model: q.Model, created: a.Arrived.Unix(), prompt: q.promptTokens(),
	}
	switch {
	case b.Model != "":
		c.model = b.Model
	case c.flavour == LlamaCPP && len(script.Models) > 0 && !known(script, q.Model):
		c.model = script.Models[0] // a single-model server ignores the field
	}
	c.prompt = max(c.prompt, b.Cached+b.CacheWrite)
	if b.Endless && b.Gap == 0 {
		b.Gap = endlessGap
	}
	if c.flavour == Ollama && script.Context > 0 {
		c.prompt = min(c.prompt, script.Context) // cut in silence
	}
	return c
}

func (c *call) answer() answer {
	switch c.q.api {
	case Embeddings:
		return c.embeddings()
	case Rerank:
		return c.rerank()
	case CountTokens:
		return jsonAnswer(http.StatusOK, encode(object{{"input_tokens", c.prompt}}))
	}
	c.reply()
	switch c.q.api {
	case Completions:
		return c.completion()
	case Messages:
		return c.messages()
	case Responses:
		return c.responses()
	}
	return c.chat()
}

func (c *call) voice() voice { return voice{c.flavour, c.q.api, c.a.Nonce} }

// reply decides reasoning, content, tool calls and why the answer ends.
func (c *call) reply() {
	c.finish = "stop"
	if c.b.Reasoning != "" {
		c.reasoning = splitWords(c.b.Reasoning)
	}
	text := ""
	if c.q.api.converses() {
		text = c.useTools()
	}
	if len(c.tools) == 0 || c.b.Tool == "text_and_call" {
		c.content = c.say(text)
	}
	if limit := c.q.limit(); limit >= 0 && !c.b.Endless && len(c.tools) == 0 && len(c.reasoning)+len(c.content) > limit {
		c.reasoning = c.reasoning[:min(len(c.reasoning), limit)]
		c.content = c.content[:max(0, min(len(c.content), limit-len(c.reasoning)))]
		c.finish = "length"
	}
	if c.b.Finish != "" {
		c.finish = c.b.Finish
	}
}

// say returns the pieces of the content: as the script gives them, else text, else
// what the response format asks for, else a sentence that says what it is.
func (c *call) say(text string) []string {
	b := c.b
	switch {
	case b.Empty:
		return nil
	case b.Deltas != nil:
		out := make([]string, len(b.Deltas))
		for i, d := range b.Deltas {
			out[i] = strings.ReplaceAll(d, "{nonce}", c.a.Nonce)
		}
		return out
	case b.Text != "":
		text = b.Text
	case text != "":
	case c.q.ResponseFormat.Type == "json_schema":
		schema := c.q.ResponseFormat.JSONSchema.Schema
		if schema == nil {
			schema = c.q.ResponseFormat.Schema
		}
		text = string(instance(schema))
	case c.q.ResponseFormat.Type == "json_object":
		text = `{"simulated": true, "nonce": "{nonce}"}`
	case c.q.after:
		text = fmt.Sprintf("This is a simulated answer (nonce {nonce}) after the tool's result: %.80s", c.q.results[len(c.q.results)-1])
	default:
		text = "This is a simulated answer from Weir's test server, not from a model. (nonce {nonce})"
		if b.Chunks > 0 {
			return c.filler(strings.ReplaceAll(text, "{nonce}", c.a.Nonce))
		}
	}
	return split(strings.ReplaceAll(text, "{nonce}", c.a.Nonce), b.Chunks, b.ChunkSize)
}

// filler is exactly Chunks pieces: the text's words, then made-up ones.
func (c *call) filler(text string) []string {
	out := splitWords(text)
	for len(out) < c.b.Chunks {
		out = append(out, fmt.Sprintf("w%d ", len(out)))
	}
	out = append(out[:c.b.Chunks-1], strings.Join(out[c.b.Chunks-1:], ""))
	if size := c.b.ChunkSize; size > 0 {
		for i := range out {
			out[i] += strings.Repeat(".", max(0, size-len(out[i])))
		}
	}
	return out
}

// split cuts a text into n pieces, or pieces of about size bytes, or words. It never
// cuts inside a character.
func split(text string, n, size int) []string {
	switch {
	case text == "":
		return nil
	case n > 0:
		size = max(1, (len(text)+n-1)/n)
	case size == 0:
		return splitWords(text)
	}
	var out []string
	start := 0
	for i := range text {
		if i-start >= size && (n == 0 || len(out) < n-1) {
			out = append(out, text[start:i])
			start = i
		}
	}
	return append(out, text[start:])
}

func splitWords(text string) []string {
	words := strings.SplitAfter(text, " ")
	if words[len(words)-1] == "" {
		words = words[:len(words)-1]
	}
	return words
}

// useTools decides the tool calls, and returns the text that stands in their place.
func (c *call) useTools() string {
	for i, t := range c.b.Calls {
		c.addCall(i, t.Name, strings.ReplaceAll(t.Arguments, "{nonce}", c.a.Nonce))
	}
	if c.b.Agent {
		return c.act()
	}
	mode := c.b.Tool
	if demanded, _ := c.q.forced(); mode == "" && demanded {
		mode = "call"
	}
	if mode == "" || mode == "never" || len(c.b.Calls) > 0 || len(c.q.Tools) == 0 || c.q.after {
		return ""
	}
	t := c.wanted()
	name, args := t.Function.Name, string(instance(t.Function.Parameters))
	switch mode {
	case "narrate":
		return fmt.Sprintf("I will now call the %s tool to find that out. (simulated, nonce %s)", name, c.a.Nonce)
	case "tags":
		return fmt.Sprintf("<tool_call>{\"name\":%s,\"arguments\":%s}</tool_call>", encode(name), args)
	case "wrong_name":
		name = "no_such_tool"
	case "bad_args":
		args = `{"no_such_argument":1}`
	case "not_json":
		args = "{city: Paris"
	case "cut_args":
		args = args[:len(args)/2]
		if len(args) < 2 {
			args = `{"a`
		}
	}
	c.addCall(0, name, args)
	if mode == "parallel" || mode == "index_zero" || mode == "no_index" || mode == "interleaved" {
		second := c.q.Tools[len(c.q.Tools)-1]
		c.addCall(1, second.Function.Name, string(instance(second.Function.Parameters)))
	}
	return ""
}

// wanted returns the tool that tool_choice names, else the first.
func (c *call) wanted() tool {
	_, name := c.q.forced()
	for _, t := range c.q.Tools {
		if name != "" && t.Function.Name == name {
			return t
		}
	}
	return c.q.Tools[0]
}

func (c *call) addCall(i int, name, args string) {
	id := fmt.Sprintf("call_%s_%d", c.a.Nonce, i)
	if c.q.api == Messages {
		id = fmt.Sprintf("toolu_%s_%d", c.a.Nonce, i)
	}
	if c.flavour == LlamaCPP { // 32 characters and no prefix
		id = fmt.Sprintf("%032s", strings.ReplaceAll(c.a.Nonce, "-", "")+fmt.Sprint(i))
		id = id[len(id)-32:]
	}
	c.tools = append(c.tools, toolCall{id, name, args})
	c.finish = "tool_calls"
}

// spoken yields the pieces of the content; those of an endless one never end.
func (c *call) spoken() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, text := range c.content {
			if !yield(text) {
				return
			}
		}
		for n := len(c.content); c.b.Endless; n++ {
			if !yield(fmt.Sprintf("on and on (%d) ", n)) {
				return
			}
		}
	}
}

// interleaved yields the pieces of all calls' arguments in turn, each with its call's index.
func interleaved(calls []toolCall) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for at := 0; ; at++ {
			more := false
			for i, t := range calls {
				if pieces := split(t.args, 0, argumentBytes); at < len(pieces) {
					if more = true; !yield(i, pieces[at]) {
						return
					}
				}
			}
			if !more {
				return
			}
		}
	}
}

// argumentBytes is the size of the pieces in which arguments are streamed.
const argumentBytes = 8

// completionTokens counts a token for each piece, and for each four bytes of arguments.
func (c *call) completionTokens() int {
	n := len(c.reasoning) + len(c.content)
	for _, t := range c.tools {
		n += max(1, (len(t.name)+len(t.args))/4)
	}
	return max(n, 1)
}

// usage returns the usage object, or nil for none.
func (c *call) usage() any {
	in, out := c.prompt, c.completionTokens()
	switch c.b.Usage {
	case "none":
		return nil
	case "partial":
		return object{{"completion_tokens", out}}
	case "negative":
		return object{{"prompt_tokens", -in}, {"completion_tokens", -out}, {"total_tokens", -in - out}}
	case "huge":
		const most = uint64(1) << 63
		return object{{"prompt_tokens", most}, {"completion_tokens", most}, {"total_tokens", most}}
	case "", "always", "every", "no_choices":
	default:
		return rawJSON(c.b.Usage)
	}
	u := object{{"prompt_tokens", in}, {"completion_tokens", out}, {"total_tokens", in + out}}
	cached := object{{"cached_tokens", c.b.Cached}}
	if c.b.CacheWrite > 0 {
		cached = append(cached, member{"cache_write_tokens", c.b.CacheWrite})
	}
	switch c.flavour {
	case OpenAI:
		u = append(u, member{"prompt_tokens_details", append(cached, member{"audio_tokens", 0})},
			member{"completion_tokens_details", object{{"reasoning_tokens", len(c.reasoning)}, {"audio_tokens", 0},
				{"accepted_prediction_tokens", 0}, {"rejected_prediction_tokens", 0}}})
	case LlamaCPP:
		u = append(u, member{"prompt_tokens_details", cached})
	case VLLM, SGLang:
		if c.b.Cached > 0 {
			u = append(u, member{"prompt_tokens_details", cached})
		}
	}
	return u
}

// timings returns what llama.cpp measures of itself.
func (c *call) timings() object {
	first := c.b.HeaderDelay + c.b.FirstDelay
	prompt := max(first.Seconds()*1000, 1)
	predicted := max(time.Since(c.a.Arrived).Seconds()*1000-prompt, 1)
	n := c.completionTokens()
	return object{
		{"cache_n", c.b.Cached}, {"prompt_n", c.prompt - c.b.Cached}, {"prompt_ms", prompt},
		{"prompt_per_token_ms", prompt / float64(c.prompt)}, {"prompt_per_second", 1000 * float64(c.prompt) / prompt},
		{"predicted_n", n}, {"predicted_ms", predicted},
		{"predicted_per_token_ms", predicted / float64(n)}, {"predicted_per_second", 1000 * float64(n) / predicted},
	}
}
