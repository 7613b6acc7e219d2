package smoke

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"weir/internal/llm"
)

// size is what a case asks for: tokens of its prompt, of the longest answer that it allows, and of a usual answer.
type size struct{ in, out, usual int64 }

// sizes hold room for models that think before they answer. Some vendors refuse limits under 16.
var sizes = map[Case]size{
	Short: {20, 1024, 40}, Long: {0, 1024, 60}, Streaming: {40, 1024, 150}, Tools: {150, 1024, 60}, Truncation: {30, 32, 32},
}

// size returns that of a case of the target.
func (t *Target) size(c Case) size {
	s := sizes[c]
	if c == Long {
		s.in = int64(t.Long)
	}
	return s
}

// tool is what the tools case offers.
const (
	toolName   = "get_weather"
	toolSchema = `{"type":"object","properties":{"city":{"type":"string","minLength":1},"unit":{"type":"string","enum":["celsius","fahrenheit"]},` +
		`"days":{"type":"integer","minimum":1,"maximum":7}},"required":["city","unit","days"],"additionalProperties":false}`
	toolOffer = `[{"type":"function","function":{"name":"` + toolName + `","description":"Returns the weather forecast for a city.","parameters":` + toolSchema + `}}]`
)

var schema = sync.OnceValue(func() *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(toolSchema))
	if err != nil {
		panic(err) // a constant of ours
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("tool.json", doc); err != nil {
		panic(err)
	}
	return c.MustCompile("tool.json")
})

// body writes a case's request. forced demands a call in the tools case.
func body(c Case, t *Target, forced bool) []byte {
	prompt, more := "", ""
	switch c {
	case Short:
		prompt = "Answer in one short sentence: what is the capital of France?"
	case Long:
		prompt = longPrompt(t.Long)
	case Streaming:
		prompt, more = "Count from 1 to 40 in digits, separated by single spaces, and write nothing else.", `,"stream":true,"stream_options":{"include_usage":true}`
	case Tools:
		prompt, more = "What will the weather be in Paris for the next 3 days, in celsius? Use the tool.", `,"tools":`+toolOffer
		if forced {
			more += `,"tool_choice":"required"`
		}
	case Truncation:
		prompt = "Write a story of at least 1000 words about a lighthouse. Begin at once, with no introduction."
	}
	out := []byte(`{"model":`)
	out = llm.AppendQuoted(out, t.Name())
	out = fmt.Appendf(out, `,"max_tokens":%d,"messages":[{"role":"user","content":`, sizes[c].out)
	out = llm.AppendQuoted(out, prompt)
	return append(append(out, "}]"...), more+"}"...)
}

// longPrompt is a text of about so many tokens. It begins with words that no cache of prompts has seen: what is tested is
// that the pool can evaluate it.
func longPrompt(tokens int) string {
	words := strings.Fields("the light of a tower at the end of the land turns in the night and ships on the sea see it from far away while the wind blows and the waves roll")
	var b strings.Builder
	b.WriteString("Reference " + rand.Text() + ".\n")
	for i := range tokens - 40 {
		b.WriteString(words[i%len(words)])
		b.WriteByte(' ')
	}
	b.WriteString("\nEnd of the text. In one short sentence: what is the text about?")
	return b.String()
}

// judgement of an answer: what is wrong with it, or what is to be said of it.
type judgement struct {
	fault, note string
	mute        bool // it made no call, and did not write one down either
}

func judge(c Case, t *Target, a *Answer) judgement {
	var r reading
	if c == Streaming {
		r = readStream(a.Body)
	} else {
		r = readWhole(a.Body)
	}
	if r.fault != "" {
		return judgement{fault: r.fault}
	}
	switch c {
	case Tools:
		return r.tools()
	case Truncation:
		return r.truncated(sizes[c].out)
	case Streaming:
		if f := r.paced(t, a); f != "" {
			return judgement{fault: f}
		}
	}
	j := r.answered()
	if c == Streaming && j.fault == "" && r.out < 0 {
		j.note += "; no usage was told"
	}
	if c == Long && j.fault == "" && r.in > 0 {
		j.note = fmt.Sprintf("%d tokens of prompt; ", r.in) + j.note
		if r.in < int64(t.Long)/2 { // some servers cut what is too long for them and say nothing
			return judgement{fault: fmt.Sprintf("it evaluated %d tokens of a prompt of about %d: its window is smaller than it says, or than window of its pool", r.in, t.Long)}
		}
	}
	return j
}

