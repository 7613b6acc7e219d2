package anthropic

import (
	"net/http"
	"testing"

	"weir/internal/llm"
)

// TestAppendError holds that errors keep their class (C050, C065, C089).
func TestAppendError(t *testing.T) {
	for _, tt := range []struct {
		name   string
		e      llm.Error
		status int
		want   string
	}{
		{"a request's own fault names the member", llm.Error{Kind: llm.Invalid, Msg: "n is too large", Param: "n"}, 400,
			`{"type":"error","error":{"type":"invalid_request_error","message":"n is too large"}}`},
		{"a member that the message does not name is put before it", llm.Error{Kind: llm.Invalid, Msg: "too large", Param: "tools[1]", ID: "req_1"}, 400,
			`{"type":"error","error":{"type":"invalid_request_error","message":"tools[1]: too large"},"request_id":"req_1"}`},
		{"a status of the upstream is kept, C050", llm.Error{Kind: llm.Invalid, Status: 422, Msg: "no support"}, 422,
			`{"type":"error","error":{"type":"invalid_request_error","message":"no support"}}`},
		{"a body that is too large", llm.Error{Kind: llm.Invalid, Status: 413, Msg: "x"}, 413, `{"type":"error","error":{"type":"request_too_large","message":"x"}}`},
		{"a prompt that was refused", llm.Error{Kind: llm.Invalid, Status: 403, Msg: "x"}, 403, `{"type":"error","error":{"type":"permission_error","message":"x"}}`},
		{"an overflow with both numbers is worded for agents", llm.Error{Kind: llm.TooLong, Msg: "the request exceeds the context size", Prompt: 40000, Window: 32768}, 400,
			`{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 40000 tokens > 32768 maximum"}}`},
		{"an overflow with one number keeps its text", llm.Error{Kind: llm.TooLong, Msg: "context size exceeded", Window: 32768}, 400,
			`{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: context size exceeded"}}`},
		{"an overflow that says so itself", llm.Error{Kind: llm.TooLong, Msg: "your prompt is too long"}, 400,
			`{"type":"error","error":{"type":"invalid_request_error","message":"your prompt is too long"}}`},
		{"a wrong key", llm.Error{Kind: llm.Unauthorized, Msg: "x"}, 401, `{"type":"error","error":{"type":"authentication_error","message":"x"}}`},
		{"an unknown model", llm.Error{Kind: llm.Unknown, Msg: "x"}, 404, `{"type":"error","error":{"type":"not_found_error","message":"x"}}`},
		{"a limit of the key", llm.Error{Kind: llm.Limited, Msg: "x"}, 429, `{"type":"error","error":{"type":"rate_limit_error","message":"x"}}`},
		{"a rate limit upstream", llm.Error{Kind: llm.Busy, Upstream: 429, Msg: "x"}, 429, `{"type":"error","error":{"type":"rate_limit_error","message":"x"}}`},
		{"an overload upstream, C065", llm.Error{Kind: llm.Busy, Upstream: 529, Msg: "x"}, 529, `{"type":"error","error":{"type":"overloaded_error","message":"x"}}`},
		{"a full queue", llm.Error{Kind: llm.Full, Msg: "x"}, 529, `{"type":"error","error":{"type":"overloaded_error","message":"x"}}`},
		{"a backend that is away", llm.Error{Kind: llm.Unavailable, Msg: "x"}, 503, `{"type":"error","error":{"type":"overloaded_error","message":"x"}}`},
		{"a model that is loading", llm.Error{Kind: llm.Loading, Msg: "x"}, 503, `{"type":"error","error":{"type":"overloaded_error","message":"x"}}`},
		{"no backend", llm.Error{Kind: llm.None, Msg: "x"}, 503, `{"type":"error","error":{"type":"overloaded_error","message":"x"}}`},
		{"shutting down", llm.Error{Kind: llm.Draining, Msg: "x"}, 503, `{"type":"error","error":{"type":"overloaded_error","message":"x"}}`},
		{"too slow", llm.Error{Kind: llm.Slow, Msg: "x"}, 504, `{"type":"error","error":{"type":"timeout_error","message":"x"}}`},
		{"cut", llm.Error{Kind: llm.Stalled, Msg: "x"}, 504, `{"type":"error","error":{"type":"timeout_error","message":"x"}}`},
		{"a backend's fault", llm.Error{Kind: llm.Refused, Msg: "x"}, 502, `{"type":"error","error":{"type":"api_error","message":"x"}}`},
		{"a backend's key", llm.Error{Kind: llm.Denied, Msg: "x"}, 502, `{"type":"error","error":{"type":"api_error","message":"x"}}`},
		{"a fault of ours", llm.Error{Kind: llm.Internal, Msg: "x"}, http.StatusInternalServerError, `{"type":"error","error":{"type":"api_error","message":"x"}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(Dialect{}.AppendError(nil, &tt.e)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if got := (Dialect{}).Status(&tt.e); got != tt.status {
				t.Errorf("status %d, want %d", got, tt.status)
			}
		})
	}
}

// TestStreamError holds that the error is an event by name (C013).
func TestStreamError(t *testing.T) {
	got := string(Dialect{}.AppendStreamError(nil, &llm.Error{Kind: llm.Refused, Msg: "boom"}))
	want := "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"boom\"}}\n\n"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got, want := string(Dialect{}.AppendPing(nil)), "event: ping\ndata: {\"type\":\"ping\"}\n\n"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
