package discover

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	yaml "go.yaml.in/yaml/v4"
)

func TestLookSurvivesHostileServers(t *testing.T) {
	var l lab
	elsewhere := l.serve(plainOne)
	huge := strings.Repeat(" ", bodyLimit) + plainOne[pathModels].body
	tests := []struct {
		name   string
		handle http.HandlerFunc
		line   string
	}{
		{"a body beyond the limit", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, huge) }, "larger than 1 MiB"},
		{"a redirect to a good server", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+elsewhere.addr+r.URL.Path, http.StatusFound)
		}, "answers with a redirect"},
		{"garbage in place of JSON", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{\"data\":[\x00\xff") }, "something else answers"},
		{"JSON nested without end", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"object":"list","data":`+strings.Repeat("[", 500_000))
		}, "something else answers"},
		{"a list that is none", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"object":"list","data":{"id":"x"}}`) }, "something else answers"},
		{"a page that asks to log in", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "<html>log in</html>", http.StatusUnauthorized)
		}, "something else answers"},
		{"headers without end", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Long", strings.Repeat("x", 2*headerLimit))
		}, "does not speak plain HTTP"},
		{"a connection that is cut", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "does not speak plain HTTP"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, steps := l.look(t, nil, l.serveFunc(tt.handle).addr)
			if len(r.Servers) != 0 || !strings.Contains(steps[0].Line, tt.line) {
				t.Errorf("got %+v and %q, want nothing and %q", r.Servers, steps[0].Line, tt.line)
			}
		})
	}
	if got := elsewhere.asked(); len(got) != 0 {
		t.Errorf("the redirect was followed: %v", got)
	}
}

func TestLookStopsReadingAtTheLimit(t *testing.T) {
	var l lab
	written := 0
	f := l.serveFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 64 {
			n, err := w.Write(make([]byte, 64<<10))
			if written += n; err != nil {
				return
			}
		}
	})
	l.look(t, nil, f.addr)
	if written > 2*bodyLimit {
		t.Errorf("the server could send %d bytes, want about %d", written, bodyLimit)
	}
}

func TestCommentStaysOneLine(t *testing.T) {
	var w writer
	w.comment("  ", "  a\nlisten: 0.0.0.0:1\r\u2028b\x1b[2J ")
	if got, want := w.String(), "  #   alisten: 0.0.0.0:1b[2J\n"; got != want {
		t.Errorf("comment = %q, want %q", got, want)
	}
}

func TestLookUsesNoProxyOfTheEnvironment(t *testing.T) {
	if p := newClient(t.Context(), nil).http.Transport.(*http.Transport).Proxy; p != nil {
		t.Error("a proxy is asked for")
	}
}

// pipeDial gives connections to h that live in the test's clock. It serves one request per connection.
func pipeDial(h func(net.Conn)) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go h(there)
		return here, nil
	}
}

// drain reads what the client sends until it leaves, so that the fake ends with it.
func drain(c net.Conn) {
	defer c.Close()
	buf := make([]byte, 4096)
	for {
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}

func TestLookEndsInTimeWhateverHangs(t *testing.T) {
	list := plainOne[pathModels].body
	whole := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(list), list)
	tests := []struct {
		name string
		dial func(context.Context, string, string) (net.Conn, error)
		want time.Duration // when Look ends
		line string
	}{
		{"a dial that hangs", func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() },
			connectLimit, "nothing there"},
		{"an answer that never begins", pipeDial(drain), answerLimit, "gave no whole answer"},
		{"a greeting that is not HTTP", pipeDial(func(c net.Conn) {
			go drain(c)
			c.Write([]byte("SSH-2.0-OpenSSH_9\r\n"))
		}), 0, "does not speak plain HTTP"},
		{"a body that drips for ever", pipeDial(func(c net.Conn) {
			defer c.Close()
			c.Read(make([]byte, 4096))
			if _, err := c.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); err != nil {
				return
			}
			for {
				time.Sleep(100 * time.Millisecond)
				if _, err := c.Write([]byte(" ")); err != nil {
					return
				}
			}
		}), answerLimit, "gave no whole answer"},
		{"details that hang after a good list", pipeDial(func(c net.Conn) {
			buf := make([]byte, 4096)
			if n, _ := c.Read(buf); strings.HasPrefix(string(buf[:n]), "GET "+pathModels+" ") {
				c.Write([]byte(whole))
			}
			drain(c)
		}), answerLimit, "OpenAI-compatible server, 1 model"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var line string
				_, err := Look(t.Context(), Options{
					Look: []string{"127.0.0.1:1"}, Ports: []Port{}, Dial: tt.dial, Env: func(string) string { return "" },
					Progress: func(s Step) {
						if s.What == "127.0.0.1:1" {
							line = s.Line
						}
					},
				})
				if err != nil || !strings.Contains(line, tt.line) {
					t.Errorf("got %q and %v, want %q", line, err, tt.line)
				}
				if took := time.Since(start); took != tt.want {
					t.Errorf("took %v, want %v", took, tt.want)
				}
				time.Sleep(time.Second) // the dripping fake notices at its next drop that it is alone
			})
		})
	}
}

