package openai

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
)

func TestWhole(t *testing.T) {
	const good = ` {"id":"c1", "object":"chat.completion","created":7,"model":"up","x":12345678901234567890,"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}} `
	for _, c := range []struct {
		name    string
		op      llm.Op
		ask, in string
		encode  bool
		out     string // in itself when empty
		usage   llm.Usage
		fault   bool
		refusal string
		served  string
	}{
		{name: "a good answer keeps every byte", op: llm.Chat, in: good, usage: llm.Usage{In: 3, Out: 1, Cached: -1, Reasoning: -1, Written: -1}, served: "up"},
		{name: "C165 what is missing is added", op: llm.Chat, in: `{"choices":[{"message":{"content":"a"},"finish_reason":"stop"},{"index":null,"message":{}}]}`,
			out: `{"id":"chatcmpl-*","object":"chat.completion","created":946684800,"model":"shown","choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"},{"index":1,"message":{}}]}`, usage: llm.NoUsage},
		{name: "C165 what says nothing is replaced", op: llm.Chat, in: "\n" + `{"id":"","object":"","created":0,"model":null,"choices":[{"index":0}]}`,
			out: `{"id":"chatcmpl-*","object":"chat.completion","created":946684800,"model":"shown","choices":[{"index":0}]}`, usage: llm.NoUsage},
		{name: "a path is not shown", op: llm.Chat, in: `{"id":"c1","object":"o","created":7,"model":"/models/foo.gguf","choices":[{"index":0}]}`,
			out: `{"id":"c1","object":"o","created":7,"model":"shown","choices":[{"index":0}]}`, usage: llm.NoUsage, served: "/models/foo.gguf"},
		{name: "a legacy completion", op: llm.Completions, ask: `{"model":"m","prompt":"a"}`, in: `{"choices":[{"text":"a","logprobs":{"tokens":["a"]}}]}`,
			out: `{"id":"cmpl-*","object":"text_completion","created":946684800,"model":"shown","choices":[{"index":0,"text":"a","logprobs":{"tokens":["a"]}}]}`, usage: llm.NoUsage},
		{name: "rerank goes on as it is", op: llm.Rerank, ask: `{"model":"m","query":"q","documents":["d"]}`, in: `{"model":"up","usage":{"total_tokens":9},"results":[{"index":0,"relevance_score":0.10}]}`,
			usage: llm.Usage{In: 9, Out: -1, Cached: -1, Reasoning: -1, Written: -1}, served: "up"},
		{name: "embeddings of numbers for who asked for none", op: llm.Embeddings, ask: `{"model":"m","input":"a"}`, in: `{"data":[{"embedding":[0.10,1e-3]}],"model":"up"}`, encode: true, usage: llm.NoUsage, served: "up"},
		{name: "C154 numbers become base64 for who asked for it", op: llm.Embeddings, ask: `{"model":"m","input":"a","encoding_format":"base64"}`, encode: true,
			in:    `{"object":"list","data":[{"index":0,"embedding":[1.5, -2,0.1,1e39]},{"embedding":[],"index":1},{"embedding":"AAA="},7],"model":"up","usage":{"prompt_tokens":5,"total_tokens":5}}`,
			out:   `{"object":"list","data":[{"index":0,"embedding":"` + vector(1.5, -2, 0.1, math.Inf(1)) + `"},{"embedding":"","index":1},{"embedding":"AAA="},7],"model":"up","usage":{"prompt_tokens":5,"total_tokens":5}}`,
			usage: llm.Usage{In: 5, Out: -1, Cached: -1, Reasoning: -1, Written: -1}, served: "up"},
		{name: "a path and base64", op: llm.Embeddings, ask: `{"model":"m","input":"a","encoding_format":"base64"}`, encode: true, in: `{"model":"/m/x.gguf","data":[{"embedding":[0]}]}`,
			out: `{"model":"shown","data":[{"embedding":"AAAAAA=="}]}`, usage: llm.NoUsage, served: "/m/x.gguf"},
		{name: "a path of embeddings is not shown", op: llm.Embeddings, ask: `{"model":"m","input":"a"}`, in: `{"model":"C:\\m\\x.gguf","data":[]}`, out: `{"model":"shown","data":[]}`, usage: llm.NoUsage, served: `C:\m\x.gguf`},
		{name: "an error", op: llm.Chat, in: `{"error":{"message":"m"}}`, fault: true},
		{name: "an error of embeddings", op: llm.Embeddings, ask: `{"model":"m","input":"a"}`, in: `{"error":"m"}`, fault: true},
		{name: "a flat error", op: llm.Chat, in: `{"object":"error","message":"m"}`, fault: true},
		{name: "error null is none", op: llm.Chat, in: `{"error":null,"id":"c1","object":"o","created":7,"model":"up","choices":[{"index":0}]}`, usage: llm.NoUsage, served: "up"},
		{name: "no body", op: llm.Chat, in: " \n", refusal: "empty body"},
		{name: "no JSON", op: llm.Chat, in: `{"choices":[`, refusal: "not valid JSON"},
		{name: "more than one value", op: llm.Chat, in: good + "x", refusal: "not valid JSON"},
		{name: "no object", op: llm.Embeddings, ask: `{"model":"m","input":"a"}`, in: `[1]`, refusal: "not valid JSON"},
		{name: "no choices", op: llm.Chat, in: `{"id":"c1"}`, refusal: "without any choice"},
		{name: "empty choices", op: llm.Chat, in: `{"choices":[]}`, refusal: "without any choice"},
		{name: "choices of no kind", op: llm.Chat, in: `{"choices":null}`, refusal: "without any choice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.ask == "" {
					c.ask = asWhole
				}
				got, seen, err := Dialect{}.Whole(decode(t, c.op, c.ask), "shown", []byte(c.in), c.encode)
				if c.fault {
					if f, ok := errors.AsType[*llm.Fault](err); !ok || string(f.Data) != c.in {
						t.Errorf("got %s, %v, want the error object", got, err)
					}
					return
				}
				if c.refusal != "" {
					if e := refusal(t, err); e.Kind != llm.Refused || !e.Sent || !strings.Contains(e.Msg, c.refusal) {
						t.Errorf("got %+v, want … %s …", e, c.refusal)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				want := c.out
				if want == "" {
					want = c.in
				}
				out := generated.ReplaceAllString(string(got), `"$1*"`)
				if c.out == "" && out != want || !sameJSON(t, out, want) {
					t.Errorf("got  %s\nwant %s", out, want)
				}
				if d := cmp.Diff(c.usage, seen.Usage); d != "" || seen.Served != c.served {
					t.Errorf("served %q, usage %s", seen.Served, d)
				}
			})
		})
	}
}

