package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"weir/internal/discover"
	"weir/internal/sim"
)

// Sim is the word that runs a simulated backend.
type Sim struct {
	Listen string `help:"Address to listen on." default:"127.0.0.1:9001" placeholder:"ADDR"`
	Script string `help:"JSON file that says how each model behaves (docs/sim.md)." placeholder:"FILE"`
}

// Help shows how it is used.
func (Sim) Help() string {
	return `It answers like a model server that fails on command, in Chat Completions, Responses and Messages, and records every attempt:
GET /_sim/attempts shows them, POST /_sim/script replaces the script, POST /_sim/reset forgets. A single request can ask for a behaviour
in its X-Sim header.

Example:
  weir sim --listen 127.0.0.1:9001 --script faults.json`
}

// Run serves until a signal comes.
func (s *Sim) Run(ctx context.Context, std *Streams) error {
	o := sim.Options{Simulated: true, Control: true}
	if s.Script != "" {
		data, err := os.ReadFile(s.Script)
		if err != nil {
			return fmt.Errorf("--script: %w", err)
		}
		if o.Script, err = sim.ParseScript(data); err != nil {
			return fmt.Errorf("%s: %w", s.Script, err)
		}
	}
	l, err := net.Listen("tcp", s.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("--listen: %s is in use: %s; take another address", s.Listen, discover.Holder(s.Listen))
	}
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	server := sim.New(o)
	fmt.Fprintf(std.Err, "simulated backend on http://%s\n", l.Addr())
	end := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer end()
	if err := server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
