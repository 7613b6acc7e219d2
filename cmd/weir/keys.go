package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/user"
	"strings"
	"time"
	"unicode/utf8"

	"weir/internal/config"
	"weir/internal/key"
	"weir/internal/store"
)

// Keys is the word for the keys that clients call with. Its words open the store beside a running Weir, which sees
// a change within a second.
type Keys struct {
	Add    KeysAdd    `cmd:"" help:"Make a key and print it, once."`
	List   KeysList   `cmd:"" help:"List keys, without their secrets."`
	Revoke KeysRevoke `cmd:"" help:"End a key at once and for good."`
	Rotate KeysRotate `cmd:"" help:"Replace a key; the old one works on for the overlap."`
}

// Help shows how it is used.
func (Keys) Help() string {
	return `Example:
  weir keys add laptop --config weir.yaml
  weir keys list --config weir.yaml`
}

// configFlag is the flag of words that find the data folder, or a running Weir, through the config file.
type configFlag struct {
	Config string `help:"The config file." default:"weir.yaml" placeholder:"FILE"`
}

// dataFolder reads the config file for its data folder alone: neither secrets nor certificates need to be there.
func (c configFlag) dataFolder() (string, error) {
	cfg, err := c.parsed()
	if err != nil {
		return "", err
	}
	return cfg.Beside(cfg.Data), nil
}

// KeysAdd makes a key.
type KeysAdd struct {
	configFlag
	Name       string   `arg:"" help:"Who or what uses the key."`
	Alias      []string `help:"Alias it may ask for: a name, a prefix with *, or * (repeat for more; default: all)." placeholder:"PATTERN"`
	Boundary   string   `help:"local: its requests never leave the machines you own." enum:"any,local" default:"any"`
	Expires    string   `help:"Time it lives, such as 30d or 12h (default: for ever)." placeholder:"TIME"`
	Priority   int      `help:"Higher is served first when a pool is full."`
	RPM        int      `name:"rpm" help:"Requests per minute (0: no limit)."`
	TPM        int64    `name:"tpm" help:"Tokens per minute, of prompts and answers (0: no limit)."`
	Concurrent int      `help:"Requests at the same time (0: no limit)."`
	SpendDay   string   `help:"USD that it may spend in a day, such as 5 or 0.50 (0, the default: no ceiling)." placeholder:"USD"`
	SpendMonth string   `help:"USD that it may spend in a month (0, the default: no ceiling)." placeholder:"USD"`
	Keep       string   `name:"keep-responses" help:"Time its responses are kept for previous_response_id, such as 24h; this stores prompts and answers (default: as the route says)." placeholder:"TIME"`
}

// Help shows how it is used.
func (KeysAdd) Help() string {
	return `The key is printed alone on the last line and cannot be shown again: only its hash is kept.

Example:
  weir keys add laptop --config weir.yaml
  weir keys add batch --alias 'coder*' --boundary local --expires 30d --rpm 60 --concurrent 4
  weir keys add team --tpm 100000 --spend-day 5 --spend-month 100
  export OPENAI_API_KEY=$(weir keys add ci | tail -n 1)`
}

// Run makes the key and prints it.
func (c *KeysAdd) Run(ctx context.Context, std *Streams) error {
	now := time.Now()
	spec := key.Spec{Name: c.Name, Aliases: c.Alias, Boundary: c.Boundary, Priority: c.Priority, RPM: c.RPM, TPM: c.TPM, Concurrent: c.Concurrent}
	life, err := span("--expires", c.Expires)
	if err != nil {
		return err
	}
	if life != 0 {
		spec.Expires = now.Add(life)
	}
	if spec.KeepResponses, err = span("--keep-responses", c.Keep); err != nil {
		return err
	}
	if spec.SpendDay, err = dollars("--spend-day", c.SpendDay); err != nil {
		return err
	}
	if spec.SpendMonth, err = dollars("--spend-month", c.SpendMonth); err != nil {
		return err
	}
	return c.change(ctx, now, func(ch key.Change) error {
		token, k, err := ch.Add(ctx, spec)
		if err != nil {
			return err
		}
		fmt.Fprintf(std.Out, "Key %s (%s) is good %s. It is shown this once:\n%s\n", k.Name, k.Prefix, until(k.Expires), token)
		return nil
	})
}

