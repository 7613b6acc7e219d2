package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"weir/internal/admin"
)

// Drain is the word that ends the running Weir gently.
type Drain struct {
	configFlag
	JSON bool `name:"json" help:"Print JSON."`
}

// Help shows how it is used.
func (Drain) Help() string {
	return `The running Weir takes no new requests; running ones may finish within the limit drain of the config, then it ends. It is what
SIGTERM does, through the admin API, and leaves an audit row. The word returns at once.

Example:
  weir drain --config weir.yaml`
}

// drained is what --json prints.
type drained struct {
	Draining bool  `json:"draining"`
	Running  int64 `json:"running"`
}

// Run asks the running Weir to drain.
func (c *Drain) Run(ctx context.Context, std *Streams) error {
	weir, err := c.running()
	if err != nil {
		return err
	}
	var s admin.Status
	if err := weir.call(ctx, http.MethodGet, "/api/v1/status", &s); err != nil {
		return err
	}
	if err := weir.call(ctx, http.MethodPost, "/api/v1/drain", nil); err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(std.Out).Encode(drained{Draining: true, Running: s.Running})
	}
	fmt.Fprintf(std.Out, "draining: %s may finish, then Weir ends\n", count(int(s.Running), "running request"))
	return nil
}
