package app

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"weir/internal/key"
)

func asking(model string, items ...responses.ResponseInputItemUnionParam) responses.ResponseNewParams {
	if items == nil {
		items = append(items, responses.ResponseInputItemParamOfMessage("Hello", responses.EasyInputMessageRoleUser))
	}
	return responses.ResponseNewParams{Model: model, Input: responses.ResponseNewParamsInputUnion{OfInputItemList: items}}
}

// answered asks and returns the response, the one of the end where it streams; text is what the deltas said.
func answered(ctx context.Context, c *openai.Client, p responses.ResponseNewParams, stream bool) (r *responses.Response, text string, err error) {
	if !stream {
		r, err = c.Responses.New(ctx, p)
		if err == nil {
			text = r.OutputText()
		}
		return r, text, err
	}
	s := c.Responses.NewStreaming(ctx, p)
	next := int64(0)
	for s.Next() {
		e := s.Current()
		if e.SequenceNumber != next {
			return nil, text, fmt.Errorf("event %s has the number %d, want %d", e.Type, e.SequenceNumber, next)
		}
		next++
		switch e.Type {
		case "response.output_text.delta":
			text += e.Delta
		case "response.completed", "response.incomplete", "response.failed":
			r = &e.Response
		}
	}
	return r, text, s.Err()
}

func TestResponsesSDKTalks(t *testing.T) {
	eachBackend(t, func(t *testing.T, back *api) {
		g := beginSDKs(t, back)
		client := g.sdk(g.key)
		for _, stream := range []bool{true, false} {
			r, text, err := answered(t.Context(), client, asking("m"), stream)
			if err != nil {
				t.Fatal(err)
			}
			if text != river || r.OutputText() != river || r.Status != "completed" || r.Usage.OutputTokens == 0 || r.ID == "" {
				t.Errorf("stream %v: %q, %s", stream, text, r.RawJSON())
			}
			if r, text, err = answered(t.Context(), client, asking("think"), stream); err != nil {
				t.Fatal(err)
			}
			if text != river || len(r.Output) != 2 || r.Output[0].Type != "reasoning" || !strings.Contains(r.Output[0].RawJSON(), "let me see") {
				t.Errorf("reasoning, stream %v: %q, %s", stream, text, r.RawJSON())
			}
			image := responses.ResponseInputContentUnionParam{OfInputImage: &responses.ResponseInputImageParam{
				Detail: "auto", ImageURL: openai.String("data:image/png;base64,iVBORw0KGgo=")}}
			look := responses.ResponseInputItemParamOfInputMessage(responses.ResponseInputMessageContentListParam{responses.ResponseInputContentParamOfInputText("look"), image}, "user")
			if _, text, err = answered(t.Context(), client, asking("m", look), stream); err != nil || text != river {
				t.Errorf("an image, stream %v: %q, %v", stream, text, err)
			}
			if up := g.sim().Calls("m"); !strings.Contains(string(up[len(up)-1].Body), "iVBORw0KGgo=") {
				t.Errorf("the image did not go up: %s", up[len(up)-1].Body)
			}
		}
	})
}

func TestResponsesSDKUsesTools(t *testing.T) {
	schema := map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}}
	eachBackend(t, func(t *testing.T, back *api) {
		g := beginSDKs(t, back)
		client := g.sdk(g.key)
		for model, calls := range map[string]int{"tool": 1, "two": 2, "agent": 1} {
			for _, stream := range []bool{true, false} {
				input := responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage("Hello", responses.EasyInputMessageRoleUser)}
				ask := func() responses.ResponseNewParams {
					p := asking(model, input...)
					p.Tools = []responses.ToolUnionParam{responses.ToolParamOfFunction("get_weather", schema, false)}
					return p
				}
				first, _, err := answered(t.Context(), client, ask(), stream)
				if err != nil {
					t.Fatal(err)
				}
				n, thought := 0, false
				for _, o := range first.Output {
					switch o.Type {
					case "reasoning":
						given := o.AsReasoning().ToParam()
						input, thought = append(input, responses.ResponseInputItemUnionParam{OfReasoning: &given}), true
					case "function_call":
						call := o.AsFunctionCall()
						if n++; call.Name != "get_weather" || call.CallID == "" || !strings.Contains(call.Arguments, `"city":`) {
							t.Errorf("%s, stream %v: %s", model, stream, call.RawJSON())
						}
						given := call.ToParam()
						input = append(input, responses.ResponseInputItemUnionParam{OfFunctionCall: &given})
					}
				}
				for _, o := range first.Output {
					if o.Type == "function_call" {
						result := responses.ResponseInputItemParamOfFunctionCallOutput("18 degrees, dry")
						result.OfFunctionCallOutput.CallID = param.NewOpt(o.AsFunctionCall().CallID)
						input = append(input, result)
					}
				}
				if n != calls || thought != (model == "agent") {
					t.Fatalf("%s, stream %v: %s", model, stream, first.RawJSON())
				}
				second, text, err := answered(t.Context(), client, ask(), stream)
				if err != nil {
					t.Fatalf("%s, stream %v, the second turn: %v", model, stream, err)
				}
				if !strings.Contains(text, "18 degrees, dry") || second.Status != "completed" {
					t.Errorf("%s, stream %v, the second turn: %q, %s", model, stream, text, second.RawJSON())
				}
			}
		}
	})
}

func TestResponsesSDKRaisesItsOwnErrors(t *testing.T) {
	eachBackend(t, func(t *testing.T, back *api) {
		g := beginSDKs(t, back)
		client, limited := g.sdk(g.key), g.newKey(key.Spec{Name: "limited", RPM: 1})
		if _, err := g.sdk(limited).Responses.New(t.Context(), asking("m")); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name, model string
			client      *openai.Client
			status      int
			code, says  string
		}{
			{"a wrong key", "m", g.sdk("weir_wrong"), 401, "invalid_api_key", ""},
			{"a limit of the key", "m", g.sdk(limited), 429, "rate_limit_exceeded", ""},
			{"an unknown model", "n", client, 404, "model_not_found", "GET /v1/models"},
			{"what the server refuses", "picky", client, 400, "", "this prompt is not for me"},
			{"a busy backend", "busy", client, 429, "upstream_busy", ""},
			{"a failing one", "broken", client, 502, "upstream_refused", ""},
		} {
			for _, stream := range []bool{true, false} {
				_, _, err := answered(t.Context(), c.client, asking(c.model), stream)
				wantSDKError(t, err, c.status, c.code, c.says)
			}
		}
		for model, code := range map[string]string{"cut": "server_error", "full": "rate_limit_exceeded"} {
			r, text, err := answered(t.Context(), client, asking(model), true)
			if r == nil || text != "one two " || r.Status != "failed" || string(r.Error.Code) != code || r.Error.Message == "" {
				t.Errorf("%s: %q, %v, %+v", model, text, err, r)
			}
		}
	})
}

func TestResponsesSDKAborts(t *testing.T) {
	eachBackend(t, func(t *testing.T, back *api) {
		g := beginSDKs(t, back)
		for _, stream := range []bool{true, false} {
			g.aborts(func(ctx context.Context) { _, _, _ = answered(ctx, g.sdk(g.key), asking("slow"), stream) })
		}
	})
}
