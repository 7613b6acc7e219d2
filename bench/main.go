// Command bench is the harness behind "make bench": it measures what Weir costs
// beside a bare, tuned httputil.ReverseProxy and beside no gateway at all, in one
// interleaved run against the same scripted upstream. It is one program with four
// words, so that nothing but this package and a Weir binary is needed:
//
//	bench mock      the upstream
//	bench revproxy  the reverse proxy that Weir is compared with
//	bench load      one load run; one JSON line
//	bench all       everything, interleaved; tables
//
// It talks to loopback addresses only, every run is bounded in count and in time,
// and it ends only the processes it started.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes, the same as those of Weir's own words.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

const usage = `usage: bench WORD [flags]

words:
  mock      scripted OpenAI-compatible upstream
  revproxy  bare tuned httputil.ReverseProxy in front of an upstream
  load      one closed-loop load run, printed as one JSON line
  all       measure direct, revproxy and weir interleaved and print the tables

"bench WORD -h" lists the flags of a word. Example:
  bench all --weir ./weir --rounds 5 --cases small,tools --markdown
`

// errMiss says that everything ran and a limit was not kept.
var errMiss = errors.New("at least one limit was missed")

// usageError is a mistake in the command line, told apart for the exit code.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }

func (e usageError) Unwrap() error { return e.err }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run carries out one word and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	words := map[string]func(context.Context, []string, io.Writer, io.Writer) error{
		"mock": runMock, "revproxy": runRevproxy, "load": runLoad, "all": runAll,
	}
	word, ok := words[args[0]]
	if !ok {
		fmt.Fprintf(stderr, "bench: unknown word %q\n\n%s", args[0], usage)
		return exitUsage
	}
	err := word(ctx, args[1:], stdout, stderr)
	var bad usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.As(err, &bad):
		fmt.Fprintf(stderr, "bench %s: %v\n", args[0], err)
		return exitUsage
	default:
		fmt.Fprintf(stderr, "bench %s: %v\n", args[0], err)
		return exitFailed
	}
}

// parseFlags parses the flags of a word and refuses what is left over.
func parseFlags(fs *flag.FlagSet, args []string, stderr io.Writer) error {
	fs.SetOutput(stderr)
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError{err}
	}
	if fs.NArg() > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", fs.Arg(0))}
	}
	return nil
}
