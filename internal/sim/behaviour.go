package sim

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Behaviour says how one attempt is answered. The zero value is a healthy server
// that answers a short text which says that it is simulated. In JSON a duration is
// a string such as "1.5s"; docs/sim.md describes each field with examples.
type Behaviour struct {
	// When.

	HeaderDelay time.Duration `json:"header_delay,omitempty"` // before the status line
	FirstDelay  time.Duration `json:"first_delay,omitempty"`  // before the first content, after the role chunk
	Gap         time.Duration `json:"gap,omitempty"`          // between one content chunk and the next
	Ping        time.Duration `json:"ping,omitempty"`         // in a stream: a comment this often while waiting
	SliceGap    time.Duration `json:"slice_gap,omitempty"`    // between two slices
	Loading     time.Duration `json:"loading,omitempty"`      // "loading" answers this long after the script was set
	Slice       int           `json:"slice,omitempty"`        // writes of at most so many bytes
	Times       int           `json:"times,omitempty"`        // in a sequence: for so many attempts (0 = 1)
	Hang        bool          `json:"hang,omitempty"`         // no byte at all until the peer leaves
	Ghost       bool          `json:"ghost,omitempty"`        // goes on generating after the peer left

	// What the model says.

	Text           string   `json:"text,omitempty"`            // the content; {nonce} is replaced
	Deltas         []string `json:"deltas,omitempty"`          // the content as these exact pieces
	Chunks         int      `json:"chunks,omitempty"`          // in so many pieces; without text, filler
	ChunkSize      int      `json:"chunk_size,omitempty"`      // pieces of so many bytes
	Empty          bool     `json:"empty,omitempty"`           // a proper answer without content
	Endless        bool     `json:"endless,omitempty"`         // never stops
	Reasoning      string   `json:"reasoning,omitempty"`       // reasoning before the content
	ReasoningField string   `json:"reasoning_field,omitempty"` // reasoning, reasoning_content, both or redacted
	Tool           string   `json:"tool,omitempty"`            // what to do with offered tools, see tools
	Calls          []Call   `json:"calls,omitempty"`           // exactly these tool calls
	Agent          bool     `json:"agent,omitempty"`           // calls one tool, then names its result
	Finish         string   `json:"finish,omitempty"`          // finish_reason instead of the right one

	// How the answer is labelled.

	Model      string   `json:"model,omitempty"`       // the answer names this model
	Usage      string   `json:"usage,omitempty"`       // see usages, or a literal JSON object
	Cached     int      `json:"cached,omitempty"`      // tokens of the prompt that were in a cache
	CacheWrite int      `json:"cache_write,omitempty"` // tokens of the prompt that went into one
	IDs        string   `json:"ids,omitempty"`         // change, none or empty
	Omit       []string `json:"omit,omitempty"`        // members left out: object, created, choices, index, …

	// What the server does instead.

	Status        int               `json:"status,omitempty"`         // this status with an error body
	Headers       map[string]string `json:"headers,omitempty"`        // added to the answer
	RetryAfter    string            `json:"retry_after,omitempty"`    // Retry-After, verbatim
	RetryAfterMS  string            `json:"retry_after_ms,omitempty"` // retry-after-ms, verbatim
	Error         json.RawMessage   `json:"error,omitempty"`          // the error member of the error body
	Body          Bytes             `json:"body,omitempty"`           // the whole body, verbatim
	Fill          bool              `json:"fill,omitempty"`           // add id, object, created and model to chunks that lack them
	NoBody        bool              `json:"no_body,omitempty"`        // content-length 0
	HTML          bool              `json:"html,omitempty"`           // a proxy's page
	Redirect      string            `json:"redirect,omitempty"`       // 307 to this URL, or Status when it is 3xx
	EarlyHints    int               `json:"early_hints,omitempty"`    // so many 103 answers first
	HeaderBytes   int               `json:"header_bytes,omitempty"`   // one header of this size
	Gzip          string            `json:"gzip,omitempty"`           // ok, cut or bomb
	Raw           Bytes             `json:"raw,omitempty"`            // the whole HTTP answer, verbatim, then the connection ends
	Refuse        []string          `json:"refuse,omitempty"`         // request features answered with 400, see refusals
	Context       int               `json:"context,omitempty"`        // tokens; longer prompts are refused
	ContextStatus int               `json:"context_status,omitempty"` // 400 by default; 500, or 200 for an error inside the answer
	Dimensions    int               `json:"dimensions,omitempty"`     // of an embedding
	LineBytes     int64             `json:"line_bytes,omitempty"`     // one endless line of so many bytes as the stream

	// How the stream is framed and how it breaks.

	SSE         SSE          `json:"sse,omitzero"`
	Events      []string     `json:"events,omitempty"`       // exactly these payloads as events
	Insert      []Insert     `json:"insert,omitempty"`       // verbatim bytes amid the chunks
	StreamError *StreamError `json:"stream_error,omitempty"` // an error event, and the end
	Cut         *Cut         `json:"cut,omitempty"`
	Drop        string       `json:"drop,omitempty"`  // fin or rst before any byte of an answer
	Stale       bool         `json:"stale,omitempty"` // close a reused connection before any byte

	// Do, for tests in Go, answers by itself; delays, Hang, Drop and Stale still hold.
	Do func(w http.ResponseWriter, r *http.Request) `json:"-"`
}

