package sim

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// completion answers /completions, the legacy endpoint.
func (c *call) completion() answer {
	c.id = "cmpl-" + c.a.Nonce
	prompts := stringsOf(c.q.Prompt)
	if c.q.Stream {
		return c.streamed(c.stream(func(yield func(event) bool) { c.completionEvents(prompts, yield) }))
	}
	var choices []any
	for _, prompt := range prompts {
		for range c.q.n() {
			text := strings.Join(c.content, "")
			if c.q.Echo {
				text = prompt + text
			}
			choices = append(choices, c.textChoice(len(choices), text, c.content, c.finish))
		}
	}
	o := c.label(0, "text_completion", choices)
	if u := c.usage(); u != nil {
		o = append(o, member{"usage", u})
	}
	if c.flavour == LlamaCPP {
		o = append(o, member{"timings", c.timings()})
	}
	return c.pace(jsonAnswer(http.StatusOK, encode(o)))
}

// textChoice is one choice in the legacy shape.
func (c *call) textChoice(i int, text string, tokens []string, finish any) object {
	var logprobs any
	if c.q.wantsLogprobs() {
		chances, tops, offsets, at := []any{}, []any{}, []any{}, 0
		for _, t := range tokens {
			chances = append(chances, -0.1)
			tops = append(tops, map[string]float64{t: -0.1})
			offsets = append(offsets, at)
			at += len(t)
		}
		logprobs = object{{"tokens", tokens}, {"token_logprobs", chances}, {"top_logprobs", tops}, {"text_offset", offsets}}
	}
	return object{{"text", text}, {"index", i}, {"logprobs", logprobs}, {"finish_reason", finish}}.without(c.b.Omit)
}

func (c *call) completionEvents(prompts []string, yield func(event) bool) {
	i, wait := 0, c.b.FirstDelay
	send := func(n int, text string, finish any) bool {
		o := c.label(i, "text_completion", []any{c.textChoice(n, text, []string{text}, finish)})
		if c.b.Usage == "every" {
			o = append(o, member{"usage", c.usage()})
		}
		if c.flavour == LlamaCPP && finish != nil {
			o = append(o, member{"timings", c.timings()})
		}
		i++
		ok := yield(event{wait: wait, payload: encode(o), content: finish == nil, finish: finish != nil})
		wait = c.b.Gap
		return ok
	}
	for n, prompt := range prompts {
		if c.q.Echo && !send(n, prompt, nil) {
			return
		}
		for _, text := range c.content {
			if !send(n, text, nil) {
				return
			}
		}
		for k := 0; c.b.Endless; k++ {
			wait = max(c.b.Gap, time.Millisecond)
			if !send(n, fmt.Sprintf("on and on (%d) ", k), nil) {
				return
			}
		}
		wait = 0
		if !send(n, "", c.finish) {
			return
		}
	}
	if u := c.usage(); u != nil && (c.q.StreamOptions.IncludeUsage || c.b.Usage == "always") {
		yield(event{payload: encode(append(c.label(i, "text_completion", []any{}), member{"usage", u}))})
	}
}
