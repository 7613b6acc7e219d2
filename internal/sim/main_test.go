package sim

import (
	"bytes"
	"context"
	"encoding/json"

	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a Server on an in-memory network with a client, for use inside a bubble.
type world struct {
	*Server
	net    *Net
	client *http.Client
}

func newWorld(t *testing.T, opt Options) *world {
	t.Helper()
	n := NewNet()
	l, err := n.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	transport := n.Transport()
	w := &world{Server: New(opt).StartOn(t, l), net: n, client: &http.Client{Transport: transport}}
	t.Cleanup(transport.CloseIdleConnections)
	return w
}

const (
	askStream = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`
	askWhole  = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
)

// post sends a body and returns the open answer.
func (w *world) post(t *testing.T, ctx context.Context, path, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, "POST", w.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.GetBody = nil
	req.Header.Set("Anthropic-Version", "2023-06-01")
	return w.client.Do(req)
}

// ask sends a body and reads the whole answer, which may break off.
func (w *world) ask(t *testing.T, path, body string) (status int, got string, err error) {
	t.Helper()
	resp, err := w.post(t, t.Context(), path, body)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

// get reads a path of the server.
func (w *world) get(t *testing.T, path string) (int, string) {
	t.Helper()
	return w.getAs(t, path, false)
}

// getAs reads a path, as a client of Anthropic's when it is told so.
func (w *world) getAs(t *testing.T, path string, anthropic bool) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", w.URL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if anthropic {
		req.Header.Set("Anthropic-Version", "2023-06-01")
	}
	resp, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// payloads parses an event stream by the letter of the standard: CR, LF and CRLF end
// lines, data lines are joined, an event without its blank line is dropped.
func payloads(stream string) []string {
	stream = strings.TrimPrefix(stream, "\ufeff")
	stream = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(stream)
	var out, data []string
	lines := strings.Split(stream, "\n")
	for _, line := range lines[:len(lines)-1] {
		switch {
		case line == "" && data != nil:
			out = append(out, strings.Join(data, "\n"))
			data = nil
		case strings.HasPrefix(line, "data:"):
			data = append(data, strings.TrimPrefix(strings.TrimPrefix(line, "data:"), " "))
		}
	}
	return out
}

// said joins the content of a chat stream.
func said(t *testing.T, stream string) string {
	t.Helper()
	var b strings.Builder
	for _, p := range payloads(stream) {
		if p == "[DONE]" {
			break
		}
		var chunk struct {
			Choices []struct {
				Delta struct{ Content string }
			}
		}
		if err := json.Unmarshal([]byte(p), &chunk); err != nil {
			t.Fatalf("event %q: %v", p, err)
		}
		for _, c := range chunk.Choices {
			b.WriteString(c.Delta.Content)
		}
	}
	return b.String()
}

// member digs a value out of a JSON text by a path of names and indices.
func dig(t *testing.T, text string, path ...any) any {
	t.Helper()
	var v any
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

func mustURL(path string) *url.URL { return &url.URL{Path: path} }

// fieldNames lists every name a script may use.
func fieldNames() []string {
	var names []string
	for _, t := range []reflect.Type{reflect.TypeFor[Script](), reflect.TypeFor[Behaviour](), reflect.TypeFor[SSE](), reflect.TypeFor[Cut](),
		reflect.TypeFor[Insert](), reflect.TypeFor[StreamError](), reflect.TypeFor[Call]()} {
		for i := range t.NumField() {
			if name := jsonName(t.Field(i)); name != "" && name != "-" {
				names = append(names, name)
			}
		}
	}
	names = append(names, "loading")
	return append(append(append(names, tools...), usages...), refusals...)
}
