package responses

import (
	"errors"
	"fmt"

	"weir/internal/llm"
)

// Conversation reads a request of this dialect as a conversation. Errors are *llm.Error of kind Invalid: of items that
// nobody but their vendor can read, and of types that are not known.
func (Dialect) Conversation(r *llm.Request) (*llm.Conversation, error) {
	rd := reader{r: r, c: new(llm.Conversation)}
	if err := rd.history(); err != nil {
		return nil, err
	}
	for i := range r.Members {
		m := &r.Members[i]
		if v := given(m.Value.Of(r.Body)); v != nil {
			if err := rd.setting(string(m.Name), v); err != nil {
				return nil, err
			}
		}
	}
	if err := rd.choosable(); err != nil {
		return nil, err
	}
	return rd.c, nil
}

// reader reads the items of one request.
type reader struct {
	r       *llm.Request
	c       *llm.Conversation
	s       llm.Scanner
	lenient bool // what cannot be read is passed over
	it      item
	joins   bool // the last item went into the last turn
	parts   []llm.Part
	passed  []llm.Span // items that are in no turn
}

// item is one input item as it is read. Values are raw.
type item struct {
	n                           int
	at                          llm.Span
	kind, role                  string
	id, callID, name            llm.Text
	arguments, input, encrypted []byte
	text                        []byte // content or output, where it is no list
	content, summary            []llm.Part
	joined                      bool // the item before it went into the last turn
}

// history reads instructions and input into turns.
func (rd *reader) history() error {
	if v := rd.r.Value("instructions"); v != nil {
		if v[0] != '"' {
			return invalid("instructions", "instructions must be a string")
		}
		if text := llm.Inside(v); len(text) > 0 {
			m, _ := rd.r.Member("instructions")
			rd.c.Turns = append(rd.c.Turns, llm.Turn{Role: llm.System, At: m.Value,
				Parts: []llm.Part{{Kind: llm.PartText, Text: text, At: m.Value}}})
		}
	}
	at := rd.r.MessagesAt
	v := at.Of(rd.r.Body)
	switch {
	case len(v) == 0:
		return nil
	case v[0] == '"':
		if text := llm.Inside(v); len(text) > 0 {
			rd.c.Turns = append(rd.c.Turns, llm.Turn{Role: llm.User, At: at,
				Parts: []llm.Part{{Kind: llm.PartText, Text: text, At: at}}})
		}
		return nil
	}
	rd.s = rd.r.Again(at)
	rd.parts = make([]llm.Part, 0, 2*rd.r.Shape.Messages)
	err := rd.s.Elements(rd.item)
	if _, ok := errors.AsType[*llm.Error](err); err != nil && !ok {
		return &llm.Error{Kind: llm.Internal, Op: "responses.Conversation", Msg: "the request changed while it was read", Err: err}
	}
	return err
}

// value passes any value and returns it.
func (rd *reader) value() ([]byte, error) {
	at, err := rd.s.Value()
	return at.Of(rd.r.Body), err
}

func (rd *reader) span(from int) llm.Span {
	return llm.Span{From: from, To: rd.s.Offset()}
}

func (rd *reader) item(i int) error {
	it := &rd.it
	*it = item{n: i}
	from := rd.s.Offset()
	if err := rd.s.Members(rd.itemMember); err != nil {
		return err
	}
	it.at, it.joined = rd.span(from), rd.joins
	rd.joins = false
	if err := rd.take(it); err != nil && !rd.lenient {
		return err
	}
	if !rd.joins {
		rd.passed = append(rd.passed, it.at)
	}
	return nil
}

func (rd *reader) itemMember(name []byte) error {
	it := &rd.it
	key := string(name)
	switch key {
	case "content", "output", "summary":
		if rd.s.Peek() == '[' {
			list, err := rd.list(key)
			if key == "summary" {
				it.summary = list
			} else {
				it.content = list
			}
			return err
		}
	}
	v, err := rd.value()
	if err != nil || isNull(v) {
		return err
	}
	switch key {
	case "type":
		it.kind = string(llm.Unquote(v))
	case "role":
		it.role = string(llm.Unquote(v))
	case "id":
		it.id = llm.Inside(v)
	case "call_id":
		it.callID = llm.Inside(v)
	case "name":
		it.name = llm.Inside(v)
	case "arguments":
		it.arguments = v
	case "input":
		it.input = v
	case "encrypted_content":
		it.encrypted = v
	case "content", "output":
		it.text = v
	}
	return nil
}

// list reads the parts of an item. They stand in one piece of the reader's memory.
func (rd *reader) list(member string) ([]llm.Part, error) {
	from := len(rd.parts)
	err := rd.s.Elements(func(j int) error {
		if rd.s.Peek() != '{' {
			if _, err := rd.value(); err != nil || rd.lenient {
				return err
			}
			return invalid(fmt.Sprintf("input[%d].%s[%d]", rd.it.n, member, j), "a part must be an object")
		}
		p, err := rd.part()
		switch {
		case err != nil:
			return err
		case p.Kind == llm.PartText && len(p.Text) == 0: // empty texts say nothing
			return nil
		case p.Kind == llm.PartOther && !rd.lenient:
			return invalid(fmt.Sprintf("input[%d].%s[%d].type", rd.it.n, member, j),
				"parts of the type %q cannot be translated for the servers behind this name; leave the part out", llm.Brief(p.Type))
		}
		rd.parts = append(rd.parts, p)
		return nil
	})
	n := len(rd.parts)
	return rd.parts[from:n:n], err
}

// one returns a list of one part.
func (rd *reader) one(p llm.Part) []llm.Part {
	rd.parts = append(rd.parts, p)
	n := len(rd.parts)
	return rd.parts[n-1 : n : n]
}

// turn adds parts to the conversation: to the last turn where the item goes on with it (C069).
func (rd *reader) turn(role llm.Role, parts []llm.Part) {
	if len(parts) == 0 {
		return
	}
	rd.joins = true
	if (role == llm.Assistant || parts[0].Kind == llm.PartResult) && rd.follows(role) {
		t := &rd.c.Turns[len(rd.c.Turns)-1]
		t.Parts = append(t.Parts, parts...)
		t.At.To = rd.it.at.To
		return
	}
	rd.c.Turns = append(rd.c.Turns, llm.Turn{Role: role, Parts: parts, N: rd.it.n, At: rd.it.at})
}

// follows reports whether the item goes on with the turn of the one before it, which must be of role.
func (rd *reader) follows(role llm.Role) bool {
	n := len(rd.c.Turns)
	if !rd.it.joined || rd.c.Turns[n-1].Role != role {
		return false
	}
	if role == llm.Assistant {
		return true
	}
	parts := rd.c.Turns[n-1].Parts // results go together, and nothing else of a user does
	return role == llm.User && parts[len(parts)-1].Kind == llm.PartResult
}