// vector is the form that the official SDKs decode: little-endian float32 in base64.
func vector(list ...float64) string {
	var b []byte
	for _, x := range list {
		u := math.Float32bits(float32(x))
		b = append(b, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
	}
	return base64.StdEncoding.EncodeToString(b)
}

func TestErrorObjects(t *testing.T) {
	for _, c := range []struct {
		e    llm.Error
		want string
	}{
		{llm.Error{Kind: llm.Invalid, Msg: "bad \"x\"\n\u2028", Param: "messages[0].content", Code: "invalid_value"},
			`{"error":{"message":"bad \"x\"\n\u2028","type":"invalid_request_error","param":"messages[0].content","code":"invalid_value"}}`},
		{llm.Error{Kind: llm.TooLong, Msg: "m"}, `{"error":{"message":"m","type":"invalid_request_error","param":null,"code":"context_length_exceeded"}}`},
		{llm.Error{Kind: llm.Unknown, Msg: "m"}, `{"error":{"message":"m","type":"invalid_request_error","param":null,"code":"model_not_found"}}`},
		{llm.Error{Kind: llm.Unauthorized, Msg: "m"}, `{"error":{"message":"m","type":"authentication_error","param":null,"code":"invalid_api_key"}}`},
		{llm.Error{Kind: llm.Busy, Msg: "m"}, `{"error":{"message":"m","type":"rate_limit_error","param":null,"code":"upstream_busy"}}`},
		{llm.Error{Kind: llm.Stalled, Msg: "m"}, `{"error":{"message":"m","type":"timeout_error","param":null,"code":"upstream_stalled"}}`},
		{llm.Error{Kind: llm.Full, Msg: "m"}, `{"error":{"message":"m","type":"overloaded_error","param":null,"code":"queue_full"}}`},
		{llm.Error{Kind: llm.Refused, Msg: ""}, `{"error":{"message":"","type":"server_error","param":null,"code":"upstream_refused"}}`},
	} {
		got := string(Dialect{}.AppendError(nil, &c.e))
		if !sameJSON(t, got, c.want) {
			t.Errorf("got %s, want %s", got, c.want)
		}
		stream := string(Dialect{}.AppendStreamError([]byte("data: x\n\n"), &c.e))
		if stream != "data: x\n\ndata: "+got+"\n\n" || strings.Count(stream, "\n") != 4 {
			t.Errorf("in a stream: got %q", stream)
		}
	}
	for k := llm.Invalid; k <= llm.Internal; k++ { // no kind is without a type, and none passes for success
		var v struct {
			Error struct{ Type, Code string }
		}
		if err := json.Unmarshal(Dialect{}.AppendError(nil, &llm.Error{Kind: k}), &v); err != nil || v.Error.Type == "" || v.Error.Code == "" {
			t.Errorf("%v: %+v, %v", k, v, err)
		}
	}
	if got := string(Dialect{}.AppendPing(nil)); !strings.HasPrefix(got, ":") || !strings.HasSuffix(got, "\n\n") {
		t.Errorf("a ping is %q", got)
	}
}
