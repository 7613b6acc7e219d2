package openai

import (
	"fmt"
	"strconv"

	"weir/internal/llm"
)

// oldCall is how the ids begin that calls of the old kind are given: function_call and the role function have none.
const oldCall = "function_call_"

// turns reads the messages, each as one turn.
func (rd *reader) turns(r *llm.Request) error {
	v := r.Body
	if r.MessagesAt.IsZero() {
		return nil
	}
	rd.c.Turns = make([]llm.Turn, 0, r.Shape.Messages)
	s := r.Again(r.MessagesAt)
	return s.Elements(func(i int) error { // one scan: long texts are passed once
		from := s.Offset()
		w, err := rd.words(&s, v)
		if err != nil {
			return err
		}
		w.all = v[from:s.Offset()]
		if cap(rd.store)-len(rd.store) < 4 {
			rd.store = make([]llm.Part, 0, min(r.Shape.Messages+8, 64))
		}
		return rd.turn(i, &w)
	})
}

// at returns where v stands, which is a piece of the body.
func (rd *reader) at(v []byte) llm.Span {
	from := cap(rd.body) - cap(v)
	return llm.Span{From: from, To: from + len(v)}
}

func (rd *reader) add(p llm.Part) { rd.store = append(rd.store, p) }

// since returns the parts that were added after the first n. More of them need a new room.
func (rd *reader) since(n int) []llm.Part { return rd.store[n:len(rd.store):len(rd.store)] }

// words are the members of one message, nil where they are absent or null.
type words struct {
	role, content, name, refusal, reasoning, thought, blocks []byte
	calls, call, id, cache                                   []byte
	all                                                      []byte // the message itself
}

// words passes the message at s, which scans v.
func (rd *reader) words(s *llm.Scanner, v []byte) (w words, err error) {
	if s.Peek() != '{' {
		return w, invalid("messages", "a message must be an object")
	}
	err = s.Members(func(name []byte) error {
		at, err := s.Value()
		if err == nil {
			rd.word(&w, name, at.Of(v))
		}
		return err
	})
	return w, err
}

func (rd *reader) word(w *words, name, v []byte) {
	if isNull(v) {
		return
	}
	switch string(name) {
	case "role":
		w.role = v
	case "content":
		w.content = v
	case "name":
		w.name = v
	case "refusal":
		w.refusal = v
	case "reasoning_content":
		w.reasoning = v
	case "reasoning":
		w.thought = v
	case "thinking_blocks":
		w.blocks = v
	case "tool_calls":
		w.calls = v
	case "function_call":
		w.call = v
	case "tool_call_id":
		w.id = v
	case "cache_control":
		w.cache = v
	default:
		if len(v) > 2 { // neither [] nor {} nor ""
			rd.lose("messages[]." + llm.Brief(name))
		}
	}
}

func (rd *reader) turn(i int, w *words) error {
	t := llm.Turn{N: i, At: rd.at(w.all), Name: llm.Inside(w.name)}
	n := len(rd.store)
	var err error
	switch string(w.role) {
	case `"system"`:
		t.Role, err = llm.System, rd.content(i, w.content)
	case `"developer"`:
		t.Role, err = llm.Developer, rd.content(i, w.content)
	case `"user"`:
		t.Role, err = llm.User, rd.content(i, w.content)
	case `"assistant"`:
		t.Role, err = llm.Assistant, rd.assistant(i, w)
	case `"tool"`, `"function"`:
		t.Role, err = llm.User, rd.content(i, w.content)
		rd.result(n, w)
		n = len(rd.store) - 1
		t.Name = nil
	default:
		return invalid(fmt.Sprintf("messages[%d].role", i), "role must be system, developer, user, assistant or tool")
	}
	t.Parts = rd.since(n)
	if w.cache != nil && len(t.Parts) > 0 {
		t.Parts[len(t.Parts)-1].Cache = w.cache
	}
	rd.c.Turns = append(rd.c.Turns, t)
	return err
}

