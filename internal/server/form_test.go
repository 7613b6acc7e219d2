package server

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"strings"
	"testing"

	"weir/internal/llm"
)

const edge = "----WebKitFormBoundary7MA4YWxkTrZu0gW"

// field is one part of a form; file is a file's name, empty for a plain field.
type field struct{ name, file, value string }

// made writes a form as Go's own writer does.
func made(t testing.TB, fields ...field) []byte {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary(edge); err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		to, err := w.CreateFormField(f.name)
		if f.file != "" {
			to, err = w.CreateFormFile(f.name, f.file)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(to, f.value); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	return b.Bytes()
}

// written is a form of literal parts: head, empty line, value.
func written(parts ...string) []byte {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("--" + edge + "\r\n" + p + "\r\n")
	}
	return []byte(b.String() + "--" + edge + "--\r\n")
}

const (
	aModel = "Content-Disposition: form-data; name=\"model\"\r\n\r\nwhisper"
	aFile  = "Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\nRIFF"
)

// scan feeds a form in pieces of at most n bytes, through a window as the server does.
func scan(boundary string, body []byte, n int) (*form, error) {
	f := newForm(boundary)
	var window []byte
	for len(body) > 0 {
		k := min(n, len(body))
		window, body = append(window, body[:k]...), body[k:]
		used, err := f.feed(window)
		if err != nil {
			return f, err
		}
		window = window[:copy(window, window[used:])]
		if len(window) > maxPartHead+len(f.mark)+8 {
			return f, fmt.Errorf("%d bytes are held back", len(window))
		}
	}
	return f, f.end()
}

func TestModelIsFoundWhereverItStands(t *testing.T) {
	big := make([]byte, 3<<20)
	for i := range big {
		big[i] = byte(rand.Uint32())
	}
	audio := field{"file", "speech.wav", string(big)}
	tricky := field{"file", "speech.wav", "\r\n--\r\n----\r\n" + edge + "x --" + edge + " x\r\n-" + edge[:20] + "\r\r\n"}
	model := field{name: "model", value: "whisper-large"}
	for name, fields := range map[string][]field{
		"alone":                         {model},
		"first":                         {model, {"file", "a.wav", "RIFF"}, {name: "language", value: "en"}},
		"last":                          {{name: "language", value: "en"}, {"file", "a.wav", "RIFF"}, model},
		"in the middle":                 {{name: "language", value: "en"}, model, {"file", "a.wav", "RIFF"}},
		"after a file of 3 MiB":         {audio, model},
		"before a file of 3 MiB":        {model, audio},
		"after what looks like an edge": {tricky, model, tricky},
		"after an empty file":           {{"file", "a.wav", ""}, model},
		"beside names like it":          {{name: "model_name", value: "x"}, {name: "amodel", value: "y"}, model, {name: "model[]", value: "z"}},
		"as long as it may be":          {{name: "model", value: strings.Repeat("m", maxModel)}},
		"in other letters":              {{name: "model", value: "modèle"}},
		"after a file of an odd name":   {{"file", "ä \"b\\\" c; name=x.wav", "RIFF"}, model},
	} {
		body := made(t, fields...)
		for _, n := range []int{1, 2, 3, 39, 64 << 10} {
			if n < 39 && len(body) > 1<<20 {
				continue
			}
			f, err := scan(edge, body, n)
			if err != nil {
				t.Errorf("%s, in pieces of %d: %v", name, n, err)
				continue
			}
			want := model.value
			for _, p := range fields {
				if p.name == "model" {
					want = p.value
				}
			}
			if got := string(f.where.Of(body)); f.model != want || got != want {
				t.Errorf("%s, in pieces of %d: model %q, at its place %q, want %q", name, n, f.model, got, want)
			}
		}
	}
}

