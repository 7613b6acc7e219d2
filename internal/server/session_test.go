package server

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/event"
	"weir/internal/llm"
)

// attributed is what a request is booked as.
type attributed struct{ Session, Tag string }

// attribution sends one request to a server of fakes and returns what the relay and the record were told.
func attribution(t *testing.T, path, body string, headers ...string) (caller, record attributed, status int, answer string) {
	t.Helper()
	relay := &echo{}
	s := New(Options{
		Relay: relay, OpenAI: plain{}, Anthropic: other{}, Responses: third{}, Hosts: []string{"*"}, MaxBody: 1 << 20, MaxDepth: 64,
		Log: slog.New(slog.DiscardHandler),
		Emit: func(e event.Event) {
			if e.Name == event.End {
				record, status = attributed{e.Record.Session, e.Record.Tag}, e.Record.Status
			}
		},
	})
	r := httptest.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return attributed{relay.saw.Session, relay.saw.Tag}, record, status, w.Body.String()
}

// other and third are plain too: a server tells its dialects apart.
type (
	other struct{ plain }
	third struct{ plain }
)

func (other) Name() string { return "anthropic" }

func TestSessionsAreWhatClientsCallTheirConversation(t *testing.T) {
	const chat, messages, responses = "/v1/chat/completions", "/v1/messages", "/v1/responses"
	for _, tt := range []struct {
		name, path, body string
		headers          []string
		want             string
	}{
		{"Claude Code's header", messages, `{}`, []string{"x-claude-code-session-id", "u-1"}, "u-1"},
		{"Codex's header", responses, `{"prompt_cache_key":"k"}`, []string{"session-id", "u-2"}, "u-2"},
		{"Codex's body", responses, `{"prompt_cache_key":"u-3"}`, nil, "u-3"},
		{"opencode's headers", chat, `{}`, []string{"x-session-affinity", "aff", "x-session-id", "u-4"}, "u-4"},
		{"opencode's other header", chat, `{}`, []string{"x-session-affinity", "aff"}, "aff"},
		{"the client's own choice is first", messages, `{}`, []string{"x-claude-code-session-id", "u-1", "X-Weir-Session", "mine"}, "mine"},
		{"an empty one is none", messages, `{}`, []string{"X-Weir-Session", " ", "x-claude-code-session-id", "u-1"}, "u-1"},
		{"Claude Code's body", messages, `{"metadata":{"user_id":"{\"device_id\":\"d\",\"account_uuid\":\"\",\"session_id\":\"u-5\"}"}}`, nil, "u-5"},
		{"Claude Code's older body", messages, `{"metadata":{"user_id":"user_0a_account__session_0b1c-2d"}}`, nil, "0b1c-2d"},
		{"a user id of another kind is no session", messages, `{"metadata":{"user_id":"jane"}}`, nil, ""},
		{"metadata of another kind is no session", messages, `{"metadata":7}`, nil, ""},
		{"a user id that is broken JSON is no session", messages, `{"metadata":{"user_id":"{\"session_id\":\"u\""}}`, nil, ""},
		{"metadata is not read elsewhere", chat, `{"metadata":{"user_id":"user__session_u"}}`, nil, ""},
		{"a long one is hashed", chat, `{}`, []string{"X-Weir-Session", strings.Repeat("a", 129)}, llm.NameOf([]byte(strings.Repeat("a", 129)))},
		{"the longest that fits", chat, `{}`, []string{"X-Weir-Session", strings.Repeat("a", 128)}, strings.Repeat("a", 128)},
		{"an unprintable one is hashed", chat, `{"prompt_cache_key":"a\u0007"}`, nil, llm.NameOf([]byte("a\a"))},
		{"one beyond ASCII is hashed", chat, `{}`, []string{"X-Weir-Session", "ü"}, llm.NameOf([]byte("ü"))},
		{"none", chat, `{}`, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			caller, record, status, _ := attribution(t, tt.path, tt.body, tt.headers...)
			want := attributed{Session: tt.want}
			if d := cmp.Diff(want, caller); d != "" || caller != record || status != 200 {
				t.Errorf("status %d, record %+v, caller (-want +got):\n%s", status, record, d)
			}
		})
	}
}

func TestTagsAreShortAndPlain(t *testing.T) {
	const path = "/v1/chat/completions"
	for _, good := range []string{"ci", "team/a@b:c+d_e-f.g", strings.Repeat("9", 64)} {
		caller, record, status, _ := attribution(t, path, `{}`, "X-Weir-Tag", good)
		if want := (attributed{Tag: good}); caller != want || record != want || status != 200 {
			t.Errorf("%q: %d, caller %+v, record %+v", good, status, caller, record)
		}
	}
	if caller, _, status, _ := attribution(t, path, `{}`, "X-Weir-Tag", ""); caller.Tag != "" || status != 200 {
		t.Errorf("an empty one: %d, %q", status, caller.Tag)
	}
	for name, headers := range map[string][]string{
		"a space":          {"X-Weir-Tag", "a b"},
		"a comma":          {"X-Weir-Tag", "a,b"},
		"beyond ASCII":     {"X-Weir-Tag", "ä"},
		"no UTF-8":         {"X-Weir-Tag", "\xff"},
		"too long":         {"X-Weir-Tag", strings.Repeat("9", 65)},
		"two":              {"X-Weir-Tag", "a", "X-Weir-Tag", "b"},
		"a terminal's own": {"X-Weir-Tag", "\x1b[31m"},
	} {
		caller, record, status, answer := attribution(t, path, `{}`, headers...)
		if status != 400 || caller.Tag != "" || record.Tag != "" || !strings.HasPrefix(answer, "invalid_header") {
			t.Errorf("%s: %d %s, caller %+v, record %+v", name, status, answer, caller, record)
		}
	}
}

// FuzzBodySession takes any bytes as what a client says in its metadata.
func FuzzBodySession(f *testing.F) {
	f.Add(`{"session_id":"a"}`)
	f.Add(`{"session_id":{}}`)
	f.Add(`x_session_`)
	f.Fuzz(func(t *testing.T, user string) {
		body := append(llm.AppendQuoted([]byte(`{"user_id":`), user), '}')
		text := member(body, "user_id")
		_ = member(text, "session_id")
		if id := fit(user); len(id) > maxSession || strings.IndexFunc(id, unprintable) >= 0 {
			t.Errorf("%q", id)
		}
	})
}
