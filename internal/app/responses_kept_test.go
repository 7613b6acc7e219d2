package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"weir/internal/key"
	"weir/internal/sim"
)

// keeping is a configuration of one backend with one route that keeps responses and one that does not.
func keeping(more string) string {
	return `
backends:
  a: {url: "http://a.sim", tier: cloud` + more + `}
pools:
  a: {backend: a, cap: 64, models: [oai-m]}
routes:
  kept: {steps: [a], responses: {keep: 24h}}
  plain: {steps: [a]}
aliases: {oai-m: kept, plain: plain}
`
}

// backendsOfKeeping are what stands behind a kept response: a server of the same API, and ones that are translated for.
var backendsOfKeeping = map[string]string{
	"same dialect": ", dialect: responses", "translated": "", "assembled": ", stream: always", "assembled of the same dialect": ", dialect: responses, stream: always",
}

// question is a request of the Responses API; more are members.
func question(model, text string, stream bool, more ...string) string {
	return fmt.Sprintf(`{"model":%q,"stream":%v,"input":%q%s}`, model, stream, text, strings.Join(append([]string{""}, more...), ","))
}

// after is the member that continues a response.
func after(id string) string { return fmt.Sprintf(`"previous_response_id":%q`, id) }

// response is what a client reads of a response object.
type response struct {
	ID, Object, Status string
	Output             []struct {
		Type    string
		Content []struct{ Text string }
	}
	Error *failure
}

func (r *response) text() string {
	var b strings.Builder
	for _, o := range r.Output {
		for _, c := range o.Content {
			b.WriteString(c.Text)
		}
	}
	return b.String()
}

// response returns the response object of an answer, whole or the one of the end of a stream, and the bytes of it.
func (r *reply) response() (o response, raw []byte) {
	r.t.Helper()
	raw = r.body
	if r.isStream() {
		raw = nil
		for line := range strings.Lines(string(r.body)) {
			var e struct {
				Type     string
				Response json.RawMessage
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(data), &e) == nil && e.Type == "response.completed" {
				raw = e.Response
			}
		}
	}
	if err := json.Unmarshal(raw, &o); err != nil || r.status != http.StatusOK || r.err != nil {
		r.t.Fatalf("no response: status %d, %v, %v, %.500q", r.status, err, r.err, r.body)
	}
	return o, raw
}

// refused checks that an answer is an error of a status with a code.
func (r *reply) refused(status int, code string) {
	r.t.Helper()
	var o response
	if err := json.Unmarshal(r.body, &o); err != nil || r.status != status || o.Error == nil || o.Error.Code != code {
		r.t.Errorf("got %d %s, want %d with the code %s", r.status, r.body, status, code)
	}
}

// A response of a route that keeps them can be continued, read and deleted as at OpenAI.
func TestAKeptConversation(t *testing.T) {
	for name, more := range backendsOfKeeping {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, streamed %v", name, stream), func(t *testing.T) {
				g := begin(t, setup{yaml: keeping(more), sims: oai(sim.Behaviour{Text: "the first answer"}, sim.Behaviour{Text: "the second answer"}, sim.Behaviour{Text: "the third answer"})})
				first, raw := g.post("/v1/responses", question("oai-m", "the first question", stream)).response()
				if got := g.get("/v1/responses/" + first.ID); got.status != 200 || string(got.body) != string(raw) {
					t.Errorf("GET right after the answer: %d %s\nwant %s", got.status, got.body, raw)
				}
				second, _ := g.post("/v1/responses", question("oai-m", "the second question", !stream, after(first.ID))).response()
				third, _ := g.post("/v1/responses", question("oai-m", "the third question", stream, after(second.ID))).response()
				if first.ID == second.ID || third.text() != "the third answer" {
					t.Errorf("ids %s and %s, the last answer %q", first.ID, second.ID, third.text())
				}
				up, at := string(last(g.sim())), 0
				for _, want := range []string{"the first question", "the first answer", "the second question", "the second answer", "the third question"} {
					i := strings.Index(up[at:], want)
					if i < 0 || strings.Count(up, want) != 1 {
						t.Fatalf("%q does not stand once and in its turn upstream: %s", want, up)
					}
					at += i
				}
				if own := strings.Contains(name, "same dialect"); strings.Contains(up, "previous_response_id") || strings.Contains(up, `"store":false`) != own {
					t.Errorf("the server was asked to remember: %s", up)
				}
				var list struct{ Data []struct{ Role string } }
				if r := g.get("/v1/responses/" + third.ID + "/input_items"); json.Unmarshal(r.body, &list) != nil || len(list.Data) != 5 || list.Data[0].Role != "user" {
					t.Errorf("the items that were asked with: %s", r.body)
				}
				g.do(t.Context(), http.MethodPost, "/v1/responses/"+first.ID+"/cancel", nil).refused(400, "invalid_request")
				want := fmt.Sprintf(`{"id":%q,"object":"response","deleted":true}`, first.ID)
				if r := g.do(t.Context(), http.MethodDelete, "/v1/responses/"+first.ID, nil); r.status != 200 || string(r.body) != want {
					t.Errorf("DELETE: %d %s, want %s", r.status, r.body, want)
				}
				g.get("/v1/responses/"+first.ID).refused(404, "response_not_found")
				g.post("/v1/responses", question("oai-m", "?", stream, after(first.ID))).refused(400, "previous_response_not_found")
				g.post("/v1/responses", question("oai-m", "?", false, after(second.ID))).response() // it stands for itself
			})
		}
	}
}

