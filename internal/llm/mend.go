package llm

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
)

// What Mend writes where something is missing.
const (
	UnnamedTool = "unknown_tool"            // the name of a tool that was called without one
	NoResult    = "No result was recorded." // the result of a call that has none

	orphan       = "Result of a tool call that is not in this conversation:"
	orphanFailed = "Error from a tool call that is not in this conversation:"
)

// Mend repairs what servers choke on in a history, again at every later turn: calls without a name, an id or arguments
// that are a JSON object, two calls of one turn with the same id, results that belong to no call before them, and calls
// that were never answered. It returns one note for each repair, which names the place and holds nothing of the user's.
//
// A turn it changed is Mended. One it added has no At and stands behind the turn it belongs to, whose N it has; one it
// moved is gone from its place and added at another. What it writes depends on the turns up to there alone, so that the
// prefix stays the same from request to request. A second Mend finds nothing. Where nothing is wrong it allocates no more
// than room to look at one turn's calls.
func (c *Conversation) Mend() []string {
	m := mender{c: c, last: -1}
	for i := range c.Turns {
		switch c.Turns[i].Role {
		case Assistant:
			m.assistant(i)
		case User:
			m.user(i)
		}
	}
	if m.last != len(c.Turns)-1 { // the calls of the last turn may still be answered
		m.settle(len(c.Turns))
	}
	m.rebuild()
	return m.notes
}

// pending is a call of the assistant turns that stood last, as the results behind it see it.
type pending struct {
	was, id Text // as the client had it; as it is now
	name    Text
	n       int  // its turn's number
	nth     int  // among its turn's calls
	done    bool // answered
	next    int  // the next of the same id, in a long list
}

type mender struct {
	c     *Conversation
	open  []pending
	left  int // how many of them are not answered
	first int // all before it are
	last  int // the assistant's turn that stood last
	calls int // in the history so far
	talks bool

	ids   map[string]bool // of a long list
	heads map[string]int  // the first of each id that is not answered, plus one; of a long list
	late  []Part          // what may only stand behind the results
	lateN int
	added []addedTurn
	gone  bool // a turn was taken away
	spelt []byte
	notes []string
}

type addedTurn struct {
	before int
	turn   Turn
}

// longList is from how many calls on looking through them would no longer be cheap.
const longList = 16

func (m *mender) note(n int, format string, args ...any) {
	m.notes = append(m.notes, "messages["+strconv.Itoa(n)+"]"+fmt.Sprintf(format, args...))
}

// assistant takes the calls of a turn. Turns of the assistant that stand together are one.
func (m *mender) assistant(i int) {
	if !m.talks {
		m.settle(i)
		m.talks = true
	}
	m.last = i
	t, nth := &m.c.Turns[i], 0
	for j := range t.Parts {
		if p := &t.Parts[j]; p.Kind == PartCall {
			m.call(t, p, nth)
			nth++
		}
	}
}

func (m *mender) call(t *Turn, p *Part, nth int) {
	was := p.ID
	if isBlankText(p.Name) {
		p.Name, t.Mended = Text(UnnamedTool), true
		m.note(t.N, ".tool_calls[%d]: named %s, as it had no name", nth, UnnamedTool)
	}
	switch {
	case isBlankText(p.ID):
		was = nil
		p.ID, t.Mended = m.newID(), true
		m.note(t.N, ".tool_calls[%d]: given an id, as it had none", nth)
	case m.taken(p.ID):
		p.ID, t.Mended = m.newID(), true
		m.note(t.N, ".tool_calls[%d]: given an id of its own, as another call has the same", nth)
	}
	if why := m.input(p); why != "" {
		t.Mended = true
		m.note(t.N, ".tool_calls[%d]: %s", nth, why)
	}
	if m.open == nil {
		m.open = make([]pending, 0, longList)
	}
	m.open = append(m.open, pending{was: was, id: p.ID, name: p.Name, n: t.N, nth: nth})
	if m.ids != nil {
		m.ids[string(p.ID)] = true
	}
	m.left++
	m.calls++
}

// input makes the arguments a JSON object and says what was wrong with them.
func (m *mender) input(p *Part) string {
	in := p.Input
	if p.Custom {
		return ""
	}
	if in.Object != nil {
		v := trim(in.Object)
		if len(v) > 0 && v[0] == '{' {
			return ""
		}
		in = Input{Object: in.Object}
		if t := Inside(v); t != nil && m.isObject(t) {
			p.Input = Input{Spelt: t}
			return "arguments taken out of a string"
		}
	} else if m.isObject(in.Spelt) {
		return ""
	}
	if len(trim(in.Object)) == 0 && len(trim(in.Spelt)) == 0 || string(in.Object) == "null" || string(in.Spelt) == "null" {
		p.Input = Input{Object: Raw("{}")}
		return "given empty arguments, as it had none"
	}
	p.Input = Input{Object: in.AppendObject(nil)}
	return "arguments that are no JSON object kept under " + SpoiltInput
}

// isObject reports whether t spells a JSON object.
func (m *mender) isObject(t Text) bool {
	if bytes.IndexByte(t, '\\') < 0 {
		return IsObject(t)
	}
	out := slices.Grow(m.spelt[:0], len(t))[:len(t)]
	k := 0
	for i := 0; i < len(t); i, k = i+1, k+1 {
		c := t[i]
		if c == '\\' && i+1 < len(t) {
			i++
			switch c = t[i]; c {
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			case 't':
				c = '\t'
			case 'b', 'f':
				c = '\b'
			case 'u':
				// Beyond ASCII any character is as good as another: none is allowed outside a string, all are within.
				r := unit(t[i-1:])
				if c = byte(r); r < 0 || r >= 0x80 {
					c = '?'
				}
				i += 4
			}
		}
		out[k] = c
	}
	out = out[:k]
	m.spelt = out
	return IsObject(out)
}