// S17: what one server could read otherwise than Weir is refused, and so is what has no bound.
func TestFormsThatAreRefused(t *testing.T) {
	named := func(head string) []byte { return written(head+"\r\n\r\nx", aModel) }
	disposed := func(params string) []byte { return named("Content-Disposition: form-data; " + params) }
	for _, c := range []struct {
		name, want string
		body       []byte
	}{
		{"no model", "model is missing", written(aFile)},
		{"no part at all", "model is missing", []byte("--" + edge + "--\r\n")},
		{"two models", "model stands twice", written(aModel, aFile, aModel)},
		{"an empty model", "model is empty", written("Content-Disposition: form-data; name=\"model\"\r\n\r\n")},
		{"a long model", "longer than 256 bytes", written("Content-Disposition: form-data; name=model\r\n\r\n" + strings.Repeat("m", maxModel+1))},
		{"a model without an end", "longer than 256 bytes", written("Content-Disposition: form-data; name=model\r\n\r\n" + strings.Repeat("m", 1<<20))},
		{"a model of two lines", "one line", written("Content-Disposition: form-data; name=model\r\n\r\na\r\nb")},
		{"a model that is no text", "one line", written("Content-Disposition: form-data; name=model\r\n\r\n\xff")},
		{"a model in a file", "plain field", written("Content-Disposition: form-data; name=\"model\"; filename=\"m\"\r\n\r\nwhisper")},
		{"a model in a file of an extended name", "plain field", written("Content-Disposition: form-data; name=\"model\"; filename*=utf-8''m\r\n\r\nwhisper")},
		{"an encoded model", "not encoded", written("Content-Disposition: form-data; name=\"model\"\r\nContent-Transfer-Encoding: base64\r\n\r\nd2hpc3Blcg==")},
		{"a model in other case", "write it model", written(strings.Replace(aModel, "model", "Model", 1), aModel)},
		{"a model with a space", "write it model", written(strings.Replace(aModel, "model", "model ", 1), aModel)},
		{"an empty body", "before its last boundary", nil},
		{"a part without an end", "before its last boundary", written(aModel)[:60+len(edge)]},
		{"no last boundary", "before its last boundary", bytes.TrimSuffix(written(aModel), []byte("--\r\n"))},
		{"half of a last boundary", "before its last boundary", bytes.TrimSuffix(written(aModel), []byte("-\r\n"))},
		{"a preamble", "does not begin", append([]byte("hello\r\n"), written(aModel)...)},
		{"another boundary", "does not begin", []byte("--other\r\n" + aModel + "\r\n--other--\r\n")},
		{"more behind the end", "behind its last boundary", append(written(aModel), written(aModel)...)},
		{"a boundary with more in its line", "followed by something else", bytes.Replace(written(aModel, aFile), []byte(edge+"\r\nContent-Disposition: form-data; name=\"file"), []byte(edge+" \r\nContent-Disposition: form-data; name=\"file"), 1)},
		{"a boundary that goes on", "followed by something else", written(strings.Replace(aFile, "RIFF", "RIFF\r\n--"+edge+"2\r\n", 1), aModel)},
		{"a boundary behind a bare LF", "within part 1", written(strings.Replace(aFile, "RIFF", "RIFF\n--"+edge+"\r\n"+aModel, 1), aModel)},
		{"a boundary behind a bare CR", "within part 1", written(strings.Replace(aFile, "RIFF", "RIFF\r--"+edge+"\r\n"+aModel, 1), aModel)},
		{"a boundary right behind the headers", "within part 1", written(strings.Replace(aFile, "RIFF", "--"+edge+"\r\n"+aModel, 1), aModel)},
		{"a first boundary with a bare LF", "followed by something else", bytes.ReplaceAll(written(aModel), []byte("\r\n"), []byte("\n"))},
		{"no headers", "has no headers", written("\r\nx", aModel)},
		{"no Content-Disposition", "no Content-Disposition", named("Content-Type: text/plain")},
		{"two Content-Dispositions", "two Content-Dispositions", named("Content-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=model")},
		{"an attachment", "no form-data", named("Content-Disposition: attachment; name=a")},
		{"no name", "has no name", disposed("filename=a")},
		{"two names", "different ways", disposed("name=a; name=model")},
		{"two names in other case", "different ways", disposed("name=a; NAME=model")},
		{"an extended name", "different ways", disposed("name=a; name*=utf-8''model")},
		{"an extended name alone", "different ways", disposed("name*=utf-8''model")},
		{"a name in pieces", "different ways", disposed("name*0=mod; name*1=el")},
		{"a name with a backslash", "different ways", disposed(`name="mod\el"`)},
		{"a name in a file's name that ends with a backslash", "cannot be read", disposed(`name=a; filename="C:\"; name="model"`)},
		{"a name without its end", "cannot be read", disposed(`name="a`)},
		{"a name without a value", "cannot be read", disposed(`name=`)},
		{"a name with spaces around it", "cannot be read", disposed(`name = a`)},
		{"words behind a name", "cannot be read", disposed(`name="a"b`)},
		{"a folded header", "header line", named("Content-Disposition: form-data; name=a\r\n X: y")},
		{"a header with a bare LF", "header line", named("X: y\nContent-Disposition: form-data; name=model\r\nContent-Disposition: form-data; name=a")},
		{"a header with a bare CR", "header line", named("Content-Disposition: form-data; name=a\rX: y")},
		{"a header with a NUL", "header line", disposed("name=\"mod\x00el\"")},
		{"a header's name with a space", "header line", named("Content-Disposition : form-data; name=a")},
		{"long headers", "longer than 8192", named("X: " + strings.Repeat("x", maxPartHead) + "\r\nContent-Disposition: form-data; name=a")},
		{"headers without an end", "longer than 8192", []byte("--" + edge + "\r\nX: " + strings.Repeat("x", 1<<20))},
		{"too many parts", "more than 256 parts", written(append(slicesOf(maxParts, strings.Replace(aModel, "model", "other", 1)), aModel)...)},
	} {
		for _, n := range []int{1, 64 << 10} {
			f, err := scan(edge, c.body, n)
			if err == nil {
				t.Errorf("%s, in pieces of %d: taken, with model %q", c.name, n, f.model)
				continue
			}
			e := llm.AsError(err)
			if e.Kind != llm.Invalid || !strings.Contains(e.Msg, c.want) {
				t.Errorf("%s, in pieces of %d: %v, want … %s …", c.name, n, err, c.want)
			}
			if about := strings.HasPrefix(c.want, "model is") || strings.Contains(c.name, "model"); about && e.Param != "model" && e.Code != "invalid_form" {
				t.Errorf("%s: param %q, code %q", c.name, e.Param, e.Code)
			}
		}
	}
}

