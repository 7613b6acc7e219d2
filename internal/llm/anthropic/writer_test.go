package anthropic

import (
	"strings"
	"testing"

	"weir/internal/llm"
)

// TestCallsFlow holds that a call is sent on as it comes once the one before it is whole, and not only at the end (C033).
func TestCallsFlow(t *testing.T) {
	w := Dialect{}.Writer(&llm.Request{Stream: true}, "m")
	for _, tt := range []struct{ delta, want string }{
		{`call 0 a f`, `"id":"a"`},
		{`input 0 {\"x\":`, `{\"x\":`},
		{`call 1 b g`, ``},
		{`input 1 {`, ``},
		{`input 0 1}`, `"id":"b"`},
		{`input 1 }`, `"partial_json":"}"`},
		{`text done`, `"text":"done"`},
	} {
		for _, d := range deltas(t, tt.delta) {
			w.Put(&d)
		}
		got := string(w.Take())
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("after %s got %q, want %q in it", tt.delta, got, tt.want)
		}
		if again := w.Take(); len(again) > 0 {
			t.Errorf("after %s the same came twice: %q", tt.delta, again)
		}
	}
	if got := string(w.End()); strings.Count(got, "event: ") != 3 {
		t.Errorf("the end is %s", got)
	}
}
