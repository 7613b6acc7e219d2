package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/internal/sim"
)

// program is `weir run` as a process of its own, with one simulated backend.
type program struct {
	t        *testing.T
	cmd      *exec.Cmd
	url, key string
	out, err bytes.Buffer
	client   http.Client
}

// start runs Weir with a drain of that long before a backend that behaves like b.
func start(t *testing.T, drain string, b sim.Behaviour) *program {
	t.Helper()
	backend := sim.New(sim.Options{Script: sim.Script{On: map[string]sim.Sequence{"m": {b}}}}).Start(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "weir.yaml")
	p := &program{t: t, url: "http://" + free(t), client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
	t.Cleanup(p.client.CloseIdleConnections)
	yaml := fmt.Sprintf(`
listen: %s
admin: %s
drain: %s
log: {level: debug}
backends: {a: {url: "%s", tier: gpu, key: "${env:CANARY}"}}
pools: {a: {backend: a, cap: 200, models: [m]}}
aliases: {m: a/m}
`, strings.TrimPrefix(p.url, "http://"), free(t), drain, backend.URL())
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	add := exec.Command("weir", "keys", "add", "test", "--config", file)
	add.Env = append(os.Environ(), "CANARY=canary-backend-key")
	printed, err := add.Output()
	if err != nil {
		t.Fatalf("weir keys add: %v", err)
	}
	lines := strings.Fields(string(printed))
	p.key = lines[len(lines)-1]
	p.cmd = exec.Command("weir", "run", "--config", file)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = add.Env, &p.out, &p.err
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if resp, err := p.client.Get(p.url + "/readyz"); err == nil {
			resp.Body.Close()
			return p
		}
		if time.Now().After(deadline) {
			t.Fatalf("weir run does not listen: %s", p.err.String())
		}
	}
}

// free returns an address of loopback that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// streams opens n streams, each up to its first content, and returns what all of them said at their ends.
func (p *program) streams(n int) (wait func() []string) {
	p.t.Helper()
	said := make([]string, n)
	var opened, ended sync.WaitGroup
	for i := range n {
		opened.Add(1)
		ended.Go(func() {
			var once sync.Once
			defer once.Do(opened.Done)
			req, err := http.NewRequest("POST", p.url+"/v1/chat/completions", strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"canary prompt"}]}`))
			if err != nil {
				return
			}
			req.Header.Set("Authorization", "Bearer "+p.key)
			req.Header.Set("Content-Type", "application/json")
			resp, err := p.client.Do(req)
			if err != nil {
				said[i] = err.Error()
				return
			}
			defer resp.Body.Close()
			in := bufio.NewReader(resp.Body)
			head, _ := in.ReadString('\n')
			once.Do(opened.Done)
			rest, _ := io.ReadAll(in)
			said[i] = head + string(rest)
		})
	}
	opened.Wait()
	return func() []string { ended.Wait(); return said }
}

// signal sends SIGTERM, and again after each pause, and returns how long the process went on after the last.
func (p *program) signal(pauses ...time.Duration) (ended func() time.Duration) {
	p.t.Helper()
	for i := 0; ; i++ {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			p.t.Fatal(err)
		}
		if i == len(pauses) {
			break
		}
		time.Sleep(pauses[i])
	}
	last := time.Now()
	return func() time.Duration {
		if err := p.cmd.Wait(); err != nil {
			p.t.Errorf("weir run ended with %v: %s", err, p.err.String())
		}
		return time.Since(last)
	}
}

// F58 on the program itself: SIGTERM amid a hundred streams. Inside the time to drain none is dropped; at its limit, and at a
// second signal, each gets one error; and the process ends with 0, having told nobody a key or a prompt (S10).
func TestSIGTERMAmidAHundredStreams(t *testing.T) {
	const done, told = "data: [DONE]", `"code":"shutting_down"`
	for _, c := range []struct {
		name, drain string
		b           sim.Behaviour
		pauses      []time.Duration
		within      time.Duration // ten times what it must be
		end, not    string
	}{
		{"they end in time", "60s", sim.Behaviour{Chunks: 20, Gap: 100 * time.Millisecond}, nil, 40 * time.Second, done, `"error"`},
		{"the limit comes first", "500ms", sim.Behaviour{Endless: true, Gap: 100 * time.Millisecond}, nil, 15 * time.Second, told, done},
		{"a second signal", "10m", sim.Behaviour{Endless: true, Gap: 100 * time.Millisecond}, []time.Duration{300 * time.Millisecond}, 10 * time.Second, told, done},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := start(t, c.drain, c.b)
			wait := p.streams(100)
			ended := p.signal(c.pauses...)
			for i, s := range wait() {
				if strings.Count(s, c.end) != 1 || strings.Contains(s, c.not) {
					t.Errorf("stream %d ended with %q", i, s[max(0, len(s)-200):])
				}
			}
			if took := ended(); took > c.within {
				t.Errorf("the process ended %v after the signal", took)
			}
			if n := strings.Count(p.out.String(), `"event":"end"`); n < 100 {
				t.Errorf("%d end events of 100 streams were written", n)
			}
			for _, secret := range []string{"canary-backend-key", "canary prompt", p.key} {
				if strings.Contains(p.out.String()+p.err.String(), secret) {
					t.Errorf("%q was printed", secret)
				}
			}
		})
	}
}
