package llm

import "time"

// Caller is who makes a request, as far as the walk needs to know.
type Caller struct {
	Key      string // the key's name; empty where none is asked for
	Prefix   string // its public prefix
	Priority int
	Session  string // the client's conversation, as its headers name it; empty: see Request.Session
	Tag      string // the client's own label, for the accounts

	// The key's ceilings in nano-dollars; 0: none.
	SpendDay, SpendMonth int64
	Local                bool                    // its requests may not leave the machines you own
	May                  func(alias string) bool // whether it may ask for that name; nil: for all
	Trace                string                  // traceparent of the caller; empty: none
}

// Allows reports whether the caller may ask for alias.
func (c *Caller) Allows(alias string) bool { return c.May == nil || c.May(alias) }

// Client is the client's side of one request. It is used by one goroutine at a time.
type Client interface {
	// Head names a response header to be sent with the first bytes. Once those have left it is kept for a comment
	// before the end of the stream.
	Head(name, value string)
	// Patience starts the time after which headers and comments go to a streaming client that has seen nothing yet.
	Patience(d time.Duration)
	// Begun reports whether headers have left.
	Begun() bool
	// Send sends a piece of a stream at once. An error means that the client is gone.
	Send(p []byte) error
	// Last sends the end of a stream.
	Last(p []byte) error
	// Pass begins an answer that goes on as it is, with Send: its Content-Type, and its length, negative where unknown.
	Pass(kind string, length int64)
	// Answer sends a whole answer.
	Answer(body []byte) error
}