// Call is one tool call of an answer.
type Call struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// SSE says how the events of a stream are written.
type SSE struct {
	LineEnd   string `json:"line_end,omitempty"`   // lf, cr, crlf or mixed
	BOM       bool   `json:"bom,omitempty"`        // a byte order mark first
	Comments  bool   `json:"comments,omitempty"`   // a comment before each event
	Multiline bool   `json:"multiline,omitempty"`  // JSON spread over several data lines
	NoSpace   bool   `json:"no_space,omitempty"`   // "data:{" without the space
	NoEvent   bool   `json:"no_event,omitempty"`   // no "event:" lines, where the API has them
	OpenEnd   bool   `json:"open_end,omitempty"`   // the last event without its blank line
	NoFinish  bool   `json:"no_finish,omitempty"`  // no finish_reason, message_delta or response.completed
	NoDone    bool   `json:"no_done,omitempty"`    // no [DONE], message_stop or response.completed
	Twice     bool   `json:"twice,omitempty"`      // the terminal chunk and [DONE] twice
	AfterDone bool   `json:"after_done,omitempty"` // a content chunk after the end
	OneBlob   bool   `json:"one_blob,omitempty"`   // the whole stream in one write
}

// Insert is bytes written verbatim into a stream after so many content chunks;
// 0 is before everything.
type Insert struct {
	After int    `json:"after"`
	Raw   string `json:"raw"`
}

// StreamError ends a stream with an error event after so many content chunks; 0 makes
// it the first event. Without Error it is an overload in the server's own shape.
type StreamError struct {
	After  int             `json:"after"`
	Opened bool            `json:"opened,omitempty"` // with After 0: behind the role chunk, message_start or response.created
	Error  json.RawMessage `json:"error,omitempty"`
	Event  string          `json:"event,omitempty"` // on Responses: response.failed (the default) or error
	Done   bool            `json:"done,omitempty"`  // the stream's end follows
}

// Cut ends an answer after so many bytes of the body, or content chunks. A place
// behind the end is the end.
type Cut struct {
	After int    `json:"after"`
	Of    string `json:"of,omitempty"`  // bytes (the default) or chunks
	How   string `json:"how,omitempty"` // fin (default), rst, end (a properly ended body) or stall (silence, open)
}

// Bytes is a string that may hold any bytes. In JSON it is a string, or
// {"base64": "…"} where the bytes are not UTF-8.
type Bytes string

// MarshalJSON writes b as a string when that keeps every byte, else as base64.
func (b Bytes) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(b)) {
		return encode(string(b)), nil
	}
	return encode(object{{"base64", base64.StdEncoding.EncodeToString([]byte(b))}}), nil
}

// UnmarshalJSON reads both forms.
func (b *Bytes) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*b = Bytes(s)
		return nil
	}
	var o struct {
		Base64 []byte `json:"base64"`
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return errors.New(`must be a string or {"base64": "…"}`)
	}
	*b = Bytes(o.Base64)
	return nil
}

