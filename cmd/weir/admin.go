package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"weir/internal/admin"
	"weir/internal/config"
)

// adminLimit bounds one call of the admin API. All of them answer at once.
const adminLimit = 10 * time.Second

// running is the admin API of the Weir that a config file describes.
type running struct {
	file  string // the config file
	addr  string // of the admin listener
	token string
}

// running finds the running Weir through the config file: its admin address and, in its data folder, the token.
func (c configFlag) running() (*running, error) {
	cfg, err := c.parsed()
	if err != nil {
		return nil, err
	}
	r := &running{file: c.Config, addr: dialable(cfg.Admin)}
	r.token, err = admin.Token(cfg.Beside(cfg.Data))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("no Weir is running: its data folder %s has no token of the admin API yet; start it with `weir run --config %s`", cfg.Beside(cfg.Data), c.Config)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("the token of the admin API cannot be read: %w; run this word as the user who runs Weir", err)
	case err != nil:
		return nil, err
	}
	return r, nil
}

// parsed reads the config file alone: neither secrets nor certificates need to be there.
func (c configFlag) parsed() (*config.Config, error) {
	text, err := os.ReadFile(c.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no config file %s: name it with --config FILE, or let `weir run` write one", c.Config)
	}
	if err != nil {
		return nil, fmt.Errorf("config file: %w", err)
	}
	cfg, report := config.Parse(text, c.Config)
	if cfg == nil {
		return nil, fmt.Errorf("%w\nthe config file says where Weir and its data are: mend it first (weir check %s)", report.Err(), c.Config)
	}
	return cfg, nil
}

// dialable turns an address to listen on into one to call: every interface includes loopback.
func dialable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// call sends one request to the admin API and decodes its answer into out, unless that is nil.
func (r *running) call(ctx context.Context, method, path string, out any) error {
	return r.ask(ctx, method, path, nil, out)
}

// send makes a change: it posts in, as JSON, and decodes the answer into out, unless that is nil.
func (r *running) send(ctx context.Context, path string, in, out any) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return r.ask(ctx, http.MethodPost, path, text, out)
}

func (r *running) ask(ctx context.Context, method, path string, in []byte, out any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, adminLimit, fmt.Errorf("no answer within %s", adminLimit))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+r.addr+path, bytes.NewReader(in))
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	transport := &http.Transport{DisableKeepAlives: true} // no proxy: the token is for this machine's Weir
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return r.unreachable(ctx, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	switch {
	case resp.Header.Get("X-Weir-Request") == "":
		return fmt.Errorf("no Weir is running: something else answers on its admin address %s", r.addr)
	case resp.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("the Weir on %s does not take the token of this data folder: it runs with another config than %s", r.addr, r.file)
	case resp.StatusCode >= 300:
		return fmt.Errorf("the Weir on %s refused: %s", r.addr, refusal(resp.Status, body))
	case err != nil:
		return fmt.Errorf("the Weir on %s broke off its answer: %w", r.addr, err)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("the Weir on %s gave an answer that this version (%s) does not understand: %w", r.addr, shortVersion(), err)
	}
	return nil
}

// unreachable words why there was no answer.
func (r *running) unreachable(ctx context.Context, err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("no Weir is running: nothing listens on its admin address %s; start it with `weir run --config %s`", r.addr, r.file)
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return fmt.Errorf("the Weir on %s does not answer: %w", r.addr, err)
}

// refusal is the API's own message, else the status.
func refusal(status string, body []byte) string {
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &e) == nil && e.Error.Message != "" {
		return strings.TrimSpace(e.Error.Message)
	}
	return status
}
