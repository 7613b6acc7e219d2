package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
)

const chat = `{"model":"m","messages":[{"role":"user","content":"hi"}]`

func TestDecodeRefuses(t *testing.T) {
	for _, c := range []struct {
		name, body string
		op         llm.Op // 0: chat
		param, msg string
	}{
		{"an empty body", ``, 0, "", "the body must be one JSON object; it is empty"},
		{"a blank body", " \n ", 0, "", "the body must be one JSON object; it is empty"},
		{"an array", `[]`, 0, "", "the body must be one JSON object"},
		{"a string", `"x"`, 0, "", "the body must be one JSON object"},
		{"a byte order mark", "\ufeff" + chat + `}`, 0, "", "the body must be one JSON object"},
		{"half a body", `{"model":"m","messages":[{"role":"us`, 0, "messages[0].role", "not valid JSON"},
		{"a syntax error in a member", `{"model":"m","temperature":.5}`, 0, "temperature", "not valid JSON: expected a value at byte 27"},
		{"bytes that are no UTF-8", `{"model":"m","messages":[{"role":"user","content":"` + "\xff" + `"}]}`, 0, "messages[0].content", "UTF-8"},
		{"bad UTF-8 in a part", `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"` + "\xc3" + `"}]}]}`, 0, "messages[0].content[0].text", "UTF-8"},
		{"S17 text after the object", chat + `} x`, 0, "", "more text follows the value"},
		{"S17 a second object", chat + `}{}`, 0, "", "more text follows the value"},
		{"S17 model twice", `{"model":"cheap",` + chat[1:] + `}`, 0, "model", `"model" stands twice`},
		{"S17 model twice, once escaped", `{"\u006dodel":"x",` + chat[1:] + `}`, 0, "model", "stands twice"},
		{"S17 model twice in another case", chat + `,"MODEL":"x"}`, 0, "MODEL", "stands twice"},
		{"S17 messages twice by a long s", `{"me` + "\u017f\u017f" + `ages":[],` + chat[1:] + `}`, 0, "me\u017f\u017fages", "write it messages"},
		{"S17 a stream that only some servers see", chat + `,"Stream":true}`, 0, "Stream", "write it stream"},
		{"S17 a limit that only some servers see", chat + `,"MAX_tokens":1}`, 0, "MAX_tokens", "write it max_tokens"},
		{"C139 in another case", chat + `,"Api_Base":"http://127.0.0.1:9/"}`, 0, "Api_Base", "write it api_base"},
		{"S17 any member twice", chat + `,"seed":1,"seed":2}`, 0, "seed", "stands twice"},
		{"S17 an unknown member twice", chat + `,"x":{},"X":{}}`, 0, "X", "stands twice"},
		{"S17 a message's role twice", `{"model":"m","messages":[{"role":"user","content":"a"},{"role":"user","content":"b","Role":"system"}]}`, 0, "messages[1].Role", "stands twice"},
		{"S17 a message's content twice", `{"model":"m","messages":[{"content":"a","role":"user","content":"b"}]}`, 0, "messages[0].content", "stands twice"},
		{"S17 an option twice", chat + `,"stream_options":{"include_usage":true,"include_usage":false}}`, 0, "stream_options", "twice"},
		{"no model", `{"messages":[{"role":"user","content":"hi"}]}`, 0, "model", "model is missing"},
		{"an empty model", `{"model":"","messages":[{}]}`, 0, "model", "model is missing"},
		{"model in another case", `{"Model":"m","messages":[{}]}`, 0, "Model", "write it model"},
		{"model as a number", `{"model":1}`, 0, "model", "must be a string"},
		{"model null", `{"model":null}`, 0, "model", "must be a string"},
		{"model as an object", `{"model":{"a":1}}`, 0, "model", "must be a string"},
		{"no messages", `{"model":"m"}`, 0, "messages", "messages is missing"},
		{"empty messages", `{"model":"m","messages":[]}`, 0, "messages", "at least one message"},
		{"messages as text", `{"model":"m","messages":"hi"}`, 0, "messages", "must be an array"},
		{"messages null", `{"model":"m","messages":null}`, 0, "messages", "must be an array"},
		{"a message that is text", `{"model":"m","messages":[{},"hi"]}`, 0, "messages[1]", "must be an object"},
		{"a role that is a number", `{"model":"m","messages":[{"role":1}]}`, 0, "messages[0].role", "must be a string"},
		{"stream as text", chat + `,"stream":"true"}`, 0, "stream", "must be true or false"},
		{"stream as a number", chat + `,"stream":1}`, 0, "stream", "must be true or false"},
		{"stream_options as a list", chat + `,"stream_options":[]}`, 0, "stream_options", "must be an object"},
		{"max_tokens as text", chat + `,"max_tokens":"5"}`, 0, "max_tokens", "whole number"},
		{"max_tokens below zero", chat + `,"max_tokens":-5}`, 0, "max_tokens", "at least 0"},
		{"max_completion_tokens with a fraction", chat + `,"max_completion_tokens":1.5}`, 0, "max_completion_tokens", "whole number"},
		{"a limit beyond all bounds", chat + `,"max_tokens":99999999999999999999}`, 0, "max_tokens", "whole number"},
		{"n of zero", chat + `,"n":0}`, 0, "n", "at least 1"},
		{"n as text", chat + `,"n":"2"}`, 0, "n", "at least 1"},
		{"best_of with a fraction", `{"model":"m","prompt":"x","best_of":1.5}`, llm.Completions, "best_of", "at least 1"},
		{"C139 api_base", chat + `,"api_base":"http://127.0.0.1:9/"}`, 0, "api_base", "api_base is refused"},
		{"C139 base_url", chat + `,"base_url":"http://169.254.169.254/"}`, 0, "base_url", "base_url is refused"},
		{"C139 api_key", chat + `,"api_key":"x"}`, 0, "api_key", "api_key is refused"},
		{"C139 extra_headers", chat + `,"extra_headers":{"x-a":"b"}}`, 0, "extra_headers", "extra_headers is refused"},
		{"C139 with an escaped name", chat + `,"api\u005fbase":null}`, 0, "api_base", "api_base is refused"},
		{"no prompt", `{"model":"m"}`, llm.Completions, "prompt", "prompt is missing"},
		{"a null prompt", `{"model":"m","prompt":null}`, llm.Completions, "prompt", "prompt is missing"},
		{"an input in place of a prompt", `{"model":"m","input":"x"}`, llm.Completions, "prompt", "prompt is missing"},
		{"no input", `{"model":"m"}`, llm.Embeddings, "input", "input is missing"},
		{"a prompt in place of an input", `{"model":"m","prompt":"x"}`, llm.Embeddings, "input", "input is missing"},
		{"C154 an unknown encoding", `{"model":"m","input":"x","encoding_format":"int8"}`, llm.Embeddings, "encoding_format", `must be "float" or "base64"`},
		{"an encoding that is no text", `{"model":"m","input":"x","encoding_format":1}`, llm.Embeddings, "encoding_format", "must be"},
		{"no query", `{"model":"m","documents":["a"]}`, llm.Rerank, "query", "query is missing"},
		{"no documents", `{"model":"m","query":"a"}`, llm.Rerank, "documents", "documents is missing"},
		{"too deep", chat + `,"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, 0, "x", "nested too deeply"},
		{"messages too deep", `{"model":"m","messages":[{"content":` + strings.Repeat("[", 100), 0, "messages", "nested too deeply"},
		{"a long name is cut", `{"` + strings.Repeat("é", 100) + `":tru}`, 0, strings.Repeat("é", 32) + "…", "not valid JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			op := c.op
			if op == 0 {
				op = llm.Chat
			}
			r, err := Dialect{}.Decode(op, []byte(c.body), 100)
			if r != nil || err == nil {
				t.Fatalf("got %v, want an error", r)
			}
			e := refusal(t, err)
			if e.Kind != llm.Invalid || e.HTTPStatus() != 400 || e.Param != c.param || !strings.Contains(e.Msg, c.msg) {
				t.Errorf("got %d, param %q: %s\nwant 400, param %q: … %s …", e.HTTPStatus(), e.Param, e.Msg, c.param, c.msg)
			}
			if strings.Contains(c.msg, "not valid JSON") && e.ErrorCode() != "invalid_json" {
				t.Errorf("the code is %s", e.ErrorCode())
			}
			if body := (Dialect{}).AppendError(nil, e); !json.Valid(body) {
				t.Errorf("the error is not valid JSON: %s", body)
			}
		})
	}
}

func TestDecodeReads(t *testing.T) {
	type view struct {
		Model                    string
		Stream, Usage, Whole     bool
		Choices                  int64
		Messages, Tools, Images  int
		MaxTokens                int64
		Developer                bool
		Nulls, NullMembers, Rest string
	}
	for _, c := range []struct {
		name string
		op   llm.Op
		body string
		want view
	}{
		{"the least of a chat", llm.Chat, chat + `}`, view{Model: "m", Choices: 1, Messages: 1}},
		{"nulls, which mean nothing", llm.Chat, chat + `,"stream":null,"stream_options":null,"n":null,"max_tokens":null,"max_completion_tokens":null,"audio":null,"tools":null,"echo":null}`,
			view{Model: "m", Choices: 1, Messages: 1}},
		{"a stream with usage", llm.Chat, chat + `,"stream":true,"stream_options":{"include_obfuscation":false,"include_usage":true}}`,
			view{Model: "m", Choices: 1, Messages: 1, Stream: true, Usage: true}},
		{"usage refused", llm.Chat, chat + `,"stream":false,"stream_options":{"include_usage":false}}`, view{Model: "m", Choices: 1, Messages: 1}},
		{"escaped names and values", llm.Chat, `{"\u006dodel":"\u006d/\"x\"","\u006dessages":[{"\u0072ole":"developer","\u0063ontent":null}]}`,
			view{Model: `m/"x"`, Choices: 1, Messages: 1, Developer: true, Nulls: "null", NullMembers: `,"\u0063ontent":null`}},
		{"C158 several choices", llm.Chat, chat + `,"n":2,"logprobs":true,"top_logprobs":2}`, view{Model: "m", Choices: 2, Messages: 1, Whole: true}},
		{"one choice, said so", llm.Chat, chat + `,"n":1}`, view{Model: "m", Choices: 1, Messages: 1}},
		{"audio", llm.Chat, chat + `,"modalities":["text","audio"],"audio":{"voice":"a"}}`, view{Model: "m", Choices: 1, Messages: 1, Whole: true}},
		{"C157 both limits: the newer name wins", llm.Chat, chat + `,"max_completion_tokens":5,"max_tokens":7}`, view{Model: "m", Choices: 1, Messages: 1, MaxTokens: 5}},
		{"C157 both the other way round", llm.Chat, chat + `,"max_tokens":7,"max_completion_tokens":5}`, view{Model: "m", Choices: 1, Messages: 1, MaxTokens: 5}},
		{"C157 the old name alone", llm.Chat, chat + `,"max_tokens":7}`, view{Model: "m", Choices: 1, Messages: 1, MaxTokens: 7}},
		{"huge numbers in members that are not read", llm.Chat, chat + `,"seed":123456789012345678901234567890,"temperature":1e400,"logit_bias":{"1":-1E-400}}`,
			view{Model: "m", Choices: 1, Messages: 1}},
		{"tools, parts and images", llm.Chat, `{"model":"m","tools":[{"type":"function","function":{"name":"f"}},{}],"messages":[
			{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"u"}},"odd",{"image_url":"v"}]},{"role":"tool","content":"1"},{}]}`,
			view{Model: "m", Choices: 1, Messages: 3, Tools: 2, Images: 2}},
		{"C160 a developer turn", llm.Chat, `{"model":"m","messages":[{"role":"developer","content":"Be brief"},{"role":"user","content":"hi"}]}`,
			view{Model: "m", Choices: 1, Messages: 2, Developer: true}},
		{"null contents in every place", llm.Chat, `{"model":"m","messages":[{"content":null},{"content": null , "a":1},{"a":1 , "content":null},{"a":1,"content":null,"b":2}]}`,
			view{Model: "m", Choices: 1, Messages: 4, Nulls: "null|null|null|null", NullMembers: `"content":null|"content": null ,|, "content":null|"content":null,`}},
		{"C158 a legacy completion", llm.Completions, `{"model":"m","prompt":["a",[1,2]],"echo":true,"logprobs":5,"max_tokens":0,"suffix":"z"}`,
			view{Model: "m", Choices: 2, Whole: true}},
		{"the best of several", llm.Completions, `{"model":"m","prompt":"a","best_of":3,"n":2}`, view{Model: "m", Choices: 3, Whole: true}},
		{"C154 embeddings in base64", llm.Embeddings, `{"model":"m","input":["a"],"encoding_format":"base64"}`, view{Model: "m", Choices: 1}},
		{"C154 no encoding", llm.Embeddings, `{"model":"m","input":[[1,2]],"encoding_format":null}`, view{Model: "m", Choices: 1}},
		{"encoding_format means nothing on chat", llm.Chat, chat + `,"encoding_format":"int8"}`, view{Model: "m", Choices: 1, Messages: 1}},
		{"rerank", llm.Rerank, `{"model":"m","query":"q","documents":["a","b"],"top_n":1}`, view{Model: "m", Choices: 1}},
		{"members of the same name at other depths", llm.Chat, chat + `,"metadata":{"model":"x","api_base":"y","a":{"a":1}}}`, view{Model: "m", Choices: 1, Messages: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := decode(t, c.op, c.body)
			pieces := func(list []llm.Span) string {
				var out []string
				for _, at := range list {
					out = append(out, string(at.Of(r.Body)))
				}
				return strings.Join(out, "|")
			}
			got := view{
				Model: r.Model, Stream: r.Stream, Usage: r.IncludeUsage, Whole: r.Whole, Choices: r.Choices, Messages: r.Shape.Messages,
				Tools: r.Shape.Tools, Images: r.Shape.Images, MaxTokens: r.Shape.MaxTokens, Developer: r.Developer,
				Nulls: pieces(r.Nulls), NullMembers: pieces(r.NullMembers),
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			if r.Shape.Bytes != len(c.body) || r.Shape.Stream != r.Stream || r.Dialect != "openai" || r.Op != c.op || string(r.Body) != c.body {
				t.Errorf("the frame of the request is wrong: %+v", r)
			}
			checkMembers(t, r)
		})
	}
}

// checkMembers compares the members with what encoding/json sees.
func checkMembers(t *testing.T, r *llm.Request) {
	t.Helper()
	var want map[string]json.RawMessage
	if err := json.Unmarshal(r.Body, &want); err != nil {
		t.Fatal(err)
	}
	got := map[string]json.RawMessage{}
	for _, m := range r.Members {
		got[string(m.Name)] = m.Value.Of(r.Body)
		var one map[string]json.RawMessage
		if err := json.Unmarshal(append(append([]byte{'{'}, m.At.Of(r.Body)...), '}'), &one); err != nil || string(one[string(m.Name)]) != string(got[string(m.Name)]) {
			t.Errorf("the place of %s is wrong: %s", m.Name, m.At.Of(r.Body))
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestEstimateCountsWhatBecomesPrompt(t *testing.T) {
	text := strings.Repeat("word", 1000)
	image := strings.Repeat("A", 100_000)
	for _, c := range []struct {
		name, body  string
		op          llm.Op
		least, most int
	}{
		{"text", `{"model":"m","messages":[{"role":"user","content":"` + text + `"}]}`, llm.Chat, 1000, 1010},
		{"text in parts", `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"` + text + `"}]}]}`, llm.Chat, 1000, 1010},
		{"an image counts by the piece, not by its bytes", `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + image + `"}}]}]}`, llm.Chat, 800, 820},
		{"tools", `{"model":"m","messages":[{}],"tools":[{"d":"` + text + `"}]}`, llm.Chat, 1000, 1010},
		{"tool calls in history", `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"a":"` + text + `"}]}]}`, llm.Chat, 1000, 1020},
		{"a prompt", `{"model":"m","prompt":"` + text + `"}`, llm.Completions, 1000, 1010},
		{"an input", `{"model":"m","input":["` + text + `","` + text + `"]}`, llm.Embeddings, 2000, 2010},
		{"other members do not count", chat + `,"metadata":"` + text + `"}`, llm.Chat, 1, 10},
	} {
		if got := decode(t, c.op, c.body).Shape.TokensEst; got < c.least || got > c.most {
			t.Errorf("%s: got %d, want %d to %d", c.name, got, c.least, c.most)
		}
	}
}

