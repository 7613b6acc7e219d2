package sim

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

// agentWorld is a server that plays an agent, with the tools and a client of an SDK.
func agentWorld(t *testing.T, server Flavour) (*Server, *http.Client) {
	t.Helper()
	s := New(Options{Script: Script{Server: server, Key: "k-1", Models: []string{"agent", "busy"}, On: map[string]Sequence{
		"agent": {{Agent: true, Reasoning: "let me see", Cached: 2}},
		"busy":  {{Status: 529, RetryAfter: "1"}},
		"torn":  {{StreamError: &StreamError{After: 2}}},
	}}}).Start(t)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return s, &http.Client{Transport: transport}
}

// TestAnthropicsSDKTakesTheServerForReal runs a tool's whole turn, thinking that must
// come back signed included, with Anthropic's own client.
func TestAnthropicsSDKTakesTheServerForReal(t *testing.T) {
	s, client := agentWorld(t, Anthropic)
	c := anthropic.NewClient(anthropicoption.WithBaseURL(s.URL()), anthropicoption.WithAPIKey("k-1"), anthropicoption.WithHTTPClient(client), anthropicoption.WithMaxRetries(0))
	bash := anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{Properties: map[string]any{"command": map[string]any{"type": "string"}}, Required: []string{"command"}}, "Bash")
	ask := anthropic.MessageNewParams{
		Model: "agent", MaxTokens: 4096, Tools: []anthropic.ToolUnionParam{bash},
		System:   []anthropic.TextBlockParam{{Text: "be brief"}},
		Thinking: anthropic.ThinkingConfigParamOfEnabled(2048),
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("run it"))},
	}
	stream := c.Messages.NewStreaming(t.Context(), ask)
	var first anthropic.Message
	for stream.Next() {
		if err := first.Accumulate(stream.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	use := first.Content[len(first.Content)-1].AsToolUse()
	if first.StopReason != "tool_use" || use.Name != "Bash" || string(use.Input) != `{"command":"echo weir-tool-ok"}` || first.Usage.CacheReadInputTokens != 2 {
		t.Fatalf("the first turn is %+v", first)
	}
	ask.Messages = append(ask.Messages, first.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock(use.ID, AgentWord, false)))
	second, err := c.Messages.New(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	if got := second.Content[1].AsText().Text; second.StopReason != "end_turn" || !strings.Contains(got, "The tool said: "+AgentWord) {
		t.Errorf("the second turn is %+v", second)
	}

	count, err := c.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{Model: "agent", Messages: ask.Messages[:1]})
	if err != nil || count.InputTokens != 1 {
		t.Errorf("counted %+v, %v; want 1", count, err)
	}
	list, err := c.Models.List(t.Context(), anthropic.ModelListParams{})
	if err != nil || len(list.Data) != 2 || list.Data[0].ID != "agent" {
		t.Errorf("models %+v, %v", list, err)
	}
	var fault *anthropic.Error
	ask.Model = "busy"
	if _, err = c.Messages.New(t.Context(), ask); !errors.As(err, &fault) || fault.StatusCode != 529 || !strings.HasPrefix(fault.RequestID, "req_sim-") {
		t.Errorf("busy: %v", err)
	}
	ask.Model = "torn"
	torn := c.Messages.NewStreaming(t.Context(), ask)
	for torn.Next() {
	}
	if err := torn.Err(); err == nil || !strings.Contains(err.Error(), "overloaded") {
		t.Errorf("torn: %v", err)
	}
}

// TestOpenAIsSDKTakesTheResponsesForReal runs a tool's whole turn over Responses.
func TestOpenAIsSDKTakesTheResponsesForReal(t *testing.T) {
	s, client := agentWorld(t, OpenAI)
	c := openai.NewClient(option.WithBaseURL(s.URL()+"/v1"), option.WithAPIKey("k-1"), option.WithHTTPClient(client), option.WithMaxRetries(0))
	schema := map[string]any{"type": "object", "properties": map[string]any{"cmd": map[string]any{"type": "string"}}, "required": []string{"cmd"}}
	input := responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage("run it", responses.EasyInputMessageRoleUser)}
	ask := func(model string) responses.ResponseNewParams {
		return responses.ResponseNewParams{Model: model, Tools: []responses.ToolUnionParam{responses.ToolParamOfFunction("exec_command", schema, false)},
			Input: responses.ResponseNewParamsInputUnion{OfInputItemList: input}}
	}
	stream := c.Responses.NewStreaming(t.Context(), ask("agent"))
	var first responses.Response
	for stream.Next() {
		if e := stream.Current(); e.Type == "response.completed" {
			first = e.AsResponseCompleted().Response
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if len(first.Output) != 2 {
		t.Fatalf("the first turn is %s", first.RawJSON())
	}
	call := first.Output[1].AsFunctionCall()
	if call.Name != "exec_command" || call.Arguments != `{"cmd":"echo weir-tool-ok"}` || first.Usage.InputTokensDetails.CachedTokens != 2 {
		t.Fatalf("the first turn is %s", first.RawJSON())
	}
	result := responses.ResponseInputItemParamOfFunctionCallOutput(AgentWord)
	result.OfFunctionCallOutput.CallID = param.NewOpt(call.CallID)
	given := call.ToParam()
	input = append(input, responses.ResponseInputItemUnionParam{OfFunctionCall: &given}, result)
	second, err := c.Responses.New(t.Context(), ask("agent"))
	if err != nil || !strings.Contains(second.OutputText(), "The tool said: "+AgentWord) || second.Status != "completed" {
		t.Errorf("the second turn is %+v, %v", second, err)
	}
	var fault *openai.Error
	if _, err = c.Responses.New(t.Context(), ask("busy")); !errors.As(err, &fault) || fault.StatusCode != 529 {
		t.Errorf("busy: %v", err)
	}
	torn, failed := c.Responses.NewStreaming(t.Context(), ask("torn")), ""
	for torn.Next() {
		if e := torn.Current(); e.Type == "response.failed" {
			failed = e.AsResponseFailed().Response.Error.Message
		}
	}
	if err := torn.Err(); err != nil || !strings.Contains(failed, "overloaded") {
		t.Errorf("torn: %v, %q", err, failed)
	}
}