// answered judges an answer that must have text and a proper end.
func (r *reading) answered() judgement {
	switch {
	case r.finish == "length" && r.text+r.thought > 0:
		return judgement{note: "cut by its limit of tokens while it " + map[bool]string{true: "wrote", false: "thought"}[r.text > 0]}
	case r.finish != "stop":
		return judgement{fault: fmt.Sprintf("it ended with the finish reason %q, which should be stop", r.finish)}
	case len(r.calls) > 0:
		return judgement{fault: "it called a tool although none was offered"}
	case r.text == 0:
		return judgement{fault: "the answer is empty"}
	}
	return judgement{note: fmt.Sprintf("%d characters", r.text)}
}

// paced judges the times of a stream. The relay holds it to its limits already; this is what a client saw.
func (r *reading) paced(t *Target, a *Answer) string {
	allowed := t.First
	if t.Prefill > 0 {
		allowed += time.Duration(float64(sizes[Streaming].in) / t.Prefill * float64(time.Second))
	}
	switch {
	case t.First > 0 && a.First > allowed:
		return fmt.Sprintf("its first content came after %v; the step's limit is %v", a.First.Round(time.Millisecond), t.First)
	case t.Idle > 0 && a.Gap > t.Idle:
		return fmt.Sprintf("it was silent for %v; the step's limit is %v", a.Gap.Round(time.Millisecond), t.Idle)
	}
	return ""
}

// tools judges an answer that must be a call.
func (r *reading) tools() judgement {
	if len(r.calls) == 0 {
		if r.narrated {
			return judgement{fault: "it wrote the call as text and made none: the server's parser of tool calls does not fit the model"}
		}
		if r.finish == "length" {
			return judgement{fault: fmt.Sprintf("its limit of %d tokens cut it before it made a call", sizes[Tools].out)}
		}
		return judgement{fault: "it made no call, although the question asks for one", mute: true}
	}
	for _, c := range r.calls {
		if c.name != toolName {
			return judgement{fault: fmt.Sprintf("it called a tool that was not offered (%d characters long)", len(c.name))}
		}
		args, err := jsonschema.UnmarshalJSON(strings.NewReader(c.arguments))
		if err != nil {
			return judgement{fault: "the arguments of its call are no JSON"}
		}
		if err := schema().Validate(args); err != nil {
			return judgement{fault: "the arguments of its call do not fit the tool's schema" + places(err)}
		}
	}
	if r.finish != "tool_calls" {
		return judgement{fault: fmt.Sprintf("it made a call and ended with the finish reason %q, which should be tool_calls", r.finish)}
	}
	return judgement{note: "a valid call"}
}

// places names where arguments do not fit, never their values.
func places(err error) string {
	v, ok := err.(*jsonschema.ValidationError)
	if !ok {
		return ""
	}
	var list []string
	for _, c := range v.Causes {
		at := strings.Join(c.ErrorKind.KeywordPath(), "/")
		if len(c.InstanceLocation) > 0 {
			at = strings.Join(c.InstanceLocation, ".") + " (" + at + ")"
		}
		if !slices.Contains(list, at) && len(at) < 60 {
			list = append(list, at)
		}
	}
	if list == nil {
		return ""
	}
	return ": " + strings.Join(list, ", ")
}

// truncated judges an answer that must have been cut by its limit.
func (r *reading) truncated(limit int64) judgement {
	switch {
	case r.finish != "length":
		told := ""
		if r.out >= 0 {
			told = fmt.Sprintf(" after %d tokens", r.out)
		}
		return judgement{fault: fmt.Sprintf("it ended with the finish reason %q%s, which should be length: it asks for far more than the limit of %d tokens", r.finish, told, limit)}
	case r.out > 4*limit:
		return judgement{fault: fmt.Sprintf("it used %d tokens, and its limit was %d", r.out, limit)}
	}
	return judgement{note: "cut at its limit, and well-formed"}
}

// dimensions returns how many numbers the first vector of an answer has, 0 for none.
func dimensions(body []byte) int {
	var a struct {
		Data []struct {
			Embedding []float64 `json:"embedding"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &a) != nil || len(a.Data) == 0 {
		return 0
	}
	return len(a.Data[0].Embedding)
}
