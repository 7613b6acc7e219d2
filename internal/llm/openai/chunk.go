package openai

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"weir/internal/llm"
)

// maxDepth bounds the nesting of what upstreams send.
const maxDepth = 512

// chunk is what the walk of one event's data found. Spans are places in data; zero means absent.
type chunk struct {
	data                                []byte
	id, object, created, model, choices llm.Span
	usage, fault, timings, progress     llm.Span
	count                               int  // choices
	plain                               bool // one choice with one string in its delta, nothing else that matters
	text                                llm.Span
	field                               []byte // the member that text belongs to
	content                             bool   // some choice has content
	edits                               []llm.Edit
}

// choice is one element of choices.
type choice struct {
	at, index, delta, finish, logprobs llm.Span
	text                               llm.Span // completions
	calls                              llm.Span // deltas of tool calls
	extra                              bool     // a member that is none of these
	n                                  int64    // its number: the index, or its place in the list where the server gave none
}

// walker walks events. It is reused from event to event.
type walker struct {
	chunk
	choice choice
	each   func(*choice) error // called after each choice; may be nil
	part   func(name []byte, at llm.Span) error
	s      llm.Scanner
	parts  int
}

func isNull(b []byte) bool { return string(b) == "null" }

// isBlank reports a raw value that says nothing: absent, null or "".
func isBlank(b []byte) bool { return len(b) == 0 || isNull(b) || string(b) == `""` }

// walk reads data strictly. Errors are syntax errors: the event is no JSON object.
func (w *walker) walk(data []byte) error {
	w.chunk = chunk{data: data, edits: w.edits[:0], plain: true}
	w.parts = 0
	w.s = llm.NewScanner(data, maxDepth)
	if err := w.s.Members(w.member); err != nil {
		return err
	}
	w.plain = w.plain && w.count == 1 && w.parts == 1 && !w.text.IsZero()
	return w.s.End()
}

func (w *walker) member(name []byte) error {
	if string(name) == "choices" && w.s.Peek() == '[' {
		from := w.s.Offset()
		err := w.s.Elements(w.element)
		w.choices = llm.Span{From: from, To: w.s.Offset()}
		return err
	}
	at, err := w.s.Value()
	if err != nil {
		return err
	}
	null := isNull(at.Of(w.data))
	switch string(name) {
	case "id":
		w.id = at
	case "object":
		w.object = at
	case "created":
		w.created = at
	case "model":
		w.model = at
	case "choices": // null
		w.choices = at
	case "usage":
		if !null {
			w.usage, w.plain = at, false
		}
	case "error":
		if !null {
			w.fault, w.plain = at, false
		}
	case "timings":
		w.timings, w.plain = at, false
	case "prompt_progress":
		w.progress, w.plain = at, false
	}
	return nil
}

func (w *walker) element(i int) error {
	w.count++
	if w.s.Peek() != '{' {
		_, err := w.s.Value()
		return err
	}
	w.choice = choice{}
	from := w.s.Offset()
	if err := w.s.Members(w.choiceMember); err != nil {
		return err
	}
	w.choice.at = llm.Span{From: from, To: w.s.Offset()}
	if w.choice.n = count(w.choice.index.Of(w.data)); w.choice.n < 0 {
		w.choice.n, w.plain = int64(i), false
		w.number()
	}
	if w.each != nil {
		return w.each(&w.choice)
	}
	return nil
}

// number gives the choice the index that it lacks.
func (w *walker) number() {
	c := &w.choice
	raw := strconv.AppendInt(nil, c.n, 10)
	if !c.index.IsZero() {
		w.edits = append(w.edits, llm.Edit{At: c.index, With: raw})
		return
	}
	raw = append([]byte(`"index":`), raw...)
	at := c.at.From + 1
	if len(bytes.TrimSpace(w.data[at:c.at.To-1])) > 0 {
		raw = append(raw, ',')
	}
	w.edits = append(w.edits, llm.Edit{At: llm.Span{From: at, To: at}, With: raw})
}

