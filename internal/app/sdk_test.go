package app

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/shared"

	"weir/internal/key"
	"weir/internal/sim"
)

// river is what the model oai-m says in these tests.
const river = "The river is quiet today."

const sdkConfig = `
backends:
  a: {url: "http://a.sim", server: openai, tier: gpu, usage: ask}
  shut: {url: "http://a.sim", server: openai, tier: gpu}   # its account is refused: that takes the whole backend out
pools:
  a: {backend: a, cap: 8, models: [oai-m, tool, shaped, emb, picky, broken, hang, cut, slow]}
  b: {backend: a, cap: 8, models: [busy]}                  # asked for a pause, which holds for the pool
  shut: {backend: shut, cap: 8, models: [denied]}
routes:
  impatient: {steps: [a/hang], limits: {first_content: 300ms}}
aliases:
  oai-m: a/oai-m
  tool: a/tool
  shaped: a/shaped
  emb: a/emb
  picky: a/picky
  denied: shut/denied
  broken: a/broken
  busy: b/busy
  hang: impatient
  cut: a/cut
  slow: a/slow
`

// beginSDK starts a gateway whose models each behave in one way, and the official Go SDK as its client.
func beginSDK(t *testing.T) (*gateway, *openai.Client) {
	t.Helper()
	g := begin(t, setup{yaml: sdkConfig, sims: map[string]sim.Script{"a": {Strict: true, On: map[string]sim.Sequence{
		"oai-m":  {{Text: river}},
		"tool":   {{Tool: "call"}},
		"shaped": {{}},
		"emb":    {{}},
		"picky":  {{Status: 400, Error: json.RawMessage(`{"message":"this prompt is not for me","type":"invalid_request_error"}`)}},
		"denied": {{Status: 401}},
		"broken": {{Status: 500}},
		"busy":   {{Status: 429, RetryAfter: "30"}},
		"hang":   {{Hang: true}},
		"cut":    {{Deltas: []string{"one ", "two ", "three"}, Cut: &sim.Cut{After: 2, Of: "chunks", How: "rst"}}},
		"slow":   {{Endless: true, Gap: 10 * time.Millisecond}},
	}}}})
	return g, g.sdk(g.key)
}

func (g *gateway) sdk(token string, more ...option.RequestOption) *openai.Client {
	all := []option.RequestOption{option.WithBaseURL(g.url + "/v1"), option.WithAPIKey(token), option.WithHTTPClient(g.client), option.WithMaxRetries(0)}
	c := openai.NewClient(append(all, more...)...)
	return &c
}

func hello(model string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello")}}
}

