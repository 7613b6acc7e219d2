package responses

import (
	"bytes"

	"weir/internal/llm"
)

// PreviousID returns the id of the response that r continues, empty where it continues none.
func PreviousID(r *llm.Request) string { return string(llm.Unquote(r.Value("previous_response_id"))) }

// WantsStore reports whether the client wants its response kept: it does where it does not say otherwise.
func WantsStore(r *llm.Request) bool { return string(r.Value("store")) != "false" }

// Input returns the input of r as a list of items, a raw JSON array that shares no bytes with r: the body's memory is
// reused before an answer is whole.
func Input(r *llm.Request) []byte {
	v := r.Value("input")
	switch {
	case v == nil:
		return []byte("[]")
	case v[0] == '"':
		out := append([]byte(`[{"type":"message","role":"user","content":`), v...)
		return append(out, "}]"...)
	}
	return bytes.Clone(v)
}

// Keep returns what a later request continues from that names the answer's id: the list of input, as Input gave it, and
// the items of the answer, a whole response object. The items name no ids, and thinking that only the server which stored
// it could read is left out: a server that stores nothing would look for both. It returns false for an answer that did not
// end well: failed or cancelled ones cannot be continued.
func Keep(input, answer []byte) (id string, items []byte, ok bool) {
	switch string(member(answer, "status")) {
	case `"completed"`, `"incomplete"`:
	default:
		return "", nil, false
	}
	id = string(llm.Unquote(member(answer, "id")))
	output := member(answer, "output")
	if id == "" || len(output) == 0 || output[0] != '[' || len(input) == 0 {
		return "", nil, false
	}
	return id, joined(input, again(output)), true
}

// again returns the items of an answer as they are said again in an input.
func again(output []byte) []byte {
	out := []byte{'['}
	elements(output, func(_ int, v []byte) {
		switch string(member(v, "type")) {
		case `"reasoning"`:
			sealed, content := member(v, "encrypted_content"), member(v, "content")
			switch {
			case !isBlank(sealed): // it belongs to its id
				out = append(append(out, v...), ',')
				return
			case len(content) == 0 || string(content) == "[]":
				return
			}
		case `"item_reference"`:
			return
		}
		out = append(append(out, anonymous(v)...), ',')
	})
	return append(closed(out), ']')
}

// anonymous returns the object v without its member id.
func anonymous(v []byte) []byte {
	r := llm.Request{Body: v}
	s := llm.NewScanner(v, anyDepth)
	if s.Peek() != '{' || s.Members(func(name []byte) error {
		from := s.NameAt()
		at, err := s.Value()
		r.Members = append(r.Members, llm.Member{Name: name, At: llm.Span{From: from, To: at.To}, Value: at})
		return err
	}) != nil {
		return v
	}
	var e llm.Edits
	e.Remove(&r, "id")
	if e.Empty() {
		return v
	}
	return e.Apply(nil, &r)
}

// Continue returns r's body with items before its input and without previous_response_id: what a server is sent that
// does not know the response. items is what Keep returned.
func Continue(r *llm.Request, items []byte) ([]byte, error) {
	if s := llm.NewScanner(items, anyDepth); s.Peek() != '[' || !llm.IsJSON(items) {
		return nil, &llm.Error{Kind: llm.Internal, Op: "responses.Continue",
			Msg: "the response that this one continues was kept in a form that cannot be read; send its items in input"}
	}
	var e llm.Edits
	e.Remove(r, "previous_response_id")
	e.Set(r, "input", joined(items, Input(r)))
	return e.Apply(nil, r), nil
}

// joined returns one raw array of the elements of two.
func joined(a, b []byte) []byte {
	inner := func(v []byte) []byte {
		v = bytes.TrimSpace(v)
		return bytes.TrimSpace(v[1 : len(v)-1])
	}
	x, y := inner(a), inner(b)
	out := make([]byte, 0, len(x)+len(y)+3)
	out = append(append(out, '['), x...)
	if len(x) > 0 && len(y) > 0 {
		out = append(out, ',')
	}
	return append(append(out, y...), ']')
}

// Terminal returns the response object of the event that ends a stream well, where piece, whole events as they went to
// the client, has it. A stream's pieces may be asked one after the other.
func Terminal(piece []byte) (answer []byte, ok bool) {
	if !bytes.Contains(piece, []byte("response.completed")) && !bytes.Contains(piece, []byte("response.incomplete")) {
		return nil, false
	}
	var f llm.Frames // servers frame their events in more than one way
	for room := f.Space(); len(piece) > 0 && room != nil; room = f.Space() {
		n := copy(room, piece)
		f.Took(n)
		piece = piece[n:]
		for fr, more := f.Next(); more; fr, more = f.Next() {
			switch string(llm.Unquote(member(fr.Data, "type"))) {
			case "response.completed", "response.incomplete":
				if v := member(fr.Data, "response"); len(v) > 0 && v[0] == '{' {
					answer = bytes.Clone(v)
				}
			}
		}
	}
	return answer, answer != nil
}