func TestLookIsAtMostThreeSecondsLong(t *testing.T) {
	if whole := 2 * answerLimit; whole > wholeLimit || answerLimit > 1500*time.Millisecond || connectLimit > 300*time.Millisecond || wholeLimit > 3*time.Second {
		t.Errorf("limits: two answers of %v in %v, connect %v", answerLimit, wholeLimit, connectLimit)
	}
}

// What a server calls its models must not reach beyond a quoted word of the config or beyond a line of the terminal.
func TestHostileNamesDoNotEscape(t *testing.T) {
	bad := []string{
		"a\"]}\nlisten: 0.0.0.0:1", "${env:OPENAI_API_KEY}", "*", "x\x1b[2Jy", "new\nline", "\u202eright", " lead", strings.Repeat("x", 300), "", "tab\tbed",
		"two words", "- dash", "$HOME", "a/sk-proj-0123456789abcdef",
	}
	good := []string{`quote"and\slash`, "#hash", "a:b", "-", "true", "123", "größe:7b", "{brace}", "'single'", "&anchor", "!tag", "/models/file.gguf", "xai-org/grok-2"}
	var entries []string
	for _, id := range append(append(bad, good...), good[0]) {
		entries = append(entries, fmt.Sprintf(`{"id":%s}`, jsonQuote(id)))
	}
	var l lab
	f := l.serve(pages{
		pathModels:  ok(`{"object":"list","data":[` + strings.Join(entries, ",") + `]}`),
		pathVersion: ok(`{"version":"1\n\u001b]0;title\u0007 # x"}`),
		pathProps:   ok(`{"build_info":"b1\nlisten: 0.0.0.0:1\u001b[31m","default_generation_settings":{"n_ctx":1}}`),
	})
	r, steps := l.look(t, nil, f.addr)
	for _, s := range steps {
		if strings.ContainsFunc(s.Line, unicode.IsControl) {
			t.Errorf("a control character is shown: %q", s.Line)
		}
	}
	var ids []string
	for _, m := range r.Servers[0].Models {
		ids = append(ids, m.ID)
	}
	if got, want := strings.Join(ids, "|"), strings.Join(good, "|"); got != want {
		t.Errorf("models = %q, want %q", got, want)
	}
	got := parse(t, r.Config(Layout{}))
	if got.Listen != "127.0.0.1:8484" {
		t.Errorf("listen = %q", got.Listen)
	}
	if is, want := strings.Join(got.Pools["llamacpp"].Models, "|"), strings.Join(good, "|"); is != want {
		t.Errorf("models in the config = %q, want %q", is, want)
	}
}

func jsonQuote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if r < 0x20 || r == '"' || r == '\\' {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	b.WriteByte('"')
	return b.String()
}

func FuzzAnswers(f *testing.F) {
	for _, p := range []pages{llamaSingle, llamaRouter, ollamaThree, vllmOne, sglangVectors, studioNew, studioOld, plainOne} {
		for path, a := range p {
			f.Add(path, []byte(p[pathModels].body), []byte(a.body))
		}
	}
	f.Fuzz(func(t *testing.T, path string, list, detail []byte) {
		l := answer{status: http.StatusOK, body: list}
		if !isList(l) {
			return
		}
		s := Server{Addr: "127.0.0.1:1", Own: true}
		s.read(answers{path: {status: http.StatusOK, body: detail}, pathModels: l})
		r := Result{Servers: []Server{s}}
		var any map[string]any
		if err := yaml.Unmarshal([]byte(r.Config(Layout{})), &any); err != nil {
			t.Fatalf("the config does not parse: %v\n%s", err, r.Config(Layout{}))
		}
		if got := any["listen"]; got != "127.0.0.1:8484" || len(any) != 7 {
			t.Errorf("the config has %v, %d members", got, len(any))
		}
	})
}