// result makes the parts after the first n the result of a tool. What is to be cached is the result as a whole.
func (rd *reader) result(n int, w *words) {
	p := llm.Part{Kind: llm.PartResult, ID: llm.Inside(w.id), Name: llm.Inside(w.name), Parts: rd.since(n), At: rd.at(w.all)}
	for k := range p.Parts {
		if p.Parts[k].Cache != nil {
			p.Cache, p.Parts[k].Cache = p.Parts[k].Cache, nil
		}
	}
	if string(w.role) == `"function"` && rd.calls > 0 {
		p.ID = oldID(rd.calls - 1)
	}
	rd.add(p)
}

func oldID(n int) llm.Text { return strconv.AppendInt([]byte(oldCall), int64(n), 10) }

// assistant reads what the model said: its thinking, its words, its calls.
func (rd *reader) assistant(i int, w *words) error {
	rd.thinking(w)
	if err := rd.content(i, w.content); err != nil {
		return err
	}
	if t := llm.Inside(w.refusal); len(t) > 0 {
		rd.add(llm.Part{Kind: llm.PartRefusal, Text: t, At: rd.at(w.refusal)})
	}
	if w.calls != nil {
		bad := -1
		ok := each(w.calls, func(k int, e []byte) {
			if !rd.call(e) {
				bad = k
			}
		})
		if !ok {
			return invalid(fmt.Sprintf("messages[%d].tool_calls", i), "tool_calls must be a list of objects")
		} else if bad >= 0 {
			return invalid(fmt.Sprintf("messages[%d].tool_calls[%d]", i, bad), "a tool call must be an object")
		}
	}
	if w.call != nil {
		p := llm.Part{Kind: llm.PartCall, ID: oldID(rd.calls), At: rd.at(w.call)}
		rd.calls++
		if !function(&p, w.call) {
			return invalid(fmt.Sprintf("messages[%d].function_call", i), "function_call must be an object")
		}
		rd.add(p)
	}
	return nil
}

// thinking reads the thinking that the client carries back: as blocks with their signatures (C051), or as bare text.
func (rd *reader) thinking(w *words) {
	n := len(rd.store)
	each(w.blocks, func(_ int, e []byte) {
		b := blockOf(e)
		if p := b.thinking(); p.Kind != 0 {
			p.At = rd.at(e)
			rd.add(p)
		}
	})
	for _, v := range [][]byte{w.reasoning, w.thought} {
		if t := llm.Inside(v); len(t) > 0 && len(rd.store) == n {
			rd.add(llm.Part{Kind: llm.PartThinking, Text: t, At: rd.at(v)})
		}
	}
}

// call reads one tool call and reports whether it is an object.
func (rd *reader) call(v []byte) bool {
	p := llm.Part{Kind: llm.PartCall, At: rd.at(v)}
	ok := members(v, func(name, v []byte) {
		switch string(name) {
		case "id":
			p.ID = llm.Inside(v)
		case "function":
			function(&p, v)
		case "custom":
			p.Custom = function(&p, v)
		}
	})
	rd.add(p)
	return ok
}

// function reads the name and the arguments of a call and reports whether v is an object.
func function(p *llm.Part, v []byte) bool {
	return members(v, func(name, v []byte) {
		switch {
		case string(name) == "name":
			p.Name = llm.Inside(v)
		case string(name) != "arguments" && string(name) != "input" || isNull(v):
		case v[0] == '"':
			p.Input = llm.Input{Spelt: llm.Inside(v)}
		default: // some clients send the object itself
			p.Input = llm.Input{Object: v}
		}
	})
}

// content reads the content of a message. Empty texts are left out (C066).
func (rd *reader) content(i int, v []byte) error {
	switch {
	case v == nil:
		return nil
	case v[0] == '"':
		if len(v) > 2 {
			rd.add(llm.Part{Kind: llm.PartText, Text: llm.Inside(v), At: rd.at(v)})
		}
		return nil
	case v[0] != '[':
		return invalid(fmt.Sprintf("messages[%d].content", i), "content must be a string or a list of parts")
	}
	var err error
	each(v, func(j int, e []byte) {
		if err == nil {
			err = rd.part(i, j, e)
		}
	})
	return err
}
