package server

import (
	"bytes"
	"mime"
	"strings"
	"unicode/utf8"

	"weir/internal/llm"
)

// Bounds of a form. A part that is larger than a name of a model belongs to the backend, and is passed over.
const (
	maxParts    = 256
	maxPartHead = 8 << 10
	maxModel    = 256
	maxBoundary = 70 // RFC 2046
)

// The parts that Weir reads.
const (
	modelPart = "model"
	countPart = "n"
	maxCount  = 20 // bytes
)

// form finds the model's name in a multipart form (RFC 7578) while its bytes come in. It refuses what two readers could
// understand in two ways: the model that Weir sees must be the one that the server sees (S17).
type form struct {
	mark  []byte // begins every boundary
	step  func(b []byte) (n int, more bool, err error)
	at    int // place in the body of the next byte to be looked at
	parts int
	ours  bool // the part under way is the model's
	count bool // it is the one that says how many answers are asked for
	begun bool // some of its bytes have been passed
	ended bool // the last boundary has come

	model string
	where llm.Span
	n     int64 // answers that are asked for; 0: not said
}

func newForm(boundary string) *form {
	f := &form{mark: []byte("--" + boundary)}
	f.step = f.open
	return f
}

// feed looks at the next bytes and returns how many it needs no more. The others must come again with those behind them;
// they are never more than one part's head.
func (f *form) feed(b []byte) (used int, err error) {
	for more := true; more && err == nil; {
		var n int
		n, more, err = f.step(b[used:])
		used += n
		f.at += n
	}
	return used, err
}

// end takes the end of the body.
func (f *form) end() error {
	if !f.ended {
		return badForm("it ends before its last boundary")
	}
	if f.where.IsZero() {
		return badModel("model is missing: the form needs a part named model with an alias of this gateway; GET /v1/models lists them")
	}
	return nil
}

// open passes the first boundary, before which nothing may stand.
func (f *form) open(b []byte) (int, bool, error) {
	known := min(len(b), len(f.mark))
	switch {
	case !bytes.Equal(b[:known], f.mark[:known]):
		return 0, false, badForm("it does not begin with the boundary that Content-Type names")
	case len(b) < len(f.mark)+2:
		return 0, false, nil
	}
	return f.boundary(b, 0)
}

// boundary passes the boundary at b[i:] and what must stand behind it.
func (f *form) boundary(b []byte, i int) (int, bool, error) {
	to := i + len(f.mark) + 2
	switch string(b[to-2 : to]) {
	case "\r\n":
		if f.parts++; f.parts > maxParts {
			return 0, false, badForm("it has more than %d parts", maxParts)
		}
		f.step = f.head
		return to, true, nil
	case "--":
		f.ended, f.step = true, f.rest
		return to, true, nil
	}
	return 0, false, badForm("a boundary is followed by something else than the end of its line")
}

// head reads the header lines of a part.
func (f *form) head(b []byte) (int, bool, error) {
	i := bytes.Index(b, []byte("\r\n\r\n"))
	if bytes.HasPrefix(b, []byte("\r\n")) {
		return 0, false, badForm("part %d has no headers", f.parts)
	}
	if i > maxPartHead || i < 0 && len(b) > maxPartHead {
		return 0, false, badForm("the headers of part %d are longer than %d bytes", f.parts, maxPartHead)
	}
	if i < 0 {
		return 0, false, nil
	}
	p, err := readPart(string(b[:i]))
	switch {
	case err != "":
		return 0, false, badForm("part %d %s", f.parts, err)
	case p.name != modelPart && strings.EqualFold(strings.TrimSpace(p.name), modelPart):
		return 0, false, badModel("%q is not a name that servers agree on; write it model", short(p.name))
	case p.name == modelPart && !f.where.IsZero():
		return 0, false, badModel("model stands twice; servers disagree which one they read, so send it once")
	case p.name == modelPart && (p.file || p.encoded):
		return 0, false, badModel("model must be a plain field: no file, and not encoded")
	}
	f.ours, f.count, f.begun, f.step = p.name == modelPart, p.name == countPart, false, f.data
	return i + 4, true, nil
}

// data passes a part's bytes up to the next boundary. The two bytes before a boundary are looked at too, so they are
// never passed alone.
func (f *form) data(b []byte) (int, bool, error) {
	i, err := f.next(b)
	switch {
	case err != nil:
		return 0, false, err
	case f.ours && (i < 0 && len(b) > maxModel+len(f.mark)+4 || i > maxModel+2):
		return 0, false, badModel("model is longer than %d bytes", maxModel)
	case f.count && (i < 0 && len(b) > maxCount+len(f.mark)+4 || i > maxCount+2):
		return 0, false, badCount()
	case i >= 0 && len(b) >= i+len(f.mark)+2:
		if err := f.take(b[:i-2]); err != nil {
			return 0, false, err
		}
		return f.boundary(b, i)
	case f.ours || f.count:
		return 0, false, nil
	}
	keep := len(f.mark) + 1 // a boundary but for its last byte, and the line's end before it
	if i >= 0 {
		keep = len(b) - i + 2
	}
	n := max(len(b)-keep, 0)
	f.begun = f.begun || n > 0
	return n, false, nil
}

// take takes the value of a part that Weir reads.
func (f *form) take(v []byte) error {
	switch {
	case f.ours:
		return f.named(v)
	case f.count:
		n, ok := llm.Int(bytes.TrimSpace(v))
		if !ok || n < 1 {
			return badCount()
		}
		f.n = max(f.n, n) // of two, servers may read either
	}
	return nil
}

func badCount() error {
	e := llm.Errorf(llm.Invalid, "n must be a whole number of at least 1, as a plain field")
	e.Param = countPart
	return e
}

