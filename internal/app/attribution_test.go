package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"weir/internal/sim"
	"weir/internal/store"
)

// attributed reads session and tag of an event line.
func (g *gateway) attributed(id string) (session, tag string) {
	g.t.Helper()
	var v struct{ Session, Tag string }
	if err := json.Unmarshal([]byte(g.end(id).Raw), &v); err != nil {
		g.t.Error(err)
	}
	return v.Session, v.Tag
}

// unsaid checks that what clients say of themselves to Weir is no header of a call upstream.
func (g *gateway) unsaid() {
	g.t.Helper()
	for name, s := range g.sims {
		for _, a := range s.Calls("") {
			for h := range a.Header {
				if strings.HasPrefix(h, "X-Weir-") && h != "X-Weir-Hop" || strings.Contains(h, "Session") {
					g.t.Errorf("backend %s was sent %s: %q", name, h, a.Header[h])
				}
			}
		}
	}
}

// Every turn of a conversation has one session, in each API and behind a backend of each, and other conversations have
// others.
func TestSessionsAndTags(t *testing.T) {
	g := polyglot(t)
	headers := []string{"X-Weir-Tag", "team/ci", "anthropic-version", "2023-06-01"}
	system := strings.Repeat("You are an agent. ", 1000)
	for _, api := range []struct{ path, first, later, other string }{
		{
			"/v1/chat/completions",
			`{"model":%q,"messages":[{"role":"system","content":%q},{"role":"user","content":"hi"}]}`,
			`{"model":%q,"messages":[{"role":"system","content":%q},{"role":"user","content":"hi"},{"role":"assistant","content":"yes"},{"role":"user","content":"go on"}]}`,
			`{"model":%q,"messages":[{"role":"system","content":%q},{"role":"user","content":"ho"}]}`,
		},
		{
			"/v1/messages",
			`{"model":%q,"max_tokens":9,"system":[{"type":"text","text":"x-anthropic-billing-header: 1"},{"type":"text","text":%q}],"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}]}`,
			`{"model":%q,"max_tokens":9,"system":[{"type":"text","text":"x-anthropic-billing-header: 2"},{"type":"text","text":%q}],"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"assistant","content":"yes"},{"role":"user","content":"go on"}]}`,
			`{"model":%q,"max_tokens":9,"system":[{"type":"text","text":%q}],"messages":[{"role":"user","content":"ho"}]}`,
		},
		{
			"/v1/responses",
			`{"model":%q,"instructions":%q,"input":"hi"}`,
			`{"model":%q,"instructions":%q,"input":[{"role":"user","content":"hi"},{"role":"assistant","content":"yes"},{"role":"user","content":"go on"}]}`,
			`{"model":%q,"instructions":%q,"input":"ho"}`,
		},
	} {
		var sessions []string
		for model := range tongueOf {
			for _, body := range []string{api.first, api.later, api.other} {
				r := g.do(t.Context(), "POST", api.path, strings.NewReader(fmt.Sprintf(body, model, system)), headers...)
				if r.status != 200 {
					t.Fatalf("%s %s: %d %s", api.path, model, r.status, r.body)
				}
				session, tag := g.attributed(r.id())
				if tag != "team/ci" {
					t.Errorf("%s %s: tag %q", api.path, model, tag)
				}
				sessions = append(sessions, session)
			}
			if s := sessions[len(sessions)-3:]; s[0] != s[1] || s[0] == s[2] || s[0] != sessions[0] || !strings.HasPrefix(s[0], "h-") {
				t.Errorf("%s %s: sessions %q", api.path, model, s)
			}
		}
	}
	g.unsaid()
	if len(g.sims["c"].Calls("")) == 0 {
		t.Error("no call was looked at")
	}
}

// A client's own id is kept in the store too, for `weir usage`; a label that is none is refused before anything is called.
func TestSessionsAreStored(t *testing.T) {
	dir := t.TempDir()
	g := begin(t, setup{data: dir, sims: oai(sim.Behaviour{})})
	const body = `{"model":"emb","input":"hi"}`
	r := g.do(t.Context(), "POST", "/v1/embeddings", strings.NewReader(body), "X-Weir-Tag", "a b")
	if r.failed(); r.status != 400 || !strings.Contains(string(r.body), "X-Weir-Tag takes one label of at most 64 letters") {
		t.Errorf("%d %s", r.status, r.body)
	}
	g.do(t.Context(), "POST", "/v1/embeddings", strings.NewReader(body), "X-Weir-Tag", "docs", "session-id", "s-1", "x-session-affinity", "s-2")
	g.unsaid()
	g.stop()
	st, err := store.Open(t.Context(), dir, store.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	got, err := st.Requests(t.Context(), store.Query{Session: "s-1", Tag: "docs"})
	if err != nil || len(got) != 1 || got[0].Op != "embeddings" {
		t.Errorf("%+v, %v", got, err)
	}
}
