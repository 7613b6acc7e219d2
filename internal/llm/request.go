package llm

import (
	"bytes"
	"cmp"
	"slices"
)

// Op is what a request asks for.
type Op uint8

// The operations.
const (
	Chat Op = iota + 1
	Completions
	Embeddings
	Rerank
	Count  // the tokens of a prompt, without an answer
	Audio  // speech, transcriptions, translations
	Images // generations, edits, variations
)

var opNames = [...]string{Chat: "chat", Completions: "completions", Embeddings: "embeddings", Rerank: "rerank", Count: "count", Audio: "audio", Images: "images"}

// String returns the operation's name as events write it.
func (o Op) String() string {
	if int(o) >= len(opNames) {
		return ""
	}
	return opNames[o]
}

// Generates reports whether the operation makes text that can stream. The others are answered whole, and fall back
// only to the same model: vectors of two models cannot be compared, and a transcription by another model is another text.
func (o Op) Generates() bool { return o == Chat || o == Completions }

// Member is one member of the request's outermost object, by its places in the body.
type Member struct {
	Name  []byte // unescaped; may share the body's bytes
	At    Span   // from the name's quote to the end of the value
	Value Span
}

// Shape is the size of a request, never its text.
type Shape struct {
	Bytes     int
	TokensEst int
	Messages  int
	Tools     int
	Images    int
	Stream    bool
	MaxTokens int64
}

// Request is one call of a client: its bytes as they came and what the scan found in them. It is read-only once
// decoded and may be used by several attempts, one after the other.
type Request struct {
	ID      string
	Op      Op
	Dialect string
	Hops    string // Weirs that the request has passed, from X-Weir-Hop
	Body    []byte
	Members []Member
	Model   string
	Shape   Shape

	Stream       bool
	IncludeUsage bool // the client asked for the usage chunk of a stream
	Choices      int64
	Whole        bool // the answer cannot be assembled from a stream: best_of, echo, audio
	MessagesAt   Span
	Nulls        []Span // values of "content": null in messages
	NullMembers  []Span // the same with their names and one comma, in the order of Nulls
	Developer    bool   // a message has the role developer
	Calls        bool   // the history has calls of tools or their results
	Long         []Span // where long strings stand in the body, in order

	Speaks Dialect  // the client's API, for an answer of another; nil where it has only one
	Up     []Header // of the client, that go on to a backend of the same dialect
	Query  string   // likewise
	Path   string   // of an operation that passes, which has several
	Form   *Form    // the body, where it is multipart; nil: Body
	Keeps  bool     // the answer is kept, and may say so
	After  string   // the id of the kept answer that the request goes on from
	Repair *Repair  // of the history, once it was looked at
	Broken Breaker  // of the stream under way, for dialects whose last event depends on those before it

	free  func([]byte)
	inUse bool // a connection may still read Body
}

// Header is one header line.
type Header struct{ Name, Value string }

// Breaker ends a stream that has begun with the one event that says that it broke.
type Breaker interface {
	AppendBroken(dst []byte, e *Error) []byte
}

// Repair is what had to be mended in a history before a server is shown it: calls without names, arguments that are no
// JSON, results that belong to no call. A server that answers 500 to one of them would do so for ever.
type Repair struct {
	Edits []Edit   // of the body
	Notes []string // one for each, for an event
}

// Recycles says what takes the body's memory when Release is called.
func (r *Request) Recycles(free func([]byte)) { r.free = free }

// Reading notes that a connection may still read the body: its memory is then left to the garbage collector.
func (r *Request) Reading() { r.inUse = true }

// Release gives the body's memory back; no attempt may follow. It may be called again.
func (r *Request) Release() {
	body := r.Body
	r.Body, r.Members = nil, nil
	if r.free != nil && !r.inUse && body != nil {
		r.free(body)
	}
}

// Again returns a scanner over a piece of the body, which Decode has scanned: long strings are passed without a look. Its
// offsets are places in the body.
func (r *Request) Again(at Span) Scanner { return Again(r.Body, at, r.Long) }

// Member returns the outermost member of that name.
func (r *Request) Member(name string) (Member, bool) {
	for _, m := range r.Members {
		if string(m.Name) == name {
			return m, true
		}
	}
	return Member{}, false
}

// Value returns the raw value of the outermost member of that name, nil when there is none or it is null.
func (r *Request) Value(name string) []byte {
	m, ok := r.Member(name)
	if !ok {
		return nil
	}
	v := m.Value.Of(r.Body)
	if string(v) == "null" {
		return nil
	}
	return v
}