// newID makes an id that no call of the open ones has.
func (m *mender) newID() Text {
	id := strconv.AppendInt([]byte("call_"), int64(m.calls), 10)
	for m.taken(id) {
		id = append(id, 'x')
	}
	return id
}

// taken reports whether an open call has that id.
func (m *mender) taken(id Text) bool {
	if len(m.open) > longList {
		if m.ids == nil {
			m.ids = make(map[string]bool, 2*len(m.open))
			for i := range m.open {
				m.ids[string(m.open[i].id)] = true
			}
		}
		return m.ids[string(id)]
	}
	for i := range m.open {
		if bytes.Equal(m.open[i].id, id) {
			return true
		}
	}
	return false
}

// user takes the results of a turn, and after them what else it says.
func (m *mender) user(i int) {
	m.talks = false
	t := &m.c.Turns[i]
	lost, found, other := 0, 0, len(t.Parts) == 0
	for j := range t.Parts {
		p := &t.Parts[j]
		switch {
		case p.Kind != PartResult:
			other = true
		case m.answer(t, p):
			found++
		default:
			p.Kind = partOrphan
			lost++
			m.note(t.N, ": a result that belongs to no call made the user's text")
		}
	}
	if lost > 0 {
		m.orphans(t, other || m.left == 0)
		other = other || m.left == 0
	}
	if other {
		if found > 0 {
			i++
		}
		m.settle(i)
	}
}

// partOrphan marks a result that belongs to no call while its turn is worked on.
const partOrphan PartKind = 255

// answer finds the call that a result belongs to.
func (m *mender) answer(t *Turn, p *Part) bool {
	if m.left == 0 {
		return false
	}
	id := p.ID
	if isBlankText(id) {
		id = nil
	}
	k := m.find(id)
	if k < 0 && id != nil {
		k = m.find(nil) // a call that had no id
	}
	if k < 0 && id == nil {
		for m.open[m.first].done {
			m.first++
		}
		k = m.first
	}
	if k < 0 {
		return false
	}
	call := &m.open[k]
	call.done = true
	m.left--
	if !bytes.Equal(p.ID, call.id) {
		p.ID, t.Mended = call.id, true
		m.note(t.N, ": given the id of its call")
	}
	return true
}

// find returns the first call of that id, as the client had it, which is not answered, or -1.
func (m *mender) find(id Text) int {
	if len(m.open) <= longList {
		for i := range m.open {
			if p := &m.open[i]; !p.done && bytes.Equal(p.was, id) {
				return i
			}
		}
		return -1
	}
	if m.heads == nil {
		m.heads = make(map[string]int, len(m.open))
		for i := len(m.open) - 1; i >= 0; i-- {
			p := &m.open[i]
			p.next = m.heads[string(p.was)]
			m.heads[string(p.was)] = i + 1
		}
	}
	k := m.heads[string(id)]
	for k > 0 && m.open[k-1].done {
		k = m.open[k-1].next
	}
	m.heads[string(id)] = k
	return k - 1
}

// orphans makes the results that belong to no call the user's words: where they are, or behind the results to come.
func (m *mender) orphans(t *Turn, here bool) {
	var kept []Part
	for _, p := range t.Parts {
		if p.Kind != partOrphan {
			kept = append(kept, p)
			continue
		}
		text := orphan
		if p.Failed {
			text = orphanFailed
		}
		said := append([]Part{{Kind: PartText, Text: Text(text)}}, p.Parts...)
		if here {
			kept = append(kept, said...)
		} else {
			m.late, m.lateN = append(m.late, said...), t.N
		}
	}
	t.Parts, t.Mended = kept, true
	if len(kept) == 0 {
		t.Role = 0
		m.gone = true
	}
}

// settle ends what the last calls wait for: those without a result are given one, and what had to wait for the results
// is said before the turn i.
func (m *mender) settle(i int) {
	if m.left > 0 {
		fill := Turn{Role: User, N: m.c.Turns[m.last].N, Mended: true}
		for k := range m.open {
			if p := &m.open[k]; !p.done {
				fill.Parts = append(fill.Parts, Part{Kind: PartResult, ID: p.id, Name: p.name,
					Parts: []Part{{Kind: PartText, Text: Text(NoResult)}}})
				m.note(p.n, ".tool_calls[%d]: given a result, as it had none", p.nth)
			}
		}
		m.added = append(m.added, addedTurn{m.last + 1, fill})
	}
	if m.late != nil {
		m.added = append(m.added, addedTurn{i, Turn{Role: User, Parts: m.late, N: m.lateN, Mended: true}})
	}
	m.open, m.left, m.first, m.ids, m.heads, m.late = m.open[:0], 0, 0, nil, nil, nil
}

// rebuild puts the added turns in their places and leaves out those that are gone.
func (m *mender) rebuild() {
	if len(m.added) == 0 && !m.gone {
		return
	}
	out := make([]Turn, 0, len(m.c.Turns)+len(m.added))
	for i := 0; i <= len(m.c.Turns); i++ {
		for len(m.added) > 0 && m.added[0].before <= i {
			out = append(out, m.added[0].turn)
			m.added = m.added[1:]
		}
		if i < len(m.c.Turns) && m.c.Turns[i].Role != 0 {
			out = append(out, m.c.Turns[i])
		}
	}
	m.c.Turns = out
}

func isBlankText(t Text) bool { return len(trim(t)) == 0 }
