package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"weir/internal/config"
	"weir/internal/report"
	"weir/internal/spend"
)

func TestWritePrivate(t *testing.T) {
	name := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(name, []byte("older, and open to all"), 0o644); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := writePrivate(name, func(w io.Writer) error { fmt.Fprint(w, "half"); return broken }); !errors.Is(err, broken) {
		t.Errorf("%v, want it told", err)
	}
	if text, _ := os.ReadFile(name); string(text) != "older, and open to all" {
		t.Errorf("half of a page took the place of the older one: %q", text)
	}
	if err := writePrivate(name, func(w io.Writer) error { _, err := fmt.Fprint(w, "page"); return err }); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(name), ".weir-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRatesNamed(t *testing.T) {
	cfg, found := config.Parse([]byte(`
backends: {v: {url: "https://vendor.example/v1", tier: cloud, key: "${env:K}"}}
pools:
  own: {backend: v, cap: 1, models: [m], price: {in: 1, out: 1}}
  listed: {backend: v, cap: 1, models: [{id: short, served_as: vendor/long}]}
  bare: {backend: v, cap: 1, models: [x]}
prices: {models: {vendor/long: {in: 2, out: 2}, plain: {in: 3, out: 3}, own: {in: 4, out: 4}}}
routes: {r: {steps: [own/m]}}
`), "weir.yaml")
	if cfg == nil {
		t.Fatal(found.Err())
	}
	r := &rates{cfg, spend.NewPrices(cfg)}
	for name, want := range map[string]int64{ // nano-dollars of one token in; 0: no price
		"plain": 3000, "vendor/long": 2000, "own/m": 1000, "m": 1000, "own": 4000, "listed/short": 2000, "short": 2000, "bare/x": 0, "x": 0, "nobody": 0, "nobody/plain": 0, "": 0,
	} {
		got := int64(0)
		if price := r.named(name); price != nil {
			got, _ = price(report.Tokens{In: 1})
		}
		if got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
}
