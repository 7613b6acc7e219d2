package app

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/config"
	"weir/internal/sim"
)

// connect opens a connection to a listener of the gateway, from the loopback address of that last number where the test
// is on real sockets.
func (g *gateway) connect(url string, last int) net.Conn {
	g.t.Helper()
	dial := g.dial
	if g.net == nil {
		dial = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(last))}}).DialContext
	}
	c, err := dial(g.t.Context(), "tcp", url[strings.Index(url, "//")+2:])
	if err != nil {
		g.t.Fatal(err)
	}
	return c
}

// exchanged is what came back on one connection.
type exchanged struct {
	statuses []int
	bodies   []string
	headers  []http.Header
	closed   bool // the gateway ended the connection
}

// wire sends bytes and reads answers until the connection ends or is silent for a while: after an answer for as long as
// patience.
func (g *gateway) wire(url, bytes string, patience time.Duration) (x exchanged) {
	c := g.connect(url, 1)
	defer c.Close()
	var sending sync.WaitGroup
	defer sending.Wait()
	_ = c.SetWriteDeadline(time.Now().Add(5 * time.Second))
	sending.Go(func() { _, _ = io.WriteString(c, bytes) })
	in := bufio.NewReader(c)
	for {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second)) // of an answer that is on its way
		if len(x.statuses) > 0 {
			_ = c.SetReadDeadline(time.Now().Add(patience))
		}
		if _, err := in.Peek(1); err != nil {
			x.closed = !errors.Is(err, os.ErrDeadlineExceeded)
			return x
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			x.closed = true
			return x
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		x.statuses, x.bodies, x.headers = append(x.statuses, resp.StatusCode), append(x.bodies, string(body)), append(x.headers, resp.Header)
	}
}

// smuggling is one way to hide a request within a request. In its text, {H} stands for the headers that every good
// request has, {N} for the length of the body {B}, {C} for that body as one chunk and {S} for a whole second request.
type smuggling struct {
	name, text string
	refused    bool // must be answered with an error, and the connection closed; else it may also be taken as one request
}

const post = "POST /v1/chat/completions HTTP/1.1\r\n"

func smugglings() []smuggling {
	list := []smuggling{
		{"both lengths, the chunks end first", post + "{H}Content-Length: 900\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{S}", false},
		{"both lengths, the other way round", post + "{H}Transfer-Encoding: chunked\r\nContent-Length: 900\r\n\r\n0\r\n\r\n{S}", false},
		{"both lengths around a good body", post + "{H}Content-Length: {N}\r\nTransfer-Encoding: chunked\r\n\r\n{C}0\r\n\r\n{S}", false},
		{"both lengths, the request in a chunk", post + "{H}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n{S}", false},
		{"two lengths", post + "{H}Content-Length: {N}\r\nContent-Length: 5\r\n\r\n{B}{S}", true},
		{"a list of lengths", post + "{H}Content-Length: {N}, 5\r\n\r\n{B}", true},
		{"a length in a folded line", post + "{H}X: y\r\n Content-Length: 900\r\n\r\n{S}", false},
		{"a header before the first, folded", "POST /v1/chat/completions HTTP/1.1\r\n X: y\r\n{H}Content-Length: {N}\r\n\r\n{B}", true},
		{"a length with a space before the colon", post + "{H}Content-Length : {N}\r\n\r\n{B}", true},
		{"an encoding with a space before the colon", post + "{H}Transfer-Encoding : chunked\r\nContent-Length: {N}\r\n\r\n{B}", true},
		{"an encoding with a tab before the colon", post + "{H}Transfer-Encoding\t: chunked\r\nContent-Length: {N}\r\n\r\n{B}", true},
		{"an encoding over two lines", post + "{H}Transfer-Encoding:\r\n chunked\r\nContent-Length: 900\r\n\r\n0\r\n\r\n{S}", false},
		{"an encoding behind a bare LF", post + "{H}X: y\nTransfer-Encoding: chunked\r\nContent-Length: 900\r\n\r\n0\r\n\r\n{S}", false},
		{"an encoding behind a bare CR", post + "{H}X: y\rTransfer-Encoding: chunked\r\nContent-Length: {N}\r\n\r\n{B}", true},
		{"a NUL in a header", post + "{H}X: a\x00b\r\nContent-Length: {N}\r\n\r\n{B}", true},
		{"a name with a space", post + "{H}Content Length: 5\r\nContent-Length: {N}\r\n\r\n{B}", true},
		{"a name that is empty", post + "{H}: x\r\nContent-Length: {N}\r\n\r\n{B}", true},
		{"a line without a colon", post + "{H}chunked\r\nContent-Length: {N}\r\n\r\n{B}", true},
		{"two hosts", post + "{H}Host: localhost\r\nContent-Length: {N}\r\n\r\n{B}", true},
		{"a host with a path", strings.Replace(post+"{H}Content-Length: {N}\r\n\r\n{B}", "{H}", "Host: localhost/evil\r\n{h}", 1), true},
		{"trailers that name a length", post + "{H}Transfer-Encoding: chunked\r\n\r\n{C}0\r\nContent-Length: 900\r\n\r\n{S}", false},
		{"the end of the chunks without its line", post + "{H}Transfer-Encoding: chunked\r\n\r\n{C}0\r\n{S}", false},
		{"no end of the chunk's data", post + "{H}Transfer-Encoding: chunked\r\n\r\n{c}{B}0\r\n\r\n{S}", true},
		{"a bare LF behind the chunk's data", post + "{H}Transfer-Encoding: chunked\r\n\r\n{c}{B}\n0\r\n\r\n{S}", true},
		{"a GET with a body", "GET /v1/models HTTP/1.1\r\n{H}Content-Length: 900\r\n\r\n{S}", false},
		{"a refused path with a body", "POST /nowhere HTTP/1.1\r\n{H}Content-Length: 900\r\n\r\n{S}", false},
		{"HTTP/1.0 in chunks", "POST /v1/chat/completions HTTP/1.0\r\n{H}Transfer-Encoding: chunked\r\nContent-Length: 900\r\n\r\n0\r\n\r\n{S}", false},
		{"an upgrade", post + "{H}Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 900\r\n\r\n{S}", false},
		{"an expectation that is none", post + "{H}Expect: 200-maybe\r\nContent-Length: {N}\r\n\r\n{B}{S}", true},
		{"a method with a NUL", strings.Replace(post, "POST", "PO\x00ST", 1) + "{H}Content-Length: {N}\r\n\r\n{B}", true},
		{"HTTP/2 in the request line", "POST /v1/chat/completions HTTP/2.0\r\n{H}Content-Length: {N}\r\n\r\n{B}", true},
		{"HTTP/1.1 in small letters", "POST /v1/chat/completions http/1.1\r\n{H}Content-Length: {N}\r\n\r\n{B}", true},
		{"a word behind the version", "POST /v1/chat/completions HTTP/1.1 x\r\n{H}Content-Length: {N}\r\n\r\n{B}", true},
		{"two spaces in the request line", "POST  /v1/chat/completions HTTP/1.1\r\n{H}Content-Length: {N}\r\n\r\n{B}", true},
	}
	for _, v := range []string{"+{N}", "-1", "0x10", "{N} {N}", "1e3", "99999999999999999999", "{N};", "\u0660"} {
		list = append(list, smuggling{"the length " + v, post + "{H}Content-Length: " + v + "\r\n\r\n{B}{S}", true})
	}
	for _, v := range []string{"xchunked", "chunked, identity", "identity, chunked", "chunked;q=1", "\x0bchunked", "chunked\r\nTransfer-Encoding: gzip", "gzip, chunked", "identity", ""} {
		list = append(list, smuggling{fmt.Sprintf("the encoding %q", v), post + "{H}Transfer-Encoding: " + v + "\r\nContent-Length: {N}\r\n\r\n{B}", true})
	}
	for _, v := range []string{"0x5", "+5", "-5", "5_", "FFFFFFFFFFFFFFFFF", "5\n", "5;a=\n", "g", "", "5\r", "5 5"} {
		list = append(list, smuggling{fmt.Sprintf("the chunk size %q", v), post + "{H}Transfer-Encoding: chunked\r\n\r\n" + v + "\r\n{\"a\":\r\n0\r\n\r\n{S}", true})
	}
	return list
}

