package key

import (
	"fmt"
	"time"
)

// Kind says what an Error means for the client.
type Kind uint8

// The kinds of errors.
const (
	Unauthorized Kind = iota + 1 // no usable key: 401
	Limited                      // a limit of the key, or too many bad keys from one address: 429
)

// Error is why a key does not open.
type Error struct {
	Kind       Kind
	Msg        string        // for the client; the same for every Unauthorized
	RetryAfter time.Duration // Limited: when it is worth asking again
}

// Error returns the text for the client.
func (e *Error) Error() string { return e.Msg }

// ErrUnauthorized is every failure of Verify: unknown, wrong, expired and revoked keys look the same.
var ErrUnauthorized error = &Error{Kind: Unauthorized, Msg: "no valid API key was given: send one as `Authorization: Bearer KEY`"}

func limited(after time.Duration, format string, args ...any) error {
	return &Error{Kind: Limited, Msg: fmt.Sprintf(format, args...), RetryAfter: after}
}
