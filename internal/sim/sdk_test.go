package sim

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

func TestOfficialSDKUnderstandsTheServer(t *testing.T) {
	s := New(Options{Script: Script{On: map[string]Sequence{"m": {{}}, "tooler": {{Tool: "call"}}, "busy": {{Status: 429}}}}}).Start(t)
	client := openai.NewClient(option.WithBaseURL(s.URL()+"/v1"), option.WithAPIKey("k"), option.WithMaxRetries(0),
		option.WithHTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}))
	ask := func(model string) openai.ChatCompletionNewParams {
		return openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}}
	}
	t.Run("a stream with usage", func(t *testing.T) {
		p := ask("m")
		p.StreamOptions.IncludeUsage = openai.Bool(true)
		stream, acc := client.Chat.Completions.NewStreaming(t.Context(), p), openai.ChatCompletionAccumulator{}
		for stream.Next() {
			if !acc.AddChunk(stream.Current()) {
				t.Errorf("chunk refused: %+v", stream.Current())
			}
		}
		if err := stream.Err(); err != nil || !strings.Contains(acc.Choices[0].Message.Content, "simulated") || acc.Usage.TotalTokens == 0 {
			t.Errorf("got %+v, %v", acc.ChatCompletion, err)
		}
	})
	t.Run("a tool call", func(t *testing.T) {
		p := ask("tooler")
		p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "f"})}
		got, err := client.Chat.Completions.New(t.Context(), p)
		if err != nil || got.Choices[0].Message.ToolCalls[0].Function.Name != "f" || got.Choices[0].FinishReason != "tool_calls" {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("embeddings in base64", func(t *testing.T) {
		got, err := client.Embeddings.New(t.Context(), openai.EmbeddingNewParams{Model: "m", Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("x")}})
		if err != nil {
			t.Fatal(err)
		}
		var vector []float32
		for _, f := range got.Data[0].Embedding {
			vector = append(vector, float32(f))
		}
		if d := cmp.Diff(Vector("m", "x", defaultDimensions), vector); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if h := rawAsk(t, s, "/v1/embeddings", `{"model":"m","input":["x"],"encoding_format":"base64","dimensions":3}`); len(fmt.Sprint(dig(t, h.body, "data", 0, "embedding"))) != 16 {
			t.Errorf("base64 of 3 floats: %s", h.body)
		}
	})
	t.Run("an error of its own kind", func(t *testing.T) {
		_, err := client.Chat.Completions.New(t.Context(), ask("busy"))
		var apiErr *openai.Error
		if !asError(err, &apiErr) || apiErr.StatusCode != 429 || apiErr.Code != "rate_limit_exceeded" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("models", func(t *testing.T) {
		got, err := client.Models.List(t.Context())
		if err != nil || len(got.Data) != 3 || got.Data[0].ID != "busy" {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}
