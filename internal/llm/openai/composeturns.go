package openai

import (
	"fmt"

	"weir/internal/llm"
)

// gap stands between texts that become one.
const gap = `\n\n`

// turns writes the messages: the system's words where the server takes them, the results of tools right behind the calls
// (C055), turns of the assistant that stand together as one (C069).
func (m *composer) turns() error {
	turns := m.c.Turns
	m.out = make([]byte, 0, len(m.r.Body)+len(m.r.Body)/8+256)
	i := m.leading()
	done := i // the results of the turns before it are written
	for i < len(turns) {
		t := &turns[i]
		if t.Role == llm.Assistant {
			m.flush(nil)
			end := i + 1
			for end < len(turns) && turns[end].Role == llm.Assistant {
				end++
			}
			called := m.assistant(turns[i:end])
			if i, done = end, end; called {
				done = m.results(end)
			}
			continue
		}
		if t.Role != llm.User {
			m.system(t)
		} else {
			if i >= done && hasResult(t.Parts) {
				m.flush(nil)
				m.resultsOf(t)
			}
			if err := m.user(t); err != nil {
				return err
			}
		}
		i++
	}
	m.flush(nil)
	if len(m.out) == 0 {
		return invalid("messages", "the request holds no text, image or tool call that could be sent on")
	}
	m.out = m.out[:len(m.out)-1] // the last comma
	return nil
}

// leading writes the system's words at the start, as one message where the server knows one alone (C160), and returns
// the number of the first turn behind them.
func (m *composer) leading() int {
	turns := m.c.Turns
	n := 0
	for n < len(turns) && (turns[n].Role == llm.System || turns[n].Role == llm.Developer) {
		n++
	}
	if m.t.Developer == "system" {
		m.words("system", turns[:n])
		return n
	}
	for i := range turns[:n] {
		m.words(m.role(&turns[i]), turns[i:i+1])
	}
	return n
}

func (m *composer) role(t *llm.Turn) string {
	if t.Role == llm.Developer && m.t.Developer != "system" {
		return "developer"
	}
	return "system"
}

// system writes the system's words behind the start in their place (C049).
func (m *composer) system(t *llm.Turn) {
	if m.t.SystemTurns == "user" {
		for k := range t.Parts {
			m.held = append(m.held, &t.Parts[k])
		}
		return
	}
	m.flush(nil)
	m.words(m.role(t), []llm.Turn{*t})
}

// words writes the texts of some turns as one message. Without any there is none.
func (m *composer) words(role string, turns []llm.Turn) {
	from := len(m.out)
	m.out = append(append(append(m.out, `{"role":"`...), role...), `","content":"`...)
	empty := len(m.out)
	for i := range turns {
		for k := range turns[i].Parts {
			p := &turns[i].Parts[k]
			if p.Kind != llm.PartText {
				m.c.Lose(m.place(&turns[i], k))
			}
			if p.Kind != llm.PartText || len(p.Text) == 0 || m.t.Attribution && llm.IsAttribution(p.Text) {
				continue
			}
			if len(m.out) > empty {
				m.out = append(m.out, gap...)
			}
			m.out = append(m.out, p.Text...)
		}
	}
	if len(m.out) == empty {
		m.out = m.out[:from]
		return
	}
	m.out = append(m.out, '"')
	if len(turns) == 1 {
		m.out = text(m.out, "name", turns[0].Name)
	}
	m.out = append(m.out, "},"...)
}

// utterance is what turns of the assistant say together.
type utterance struct {
	said, refused, thought []byte
	calls                  int
}

func (m *composer) gather(turns []llm.Turn) (u utterance) {
	add := func(dst []byte, between string, t llm.Text) []byte {
		if len(dst) > 0 && len(t) > 0 {
			dst = append(dst, between...)
		}
		return append(dst, t...)
	}
	for i := range turns {
		between := gap // what another turn said is a text of its own
		for k := range turns[i].Parts {
			switch p := &turns[i].Parts[k]; p.Kind {
			case llm.PartText:
				u.said = add(u.said, between, p.Text)
				between = ""
			case llm.PartRefusal:
				u.refused = append(u.refused, p.Text...)
			case llm.PartThinking:
				u.thought = add(u.thought, gap, p.Text)
			case llm.PartCall:
				u.calls++
			case llm.PartResult:
			default:
				m.c.Lose(m.place(&turns[i], k))
			}
		}
	}
	if !m.modern { // a member that older servers do not know
		u.said, u.refused = append(u.said, u.refused...), nil
	}
	if m.t.Reasoning == "" {
		if len(u.thought) > 0 && len(u.said)+len(u.refused)+u.calls == 0 {
			m.c.Lose(m.place(&turns[0], -1))
		}
		u.thought = nil
	}
	return u
}

