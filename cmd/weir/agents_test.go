package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/config"
)

// parseConfig reads a config of one backend, with more at its top.
func parseConfig(t *testing.T, more string) *config.Config {
	t.Helper()
	text := more + `
backends: {floor: {url: "sim://floor", tier: floor}}
pools: {floor: {backend: floor, cap: 1, models: [m]}}
`
	if !strings.Contains(more, "aliases:") {
		text += "aliases: {auto: floor/m, coder: floor/m}\n"
	}
	cfg, report := config.Parse([]byte(text), filepath.Join(t.TempDir(), "weir.yaml"))
	if cfg == nil {
		t.Fatal(report.Err())
	}
	return cfg
}

func TestAgentsAddress(t *testing.T) {
	const tls = "\ntls: {cert: cert.pem, key: key.pem}"
	tests := map[string]struct{ top, url, want string }{
		"loopback as it stands":                                {"listen: 127.0.0.1:8484", "", "http://127.0.0.1:8484"},
		"an IPv6 address keeps its brackets":                   {`listen: "[::1]:8484"`, "", "http://[::1]:8484"},
		"every interface is called by the first accepted name": {"listen: 0.0.0.0:8484\nhosts: [weir.example.org, other.example.org]", "", "http://weir.example.org:8484"},
		"with a certificate it is https":                       {"listen: 0.0.0.0:8484\nhosts: [weir.example.org]" + tls, "", "https://weir.example.org:8484"},
		"the usual port is not written":                        {"listen: 0.0.0.0:443\nhosts: [weir.example.org]" + tls, "", "https://weir.example.org"},
		"the usual port of the other scheme is":                {"listen: 0.0.0.0:443\nhosts: [weir.example.org]", "", "http://weir.example.org:443"},
		"any name accepted says nothing of one":                {"listen: 0.0.0.0:8484\nhosts: [\"*\"]", "", "http://localhost:8484"},
		"one address of this machine is called as it stands":   {"listen: 10.0.0.5:8484\nhosts: [weir.example.org]", "", "http://10.0.0.5:8484"},
		"a name for a proxy in front does not change loopback": {"listen: 127.0.0.1:8484\nhosts: [weir.example.org]", "", "http://127.0.0.1:8484"},
		"whoever names the address is believed":                {"listen: 127.0.0.1:0", "https://weir.example.org/llm/v1/", "https://weir.example.org/llm"},
		"a port that is not known yet is told":                 {"listen: 127.0.0.1:0", "", "name the address with --url"},
		"an address needs a scheme":                            {"listen: 127.0.0.1:8484", "weir.example.org:8484", "must begin with http"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := (&Agents{URL: test.url}).address(parseConfig(t, test.top))
			if err != nil {
				got = err.Error()
			}
			if got != test.want && (err == nil || !strings.Contains(got, test.want)) {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestAgentsModel(t *testing.T) {
	tests := map[string]struct {
		top, model string
		want       string
		all        []string
	}{
		"auto goes first":                     {"", "", "auto", []string{"auto", "coder"}},
		"else the first alias":                {"aliases: {b: floor/m, a: floor/m}", "", "a", []string{"a", "b"}},
		"without aliases the ids of pools":    {"aliases: {}", "", "floor/m", []string{"floor/m"}},
		"a pattern cannot be written out":     {`aliases: {"claude-*": floor/m}`, "", "floor/m", []string{"floor/m"}},
		"a name that a pattern takes is good": {`aliases: {"claude-*": floor/m, a: floor/m}`, "claude-x", "claude-x", []string{"a", "claude-x"}},
		"a name that nothing takes is not":    {"", "gpt", "--model gpt: there is no such name for the key codex; it may ask for auto, coder", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := (&Agents{Model: test.model}).settings(t.Context(), parseConfig(t, test.top), recipeOf(t, "codex"))
			if err != nil {
				got = &settings{Model: err.Error()}
			}
			if diff := cmp.Diff(&settings{Model: test.want, Models: test.all}, &settings{Model: got.Model, Models: got.Models}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func recipeOf(t *testing.T, name string) *recipe {
	t.Helper()
	for i := range recipes {
		if recipes[i].name == name {
			return &recipes[i]
		}
	}
	t.Fatalf("no recipe %s", name)
	return nil
}

// TestEveryRecipeIsFilledIn looks at all recipes for what was left open, and at files that must be read by a program.
func TestEveryRecipeIsFilledIn(t *testing.T) {
	cfg := parseConfig(t, "listen: 127.0.0.1:8484")
	for i := range recipes {
		t.Run(recipes[i].name, func(t *testing.T) {
			s, err := (&Agents{}).settings(t.Context(), cfg, &recipes[i])
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			all := string(text)
			for _, open := range []string{"{url}", "{base}", "{model}", "{models}", "{key}"} {
				if strings.Contains(all, open) {
					t.Errorf("%s is left in %s", open, all)
				}
			}
			for _, want := range []string{"http://127.0.0.1:8484", "auto", "KEY"} {
				if !strings.Contains(all, want) {
					t.Errorf("%s does not stand in %s", want, all)
				}
			}
			if strings.Contains(s.File, ".json") && !json.Valid([]byte(s.Text)) {
				t.Errorf("not JSON:\n%s", s.Text)
			}
			for _, e := range s.Env {
				if strings.ContainsAny(e.Value, " $`\"'\\;&|<>*") {
					t.Errorf("%s=%s needs quoting in a shell", e.Name, e.Value)
				}
			}
		})
	}
}
