package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"weir/internal/admin"
)

// Status is the word that tells how the running Weir stands.
type Status struct {
	configFlag
	JSON bool `name:"json" help:"Print JSON."`
}

// Help shows how it is used.
func (Status) Help() string {
	return `It asks the running Weir through the admin address and the data folder of the config file. Exit code 1 says that none runs.

Example:
  weir status --config weir.yaml
  weir status --json`
}

// Run asks and prints.
func (c *Status) Run(ctx context.Context, std *Streams) error {
	weir, err := c.running()
	if err != nil {
		return err
	}
	var s admin.Status
	if err := weir.call(ctx, http.MethodGet, "/api/v1/status", &s); err != nil {
		return err
	}
	if c.JSON {
		enc := json.NewEncoder(std.Out)
		enc.SetIndent("", "  ")
		return enc.Encode(s)
	}
	printStatus(std.Out, &s)
	return nil
}

func printStatus(w io.Writer, s *admin.Status) {
	state := "ready"
	if !s.Ready {
		state = "draining: no new requests"
	}
	fmt.Fprintf(w, "weir %s, up %s, %s\n", s.Version, s.Uptime.Round(time.Second), state)
	fmt.Fprintf(w, "listen %s, admin %s, config %s\n", s.Listen, s.Admin, s.Config)
	fmt.Fprintf(w, "%s running, %s\n", count(int(s.Running), "request"), count(s.Keys, "usable key"))
	if s.Simulated {
		fmt.Fprintln(w, "SIMULATED: answers come from built-in backends, not from a model")
	}
	for reader, n := range s.Dropped {
		if n > 0 {
			fmt.Fprintf(w, "%d events were dropped before %s: it is slower than what happens\n", n, reader)
		}
	}
	if len(s.Pools) == 0 {
		return
	}
	fmt.Fprintln(w)
	rows := [][]string{{"POOL", "TIER", "STATE", "IN USE", "WAITING", "REFUSED", "PREFILL", "BACKENDS"}}
	for i := range s.Pools {
		p := &s.Pools[i]
		prefill := fmt.Sprintf("%.0f/s", p.Prefill)
		if !p.Measured {
			prefill += " (guess)"
		}
		rows = append(rows, []string{p.Name, p.Tier, p.State, fmt.Sprintf("%d of %d", p.InFlight, p.Cap), fmt.Sprintf("%d of %d", p.Waiting, p.Queue),
			fmt.Sprint(p.RefusedFull + p.RefusedLate), prefill, strings.Join(p.Backends, " ")})
	}
	printTable(w, rows)
}