// assistant writes turns of the assistant as one message and reports whether it has calls.
func (m *composer) assistant(turns []llm.Turn) (called bool) {
	u := m.gather(turns)
	if len(u.said)+len(u.refused)+len(u.thought)+u.calls == 0 {
		return false
	}
	m.out = append(m.out, `{"role":"assistant"`...)
	null := m.t.NullContent
	switch {
	case len(u.said) > 0 || u.calls > 0 && null != "null" && null != "omit":
		m.out = quoted(append(m.out, `,"content":`...), u.said)
	case u.calls == 0 && len(u.refused) == 0: // thinking alone
		m.out = append(m.out, `,"content":""`...)
	case null != "omit":
		m.out = append(m.out, `,"content":null`...)
	}
	m.out = text(m.out, "refusal", u.refused)
	m.out = text(m.out, "name", turns[0].Name)
	m.out = text(m.out, m.t.Reasoning, u.thought)
	if u.calls > 0 {
		m.out = append(m.out, `,"tool_calls":[`...)
		for i := range turns {
			for k := range turns[i].Parts {
				if p := &turns[i].Parts[k]; p.Kind == llm.PartCall {
					m.out = append(appendCall(m.out, p, m.modern), ',')
				}
			}
		}
		m.out = closing(m.out, ']')
	}
	m.out = append(m.out, "},"...)
	return u.calls > 0
}

// appendCall appends one tool call. That of a custom tool becomes a function's where the server knows no other.
func appendCall(dst []byte, p *llm.Part, modern bool) []byte {
	dst = quoted(append(dst, `{"id":`...), p.ID)
	if p.Custom && modern {
		dst = quoted(append(dst, `,"type":"custom","custom":{"name":`...), p.Name)
		return append(quoted(append(dst, `,"input":`...), p.Input.Spelt), "}}"...)
	}
	dst = quoted(append(dst, `,"type":"function","function":{"name":`...), p.Name)
	dst = append(dst, `,"arguments":"`...)
	if p.Custom {
		dst = llm.AppendEscaped(dst, quoted([]byte(`{"input":`), p.Input.Spelt))
		dst = append(dst, '}')
	} else {
		dst = p.Input.AppendSpelt(dst)
	}
	return append(dst, `"}}`...)
}

// results writes the results behind the calls that ended before the turn i, and returns the number of the turn behind
// those it wrote. What the system says between them comes after them.
func (m *composer) results(i int) int {
	for ; i < len(m.c.Turns) && m.c.Turns[i].Role != llm.Assistant; i++ {
		t := &m.c.Turns[i]
		if t.Role != llm.User {
			continue
		}
		m.resultsOf(t)
		if len(t.Parts) == 0 || t.Parts[len(t.Parts)-1].Kind != llm.PartResult {
			return i + 1
		}
	}
	return i
}

func hasResult(parts []llm.Part) bool {
	for k := range parts {
		if parts[k].Kind == llm.PartResult {
			return true
		}
	}
	return false
}

func (m *composer) resultsOf(t *llm.Turn) {
	for k := range t.Parts {
		if p := &t.Parts[k]; p.Kind == llm.PartResult {
			m.result(t, p)
		}
	}
}

// result writes one tool message. It takes text alone: the rest follows as the user's, behind a line that says whose it is.
func (m *composer) result(t *llm.Turn, r *llm.Part) {
	m.out = quoted(append(m.out, `{"role":"tool","tool_call_id":`...), r.ID)
	m.out = append(m.out, `,"content":"`...)
	if r.Failed {
		m.out = append(m.out, "Error: "...)
	}
	from, moved := len(m.out), false
	for k := range r.Parts {
		switch p := &r.Parts[k]; {
		case isText(p):
			if len(m.out) > from {
				m.out = append(m.out, gap...)
			}
			m.out = spoken(m.out, p)
		case p.Kind == llm.PartImage || p.Kind == llm.PartAudio || p.Kind == llm.PartDocument || p.Kind == llm.PartOther && m.own:
			if m.fault(t, k, p) != nil {
				m.c.Lose(m.place(t, k))
				continue
			}
			if !moved {
				moved = true
				m.held = append(m.held, &llm.Part{Kind: llm.PartText, Text: fmt.Appendf(nil, "From the result of the tool call %s:", r.ID)})
			}
			m.held = append(m.held, p)
		default:
			m.c.Lose(m.place(t, k))
		}
	}
	if moved && len(m.out) == from {
		m.out = append(m.out, "The result follows in the next message."...)
	}
	m.out = append(m.out, `"},`...)
}
