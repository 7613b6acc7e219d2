package openai

import (
	"crypto/rand"
	"slices"
	"strconv"

	"weir/internal/llm"
)

// passedCalls are the calls of one choice as they went to the client.
type passedCalls struct {
	choice  int64
	numbers numbering
	indices []int64 // as the client knows them
}

// renumber mends deltas of tool calls, as clients put calls together by their index: one index for each call (C034), an
// index in each delta (C037), an id at each call's start (C039). What is well numbered stays.
func (p *passing) renumber(c *choice) {
	data := p.walker.data
	of := p.callsOf(c.n)
	deltas(c.calls.Of(data), func(e []byte, d *callDelta) {
		k, begins := of.numbers.open(d)
		if begins {
			of.indices = append(of.indices, of.index(d.given))
		}
		var front []byte
		if d.given != of.indices[k] {
			front = p.member(front, e, "index", strconv.AppendInt(nil, of.indices[k], 10))
		}
		if begins && d.id == nil {
			front = p.member(front, e, "id", llm.AppendQuoted(nil, "call_"+rand.Text()))
		}
		if front == nil {
			return
		}
		if isEmpty(e) {
			front = front[:len(front)-1]
		}
		from := cap(data) - cap(e) + 1
		p.walker.edits = append(p.walker.edits, llm.Edit{At: llm.Span{From: from, To: from}, With: front})
	})
}

func (p *passing) callsOf(choice int64) *passedCalls {
	for i := range p.calls {
		if p.calls[i].choice == choice {
			return &p.calls[i]
		}
	}
	p.calls = append(p.calls, passedCalls{choice: choice})
	return &p.calls[len(p.calls)-1]
}

// index returns the index of a new call: the server's, unless it is taken.
func (of *passedCalls) index(given int64) int64 {
	if given >= 0 && !slices.Contains(of.indices, given) {
		return given
	}
	next := int64(-1)
	for _, n := range of.indices {
		next = max(next, n)
	}
	return next + 1
}

// member puts a value in the place of a delta's member, or appends a new member to front.
func (p *passing) member(front, e []byte, name string, raw []byte) []byte {
	var old []byte
	members(e, func(n, v []byte) {
		if string(n) == name {
			old = v
		}
	})
	if old == nil {
		return append(append(append(llm.AppendQuoted(front, name), ':'), raw...), ',')
	}
	from := cap(p.walker.data) - cap(old)
	p.walker.edits = append(p.walker.edits, llm.Edit{At: llm.Span{From: from, To: from + len(old)}, With: raw})
	return front
}
