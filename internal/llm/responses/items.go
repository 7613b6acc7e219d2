package responses

import (
	"fmt"

	"weir/internal/llm"
)

// itemWriter writes turns as input items.
type itemWriter struct {
	c      *llm.Conversation
	r      *llm.Request
	t      *llm.Target
	out    []byte
	own    bool            // the items go back to where they came from: thinking is kept as it was
	custom map[string]bool // ids of the calls of free text so far
}

func (w *itemWriter) str(s string) *itemWriter {
	w.out = append(w.out, s...)
	return w
}

func (w *itemWriter) raw(v []byte) *itemWriter {
	w.out = append(w.out, v...)
	return w
}

// text writes a text between two pieces.
func (w *itemWriter) text(before string, t llm.Text, after string) *itemWriter {
	w.out = append(append(append(w.out, before...), t...), after...)
	return w
}

// instructions writes the system's leading words, where they are text alone and something else follows them, and returns
// the turns that are left. Those of the developer stay in their place.
func (w *itemWriter) instructions() []llm.Turn {
	n := 0
	for n < len(w.c.Turns) && w.c.Turns[n].Role == llm.System && isText(w.c.Turns[n].Parts) {
		n++
	}
	if n == len(w.c.Turns) {
		return w.c.Turns
	}
	from := len(w.out)
	w.str(`"instructions":"`)
	empty := len(w.out)
	for i := range w.c.Turns[:n] {
		for j := range w.c.Turns[i].Parts {
			p := &w.c.Turns[i].Parts[j]
			if w.skips(p) {
				continue
			}
			if len(w.out) > empty {
				w.str(paragraph)
			}
			w.raw(p.Text)
		}
	}
	if len(w.out) == empty {
		w.out = w.out[:from]
	} else {
		w.str(`",`)
	}
	return w.c.Turns[n:]
}

func isText(parts []llm.Part) bool {
	for i := range parts {
		if parts[i].Kind != llm.PartText {
			return false
		}
	}
	return true
}

// skips reports a part that is not sent on: an empty text, or the line that some clients change from version to version.
func (w *itemWriter) skips(p *llm.Part) bool {
	return p.Kind == llm.PartText && (len(p.Text) == 0 || w.t.Attribution && llm.IsAttribution(p.Text))
}

// turn writes the items of a turn, each with a comma behind it. later says that it does not stand at the start.
func (w *itemWriter) turn(t *llm.Turn, later bool) error {
	if len(t.Name) > 0 {
		w.c.Lose(w.at(t) + ".name")
	}
	switch t.Role {
	case llm.System, llm.Developer:
		role := "system"
		switch {
		case later && w.t.SystemTurns == "user":
			role = "user"
		case t.Role == llm.Developer && w.t.Developer != "system":
			role = "developer"
		}
		return w.message(t, t.Parts, role)
	case llm.Assistant:
		return w.assistant(t)
	}
	for i := range t.Parts {
		if t.Parts[i].Kind == llm.PartResult {
			if err := w.result(t, &t.Parts[i]); err != nil {
				return err
			}
		}
	}
	return w.message(t, t.Parts, "user")
}

// at names the turn by its place in the client's list.
func (w *itemWriter) at(t *llm.Turn) string {
	list := "messages"
	if w.r.Dialect == dialect {
		list = "input"
	}
	return fmt.Sprintf("%s[%d]", list, t.N)
}

// message writes what a turn says beside the results of tools.
func (w *itemWriter) message(t *llm.Turn, parts []llm.Part, role string) error {
	from := len(w.out)
	w.str(`{"type":"message","role":"`).str(role).str(`","content":[`)
	empty := len(w.out)
	for i := range parts {
		if parts[i].Kind == llm.PartResult {
			continue
		}
		if err := w.part(t, &parts[i]); err != nil {
			return err
		}
	}
	if len(w.out) == empty {
		w.out = w.out[:from]
		return nil
	}
	w.out = append(closed(w.out), "]},"...)
	return nil
}

// part writes one part of what a user or the system says, with a comma behind it.
func (w *itemWriter) part(t *llm.Turn, p *llm.Part) error {
	switch p.Kind {
	case llm.PartText:
		if !w.skips(p) {
			w.text(`{"type":"input_text","text":"`, p.Text, `"},`)
		}
		return nil
	case llm.PartImage:
		return w.image(t, p)
	case llm.PartDocument:
		return w.document(t, p)
	case llm.PartAudio:
		w.text(`{"type":"input_audio","input_audio":{"data":"`, p.Data, `"`)
		w.text(`,"format":"`, p.Media, `"}},`)
		return nil
	}
	return w.foreign(t, p)
}

// foreign leaves out a part that only its own dialect knows, and refuses one that this server cannot be shown: left out,
// the model would answer something else.
func (w *itemWriter) foreign(t *llm.Turn, p *llm.Part) error {
	if p.Kind == llm.PartOther {
		w.c.Lose(fmt.Sprintf("%s (%s)", w.at(t), llm.Brief(p.Type)))
		return nil
	}
	what := "this part"
	switch p.Kind {
	case llm.PartImage:
		what = "this image"
	case llm.PartDocument:
		what = "this document"
	case llm.PartAudio:
		what = "this audio"
	}
	return invalid(w.at(t)+".content", "%s cannot be sent on to the servers behind this name: it is known to another server alone, or stands where none can be; send its data or a URL in a user's turn", what)
}