// next returns where the next boundary begins, -1 where none is seen yet. It stands at the start of a line that ends with
// CR and LF; at the start of one that does not, one reader would see it and another would not.
func (f *form) next(b []byte) (int, error) {
	for from := 0; ; {
		i := bytes.Index(b[from:], f.mark)
		if i < 0 {
			return -1, nil
		}
		i += from
		switch {
		case i >= 2 && b[i-2] == '\r' && b[i-1] == '\n':
			return i, nil
		case i == 0 && !f.begun, i > 0 && (b[i-1] == '\n' || b[i-1] == '\r'):
			return 0, badForm("the boundary stands within part %d", f.parts)
		}
		from = i + 1
	}
}

// named takes the model's name.
func (f *form) named(v []byte) error {
	if len(v) == 0 {
		return badModel("model is empty: name an alias of this gateway; GET /v1/models lists them")
	}
	if !utf8.Valid(v) || bytes.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return badModel("model must be one line of text")
	}
	f.model, f.where = string(v), llm.Span{From: f.at, To: f.at + len(v)}
	return nil
}

// rest looks at what stands behind the last boundary: the end of its line, if anything.
func (f *form) rest(b []byte) (int, bool, error) {
	if len(bytes.Trim(b, "\r\n")) > 0 {
		return 0, false, badForm("something stands behind its last boundary")
	}
	return len(b), false, nil
}

func badForm(format string, args ...any) error {
	e := llm.Errorf(llm.Invalid, "the multipart form is not valid: "+format, args...)
	e.Code = "invalid_form"
	return e
}

func badModel(format string, args ...any) error {
	e := llm.Errorf(llm.Invalid, format, args...)
	e.Param = modelPart
	return e
}

// part is what the headers of a part say.
type part struct {
	name    string
	file    bool
	encoded bool // its bytes are not its value
}

// readPart reads a part's header lines. It says what is wrong with them, nothing when all is well.
func readPart(head string) (p part, wrong string) {
	seen := false
	for line := range strings.SplitSeq(head, "\r\n") {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsFunc(name, notToken) || strings.ContainsFunc(value, isControl) {
			return p, "has a header line that is none"
		}
		value = strings.Trim(value, " \t")
		switch strings.ToLower(name) {
		case "content-disposition":
			if seen {
				return p, "has two Content-Dispositions"
			}
			seen = true
			if wrong = p.disposition(value); wrong != "" {
				return p, wrong
			}
		case "content-transfer-encoding":
			v := strings.ToLower(value)
			p.encoded = p.encoded || v != "7bit" && v != "8bit" && v != "binary"
		}
	}
	if !seen {
		return p, "has no Content-Disposition"
	}
	return p, ""
}

// disposition reads `form-data; name="…"; filename="…"`.
func (p *part) disposition(v string) (wrong string) {
	kind, rest, _ := strings.Cut(v, ";")
	if !strings.EqualFold(strings.TrimRight(kind, " \t"), "form-data") {
		return "is no form-data"
	}
	named := false
	for rest != "" {
		key, value, behind, ok := parameter(rest)
		if !ok {
			return "has a Content-Disposition that cannot be read"
		}
		rest = behind
		switch base, _, _ := strings.Cut(key, "*"); {
		case key == "name" && !named && !strings.Contains(value, `\`):
			p.name, named = value, true
		case base == "name":
			return "has a name that servers read in different ways"
		case base == "filename":
			p.file = true
		}
	}
	if !named {
		return "has no name"
	}
	return ""
}

// parameter cuts `key=value` off s, and the semicolon behind it. A value in quotes keeps its backslashes.
func parameter(s string) (key, value, rest string, ok bool) {
	key, s, ok = strings.Cut(strings.TrimLeft(s, " \t"), "=")
	if !ok || key == "" || s == "" || strings.ContainsFunc(key, notToken) {
		return "", "", "", false
	}
	if s[0] == '"' {
		end := 1
		for end < len(s) && s[end] != '"' {
			if s[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(s) {
			return "", "", "", false
		}
		value, s = s[1:end], s[end+1:]
	} else {
		end := strings.IndexAny(s, "; \t")
		if end < 0 {
			end = len(s)
		}
		if value, s = s[:end], s[end:]; value == "" || strings.ContainsFunc(value, notToken) {
			return "", "", "", false
		}
	}
	s = strings.TrimLeft(s, " \t")
	if s != "" {
		if s[0] != ';' || strings.TrimLeft(s[1:], " \t") == "" {
			return "", "", "", false
		}
		s = s[1:]
	}
	return strings.ToLower(key), value, s, true
}

func notToken(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r)
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// boundaryOf returns the boundary that a Content-Type names, and the Content-Type as it goes on: with nothing in it that
// two readers could understand in two ways. isForm is false for another kind of body.
func boundaryOf(contentType string) (boundary, kind string, isForm bool, err error) {
	const multipart = "multipart/form-data"
	name, params, perr := mime.ParseMediaType(contentType)
	if !strings.EqualFold(name, multipart) && !strings.HasPrefix(strings.ToLower(strings.TrimSpace(contentType)), multipart) {
		return "", "", false, nil
	}
	boundary = params["boundary"]
	if perr != nil || boundary == "" {
		return "", "", true, badForm("its Content-Type names no boundary")
	}
	odd := func(r rune) bool { return r < ' ' || r >= 0x7f || strings.ContainsRune("\"\\<>@;[]{}|^`~#!$%&*", r) }
	if len(boundary) > maxBoundary || strings.HasSuffix(boundary, " ") || strings.ContainsFunc(boundary, odd) {
		return "", "", true, badForm("its boundary is longer than %d characters, or has some that no boundary may have", maxBoundary)
	}
	return boundary, mime.FormatMediaType(multipart, map[string]string{"boundary": boundary}), true, nil
}
