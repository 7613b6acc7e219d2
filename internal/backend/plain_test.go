package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/llm"
	"weir/internal/llm/openai"
)

// answerer is an upstream that answers request n on a connection with the bytes that say gives, and closes after it
// when say asks for that.
type answerer struct {
	net.Listener
	conns atomic.Int64
}

func answer(t testing.TB, say func(conn, n int) (text string, hangUp bool)) *answerer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &answerer{Listener: l}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go a.serve(c, int(a.conns.Add(1)), say)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return a
}

func (a *answerer) serve(c net.Conn, conn int, say func(conn, n int) (string, bool)) {
	defer c.Close()
	buf := make([]byte, 64<<10)
	for n := 1; ; n++ {
		got := 0
		for !bytes.Contains(buf[:got], []byte("END}")) { // the mark of the tests' bodies
			k, err := c.Read(buf[got:])
			if err != nil {
				return
			}
			got += k
		}
		text, hangUp := say(conn, n)
		if _, err := io.WriteString(c, text); err != nil || hangUp {
			return
		}
	}
}

func plainBackend(t testing.TB, addr string, set func(*Options)) *Backend {
	o := Options{Name: "b", URL: "http://" + addr, Dialect: openai.Dialect{}, Connect: time.Second, IdleConn: time.Minute, Conns: 4, Agent: "weir/test", Hop: "h"}
	if set != nil {
		set(&o)
	}
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if b.plain == nil {
		t.Fatal("plain HTTP does not go through the own client")
	}
	t.Cleanup(b.Close)
	return b
}

func ask(t testing.TB, b *Backend) (string, head, *flight, error) {
	var f flight
	h, err := b.send(t.Context(), &outgoing{to: &b.spoken[0], op: llm.Chat, body: &sentBody{bytes: []byte(`{"x":"END}`)}}, &f)
	if err != nil {
		return "", h, &f, err
	}
	body, err := io.ReadAll(h.body)
	h.body.Close()
	return string(body), h, &f, err
}

