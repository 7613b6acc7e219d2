package anthropic

import (
	"encoding/base64"
	"fmt"
	"slices"

	"weir/internal/llm"
)

// group is one message of the request to be: turns of the same speaker that stood together.
type group struct {
	role  llm.Role
	parts []*llm.Part
}

func (g *group) has(kind llm.PartKind) bool {
	return slices.ContainsFunc(g.parts, func(p *llm.Part) bool { return p.Kind == kind })
}

// gather sorts the turns into the system prompt and the messages, without what a server would refuse for being empty (C066).
func (w *composer) gather() error {
	leading := true
	w.groups = make([]group, 0, len(w.c.Turns))
	for i := range w.c.Turns {
		t := &w.c.Turns[i]
		role := t.Role
		if role == llm.Developer {
			role = llm.System
		}
		leading = leading && role == llm.System
		if !leading && role == llm.System && w.t.SystemTurns == "user" {
			role = llm.User
		}
		if len(t.Name) > 0 {
			w.c.Lose(w.place(t) + ".name")
		}
		for j := range t.Parts {
			p := &t.Parts[j]
			if ok, err := w.keep(t, p); err != nil {
				return err
			} else if !ok {
				continue
			}
			if leading {
				w.lead(t, p)
			} else {
				w.add(role, p)
			}
		}
	}
	for i := range w.groups {
		w.groups[i].sort()
	}
	w.trim()
	if len(w.groups) == 0 {
		return invalid(w.at("messages", "input"), "nothing is left to answer: the messages hold no text, image or result beside the system's")
	}
	return nil
}

// place names a turn by where it stands in the client's request.
func (w *composer) place(t *llm.Turn) string {
	if t.N < 0 {
		return w.at("system", "instructions")
	}
	return fmt.Sprintf("%s[%d]", w.at("messages", "input"), t.N)
}

// lead adds a part of the system prompt.
func (w *composer) lead(t *llm.Turn, p *llm.Part) {
	if p.Kind != llm.PartText {
		w.c.Lose(w.place(t) + ".content")
		return
	}
	if w.t.Attribution && llm.IsAttribution(p.Text) {
		rest := unattributed(p.Text)
		if len(rest) == 0 {
			return
		}
		p = &llm.Part{Kind: p.Kind, Text: rest, Cache: p.Cache}
	}
	w.system = append(w.system, p)
}

func (w *composer) add(role llm.Role, p *llm.Part) {
	if n := len(w.groups); n > 0 && w.groups[n-1].role == role {
		w.groups[n-1].parts = append(w.groups[n-1].parts, p)
		return
	}
	w.groups = append(w.groups, group{role: role, parts: append(make([]*llm.Part, 0, 4), p)})
}

// keep reports whether a part goes on.
func (w *composer) keep(t *llm.Turn, p *llm.Part) (bool, error) {
	switch p.Kind {
	case llm.PartText, llm.PartRefusal:
		return !isBlankText(p.Text), nil
	case llm.PartThinking: // without its vendor's signature it is worth nothing
		return len(p.Signature) > 0 || len(p.Redacted) > 0, nil
	case llm.PartImage, llm.PartDocument:
		if len(p.FileID) > 0 && w.r.Dialect != own {
			return false, invalid(w.place(t), "%s: a file_id is known to another server alone; send the data or a URL", w.place(t))
		}
	case llm.PartAudio:
		return false, invalid(w.place(t), "%s: the model's server does not hear; leave the audio out", w.place(t))
	case llm.PartResult:
		for i := range p.Parts {
			if _, err := w.keep(t, &p.Parts[i]); err != nil {
				return false, err
			}
		}
	case llm.PartOther:
		if w.r.Dialect != own {
			w.c.Lose(w.place(t))
			return false, nil
		}
	}
	return true, nil
}

