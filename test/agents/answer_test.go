package agents_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// shape is what a recorded request asks for.
type shape struct {
	path   string
	tools  bool
	shell  string // the tool that runs commands
	callID string // of the call whose result it brings
}

// shapeOf reads a request of any dialect.
func shapeOf(t *testing.T, r request) shape {
	t.Helper()
	var body struct {
		Tools []struct {
			Name     string
			Function struct{ Name string }
		}
		Messages []struct {
			ToolCallID string `json:"tool_call_id"`
			Content    json.RawMessage
		}
		Input []struct {
			Type   string
			CallID string `json:"call_id"`
		}
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		t.Fatal(err)
	}
	path, _, _ := strings.Cut(r.Path, "?")
	s := shape{path: path, tools: len(body.Tools) > 0}
	for _, tool := range body.Tools {
		if name := tool.Name + tool.Function.Name; slices.Contains([]string{"Bash", "bash", "exec_command"}, name) {
			s.shell = name
		}
	}
	for _, m := range body.Messages {
		var blocks []struct {
			ToolUseID string `json:"tool_use_id"`
		}
		_ = json.Unmarshal(m.Content, &blocks) // a text has none
		for _, b := range blocks {
			s.callID += b.ToolUseID
		}
		s.callID += m.ToolCallID
	}
	for _, item := range body.Input {
		if item.Type == "function_call_output" {
			s.callID += item.CallID
		}
	}
	return s
}

// answer is what a stream said, whatever its dialect.
type answer struct{ text, tool, args, callID string }

// readers read a whole stream as strictly as the agents do, by the path that was asked.
var readers = map[string]func(*testing.T, []byte) answer{
	"/v1/chat/completions": readChat,
	"/v1/messages":         readMessages,
	"/v1/responses":        readResponses,
}

// frame is one event of a stream.
type frame struct{ event, data string }

// frames splits a stream into its events, without comments.
func frames(t *testing.T, body []byte) (all []frame) {
	t.Helper()
	for _, block := range strings.Split(strings.TrimRight(string(body), "\n"), "\n\n") {
		var f frame
		for _, line := range strings.Split(block, "\n") {
			switch name, value, _ := strings.Cut(line, ": "); name {
			case "event":
				f.event = value
			case "data":
				f.data = value
			case "":
			default:
				t.Errorf("a line that is no event: %q", line)
			}
		}
		if f != (frame{}) {
			all = append(all, f)
		}
	}
	if len(all) < 2 {
		t.Fatalf("no stream: %s", body)
	}
	return all
}

func decode(t *testing.T, data string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(data), v); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
}

func readChat(t *testing.T, body []byte) (a answer) {
	t.Helper()
	all := frames(t, body)
	if last := all[len(all)-1].data; last != "[DONE]" {
		t.Errorf("the stream ends with %s", last)
	}
	finish := ""
	for _, f := range all[:len(all)-1] {
		var chunk struct {
			Object  string
			Choices []struct {
				Delta struct {
					Content   string
					ToolCalls []struct {
						Index    int
						ID       string
						Function struct{ Name, Arguments string }
					} `json:"tool_calls"`
				}
				FinishReason string `json:"finish_reason"`
			}
		}
		if decode(t, f.data, &chunk); chunk.Object != "chat.completion.chunk" {
			t.Errorf("not a chunk: %s", f.data)
		}
		for _, c := range chunk.Choices {
			a.text += c.Delta.Content
			finish += c.FinishReason
			for _, call := range c.Delta.ToolCalls {
				a.callID, a.tool, a.args = a.callID+call.ID, a.tool+call.Function.Name, a.args+call.Function.Arguments
			}
		}
	}
	wantEnd(t, a, finish, "tool_calls", "stop")
	return a
}

func readMessages(t *testing.T, body []byte) (a answer) {
	t.Helper()
	var order []string
	open, next, stop := -1, 0, ""
	for _, f := range frames(t, body) {
		var e struct {
			Type         string
			Index        int
			ContentBlock struct{ Type, ID, Name string } `json:"content_block"`
			Delta        struct {
				Type, Text  string
				PartialJSON string `json:"partial_json"`
				StopReason  string `json:"stop_reason"`
			}
		}
		if decode(t, f.data, &e); e.Type != f.event {
			t.Errorf("event %s holds a %s", f.event, e.Type)
		}
		switch e.Type {
		case "ping":
			continue
		case "content_block_start":
			if open != -1 || e.Index != next {
				t.Errorf("block %d begins while %d is open; want block %d and none open", e.Index, open, next)
			}
			open, next = e.Index, next+1
			a.callID, a.tool = a.callID+e.ContentBlock.ID, a.tool+e.ContentBlock.Name
		case "content_block_delta", "content_block_stop":
			if e.Index != open {
				t.Errorf("a %s of block %d while %d is open", e.Type, e.Index, open)
			}
			if e.Type == "content_block_stop" {
				open = -1
			}
			a.text, a.args = a.text+e.Delta.Text, a.args+e.Delta.PartialJSON
		case "message_delta":
			stop = e.Delta.StopReason
		}
		order = append(order, e.Type)
	}
	if order[0] != "message_start" || !slices.Equal(order[len(order)-2:], []string{"message_delta", "message_stop"}) || open != -1 {
		t.Errorf("the order of events is %v", order)
	}
	wantEnd(t, a, stop, "tool_use", "end_turn")
	return a
}

func readResponses(t *testing.T, body []byte) (a answer) {
	t.Helper()
	all := frames(t, body)
	var streamed strings.Builder
	for i, f := range all {
		var e struct {
			Type           string
			SequenceNumber int `json:"sequence_number"`
			Delta          string
			Response       struct {
				Status string
				Output []struct {
					Type, Name, Arguments string
					CallID                string `json:"call_id"`
					Content               []struct{ Text string }
				}
			}
		}
		if decode(t, f.data, &e); e.Type != f.event || e.SequenceNumber != i {
			t.Errorf("event %d is %s with a %s of number %d", i, f.event, e.Type, e.SequenceNumber)
		}
		if first := i == 0; first != (e.Type == "response.created") {
			t.Errorf("event %d is %s", i, e.Type)
		}
		if last := i == len(all)-1; last != (e.Type == "response.completed") || last && e.Response.Status != "completed" {
			t.Errorf("event %d of %d is %s, status %q", i, len(all), e.Type, e.Response.Status)
		}
		if e.Type == "response.output_text.delta" || e.Type == "response.function_call_arguments.delta" {
			streamed.WriteString(e.Delta)
		}
		if e.Type != "response.completed" {
			continue
		}
		for _, item := range e.Response.Output {
			a.callID, a.tool, a.args = a.callID+item.CallID, a.tool+item.Name, a.args+item.Arguments
			for _, part := range item.Content {
				a.text += part.Text
			}
		}
	}
	if got := streamed.String(); got != a.text+a.args {
		t.Errorf("the pieces are %q, the whole is %q", got, a.text+a.args)
	}
	return a
}

// wantEnd checks why an answer ended.
func wantEnd(t *testing.T, a answer, got, calls, stop string) {
	t.Helper()
	want := stop
	if a.callID != "" {
		want = calls
	}
	if got != want {
		t.Errorf("the answer ended with %q, want %q", got, want)
	}
}