func (w *itemWriter) image(t *llm.Turn, p *llm.Part) error {
	switch {
	case len(p.Data) > 0:
		w.text(`{"type":"input_image","image_url":"data:`, p.Media, `;base64,`).raw(p.Data)
	case len(p.URL) > 0:
		w.text(`{"type":"input_image","image_url":"`, p.URL, ``)
	case len(p.FileID) > 0 && w.ours():
		w.text(`{"type":"input_image","file_id":"`, p.FileID, ``)
	default:
		return w.foreign(t, p)
	}
	detail := p.Detail
	if len(detail) == 0 {
		detail = llm.Text("auto")
	}
	w.text(`","detail":"`, detail, `"},`)
	return nil
}

// ours reports whether ids of files that the client sends are of the vendor whose API this is.
func (w *itemWriter) ours() bool { return w.r.Dialect != "anthropic" }

func (w *itemWriter) document(t *llm.Turn, p *llm.Part) error {
	switch {
	case len(p.Data) > 0:
		name := p.Name
		if len(name) == 0 {
			name = llm.Text("document.pdf")
		}
		w.text(`{"type":"input_file","filename":"`, name, `","file_data":"data:`)
		w.text(``, p.Media, `;base64,`).raw(p.Data).str(`"},`)
	case len(p.URL) > 0:
		w.text(`{"type":"input_file","file_url":"`, p.URL, `"},`)
	case len(p.FileID) > 0 && w.ours():
		w.text(`{"type":"input_file","file_id":"`, p.FileID, `"},`)
	case len(p.Text) > 0:
		w.str(`{"type":"input_text","text":"`)
		if len(p.Name) > 0 {
			w.raw(p.Name).str(paragraph)
		}
		w.raw(p.Text).str(`"},`)
	default:
		return w.foreign(t, p)
	}
	return nil
}

// result writes what a tool gave back: a string where it is one text, which every server takes, else a list.
func (w *itemWriter) result(t *llm.Turn, p *llm.Part) error {
	kind := `{"type":"function_call_output","call_id":"`
	if p.Custom || w.custom[string(p.ID)] {
		kind = `{"type":"custom_tool_call_output","call_id":"`
	}
	w.text(kind, p.ID, `","output":`)
	parts := p.Parts
	if len(parts) == 0 || len(parts) == 1 && parts[0].Kind == llm.PartText {
		w.str(`"`)
		if p.Failed {
			w.str(failedPrefix)
		}
		if len(parts) == 1 {
			w.raw(parts[0].Text)
		}
		w.str(`"},`)
		return nil
	}
	w.str(`[`)
	if p.Failed {
		w.str(`{"type":"input_text","text":"` + failedPrefix + `"},`)
	}
	for i := range parts {
		if err := w.part(t, &parts[i]); err != nil {
			return err
		}
	}
	w.out = append(closed(w.out), "]},"...)
	return nil
}

// failedPrefix stands before the words of a tool that failed: the dialect has no member that says so.
const failedPrefix = "Error: "

// assistant writes a turn of the assistant: its parts in order, texts that stand together as one message.
func (w *itemWriter) assistant(t *llm.Turn) error {
	open := false
	end := func() {
		if open {
			w.out = append(closed(w.out), "]},"...)
			open = false
		}
	}
	for i := range t.Parts {
		p := &t.Parts[i]
		switch p.Kind {
		case llm.PartText, llm.PartRefusal:
			if len(p.Text) == 0 {
				continue
			}
			if !open {
				w.str(`{"type":"message","role":"assistant","content":[`)
				open = true
			}
			if p.Kind == llm.PartRefusal {
				w.text(`{"type":"refusal","refusal":"`, p.Text, `"},`)
			} else {
				w.text(`{"type":"output_text","text":"`, p.Text, `"},`)
			}
		case llm.PartThinking:
			if len(p.Text)+len(p.Encrypted) > 0 { // what another vendor sealed is not for this one
				end()
				w.thinking(p)
			}
		case llm.PartCall:
			end()
			w.call(p)
		default:
			if err := w.foreign(t, p); err != nil {
				return err
			}
		}
	}
	end()
	return nil
}

// thinking writes a reasoning item. What was shown of it goes as a summary, which the vendors' servers take, or as its
// text where the server is one that reads the thinking of the history (C054).
func (w *itemWriter) thinking(p *llm.Part) {
	if w.own {
		w.raw(p.At.Of(w.r.Body)).str(`,`)
		return
	}
	w.str(`{"type":"reasoning","summary":[`)
	switch {
	case len(p.Text) == 0:
		w.str(`]`)
	case w.t.Reasoning != "":
		w.text(`],"content":[{"type":"reasoning_text","text":"`, p.Text, `"}]`)
	default:
		w.text(`{"type":"summary_text","text":"`, p.Text, `"}]`)
	}
	if len(p.Encrypted) > 0 {
		w.text(`,"encrypted_content":"`, p.Encrypted, `"`)
	}
	w.str(`},`)
}

func (w *itemWriter) call(p *llm.Part) {
	kind, args := `{"type":"function_call","call_id":"`, `","arguments":"`
	if p.Custom {
		if w.custom == nil {
			w.custom = map[string]bool{}
		}
		w.custom[string(p.ID)] = true
		kind, args = `{"type":"custom_tool_call","call_id":"`, `","input":"`
	}
	w.text(kind, p.ID, ``).text(`","name":"`, p.Name, args)
	if p.Custom && p.Input.IsEmpty() {
		w.str(`"},`)
		return
	}
	w.out = append(p.Input.AppendSpelt(w.out), `"},`...)
}
