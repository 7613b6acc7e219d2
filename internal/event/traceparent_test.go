package event

import (
	"strings"
	"testing"
)

func TestParseTraceparent(t *testing.T) {
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	good := "00-" + trace + "-" + span + "-01"
	for _, tt := range []struct {
		name, in    string
		sampled, ok bool
	}{
		{"sampled", good, true, true},
		{"not sampled", good[:53] + "00", false, true},
		{"random id flag too", good[:53] + "03", true, true},
		{"only other flags", good[:53] + "02", false, true},
		{"a later version", "cc" + good[2:], true, true},
		{"a later version with more", "cc" + good[2:] + "-what-comes", true, true},
		{"a later version with junk", "cc" + good[2:] + "x", false, false},
		{"version 00 with more", good + "-x", false, false},
		{"version ff", "ff" + good[2:], false, false},
		{"zero trace", "00-" + strings.Repeat("0", 32) + "-" + span + "-01", false, false},
		{"zero span", "00-" + trace + "-" + strings.Repeat("0", 16) + "-01", false, false},
		{"upper case", strings.ToUpper(good), false, false},
		{"no hex", "00-" + trace[:31] + "g-" + span + "-01", false, false},
		{"short", good[:54], false, false},
		{"empty", "", false, false},
		{"wrong separators", strings.ReplaceAll(good, "-", "_"), false, false},
		{"junk", strings.Repeat("\xff", 55), false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id, parent, sampled, ok := ParseTraceparent(tt.in)
			if ok != tt.ok || sampled != tt.sampled {
				t.Fatalf("ok %v, sampled %v, want %v, %v", ok, sampled, tt.ok, tt.sampled)
			}
			if !ok {
				if id != (TraceID{}) || parent != (SpanID{}) {
					t.Errorf("ids %v %v of what is not valid", id, parent)
				}
				return
			}
			if got := string(AppendTraceparent(nil, id, parent, sampled)); got[:53] != good[:53] {
				t.Errorf("written again: %s", got)
			}
			if id.String() != trace {
				t.Errorf("trace %s, want %s", id, trace)
			}
			if again, ok := ParseTraceID(id.String()); !ok || again != id {
				t.Errorf("ParseTraceID(%s) = %v, %v", id, again, ok)
			}
		})
	}
}

func FuzzParseTraceparent(f *testing.F) {
	f.Add("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		trace, parent, sampled, ok := ParseTraceparent(s)
		if !ok {
			return
		}
		again, p, sm, ok := ParseTraceparent(string(AppendTraceparent(nil, trace, parent, sampled)))
		if !ok || again != trace || p != parent || sm != sampled {
			t.Errorf("%q does not survive", s)
		}
	})
}

func TestNewIDsAreNotZero(t *testing.T) {
	seen := map[TraceID]bool{}
	for range 1000 {
		id := NewTraceID()
		if id == (TraceID{}) || seen[id] || NewSpanID() == (SpanID{}) {
			t.Fatalf("bad id %v", id)
		}
		seen[id] = true
	}
}
