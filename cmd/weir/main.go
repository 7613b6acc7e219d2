// Command weir is one endpoint in front of inference that cannot be trusted to stay up.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

// The exit codes of every word.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// version is set by the linker (-X main.version=1.2.3); empty means: ask the build info.
var version string

// CLI is the root of the command line. Adding a word is adding one field here: its struct holds its flags and has
// Run(…) error, taking any of context.Context and *Streams, and Help() string with an example of its use.
type CLI struct {
	Run    Run    `cmd:"" help:"Serve; without a config file, look for model servers and write one."`
	Sim    Sim    `cmd:"" help:"Run a simulated backend that fails on command."`
	Check  Check  `cmd:"" help:"Check a config file and tell every fault at once."`
	Schema Schema `cmd:"" help:"Print the JSON Schema of the config file."`
	Agents Agents `cmd:"" help:"Print what to set in an agent or SDK so that it calls this Weir."`
	Drill  Drill  `cmd:"" help:"Bring every known fault to the config, on simulated backends, and judge what clients see."`
	Keys   Keys   `cmd:"" help:"Make, list, revoke and rotate the keys that clients call with."`
	Events Events `cmd:"" help:"Show what was recorded: requests, reroutes, health, audit."`
	Usage  Usage  `cmd:"" help:"Sum up what was used and what it cost, by key, tag, session, model and more."`
	Report Report `cmd:"" help:"Sum up a period: failures, latency, cost, outages; as text, JSON or a page with plots."`
	Status Status `cmd:"" help:"Tell how the running Weir stands: pools, slots, queues."`
	Pools  Pools  `cmd:"" help:"Tell how each pool stands: cap, calls, queue, health, rates."`
	Pool   Pool   `cmd:"" help:"Take a pool or a backend out by hand, or put it back."`
	Caps   Caps   `cmd:"" help:"Tell caps, what vendors say of theirs, reroutes; confirm or undo pools that merged."`
	Prices Prices `cmd:"" help:"Write the prices of models into the config file, from a public price file."`
	Drain  Drain  `cmd:"" help:"End the running Weir once its requests are done."`

	Version VersionFlag `help:"Print version and build, and exit." short:"V"`
}

// Streams are the standard streams of a word, so that tests can hold them.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// errTold is returned by a word that has failed and has already said why: the exit code is 1 and nothing is printed.
var errTold = errors.New("already told")

// usageError is a fault of the command line that kong cannot see; the exit code is 2.
type usageError string

// Error returns the text for the user.
func (e usageError) Error() string { return string(e) }

func main() {
	os.Exit(run(context.Background(), os.Args[1:], &Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// run carries out one command line and returns the exit code.
func run(ctx context.Context, args []string, std *Streams) int {
	parser, err := newParser(ctx, &CLI{}, std)
	if err != nil {
		return told(std, err, exitFailed)
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	word, err := parser.Parse(args)
	if err != nil {
		return told(std, fmt.Errorf("%w\nsee %s", err, helpFor(err)), exitUsage)
	}
	err = word.Run()
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errTold):
		return exitFailed
	case errors.As(err, &usage):
		return told(std, err, exitUsage)
	}
	return told(std, err, exitFailed)
}

// newParser builds the parser of the root with what words may ask for in Run.
func newParser(ctx context.Context, cli *CLI, std *Streams) (*kong.Kong, error) {
	return kong.New(cli,
		kong.Name("weir"),
		kong.Description("One self-hosted endpoint in front of inference that cannot be trusted to stay up."),
		kong.Writers(std.Out, std.Err),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(std),
	)
}

// told prints an error and returns the code.
func told(std *Streams, err error, code int) int {
	fmt.Fprintln(std.Err, "weir:", err)
	return code
}

// helpFor names the help that fits a fault of the command line.
func helpFor(err error) string {
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil && parse.Context.Command() != "" {
		if node := parse.Context.Selected(); node != nil {
			return node.FullPath() + " --help"
		}
	}
	return "weir --help"
}

// VersionFlag prints what was built and ends the program.
type VersionFlag bool

// BeforeReset runs before a word is chosen, so that the flag needs none.
func (VersionFlag) BeforeReset(app *kong.Kong) error {
	fmt.Fprintln(app.Stdout, versionText())
	app.Exit(exitOK)
	return nil
}

// versionText is one line: version, commit, Go and platform.
func versionText() string {
	name, commit := version, ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if name == "" {
			name = info.Main.Version
		}
		dirty := false
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				commit = s.Value
			case "vcs.modified":
				dirty = s.Value == "true"
			}
		}
		if len(commit) > 12 {
			commit = commit[:12]
		}
		if commit != "" && dirty {
			commit += "+changes"
		}
	}
	if name == "" || name == "(devel)" {
		name = "devel"
	}
	if commit != "" {
		commit = " (" + commit + ")"
	}
	return fmt.Sprintf("weir %s%s %s %s/%s", name, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// shortVersion is the version alone, as headers and metrics tell it.
func shortVersion() string {
	if version != "" {
		return version
	}
	return "devel"
}