// Where nothing says that responses are kept, none is, and who counts on it is told.
func TestNothingIsKeptUnlessItIsSaid(t *testing.T) {
	for _, stream := range []bool{false, true} {
		g := begin(t, setup{yaml: keeping(", dialect: responses"), sims: oai(sim.Behaviour{Text: "hi"})})
		plain, _ := g.post("/v1/responses", question("plain", "x", stream)).response()
		g.get("/v1/responses/"+plain.ID).refused(404, "response_not_found")
		r := g.post("/v1/responses", question("plain", "x", stream, `"store":true`))
		r.response()
		g.end(r.id())
		if got := strings.Join(g.events(r.id()), " "); got != "start drop:setting routing end" {
			t.Errorf("events of store: true: %s", got)
		}
		before := len(g.sim().Calls(""))
		g.post("/v1/responses", question("plain", "x", stream, after(plain.ID))).refused(400, "unsupported_parameter")
		if len(g.sim().Calls("")) != before {
			t.Error("a server was asked to continue from nothing")
		}
		out, _ := g.post("/v1/responses", question("oai-m", "x", stream, `"store":false`)).response() // the client's own word goes before the route's
		g.get("/v1/responses/"+out.ID).refused(404, "response_not_found")
	}
}

// S07: a key can have its responses kept whatever the route says, and they are its alone.
func TestWhatAKeyKeepsIsItsAlone(t *testing.T) {
	g := begin(t, setup{yaml: keeping(""), sims: oai(sim.Behaviour{Text: "hi"})})
	mine, other := "Bearer "+g.newKey(key.Spec{Name: "mine", KeepResponses: time.Hour}), "Bearer "+g.newKey(key.Spec{Name: "other", KeepResponses: time.Hour})
	r, _ := g.post("/v1/responses", question("plain", "x", true), "Authorization", mine).response()
	g.post("/v1/responses", question("plain", "y", false, after(r.ID)), "Authorization", mine).response()
	for _, token := range []string{other, "Bearer " + g.key} {
		g.get("/v1/responses/"+r.ID, "Authorization", token).refused(404, "response_not_found")
		g.get("/v1/responses/"+r.ID+"/input_items", "Authorization", token).refused(404, "response_not_found")
		g.do(t.Context(), http.MethodDelete, "/v1/responses/"+r.ID, nil, "Authorization", token).refused(404, "response_not_found")
		g.post("/v1/responses", question("oai-m", "z", false, after(r.ID)), "Authorization", token).refused(400, "previous_response_not_found")
	}
	g.get("/v1/responses/"+r.ID, "Authorization", "").refused(401, "invalid_api_key")
	if r := g.get("/v1/responses/"+r.ID, "Authorization", mine); r.status != 200 {
		t.Errorf("its own key: %d %s", r.status, r.body)
	}
}

