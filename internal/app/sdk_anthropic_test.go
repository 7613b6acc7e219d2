package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"weir/internal/key"
	"weir/internal/sim"
)

// manners are the models of one kind of backend for the SDKs: what they do is their name.
func manners() map[string]sim.Sequence {
	return map[string]sim.Sequence{
		"m": {{Text: river}}, "tool": {{Tool: "call"}}, "two": {{Tool: "parallel"}}, "think": {{Reasoning: "let me see", Text: river}},
		"agent": {{Agent: true, Reasoning: "let me see"}}, "picky": {{Status: 400, Error: []byte(`{"type":"invalid_request_error","message":"this prompt is not for me"}`)}},
		"broken": {{Status: 500}}, "cut": {{Deltas: []string{"one ", "two ", "three"}, Cut: &sim.Cut{After: 2, Of: "chunks", How: "rst"}}},
		"full": {{Deltas: []string{"one ", "two ", "three"}, StreamError: &sim.StreamError{After: 2, Error: []byte(`{"type":"overloaded_error","code":"server_is_overloaded","message":"Overloaded"}`)}}},
		"slow": {{Endless: true, Gap: 10 * time.Millisecond}},
	}
}

// beginSDKs starts a gateway over a backend of the API, whose models are the manners and a busy one of a pool of its own.
func beginSDKs(t *testing.T, back *api) *gateway {
	t.Helper()
	on := manners()
	on["busy"] = sim.Sequence{{Status: 429, RetryAfter: "30"}}
	return begin(t, setup{yaml: `
backends:
  a: {url: "http://a.sim", tier: gpu, ` + back.yaml + `}
pools:
  a: {backend: a, cap: 8, models: [m, tool, two, think, agent, picky, broken, cut, full, slow]}
  b: {backend: a, cap: 8, models: [busy]}
aliases: {m: a/m, tool: a/tool, two: a/two, think: a/think, agent: a/agent, picky: a/picky, broken: a/broken, cut: a/cut, full: a/full, slow: a/slow, busy: b/busy}
`, sims: map[string]sim.Script{"a": {Server: back.server, Strict: true, On: on}}})
}

// eachBackend runs f for a backend of each API.
func eachBackend(t *testing.T, f func(t *testing.T, back *api)) {
	for _, back := range apis {
		t.Run("to "+back.name, func(t *testing.T) { f(t, back) })
	}
}

func (g *gateway) claude(token string) *anthropic.Client {
	c := anthropic.NewClient(option.WithBaseURL(g.url), option.WithAPIKey(token), option.WithHTTPClient(g.client), option.WithMaxRetries(0))
	return &c
}

func saying(model string, blocks ...anthropic.ContentBlockParamUnion) anthropic.MessageNewParams {
	if blocks == nil {
		blocks = append(blocks, anthropic.NewTextBlock("Hello"))
	}
	return anthropic.MessageNewParams{Model: anthropic.Model(model), MaxTokens: 4096, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(blocks...)}}
}

// heard asks and gathers the answer, with the SDK's accumulator where it streams.
func heard(ctx context.Context, c *anthropic.Client, p anthropic.MessageNewParams, stream bool) (*anthropic.Message, error) {
	if !stream {
		return c.Messages.New(ctx, p)
	}
	s := c.Messages.NewStreaming(ctx, p)
	var m anthropic.Message
	for s.Next() {
		if err := m.Accumulate(s.Current()); err != nil {
			return nil, fmt.Errorf("accumulating: %w", err)
		}
	}
	return &m, s.Err()
}

// spoken returns the texts, the thinking and the calls of a message.
func spoken(m *anthropic.Message) (text, thinking string, uses []anthropic.ToolUseBlock) {
	for _, b := range m.Content {
		switch b.Type {
		case "text":
			text += b.Text
		case "thinking":
			thinking += b.Thinking
		case "tool_use":
			uses = append(uses, b.AsToolUse())
		}
	}
	return text, thinking, uses
}

var weatherTool = anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{
	Properties: map[string]any{"city": map[string]any{"type": "string"}}, Required: []string{"city"}}, "get_weather")