func (w *walker) choiceMember(name []byte) error {
	c := &w.choice
	if string(name) == "delta" && w.s.Peek() == '{' {
		from := w.s.Offset()
		err := w.s.Members(w.deltaMember)
		c.delta = llm.Span{From: from, To: w.s.Offset()}
		return err
	}
	at, err := w.s.Value()
	if err != nil {
		return err
	}
	switch string(name) {
	case "index":
		c.index = at
	case "finish_reason":
		if !isBlank(at.Of(w.data)) { // some servers say "" until the end
			c.finish, w.plain = at, false
		}
	case "logprobs":
		if !isNull(at.Of(w.data)) {
			c.logprobs, w.plain = at, false
		}
	case "text":
		c.text = at
		w.piece(name, at)
	case "delta", "message":
	default:
		c.extra = true
	}
	return nil
}

func (w *walker) deltaMember(name []byte) error {
	at, err := w.s.Value()
	if err != nil {
		return err
	}
	if w.part != nil {
		if err := w.part(name, at); err != nil {
			return err
		}
	}
	if string(name) == "tool_calls" && w.data[at.From] == '[' {
		w.choice.calls = at
	}
	w.piece(name, at)
	return nil
}

// piece takes one member of a delta, or the text of a completion. Anything but a role that is not empty is content.
func (w *walker) piece(name []byte, at llm.Span) {
	v := at.Of(w.data)
	switch {
	case string(name) == "role" || isNull(v):
		return
	case v[0] == '"':
		w.parts++
		w.text, w.field = at, name
		w.content = w.content || len(v) > 2
	default:
		w.plain = false
		w.content = w.content || len(v) > 2 // [] and {} are none
	}
}

// usageOf reads a usage object. What is absent, negative or absurd is unknown.
func usageOf(raw []byte) llm.Usage {
	u := llm.NoUsage
	s := llm.NewScanner(raw, 64)
	if s.Peek() != '{' {
		return u
	}
	_ = s.Members(func(name []byte) error {
		at, err := s.Value()
		if err != nil {
			return err
		}
		v := at.Of(raw)
		switch string(name) {
		case "prompt_tokens":
			u.In = count(v)
		case "completion_tokens":
			u.Out = count(v)
		case "total_tokens": // embeddings and rerank give no more than this
			if u.In < 0 {
				u.In = count(v)
			}
		case "prompt_tokens_details":
			u.Cached, u.Written = member(v, "cached_tokens"), member(v, "cache_write_tokens")
		case "completion_tokens_details":
			u.Reasoning = member(v, "reasoning_tokens")
		}
		return nil
	})
	return u
}

// count returns a token count, -1 when it cannot be one.
func count(v []byte) int64 {
	const most = 1 << 40
	n, ok := llm.Int(v)
	if !ok || n < 0 || n > most {
		return -1
	}
	return n
}

func member(v []byte, want string) int64 {
	n := int64(-1)
	s := llm.NewScanner(v, 64)
	if s.Peek() != '{' {
		return n
	}
	_ = s.Members(func(name []byte) error {
		at, err := s.Value()
		if err == nil && string(name) == want {
			n = count(at.Of(v))
		}
		return err
	})
	return n
}

// number reads one member of an object as a float, 0 when it is none.
func number(v []byte, want string) (f float64) {
	s := llm.NewScanner(v, 64)
	if s.Peek() != '{' {
		return 0
	}
	_ = s.Members(func(name []byte) error {
		at, err := s.Value()
		if err == nil && string(name) == want {
			f = parseFloat(at.Of(v))
		}
		return err
	})
	return f
}

func parseFloat(b []byte) float64 {
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil {
		return 0
	}
	return f
}

func sortEdits(list []llm.Edit) {
	slices.SortStableFunc(list, func(a, b llm.Edit) int { return cmp.Compare(a.At.From, b.At.From) })
}
