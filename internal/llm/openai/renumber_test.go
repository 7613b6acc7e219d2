package openai

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
)

// What streams through of tool calls is mended where clients would put it together wrongly, and stays where it is right.
func TestPassingNumbersCalls(t *testing.T) {
	tool := func(s string) string { return delta(`{"tool_calls":[` + s + `]}`) }
	for _, tt := range []struct {
		name     string
		in, want []string
	}{
		{"what is well numbered stays", []string{tool(`{"index":1,"id":"a","type":"function","function":{"name":"f","arguments":""}}`), tool(`{"index":1,"function":{"arguments":"{}"}}`), tool(`{"index":0, "id":"b","function":{"name":"g","arguments":"{}"}}`), tool(`{"index":1,"id":"","function":{"arguments":""}}`)}, nil},
		{"C034 every call has index 0",
			[]string{tool(`{"index":0,"id":"call_a","type":"function","function":{"name":"read","arguments":"{\"p\":\"a\"}"}}`), tool(`{"index":0,"id":"call_b","type":"function","function":{"name":"read","arguments":"{\"p\":\"b\"}"}}`), tool(`{"id":"call_b","index":0,"function":{"arguments":" "}}`), tool(`{"index":0,"function":{"arguments":" "}}`)},
			[]string{tool(`{"index":0,"id":"call_a","type":"function","function":{"name":"read","arguments":"{\"p\":\"a\"}"}}`), tool(`{"index":1,"id":"call_b","type":"function","function":{"name":"read","arguments":"{\"p\":\"b\"}"}}`), tool(`{"id":"call_b","index":1,"function":{"arguments":" "}}`), tool(`{"index":1,"function":{"arguments":" "}}`)}},
		{"C037 no index",
			[]string{tool(`{"id":"a","type":"function","function":{"name":"f","arguments":""}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}`), tool(`{"id":"a","function":{"arguments":"{\"x\":1}"}}`), tool(`{"index":null,"function":{"arguments":"!"}}`), tool(`{}`)},
			[]string{tool(`{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}},{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}`), tool(`{"index":0,"id":"a","function":{"arguments":"{\"x\":1}"}}`), tool(`{"index":1,"function":{"arguments":"!"}}`), tool(`{"index":1}`)}},
		{"C039 no id, or null",
			[]string{tool(`{"index":0,"id":null,"function":{"name":"f","arguments":"{}"}}`), tool(`{"index":1,"function":{"name":"g","arguments":"{}"}}`), tool(`{"index":1,"function":{"arguments":""}}`), tool(`{"index":2,"id":"","function":{"name":"h"}}`)},
			[]string{tool(`{"index":0,"id":"call_*","function":{"name":"f","arguments":"{}"}}`), tool(`{"id":"call_*","index":1,"function":{"name":"g","arguments":"{}"}}`), tool(`{"index":1,"function":{"arguments":""}}`), tool(`{"index":2,"id":"call_*","function":{"name":"h"}}`)}},
		{"neither id nor index", []string{tool(`{"function":{"name":"f","arguments":"{}"}}`), tool(`5,{"function":{"name":"g","arguments":"{}"}}`)},
			[]string{tool(`{"index":0,"id":"call_*","function":{"name":"f","arguments":"{}"}}`), tool(`5,{"index":1,"id":"call_*","function":{"name":"g","arguments":"{}"}}`)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.want == nil {
				tt.want = tt.in
			}
			end := []string{finish("tool_calls"), "[DONE]"}
			got := play(Dialect{}.Stream(decode(t, llm.Chat, asStream), "m"), []byte(lines(append(tt.in, end...)...)))
			if diff := cmp.Diff(lines(append(tt.want, end...)...), got.Out); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