// sort puts the results of tools before all else that a user says, and calls behind what the assistant says: servers
// refuse other orders.
func (g *group) sort() {
	rank := func(p *llm.Part) int {
		switch {
		case g.role == llm.User && p.Kind != llm.PartResult:
			return 1
		case g.role == llm.Assistant && p.Kind == llm.PartCall:
			return 1
		}
		return 0
	}
	called := false
	for _, p := range g.parts {
		switch {
		case p.Kind == llm.PartCall:
			called = true
		case g.role == llm.User && p.Kind == llm.PartResult, called && p.Kind == llm.PartText:
			slices.SortStableFunc(g.parts, func(a, b *llm.Part) int { return rank(a) - rank(b) })
			return
		}
	}
}

// trim takes the blanks off the end of an answer that the model is to go on with.
func (w *composer) trim() {
	n := len(w.groups) - 1
	if n < 0 || w.groups[n].role != llm.Assistant {
		return
	}
	g := &w.groups[n]
	last := g.parts[len(g.parts)-1]
	if last.Kind == llm.PartText {
		p := *last
		p.Text = trimRight(p.Text)
		g.parts[len(g.parts)-1] = &p
	}
}

// appendSystem appends the system prompt with a comma behind it: as text where it is one.
func (w *composer) appendSystem(dst []byte) []byte {
	if len(w.system) == 0 {
		return dst
	}
	return append(appendContent(append(dst, `"system":`...), w.system), ',')
}

func (g *group) append(dst []byte) []byte {
	dst = append(append(dst, `{"role":"`...), roleOf(g.role)...)
	return append(appendContent(append(dst, `","content":`...), g.parts), '}')
}

// appendContent appends parts as a string where they are one plain text, else as blocks.
func appendContent(dst []byte, parts []*llm.Part) []byte {
	if len(parts) == 1 && parts[0].Kind == llm.PartText && object(parts[0].Cache) == nil {
		return append(append(append(dst, '"'), parts[0].Text...), '"')
	}
	dst = append(dst, '[')
	for i, p := range parts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = foreign.part(dst, p)
	}
	return append(dst, ']')
}

// form says how strict the ids of calls are written: Anthropic's own server takes few characters.
type form bool

const (
	exact   form = false
	foreign form = true
)

// part appends a part as a block.
func (f form) part(dst []byte, p *llm.Part) []byte {
	switch p.Kind {
	case llm.PartText, llm.PartRefusal:
		dst = append(append(append(dst, `{"type":"text","text":"`...), p.Text...), '"')
	case llm.PartThinking:
		return appendThinking(dst, p)
	case llm.PartImage:
		dst = appendSource(append(dst, `{"type":"image","source":`...), p, imageType(p.Data))
	case llm.PartDocument:
		dst = appendSource(append(dst, `{"type":"document","source":`...), p, "application/pdf")
		if len(p.Name) > 0 {
			dst = append(append(append(dst, `,"title":"`...), p.Name...), '"')
		}
	case llm.PartCall:
		dst = append(f.id(append(dst, `{"type":"tool_use","id":"`...), p.ID), `","name":"`...)
		dst = append(append(dst, p.Name...), `","input":`...)
		dst = p.Input.AppendObject(dst)
	case llm.PartResult:
		return f.result(dst, p)
	default:
		return append(dst, p.Raw...)
	}
	return append(appendCache(dst, p.Cache), '}')
}

func appendThinking(dst []byte, p *llm.Part) []byte {
	if len(p.Redacted) > 0 {
		return append(append(append(dst, `{"type":"redacted_thinking","data":"`...), p.Redacted...), `"}`...)
	}
	dst = append(append(dst, `{"type":"thinking","thinking":"`...), p.Text...)
	return append(append(append(dst, `","signature":"`...), p.Signature...), `"}`...)
}

