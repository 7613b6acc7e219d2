package anthropic

import (
	"bytes"
	"crypto/rand"
	"strconv"

	"weir/internal/llm"
)

// Whole checks an answer that came in one piece and returns it as the client gets it: its own bytes, but for an id or a
// type that is missing and a model that is a file's path. An error object is returned as a *llm.Fault. encode does not
// matter here: the dialect has no embeddings.
func (Dialect) Whole(r *llm.Request, model string, body []byte, encode bool) ([]byte, llm.Seen, error) {
	b := base{name: model, counts: noCounts}
	b.seen.Usage = llm.NoUsage
	e, err := b.whole(body)
	if err != nil {
		return nil, b.seen, err
	}
	if r.Op == llm.Count {
		n, ok := llm.Int(e.tokens.Of(e.data))
		if !ok || n < 0 {
			return nil, b.seen, refused("the model's server counted no input_tokens")
		}
		b.seen.Usage.In = n
		return body, b.seen, nil
	}
	if v := e.content.Of(e.data); len(v) == 0 || v[0] != '[' {
		return nil, b.seen, refused("the model's server answered without any content")
	}
	b.count(e.usage.Of(e.data))
	if !e.model.IsZero() {
		b.seen.Served = string(llm.Unquote(e.model.Of(e.data)))
	}
	b.seen.Events = (e.content.To - e.content.From) / 4 // about a token each, for an answer that does not count itself
	return b.complete(e, body), b.seen, nil
}

// whole walks an answer.
func (b *base) whole(body []byte) (*event, error) {
	data := bytes.TrimSpace(body)
	if len(data) == 0 {
		return nil, refused("the model's server answered with an empty body")
	}
	if err := b.walker.walk(data); err != nil {
		e := refused("the model's server answered with something that is not valid JSON")
		e.Err = err
		return nil, e
	}
	if b.walker.isFault(nil) {
		return nil, &llm.Fault{Data: data}
	}
	return &b.walker.event, nil
}

func refused(msg string) *llm.Error {
	return &llm.Error{Kind: llm.Refused, Op: "anthropic.Whole", Msg: msg, Sent: true}
}

// complete adds what a whole answer must have.
func (b *base) complete(e *event, body []byte) []byte {
	edits := b.mend(e)
	var front []byte
	add := func(name, raw string) { front = append(append(append(front, '"'), name...), `":`+raw+","...) }
	if isBlank(e.id.Of(e.data)) && e.id.IsZero() {
		add("id", `"msg_`+rand.Text()+`"`)
	}
	if e.typ.IsZero() {
		add("type", `"message"`)
	}
	if e.model.IsZero() {
		add("model", string(llm.AppendQuoted(nil, b.name)))
	}
	if front != nil {
		at := bytes.IndexByte(e.data, '{') + 1
		edits = append([]llm.Edit{{At: llm.Span{From: at, To: at}, With: front}}, edits...)
	}
	if edits == nil {
		return body
	}
	return llm.Splice(nil, e.data, edits)
}

// AppendCount appends the answer to a question for the number of tokens.
func (Dialect) AppendCount(dst []byte, tokens int) []byte {
	return append(strconv.AppendInt(append(dst, `{"input_tokens":`...), int64(tokens), 10), '}')
}
