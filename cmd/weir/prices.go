package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"weir/internal/config"
)

// Prices is the word for the prices of models in the config file.
type Prices struct {
	Import PricesImport `cmd:"" help:"Read a public price file and write what your pools serve into the config file."`
}

// Help shows how it is used.
func (Prices) Help() string {
	return `Example:
  weir prices import api.json --config weir.yaml --dry-run`
}

// PricesImport writes the section prices of the config file from a price file.
type PricesImport struct {
	configFlag
	File   string `arg:"" help:"The price file that you have: LiteLLM's, or the api.json of models.dev."`
	All    bool   `help:"Write every model of the file, not only those that your pools outside serve."`
	AsOf   string `help:"The day of these prices (default: when the file was last changed)." placeholder:"YYYY-MM-DD"`
	DryRun bool   `help:"Only tell what would be written."`
	JSON   bool   `name:"json" help:"Print JSON."`
}

// Help shows how it is used.
func (PricesImport) Help() string {
	return `Weir fetches nothing: you download the file. Which of the two forms it has is told by itself. Prices are written for the ids
that pools outside serve, as they are sent upstream; where several vendors ask different prices for one id, the one whose host
is the backend's counts, and where that cannot be told the id is left out. Entries that the file does not name stay.
The section prices is written anew, without comments within it; everything else in the file keeps its bytes. A pool's own
price goes before these. A running Weir reads them at its next start.

Example:
  weir prices import model_prices_and_context_window.json --config weir.yaml --dry-run
  weir prices import api.json --as-of 2026-11-30`
}

// imported is what an import found, and what --json prints.
type imported struct {
	File    string     `json:"file"`
	Form    string     `json:"form"`
	AsOf    string     `json:"as_of"`
	Config  string     `json:"config"`
	Written bool       `json:"written"` // false: nothing had to change, or it was a dry run
	Models  []priceRow `json:"models"`
	Left    []leftOut  `json:"left_out"`
	Notes   []string   `json:"notes"`
}

// priceRow is one price as it stands in the file afterwards.
type priceRow struct {
	ID      string       `json:"id"`
	In      *json.Number `json:"in"` // USD per million tokens; null: unknown
	Out     *json.Number `json:"out"`
	Cached  *json.Number `json:"cached"`
	Written *json.Number `json:"written"`
	Was     *priceRow    `json:"was"`            // null: it had none
	From    string       `json:"from,omitempty"` // what the price file calls it; empty: the file does not name it
}

// leftOut is an id without a price, and why.
type leftOut struct {
	ID  string `json:"id"`
	Why string `json:"why"`
}

