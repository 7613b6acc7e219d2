package llm

// Target says how one backend wants a request: the model's id there and the habits of its server. It is read-only.
type Target struct {
	Model       string // the id to send
	Quoted      []byte // Model as JSON
	Stream      bool   // ask for a stream
	Usage       bool   // ask for usage in the stream
	Timings     bool   // a stream without usage ends with counts in its timings, which the usage chunk would take away
	Progress    bool   // ask llama.cpp for prompt_progress
	NullContent string // keep, empty, null, omit
	Developer   string // keep, system
	MaxTokens   string // keep, max_tokens, max_completion_tokens
	Base64      string // keep, float
	Reasoning   string // the member of a message that takes thinking of the history: reasoning_content, reasoning; empty: none
	SystemTurns string // keep; user: system turns behind the start become the user's words, for templates that refuse them
	Attribution bool   // the changing line at the head of some clients' system prompt is left out
	Sampling    []Sampling
}

// Sampling says what happens to one sampling parameter: the first of Strip, Force and Default that is set.
type Sampling struct {
	Name    string
	Strip   bool
	Force   []byte // raw JSON
	Default []byte // raw JSON
}

// Usage counts the tokens of one answer. A negative number is unknown.
// In is the whole prompt: what was read from a cache (Cached) and what was written to one (Written) are parts of it, as
// Reasoning is a part of Out.
type Usage struct {
	In, Out, Cached, Reasoning, Written int64
}

// NoUsage is the usage of an answer that said nothing.
var NoUsage = Usage{-1, -1, -1, -1, -1}

// Stream follows one upstream answer and turns it into the client's. It is used by one goroutine and owns the buffer
// that the answer is read into.
type Stream interface {
	// Space returns room for the next read, nil when the upstream sent more than one event may hold. What Feed returned
	// before is no longer valid.
	Space() []byte
	// Feed takes the n bytes that were read and returns what may go to the client now: whole events only. An error
	// object of the upstream is returned as a *Fault, a broken stream as an *Error, each beside what came before it.
	Feed(n int) ([]byte, error)
	// End takes the end of the body and returns the last bytes for the client. A stream that ended before its finish is
	// an *Error of kind Stalled.
	End() ([]byte, error)
	// Seen tells what the stream has shown so far.
	Seen() *Seen
}

// Seen is what a stream has shown so far.
type Seen struct {
	Content  bool // the first text, reasoning or tool delta has come, or a proper finish without any
	Progress bool // a sign of life that is no content came since it was last cleared
	Finished bool // the finish has come, and nothing that is lost after it matters; never with several choices, of which some may not have begun
	Done     bool // the end mark has come: what follows is dropped
	Events   int  // content events; of a whole answer, what they would about be
	Served   string
	Usage    Usage
	Prefill  float64 // tokens per second, where the server says so
	PromptN  int64   // tokens evaluated for it
}

// Fault is an error object that an upstream sent: a whole body, or one event of a stream.
type Fault struct{ Data []byte }

// Error says that an upstream reported an error; the object itself is classified by the backend.
func (f *Fault) Error() string { return "the upstream sent an error object" }