func TestPlainReadsEveryFramingOfABody(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, c := range map[string]struct {
		text, want string
		bad        bool // an error, in the head or in the body
		again      bool // the connection serves the next request too
	}{
		"a known length":                      {ok + "Content-Length: 5\r\n\r\nhello", "hello", false, true},
		"no body":                             {ok + "Content-Length: 0\r\n\r\n", "", false, true},
		"204 has none":                        {"HTTP/1.1 204 No Content\r\n\r\n", "", false, true},
		"chunks":                              {ok + "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", "hello", false, true},
		"a chunk extension and trailers":      {ok + "transfer-encoding: Chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX-T: 1\r\n\r\n", "hello", false, true},
		"line feeds alone":                    {"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", "hello", false, true},
		"informational answers first":         {"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ok + "Content-Length: 5\r\n\r\nhello", "hello", false, true},
		"up to the end of the connection":     {ok + "\r\nhello", "hello", false, false},
		"HTTP/1.0":                            {"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", false, false},
		"HTTP/1.0 that stays":                 {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", "hello", false, true},
		"Connection: close":                   {ok + "Connection: close\r\nContent-Length: 5\r\n\r\nhello", "hello", false, false},
		"the same length twice":               {ok + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", "hello", false, true},
		"two lengths that differ":             {ok + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "", true, false},
		"a signed length":                     {ok + "Content-Length: +5\r\n\r\nhello", "", true, false},
		"length and chunks":                   {ok + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "", true, false},
		"an unknown transfer encoding":        {ok + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "", true, false},
		"a folded header":                     {ok + "X-A: 1\r\n b\r\nContent-Length: 0\r\n\r\n", "", true, false},
		"a space before the colon":            {ok + "Content-Length : 5\r\n\r\nhello", "", true, false},
		"a bad chunk size":                    {ok + "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n", "", true, false},
		"a chunk size beyond all":             {ok + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nhello", "", true, false},
		"a chunk longer than it says":         {ok + "Transfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n", "", true, false},
		"cut within a length":                 {ok + "Content-Length: 9\r\n\r\nhello", "", true, false},
		"cut within a chunk":                  {ok + "Transfer-Encoding: chunked\r\n\r\n9\r\nhello", "", true, false},
		"cut before the last chunk":           {ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "", true, false},
		"cut within the trailers":             {ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX", "", true, false},
		"no HTTP at all":                      {"SSH-2.0-OpenSSH_9.2\r\n\r\n", "", true, false},
		"101":                                 {"HTTP/1.1 101 Switching Protocols\r\n\r\n", "", true, false},
		"a flood of informational answers":    {strings.Repeat("HTTP/1.1 103 x\r\n\r\n", 50) + ok + "Content-Length: 0\r\n\r\n", "", true, false},
		"a head beyond the bound":             {ok + strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 300) + "\r\n", "", true, false},
		"more than was announced is not used": {ok + "Content-Length: 5\r\n\r\nhelloHTTP/1.1 500 x\r\n\r\n", "hello", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			up := answer(t, func(int, int) (string, bool) { return c.text, !c.again })
			b := plainBackend(t, up.Addr().String(), nil)
			got, _, _, err := ask(t, b)
			if c.bad != (err != nil) || !c.bad && got != c.want {
				t.Fatalf("got %q, %v; want %q, an error: %v", got, err, c.want, c.bad)
			}
			if c.bad {
				return
			}
			_, _, f, err := ask(t, b)
			if err != nil || f.reused != c.again {
				t.Errorf("the second request: reused %v, %v; want %v", f.reused, err, c.again)
			}
		})
	}
}

func TestPlainNoticesAConnectionThatDiedWhileIdle(t *testing.T) {
	closed := make(chan struct{}, 1)
	up := answer(t, func(conn, _ int) (string, bool) {
		if conn == 1 {
			defer func() { closed <- struct{}{} }()
		}
		return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", conn == 1
	})
	b := plainBackend(t, up.Addr().String(), nil)
	if _, _, _, err := ask(t, b); err != nil {
		t.Fatal(err)
	}
	<-closed
	for range 1000 { // until the end has arrived: the peek must see it
		b.plain.mu.Lock()
		quiet := len(b.plain.idle) == 1 && b.plain.idle[0].peek()
		b.plain.mu.Unlock()
		if !quiet {
			break
		}
		time.Sleep(time.Millisecond)
	}
	_, _, f, err := ask(t, b)
	if err != nil || f.reused {
		t.Errorf("reused %v, %v; want a fresh connection", f.reused, err)
	}
}

func TestPlainSendsHeadAndBodyAsTheyAre(t *testing.T) {
	for _, size := range []int{10, oneWrite - 1, oneWrite + 1, 300 << 10} {
		got := make(chan *http.Request, 1)
		bodies := make(chan string, 1)
		s := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			bodies <- string(b)
			got <- r
		})}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { s.Serve(l); close(done) }()
		b := plainBackend(t, l.Addr().String(), func(o *Options) { o.Key = func() (string, error) { return "secret", nil } })
		body := strings.Repeat("x", size)
		h, err := b.send(t.Context(), &outgoing{to: &b.spoken[0], op: llm.Chat, stream: true, id: "req_1", hops: "a", trace: "00-t", key: "Bearer secret", body: &sentBody{bytes: []byte(body)}}, &flight{})
		if err != nil {
			t.Fatal(err)
		}
		h.body.Close()
		r, sent := <-got, <-bodies
		if sent != body {
			t.Errorf("%d bytes: the upstream got %d that are not the same", size, len(sent))
		}
		want := map[string]string{"Accept": "text/event-stream", "Authorization": "Bearer secret", "Content-Type": "application/json",
			"Traceparent": "00-t", "User-Agent": "weir/test", "X-Request-Id": "req_1", "X-Weir-Hop": "a, h", "Content-Length": fmt.Sprint(size)}
		for name := range r.Header {
			if r.Header.Get(name) != want[name] {
				t.Errorf("header %s = %q, want %q", name, r.Header.Get(name), want[name])
			}
			delete(want, name)
		}
		if delete(want, "Content-Length"); len(want) > 0 {
			t.Errorf("headers missing: %v", want)
		}
		s.Close()
		<-done
	}
}

