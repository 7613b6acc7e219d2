package llm

// DeltaKind is what a piece of an answer is.
type DeltaKind uint8

// The kinds of deltas, in about the order in which they come. Only the texts of calls may alternate; of all other kinds
// one thing ends where another begins.
const (
	DeltaStart     DeltaKind = iota + 1 // the answer has begun: ID, Model; may come again, and may be missing
	DeltaText                           // Text
	DeltaThinking                       // Text
	DeltaSignature                      // Text: the whole signature of the thinking that ends here
	DeltaSealed                         // Text: thinking that cannot be read (Kind of vendor in Name: redacted, encrypted)
	DeltaRefusal                        // Text
	DeltaCall                           // a call begins: Call, ID, Name, Custom
	DeltaInput                          // Call, Text: the next piece of its arguments, spelt
	DeltaFinish                         // Stop, and Sequence where the server says which
	DeltaUsage                          // Usage: totals so far; a negative number says nothing
	DeltaDone                           // the end mark: what follows is dropped
	DeltaPrefill                        // Prefill, PromptN: how fast the server read the prompt; nothing for a client
)

// Stop is why an answer ended.
type Stop uint8

// The reasons.
const (
	StopEnd Stop = iota + 1
	StopSequence
	StopLength // the limit of tokens
	StopWindow // the context window is full
	StopCalls
	StopRefused // by the model or a filter
	StopPaused  // the vendor's own tools want another turn
)

// Delta is one piece of an answer in the neutral form. Texts are valid until the call that it is passed to returns.
type Delta struct {
	Kind     DeltaKind
	Text     Text
	Call     int // which call, counted from 0 in the order in which they began
	ID       Text
	Name     Text
	Custom   bool // a call of a tool that takes free text
	Model    Text
	Stop     Stop
	Sequence Text
	Usage    Usage
	Prefill  float64 // tokens per second
	PromptN  int64   // tokens that were read at it
}

// Source reads the answer of one upstream as deltas. It is used by one goroutine, for one answer.
type Source interface {
	// Event takes one event of a stream. An error object is returned as a *Fault, what cannot be read as an *Error.
	Event(f *Frame, put func(*Delta)) error
	// Whole takes an answer that came in one piece.
	Whole(body []byte, put func(*Delta)) error
}

// Writer writes an answer in the client's dialect. It is used by one goroutine, for one answer.
type Writer interface {
	// Put takes the next piece.
	Put(d *Delta)
	// Take returns what may go to a streaming client now: whole events. It is valid until the next Put.
	Take() []byte
	// End returns what is left: the last events of a stream, or the whole answer for a client who wants one. It is called
	// only where the answer is whole.
	End() []byte
}

// Dialect is one API in both directions, as far as translation needs it. Implementations are safe for concurrent use.
type Dialect interface {
	// Name returns the dialect's name, as Request.Dialect has it.
	Name() string
	// Conversation reads a request of this dialect as a conversation. Errors are *Error of kind Invalid.
	Conversation(r *Request) (*Conversation, error)
	// Compose writes a conversation as a request of this dialect for t. What has no place is noted with Lose; where its
	// silence would change the meaning, an *Error of kind Invalid names it.
	Compose(c *Conversation, r *Request, t *Target) ([]byte, error)
	// Source returns what reads an answer of this dialect.
	Source() Source
	// Writer returns what writes an answer to r in this dialect. model is the name to show where the answer gives none.
	Writer(r *Request, model string) Writer
}
