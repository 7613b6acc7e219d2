package openai

import (
	"fmt"

	"weir/internal/llm"
)

// user takes what a user's turn says beside results. Where the system's words behind the start become the user's, turns
// that stand together are one message: templates that refuse the former refuse two of the latter as well.
func (m *composer) user(t *llm.Turn) error {
	for k := range t.Parts {
		p := &t.Parts[k]
		if p.Kind == llm.PartResult {
			continue
		}
		if err := m.fault(t, k, p); err != nil {
			return err
		}
		m.held = append(m.held, p)
	}
	if m.t.SystemTurns != "user" {
		m.flush(t.Name)
	}
	return nil
}

// fault returns why a part cannot be said, nil where it can. Silence would change what is asked.
func (m *composer) fault(t *llm.Turn, k int, p *llm.Part) error {
	const pdf = "application/pdf"
	switch {
	case p.Kind == llm.PartText, p.Kind == llm.PartRefusal, p.Kind == llm.PartAudio, isText(p):
	case p.Kind == llm.PartImage && len(p.Data)+len(p.URL) > 0:
	case p.Kind == llm.PartDocument && len(p.FileID) > 0 && m.r.Dialect != "anthropic": // one vendor's files
	case p.Kind == llm.PartDocument && len(p.Data) > 0 && (len(p.Media) == 0 || string(p.Media) == pdf):
	case p.Kind == llm.PartDocument && len(p.URL) > 0:
	case p.Kind == llm.PartOther && m.own:
	case p.Kind == llm.PartThinking, p.Kind == llm.PartCall: // not the user's
	case p.Kind == llm.PartDocument:
		return invalid(m.place(t, k), "this model's server takes documents that are text, PDF or a URL; send it as one of these")
	case p.Kind == llm.PartImage:
		return invalid(m.place(t, k), "this model's server takes an image as data or as a URL, not by the id of a file")
	default:
		return invalid(m.place(t, k), "this model's server does not know the block %q; leave it out, or ask a model of the same API", llm.Brief(p.Type))
	}
	return nil
}

// place names a part in the client's request; k below 0 is its turn.
func (m *composer) place(t *llm.Turn, k int) string {
	list := "messages"
	if m.r.Dialect == "responses" {
		list = "input"
	}
	if k < 0 {
		return fmt.Sprintf("%s[%d]", list, t.N)
	}
	return fmt.Sprintf("%s[%d].content[%d]", list, t.N, k)
}

// isText reports whether a part is text and no more.
func isText(p *llm.Part) bool {
	return p.Kind == llm.PartText || p.Kind == llm.PartRefusal || p.Kind == llm.PartDocument && p.Text != nil && len(p.Data) == 0
}

// spoken appends the text of a part; that of a document with its title.
func spoken(dst []byte, p *llm.Part) []byte {
	if p.Kind == llm.PartDocument && len(p.Name) > 0 {
		dst = append(append(append(dst, `Document \"`...), p.Name...), `\":\n\n`...)
	}
	return append(dst, p.Text...)
}

// flush writes what is held as one message of the user's: a plain string where all of it is text, as old servers know
// nothing else.
func (m *composer) flush(name llm.Text) {
	plain, n := true, 0
	for _, p := range m.held {
		if t := isText(p); !t || len(p.Text) > 0 {
			plain = plain && (t || p.Kind == llm.PartThinking || p.Kind == llm.PartCall)
			n++
		}
	}
	if n == 0 {
		m.held = m.held[:0]
		return
	}
	from := len(m.out)
	m.out = append(m.out, `{"role":"user","content":`...)
	start := len(m.out)
	if plain {
		m.out = append(m.out, '"')
		for _, p := range m.held {
			if isText(p) && len(p.Text) > 0 {
				if len(m.out) > start+1 {
					m.out = append(m.out, gap...)
				}
				m.out = spoken(m.out, p)
			}
		}
		m.out = append(m.out, '"')
	} else {
		m.out = append(m.out, '[')
		for _, p := range m.held {
			m.part(p)
		}
		m.out = closing(m.out, ']')
	}
	m.held = m.held[:0]
	if len(m.out) == start+2 { // nothing was said
		m.out = m.out[:from]
		return
	}
	m.out = append(text(m.out, "name", name), "},"...)
}

// part appends one part of a list, with a comma behind it.
func (m *composer) part(p *llm.Part) {
	switch {
	case isText(p):
		if len(p.Text) == 0 {
			return
		}
		m.out = append(spoken(append(m.out, `{"type":"text","text":"`...), p), `"},`...)
	case p.Kind == llm.PartImage:
		m.out = append(m.out, `{"type":"image_url","image_url":{"url":`...)
		m.out = append(text(link(m.out, p, "image/png"), "detail", p.Detail), "}},"...)
	case p.Kind == llm.PartAudio:
		m.out = quoted(append(m.out, `{"type":"input_audio","input_audio":{"data":`...), p.Data)
		m.out = append(quoted(append(m.out, `,"format":`...), p.Media), "}},"...)
	case p.Kind == llm.PartOther:
		m.out = append(append(m.out, p.Raw...), ',')
	case p.Kind == llm.PartDocument && len(p.FileID) > 0:
		m.out = append(quoted(append(m.out, `{"type":"file","file":{"file_id":`...), p.FileID), "}},"...)
	case p.Kind == llm.PartDocument:
		m.out = append(m.out, `{"type":"file","file":{"filename":`...)
		m.out = append(append(m.out, quotedOr(p.Name, "document.pdf")...), `,"file_data":`...)
		m.out = append(link(m.out, p, "application/pdf"), "}},"...)
	}
}

// link appends where a part's data is: a URL, or one that holds the data.
func link(dst []byte, p *llm.Part, media string) []byte {
	if len(p.Data) == 0 {
		return quoted(dst, p.URL)
	}
	dst = append(dst, `"data:`...)
	if len(p.Media) > 0 {
		dst = append(dst, p.Media...)
	} else {
		dst = append(dst, media...)
	}
	return append(append(append(dst, ";base64,"...), p.Data...), '"')
}