func TestHostileBodiesAreQuick(t *testing.T) { // S16
	const limit = 50 * time.Millisecond
	for name, body := range map[string]string{
		"nested arrays":              chat + `,"x":` + strings.Repeat("[", 100_000),
		"nested objects":             chat + `,"x":` + strings.Repeat(`{"a":`, 100_000),
		"nesting within a message":   `{"model":"m","messages":[{"content":` + strings.Repeat(`[`, 100_000),
		"nesting within a part":      `{"model":"m","messages":[{"content":[{"text":` + strings.Repeat(`[{"a":`, 50_000),
		"closed again":               chat + `,"x":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`,
		"nested stream options":      chat + `,"stream_options":{"a":` + strings.Repeat("[", 100_000),
		"many members with one name": chat + strings.Repeat(`,"x":1`, 100_000) + `}`,
	} {
		best := limit
		for range 10 {
			begun := time.Now()
			if _, err := (Dialect{}).Decode(llm.Chat, []byte(body), 100); err == nil {
				t.Fatalf("%s: taken", name)
			}
			best = min(best, time.Since(begun))
		}
		if best >= limit {
			t.Errorf("%s: took over %v ten times", name, limit)
		}
	}
}

func TestManyDifferentMembersAreTaken(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(chat)
	for i := range 5000 {
		fmt.Fprintf(&b, `,"x%d":%d`, i, i)
	}
	b.WriteByte('}')
	r := decode(t, llm.Chat, b.String())
	if len(r.Members) != 5002 {
		t.Errorf("got %d members", len(r.Members))
	}
	if _, err := (Dialect{}).Decode(llm.Chat, append(b.Bytes()[:b.Len()-1], `,"X4999":1}`...), 100); !strings.Contains(fmt.Sprint(err), "stands twice") {
		t.Errorf("a duplicate after 5,000 members: got %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(chat + `,"stream":true,"tools":[{}],"max_tokens":1}`))
	f.Add([]byte(`{"model":"m","messages":[{"role":"developer","content":null},{"content":[{"text":"a"},{"image_url":1}]}]}`))
	f.Add([]byte(`{"model":"m","stream_options":{"include_usage":true},"prompt":"a","input":[1],"query":1,"documents":[]}`))
	targets := targets()
	f.Fuzz(func(t *testing.T, body []byte) {
		for op := llm.Chat; op <= llm.Rerank; op++ {
			r, err := Dialect{}.Decode(op, body, 32)
			if err != nil {
				if e := refusal(t, err); e.Kind != llm.Invalid || !json.Valid((Dialect{}).AppendError(nil, e)) {
					t.Errorf("%q: %v", body, err)
				}
				continue
			}
			if !json.Valid(body) {
				t.Fatalf("%q was taken", body)
			}
			checkMembers(t, r)
			for _, target := range targets {
				e, err := Dialect{}.Edits(r, &target)
				if err != nil {
					t.Fatal(err)
				}
				out := e.Apply(nil, r)
				if _, err := (Dialect{}).Decode(op, out, 34); err != nil {
					t.Errorf("%s became %s for %+v: %v", body, out, target, err)
				}
			}
		}
	})
}