func TestPlainEndsWithItsContext(t *testing.T) {
	up := answer(t, func(int, int) (string, bool) { return "", false })
	b := plainBackend(t, up.Addr().String(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	var f flight
	done := make(chan error, 1)
	go func() {
		_, err := b.send(ctx, &outgoing{to: &b.spoken[0], op: llm.Chat, body: &sentBody{bytes: []byte("END}")}}, &f)
		done <- err
	}()
	cancel()
	if err := <-done; err == nil {
		t.Error("no error")
	}
	b.plain.mu.Lock()
	defer b.plain.mu.Unlock()
	if len(b.plain.idle) != 0 {
		t.Error("the connection of a call that was given up is kept")
	}
}

func TestPlainKeepsUnusedConnectionsForTheirTimeAndNoMoreThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Int64
		p := &plain{keep: 4 * time.Second, most: 2, backend: &Backend{}, dial: func(context.Context) (net.Conn, error) {
			open.Add(1)
			c, other := net.Pipe()
			go func() {
				io.Copy(io.Discard, other)
				open.Add(-1)
			}()
			return c, nil
		}}
		var wires []*wire
		for range 3 {
			w, err := p.take(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			wires = append(wires, w)
		}
		for _, w := range wires {
			p.give(w)
			time.Sleep(time.Second)
		}
		if got := open.Load(); got != 2 {
			t.Errorf("%d unused connections are kept, want 2", got)
		}
		if w, _ := p.take(t.Context(), false); w != wires[1] {
			t.Error("the connection used last is not the first to be used again")
		} else {
			p.give(w)
		}
		time.Sleep(1100 * time.Millisecond) // the first one's time is over
		synctest.Wait()
		if got := open.Load(); got != 1 {
			t.Errorf("after its time %d connections are open, want 1", got)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := open.Load(); got != 0 || p.reaper != nil {
			t.Errorf("after all times %d connections are open, the reaper is there: %v", got, p.reaper != nil)
		}
		p.close()
		w, _ := p.take(t.Context(), false)
		p.give(w)
		synctest.Wait()
		if got := open.Load(); got != 0 {
			t.Error("a closed client keeps a connection")
		}
	})
}

// FuzzPlainAnswer feeds the client whatever an upstream could say: it must neither panic nor read for ever, and what it
// takes for whole must be what net/http takes for whole.
func FuzzPlainAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x\r\nlo\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.0 200 OK\r\n\r\nhello", "HTTP/1.1 100 C\r\n\r\nHTTP/1.1 429 x\nRetry-After: 1\n\n",
	} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, step uint8) {
		w := &wire{Conn: &scripted{data: data, step: int(step%16) + 1}, buf: make([]byte, 32)}
		h, err := w.head()
		if err != nil {
			return
		}
		b := &plainBody{p: &plain{}, w: w, cancel: func() bool { return true }, left: h.length, chunked: h.chunked, begin: true, done: h.length == 0 && !h.chunked}
		got, err := io.ReadAll(io.LimitReader(b, int64(len(data))+1))
		if err != nil {
			return
		}
		if len(got) > len(data) {
			t.Fatalf("%d bytes of body from %d", len(got), len(data))
		}
	})
}

// scripted is a connection that says data in steps and then ends.
type scripted struct {
	net.Conn
	data []byte
	step int
}

func (s *scripted) Read(p []byte) (int, error) {
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.data[:min(len(s.data), s.step)])
	s.data = s.data[n:]
	return n, nil
}

func (s *scripted) Close() error { return nil }

func TestAChunkedBodyIsTheSameHoweverItArrives(t *testing.T) {
	text := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	var want strings.Builder
	for i := range 40 {
		piece := strings.Repeat(string(rune('a'+i%26)), i*7+1)
		want.WriteString(piece)
		text += fmt.Sprintf("%x\r\n%s\r\n", len(piece), piece)
	}
	text += "0\r\n\r\n"
	for step := 1; step < 200; step++ {
		w := &wire{Conn: &scripted{data: []byte(text), step: step}, buf: make([]byte, 64)}
		h, err := w.head()
		if err != nil {
			t.Fatal(err)
		}
		b := &plainBody{p: &plain{}, w: w, cancel: func() bool { return true }, left: h.length, chunked: h.chunked, begin: true}
		got, err := io.ReadAll(b)
		if err != nil || string(got) != want.String() {
			t.Fatalf("in steps of %d: %v, %d bytes, want %d", step, err, len(got), want.Len())
		}
	}
	if _, err := parseHead("HTTP/1.1 200\r\n"); err != nil {
		t.Errorf("a status line without a reason: %v", err)
	}
	if _, err := parseHead("HTTP/2 200 OK\r\n"); !errors.Is(err, errHTTP) {
		t.Errorf("HTTP/2 in cleartext: %v", err)
	}
}
