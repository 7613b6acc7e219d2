package responses

import (
	"bytes"
	"fmt"

	"weir/internal/llm"
)

// hosted are the items of tools that a vendor runs itself, or that only its own models know: other servers are not shown
// them.
var hosted = map[string]bool{
	"web_search_call": true, "file_search_call": true, "code_interpreter_call": true, "image_generation_call": true,
	"computer_call": true, "computer_call_output": true, "local_shell_call": true, "local_shell_call_output": true,
	"shell_call": true, "shell_call_output": true, "apply_patch_call": true, "apply_patch_call_output": true,
	"mcp_call": true, "mcp_list_tools": true, "mcp_approval_request": true, "mcp_approval_response": true,
	"tool_search_call": true, "tool_search_output": true, "additional_tools": true, "program": true, "program_output": true,
}

// take puts an item into the conversation.
func (rd *reader) take(it *item) error {
	switch it.kind {
	case "", "message":
		return rd.message(it)
	case "function_call", "custom_tool_call":
		return rd.call(it)
	case "function_call_output", "custom_tool_call_output":
		return rd.result(it)
	case "reasoning":
		return rd.reasoning(it)
	case "item_reference":
		return rd.fault(it, "", "item_reference is not served: Weir does not know the item; send it whole")
	case "compaction", "compaction_summary":
		return rd.fault(it, "", "only the vendor that made a %s item can read it, and the servers behind this name are others; send the conversation itself", it.kind)
	}
	if hosted[it.kind] {
		rd.lose(fmt.Sprintf("input[%d] (%s)", it.n, it.kind))
		return nil
	}
	return rd.fault(it, "type", "items of the type %q cannot be translated for the servers behind this name; leave the item out", llm.Brief(it.kind))
}

func (rd *reader) fault(it *item, member, format string, args ...any) error {
	path := fmt.Sprintf("input[%d]", it.n)
	if member != "" {
		path += "." + member
	}
	return invalid(path, format, args...)
}

func (rd *reader) message(it *item) error {
	var role llm.Role
	switch it.role {
	case "user":
		role = llm.User
	case "assistant":
		role = llm.Assistant
	case "system":
		role = llm.System
	case "developer":
		role = llm.Developer
	default:
		return rd.fault(it, "role", "role must be user, assistant, system or developer, not %q", llm.Brief(it.role))
	}
	parts, err := rd.said(it, "content")
	if err != nil {
		return err
	}
	rd.turn(role, parts)
	return nil
}

// said returns what a message or a result says, whether it is a string or a list.
func (rd *reader) said(it *item, member string) ([]llm.Part, error) {
	switch {
	case it.text == nil:
		return it.content, nil
	case it.text[0] != '"':
		return nil, rd.fault(it, member, "%s must be a string or an array of parts", member)
	}
	if text := llm.Inside(it.text); len(text) > 0 {
		return rd.one(llm.Part{Kind: llm.PartText, Text: text, At: it.at}), nil
	}
	return nil, nil
}

func (rd *reader) call(it *item) error {
	p := llm.Part{Kind: llm.PartCall, ID: it.callID, Name: it.name, At: it.at}
	if len(p.ID) == 0 {
		p.ID = it.id
	}
	p.Custom = it.kind == "custom_tool_call"
	v := it.arguments
	if p.Custom {
		v = it.input
	}
	switch {
	case v == nil:
	case v[0] == '"':
		p.Input.Spelt = llm.Inside(v)
	default:
		p.Input.Object = v
	}
	rd.turn(llm.Assistant, rd.one(p))
	return nil
}

func (rd *reader) result(it *item) error {
	parts, err := rd.said(it, "output")
	if err != nil {
		return err
	}
	rd.turn(llm.User, rd.one(llm.Part{Kind: llm.PartResult, ID: it.callID, Parts: parts, At: it.at,
		Custom: it.kind == "custom_tool_call_output"}))
	return nil
}