func TestClaudeSDKTalks(t *testing.T) {
	eachBackend(t, func(t *testing.T, back *api) {
		g := beginSDKs(t, back)
		client := g.claude(g.key)
		for _, stream := range []bool{true, false} {
			m, err := heard(t.Context(), client, saying("m"), stream)
			if err != nil {
				t.Fatal(err)
			}
			if text, _, _ := spoken(m); text != river || m.StopReason != "end_turn" || m.Usage.OutputTokens == 0 || m.ID == "" || m.Role != "assistant" {
				t.Errorf("stream %v: %+v", stream, m)
			}
			m, err = heard(t.Context(), client, saying("think"), stream)
			if err != nil {
				t.Fatal(err)
			}
			if text, thinking, _ := spoken(m); text != river || thinking != "let me see" || m.Content[0].Type != "thinking" {
				t.Errorf("stream %v: %+v", stream, m)
			}
			p := saying("m", anthropic.NewTextBlock("look"), anthropic.NewImageBlockBase64("image/png", "iVBORw0KGgo="))
			if m, err = heard(t.Context(), client, p, stream); err != nil || m.StopReason != "end_turn" {
				t.Errorf("an image, stream %v: %+v, %v", stream, m, err)
			}
			if up := g.sim().Calls("m"); !strings.Contains(string(up[len(up)-1].Body), "iVBORw0KGgo=") {
				t.Errorf("the image did not go up: %s", up[len(up)-1].Body)
			}
		}
	})
}

func TestClaudeSDKUsesTools(t *testing.T) {
	eachBackend(t, func(t *testing.T, back *api) {
		g := beginSDKs(t, back)
		client := g.claude(g.key)
		for model, calls := range map[string]int{"tool": 1, "two": 2, "agent": 1} {
			for _, stream := range []bool{true, false} {
				p := saying(model)
				p.Tools = []anthropic.ToolUnionParam{weatherTool}
				if model == "agent" {
					p.Thinking = anthropic.ThinkingConfigParamOfEnabled(2048)
				}
				first, err := heard(t.Context(), client, p, stream)
				if err != nil {
					t.Fatal(err)
				}
				_, thinking, uses := spoken(first)
				if len(uses) != calls || first.StopReason != "tool_use" || (model == "agent") != (thinking != "") {
					t.Fatalf("%s, stream %v: %+v", model, stream, first)
				}
				var results []anthropic.ContentBlockParamUnion
				for _, u := range uses {
					if u.Name != "get_weather" || u.ID == "" || !strings.Contains(string(u.Input), `"city":`) {
						t.Errorf("%s, stream %v: %+v", model, stream, u)
					}
					results = append(results, anthropic.NewToolResultBlock(u.ID, "18 degrees, dry", false))
				}
				p.Messages = append(p.Messages, first.ToParam(), anthropic.NewUserMessage(results...))
				second, err := heard(t.Context(), client, p, stream)
				if err != nil {
					t.Fatalf("%s, stream %v, the second turn: %v", model, stream, err)
				}
				if text, _, _ := spoken(second); !strings.Contains(text, "18 degrees, dry") || second.StopReason != "end_turn" {
					t.Errorf("%s, stream %v, the second turn: %+v", model, stream, second)
				}
			}
		}
	})
}