// text fills in the i-th case.
func (s smuggling) fill(i int, token string) string {
	body := fmt.Sprintf(`{"model":"oai-m","seed":%d,"messages":[{"role":"user","content":"hi"}]}`, i)
	second := strings.Replace(body, `"hi"`, `"smuggled"`, 1)
	rest := "Authorization: Bearer " + token + "\r\nContent-Type: application/json\r\n"
	h := "Host: localhost\r\n" + rest
	size := fmt.Sprintf("%x\r\n", len(body))
	return strings.NewReplacer("{H}", h, "{h}", rest, "{N}", fmt.Sprint(len(body)), "{B}", body, "{C}", size+body+"\r\n", "{c}", size,
		"{S}", post+h+fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(second), second)).Replace(s.text)
}

// S22: no request within a request is ever carried out, what is malformed is refused, and after it the connection ends.
func TestS22Smuggling(t *testing.T) {
	g := begin(t, setup{real: true, sims: oai(sim.Behaviour{Text: "ok"}), quiet: true, edit: func(c *config.Config) {
		c.Server.BodyTimeout = config.Duration(time.Second) // some of them announce more than they send
	}})
	list := smugglings()
	if len(list) < 40 {
		t.Fatalf("only %d cases", len(list))
	}
	var all sync.WaitGroup
	for i, s := range list {
		all.Go(func() {
			patience := 200 * time.Millisecond
			if s.refused {
				patience = 10 * time.Second // until the end, which comes at once
			}
			x := g.wire(g.url, s.fill(i, g.key), patience)
			if s.refused && (len(x.statuses) != 1 || x.statuses[0] < 400 || !x.closed) {
				t.Errorf("%s: answered %v, closed %v; want one error and the end: %q", s.name, x.statuses, x.closed, x.bodies)
			}
			if len(x.statuses) > 1 {
				t.Errorf("%s: %d answers came: %v %q", s.name, len(x.statuses), x.statuses, x.bodies)
			}
			for _, b := range x.bodies {
				if strings.Contains(b, g.key) {
					t.Errorf("%s: the answer shows the key", s.name)
				}
			}
		})
	}
	all.Wait()
	g.settle()
	seen := map[int]int{}
	for _, a := range g.sim().Calls("") {
		n := number(a.Body)
		if seen[n]++; strings.Contains(string(a.Body), "smuggled") || seen[n] > 1 {
			t.Errorf("%s: upstream saw %s", list[n].name, a.Body)
		}
		if list[n].refused {
			t.Errorf("%s: the request went upstream", list[n].name)
		}
	}
}