// reasoning takes thinking: its own text where the item has it, else its summary, and what is sealed beside it.
func (rd *reader) reasoning(it *item) error {
	p := llm.Part{Kind: llm.PartThinking, Encrypted: llm.Inside(it.encrypted), At: it.at}
	list := it.content
	if len(list) == 0 {
		list = it.summary
	}
	switch len(list) {
	case 0:
	case 1:
		p.Text = list[0].Text
	default:
		for i := range list {
			if i > 0 {
				p.Text = append(p.Text, paragraph...)
			}
			p.Text = append(p.Text, list[i].Text...)
		}
	}
	if len(p.Text) > 0 || len(p.Encrypted) > 0 {
		rd.turn(llm.Assistant, rd.one(p))
	}
	return nil
}

// paragraph stands between texts that are put together: an empty line, as the inside of a string spells it.
const paragraph = `\n\n`

// rawPart is a part as it is read.
type rawPart struct{ kind, text, url, detail, fileID, fileURL, fileData, name, audio []byte }

// part reads one part of a list.
func (rd *reader) part() (llm.Part, error) {
	var w rawPart
	from := rd.s.Offset()
	err := rd.s.Members(func(name []byte) error {
		v, err := rd.value()
		if err != nil || isNull(v) {
			return err
		}
		switch string(name) {
		case "type":
			w.kind = v
		case "text", "refusal":
			w.text = v
		case "image_url":
			w.url = v
		case "detail":
			w.detail = v
		case "file_id":
			w.fileID = v
		case "file_url":
			w.fileURL = v
		case "file_data":
			w.fileData = v
		case "filename":
			w.name = v
		case "input_audio":
			w.audio = v
		}
		return nil
	})
	p := w.part()
	p.At = rd.span(from)
	return p, err
}

func (w *rawPart) part() llm.Part {
	kind := llm.Inside(w.kind)
	switch string(kind) {
	case "input_text", "output_text", "text":
		return llm.Part{Kind: llm.PartText, Text: llm.Inside(w.text)}
	case "refusal":
		return llm.Part{Kind: llm.PartRefusal, Text: llm.Inside(w.text)}
	case "summary_text", "reasoning_text":
		return llm.Part{Kind: llm.PartThinking, Text: llm.Inside(w.text)}
	case "input_image":
		p := llm.Part{Kind: llm.PartImage, Detail: llm.Inside(w.detail), FileID: llm.Inside(w.fileID)}
		if p.Media, p.Data = dataURI(llm.Inside(w.url)); p.Data == nil {
			p.URL = llm.Inside(w.url)
		}
		return p
	case "input_file":
		p := llm.Part{Kind: llm.PartDocument, Name: llm.Inside(w.name), URL: llm.Inside(w.fileURL), FileID: llm.Inside(w.fileID)}
		if data := llm.Inside(w.fileData); len(data) > 0 {
			if p.Media, p.Data = dataURI(data); p.Data == nil {
				p.Media, p.Data = llm.Text("application/pdf"), data
			}
		}
		return p
	case "input_audio":
		return llm.Part{Kind: llm.PartAudio, Data: llm.Inside(member(w.audio, "data")), Media: llm.Inside(member(w.audio, "format"))}
	}
	return llm.Part{Kind: llm.PartOther, Type: string(llm.Unescaped(kind))}
}

// dataURI takes a data URI of base64 apart; no data where t is none.
func dataURI(t llm.Text) (media, data llm.Text) {
	const scheme, coded = "data:", ";base64"
	if !bytes.HasPrefix(t, []byte(scheme)) {
		return nil, nil
	}
	head, data, ok := bytes.Cut(t[len(scheme):], []byte{','})
	if !ok || !bytes.HasSuffix(head, []byte(coded)) || len(data) == 0 {
		return nil, nil
	}
	head, _, _ = bytes.Cut(head, []byte{';'})
	if bytes.IndexByte(head, '\\') >= 0 { // image\/png, as PHP writes it
		head = llm.Escaped(llm.Unescaped(head))
	}
	return head, data
}
