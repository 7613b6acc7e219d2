package responses

import (
	"bytes"
	"strings"

	"weir/internal/llm"
)

// Edits returns the changes that make r's body what t wants. All else is kept byte for byte. What had to be mended in the
// history is noted in r.Repair at the first call. The server is told to store nothing: what is kept is kept by Weir alone.
func (Dialect) Edits(r *llm.Request, t *llm.Target) (*llm.Edits, error) {
	e := new(llm.Edits)
	e.Set(r, "model", t.Quoted)
	if r.Op.Generates() {
		if t.Stream && !r.Stream {
			e.Set(r, "stream", rawTrue)
		}
		e.Set(r, "store", []byte("false")) // absent means true
		sample(e, r, t)
	}
	if r.Calls && r.Repair == nil {
		r.Repair = repair(r)
	}
	if r.Repair != nil {
		for _, d := range r.Repair.Edits {
			e.Replace(d.At, d.With)
		}
	}
	return e, nil
}

// sample defaults, forces and strips sampling parameters. A rule may call the limit of tokens by any of its names.
func sample(e *llm.Edits, r *llm.Request, t *llm.Target) {
	for i := range t.Sampling {
		p := &t.Sampling[i]
		name := p.Name
		for _, old := range oldLimits {
			if name == old {
				name = limit
			}
		}
		if m, ok := inOtherCase(r, name); ok {
			e.Remove(r, m) // some servers would read it in place of the pool's (S17)
		}
		switch {
		case p.Strip:
			e.Remove(r, name)
		case p.Force != nil:
			e.Set(r, name, p.Force)
		case p.Default != nil && r.Value(name) == nil:
			e.Set(r, name, p.Default)
		}
	}
}

// inOtherCase finds a member that differs from name in case only.
func inOtherCase(r *llm.Request, name string) (string, bool) {
	for _, m := range r.Members {
		if string(m.Name) != name && strings.EqualFold(string(m.Name), name) {
			return string(m.Name), true
		}
	}
	return "", false
}

// repair looks at a history with calls and says what a server must not be shown. Items that cannot be read are left as
// they are: they are between the client and its server.
func repair(r *llm.Request) *llm.Repair {
	rd := reader{r: r, c: new(llm.Conversation), lenient: true}
	if rd.history() != nil {
		return &llm.Repair{}
	}
	notes := rd.c.Mend()
	if len(notes) == 0 {
		return &llm.Repair{}
	}
	w := itemWriter{c: rd.c, r: r, t: &llm.Target{}, own: true}
	w.str(`[`)
	passed := rd.passed
	for i := range rd.c.Turns {
		t := &rd.c.Turns[i]
		if t.Role == llm.System && !within(t.At, r.MessagesAt) {
			continue // instructions
		}
		for len(passed) > 0 && !t.At.IsZero() && passed[0].From < t.At.From {
			w.raw(passed[0].Of(r.Body)).str(`,`)
			passed = passed[1:]
		}
		if !t.Mended {
			w.raw(t.At.Of(r.Body)).str(`,`)
		} else if w.turn(t, true) != nil {
			return &llm.Repair{}
		}
	}
	for _, at := range passed {
		w.raw(at.Of(r.Body)).str(`,`)
	}
	w.out = append(closed(w.out), ']')
	if bytes.Equal(w.out, r.MessagesAt.Of(r.Body)) {
		return &llm.Repair{}
	}
	for i, n := range notes {
		notes[i] = strings.Replace(n, "messages[", "input[", 1)
	}
	return &llm.Repair{Edits: []llm.Edit{{At: r.MessagesAt, With: w.out}}, Notes: notes}
}

func within(at, outer llm.Span) bool { return at.From >= outer.From && at.To <= outer.To }