// The words that fields of a Behaviour accept.
var (
	tools = []string{"call", "parallel", "wrong_name", "cut_args", "bad_args", "not_json", "narrate", "tags",
		"index_zero", "no_index", "no_id", "null_id", "text_and_call", "interleaved", "never"}
	usages   = []string{"none", "always", "every", "partial", "negative", "huge", "no_choices"}
	refusals = []string{"stream", "null_content", "absent_content", "developer", "base64", "encoding_format", "max_completion_tokens",
		"max_tokens", "tools", "response_format", "n", "empty_content", "late_system", "same_role", "tool_order", "bad_arguments"}
	words = []struct {
		field string
		get   func(*Behaviour) []string
		known []string
	}{
		{"tool", func(b *Behaviour) []string { return []string{b.Tool} }, tools},
		{"ids", func(b *Behaviour) []string { return []string{b.IDs} }, []string{"change", "none", "empty"}},
		{"gzip", func(b *Behaviour) []string { return []string{b.Gzip} }, []string{"ok", "cut", "bomb"}},
		{"drop", func(b *Behaviour) []string { return []string{b.Drop} }, []string{"fin", "rst"}},
		{"refuse", func(b *Behaviour) []string { return b.Refuse }, refusals},
		{"reasoning_field", func(b *Behaviour) []string { return []string{b.ReasoningField} }, []string{"reasoning", "reasoning_content", "both", "redacted"}},
		{"stream_error.event", func(b *Behaviour) []string { return []string{b.streamError().Event} }, []string{"error", "response.failed"}},
		{"sse.line_end", func(b *Behaviour) []string { return []string{b.SSE.LineEnd} }, []string{"lf", "cr", "crlf", "mixed"}},
		{"cut.of", func(b *Behaviour) []string { return []string{b.cut().Of} }, []string{"bytes", "chunks"}},
		{"cut.how", func(b *Behaviour) []string { return []string{b.cut().How} }, []string{"fin", "rst", "end", "stall"}},
	}
)

func (b *Behaviour) cut() Cut {
	if b.Cut == nil {
		return Cut{}
	}
	return *b.Cut
}

func (b *Behaviour) streamError() StreamError {
	if b.StreamError == nil {
		return StreamError{}
	}
	return *b.StreamError
}

// Check returns every fault of b, joined, or nil.
func (b *Behaviour) Check() error {
	var faults []error
	for _, w := range words {
		for _, got := range w.get(b) {
			if got != "" && !slices.Contains(w.known, got) {
				faults = append(faults, fmt.Errorf("%s: %q is not one of %s", w.field, got, strings.Join(w.known, ", ")))
			}
		}
	}
	if b.Usage != "" && !slices.Contains(usages, b.Usage) && !json.Valid([]byte(b.Usage)) {
		faults = append(faults, fmt.Errorf("usage: %q is not one of %s, nor a JSON object", b.Usage, strings.Join(usages, ", ")))
	}
	if b.Error != nil && !json.Valid(b.Error) || b.StreamError != nil && b.StreamError.Error != nil && !json.Valid(b.StreamError.Error) {
		faults = append(faults, errors.New("error: is not JSON"))
	}
	if b.Status != 0 && (b.Status < 200 || b.Status > 999) {
		faults = append(faults, fmt.Errorf("status: %d is not between 200 and 999", b.Status))
	}
	v := reflect.ValueOf(*b)
	for i := range v.NumField() {
		if f := v.Field(i); f.CanInt() && f.Int() < 0 {
			faults = append(faults, fmt.Errorf("%s: must not be negative", jsonName(v.Type().Field(i))))
		}
	}
	return errors.Join(faults...)
}

// plain has Behaviour's fields without its methods, which stops the recursion of the two below.
type plain Behaviour

// MarshalJSON writes durations as strings.
func (b Behaviour) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(plain(b))
	if err != nil {
		return nil, err
	}
	return mapDurations(data, func(raw json.RawMessage) (any, error) {
		var d time.Duration
		err := json.Unmarshal(raw, &d)
		return d.String(), err
	})
}

// UnmarshalJSON is strict: unknown fields, durations that are not strings and unknown
// words are refused.
func (b *Behaviour) UnmarshalJSON(data []byte) error {
	if trimmed := bytes.TrimSpace(data); len(trimmed) == 0 || trimmed[0] != '{' {
		return errors.New("a behaviour must be a JSON object")
	}
	data, err := mapDurations(data, func(raw json.RawMessage) (any, error) {
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return nil, errors.New(`a duration is a string such as "1.5s"`)
		}
		return time.ParseDuration(s)
	})
	if err != nil {
		return err
	}
	var p plain
	if err := decodeStrict(data, &p); err != nil {
		return err
	}
	*b = Behaviour(p)
	return b.Check()
}

// mapDurations rewrites the members of a JSON object that are durations of a Behaviour.
func mapDurations(data []byte, f func(json.RawMessage) (any, error)) ([]byte, error) {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, err
	}
	for i, t := 0, reflect.TypeFor[Behaviour](); i < t.NumField(); i++ {
		name := jsonName(t.Field(i))
		raw, ok := members[name]
		if !ok || t.Field(i).Type != reflect.TypeFor[time.Duration]() {
			continue
		}
		v, err := f(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		members[name] = encode(v)
	}
	return json.Marshal(members)
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// decodeStrict decodes one whole JSON value and refuses unknown fields.
func decodeStrict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if d.More() {
		return errors.New("more than one JSON value")
	}
	return nil
}