// Run reads both files, picks, writes and tells.
func (c *PricesImport) Run(std *Streams) error {
	list, day, err := c.prices()
	if err != nil {
		return err
	}
	cfg, err := c.parsed()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(c.Config)
	if err != nil {
		return fmt.Errorf("config file: %w", err)
	}
	found := &imported{File: c.File, Form: list.form, AsOf: day, Config: c.Config, Models: []priceRow{}, Left: []leftOut{}, Notes: []string{}}
	prices := found.pick(list, cfg, c.All)
	if !slices.ContainsFunc(found.Models, func(r priceRow) bool { return r.From != "" }) {
		found.tellLeft(std.Err)
		return fmt.Errorf("%s names no price for any model that a pool outside serves: nothing was written", c.File)
	}
	if !sameModels(cfg.Prices.Models, prices.Models) || cfg.Prices.AsOf != day {
		if err := c.write(text, prices, found); err != nil {
			return err
		}
	}
	if c.JSON {
		enc := json.NewEncoder(std.Out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(found)
	}
	found.tellLeft(std.Err)
	found.table(std.Out)
	c.end(std.Out, found)
	return nil
}

// prices reads the price file and the day of its prices.
func (c *PricesImport) prices() (*priceList, string, error) {
	f, err := os.Open(c.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("there is no price file %s: download it first, Weir fetches none", c.File)
	}
	if err != nil {
		return nil, "", fmt.Errorf("price file: %w", err)
	}
	defer f.Close()
	list, err := readPriceList(f)
	if err != nil {
		return nil, "", fmt.Errorf("price file %s: %w", c.File, err)
	}
	if c.AsOf != "" {
		if _, err := time.Parse(time.DateOnly, c.AsOf); err != nil {
			return nil, "", usageError(fmt.Sprintf("--as-of %q: must be a day such as 2026-11-30", c.AsOf))
		}
		return list, c.AsOf, nil
	}
	info, err := f.Stat()
	if err != nil {
		return nil, "", fmt.Errorf("price file: %w", err)
	}
	return list, info.ModTime().UTC().Format(time.DateOnly), nil
}

// write puts the prices into the config file, or only tries it in a dry run.
func (c *PricesImport) write(text []byte, prices config.Prices, found *imported) error {
	edited, err := config.SetPrices(text, c.Config, prices)
	if err != nil || c.DryRun {
		return err
	}
	found.Written = true
	return config.Save(c.Config, text, edited)
}

// pick makes the section: what the file offers for the pools' ids, or for all, beside what stands there already.
func (f *imported) pick(list *priceList, cfg *config.Config, all bool) config.Prices {
	from := map[string]*offer{}
	if all {
		var several int
		if from, several = list.every(); several > 0 {
			f.Notes = append(f.Notes, count(several, "id")+" of the file stand at several prices and were left out, but for those of your pools")
		}
	}
	for _, w := range wanted(cfg) {
		o, err := list.pick(w)
		if err != nil {
			delete(from, w.id)
			f.Left = append(f.Left, leftOut{w.id, err.Error()})
			continue
		}
		from[w.id] = o
		if o.dearer {
			f.Notes = append(f.Notes, fmt.Sprintf("%s costs more for long prompts; Weir counts the price of short ones", o.name))
		}
	}
	prices := config.Prices{AsOf: f.AsOf, Models: maps.Clone(cfg.Prices.Models)}
	if prices.Models == nil {
		prices.Models = map[string]*config.Price{}
	}
	for id, o := range from {
		prices.Models[id] = &o.price
	}
	for _, id := range slices.Sorted(maps.Keys(prices.Models)) {
		row := rowOf(id, prices.Models[id])
		if was := cfg.Prices.Models[id]; was != nil {
			old := rowOf(id, was)
			row.Was = &old
		}
		if o := from[id]; o != nil {
			row.From = o.name
		}
		f.Models = append(f.Models, row)
	}
	f.notePools(cfg, prices, all)
	return prices
}

// notePools tells of pools to which the prices do not do what their owner may think.
func (f *imported) notePools(cfg *config.Config, prices config.Prices, all bool) {
	for _, name := range slices.Sorted(maps.Keys(cfg.Pools)) {
		pool := cfg.Pools[name]
		if cfg.Backends[pool.Names()[0]].IsOutside() {
			if _, any := pool.Sent("*"); any && !all {
				f.Notes = append(f.Notes, fmt.Sprintf("pool %s takes any id: only ids that steps and aliases name were looked up; --all writes every one", name))
			}
			continue
		}
		for _, m := range pool.Models {
			if id := cmp.Or(m.ServedAs, m.ID); pool.Price == nil && (prices.Models[id] != nil || prices.Models[m.ID] != nil) {
				f.Notes = append(f.Notes, fmt.Sprintf("pool %s is your own, but %s has a price now, which it counts too: give the pool price: {in: 0, out: 0} if it costs nothing", name, id))
			}
		}
	}
}

// sameModels reports whether two lists of prices say the same.
func sameModels(a, b map[string]*config.Price) bool {
	return len(a) == len(b) && reflect.DeepEqual(a, b)
}

// rowOf returns a price as it is told.
func rowOf(id string, p *config.Price) priceRow {
	n := func(u *config.USD) *json.Number {
		if u == nil {
			return nil
		}
		number := json.Number(u.String())
		return &number
	}
	return priceRow{ID: id, In: n(p.In), Out: n(p.Out), Cached: n(p.Cached), Written: n(p.Written)}
}

// table prints the prices.
func (f *imported) table(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tIN\tOUT\tCACHED\tWRITTEN\tWAS\tFROM")
	for _, r := range f.Models {
		was := "none"
		switch {
		case r.Was == nil:
		case r.Was.text("/") == r.text("/"):
			was = "same"
		default:
			was = r.Was.text("/")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", r.ID, r.text("\t"), was, cmp.Or(r.From, "(kept)"))
	}
	t.Flush()
}

// text joins the four amounts; - is unknown.
func (r *priceRow) text(sep string) string {
	var parts []string
	for _, n := range []*json.Number{r.In, r.Out, r.Cached, r.Written} {
		if n == nil {
			parts = append(parts, "-")
			continue
		}
		parts = append(parts, n.String())
	}
	return strings.Join(parts, sep)
}

// tellLeft prints what has no price, and the notes.
func (f *imported) tellLeft(w io.Writer) {
	for _, l := range f.Left {
		fmt.Fprintf(w, "left out: %s: %s\n", l.ID, l.Why)
	}
	for _, n := range f.Notes {
		fmt.Fprintln(w, "note:", n)
	}
}

// end prints what became of it.
func (c *PricesImport) end(w io.Writer, f *imported) {
	what := fmt.Sprintf("USD per million tokens, as of %s (%s)", f.AsOf, f.Form)
	switch {
	case f.Written:
		fmt.Fprintf(w, "%s: written to %s. A running Weir reads them at its next start.\n", what, c.Config)
	case c.DryRun:
		fmt.Fprintf(w, "%s: nothing was written, this is a dry run.\n", what)
	default:
		fmt.Fprintf(w, "%s: %s says so already.\n", what, c.Config)
	}
}
