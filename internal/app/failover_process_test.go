package app

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// child is a Weir as a program of its own.
type child struct {
	t    *testing.T
	cmd  *exec.Cmd
	addr string
	out  lockedBuffer
}

type lockedBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// startChild builds weir and runs it with so many files.
func startChild(t *testing.T, files int, upstream string) *child {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "weir")
	if out, err := exec.Command("go", "build", "-o", bin, "weir/cmd/weir").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	c := &child{t: t, addr: freeAddr(t)}
	yaml := fmt.Sprintf("listen: %s\nadmin: %s\nauth: {keys: off}\nbackends:\n  a: {url: %q, tier: gpu}\npools:\n  a: {backend: a, cap: 64, models: [m]}\n", c.addr, freeAddr(t), upstream)
	if err := os.WriteFile(filepath.Join(dir, "weir.yaml"), []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	c.cmd = exec.Command("sh", "-c", fmt.Sprintf("ulimit -n %d && exec %s run --config weir.yaml", files, bin))
	c.cmd.Dir, c.cmd.Stdout, c.cmd.Stderr = dir, &c.out, &c.out
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	for deadline := time.Now().Add(30 * time.Second); c.ask(time.Second) != 200; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("weir does not serve:\n%s", c.out.String())
		}
	}
	return c
}

func (c *child) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	time.AfterFunc(10*time.Second, func() { _ = c.cmd.Process.Kill() })
	if err := c.cmd.Wait(); err != nil {
		c.t.Errorf("weir ended with %v:\n%s", err, c.out.String())
	}
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// ask makes one request on a connection of its own and returns its status, 0 for none.
func (c *child) ask(within time.Duration) int {
	conn, err := net.DialTimeout("tcp", c.addr, within)
	if err != nil {
		return 0
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(within))
	status, _ := askOn(conn, bufio.NewReader(conn), true)
	return status
}

// askOn makes one request on a connection.
func askOn(conn net.Conn, in *bufio.Reader, last bool) (status int, body string) {
	text := `{"model":"a/m","messages":[{"role":"user","content":"hi"}]}`
	end := ""
	if last {
		end = "Connection: close\r\n"
	}
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", end, len(text), text)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// ticks returns the processor time that the child has used, in hundredths of a second.
func (c *child) ticks() (n int) {
	c.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if err != nil {
		c.t.Fatal(err)
	}
	var user, system int
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	_, _ = fmt.Sscan(fields[11], &user)
	_, _ = fmt.Sscan(fields[12], &system)
	return user + system
}

// F54: out of file descriptors Weir does not spin; who is connected is told 503; within two seconds of their return
// everything is served again, ten times over, and the backend was not blamed.
func TestF54OutOfFiles(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close") // so that each request needs a connection of its own
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, answer)
	}))
	defer up.Close()
	c := startChild(t, 48, up.URL)
	kept, err := net.Dial("tcp", c.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	in := bufio.NewReader(kept)
	for i := range 10 {
		_ = kept.SetDeadline(time.Now().Add(10 * time.Second))
		if status, body := askOn(kept, in, false); status != 200 {
			t.Fatalf("round %d: %d %s", i, status, body)
		}
		var hogs []net.Conn
		for range 80 {
			h, err := net.Dial("tcp", c.addr)
			if err != nil {
				t.Fatal(err)
			}
			hogs = append(hogs, h)
		}
		time.Sleep(100 * time.Millisecond)
		before := c.ticks()
		for range 6 {
			if status, body := askOn(kept, in, false); status != 503 || !strings.Contains(body, "file") {
				t.Errorf("round %d, without files: %d %s", i, status, body)
			}
		}
		time.Sleep(200 * time.Millisecond)
		if used := c.ticks() - before; used > 10 {
			t.Errorf("round %d: %d ms of processor time in 200 ms without files", i, used*10)
		}
		for _, h := range hogs {
			h.Close()
		}
		start := time.Now()
		for c.ask(2*time.Second) != 200 {
			if time.Since(start) > 2*time.Second {
				t.Fatalf("round %d: not back 2 s after the files are", i)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	c.unblamed()
}

// unblamed checks that no event says that the backend was taken out.
func (c *child) unblamed() {
	c.t.Helper()
	for _, line := range strings.Split(c.out.String(), "\n") {
		var e struct{ Event, Reason string }
		if json.Unmarshal([]byte(line), &e) == nil && slices.Contains([]string{"health", "alert"}, e.Event) {
			c.t.Errorf("I12: %s", line)
		}
	}
}