func TestClaudeSDKRaisesItsOwnErrors(t *testing.T) {
	eachBackend(t, func(t *testing.T, back *api) {
		g := beginSDKs(t, back)
		limited := g.newKey(key.Spec{Name: "limited", RPM: 1})
		client := g.claude(g.key)
		if _, err := g.claude(limited).Messages.New(t.Context(), saying("m")); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name, model string
			client      *anthropic.Client
			status      int
			kind, says  string
		}{
			{"a wrong key", "m", g.claude("weir_wrong"), 401, "authentication_error", ""},
			{"a limit of the key", "m", g.claude(limited), 429, "rate_limit_error", ""},
			{"an unknown model", "n", client, 404, "not_found_error", "GET /v1/models"},
			{"what the server refuses", "picky", client, 400, "invalid_request_error", "this prompt is not for me"},
			{"a busy backend", "busy", client, 429, "rate_limit_error", ""},
			{"a failing one", "broken", client, 502, "api_error", ""},
			{"an answer that broke", "cut", client, 504, "timeout_error", "broke off"},
			{"an overload within one", "full", client, 529, "overloaded_error", "Overloaded"},
		} {
			for _, stream := range []bool{true, false} {
				if stream && (c.model == "cut" || c.model == "full") {
					continue // below
				}
				_, err := heard(t.Context(), c.client, saying(c.model), stream)
				var e *anthropic.Error
				if !errors.As(err, &e) {
					t.Errorf("%s, stream %v: got %T %v, want the SDK's error", c.name, stream, err, err)
					continue
				}
				if e.StatusCode != c.status || string(e.Type()) != c.kind || !strings.Contains(e.Message, c.says) || e.RequestID == "" || e.RequestID != e.Response.Header.Get("X-Weir-Request") {
					t.Errorf("%s, stream %v: %d %s, %q, request %q", c.name, stream, e.StatusCode, e.Type(), e.Message, e.RequestID)
				}
			}
		}
		for model, kind := range map[string]string{"cut": "timeout_error", "full": "overloaded_error"} {
			m, err := heard(t.Context(), client, saying(model), true)
			text := ""
			if m != nil {
				for _, b := range m.Content {
					text += b.Text
				}
			}
			if err == nil || !strings.Contains(err.Error(), kind) || text != "one two " {
				t.Errorf("a stream that breaks: %q, then %v", text, err)
			}
		}
	})
}

func TestClaudeSDKAborts(t *testing.T) {
	eachBackend(t, func(t *testing.T, back *api) {
		g := beginSDKs(t, back)
		for _, stream := range []bool{true, false} {
			g.aborts(func(ctx context.Context) { _, _ = heard(ctx, g.claude(g.key), saying("slow"), stream) })
		}
	})
}

// aborts asks the model slow, leaves once its server is at work, and checks that the server is let go.
func (g *gateway) aborts(ask func(context.Context)) {
	g.t.Helper()
	limit, stop := context.WithTimeout(g.t.Context(), 10*time.Second)
	defer stop()
	ctx, abort := context.WithCancel(limit)
	defer abort()
	ended := len(g.sim().Calls("slow"))
	done := make(chan struct{})
	go func() { defer close(done); ask(ctx) }()
	if err := g.sim().WaitActive(limit, 1); err != nil {
		g.t.Fatal(err)
	}
	abort()
	<-done
	if err := g.sim().WaitEnded(limit, ended+1); err != nil {
		g.t.Fatalf("the server still generates: %v", err)
	}
	if a := g.sim().Calls("slow")[ended]; a.End != sim.Left {
		g.t.Errorf("the attempt ended as %s, want %s", a.End, sim.Left)
	}
}

func TestClaudeSDKCountsAndLists(t *testing.T) {
	eachBackend(t, func(t *testing.T, back *api) {
		g := beginSDKs(t, back)
		client := g.claude(g.key)
		p := saying("m", anthropic.NewTextBlock(strings.Repeat("The river is quiet today. ", 40)))
		n, err := client.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{Model: p.Model, Messages: p.Messages})
		if err != nil || n.InputTokens < 150 || n.InputTokens > 400 {
			t.Errorf("count: %+v, %v", n, err)
		}
		var ids []string
		pages := client.Models.ListAutoPaging(t.Context(), anthropic.ModelListParams{Limit: anthropic.Int(3)})
		for pages.Next() {
			ids = append(ids, pages.Current().ID)
		}
		if err := pages.Err(); err != nil || !slices.Contains(ids, "m") || !slices.Contains(ids, "a/m") || len(ids) != 22 {
			t.Errorf("models %q, %v", ids, err)
		}
		if m, err := client.Models.Get(t.Context(), "m", anthropic.ModelGetParams{}); err != nil || m.ID != "m" {
			t.Errorf("model %+v, %v", m, err)
		}
		var e *anthropic.Error
		if _, err := client.Models.Get(t.Context(), "nothing", anthropic.ModelGetParams{}); !errors.As(err, &e) || e.StatusCode != 404 || e.Type() != "not_found_error" {
			t.Errorf("no model: %v", err)
		}
	})
}