func slicesOf(n int, s string) (list []string) {
	for range n {
		list = append(list, s)
	}
	return list
}

func TestBoundariesOfContentTypes(t *testing.T) {
	for in, want := range map[string]string{
		"multipart/form-data; boundary=" + edge:                    "multipart/form-data; boundary=" + edge,
		`Multipart/Form-Data; charset=utf-8; boundary="a b:c"`:     `multipart/form-data; boundary="a b:c"`,
		"multipart/form-data; boundary=" + strings.Repeat("b", 70): "multipart/form-data; boundary=" + strings.Repeat("b", 70),
		"multipart/form-data; boundary=" + strings.Repeat("b", 71): "error",
		"multipart/form-data":                                      "error",
		"multipart/form-data; boundary=":                           "error",
		"multipart/form-data; boundary=a; boundary=b":              "error",
		"multipart/form-data; boundary=\"a\r\nX: y\"":              "error",
		`multipart/form-data; boundary="a\"b"`:                     "error",
		`multipart/form-data; boundary="a "`:                       "error",
		"multipart/form-data; boundary=é":                          "error",
		"multipart/form-data; boundary*=utf-8''a%0d%0a":            "error",
		"application/json":                                         "",
		"multipart/mixed; boundary=a":                              "",
		"":                                                         "",
	} {
		_, kind, isForm, err := boundaryOf(in)
		switch {
		case (want != "") != isForm, (want == "error") != (err != nil):
			t.Errorf("%s: form %v, %v", in, isForm, err)
		case isForm && err == nil && kind != want:
			t.Errorf("%s: goes up as %s, want %s", in, kind, want)
		}
	}
}

// spelled makes a form of a few bytes, each of which stands for a piece of one: so that chance comes upon odd forms.
func spelled(b []byte) []byte {
	words := strings.NewReplacer("\x80", "\r\n", "\x81", "--"+edge+"\r\n", "\x82", "Content-Disposition: form-data; ", "\x83", `"`,
		"\x84", `name="`, "\x85", "\r\n\r\n", "\x86", "\r\n--"+edge+"--", "\x87", `; filename="`, "\x88", "--"+edge, "\x89", "model",
		"\x8a", `\"`, "\x8b", "\r\n--"+edge+"\r\n", "\x8c", "Content-Type: ")
	return []byte(words.Replace(string(b)))
}

// A form that is taken has, for Go's own reader too, one part named model, of that value and at that place; and it is the
// same form in whatever pieces it comes.
func FuzzForm(f *testing.F) {
	f.Add(made(f, field{"file", "a.wav", "RIFF"}, field{name: "model", value: "m"}), 3)
	f.Add(made(f, field{name: "model", value: "m"}, field{"file", "a\"b\\", "\r\n--" + edge + "x"}), 1)
	f.Add(written(aModel, aFile), 7)
	f.Add(written(strings.Replace(aFile, "RIFF", "\n--"+edge+"\r\n"+aModel, 1), aModel), 2)
	f.Add(written("Content-Disposition: form-data; name=a; filename=\"\\\"; name=\"model\"\r\n\r\nx", aModel), 2)
	f.Add([]byte("\x81\x82\x84file\x83\x85RIFF\n\x81\x82\x84model\x83\x85m\x86"), 5)
	f.Add([]byte("\x81\x82\x84file\x83\x87\x83\x85RIFF\x80\x81\x82\x84model\x83\x85m\x86\x80"), 2)
	f.Fuzz(func(t *testing.T, body []byte, n int) {
		body = spelled(body)
		whole, err := scan(edge, body, len(body)+1)
		pieces, perr := scan(edge, body, max(1, n))
		if (err == nil) != (perr == nil) || err == nil && (whole.model != pieces.model || whole.where != pieces.where) {
			t.Fatalf("whole: %q, %v; in pieces of %d: %q, %v", whole.model, err, n, pieces.model, perr)
		}
		if err != nil {
			return
		}
		if got := string(whole.where.Of(body)); got != whole.model {
			t.Fatalf("model %q, at its place %q", whole.model, got)
		}
		models, parts := 0, 0
		for r := multipart.NewReader(bytes.NewReader(body), edge); ; parts++ {
			p, err := r.NextRawPart()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("Go's reader refuses part %d of what was taken: %v", parts+1, err)
			}
			v, err := io.ReadAll(p)
			if err != nil {
				t.Fatal(err)
			}
			if p.FormName() == "model" {
				if models++; string(v) != whole.model {
					t.Fatalf("Go's reader has model %q, not %q", v, whole.model)
				}
			}
		}
		if models != 1 || parts != whole.parts {
			t.Fatalf("Go's reader has %d parts, %d named model; Weir %d", parts, models, whole.parts)
		}
	})
}
