package llm

// A Conversation is a request in the neutral form that dialects translate through: what was said, by whom, with which
// tools, and how the answer is wanted. All texts in it are raw: pieces of the request's body, escapes kept, so that a
// translation copies them and changes none. Who builds one and who reads one agree on this:
//
//   - a Raw is a whole JSON value as it stood, nil when it was absent or null;
//   - a Text is the inside of a JSON string, without its quotes and with its escapes. Two of them may be put together;
//     nothing that is not a JSON string's inside may be put into one, see Escaped.
type Conversation struct {
	Turns    []Turn
	Tools    []Tool
	Choice   Choice
	Parallel Raw // false: one call at a time
	Output   Output
	Taste    Taste
	Settings Settings
	Think    Think

	// Lost names what the dialect that is written to has no place for, by its path in the client's request, each once.
	Lost []string
}

// Raw is one JSON value as it stood in the request; nil when it was absent or null.
type Raw []byte

// Text is the inside of a JSON string, escapes kept.
type Text []byte

// Role is who speaks in a turn.
type Role uint8

// The roles. The result of a tool is a part of a user's turn, whoever's turn it is in the dialect it came from.
const (
	System Role = iota + 1
	Developer
	User
	Assistant
)

// Turn is one message, in the place where the client put it. A dialect that wants fewer merges, one that wants the
// system's words apart takes the leading ones.
type Turn struct {
	Role  Role
	Parts []Part
	Name  Text // of the speaker, where the dialect knows one
	N     int  // its number in the client's list, for faults and events
	At    Span // where it stands in the request's body

	Mended bool // Mend changed it: its bytes in the body no longer say what it says
}

// PartKind is what a part of a turn is.
type PartKind uint8

// The kinds of parts.
const (
	PartText PartKind = iota + 1
	PartRefusal
	PartThinking // Text, Signature; Redacted or Encrypted alone when it is sealed
	PartImage    // URL, or Media and Data
	PartDocument // URL, FileID, Data with Media, or Text for a plain one
	PartAudio    // Data and Media, which is the bare format: wav, mp3
	PartCall     // ID, Name, Input
	PartResult   // ID, Parts, Failed
	PartOther    // what only its own dialect knows: Type and Raw
)

// Part is one piece of a turn. Which fields count is said at its kind.
type Part struct {
	Kind      PartKind
	Text      Text
	ID        Text // of a call, or of the call that a result belongs to
	Name      Text // of a tool, or a document's title or file name
	Input     Input
	Parts     []Part // of a result, in order: text, images, documents
	Failed    bool   // the tool failed
	Custom    bool   // a call of a tool that takes free text: Input is that text
	Media     Text   // image/png, application/pdf
	Data      Text   // base64, never decoded
	URL       Text
	FileID    Text
	Detail    Text
	Signature Text // of the vendor that made the thinking; worth something to it alone
	Redacted  Text // sealed thinking of the Messages kind
	Encrypted Text // sealed thinking of the Responses kind
	Cache     Raw  // cache_control
	Type      string
	Raw       Raw  // of a PartOther: all of it
	At        Span // where it stands in the request's body
}

// Input is what a tool is called with: a JSON object, or, where the dialect spells it as a string, that string. One of
// the two is set.
type Input struct {
	Object Raw  // {"a":1}
	Spelt  Text // {\"a\":1}: the inside of the string that holds the object
}

// IsEmpty reports whether there are no arguments at all, not even an empty object.
func (in Input) IsEmpty() bool { return len(in.Object) == 0 && len(in.Spelt) == 0 }

// AppendObject appends the arguments as a JSON value. What is no object is kept under one key, so that nothing is lost
// and every server can read it.
func (in Input) AppendObject(dst []byte) []byte {
	v := []byte(in.Object)
	if v == nil {
		v = Unescaped(in.Spelt)
	}
	switch {
	case len(trim(v)) == 0:
		return append(dst, "{}"...)
	case IsObject(v):
		return append(dst, v...)
	}
	dst = AppendQuoted(append(dst, `{"`+SpoiltInput+`":`...), v)
	return append(dst, '}')
}

// AppendSpelt appends the inside of the JSON string that spells the arguments.
func (in Input) AppendSpelt(dst []byte) []byte {
	switch {
	case in.Object != nil:
		return AppendEscaped(dst, in.Object)
	case len(in.Spelt) == 0:
		return append(dst, "{}"...)
	}
	return append(dst, in.Spelt...)
}

// SpoiltInput is the member under which arguments are kept that were no JSON object.
const SpoiltInput = "unparsed_arguments"

// ToolKind is what a tool takes.
type ToolKind uint8

// The kinds of tools.
const (
	ToolFunction ToolKind = iota + 1 // a JSON object by Schema
	ToolCustom                       // free text, by Format
	ToolHosted                       // done by the vendor itself: Type says which, Raw is all of it
)

// Tool is a tool that may be called.
type Tool struct {
	Kind        ToolKind
	Name        Text
	Description Text
	Schema      Raw // nil: none was given
	Strict      Raw
	Format      Raw // of free text
	Cache       Raw
	Type        string // of a hosted one
	Raw         Raw
}

// Mode says whether tools are to be called.
type Mode uint8

// The modes. Zero: nothing was said.
const (
	ModeAuto Mode = iota + 1
	ModeNone
	ModeAny   // some tool must be called
	ModeNamed // Name must be called
)

// Choice says which tools are to be called.
type Choice struct {
	Mode    Mode
	Name    Text
	Custom  bool
	Allowed []Text // only these may be; nil: all
}

// Output says what form the answer is to have.
type Output struct {
	Schema      Raw  // a JSON schema that it must satisfy
	Name        Text // of the schema
	Description Text
	Strict      Raw
	JSON        bool // any JSON object
	Verbosity   Raw
}

// Taste is how the next token is chosen and where to stop, each as the client gave it.
type Taste struct {
	MaxTokens, Temperature, TopP, TopK, Seed Raw
	PresencePenalty, FrequencyPenalty        Raw
	Stop                                     []Text
}

// Settings are members that say something about the call and not about the conversation.
type Settings struct {
	User        Text // a stable name of the end user
	Tier        Raw  // service_tier
	Metadata    Raw
	CacheKey    Raw // prompt_cache_key
	Store       Raw
	Choices     Raw // n
	LogProbs    Raw
	TopLogProbs Raw
	LogitBias   Raw
}

// Think says how much thinking is wanted. Zero: nothing was said.
type Think struct {
	Off    bool
	On     bool // by a budget, or as much as the model likes
	Budget Raw  // tokens
	Effort Text // minimal, low, medium, high, xhigh, max
	Shown  Text // how it is to be shown: summarized, omitted, auto, concise, detailed
}

// Lose notes that what stood at path has no place in the dialect written to.
func (c *Conversation) Lose(path string) {
	for _, p := range c.Lost {
		if p == path {
			return
		}
	}
	c.Lost = append(c.Lost, path)
}
