package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"weir/internal/admin"
)

// Caps is the word for capacity: caps, what vendors say of theirs, and pools that vendors merged.
type Caps struct {
	List    CapsList    `cmd:"" default:"withargs" help:"Tell caps, reroutes and merged pools; it is what weir caps alone does."`
	Confirm CapsConfirm `cmd:"" help:"Say that a merge is so: its calls count against the pool that serves, for good."`
	Undo    CapsUndo    `cmd:"" help:"Say that a merge is not so: the pool has its own cap again, and answers do not merge it anew."`
}

// Help shows how it is used.
func (Caps) Help() string {
	return `Example:
  weir caps
  weir caps confirm vendor-b`
}

// CapsList tells how capacity stands.
type CapsList struct {
	configFlag
	JSON bool `name:"json" help:"Print JSON."`
}

// Help shows how it is used.
func (CapsList) Help() string {
	return `LIVE is how many calls may run now: refusals of the vendor lower it below CAP for a while. VENDOR SAYS is what its answers told of its own
limits; Weir shows that and never trusts it above the cap. REROUTES counts answers that came from another pool or model than was asked for,
by reason: fallback (an earlier step did not answer), collapse (the pool serves that id as another model), vendor (the vendor answered
from another pool). Three of those in a row merge the pools.

Example:
  weir caps list --config weir.yaml
  weir caps --json`
}

// Run asks and prints.
func (c *CapsList) Run(ctx context.Context, std *Streams) error {
	weir, err := c.running()
	if err != nil {
		return err
	}
	var caps admin.Caps
	if err := weir.call(ctx, http.MethodGet, "/api/v1/caps", &caps); err != nil {
		return err
	}
	if caps.Warning != "" {
		fmt.Fprintln(std.Err, "weir: warning:", caps.Warning)
	}
	if c.JSON {
		return printJSON(std.Out, caps)
	}
	printCaps(std.Out, &caps)
	return nil
}

func printCaps(w io.Writer, caps *admin.Caps) {
	rows := [][]string{{"POOL", "VENDOR", "CAP", "LIVE", "IN USE", "VENDOR SAYS", "MERGED INTO", "REROUTES 30M", "REROUTES 24H"}}
	for i := range caps.Pools {
		p := &caps.Pools[i]
		rows = append(rows, []string{p.Pool, or(p.Vendor, "-"), fmt.Sprint(p.Cap), fmt.Sprint(p.Live), fmt.Sprint(p.InFlight), limitsText(p.Limits),
			or(p.MergedInto, "-"), reasonsText(p.Reroutes30m), reasonsText(p.Reroutes24h)})
	}
	printTable(w, rows)
	if len(caps.Merges) == 0 {
		return
	}
	fmt.Fprintln(w)
	rows = [][]string{{"ASKED", "SERVED BY", "VENDOR", "STATE", "SINCE", "EVIDENCE"}}
	learnt := ""
	for i := range caps.Merges {
		m := &caps.Merges[i]
		rows = append(rows, []string{m.Asked, m.Serving, m.Vendor, m.State, moment(m.Time), m.Evidence})
		if m.State == "learnt" {
			learnt = m.Asked
		}
	}
	printTable(w, rows)
	if learnt != "" {
		fmt.Fprintf(w, "\nlearnt from answers: if it is so, `weir caps confirm %[1]s`; if not, `weir caps undo %[1]s`\n", learnt)
	}
}

// limitsText tells what the vendor said of its limits.
func limitsText(l *admin.VendorLimits) string {
	if l == nil {
		return "-"
	}
	var parts []string
	part := func(what string, left, most *int64) {
		switch {
		case left != nil && most != nil:
			parts = append(parts, fmt.Sprintf("%d of %d %s left", *left, *most, what))
		case left != nil:
			parts = append(parts, fmt.Sprintf("%d %s left", *left, what))
		case most != nil:
			parts = append(parts, fmt.Sprintf("%d %s", *most, what))
		}
	}
	part("requests", l.RequestsLeft, l.Requests)
	part("tokens", l.TokensLeft, l.Tokens)
	return or(strings.Join(parts, ", "), "-")
}

// reasonsText tells counts by reason, most first: "63: 60 vendor, 3 fallback".
func reasonsText(counts map[string]int64) string {
	var total int64
	var parts []string
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for _, name := range names {
		total += counts[name]
		parts = append(parts, fmt.Sprintf("%d %s", counts[name], name))
	}
	if len(parts) < 2 {
		return or(strings.Join(parts, ""), "0")
	}
	return fmt.Sprintf("%d: %s", total, strings.Join(parts, ", "))
}

// mergeFlags name a merge by the pool that is asked.
type mergeFlags struct {
	configFlag
	Pool string `arg:"" help:"The pool that is asked and that another one serves."`
	JSON bool   `name:"json" help:"Print JSON."`
}

// CapsConfirm makes a merge the operator's word.
type CapsConfirm struct{ mergeFlags }

// Help shows how it is used.
func (CapsConfirm) Help() string {
	return `It holds against all later evidence, also for a merge that was undone, and leaves an audit row.

Example:
  weir caps confirm vendor-b`
}

// Run confirms it.
func (c *CapsConfirm) Run(ctx context.Context, std *Streams) error {
	m, err := c.change(ctx, std, "/api/v1/caps/confirm")
	if err != nil || c.JSON {
		return err
	}
	fmt.Fprintf(std.Out, "confirmed: calls of pool %s count against the cap of pool %s\n", m.Asked, m.Serving)
	return nil
}

// CapsUndo ends a merge.
type CapsUndo struct{ mergeFlags }

// Help shows how it is used.
func (CapsUndo) Help() string {
	return `Answers do not merge the two again, until weir caps confirm. It leaves an audit row.

Example:
  weir caps undo vendor-b`
}

// Run undoes it.
func (c *CapsUndo) Run(ctx context.Context, std *Streams) error {
	m, err := c.change(ctx, std, "/api/v1/caps/undo")
	if err != nil || c.JSON {
		return err
	}
	fmt.Fprintf(std.Out, "undone: calls of pool %s count against its own cap again\n", m.Asked)
	return nil
}

func (c *mergeFlags) change(ctx context.Context, std *Streams, path string) (*admin.Merge, error) {
	weir, err := c.running()
	if err != nil {
		return nil, err
	}
	var changed admin.MergeChanged
	if err := weir.send(ctx, path, map[string]string{"pool": c.Pool}, &changed); err != nil {
		return nil, err
	}
	if c.JSON {
		return nil, printJSON(std.Out, changed)
	}
	return &changed.Merge, nil
}
