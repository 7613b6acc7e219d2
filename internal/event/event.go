// Package event holds the typed facts that Weir records: what happened to a request, and what changed without one.
// They are recorded once; log, metrics, store and traces are readers of the same facts.
package event

import "time"

// Name says what kind of fact an Event is.
type Name string

// The names of events. Start and End frame every request, refused ones too.
const (
	Start   Name = "start"
	Routing Name = "routing"
	Reroute Name = "reroute"
	Queue   Name = "queue" // a request waits for a slot
	Skip    Name = "skip"
	Drop    Name = "drop"   // a backend's API has no place for something of the request
	Repair  Name = "repair" // a poisoned history was mended before a server saw it
	Loop    Name = "loop"   // the same request of one session again and again was slowed or refused
	End     Name = "end"
	Health  Name = "health"
	Alert   Name = "alert"
	Shift   Name = "shift"
	Swap    Name = "swap"
	Audit   Name = "audit"
)

// Event is one fact. It travels by value; only Record is shared, and it is the reader's once the event is emitted.
type Event struct {
	Time    time.Time
	Name    Name
	Request string // the request's id; empty for facts without a request

	Alias  string // routing
	Route  string
	Tier   string
	Pool   string
	Model  string
	Reason string // reroute, skip, drop, repair, alert: why, from a closed list
	Kind   string // skip: the kind of the failed attempt
	From   string // reroute: the first step, "pool/model"
	To     string // reroute: the step that answered, "pool/model"; audit: what was changed
	Detail string // human words: the upstream's message (cleaned), the steps of a plan, what an audit changed
	Actor  string // audit: who

	Record *Record // end only
}

// Record is all that is known of one request at its end. Fields of parts that are not built yet stay nil and are written as null.
type Record struct {
	Start    time.Time
	Op       string // chat, completions, embeddings, rerank, models, responses
	Dialect  string
	Alias    string // as the client wrote it, cut to 128 bytes
	Class    string // empty: null
	Route    string
	Tier     string
	Pool     string
	Backend  string
	Model    string // asked of the pool
	Served   string // what the answer named
	Status   int
	Kind     string // empty when all went well
	Message  string // what the client was told on failure, cleaned
	Attempts []Attempt
	Reroute  string // reason, or empty

	Queue    time.Duration
	First    time.Duration // to first content; negative: none
	Total    time.Duration
	Overhead time.Duration // time that was neither queueing nor waiting for a backend

	Tokens  Tokens
	Cost    int64  // nano-dollars; negative: unknown, which is never zero
	Purpose string // what the cost is booked as: client or disconnect; empty: nothing was used
	KeyName string
	KeyID   string // public prefix
	Session string
	Tag     string
	Version string
	Shape   Shape

	Trace  TraceID // zero: no trace
	Span   SpanID
	Parent SpanID
	Traced bool // the sampled flag
	Remote string
}

// Attempt is one call, or one refusal to call, of a step. As JSON it has the form of AppendAttempts.
type Attempt struct {
	Pool    string
	Backend string
	Model   string
	Tier    string
	Kind    string // empty: it answered
	Status  int
	Message string // the upstream's own words, cleaned
	Served  string
	At      time.Duration // since the request's start
	Queue   time.Duration
	Place   int           // in the queue when it began to wait, from 1; 0: it did not
	Guess   time.Duration // how long it was expected to wait
	First   time.Duration // since At; negative: none
	Took    time.Duration
	Sent    bool // the upstream may have worked on it: a generation
	Span    SpanID
}

// Tokens counts one request. A negative number is unknown.
type Tokens struct {
	In, Out, Cached, Reasoning int64 // Cached and Written are parts of In, Reasoning is one of Out
	Written                    int64 // into the vendor's cache
	Estimated                  bool  // one of them at least is Weir's own count
}

// Shape is the size of a request, never its text.
type Shape struct {
	Bytes     int
	TokensEst int
	Messages  int
	Tools     int
	Images    int
	Stream    bool
	MaxTokens int64 // 0: not given
}

// TraceID is the id of a trace as W3C trace context has it.
type TraceID [16]byte

// SpanID is the id of a span as W3C trace context has it.
type SpanID [8]byte
