package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	readyWithin = 15 * time.Second // a program that takes longer to serve is broken
	stopWithin  = 8 * time.Second  // after SIGTERM, before it is killed
)

// program is something to start: its command line, and where it answers.
type program struct {
	name  string
	path  string
	args  []string
	core  int
	addr  string
	key   string // of the client, "" for none
	ready string // path that answers 200 once it serves
	logs  string // folder for what it writes on stderr
}

// process is a started program. Its owner must call stop.
type process struct {
	program
	cmd  *exec.Cmd
	logs string
	done chan struct{} // closed when it has ended
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// start runs a program on its core, with no environment that could tune it. The
// caller must be locked to its thread: the child takes the thread's core, and
// ends with the thread.
func start(p program) (*process, error) {
	if err := pinThread(p.core); err != nil {
		return nil, err
	}
	stderr, err := os.Create(filepath.Join(p.logs, p.name+".stderr"))
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	cmd := exec.Command(p.path, p.args...)
	cmd.Stderr = stderr // and stdout, the event lines, to the null device
	cmd.SysProcAttr = childAttr()
	cmd.Env = plainEnv()
	cmd.Dir = p.logs
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pr := &process{program: p, cmd: cmd, logs: stderr.Name(), done: make(chan struct{})}
	go func() {
		defer close(pr.done)
		_ = cmd.Wait()
	}()
	return pr, nil
}

// plainEnv keeps what programs need to run, and nothing that would change how
// they do: no GOGC, no GOMAXPROCS, no proxies, no secrets.
func plainEnv() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// stop ends the process and waits for it: politely first, then by force.
func (p *process) stop() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	t := time.NewTimer(stopWithin)
	defer t.Stop()
	select {
	case <-p.done:
		return
	case <-t.C:
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}

// tail is the end of what the process wrote on stderr.
func (p *process) tail() string {
	b, err := os.ReadFile(p.logs)
	b = bytes.TrimSpace(b)
	if err != nil || len(b) == 0 {
		return "it wrote nothing on stderr"
	}
	return "stderr ends with: " + string(b[max(0, len(b)-800):])
}

// await polls until the process answers 200 on its ready path.
func (p *process) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyWithin, fmt.Errorf("not ready within %v", readyWithin))
	defer cancel()
	hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return p.poll(ctx, 5*time.Millisecond, func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+p.ready, nil)
		if err != nil {
			return err
		}
		resp, err := hc.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %d", p.ready, resp.StatusCode)
		}
		return nil
	})
}

// poll repeats try until it succeeds, the process ends or ctx does.
func (p *process) poll(ctx context.Context, every time.Duration, try func() error) error {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended before it served; %s", p.name, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s: %w (last: %w); %s", p.name, context.Cause(ctx), err, p.tail())
		case <-t.C:
		}
	}
}

// output runs a short word of a program and returns what it printed.
func output(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = plainEnv()
	out, err := cmd.Output()
	if err == nil {
		return string(out), nil
	}
	detail := strings.TrimSpace(string(out))
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		detail = strings.TrimSpace(detail + "\n" + string(exit.Stderr))
	}
	return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(path), strings.Join(args, " "), err, detail)
}

// freeAddr finds a loopback address nobody listens on. It stays below the ports
// the kernel gives to connections: a gateway that is started anew must find its
// port free.
func freeAddr(ctx context.Context) (string, error) {
	for range 200 {
		addr := fmt.Sprintf("127.0.0.1:%d", 18_000+rand.IntN(14_000))
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		if err == nil {
			return addr, ln.Close()
		}
	}
	return "", errors.New("no free port between 18000 and 32000 on 127.0.0.1")
}
