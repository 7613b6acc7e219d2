package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weir/internal/config"
	"weir/internal/report"
	"weir/internal/spend"
	"weir/internal/store"
)

// Report is the word that sums up a period. It reads the store beside a running Weir.
type Report struct {
	configFlag
	Since     string `help:"Only the last so long, such as 40h or 7d; 0 is all that is kept." default:"24h" placeholder:"TIME"`
	Reference string `help:"What the same tokens would have cost on this: a model id, POOL/MODEL or a pool (default: the dearest that answered)." placeholder:"MODEL"`
	JSON      bool   `name:"json" help:"Print JSON." xor:"form"`
	HTML      string `name:"html" help:"Write a page with plots into this file." placeholder:"FILE" xor:"form"`
}

// Help shows how it is used.
func (Report) Help() string {
	return `Requests, failure rate, latency, tokens and cost by class, tier and pool, what it would have cost on one model, reroutes, outages,
alerts, changes by hand, the slowest and the last failed requests. The page needs nothing else: it can be sent and printed. Prices
are those of the config file as it is now.

Example:
  weir report --since 40h
  weir report --since 7d --html week.html --reference anthropic/claude-opus-4
  weir report --since 24h --json`
}

// Run reads the store, sums up and prints.
func (c *Report) Run(ctx context.Context, std *Streams) error {
	since, err := span("--since", c.Since)
	if err != nil {
		return err
	}
	cfg, err := c.parsed()
	if err != nil {
		return err
	}
	st, err := store.Open(ctx, cfg.Beside(cfg.Data), store.Options{ReadOnly: true})
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("nothing was recorded yet: %w", err)
	}
	if err != nil {
		return err
	}
	defer st.Close()
	rates := &rates{cfg, spend.NewPrices(cfg)}
	o := report.Options{Until: time.Now(), Location: time.Local, Reference: c.Reference, Prices: rates.of}
	if c.Reference != "" {
		o.Price = rates.named(c.Reference)
	}
	if since > 0 {
		o.Since = o.Until.Add(-since)
	}
	r, err := report.New(ctx, st, o)
	if err != nil {
		return err
	}
	return c.write(std, r)
}

// write prints the report in the form that was asked for.
func (c *Report) write(std *Streams, r *report.Report) error {
	switch {
	case c.JSON:
		return r.WriteJSON(std.Out)
	case c.HTML == "":
		return r.WriteText(std.Out)
	}
	if err := writePrivate(c.HTML, r.WriteHTML); err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	if r.Empty() {
		fmt.Fprintln(std.Out, "nothing was recorded in this period")
	}
	fmt.Fprintln(std.Out, "written:", c.HTML)
	return nil
}

// writePrivate writes a file that only its owner can read, whole or not at all, in place of an older one.
func writePrivate(name string, write func(io.Writer) error) error {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file: name one that may be written", name)
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".weir-*") // its mode is 0600
	if err != nil {
		return err
	}
	if err = errors.Join(write(f), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// rates are the prices of the config file as a report asks for them.
type rates struct {
	cfg    *config.Config
	prices *spend.Prices
}

// of returns the price of a model in a pool; nil where it is unknown.
func (r *rates) of(pool, model string) report.Price {
	sent := model
	if p := r.cfg.Pools[pool]; p != nil {
		if id, ok := p.Sent(model); ok {
			sent = id
		}
	}
	price := r.prices.For(pool, model, sent)
	if price == nil {
		return nil
	}
	return func(t report.Tokens) (int64, bool) {
		return price.Cost(spend.Usage{In: t.In, Out: t.Out, Cached: t.Cached, Written: t.Written})
	}
}

// named returns the price of what a person named: an id with a price, a model of a pool, a pool, or a model that some pool
// serves; nil where none of them has one.
func (r *rates) named(name string) report.Price {
	pool, model, _ := strings.Cut(name, "/")
	tries := [][2]string{{"", name}, {pool, model}}
	for _, p := range slices.Sorted(maps.Keys(r.cfg.Pools)) {
		if _, serves := r.cfg.Pools[p].Sent(name); serves {
			tries = append(tries, [2]string{p, name})
		}
	}
	for _, t := range tries {
		if t[0] != "" && r.cfg.Pools[t[0]] == nil {
			continue
		}
		if price := r.of(t[0], t[1]); price != nil {
			return price
		}
	}
	return nil
}
