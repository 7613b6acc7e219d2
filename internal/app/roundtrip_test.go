package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/backend"
	"weir/internal/llm"
	"weir/internal/llm/anthropic"
	"weir/internal/llm/openai"
	"weir/internal/llm/responses"
)

// gist is a conversation without what its dialect only frames: who gist what, called what and got what, in order.
type gist []string

func (s *gist) add(kind, text string) {
	if text == "" {
		return
	}
	if n := len(*s) - 1; n >= 0 && len((*s)[n]) > len(kind) && (*s)[n][:len(kind)+1] == kind+"\x00" && (kind == "user" || kind == "assistant" || kind == "system") {
		(*s)[n] += "\n\n" + text // turns of one speaker that stand together are one
		return
	}
	*s = append(*s, kind+"\x00"+text)
}

// meaning tells what a conversation says. Text counts as decoded, a call's arguments by their value.
func meaning(c *llm.Conversation) gist {
	var s gist
	for i := range c.Turns {
		t := &c.Turns[i]
		role := map[llm.Role]string{llm.System: "system", llm.Developer: "system", llm.User: "user", llm.Assistant: "assistant"}[t.Role]
		for j := range t.Parts {
			switch p := &t.Parts[j]; p.Kind {
			case llm.PartText, llm.PartRefusal:
				s.add(role, string(llm.Unescaped(p.Text)))
			case llm.PartImage:
				s.add("image", fmt.Sprintf("%s %s %s", p.URL, p.Media, p.Data))
			case llm.PartCall:
				s.add("call", fmt.Sprintf("%s %s", llm.Unescaped(p.Name), canonical(p.Input.AppendObject(nil))))
			case llm.PartResult:
				text := ""
				for _, q := range p.Parts {
					text += string(llm.Unescaped(q.Text))
				}
				s.add("result", "is "+text)
			}
		}
	}
	for i := range c.Tools {
		s.add("tool", fmt.Sprintf("%s %s", llm.Unescaped(c.Tools[i].Name), llm.Unescaped(c.Tools[i].Description)))
	}
	return s
}

func canonical(raw []byte) string {
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return string(raw)
	}
	out, _ := json.Marshal(v)
	return string(out)
}

// carried takes a body of from's API through to's and back, and returns what it says at each stop. It stops early where a
// request is refused.
func carried(t *testing.T, from, to backend.Dialect, body []byte) []gist {
	t.Helper()
	decode := func(d backend.Dialect, body []byte) (*llm.Request, error) {
		return d.(interface {
			Decode(llm.Op, []byte, int) (*llm.Request, error)
		}).Decode(llm.Chat, body, 64)
	}
	target := &llm.Target{Model: "m", Quoted: []byte(`"m"`), Stream: true}
	var stops []gist
	for i, way := range [][2]backend.Dialect{{from, to}, {to, from}, {from, from}} {
		r, err := decode(way[0], body)
		if err != nil {
			if i > 0 {
				t.Fatalf("what %s composed is refused by %s: %v\n%s", way[0].Name(), way[0].Name(), err, body)
			}
			return nil
		}
		c, err := way[0].Conversation(r)
		if err != nil {
			if i > 0 {
				t.Fatalf("what was composed for %s is no conversation: %v\n%s", way[0].Name(), err, body)
			}
			return nil
		}
		c.Mend()
		stops = append(stops, meaning(c))
		if body, err = way[1].Compose(c, r, target); err != nil {
			if llm.KindOf(err) != llm.Invalid {
				t.Fatalf("%s to %s: %v", way[0].Name(), way[1].Name(), err)
			}
			return stops
		}
	}
	return stops
}

var talks = []string{
	`{"model":"m","messages":[{"role":"system","content":"S"},{"role":"user","content":"hi"}]}`,
	`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"é \"q\" \\ \u00e9"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]},{"role":"assistant","content":"ok","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":12345678901234567890,\"y\":1.0}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"1"},{"role":"tool","tool_call_id":"b","content":"2"},{"role":"user","content":"go on"}],"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{}}}}]}`,
	`{"model":"m","messages":[{"role":"developer","content":"D"},{"role":"user","content":"a"},{"role":"assistant","content":""},{"role":"user","content":"b"},{"role":"system","content":"late"},{"role":"user","content":"c"}]}`,
	`{"model":"m","messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":null,"type":"function","function":{"name":"","arguments":"{bad"}}]},{"role":"tool","tool_call_id":"zz","content":"lost"}]}`,
}

func TestATalkThroughAnotherAPISaysTheSame(t *testing.T) {
	for _, to := range []backend.Dialect{anthropic.Dialect{}, responses.Dialect{}} {
		for i, body := range talks {
			stops := carried(t, openai.Dialect{}, to, []byte(body))
			if len(stops) != 3 {
				t.Errorf("talk %d ended on its way to %s and back after %d stops", i, to.Name(), len(stops))
			}
			for _, s := range stops[1:] {
				if diff := cmp.Diff(stops[0], s); diff != "" {
					t.Errorf("talk %d through %s (-said +got):\n%s", i, to.Name(), diff)
				}
			}
		}
	}
}

// FuzzTalk takes whatever Chat Completions accepts through another API and back: it keeps its meaning.
func FuzzTalk(f *testing.F) {
	for _, s := range talks {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, body []byte, other bool) {
		var to backend.Dialect = anthropic.Dialect{}
		if other {
			to = responses.Dialect{}
		}
		stops := carried(t, openai.Dialect{}, to, body)
		if len(stops) < 3 {
			return
		}
		// The first stop may hold what no other API has; from the second on nothing more is lost.
		if diff := cmp.Diff(stops[1], stops[2]); diff != "" {
			t.Errorf("on the way back from %s (-there +here):\n%s\n%s", to.Name(), diff, body)
		}
	})
}