// KeysList lists keys.
type KeysList struct {
	configFlag
	JSON bool `name:"json" help:"Print JSON."`
}

// Help shows how it is used.
func (KeysList) Help() string { return "Example:\n  weir keys list --json" }

// listed is what --json prints of a key.
type listed struct {
	Name         string       `json:"name"`
	Prefix       string       `json:"prefix"`
	State        string       `json:"state"`
	Aliases      []string     `json:"aliases"`
	Boundary     string       `json:"boundary"`
	Priority     int          `json:"priority"`
	RPM          int          `json:"rpm"`
	TPM          int64        `json:"tpm"`
	Concurrent   int          `json:"concurrent"`
	SpendDay     *json.Number `json:"spend_day_usd"` // null: no ceiling
	SpendMonth   *json.Number `json:"spend_month_usd"`
	Keep         *string      `json:"keep_responses"`
	Created      time.Time    `json:"created"`
	Expires      *time.Time   `json:"expires"`
	Revoked      *time.Time   `json:"revoked"`
	RotatedUntil *time.Time   `json:"rotated_until"`
}

// Run prints the table.
func (c *KeysList) Run(ctx context.Context, std *Streams) error {
	dir, err := c.dataFolder()
	if err != nil {
		return err
	}
	st, err := store.Open(ctx, dir, store.Options{ReadOnly: true})
	var keys []key.Key
	switch {
	case errors.Is(err, fs.ErrNotExist): // no store yet: no keys
	case err != nil:
		return err
	default:
		defer st.Close()
		if keys, err = key.List(ctx, st); err != nil {
			return err
		}
	}
	now := time.Now()
	if c.JSON {
		return printKeysJSON(std.Out, keys, now)
	}
	if len(keys) == 0 {
		fmt.Fprintf(std.Out, "There are no keys. Make one: weir keys add NAME --config %s\n", c.Config)
		return nil
	}
	rows := [][]string{{"NAME", "PREFIX", "STATE", "ALIASES", "BOUNDARY", "PRIORITY", "RPM", "TPM", "CONCURRENT", "USD/DAY", "USD/MONTH", "KEEPS", "CREATED", "ENDS"}}
	for i := range keys {
		k := &keys[i]
		rows = append(rows, []string{k.Name, k.Prefix, k.State(now), patterns(k.Aliases), k.Boundary, fmt.Sprint(k.Priority), limit(k.RPM), limit(k.TPM),
			limit(k.Concurrent), ceiling(k.SpendDay), ceiling(k.SpendMonth), keeps(k), k.Created.Local().Format(time.DateOnly), ends(k)})
	}
	printTable(std.Out, rows)
	return nil
}

