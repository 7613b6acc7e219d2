package responses

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"weir/internal/llm"
)

var (
	madeID  = regexp.MustCompile(`(resp|msg|rs|fc|ctc|call)_[A-Z2-7]{26}`)
	madeNow = regexp.MustCompile(`"created_at":\d{10}`)
)

// plain gives made ids the numbers of their first coming, and times none.
func plain(s string) string {
	seen := map[string]string{}
	s = madeID.ReplaceAllStringFunc(s, func(id string) string {
		if seen[id] == "" {
			seen[id] = fmt.Sprintf("%s_made%d", id[:strings.IndexByte(id, '_')], len(seen)+1)
		}
		return seen[id]
	})
	return madeNow.ReplaceAllString(s, `"created_at":1`)
}

// feed puts a stream through s in pieces of n bytes, 0 for all at once, and returns what came out.
func feed(s llm.Stream, upstream string, n int) (out string, err error) {
	if n == 0 {
		n = len(upstream)
	}
	for len(upstream) > 0 {
		k := copy(s.Space(), upstream[:min(n, len(upstream))])
		upstream = upstream[k:]
		p, err := s.Feed(k)
		out += string(p)
		if err != nil {
			return out, err
		}
	}
	p, err := s.End()
	return out + string(p), err
}

// told writes an outcome: what went out, what was seen, and the error.
func told(out string, err error, seen *llm.Seen, r *llm.Request) string {
	if err != nil && r.Broken != nil && seen.Content {
		out += string(r.Broken.AppendBroken(nil, llm.AsError(err)))
	}
	s := fmt.Sprintf("%s\nseen content=%v finished=%v events=%d served=%s usage=%+v\n", strings.TrimSuffix(out, "\n"), seen.Content, seen.Finished, seen.Events, seen.Served, seen.Usage)
	switch e := err.(type) {
	case nil:
	case *llm.Fault:
		s += "fault " + string(e.Data) + "\n"
	case *llm.Error:
		s += "error " + e.Kind.String() + " " + e.Msg + "\n"
	default:
		s += err.Error()
	}
	return plain(s)
}

const streaming, waiting = `{"model":"m","input":"hi","stream":true}`, `{"model":"m","input":"hi"}`

// TestStream holds C007, C010, C067 and C073 for servers that speak the dialect, in any split of the bytes.
func TestStream(t *testing.T) {
	golden(t, "stream", "want", func(t *testing.T, file func(string) string) string {
		upstream := strings.TrimSuffix(file("upstream"), "<cut>\n")
		run := func(n int) string {
			r := decode(t, streaming)
			s := Dialect{}.Stream(r, "shown")
			out, err := feed(s, upstream, n)
			return told(out, err, s.Seen(), r)
		}
		whole := run(0)
		for _, n := range []int{1, 7, 100} {
			if got := run(n); got != whole {
				t.Errorf("in pieces of %d: got\n%s\nwant\n%s", n, got, whole)
			}
		}
		return whole
	})
}

// TestReduce holds the same for clients who do not stream.
func TestReduce(t *testing.T) {
	golden(t, "reduce", "want", func(t *testing.T, file func(string) string) string {
		r := decode(t, waiting)
		s := Dialect{}.Stream(r, "shown")
		out, err := feed(s, strings.TrimSuffix(file("upstream"), "<cut>\n"), 0)
		if err == nil && !llm.IsObject([]byte(out)) {
			t.Errorf("no JSON object: %s", out)
		}
		return told(out, err, s.Seen(), r)
	})
}

