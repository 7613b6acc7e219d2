package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"weir/internal/app"
	"weir/internal/config"
	"weir/internal/discover"
	"weir/internal/event"
	"weir/internal/key"
)

// Run is the word that serves.
type Run struct {
	Config    string   `help:"The config file; without one, Weir looks for model servers and writes it." default:"weir.yaml" placeholder:"FILE"`
	Look      []string `help:"Also look here for a model server when there is no config file yet: host:port or a port." placeholder:"HOST:PORT"`
	Listen    string   `help:"Address for clients, in a config file that is not there yet." placeholder:"ADDR"`
	Admin     string   `help:"Address of the admin listener, in a config file that is not there yet." placeholder:"ADDR"`
	LogFormat string   `help:"Form of the event lines: json, or text for people (default: log.format of the config)." enum:"json,text," default:""`
}

// Help shows how it is used.
func (Run) Help() string {
	return `Event lines go to standard output, the log to standard error. SIGTERM or Ctrl-C drains: running requests may finish; a second
one ends Weir at once.

Example:
  weir run --config weir.yaml
  weir run --look 127.0.0.1:9001 --log-format text`
}

// Run serves until a signal comes.
func (r *Run) Run(ctx context.Context, std *Streams) error {
	first, err := r.prepare(ctx, std)
	if err != nil {
		return err
	}
	cfg, warnings, err := config.Load(r.Config)
	if err != nil {
		return fmt.Errorf("%s cannot be used:\n%w\nmend it and try `weir check %s`", r.Config, err, r.Config)
	}
	log := slog.New(slog.NewTextHandler(std.Err, &slog.HandlerOptions{Level: level(cfg.Log.Level)}))
	for _, w := range warnings {
		log.Warn("config", "warning", w.Error())
	}
	a, err := app.New(ctx, app.Options{
		Config: cfg, Version: shortVersion(), Log: log, Events: std.Out, Format: format(cmp.Or(r.LogFormat, cfg.Log.Format), std),
	})
	if err != nil {
		return err
	}
	if err := r.welcome(ctx, std, a, cfg, first); err != nil {
		log.Error("no first key could be made", "err", err)
	}
	return r.serve(ctx, a, log)
}

// prepare writes a config file for what is found here when there is none. It returns what was found, nil where the file
// was there.
func (r *Run) prepare(ctx context.Context, std *Streams) (*discover.Result, error) {
	_, err := os.Stat(r.Config)
	if err == nil && (r.Listen != "" || r.Admin != "") {
		return nil, usageError(fmt.Sprintf("--listen and --admin are for the first start: %s is there, change its listen and admin", r.Config))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	fmt.Fprintf(std.Err, "%s does not exist yet: looking for model servers on this machine\n", r.Config)
	found, err := discover.Look(ctx, discover.Options{Look: r.Look, Progress: func(s discover.Step) {
		fmt.Fprintln(std.Err, "  "+s.Line)
	}})
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(r.Config, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the config file cannot be written: %w", err)
	}
	_, err = f.WriteString(found.Config(discover.Layout{Listen: r.Listen, Admin: r.Admin}))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s cannot be written: %w", r.Config, err)
	}
	if found.Simulated() {
		fmt.Fprintf(std.Err, "nothing found: %s names SIMULATED backends, which are no models; edit it once you have one\n", r.Config)
	} else {
		fmt.Fprintf(std.Err, "written: %s, with what was found and comments to go on from\n", r.Config)
	}
	return &found, nil
}

// welcome makes the first key of a new Weir and prints it, once, with what to do with it.
func (r *Run) welcome(ctx context.Context, std *Streams, a *app.App, cfg *config.Config, found *discover.Result) error {
	if a.Keys().Len(time.Now()) > 0 || cfg.Auth.Keys == "off" {
		return nil
	}
	if found == nil {
		fmt.Fprintf(std.Err, "there is no usable key, so every request will be refused: make one with `weir keys add NAME --config %s`\n", r.Config)
		return nil
	}
	c := key.Change{Store: a.Store(), Actor: "weir run (first start)", Now: time.Now()}
	token, _, err := c.Add(ctx, key.Spec{Name: "first"})
	if err != nil {
		return err
	}
	if err := a.Keys().Reload(ctx); err != nil {
		return err
	}
	model := cmp.Or(found.Try(), "POOL/MODEL")
	base := "http://" + a.Addr().String() + "/v1"
	fmt.Fprintf(std.Err, `
Weir is ready. Its first key, shown only now:

  %[1]s

Try it:

  curl %[2]s/chat/completions \
    -H "Authorization: Bearer %[1]s" -H "Content-Type: application/json" \
    -d '{"model": "%[3]s", "stream": true, "messages": [{"role": "user", "content": "Hello"}]}'

With an OpenAI SDK:

  export OPENAI_BASE_URL=%[2]s
  export OPENAI_API_KEY=%[1]s

`, token, base, model)
	return nil
}

// serve runs the app and turns signals into a drain, and a second one into an end.
func (r *Run) serve(ctx context.Context, a *app.App, log *slog.Logger) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	signal.Ignore(syscall.SIGPIPE) // whoever read the event lines may go; requests must not go with them
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	for n := 0; ; {
		select {
		case err := <-done:
			return err
		case s := <-signals:
			if n++; n == 1 {
				log.Info("signal: draining; a second one ends at once", "signal", s.String())
				a.Drain()
			} else {
				log.Warn("second signal: ending now", "signal", s.String())
				a.Halt()
			}
		}
	}
}

func level(name string) slog.Level {
	var l slog.Level
	_ = l.UnmarshalText([]byte(name)) // the config allows only names that can be read
	return l
}

func format(name string, std *Streams) event.Format {
	if name != "text" {
		return event.JSON
	}
	if f, ok := std.Out.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&fs.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" {
			return event.Colour
		}
	}
	return event.Text
}
