package openai

import (
	"bytes"
	"fmt"

	"weir/internal/llm"
)

// block is one part of a content as it came; members are nil where they are absent or null.
type block struct {
	kind, text, refusal, image, audio, file, cache []byte
	thought, signature, data, sealed               []byte
}

// blockOf reads the members of a part.
func blockOf(v []byte) (b block) {
	members(v, func(name, v []byte) {
		if isNull(v) {
			return
		}
		switch string(name) {
		case "type":
			b.kind = v
		case "text":
			b.text = v
		case "refusal":
			b.refusal = v
		case "image_url":
			b.image = v
		case "input_audio":
			b.audio = v
		case "file":
			b.file = v
		case "cache_control":
			b.cache = v
		case "thinking":
			b.thought = v
		case "signature":
			b.signature = v
		case "data":
			b.data = v
		case "encrypted_content":
			b.sealed = v
		}
	})
	return b
}

// thinking returns the block as thinking, of kind zero where it is none.
func (b *block) thinking() (p llm.Part) {
	switch string(b.kind) {
	case `"thinking"`:
		p.Text, p.Signature = thought(b.thought), llm.Inside(b.signature)
	case `"redacted_thinking"`:
		p.Redacted = llm.Inside(b.data)
	case `"reasoning"`:
		p.Text, p.Encrypted = thought(b.thought), llm.Inside(b.sealed)
	}
	if len(p.Text)+len(p.Signature)+len(p.Redacted)+len(p.Encrypted) > 0 {
		p.Kind = llm.PartThinking
	}
	return p
}

// thought returns a text that is a string, or a list of parts with a text each, as Mistral's models think.
func thought(v []byte) (t llm.Text) {
	if t = llm.Inside(v); t != nil {
		return t
	}
	each(v, func(_ int, e []byte) { t = append(t, llm.Inside(blockOf(e).text)...) })
	return t
}

// part reads one part of a content.
func (rd *reader) part(i, j int, v []byte) error {
	p := llm.Part{Kind: llm.PartText, At: rd.at(v)}
	switch v[0] {
	case '"': // a list of strings is no part of the API, but is understood
		p.Text = llm.Inside(v)
	case '{':
		b := blockOf(v)
		p.Cache = b.cache
		if member, why := b.read(&p, v); why != "" {
			return invalid(fmt.Sprintf("messages[%d].content[%d]%s", i, j, member), "%s", why)
		}
	default:
		return invalid(fmt.Sprintf("messages[%d].content[%d]", i, j), "a part of a content must be an object")
	}
	if (p.Kind == llm.PartText || p.Kind == llm.PartRefusal) && len(p.Text) == 0 {
		return nil
	}
	rd.add(p)
	return nil
}

// read takes the block, which stands in v, as a part, or says which member is wrong and why.
func (b *block) read(p *llm.Part, v []byte) (member, why string) {
	kind := string(b.kind)
	switch {
	case kind == `"text"` || kind == "" && b.text != nil:
		if p.Text = llm.Inside(b.text); p.Text == nil {
			return ".text", "text must be a string"
		}
	case kind == `"refusal"`:
		p.Kind, p.Text = llm.PartRefusal, llm.Inside(b.refusal)
	case kind == `"image_url"`:
		if p.Kind = llm.PartImage; !image(p, b.image) {
			return ".image_url", "image_url must be an object with the URL of the image"
		}
	case kind == `"input_audio"`:
		if p.Kind = llm.PartAudio; !audio(p, b.audio) {
			return ".input_audio", "input_audio must have data and format"
		}
	case kind == `"file"`:
		if p.Kind = llm.PartDocument; !document(p, b.file) {
			return ".file", "file must have a file_id or file_data"
		}
	case len(kind) < 3 || kind[0] != '"':
		return ".type", "a part of a content must name its type, such as \"text\""
	default:
		th := b.thinking()
		th.At, th.Cache = p.At, p.Cache
		if *p = th; p.Kind == 0 {
			p.Kind, p.Type, p.Raw = llm.PartOther, string(llm.Unquote(b.kind)), v
		}
	}
	return "", ""
}

func audio(p *llm.Part, v []byte) bool {
	members(v, func(name, v []byte) {
		switch string(name) {
		case "data":
			p.Data = llm.Inside(v)
		case "format":
			p.Media = llm.Inside(v)
		}
	})
	return len(p.Data) > 0 && len(p.Media) > 0
}

// image reads where an image is.
func image(p *llm.Part, v []byte) bool {
	url := llm.Inside(v) // some clients send the URL alone
	members(v, func(name, v []byte) {
		switch string(name) {
		case "url":
			url = llm.Inside(v)
		case "detail":
			p.Detail = llm.Inside(v)
		}
	})
	locate(p, url)
	return len(url) > 0
}

func document(p *llm.Part, v []byte) bool {
	members(v, func(name, v []byte) {
		switch string(name) {
		case "file_id":
			p.FileID = llm.Inside(v)
		case "file_data":
			locate(p, llm.Inside(v))
		case "filename":
			p.Name = llm.Inside(v)
		}
	})
	if bare := p.URL; len(bare) > 0 && bytes.IndexByte(bare[:min(len(bare), 64)], ':') < 0 { // base64 without its scheme
		p.URL, p.Data = nil, bare
		if p.Media == nil && bytes.HasSuffix(bytes.ToLower(p.Name), []byte(".pdf")) {
			p.Media = llm.Text("application/pdf")
		}
	}
	return len(p.FileID)+len(p.Data)+len(p.URL) > 0
}

// locate takes a URL, or the media type and the data of one that holds them.
func locate(p *llm.Part, url llm.Text) {
	const scheme, mark = "data:", "base64,"
	head := url[:min(len(url), 256)]
	k := bytes.Index(head, []byte(mark))
	if !bytes.HasPrefix(head, []byte(scheme)) || k < 0 {
		p.URL = url
		return
	}
	media := llm.Unescaped(head[len(scheme):k])
	if end := bytes.IndexByte(media, ';'); end >= 0 {
		media = media[:end]
	}
	p.Media, p.Data = llm.Escaped(media), url[k+len(mark):]
}
