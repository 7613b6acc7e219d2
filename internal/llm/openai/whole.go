package openai

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
	"time"

	"weir/internal/llm"
)

// Whole checks an answer that came in one piece and returns it as the client gets it: its own bytes, but for an id,
// object, created or choice index that is missing and a model that is a file's path. With encode, embeddings that came
// as numbers are sent as base64 where the client asked for that.
func (Dialect) Whole(r *llm.Request, model string, body []byte, encode bool) ([]byte, llm.Seen, error) {
	seen := llm.Seen{Usage: llm.NoUsage}
	w := walker{}
	data := bytes.TrimSpace(body)
	if len(data) == 0 {
		return nil, seen, refused("the model's server answered with an empty body")
	}
	if err := w.walk(data); err != nil {
		e := refused("the model's server answered with something that is not valid JSON")
		e.Err = err
		return nil, seen, e
	}
	c := &w.chunk
	if !c.fault.IsZero() || isFlatFault(c) {
		return nil, seen, &llm.Fault{Data: data}
	}
	b := base{op: r.Op, name: model}
	b.seen = seen
	b.note(c)
	if !r.Op.Generates() {
		if encode && r.Op == llm.Embeddings && string(r.Value("encoding_format")) == `"base64"` {
			out, err := encodeEmbeddings(b.named(c, data))
			if err != nil {
				return nil, b.seen, err
			}
			return out, b.seen, nil
		}
		return b.named(c, body), b.seen, nil
	}
	if c.choices.IsZero() || c.count == 0 {
		return nil, b.seen, refused("the model's server answered without any choice")
	}
	b.seen.Events = (c.choices.To - c.choices.From) / 4 // about a token each, for an answer that does not count itself
	return b.complete(c, body), b.seen, nil
}

func refused(msg string) *llm.Error {
	return &llm.Error{Kind: llm.Refused, Op: "openai.Whole", Msg: msg, Sent: true}
}

// complete adds what a whole answer must have.
func (b *base) complete(c *chunk, body []byte) []byte {
	var front []byte
	set := func(at llm.Span, name string, raw []byte) {
		if !at.IsZero() {
			c.edits = append(c.edits, llm.Edit{At: at, With: raw})
			return
		}
		front = append(append(append(append(front, '"'), name...), `":`...), raw...)
		front = append(front, ',')
	}
	if isBlank(c.id.Of(c.data)) {
		set(c.id, "id", llm.AppendQuoted(nil, prefix(b.op)+rand.Text()))
	}
	if isBlank(c.object.Of(c.data)) {
		set(c.object, "object", llm.AppendQuoted(nil, object(b.op, false)))
	}
	if c.created.IsZero() || count(c.created.Of(c.data)) <= 0 {
		set(c.created, "created", strconv.AppendInt(nil, time.Now().Unix(), 10))
	}
	if v := c.model.Of(c.data); isBlank(v) || isPath(v) {
		set(c.model, "model", llm.AppendQuoted(nil, b.name))
	}
	if len(c.edits) == 0 && front == nil {
		return body
	}
	if front != nil {
		at := bytes.IndexByte(c.data, '{') + 1
		c.edits = append(c.edits, llm.Edit{At: llm.Span{From: at, To: at}, With: front})
	}
	sortEdits(c.edits)
	return llm.Splice(nil, c.data, c.edits)
}

// named returns body with a shown name in place of a path.
func (b *base) named(c *chunk, body []byte) []byte {
	if !isPath(c.model.Of(c.data)) {
		return body
	}
	return llm.Splice(nil, c.data, []llm.Edit{{At: c.model, With: llm.AppendQuoted(nil, b.name)}})
}

// encodeEmbeddings replaces each embedding that is an array of numbers by its base64 form: little-endian float32, as the
// official SDKs decode it.
func encodeEmbeddings(data []byte) ([]byte, error) {
	var edits []llm.Edit
	s := llm.NewScanner(data, 64)
	err := s.Members(func(name []byte) error {
		if string(name) != "data" || s.Peek() != '[' {
			_, err := s.Value()
			return err
		}
		return s.Elements(func(int) error {
			if s.Peek() != '{' {
				_, err := s.Value()
				return err
			}
			return s.Members(func(name []byte) error {
				at, err := s.Value()
				if err == nil && string(name) == "embedding" && data[at.From] == '[' {
					edits = append(edits, llm.Edit{At: at, With: encodeVector(at.Of(data))})
				}
				return err
			})
		})
	})
	if err != nil {
		return nil, refused("the model's server answered with something that is not valid JSON")
	}
	return llm.Splice(nil, data, edits), nil
}

func encodeVector(raw []byte) []byte {
	var floats []byte
	s := llm.NewScanner(raw, 4)
	_ = s.Elements(func(int) error { // walked before: it cannot fail
		at, err := s.Value()
		floats = binary.LittleEndian.AppendUint32(floats, math.Float32bits(float32(parseFloat(at.Of(raw)))))
		return err
	})
	return llm.AppendQuoted(nil, base64.StdEncoding.EncodeToString(floats))
}
