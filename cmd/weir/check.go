package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"weir/internal/config"
)

// Check is the word that checks a config file.
type Check struct {
	File     string `arg:"" optional:"" default:"weir.yaml" help:"The config file (default: weir.yaml)."`
	Defaults bool   `help:"Print the effective config, with every default written down." xor:"form"`
	JSON     bool   `help:"Print faults and warnings as JSON." name:"json" xor:"form"`
}

// Help shows how it is used.
func (Check) Help() string {
	return `Every fault is told at once, with line, path and what to do; warnings do not fail. Secrets and certificates that the file
refers to are read too, so run it where Weir will run.

Example:
  weir check weir.yaml
  weir check weir.yaml --defaults > effective.yaml`
}

// checked is what --json prints.
type checked struct {
	File     string        `json:"file"`
	OK       bool          `json:"ok"`
	Faults   config.Faults `json:"faults"`
	Warnings config.Faults `json:"warnings"`
}

// Run checks the file and prints what it found: faults and warnings to standard error, results to standard output.
func (c *Check) Run(std *Streams) error {
	cfg, warnings, err := config.Load(c.File)
	if c.JSON {
		return c.printJSON(std.Out, warnings, err)
	}
	for _, w := range warnings {
		fmt.Fprintln(std.Err, "warning:", w)
	}
	if err != nil {
		return c.tell(std.Err, err)
	}
	if c.Defaults {
		text, err := cfg.YAML()
		if err != nil {
			return err
		}
		_, err = std.Out.Write(text)
		return err
	}
	fmt.Fprintf(std.Out, "%s: ok: %s, %s, %s, %s\n", c.File, count(len(cfg.Backends), "backend"), count(len(cfg.Pools), "pool"),
		count(len(cfg.Routes), "route"), count(len(cfg.Aliases), "alias"))
	return nil
}

// tell prints each fault on its own line and a count, and returns the error that says no more.
func (c *Check) tell(w io.Writer, err error) error {
	var faults config.Faults
	if !errors.As(err, &faults) {
		return err
	}
	fmt.Fprintln(w, faults)
	fmt.Fprintf(w, "%s: %s\n", c.File, count(len(faults), "fault"))
	return errTold
}

// printJSON prints everything as one JSON object.
func (c *Check) printJSON(w io.Writer, warnings config.Faults, err error) error {
	out := checked{File: c.File, OK: err == nil, Faults: config.Faults{}, Warnings: append(config.Faults{}, warnings...)}
	if err != nil && !errors.As(err, &out.Faults) {
		out.Faults = config.Faults{{File: c.File, Msg: err.Error()}}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if encErr := enc.Encode(out); encErr != nil {
		return encErr
	}
	if err != nil {
		return errTold
	}
	return nil
}

// count writes a number with its word in the right form.
func count(n int, word string) string {
	switch {
	case n == 1:
	case word == "alias":
		word += "es"
	default:
		word += "s"
	}
	return fmt.Sprintf("%d %s", n, word)
}
