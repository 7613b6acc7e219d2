package openai

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"weir/internal/llm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// decode decodes a chat request that must be right.
func decode(t *testing.T, op llm.Op, body string) *llm.Request {
	t.Helper()
	r, err := Dialect{}.Decode(op, []byte(body), 100)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

// refusal returns the error that err must be.
func refusal(t *testing.T, err error) *llm.Error {
	t.Helper()
	e, ok := errors.AsType[*llm.Error](err)
	if !ok {
		t.Fatalf("got %v, want an *llm.Error", err)
	}
	return e
}