func TestStreamKeepsBytes(t *testing.T) {
	upstream := "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\",\"object\":\"response\",\"created_at\":5,\"status\":\"in_progress\",\"model\":\"up\",\"output\":[]}}\n\n" +
		"event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"sequence_number\":1,\"output_index\":0,\"item\":{\"id\":\"ws_1\",\"type\":\"web_search_call\"}}\n\n" +
		"event: response.web_search_call.searching\ndata: {\"type\":\"response.web_search_call.searching\",\"sequence_number\":2,\"output_index\":0,\"item_id\":\"ws_1\"}\n\n" +
		": a comment\n\n" +
		"event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":3,\"response\":{\"id\":\"resp_1\",\"object\":\"response\",\"created_at\":5,\"status\":\"completed\",\"model\":\"up\",\"output\":[{\"id\":\"ws_1\",\"type\":\"web_search_call\"}],\"usage\":{\"input_tokens\":1}}}\n\n"
	s := Dialect{}.Stream(decode(t, streaming), "shown")
	if out, err := feed(s, upstream, 0); err != nil || out != upstream {
		t.Errorf("got\n%s, %v\nwant\n%s", out, err, upstream)
	}
}

func TestWhole(t *testing.T) {
	for name, tc := range map[string]struct{ body, want string }{
		"its own bytes": {`{"id":"resp_1","object":"response","created_at":5,"status":"completed","model":"up","output":[ ],"usage":{"input_tokens":4,"output_tokens":2,"input_tokens_details":{"cached_tokens":3},"output_tokens_details":{"reasoning_tokens":1}}}`,
			`{"id":"resp_1","object":"response","created_at":5,"status":"completed","model":"up","output":[ ],"usage":{"input_tokens":4,"output_tokens":2,"input_tokens_details":{"cached_tokens":3},"output_tokens_details":{"reasoning_tokens":1}}}` +
				"\nseen content=true finished=true events=0 served=up usage={In:4 Out:2 Cached:3 Reasoning:1 Written:-1}\n"},
		"what is missing is added": {`{"output":[{"type":"message"}],"model":"/models/a.gguf"}`,
			`{"id":"resp_made1","object":"response","created_at":1,"status":"completed","output":[{"type":"message"}],"model":"shown"}` +
				"\nseen content=true finished=true events=5 served=/models/a.gguf usage={In:-1 Out:-1 Cached:-1 Reasoning:-1 Written:-1}\n"},
		"an error":          {`{"error":{"message":"no"}}`, "fault {\"error\":{\"message\":\"no\"}}\n"},
		"a failed response": {`{"status":"failed","output":[],"error":{"code":"rate_limit_exceeded","message":"slow"}}`, "fault {\"error\":{\"message\":\"slow\",\"code\":\"rate_limit_exceeded\",\"type\":\"server_error\"}}\n"},
		"C073: a cancelled response is no success": {`{"status":"cancelled","output":[]}`, "error refused the model's server cancelled the answer\n"},
		"one that is not done":                     {`{"status":"in_progress","output":[]}`, "error refused the model's server answered before its answer was done\n"},
		"no output":                                {`{"id":"x"}`, "error refused the model's server answered without any output\n"},
		"nothing":                                  {``, "error refused the model's server answered with an empty body\n"},
		"no JSON":                                  {`<html>`, "error refused the model's server answered with something that is not a JSON object\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := decode(t, waiting)
			out, seen, err := Dialect{}.Whole(r, "shown", []byte(tc.body), false)
			got := told(string(out), err, &seen, r)
			if err != nil {
				got = got[strings.LastIndex(got[:len(got)-1], "\n")+1:]
			}
			if got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

func TestWholeCount(t *testing.T) {
	r, err := Dialect{}.Decode(llm.Count, []byte(waiting), 50)
	if err != nil {
		t.Fatal(err)
	}
	body := `{"object":"response.input_tokens","input_tokens":12}`
	if out, seen, err := (Dialect{}).Whole(r, "m", []byte(body), false); err != nil || string(out) != body || seen.Usage.In != 12 {
		t.Errorf("got %s %+v %v", out, seen, err)
	}
	if _, _, err := (Dialect{}).Whole(r, "m", []byte(`{}`), false); llm.KindOf(err) != llm.Refused {
		t.Errorf("got %v", err)
	}
}
