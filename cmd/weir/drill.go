package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"weir/internal/config"
	"weir/internal/drill"
)

// Drill is the word that tries a config against the faults that upstreams have.
type Drill struct {
	Config   string   `help:"The config file (default: weir.yaml). Its backends are not called: simulated ones stand in for them." default:"weir.yaml" placeholder:"FILE"`
	Alias    []string `help:"Try only these aliases (default: one for each different route)." placeholder:"NAME"`
	Only     []string `help:"Bring only these faults, such as F06,F21." placeholder:"FAULT"`
	Markdown bool     `help:"Print the table as Markdown." xor:"form"`
	JSON     bool     `help:"Print the report as JSON." name:"json" xor:"form"`
	Numbers  bool     `help:"Also measure latencies past dead servers, isolation, the worth of fallback and a retry storm (under a minute)."`

	Against string        `help:"Try the gateway at this URL instead of a config." placeholder:"URL"`
	Key     string        `help:"A key for that gateway." env:"WEIR_DRILL_KEY" placeholder:"KEY"`
	Model   string        `help:"The model name that it sends to the drill's server." default:"drill" placeholder:"NAME"`
	Listen  string        `help:"Where the drill's server listens for it." default:"127.0.0.1:9009" placeholder:"ADDR"`
	Wait    time.Duration `help:"How long to wait until it sends the model there." default:"1m" placeholder:"TIME"`
	Force   bool          `help:"Also where URL or ADDR are not on loopback. A drill makes the gateway fail for everybody who uses it."`
}

// Help shows how it is used.
func (Drill) Help() string {
	return `Each fault (a dead port, a 429, silence, a stream that breaks off, a client that leaves, a full queue …) is brought to the first step of
each route, once by a client who streams and once by one who does not, each time to a new Weir built of the config with small limits.
Nothing of the config is called or changed, no key is read. The exit code is 1 when a client saw what it must not see.

With --against the same faults are brought to any gateway. Configure it to send a model name to the drill's server, whose API is OpenAI's:
for another Weir

  backends: {drill: {url: "http://127.0.0.1:9009", tier: gpu}}
  pools:    {drill: {backend: drill, cap: 16, models: [drill]}}

and start weir drill, then the gateway or the other way round. The case fails where no end comes within 30 s: give the gateway limits below that.

Example:
  weir drill --config weir.yaml
  weir drill --only F06,F21 --alias assistant
  weir drill --against http://127.0.0.1:4000 --key sk-… --model drill --markdown > gateway.md`
}

// Run drills and prints the report.
func (d *Drill) Run(ctx context.Context, std *Streams) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	o := drill.Options{Aliases: d.Alias, Only: d.Only, Progress: progress(std.Err)}
	if d.Against != "" {
		o.Against = &drill.Target{URL: d.Against, Key: d.Key, Model: d.Model, Listen: d.Listen, Force: d.Force, Wait: d.Wait,
			Say: func(s string) { fmt.Fprintln(std.Err, s) }}
		if err := o.Against.Check(); err != nil {
			return usageError("--against: " + err.Error())
		}
	} else if err := d.load(&o, std); err != nil {
		return err
	}
	report, err := drill.Run(ctx, o)
	if err != nil {
		return err
	}
	if d.Numbers {
		fmt.Fprintln(std.Err, "measuring numbers")
		numbers, err := drill.Numbers(ctx)
		if err != nil {
			return err
		}
		report.Add(numbers)
	}
	if err := d.print(std.Out, report); err != nil {
		return err
	}
	if report.Failed > 0 {
		return fmt.Errorf("%d of %d cases failed", report.Failed, report.Failed+report.Passed)
	}
	return nil
}

// load reads the config without its secrets.
func (d *Drill) load(o *drill.Options, std *Streams) error {
	data, err := os.ReadFile(d.Config)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	c, report := config.Parse(data, d.Config)
	if err := report.Err(); err != nil {
		return fmt.Errorf("%s cannot be used:\n%w\nmend it and try `weir check %s`", d.Config, err, d.Config)
	}
	for _, w := range report.Warnings {
		fmt.Fprintln(std.Err, "warning:", w)
	}
	o.Config = c
	return nil
}

func (d *Drill) print(w io.Writer, r *drill.Report) error {
	switch {
	case d.JSON:
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	case d.Markdown:
		return r.Markdown(w)
	}
	return r.Text(w)
}

// progress shows how far the drill is: on a terminal in one line, else ten times in all.
func progress(w io.Writer) func(drill.Progress) {
	terminal := false
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		terminal = err == nil && info.Mode()&fs.ModeCharDevice != 0
	}
	return func(p drill.Progress) {
		switch {
		case terminal && p.Done < p.Total:
			fmt.Fprintf(w, "\rdrill: %d of %d, %d to look at again  ", p.Done, p.Total, p.Failed)
		case terminal:
			fmt.Fprintf(w, "\rdrill: %d of %d, %d to look at again  \n", p.Done, p.Total, p.Failed)
		case p.Done*10/p.Total != (p.Done-1)*10/p.Total:
			fmt.Fprintf(w, "drill: %d of %d\n", p.Done, p.Total)
		}
	}
}
