package llm

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The failure table of the design, as it stands there: kind, tried again on the same step, next step, blames the backend, status
// before headers, and whether clients are told not to retry.
const table = `
invalid      no  no  no  400 final
too_long     no  yes no  400 final
gone         no  yes no  502 final
denied       no  yes no  502 final
busy         yes yes no  429 -
unavailable  yes yes yes 503 -
loading      no  yes no  503 -
stale        yes yes no  502 final
refused      no  yes yes 502 final
slow         no  yes yes 504 final
stalled      no  yes yes 504 final
rejected     no  yes no  502 final
full         no  yes no  503 -
none         no  no  no  503 -
unauthorized no  no  no  401 final
unknown      no  no  no  404 final
limited      no  no  no  429 -
draining     no  no  no  503 -
canceled     no  no  no  499 final
internal     no  no  no  500 final
`

func TestFailureTable(t *testing.T) {
	yes := map[bool]string{true: "yes", false: "no"}
	end := map[bool]string{true: "final", false: "-"}
	var got strings.Builder
	got.WriteByte('\n')
	codes := map[string]Kind{}
	for k := Invalid; k <= Internal; k++ {
		fmt.Fprintf(&got, "%-12s %-3s %-3s %-3s %d %s\n", k, yes[k.Retries()], yes[k.FallsBack()], yes[k.Blames()], k.Status(), end[k.Final()])
		if old, ok := codes[k.Code()]; ok || k.Code() == "" {
			t.Errorf("%v and %v share the code %q", old, k, k.Code())
		}
		codes[k.Code()] = k
	}
	if d := cmp.Diff(strings.Split(table, "\n"), strings.Split(got.String(), "\n")); d != "" {
		t.Error(d)
	}
	if codes["context_length_exceeded"] != TooLong || codes["invalid_api_key"] != Unauthorized || codes["model_not_found"] != Unknown {
		t.Error("a code that clients know by name has changed")
	}
}

func TestUnknownKindsAreInternal(t *testing.T) {
	if got := Kind(200); got.String() != "internal" || got.Status() != 500 || got.Retries() || got.FallsBack() {
		t.Errorf("got %v, status %d", got, got.Status())
	}
	if got := Kind(0).String(); got != "" {
		t.Errorf("no error is called %q", got)
	}
}

func TestErrorCarriesItsKindThroughWrapping(t *testing.T) {
	e := &Error{Kind: Slow, Op: "backend.Call", Msg: "too late", Err: io.EOF}
	wrapped := fmt.Errorf("around: %w", e)
	if KindOf(wrapped) != Slow || AsError(wrapped) != e || !errors.Is(wrapped, io.EOF) {
		t.Errorf("kind %v of %v", KindOf(wrapped), wrapped)
	}
	if got, want := e.Error(), "backend.Call: slow: too late: EOF"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if KindOf(nil) != 0 || KindOf(io.EOF) != Internal {
		t.Errorf("nil is %v, an error without a kind is %v", KindOf(nil), KindOf(io.EOF))
	}
	plain := AsError(errors.New("secret-dsn"))
	if plain.Kind != Internal || strings.Contains(plain.Msg, "secret") || plain.Err == nil {
		t.Errorf("got %+v", plain)
	}
	if got := Errorf(Unknown, "no %q", "m"); got.Kind != Unknown || got.Msg != `no "m"` {
		t.Errorf("got %+v", got)
	}
}

func TestWhatClientsGet(t *testing.T) {
	for _, c := range []struct {
		name   string
		e      Error
		status int
		code   string
		final  bool
	}{
		{"the kind's own", Error{Kind: Busy}, 429, "upstream_busy", false},
		{"a status of the same class", Error{Kind: Invalid, Status: 422, Code: "bad_tool"}, 422, "bad_tool", true},
		{"one that nobody knows", Error{Kind: Invalid, Status: 999}, 502, "invalid_request", true},
		{"one below 200", Error{Kind: Invalid, Status: 101}, 502, "invalid_request", true},
		{"no retry although the kind would allow it", Error{Kind: None, Final: true}, 503, "no_backend", true},
	} {
		if s, code, f := c.e.HTTPStatus(), c.e.ErrorCode(), c.e.IsFinal(); s != c.status || code != c.code || f != c.final {
			t.Errorf("%s: got %d %s %v, want %d %s %v", c.name, s, code, f, c.status, c.code, c.final)
		}
	}
	if (&Error{Kind: Busy, RetryAfter: time.Second}).IsFinal() {
		t.Error("busy is final")
	}
}

func TestFaultSaysWhatItIs(t *testing.T) {
	var err error = &Fault{Data: []byte("secret")}
	if KindOf(err) != Internal || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}
