package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"weir/internal/admin"
)

// Pools is the word that tells how each pool of the running Weir stands.
type Pools struct {
	configFlag
	JSON bool `name:"json" help:"Print JSON."`
}

// Help shows how it is used.
func (Pools) Help() string {
	return `CAP is how many calls may run now, of the cap that is configured: refusals of the vendor lower it for a while. A rate that was
not measured yet is a guess by tier. What is not in is said below the table, with its reason.

Example:
  weir pools --config weir.yaml
  weir pools --json`
}

// Run asks and prints.
func (c *Pools) Run(ctx context.Context, std *Streams) error {
	weir, err := c.running()
	if err != nil {
		return err
	}
	var answer struct {
		Pools []admin.PoolState `json:"pools"`
	}
	if err := weir.call(ctx, http.MethodGet, "/api/v1/pools", &answer); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(std.Out, answer)
	}
	printPools(std.Out, answer.Pools)
	return nil
}

func printPools(w io.Writer, pools []admin.PoolState) {
	rows := [][]string{{"POOL", "TIER", "STATE", "CAP", "IN USE", "WAITING", "PREFILL", "OUTPUT", "BACKENDS"}}
	var notes []string
	for i := range pools {
		p := &pools[i]
		rows = append(rows, []string{p.Name, p.Tier, p.State, capText(p.Live, p.Cap), inUse(p), fmt.Sprintf("%d of %d", p.Waiting, p.Queue),
			prefillText(&p.Pool), outputText(p.Output), backendsText(p.Backends)})
		notes = append(notes, poolNotes(p)...)
	}
	printTable(w, rows)
	if len(notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, n := range notes {
		fmt.Fprintln(w, n)
	}
}

func capText(live, most int) string {
	if live == most {
		return fmt.Sprint(most)
	}
	return fmt.Sprintf("%d of %d", live, most)
}

// inUse tells running calls, and where they count if that is another pool.
func inUse(p *admin.PoolState) string {
	if p.MergedInto != "" {
		return fmt.Sprintf("%d, in %s", p.Own, p.MergedInto)
	}
	return fmt.Sprint(p.InFlight)
}

func prefillText(p *admin.Pool) string {
	if !p.Measured {
		return fmt.Sprintf("%.0f/s (guess)", p.Prefill)
	}
	return fmt.Sprintf("%.0f/s", p.Prefill)
}

func outputText(perSecond float64) string {
	switch {
	case perSecond <= 0:
		return "-"
	case perSecond < 10:
		return fmt.Sprintf("%.1f/s", perSecond)
	}
	return fmt.Sprintf("%.0f/s", perSecond)
}

func backendsText(list []admin.Backend) string {
	var names []string
	for i := range list {
		name := list[i].Name
		if list[i].State != "in" {
			name += "(" + list[i].State + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// poolNotes are the lines below the table: what is not in, and why.
func poolNotes(p *admin.PoolState) (notes []string) {
	note := func(who, state, why string, until time.Time) {
		line := who + " is " + state
		if why != "" {
			line += ": " + why
		}
		if !until.IsZero() && !strings.Contains(why, "until") {
			line += "; until " + moment(until)
		}
		notes = append(notes, line)
	}
	if p.State != "in" {
		note("pool "+p.Name, p.State, p.Why, p.Until)
	}
	for i := range p.Backends {
		b := &p.Backends[i]
		if b.State == "in" || p.Out != nil {
			continue
		}
		why := b.Why
		if why == "" && b.Kind != "" {
			why = fmt.Sprintf("%s, the last time at %s; out %s in a row", b.Kind, b.Since.Local().Format("15:04:05"), count(b.Strikes, "time"))
		}
		note("backend "+b.Name+" of pool "+p.Name, b.State, why, b.Until)
	}
	if len(p.Gone) > 0 {
		notes = append(notes, fmt.Sprintf("pool %s does not have any more: %s", p.Name, strings.Join(p.Gone, ", ")))
	}
	return notes
}

// Pool is the word that takes pools and backends out by hand.
type Pool struct {
	Out PoolOut `cmd:"" help:"Take a pool, or one backend of it, out: running calls go on, new ones take the next step."`
	In  PoolIn  `cmd:"" help:"Put a pool, or one backend of it, back."`
}

// Help shows how it is used.
func (Pool) Help() string {
	return `Example:
  weir pool out big --for 1h --why "new power supply"
  weir pool in big`
}

// handFlags name what is taken out or put back.
type handFlags struct {
	configFlag
	Pool    string `arg:"" help:"The pool."`
	Backend string `arg:"" optional:"" help:"One backend of it (default: the whole pool)."`
	Why     string `help:"The reason, for others: it is in events, and in the errors of clients." placeholder:"TEXT"`
	JSON    bool   `name:"json" help:"Print JSON: how the pool stands then."`
}

// handBody is what the admin API gets.
type handBody struct {
	Pool    string `json:"pool"`
	Backend string `json:"backend,omitempty"`
	For     string `json:"for,omitempty"`
	Why     string `json:"why,omitempty"`
}

// PoolOut takes a pool or backend out.
type PoolOut struct {
	handFlags
	For string `help:"Time after which it is in again by itself, such as 1h (default: when it is put back)." placeholder:"TIME"`
}

// Help shows how it is used.
func (PoolOut) Help() string {
	return `Running calls go on; who waits for the pool, and who comes later, takes the next step of the route at once. Where it is the last
step, clients get 503 with the reason. It is so after a restart too, and leaves an audit row. The word returns at once: the column
IN USE of weir pools says when the last call has ended.

Example:
  weir pool out big --for 1h --why "new power supply"
  weir pool out big gpu-2 --config weir.yaml`
}

// Run takes it out.
func (c *PoolOut) Run(ctx context.Context, std *Streams) error {
	d, err := span("--for", c.For)
	if err != nil {
		return err
	}
	in := handBody{Pool: c.Pool, Backend: c.Backend, Why: c.Why}
	if d > 0 {
		in.For = c.For
	}
	p, err := c.order(ctx, std, "/api/v1/pools/out", in)
	if err != nil || c.JSON {
		return err
	}
	out := p.Out
	for i := range p.Backends {
		if p.Backends[i].Name == c.Backend {
			out = p.Backends[i].Out
		}
	}
	end := "until it is put back with `weir pool in " + strings.TrimSpace(c.Pool+" "+c.Backend) + "`"
	if out != nil && !out.Until.IsZero() {
		end = "until " + moment(out.Until)
	}
	fmt.Fprintf(std.Out, "%s is out, %s; %s\n", c.what(), end, c.runs(p))
	return nil
}

// PoolIn puts a pool or backend back.
type PoolIn struct {
	handFlags
}

// Help shows how it is used.
func (PoolIn) Help() string {
	return `It undoes weir pool out. A pool's name alone puts back the pool and all of its backends that were taken out by hand. What failed by
itself comes back by itself: it is not touched.

Example:
  weir pool in big
  weir pool in big gpu-2 --why "mended"`
}

// Run puts it back.
func (c *PoolIn) Run(ctx context.Context, std *Streams) error {
	p, err := c.order(ctx, std, "/api/v1/pools/in", handBody{Pool: c.Pool, Backend: c.Backend, Why: c.Why})
	if err != nil || c.JSON {
		return err
	}
	fmt.Fprintf(std.Out, "%s is not out by hand any more", c.what())
	if p.State != "in" {
		fmt.Fprintf(std.Out, "; the pool is: %s", p.State)
	}
	fmt.Fprintln(std.Out)
	return nil
}

// order sends the order and prints what is the same for both words.
func (c *handFlags) order(ctx context.Context, std *Streams, path string, in handBody) (*admin.PoolState, error) {
	weir, err := c.running()
	if err != nil {
		return nil, err
	}
	var changed admin.Changed
	if err := weir.send(ctx, path, in, &changed); err != nil {
		return nil, err
	}
	if changed.Warning != "" {
		fmt.Fprintln(std.Err, "weir: warning:", changed.Warning)
	}
	if c.JSON {
		return nil, printJSON(std.Out, changed)
	}
	return &changed.Pool, nil
}

func (c *handFlags) what() string {
	if c.Backend != "" {
		return fmt.Sprintf("backend %s of pool %s", c.Backend, c.Pool)
	}
	return "pool " + c.Pool
}

// runs tells how many calls still run on what was taken out.
func (c *handFlags) runs(p *admin.PoolState) string {
	n := p.Own
	for i := range p.Backends {
		if p.Backends[i].Name == c.Backend {
			n = p.Backends[i].InFlight
		}
	}
	verb := "go on"
	if n == 1 {
		verb = "goes on"
	}
	return count(n, "running call") + " " + verb
}
