package backend

import (
	"net/http"
	"strings"
	"testing"

	"weir/internal/llm"
)

func TestTheNumbersOfAnOverflowAreRead(t *testing.T) {
	b := &Backend{}
	for name, c := range map[string]struct {
		body           string
		prompt, window int
	}{
		"llama.cpp":        {`{"error":{"code":400,"message":"request (10085 tokens) exceeds the available context size (4096 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":10085,"n_ctx":4096}}`, 10085, 4096},
		"vLLM":             {`{"object":"error","message":"This model's maximum context length is 32768 tokens. However, you requested 33077 tokens","code":400}`, 33077, 32768},
		"SGLang":           {`{"message":"The input (9000 tokens) is longer than the model's context length (8192 tokens).","code":400}`, 9000, 8192},
		"Anthropic":        {`{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}`, 210000, 200000},
		"one that is mute": {`{"error":{"code":"context_length_exceeded","message":"x"}}`, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := llm.AsError(b.classify(400, http.Header{}, []byte(c.body)))
			if e.Kind != llm.TooLong || e.Prompt != c.prompt || e.Window != c.window {
				t.Errorf("got %v, %d of %d; want too_long, %d of %d", e.Kind, e.Prompt, e.Window, c.prompt, c.window)
			}
		})
	}
}

func TestAnUnknownShapeIsRecordedByItsMembersAlone(t *testing.T) {
	e := llm.AsError((&Backend{}).classify(418, http.Header{}, []byte(`{"oops":"the client's secret words","loc":["x"]}`)))
	if e.Kind != llm.Invalid || e.Err == nil || !strings.Contains(e.Err.Error(), "oops,loc") {
		t.Errorf("got %v, %v; want the members named", e.Kind, e.Err)
	}
	if strings.Contains(e.Error(), "secret") {
		t.Errorf("the error shows a value: %v", e)
	}
}
