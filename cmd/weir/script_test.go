package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// scriptWords are what scripts need beside weir itself.
var scriptWords = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"ports":  ports,
	"until":  listening,
	"ask":    ask,
	"expand": expand,
	"term":   term,
}

// ports sets each variable to a free address of loopback: ports NAME...
func ports(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		ts.Check(err)
		defer l.Close() // at the end, so that all are different
		ts.Setenv(name, l.Addr().String())
	}
}

// listening waits until something listens: until ADDR
func listening(ts *testscript.TestScript, neg bool, args []string) {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		c, err := net.DialTimeout("tcp", args[0], time.Second)
		if err == nil {
			c.Close()
		}
		if (err == nil) != neg {
			return
		}
	}
	ts.Fatalf("%s: listening is not as wanted", args[0])
}

// expand replaces the variables in a file by their values: expand FILE
func expand(ts *testscript.TestScript, _ bool, args []string) {
	text := os.Expand(ts.ReadFile(args[0]), ts.Getenv)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

// term sends SIGTERM to the Weir that holds a data folder: term LOCK-FILE
func term(ts *testscript.TestScript, _ bool, args []string) {
	var pid int
	_, err := fmt.Sscanf(ts.ReadFile(args[0]), "pid %d since", &pid)
	ts.Check(err)
	ts.Check(syscall.Kill(pid, syscall.SIGTERM))
}

// ask sends a request and writes status, headers and body of the answer: ask FILE URL KEY-FILE [BODY]. The key is the last
// line of its file. A new key is known within a second: until then ask tries again.
func ask(ts *testscript.TestScript, _ bool, args []string) {
	method, body := http.MethodGet, ""
	if len(args) > 3 {
		method, body = http.MethodPost, args[3]
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		out := send(ts, method, args[1], args[2], body)
		ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(out), 0o600))
		if !strings.HasPrefix(out, "401 ") || time.Now().After(deadline) {
			return
		}
	}
}

func send(ts *testscript.TestScript, method, url, keyFile, body string) string {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	ts.Check(err)
	lines := strings.Split(strings.TrimSpace(ts.ReadFile(keyFile)), "\n")
	req.Header.Set("Authorization", "Bearer "+lines[len(lines)-1])
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	ts.Check(err)
	defer resp.Body.Close()
	var out strings.Builder
	out.WriteString(resp.Status + "\n")
	ts.Check(resp.Header.Write(&out))
	out.WriteString("\n")
	_, err = io.Copy(&out, resp.Body)
	ts.Check(err)
	return out.String()
}
