package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// weirConfig is the configuration under measurement: every model name goes to one
// pool without a reachable bound, with keys, the store and metrics on as always.
var weirConfig = template.Must(template.New("weir.yaml").Parse(`listen: {{.Listen}}
admin: {{.Admin}}
data: {{printf "%q" .Data}}
backends:
  mock: {url: "http://{{.Upstream}}", server: openai, tier: gpu, stream: {{.Stream}}}
pools:
  bench: {backend: mock, cap: 8192, models: ["*"], queue: {size: 8192}}
routes:
  bench: {steps: ["bench/*"]}
aliases:
  "*": bench
`))

// weirSetup is what differs between the Weir processes of a run.
type weirSetup struct {
	Listen, Admin, Data, Upstream string
	Stream                        string // as_asked or always
}

// prepareWeir writes a configuration and a key in a folder of its own, and returns
// the program to start.
func (b *bench) prepareWeir(ctx context.Context, name, stream string) (program, error) {
	dir := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
		return program{}, err
	}
	s := weirSetup{Data: filepath.Join(dir, "data"), Upstream: b.mock.addr, Stream: stream}
	var errs [2]error
	s.Listen, errs[0] = freeAddr(ctx)
	s.Admin, errs[1] = freeAddr(ctx)
	if err := errors.Join(errs[:]...); err != nil {
		return program{}, err
	}
	var text strings.Builder
	if err := weirConfig.Execute(&text, s); err != nil {
		return program{}, err
	}
	file := filepath.Join(dir, "weir.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return program{}, err
	}
	if _, err := output(ctx, b.opts.weir, "check", file); err != nil {
		return program{}, err
	}
	out, err := output(ctx, b.opts.weir, "keys", "add", "bench", "--config", file)
	if err != nil {
		return program{}, err
	}
	key := lastLine(out)
	if key == "" || strings.ContainsAny(key, " \t") {
		return program{}, fmt.Errorf("%q is not a key: keys add must print the key alone on its last line", key)
	}
	return program{name: name, path: b.opts.weir, args: []string{"run", "--config", file},
		core: b.opts.gatewayCore, addr: s.Listen, key: key, ready: "/readyz", logs: b.dir}, nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}
