package responses

import (
	"strings"
	"testing"

	"weir/internal/llm"
)

func TestErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		e      *llm.Error
		status int
		body   string
	}{
		"of the client's making": {&llm.Error{Kind: llm.Invalid, Msg: "no", Param: "input[0]"}, 400,
			`{"error":{"message":"no","type":"invalid_request_error","param":"input[0]","code":"invalid_request"}}`},
		"an overflow": {&llm.Error{Kind: llm.TooLong, Msg: "long"}, 400,
			`{"error":{"message":"long","type":"invalid_request_error","param":null,"code":"context_length_exceeded"}}`},
		"a final 503 becomes a 429 that says why": {&llm.Error{Kind: llm.None, Msg: "all steps are out"}, 429,
			`{"error":{"message":"all steps are out` + because + `","type":"overloaded_error","param":null,"code":"no_backend"}}`},
		"a full queue": {&llm.Error{Kind: llm.Full, Msg: "full"}, 429,
			`{"error":{"message":"full` + because + `","type":"overloaded_error","param":null,"code":"queue_full"}}`},
		"a limit": {&llm.Error{Kind: llm.Limited, Msg: "slow down"}, 429,
			`{"error":{"message":"slow down","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`},
		"a server that is broken": {&llm.Error{Kind: llm.Refused, Msg: "broken"}, 502,
			`{"error":{"message":"broken","type":"server_error","param":null,"code":"upstream_refused"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (Dialect{}).Status(tc.e); got != tc.status {
				t.Errorf("status %d, want %d", got, tc.status)
			}
			if got := string(Dialect{}.AppendError(nil, tc.e)); got != tc.body {
				t.Errorf("got\n%s\nwant\n%s", got, tc.body)
			}
		})
	}
}

func TestStreamErrors(t *testing.T) {
	for k, code := range map[llm.Kind]string{llm.TooLong: "context_length_exceeded", llm.Invalid: "invalid_prompt",
		llm.Busy: "rate_limit_exceeded", llm.Limited: "rate_limit_exceeded", llm.Stalled: "server_error", llm.Full: "server_error"} {
		t.Run(k.String(), func(t *testing.T) {
			got := string(Dialect{}.AppendStreamError(nil, &llm.Error{Kind: k, Msg: `so "it" is`}))
			checkStream(t, got, false)
			for _, want := range []string{"event: response.failed\ndata: {\"type\":\"response.failed\",\"sequence_number\":0,\"response\":{\"id\":\"resp_",
				`"status":"failed"`, `"error":{"code":"` + code + `","message":"so \"it\" is"}`} {
				if !strings.Contains(got, want) {
					t.Errorf("%s lacks %s", got, want)
				}
			}
		})
	}
	if got := string(Dialect{}.AppendPing(nil)); got != ": waiting\n\n" {
		t.Errorf("ping %q", got)
	}
}
