package stability

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"weir/internal/app"
	"weir/internal/config"
	"weir/internal/sim"
)

// setup has one backend of each dialect. Its model has another name there, so that a request is always changed.
const setup = `
auth: {keys: "off"}
backends:
  chat: {url: "http://chat.sim", tier: gpu, stream: always, null_content: keep, developer: keep}
  messages: {url: "http://messages.sim", tier: gpu, dialect: anthropic}
  responses: {url: "http://responses.sim", tier: gpu, dialect: responses}
pools:
  chat: {backend: chat, cap: 64, models: [{id: m, served_as: "real/chat-m"}]}
  messages: {backend: messages, cap: 64, models: [{id: m, served_as: "real/messages-m"}]}
  responses: {backend: responses, cap: 64, models: [{id: m, served_as: "real/responses-m"}]}
aliases: {to-chat: chat/m, to-messages: messages/m, to-responses: responses/m}
`

// rig is one running Weir with its backends, all in memory.
type rig struct {
	client *http.Client
	asks   sync.Map // by the number of the ask: *exchange
	last   atomic.Int64
	passes atomic.Int64
}

// exchange is what one request is to be answered with, and what the backend saw of it.
type exchange struct {
	answer sim.Behaviour
	seen   []byte
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r, network := &rig{}, sim.NewNet()
	listen := func(addr string) *sim.Listener {
		l, err := network.Listen(addr)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for name := range apis {
		script := sim.Script{Server: sim.OpenAI}
		if name == "messages" {
			script.Server = sim.Anthropic
		}
		s := sim.New(sim.Options{Name: name, KeepAttempts: 1, Choose: r.choose, Script: script})
		s.StartOn(t, listen(name+".sim:80"))
	}
	c, report := config.Parse([]byte(setup), filepath.Join(t.TempDir(), "weir.yaml"))
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	c.Listen, c.Admin = "127.0.0.1:8484", "127.0.0.1:8485"
	a, err := app.New(t.Context(), app.Options{Config: c, Version: "test", Dial: network.DialContext,
		Listener: listen(c.Listen), Admin: listen(c.Admin)})
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: network.DialContext, DisableCompression: true, MaxIdleConnsPerHost: 16}
	r.client = &http.Client{Transport: transport}
	ended := make(chan error, 1)
	go func() { ended <- a.Run(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		a.Halt()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

const mark = "[ask-"

// choose answers the ask whose number stands last in the body.
func (r *rig) choose(a sim.Attempt) *sim.Behaviour {
	i := bytes.LastIndex(a.Body, []byte(mark))
	if i < 0 {
		return nil
	}
	number, _, _ := bytes.Cut(a.Body[i+len(mark):], []byte("]"))
	n, _ := strconv.Atoi(string(number))
	v, ok := r.asks.Load(int64(n))
	if !ok {
		return nil
	}
	x := v.(*exchange)
	x.seen = bytes.Clone(a.Body)
	return &x.answer
}

// post sends one request and returns the answer.
func (r *rig) post(ctx context.Context, path, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:8484"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, out)
	}
	r.passes.Add(1)
	return out, err
}

// way is one way through Weir: the client's dialect, the backend's, and how it is asked.
type way struct {
	client, backend api
	stream          bool
}

// carry takes one conversation through Weir, turn by turn, and returns the first thing that is not as it must be.
func (r *rig) carry(ctx context.Context, k *talk, w way, style int) error {
	a := ask{model: "to-" + w.backend.name, tools: k.tools, stream: w.stream, style: style}
	var before asked
	var calls []call // of the last answer
	for turn, s := range k.steps {
		if len(s.say) == 0 && len(calls) == 0 {
			continue
		}
		n := r.last.Add(1)
		a.history = append(a.history, next(s, calls, n)...)
		x := &exchange{answer: behaviour(s)}
		r.asks.Store(n, x)
		body := w.client.request(a)
		answer, err := r.post(ctx, w.client.path, body)
		r.asks.Delete(n)
		if err != nil {
			return fmt.Errorf("turn %d: %w\n%.2000s", turn, err, body)
		}
		got, err := w.client.answer(answer, w.stream)
		if err == nil {
			err = sameAnswer(got, s)
		}
		if err != nil {
			return fmt.Errorf("turn %d: %w\n%.4000s", turn, err, answer)
		}
		if w.client.name == w.backend.name {
			if err := sameBut(x.seen, []byte(body), w.client.spliced); err != nil {
				return fmt.Errorf("turn %d: %w", turn, err)
			}
		}
		now, err := w.backend.asked(x.seen)
		if err == nil {
			err = sameHistory(&a, before, now)
		}
		if err != nil {
			return fmt.Errorf("turn %d: %w", turn, err)
		}
		before, calls = now, got.calls
		a.history = append(a.history, message{role: "assistant", text: inside([]byte(quote(got.text, style == 1))), calls: got.calls})
	}
	return nil
}

// next returns the messages of a step, the last of which carries the number of the ask.
func next(s step, calls []call, n int64) []message {
	tag := " " + mark + strconv.FormatInt(n, 10) + "]"
	if len(s.say) > 0 {
		say := append([]message(nil), s.say...)
		say[len(say)-1].text += tag
		return say
	}
	var results []call
	for i, c := range calls {
		results = append(results, call{id: c.id, args: fmt.Sprintf(`{\"result\": %d, \"unit\":\"m\u00b2\/s\"}%s`, i, tag)})
	}
	return []message{{results: results}}
}

func behaviour(s step) sim.Behaviour {
	b := sim.Behaviour{Text: s.text}
	for _, c := range s.calls {
		b.Calls = append(b.Calls, sim.Call{Name: c.name, Arguments: c.args})
	}
	if len(b.Calls) > 0 {
		b.Text = ""
	}
	return b
}

// sameAnswer holds that an answer came as the model gave it.
func sameAnswer(got said, want step) error {
	if len(got.calls) != len(want.calls) {
		return fmt.Errorf("%d calls came, want %d", len(got.calls), len(want.calls))
	}
	for i, c := range got.calls {
		if c.name != want.calls[i].name || c.args != want.calls[i].args || c.id == "" {
			return fmt.Errorf("the call came as %q %s(%s), want %s(%s)", c.id, c.name, c.args, want.calls[i].name, want.calls[i].args)
		}
	}
	if len(want.calls) == 0 && got.text != want.text {
		return fmt.Errorf("the text came as %q, want %q", got.text, want.text)
	}
	return nil
}

// sameHistory holds that a backend sees tools and calls as they are, and what it saw before again, to the byte.
func sameHistory(a *ask, before, now asked) error {
	if len(now.tools) != len(a.tools) {
		return fmt.Errorf("%d tools went on, want %d", len(now.tools), len(a.tools))
	}
	for i, t := range now.tools {
		if !bytes.Equal(t.name, a.tools[i].name) || !bytes.Equal(t.parameters, a.tools[i].parameters) {
			return fmt.Errorf("the tool %s with %s went on as %s with %s", a.tools[i].name, a.tools[i].parameters, t.name, t.parameters)
		}
	}
	var calls []call
	for _, m := range a.history {
		calls = append(calls, m.calls...)
	}
	if len(calls) != len(now.calls) {
		return fmt.Errorf("%d calls of the history went on, want %d", len(now.calls), len(calls))
	}
	for i, c := range now.calls {
		if c.name != calls[i].name || c.args != calls[i].args {
			return fmt.Errorf("the call %s(%s) of the history went on as %s(%s)", calls[i].name, calls[i].args, c.name, c.args)
		}
	}
	if before.turns != "" && (now.front != before.front || !strings.HasPrefix(now.turns, before.turns)) {
		return fmt.Errorf("the backend saw\n%s %s\nand a turn later\n%s %s", before.front, before.turns, now.front, now.turns)
	}
	return nil
}

// ways are all the ways through Weir: every dialect to every other and to itself, streamed and not.
func ways() (list []way) {
	for _, client := range []string{"chat", "messages", "responses"} {
		for _, backend := range []string{"chat", "messages", "responses"} {
			for _, stream := range []bool{true, false} {
				list = append(list, way{apis[client], apis[backend], stream})
			}
		}
	}
	return list
}

// S41: on every way, tool calls and their arguments, requests of the same dialect and the prefix of a conversation pass
// without one changed byte.
func TestCallsAndPrefixesPassUnchanged(t *testing.T) {
	list := talks(t)
	for _, w := range ways() {
		name := fmt.Sprintf("%s to %s, stream %v", w.client.name, w.backend.name, w.stream)
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			var todo, failed atomic.Int64
			var all sync.WaitGroup
			for range runtime.GOMAXPROCS(0) {
				all.Go(func() {
					for i := int(todo.Add(1)) - 1; i < len(list) && failed.Load() < 5; i = int(todo.Add(1)) - 1 {
						if err := r.carry(t.Context(), &list[i], w, i%len(spellings)); err != nil {
							failed.Add(1)
							t.Errorf("%s: %v", list[i].id, err)
						}
					}
				})
			}
			all.Wait()
			if n := r.passes.Load(); failed.Load() == 0 && n < int64(len(list)) {
				t.Errorf("only %d requests passed", n)
			} else {
				t.Logf("%d conversations, %d requests", len(list), n)
			}
		})
	}
}
