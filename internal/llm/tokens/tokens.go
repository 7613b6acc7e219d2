// Package tokens counts the tokens of a conversation offline, for backends that have no counter of their own. The count
// is exact for the vocabularies that it carries and an estimate for all others; docs/tokens.md says how good.
//
// A vocabulary is loaded at the first count that needs it and then stays: the library keeps it for the life of the
// process. A program that counts nothing pays for none.
package tokens

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/tiktoken-go/tokenizer/codec"

	"weir/internal/llm"
)

// What is not text counts as much as is usual: what it really costs depends on the model and on the picture's size,
// which stands in its compressed bytes.
const (
	perRequest  = 3 // the answer's opening
	perTurn     = 4 // marks around a turn, and its role
	perCall     = 8
	perResult   = 4
	perTool     = 10
	perImage    = 1000
	perLowImage = 85
	perDocument = 3000
	perAudio    = 500
)

// exact is how many bytes of a conversation are counted one by one; what is beyond them is taken to be like them. It
// bounds the work of one count.
const exact = 2 << 20

// Counter counts tokens as one family of models does. It is safe for concurrent use, and never changes.
type Counter struct {
	words  *vocabularies
	family *family
}

// vocabularies holds what was loaded.
type vocabularies struct{ o200k, cl100k func() *codec.Codec }

func (v *vocabularies) of(f *family) *codec.Codec {
	if f.cl100k {
		return v.cl100k()
	}
	return v.o200k()
}

// New returns a Counter for models that are not known, which is one for the vocabulary o200k. It loads nothing.
func New() *Counter {
	return &Counter{
		words:  &vocabularies{o200k: sync.OnceValue(codec.NewO200kBase), cl100k: sync.OnceValue(codec.NewCl100kBase)},
		family: &families[0],
	}
}

// For returns a Counter for the model of that name, as a backend or a vendor calls it. It shares what c has loaded.
func (c *Counter) For(model string) *Counter {
	return &Counter{words: c.words, family: familyOf(model)}
}

// CountText returns the tokens of a text, which is no JSON: its escapes are resolved.
func (c *Counter) CountText(text []byte) int {
	t := tally{c: c}
	t.text(text)
	return t.total()
}

// Count returns the tokens of a conversation as the model is shown it: texts, tools, calls and their results, with what a
// template adds around them. Sealed thinking is not counted. An error says that the vocabulary failed.
func (c *Counter) Count(conv *llm.Conversation) (n int, err error) {
	t := tally{c: c, n: perRequest}
	for i := range conv.Tools {
		t.tool(&conv.Tools[i])
	}
	for i := range conv.Turns {
		t.n += perTurn
		t.escaped(conv.Turns[i].Name)
		t.parts(conv.Turns[i].Parts)
	}
	t.text(conv.Output.Schema)
	if t.err != nil {
		return 0, fmt.Errorf("tokens: count: %w", t.err)
	}
	return t.total(), nil
}

// tally is one count under way.
type tally struct {
	c       *Counter
	n       int     // what is no text
	words   float64 // the tokens of the texts
	counted int     // their bytes
	skipped int     // bytes of texts that were too many
	last    []byte  // the chunk before, which long runs repeat
	worth   float64 // what it was worth
	err     error
}

// total returns the sum; bytes that were not counted are worth what the counted ones were.
func (t *tally) total() int {
	words := t.words
	if t.skipped > 0 {
		words += t.words / float64(t.counted) * float64(t.skipped)
	}
	return t.n + int(words+0.5)
}

func (t *tally) tool(tool *llm.Tool) {
	t.n += perTool
	t.escaped(tool.Name)
	t.escaped(tool.Description)
	t.text(tool.Schema)
	t.text(tool.Format)
	if tool.Kind == llm.ToolHosted {
		t.text(tool.Raw)
	}
}

func (t *tally) parts(list []llm.Part) {
	for i := range list {
		t.part(&list[i])
	}
}

func (t *tally) part(p *llm.Part) {
	switch p.Kind {
	case llm.PartText, llm.PartRefusal, llm.PartThinking:
		t.escaped(p.Text)
	case llm.PartImage:
		if string(p.Detail) == "low" {
			t.n += perLowImage
		} else {
			t.n += perImage
		}
	case llm.PartDocument:
		t.escaped(p.Name)
		if len(p.Text) > 0 {
			t.escaped(p.Text)
		} else {
			t.n += perDocument
		}
	case llm.PartAudio:
		t.n += perAudio
	case llm.PartCall:
		t.n += perCall
		t.escaped(p.Name)
		t.text(p.Input.Object)
		t.escaped(p.Input.Spelt)
	case llm.PartResult:
		t.n += perResult
		t.escaped(p.Text)
		t.parts(p.Parts)
	case llm.PartOther:
		t.text(p.Raw)
	}
}

func (t *tally) escaped(s llm.Text) {
	if t.counted >= exact {
		t.skipped += len(s)
		return
	}
	u := llm.Unescaped(s)
	t.counted += len(s) - len(u)
	t.text(u)
}

// text counts one text, chunk by chunk. s must stay as it is until the tally is done.
func (t *tally) text(s []byte) {
	for len(s) > 0 && t.err == nil {
		if t.counted >= exact {
			t.skipped += len(s)
			return
		}
		n := chunk(s)
		if !bytes.Equal(s[:n], t.last) {
			t.last = s[:n]
			t.worth, t.err = t.c.family.count(t.c.words, t.last)
		}
		t.words += t.worth
		t.counted += n
		s = s[n:]
	}
}