func printKeysJSON(w io.Writer, keys []key.Key, now time.Time) error {
	all := make([]listed, 0, len(keys))
	for i := range keys {
		k := &keys[i]
		all = append(all, listed{
			Name: k.Name, Prefix: k.Prefix, State: k.State(now), Aliases: append([]string{}, k.Aliases...), Boundary: k.Boundary,
			Priority: k.Priority, RPM: k.RPM, TPM: k.TPM, Concurrent: k.Concurrent, Created: k.Created,
			SpendDay: ceilingJSON(k.SpendDay), SpendMonth: ceilingJSON(k.SpendMonth), Keep: keepsJSON(k),
			Expires: known(k.Expires), Revoked: known(k.Revoked), RotatedUntil: known(k.RotatedUntil),
		})
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(all)
}

// KeysRevoke ends keys.
type KeysRevoke struct {
	configFlag
	Key string `arg:"" help:"The name (ends all keys of that name) or the public prefix." placeholder:"NAME|PREFIX"`
}

// Help shows how it is used.
func (KeysRevoke) Help() string {
	return "A running Weir refuses the key within a second.\n\nExample:\n  weir keys revoke laptop"
}

// Run ends the keys.
func (c *KeysRevoke) Run(ctx context.Context, std *Streams) error {
	return c.change(ctx, time.Now(), func(ch key.Change) error {
		gone, err := ch.Revoke(ctx, c.Key)
		for _, k := range gone {
			fmt.Fprintf(std.Out, "Key %s (%s) is revoked.\n", k.Name, k.Prefix)
		}
		return err
	})
}

// KeysRotate replaces a key.
type KeysRotate struct {
	configFlag
	Key     string `arg:"" help:"The name or the public prefix." placeholder:"NAME|PREFIX"`
	Overlap string `help:"Time the old key works on, such as 24h; 0 ends it at once." default:"24h" placeholder:"TIME"`
}

// Help shows how it is used.
func (KeysRotate) Help() string {
	return `The new key has the rights and limits of the old one and shares its counts. It is printed alone on the last line.

Example:
  weir keys rotate laptop --overlap 24h`
}

// Run makes the successor and prints it.
func (c *KeysRotate) Run(ctx context.Context, std *Streams) error {
	overlap, err := span("--overlap", c.Overlap)
	if err != nil {
		return err
	}
	return c.change(ctx, time.Now(), func(ch key.Change) error {
		token, k, err := ch.Rotate(ctx, c.Key, overlap)
		if err != nil {
			return err
		}
		fmt.Fprintf(std.Out, "Key %s (%s) is good %s; the old one ends at %s. It is shown this once:\n%s\n", k.Name, k.Prefix, until(k.Expires),
			moment(ch.Now.Add(overlap)), token)
		return nil
	})
}

// change opens the store for one change of keys.
func (c configFlag) change(ctx context.Context, now time.Time, f func(key.Change) error) error {
	dir, err := c.dataFolder()
	if err != nil {
		return err
	}
	st, err := store.Open(ctx, dir, store.Options{})
	if err != nil {
		return err
	}
	return errors.Join(f(key.Change{Store: st, Actor: actor(), Now: now}), st.Close())
}

// actor names who runs the word, for the audit row.
func actor() string {
	if u, err := user.Current(); err == nil {
		return "weir keys, user " + u.Username
	}
	return "weir keys"
}

// span reads a time flag; empty and 0 are zero.
func span(flag, text string) (time.Duration, error) {
	if text == "" || text == "0" {
		return 0, nil
	}
	d, err := config.ParseDuration(text)
	switch {
	case err != nil:
		return 0, usageError(fmt.Sprintf("%s: %v", flag, err))
	case d <= 0:
		return 0, usageError(fmt.Sprintf("%s %s: must be above zero", flag, text))
	}
	return time.Duration(d), nil
}

// dollars reads an amount of USD; empty is zero.
func dollars(flag, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	u, err := config.ParseUSD(text)
	if err != nil {
		return 0, usageError(fmt.Sprintf("%s %q: %v", flag, text, err))
	}
	return int64(u), nil
}

func until(t time.Time) string {
	if t.IsZero() {
		return "until it is revoked"
	}
	return "until " + moment(t)
}

// ends says when the key stops to open, in the past or to come.
func ends(k *key.Key) string {
	switch t := k.Expires; {
	case !k.Revoked.IsZero():
		return moment(k.Revoked)
	case !k.RotatedUntil.IsZero() && (t.IsZero() || k.RotatedUntil.Before(t)):
		return moment(k.RotatedUntil)
	case !t.IsZero():
		return moment(t)
	}
	return "-"
}

func moment(t time.Time) string { return t.Local().Format("2006-01-02 15:04") }

func patterns(aliases []string) string {
	if len(aliases) == 0 {
		return "*"
	}
	return strings.Join(aliases, " ")
}

func limit[N int | int64](n N) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// ceiling says how many USD a key may spend.
func ceiling(nanos int64) string {
	if nanos == 0 {
		return "-"
	}
	return config.USD(nanos).String()
}

func ceilingJSON(nanos int64) *json.Number {
	if nanos == 0 {
		return nil
	}
	n := json.Number(ceiling(nanos))
	return &n
}

// keeps says how long a key's responses are kept.
func keeps(k *key.Key) string {
	if k.KeepResponses == 0 {
		return "-"
	}
	return config.Duration(k.KeepResponses).String()
}

func keepsJSON(k *key.Key) *string {
	if k.KeepResponses == 0 {
		return nil
	}
	text := keeps(k)
	return &text
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// printTable aligns columns by their widest cell.
func printTable(w io.Writer, rows [][]string) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}
