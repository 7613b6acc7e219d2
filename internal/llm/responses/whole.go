package responses

import (
	"bytes"
	"strconv"

	"weir/internal/llm"
)

// Whole checks an answer that came in one piece and returns it as the client gets it: its own bytes, but for what a
// response must have and a model that is a file's path. An error object, and a response that failed, is a *llm.Fault.
func (Dialect) Whole(r *llm.Request, model string, body []byte, _ bool) ([]byte, llm.Seen, error) {
	p := follower{name: model}
	p.seen.Usage = llm.NoUsage
	if r.Op == llm.Count {
		n := count(member(body, "input_tokens"))
		if n < 0 {
			return nil, p.seen, wrong(body, "the model's server answered without a count of tokens")
		}
		p.seen.Usage.In = n
		return body, p.seen, nil
	}
	data, a, err := wholeAnswer(body)
	if err != nil {
		return nil, p.seen, err
	}
	p.mend(&a, "completed", 0)
	p.seen.Usage = usageOf(a.usage.Of(data))
	p.seen.Content, p.seen.Finished = true, true
	p.seen.Events = (a.output.To - a.output.From) / 4 // about a token each, for an answer that does not count itself
	if len(p.edits) == 0 {
		return body, p.seen, nil
	}
	sortEdits(p.edits)
	return llm.Splice(nil, data, p.edits), p.seen, nil
}

// wholeAnswer reads a response that must have ended well.
func wholeAnswer(body []byte) ([]byte, answer, error) {
	data := bytes.TrimSpace(body)
	a, err := readAnswer(data)
	if err != nil {
		msg := "the model's server answered with something that is not a JSON object"
		if len(data) == 0 {
			msg = "the model's server answered with an empty body"
		}
		e := refused(msg)
		e.Err = err
		return nil, a, e
	}
	if a.output.IsZero() && a.status.IsZero() && isError(a.err.Of(data)) {
		return nil, a, &llm.Fault{Data: data}
	}
	if err := a.over(completed, "responses.Whole", false); err != nil {
		return nil, a, err
	}
	switch status := string(a.status.Of(data)); {
	case status == `"queued"` || status == `"in_progress"`:
		return nil, a, refused("the model's server answered before its answer was done")
	case a.output.IsZero() || data[a.output.From] != '[':
		return nil, a, wrong(data, "the model's server answered without any output")
	}
	return data, a, nil
}

// wrong returns the error of a body that is no answer: its own words where it has some.
func wrong(body []byte, msg string) error {
	if member(body, "message") != nil || isError(member(body, "error")) {
		return &llm.Fault{Data: bytes.Clone(body)}
	}
	return refused(msg)
}

func refused(msg string) *llm.Error {
	return &llm.Error{Kind: llm.Refused, Op: "responses.Whole", Msg: msg, Sent: true}
}

// AppendCount appends the answer to a question for the number of tokens.
func (Dialect) AppendCount(dst []byte, tokens int) []byte {
	dst = append(dst, `{"object":"response.input_tokens","input_tokens":`...)
	return append(strconv.AppendInt(dst, int64(tokens), 10), '}')
}