func TestGoSDKChats(t *testing.T) {
	_, client := beginSDK(t)
	t.Run("a whole answer", func(t *testing.T) {
		got, err := client.Chat.Completions.New(t.Context(), hello("oai-m"))
		if err != nil || got.Choices[0].Message.Content != river || got.Choices[0].FinishReason != "stop" || got.Usage.TotalTokens == 0 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("a stream, with usage where it was asked for", func(t *testing.T) {
		for _, usage := range []bool{false, true} {
			p := hello("oai-m")
			if usage {
				p.StreamOptions.IncludeUsage = openai.Bool(true)
			}
			stream, acc, n := client.Chat.Completions.NewStreaming(t.Context(), p), openai.ChatCompletionAccumulator{}, 0
			for ; stream.Next(); n++ {
				if !acc.AddChunk(stream.Current()) {
					t.Errorf("chunk refused: %+v", stream.Current())
				}
			}
			if err := stream.Err(); err != nil || acc.Choices[0].Message.Content != river || acc.Choices[0].FinishReason != "stop" || n < 5 {
				t.Errorf("got %d chunks, %+v, %v", n, acc.ChatCompletion, err)
			}
			if got := acc.Usage.TotalTokens > 0; got != usage {
				t.Errorf("usage came: %v, want %v", got, usage)
			}
		}
	})
	t.Run("a completion of old", func(t *testing.T) {
		got, err := client.Completions.New(t.Context(), openai.CompletionNewParams{Model: "oai-m", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("Hello")}})
		if err != nil || got.Choices[0].Text != river {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestGoSDKUsesTools(t *testing.T) {
	_, client := beginSDK(t)
	p := hello("tool")
	p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
		Name: "get_weather", Parameters: openai.FunctionParameters{
			"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"},
		},
	})}
	first, err := client.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	message := first.Choices[0].Message
	if len(message.ToolCalls) != 1 || message.ToolCalls[0].Function.Name != "get_weather" || first.Choices[0].FinishReason != "tool_calls" {
		t.Fatalf("got %+v, want a call", first)
	}
	var args struct{ City *string }
	if err := json.Unmarshal([]byte(message.ToolCalls[0].Function.Arguments), &args); err != nil || args.City == nil {
		t.Errorf("arguments %q, %v", message.ToolCalls[0].Function.Arguments, err)
	}
	p.Messages = append(p.Messages, message.ToParam(), openai.ToolMessage("18 degrees, dry", message.ToolCalls[0].ID))
	second, err := client.Chat.Completions.New(t.Context(), p)
	if err != nil || !strings.Contains(second.Choices[0].Message.Content, "18 degrees, dry") || second.Choices[0].FinishReason != "stop" {
		t.Errorf("second turn: got %+v, %v", second, err)
	}
}

func TestGoSDKAsksForASchema(t *testing.T) {
	_, client := beginSDK(t)
	p := hello("shaped")
	p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
		Name: "plan", Strict: openai.Bool(true), Schema: map[string]any{
			"type": "object", "additionalProperties": false, "required": []string{"title", "minutes"},
			"properties": map[string]any{"title": map[string]any{"type": "string"}, "minutes": map[string]any{"type": "integer", "minimum": 5}},
		},
	}}
	got, err := client.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	var plan struct {
		Title   *string
		Minutes int
	}
	if err := json.Unmarshal([]byte(got.Choices[0].Message.Content), &plan); err != nil || plan.Title == nil || plan.Minutes < 5 {
		t.Errorf("got %q, %v, want a plan", got.Choices[0].Message.Content, err)
	}
}

func TestGoSDKEmbeds(t *testing.T) {
	_, client := beginSDK(t)
	p := openai.EmbeddingNewParams{Model: "emb", Dimensions: openai.Int(8), Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("one")}}
	want := sim.Vector("emb", "one", 8)
	got, err := client.Embeddings.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	var plain []float32
	for _, f := range got.Data[0].Embedding {
		plain = append(plain, float32(f))
	}
	if d := cmp.Diff(want, plain); d != "" {
		t.Errorf("plain numbers (-want +got):\n%s", d)
	}
	p.EncodingFormat = openai.EmbeddingNewParamsEncodingFormatBase64
	var coded struct{ Data []struct{ Embedding string } }
	if _, err = client.Embeddings.New(t.Context(), p, option.WithResponseBodyInto(&coded)); err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(coded.Data[0].Embedding)
	if err != nil {
		t.Fatal(err)
	}
	var decoded []float32
	for ; len(raw) >= 4; raw = raw[4:] {
		decoded = append(decoded, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
	}
	if d := cmp.Diff(want, decoded); d != "" {
		t.Errorf("base64 (-want +got):\n%s", d)
	}
}

func TestGoSDKListsModels(t *testing.T) {
	_, client := beginSDK(t)
	var ids []string
	for pages := client.Models.ListAutoPaging(t.Context()); pages.Next(); {
		ids = append(ids, pages.Current().ID)
	}
	if all := strings.Join(ids, " "); !strings.Contains(all, "oai-m") || !strings.Contains(all, "a/oai-m") {
		t.Errorf("got %s, want alias and pool/model", all)
	}
	if m, err := client.Models.Get(t.Context(), "oai-m"); err != nil || m.ID != "oai-m" {
		t.Errorf("got %+v, %v", m, err)
	}
	_, err := client.Models.Get(t.Context(), "nothing")
	wantSDKError(t, err, http.StatusNotFound, "model_not_found", "nothing")
}

// wantSDKError checks that err is the SDK's own error with a status, a code (unless empty) and a part of the message.
func wantSDKError(t *testing.T, err error, status int, code, says string) {
	t.Helper()
	var e *openai.Error
	if !errors.As(err, &e) {
		t.Errorf("got %T %v, want the SDK's error", err, err)
		return
	}
	if e.StatusCode != status || code != "" && e.Code != code || !strings.Contains(e.Message, says) || e.Type == "" {
		t.Errorf("got %d, code %q, type %q, %q; want %d, %q, %q", e.StatusCode, e.Code, e.Type, e.Message, status, code, says)
	}
	if e.Response.Header.Get("X-Weir-Request") == "" {
		t.Error("the error has no request id")
	}
}

