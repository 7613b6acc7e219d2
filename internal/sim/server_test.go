package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestServerAnswersAChat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{Simulated: true})
		resp, err := w.post(t, t.Context(), "/v1/chat/completions", askWhole)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		text, _ := dig(t, string(data), "choices", 0, "message", "content").(string)
		if !strings.Contains(text, "simulated") || !strings.Contains(text, "sim-000001") {
			t.Errorf("content %q does not say that it is simulated, or lacks the nonce", text)
		}
		if got := dig(t, string(data), "choices", 0, "finish_reason"); got != "stop" {
			t.Errorf("finish_reason %v, want stop", got)
		}
		if got := resp.Header.Get("X-Weir-Simulated"); got != "true" {
			t.Errorf("X-Weir-Simulated %q, want true", got)
		}
	})
}

func TestServerStreamsTheSameText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		_, stream, err := w.ask(t, "/v1/chat/completions", askStream)
		if err != nil {
			t.Fatal(err)
		}
		got := said(t, stream)
		if !strings.Contains(got, "simulated answer") || !strings.Contains(got, "sim-000001") {
			t.Errorf("said %q", got)
		}
		if p := payloads(stream); p[len(p)-1] != "[DONE]" || dig(t, p[len(p)-2], "choices", 0, "finish_reason") != "stop" {
			t.Errorf("the stream does not end with a finish_reason and [DONE]: %q", p)
		}
	})
}

func TestServerKeepsTheScriptsTimes(t *testing.T) {
	b := Behaviour{HeaderDelay: time.Second, FirstDelay: 2 * time.Second, Gap: 500 * time.Millisecond, Deltas: []string{"a", "b", "c"}}
	for _, flavour := range []Flavour{OpenAI, LlamaCPP} {
		t.Run(string(flavour), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, Options{Script: Script{Server: flavour, On: map[string]Sequence{"m": {b}}}})
				start := time.Now()
				if _, _, err := w.ask(t, "/v1/chat/completions", askStream); err != nil {
					t.Fatal(err)
				}
				a := w.Calls("m")[0]
				head := time.Second
				if flavour == LlamaCPP { // its headers wait for the first token
					head = 3 * time.Second
				}
				for _, c := range []struct {
					what string
					at   time.Time
					want time.Duration
				}{{"first byte", a.FirstByte, head}, {"first content", a.FirstContent, 3 * time.Second}, {"end", a.Ended, 4 * time.Second}} {
					if got := c.at.Sub(start); got != c.want {
						t.Errorf("%s after %v, want %v", c.what, got, c.want)
					}
				}
			})
		})
	}
}

func TestServerSeesThePeerLeave(t *testing.T) {
	tests := []struct {
		name string
		b    Behaviour
		body string
		end  End
		took time.Duration // until the attempt ended
	}{
		{"from a hang", Behaviour{Hang: true}, askStream, Left, 5 * time.Second},
		{"while it waits for headers", Behaviour{HeaderDelay: time.Minute}, askWhole, Left, 5 * time.Second},
		{"from a stalled stream (F21)", Behaviour{Cut: &Cut{After: 2, Of: "chunks", How: "stall"}}, askStream, Left, 5 * time.Second},
		{"from a drip", Behaviour{Gap: time.Second, Chunks: 60}, askStream, Left, 5 * time.Second},
		{"from an endless stream (F31)", Behaviour{Endless: true}, askStream, Left, 5 * time.Second},
		{"from raw bytes", Behaviour{Raw: "HTTP/1.1 200 OK\r\n\r\nsome", Cut: &Cut{After: 20, How: "stall"}}, askStream, Left, 5 * time.Second},
		{"from a ghost, which goes on (F43)", Behaviour{Gap: time.Second, Chunks: 61, Ghost: true}, askStream, Left, time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, Options{Script: Script{On: map[string]Sequence{"m": {tt.b}}}})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				start := time.Now()
				if resp, err := w.post(t, ctx, "/v1/chat/completions", tt.body); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				synctest.Wait()
				if got := w.Calls("m")[0].Left.Sub(start); got != 5*time.Second {
					t.Errorf("left after %v, want 5s", got)
				}
				if err := w.WaitQuiet(t.Context()); err != nil {
					t.Fatal(err)
				}
				a := w.Calls("m")[0]
				if got := a.Left.Sub(start); got != 5*time.Second {
					t.Errorf("left after %v once it ended, want still 5s", got)
				}
				if a.End != tt.end || a.Ended.Sub(start) != tt.took {
					t.Errorf("ended %s after %v, want %s after %v", a.End, a.Ended.Sub(start), tt.end, tt.took)
				}
			})
		})
	}
}

func TestServerSeesAHalfClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{Script: Script{On: map[string]Sequence{"*": {{Hang: true}}}}})
		c, err := w.net.DialContext(t.Context(), "tcp", strings.TrimPrefix(w.URL(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
		time.Sleep(time.Second)
		_ = c.(*conn).CloseWrite()
		synctest.Wait()
		if a := w.Attempts()[0]; a.End != Left || a.Left.Sub(a.Arrived) != time.Second {
			t.Errorf("ended %s, left after %v; want left after 1s", a.End, a.Left.Sub(a.Arrived))
		}
	})
}

func TestServerCloseEndsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{Script: Script{On: map[string]Sequence{"*": {{Endless: true, Ghost: true}}}}})
		resp, err := w.post(t, t.Context(), "/v1/chat/completions", askStream)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if a := w.Attempts()[0]; a.End != Stopped || !a.Left.IsZero() {
			t.Errorf("ended %s, left %v; want stopped, and nobody left", a.End, a.Left)
		}
	})
}

func TestServerPicksTheBehaviour(t *testing.T) {
	script := Script{On: map[string]Sequence{
		"m":       {{Text: "one"}, {Text: "two", Times: 2}, {Text: "last"}},
		"*":       {{Text: "any"}},
		"/health": {{Status: 503}},
	}}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{Script: script, Choose: func(a Attempt) *Behaviour {
			if a.Model == "chosen" {
				return &Behaviour{Text: "by the test for " + a.Path}
			}
			return nil
		}})
		content := func(body string) any {
			_, text, err := w.ask(t, "/v1/chat/completions", body)
			if err != nil {
				t.Fatal(err)
			}
			return dig(t, text, "choices", 0, "message", "content")
		}
		for i, want := range []string{"one", "two", "two", "last", "last"} {
			if got := content(askWhole); got != want {
				t.Errorf("attempt %d: %v, want %s", i, got, want)
			}
		}
		w.Reset()
		if got := content(askWhole); got != "one" {
			t.Errorf("after Reset: %v, want one", got)
		}
		for body, want := range map[string]string{
			`{"model":"other","messages":[]}`:                          "any",
			`{"model":"chosen","messages":[]}`:                         "by the test for /v1/chat/completions",
			`{"model":"m","messages":[],"x_sim":{"text":"as I wish"}}`: "as I wish",
		} {
			if got := content(body); got != want {
				t.Errorf("%s: %v, want %s", body, got, want)
			}
		}
		if status, _ := w.get(t, "/health"); status != 503 {
			t.Errorf("/health: %d, want the scripted 503", status)
		}
		if err := w.Set("m", Behaviour{Text: "new"}); err != nil {
			t.Fatal(err)
		}
		if got := content(askWhole); got != "new" {
			t.Errorf("after Set: %v, want new", got)
		}
	})
}

func TestServerTakesTheWishOfAHeader(t *testing.T) {
	s := New(Options{}).Start(t)
	for wish, want := range map[string]int{`{"status":529}`: 529, `{"stattus":529}`: 400, `{"gap":5}`: 400} {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL()+"/v1/chat/completions", strings.NewReader(askWhole))
		req.Header.Set("X-Sim", wish)
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: status %d, want %d", wish, resp.StatusCode, want)
		}
	}
}

func TestServerQueuesForSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{Script: Script{Slots: 1, On: map[string]Sequence{"m": {{HeaderDelay: time.Second}}}}})
		start := time.Now()
		for range 3 {
			go func() { _, _, _ = w.ask(t, "/v1/chat/completions", askWhole) }()
		}
		if err := w.WaitArrived(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		if err := w.WaitQuiet(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(start); got != 3*time.Second {
			t.Errorf("three calls took %v, want one after the other: 3s", got)
		}
		if got := w.Peak("m"); got != 3 {
			t.Errorf("peak %d, want 3: those in line count", got)
		}
	})
}

func TestServerDropsAReusedConnection(t *testing.T) { // F18
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{Script: Script{On: map[string]Sequence{"m": {{Stale: true}}}}})
		if _, _, err := w.ask(t, "/v1/chat/completions", askWhole); err != nil {
			t.Fatalf("fresh connection: %v", err)
		}
		if _, _, err := w.ask(t, "/v1/chat/completions", askWhole); err == nil {
			t.Error("reused connection: no error, want it closed before a byte")
		}
		if err := w.WaitQuiet(t.Context()); err != nil {
			t.Fatal(err)
		}
		calls := w.Calls("m")
		if len(calls) != 2 || calls[1].End != CutOff || calls[1].Status != 0 || calls[1].Reuse != 1 || calls[0].Conn != calls[1].Conn {
			t.Errorf("record %+v", calls)
		}
	})
}

func TestServerWaitsEndWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.WaitArrived(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
	})
}

func TestRefereeNeverCountsAnAnsweredCall(t *testing.T) {
	s := New(Options{Script: Script{Slots: 1, On: map[string]Sequence{"m": {{Text: "x"}}}}}).Start(t)
	addr := strings.TrimPrefix(s.URL(), "http://")
	// Each client reads up to the last byte of the answer and asks again at once, on
	// another connection, before the server can have seen its handler return.
	for _, tt := range []struct{ body, last string }{{askWhole, `"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}`}, {askStream, "[DONE]\n\n"}} {
		for range 300 {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: sim\r\nContent-Length: %d\r\n\r\n%s", len(tt.body), tt.body)
			var got []byte
			for buf := make([]byte, 4096); !bytes.Contains(got, []byte(tt.last)); {
				n, err := c.Read(buf)
				if err != nil {
					t.Fatalf("%v after %q", err, got)
				}
				got = append(got, buf[:n]...)
			}
			defer c.Close()
		}
	}
	if got := s.Peak("m"); got != 1 {
		t.Errorf("peak %d of calls that came one after the other, want 1", got)
	}
}

func TestServerTellsTheFaultsOfItsScript(t *testing.T) {
	s := New(Options{Script: Script{On: map[string]Sequence{"m": {{Drop: "off"}}}}})
	if err := s.Serve(nil); err == nil || !strings.Contains(err.Error(), `on.m[0]: drop: "off"`) {
		t.Errorf("Serve: %v", err)
	}
	front := httptest.NewServer(s)
	defer front.Close()
	resp, err := front.Client().Post(front.URL+"/v1/chat/completions", "", strings.NewReader(askWhole))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if data, _ := io.ReadAll(resp.Body); resp.StatusCode != 500 || !strings.Contains(string(data), "on.m[0]") {
		t.Errorf("got %d %s, want 500 and the place", resp.StatusCode, data)
	}
}

func TestServerBreaksConnectionsInsideAnotherServer(t *testing.T) {
	for name, start := range map[string]func(http.Handler) *httptest.Server{"plain": httptest.NewServer, "TLS": httptest.NewTLSServer} {
		s := New(Options{Script: Script{On: map[string]Sequence{"m": {{Cut: &Cut{After: 50, How: "rst"}}}}}})
		front := start(s)
		resp, err := front.Client().Post(front.URL+"/v1/chat/completions", "", strings.NewReader(askStream))
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if len(data) != 50 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %d bytes, %v; want 50 and a reset", name, len(data), err)
		}
		front.Close()
		_ = s.Close()
	}
}