// result appends the result of a tool. The mark of the cache may stand on it alone, not within.
func (f form) result(dst []byte, p *llm.Part) []byte {
	dst = append(f.id(append(dst, `{"type":"tool_result","tool_use_id":"`...), p.ID), `","content":`...)
	cache, open := p.Cache, len(dst)
	var plain llm.Text
	n := 0
	for i := range p.Parts {
		q := p.Parts[i]
		if (q.Kind == llm.PartText || q.Kind == llm.PartRefusal) && isBlankText(q.Text) || q.Kind == llm.PartAudio {
			continue
		}
		if q.Cache != nil && cache == nil {
			cache = q.Cache
		}
		q.Cache = nil
		if n++; n == 1 {
			dst = append(dst, '[')
		} else {
			dst = append(dst, ',')
		}
		plain = nil
		if n == 1 && q.Kind == llm.PartText {
			plain = q.Text
		}
		dst = f.part(dst, &q)
	}
	switch {
	case n == 0:
		dst = append(dst, `""`...)
	case n == 1 && plain != nil:
		dst = append(append(append(dst[:open], '"'), plain...), '"')
	default:
		dst = append(dst, ']')
	}
	if p.Failed {
		dst = append(dst, `,"is_error":true`...)
	}
	return append(appendCache(dst, cache), '}')
}

// id appends the id of a call with other characters than letters, digits, _ and - replaced.
func (f form) id(dst []byte, id llm.Text) []byte {
	from := len(dst)
	dst = append(dst, id...)
	for i := from; i < len(dst) && bool(f); i++ {
		c := dst[i]
		if letter := c|0x20 >= 'a' && c|0x20 <= 'z'; !letter && (c < '0' || c > '9') && c != '_' && c != '-' {
			dst[i] = '_'
		}
	}
	return dst
}

// appendSource appends where an image or a document comes from. media is what it is where nothing says so.
func appendSource(dst []byte, p *llm.Part, media string) []byte {
	if len(p.Media) > 0 {
		media = string(p.Media)
	}
	text := p.Text
	if len(text) == 0 && p.Kind == llm.PartDocument && len(media) > 5 && media[:5] == "text/" {
		if plain, err := base64.StdEncoding.DecodeString(string(llm.Unescaped(p.Data))); err == nil {
			text = llm.Escaped(plain)
		}
	}
	switch {
	case len(text) > 0:
		dst = append(append(dst, `{"type":"text","media_type":"text/plain","data":"`...), text...)
	case len(p.Data) > 0:
		dst = append(append(dst, `{"type":"base64","media_type":"`...), media...)
		dst = append(append(dst, `","data":"`...), p.Data...)
	case len(p.URL) > 0:
		dst = append(append(dst, `{"type":"url","url":"`...), p.URL...)
	default:
		dst = append(append(dst, `{"type":"file","file_id":"`...), p.FileID...)
	}
	return append(dst, `"}`...)
}

// imageType tells the type of an image by how its base64 begins.
func imageType(data llm.Text) string {
	switch head := string(data[:min(4, len(data))]); head {
	case "/9j/":
		return "image/jpeg"
	case "R0lG":
		return "image/gif"
	case "UklG":
		return "image/webp"
	}
	return "image/png"
}

// isBlankText reports a text of nothing but white space.
func isBlankText(t llm.Text) bool {
	for i := 0; i < len(t); i++ {
		switch t[i] {
		case ' ', '\t', '\n', '\r':
		case '\\':
			if i++; i == len(t) || t[i] != 'n' && t[i] != 't' && t[i] != 'r' {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// trimRight takes the white space off the end of a text.
func trimRight(t llm.Text) llm.Text {
	end := 0
	for i := 0; i < len(t); i++ {
		switch c := t[i]; c {
		case ' ', '\t', '\n', '\r':
		case '\\':
			i++
			if i < len(t) && t[i] != 'n' && t[i] != 't' && t[i] != 'r' {
				end = i + 1
			}
		default:
			end = i + 1
		}
	}
	return t[:end]
}