// Edits collects changes to a request's body and applies them in one pass. The zero value is ready. Of several changes
// to one member the last one holds; beyond that the caller takes care that no two replaced pieces overlap.
type Edits struct {
	list    []Edit
	added   []added  // members to insert before the first
	removed []string // members to leave out
}

type added struct {
	name string
	raw  []byte
}

// Replace puts with in place of at.
func (e *Edits) Replace(at Span, with []byte) { e.list = append(e.list, Edit{At: at, With: with}) }

// Set gives the outermost member name the raw value: in place where r has it, else as a new first member.
func (e *Edits) Set(r *Request, name string, raw []byte) {
	m, ok := r.Member(name)
	if !ok {
		for i := range e.added {
			if e.added[i].name == name {
				e.added[i].raw = raw
				return
			}
		}
		e.added = append(e.added, added{name, raw})
		return
	}
	e.removed = slices.DeleteFunc(e.removed, func(n string) bool { return n == name })
	e.list = slices.DeleteFunc(e.list, func(d Edit) bool { return d.At == m.Value })
	if !bytes.Equal(m.Value.Of(r.Body), raw) {
		e.Replace(m.Value, raw)
	}
}

// Rename gives the outermost member old another name.
func (e *Edits) Rename(r *Request, old, name string) {
	if m, ok := r.Member(old); ok {
		e.Replace(Span{m.At.From, m.Value.From}, append(AppendQuoted(nil, name), ':'))
	}
}

// Remove takes the outermost member name out, or what Set added under that name.
func (e *Edits) Remove(r *Request, name string) {
	e.added = slices.DeleteFunc(e.added, func(a added) bool { return a.name == name })
	if _, ok := r.Member(name); ok {
		e.removed = append(e.removed, name)
	}
}

// Empty reports whether nothing changes.
func (e *Edits) Empty() bool { return len(e.list) == 0 && len(e.added) == 0 && len(e.removed) == 0 }

// Apply appends r's body with the changes to dst. Bytes that no change names are kept as they are; only where a member
// is removed is the white space between members lost.
func (e *Edits) Apply(dst []byte, r *Request) []byte {
	slices.SortStableFunc(e.list, func(a, b Edit) int { return cmp.Compare(a.At.From, b.At.From) })
	open := bytes.IndexByte(r.Body, '{') + 1
	if len(e.removed) == 0 {
		dst = e.front(append(dst, r.Body[:open]...))
		return splice(dst, r.Body, open, len(r.Body), e.list)
	}
	dst = e.front(append(dst, '{'))
	list := e.list
	for _, m := range r.Members {
		for len(list) > 0 && list[0].At.From < m.At.From {
			list = list[1:]
		}
		n := 0
		for n < len(list) && list[n].At.From < m.At.To {
			n++
		}
		if !slices.Contains(e.removed, string(m.Name)) {
			dst = append(splice(dst, r.Body, m.At.From, m.At.To, list[:n]), ',')
		}
		list = list[n:]
	}
	if dst[len(dst)-1] == ',' {
		dst = dst[:len(dst)-1]
	}
	return append(dst, '}')
}

// front appends the added members, each with its comma: a decoded body is never empty, as it names its model.
func (e *Edits) front(dst []byte) []byte {
	for _, a := range e.added {
		dst = append(AppendQuoted(dst, a.name), ':')
		dst = append(append(dst, a.raw...), ',')
	}
	return dst
}

// Head returns how many bytes at the body's start hold all changes, so that the rest can stay where it is; false when
// the changes are not of that kind.
func (e *Edits) Head(r *Request, limit int) (int, bool) {
	end := bytes.IndexByte(r.Body, '{') + 1
	for _, d := range e.list {
		end = max(end, d.At.To)
	}
	return end, len(e.removed) == 0 && end <= limit
}

// AppendHead appends the first n bytes of r's body with the changes; n comes from Head.
func (e *Edits) AppendHead(dst []byte, r *Request, n int) []byte {
	slices.SortStableFunc(e.list, func(a, b Edit) int { return cmp.Compare(a.At.From, b.At.From) })
	open := bytes.IndexByte(r.Body, '{') + 1
	dst = e.front(append(dst, r.Body[:open]...))
	return splice(dst, r.Body, open, n, e.list)
}

// splice appends the bytes of body between from and to with the edits, which are sorted, in their place.
func splice(dst, body []byte, from, to int, edits []Edit) []byte {
	for _, e := range edits {
		dst = append(append(dst, body[from:e.At.From]...), e.With...)
		from = e.At.To
	}
	return append(dst, body[from:to]...)
}