// A local request's texts stay on the machines one owns when another request continues from them.
func TestWhatWasLocalStaysLocal(t *testing.T) {
	yaml := strings.Replace(keeping(""), "tier: cloud", "tier: floor", 1)
	yaml = strings.Replace(yaml, "pools:", "  b: {url: \"http://b.sim\", tier: cloud}\npools:\n  b: {backend: b, cap: 8, models: [oai-m]}", 1)
	yaml = strings.Replace(yaml, "oai-m: kept", "away: away, oai-m: kept", 1)
	yaml = strings.Replace(yaml, "routes:", "routes:\n  away: {steps: [b], responses: {keep: 24h}}", 1)
	say := sim.Script{On: map[string]sim.Sequence{"oai-m": {{Text: "hi"}}}}
	g := begin(t, setup{yaml: yaml, sims: map[string]sim.Script{"a": say, "b": say}})
	open, _ := g.post("/v1/responses", question("oai-m", "x", false)).response()
	g.post("/v1/responses", question("away", "y", false, after(open.ID))).response()
	private, _ := g.post("/v1/responses", question("oai-m", "x", false), "X-Weir-Boundary", "local").response()
	before := len(g.sims["b"].Calls(""))
	if r := g.post("/v1/responses", question("away", "y", false, after(private.ID))); r.status == 200 || len(g.sims["b"].Calls("")) != before {
		t.Errorf("it left: %d %s", r.status, r.body)
	}
	g.post("/v1/responses", question("oai-m", "y", false, after(private.ID))).response()
}

// A restart keeps what is kept, in the data folder alone.
func TestARestartKeepsResponses(t *testing.T) {
	data := t.TempDir()
	begin1 := func() *gateway {
		return begin(t, setup{yaml: keeping(""), sims: oai(sim.Behaviour{Text: "hi"}), data: data})
	}
	g := begin1()
	token := "Bearer " + g.newKey(key.Spec{Name: "stays"})
	r, _ := g.post("/v1/responses", question("oai-m", "remember", false), "Authorization", token).response()
	g.finish()
	g = begin1()
	g.post("/v1/responses", question("oai-m", "and?", false, after(r.ID)), "Authorization", token).response()
	if up := string(last(g.sim())); !strings.Contains(up, "remember") {
		t.Errorf("after the restart the server was sent %s", up)
	}
}

// What is kept goes when its time is over, from the file too.
func TestKeptResponsesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: strings.Replace(keeping(""), "24h", "5m", 1), sims: oai(sim.Behaviour{Text: "hi"})})
		r, _ := g.post("/v1/responses", question("oai-m", "x", false)).response()
		time.Sleep(4 * time.Minute)
		if got := g.get("/v1/responses/" + r.ID); got.status != 200 {
			t.Errorf("a minute before its end: %d %s", got.status, got.body)
		}
		time.Sleep(time.Minute)
		g.get("/v1/responses/"+r.ID).refused(404, "response_not_found")
		g.post("/v1/responses", question("oai-m", "y", false, after(r.ID))).refused(400, "previous_response_not_found")
		time.Sleep(2 * time.Minute)
		if gone, err := g.app.store.DeleteResponse(t.Context(), "test", r.ID, time.Time{}); gone || err != nil {
			t.Errorf("it is still in the file: %v, %v", gone, err)
		}
	})
}

// The official SDK finds what it expects.
func TestGoSDKGoesOnWithAKeptResponse(t *testing.T) {
	g := begin(t, setup{yaml: keeping(", dialect: responses"), sims: oai(sim.Behaviour{Text: "one"}, sim.Behaviour{Text: "two"})})
	client, ctx := g.sdk(g.key), t.Context()
	say := func(text string) responses.ResponseNewParams {
		return responses.ResponseNewParams{Model: "oai-m", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)}}
	}
	first, err := client.Responses.New(ctx, say("hello"))
	if err != nil {
		t.Fatal(err)
	}
	next := say("and?")
	next.PreviousResponseID = openai.String(first.ID)
	second, err := client.Responses.New(ctx, next)
	if err != nil || second.OutputText() != "two" {
		t.Fatalf("second turn: %+v, %v", second, err)
	}
	if got, err := client.Responses.Get(ctx, second.ID, responses.ResponseGetParams{}); err != nil || got.OutputText() != "two" {
		t.Errorf("Get: %+v, %v", got, err)
	}
	n := 0
	pages := client.Responses.InputItems.ListAutoPaging(ctx, second.ID, responses.InputItemListParams{Limit: openai.Int(1), Order: "asc"})
	for ; pages.Next(); n++ {
		if pages.Current().ID == "" {
			t.Errorf("item %d has no id: %s", n, pages.Current().RawJSON())
		}
	}
	if n != 3 || pages.Err() != nil {
		t.Errorf("%d items, %v, want 3", n, pages.Err())
	}
	if err := client.Responses.Delete(ctx, second.ID); err != nil {
		t.Errorf("Delete: %v", err)
	}
	if _, err := client.Responses.Get(ctx, second.ID, responses.ResponseGetParams{}); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("Get of what was deleted: %v", err)
	}
	if _, err := client.Responses.Cancel(ctx, first.ID); err == nil || !strings.Contains(err.Error(), "400") {
		t.Errorf("Cancel: %v", err)
	}
}