func TestGoSDKRaisesItsOwnErrors(t *testing.T) {
	g, client := beginSDK(t)
	limited := g.newKey(key.Spec{Name: "limited", RPM: 1})
	tests := []struct {
		name, model string
		client      *openai.Client
		status      int
		code, says  string
	}{
		{"a wrong key", "oai-m", g.sdk("weir_wrong"), http.StatusUnauthorized, "invalid_api_key", ""},
		{"an unknown model, with a near name", "oai-n", client, http.StatusNotFound, "model_not_found", "oai-m"},
		{"what the model's server refuses", "picky", client, http.StatusBadRequest, "", "this prompt is not for me"},
		{"a busy backend", "busy", client, http.StatusTooManyRequests, "upstream_busy", ""},
		{"a backend that refuses our key", "denied", client, http.StatusBadGateway, "upstream_denied", ""},
		{"a failing backend, which is not asked again", "broken", g.sdk(g.key, option.WithMaxRetries(2)), http.StatusBadGateway, "upstream_refused", ""},
		{"a backend that says nothing, which is not asked again", "hang", g.sdk(g.key, option.WithMaxRetries(2)), http.StatusGatewayTimeout, "upstream_slow", ""},
		{"a stream that broke under a whole answer", "cut", client, http.StatusGatewayTimeout, "incomplete_stream", "broke off"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := test.client.Chat.Completions.New(t.Context(), hello(test.model))
			wantSDKError(t, err, test.status, test.code, test.says)
		})
	}
	for _, model := range []string{"broken", "hang"} {
		if n := len(g.sim().Calls(model)); n != 1 {
			t.Errorf("%s: %d attempts at the server, want 1", model, n)
		}
	}
	t.Run("a limit of the key", func(t *testing.T) {
		c := g.sdk(limited)
		if _, err := c.Chat.Completions.New(t.Context(), hello("oai-m")); err != nil {
			t.Fatal(err)
		}
		_, err := c.Chat.Completions.New(t.Context(), hello("oai-m"))
		wantSDKError(t, err, http.StatusTooManyRequests, "rate_limit_exceeded", "")
	})
	t.Run("a stream that breaks, after what had come", func(t *testing.T) {
		stream, text := client.Chat.Completions.NewStreaming(t.Context(), hello("cut")), ""
		for stream.Next() {
			for _, c := range stream.Current().Choices {
				text += c.Delta.Content
			}
		}
		var broke *ssestream.StreamError
		if err := stream.Err(); text != "one two " || !errors.As(err, &broke) || !strings.Contains(broke.Message, "broke off") {
			t.Errorf("got %q, then %T %v; want the SDK's StreamError that says what happened", text, err, err)
		}
	})
}

func TestGoSDKAborts(t *testing.T) {
	g, client := beginSDK(t)
	for name, ask := range map[string]func(context.Context){
		"a stream":       func(ctx context.Context) { client.Chat.Completions.NewStreaming(ctx, hello("slow")).Next() },
		"a whole answer": func(ctx context.Context) { _, _ = client.Chat.Completions.New(ctx, hello("slow")) },
	} {
		t.Run(name, func(t *testing.T) {
			limit, stop := context.WithTimeout(t.Context(), 5*time.Second)
			defer stop()
			ctx, abort := context.WithCancel(limit)
			defer abort()
			ended := len(g.sim().Calls("slow"))
			done := make(chan struct{})
			go func() { defer close(done); ask(ctx) }()
			if err := g.sim().WaitActive(limit, 1); err != nil {
				t.Fatal(err)
			}
			abort()
			<-done
			if err := g.sim().WaitEnded(limit, ended+1); err != nil {
				t.Fatalf("the server still generates: %v", err)
			}
			if a := g.sim().Calls("slow")[ended]; a.End != sim.Left {
				t.Errorf("the attempt ended as %s, want %s", a.End, sim.Left)
			}
		})
	}
}
