package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"weir/internal/config"
	"weir/internal/key"
	"weir/internal/route"
	"weir/internal/store"
)

// Agents is the word that prints what to set in an agent, an SDK or a chat page so that it calls this Weir.
type Agents struct {
	configFlag
	Name  string `arg:"" optional:"" help:"The agent; without it, all are listed."`
	Key   string `help:"Name of the key it will call with (default: the agent's name)." placeholder:"NAME"`
	Model string `help:"The name it will ask for (default: auto, else the first alias)." placeholder:"ALIAS"`
	URL   string `name:"url" help:"Where clients reach Weir, such as that of a proxy in front (default: from the config)." placeholder:"URL"`
	JSON  bool   `name:"json" help:"Print JSON."`
}

// Help shows how it is used.
func (Agents) Help() string {
	return `The address is taken from listen, hosts and tls of the config file, the names from its aliases. KEY stands where the key goes: a key is
shown once, when it is made. Nothing is written and nobody is called. docs/agents.md tells what was tried with each.

Example:
  weir agents
  weir agents claude-code --config weir.yaml
  weir agents codex --key laptop --model coder
  weir agents opencode --json`
}

// settings are what an agent needs to call one Weir.
type settings struct {
	Agent  string    `json:"agent"`
	Title  string    `json:"title"`
	API    string    `json:"api"`
	URL    string    `json:"url"`
	Model  string    `json:"model"`
	Models []string  `json:"models"`
	Key    string    `json:"key"`
	Made   bool      `json:"key_made"` // there is a usable key of that name
	Env    []setting `json:"env"`
	File   string    `json:"file,omitempty"`
	Needs  string    `json:"needs,omitempty"` // what installs the packages of a program
	Text   string    `json:"text,omitempty"`
	Run    string    `json:"run,omitempty"`
	Notes  []string  `json:"notes"`
}

// setting is one variable of the environment.
type setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Run prints the list, or the settings of one agent.
func (c *Agents) Run(ctx context.Context, std *Streams) error {
	if c.Name == "" {
		return c.list(std.Out)
	}
	i := slices.IndexFunc(recipes, func(r recipe) bool { return r.name == c.Name })
	if i < 0 {
		return usageError(fmt.Sprintf("no agent is called %q: `weir agents` lists those that are known; any other client of one of the three APIs needs the same address and key", c.Name))
	}
	cfg, err := c.parsed()
	if err != nil {
		return err
	}
	s, err := c.settings(ctx, cfg, &recipes[i])
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(std.Out, s)
	}
	s.print(std.Out, c.Config, cfg.Auth.Keys == "off")
	return nil
}

// list prints the agents that are known.
func (c *Agents) list(w io.Writer) error {
	if c.JSON {
		type known struct {
			Name  string `json:"name"`
			Title string `json:"title"`
			API   string `json:"api"`
		}
		all := make([]known, 0, len(recipes))
		for i := range recipes {
			all = append(all, known{recipes[i].name, recipes[i].title, recipes[i].api})
		}
		return printJSON(w, all)
	}
	rows := [][]string{{"NAME", "WHAT", "API"}}
	for i := range recipes {
		rows = append(rows, []string{recipes[i].name, recipes[i].title, recipes[i].api})
	}
	printTable(w, rows)
	fmt.Fprintln(w, "\nweir agents NAME prints what to set.")
	return nil
}

// settings fills in a recipe for the Weir that the config describes.
func (c *Agents) settings(ctx context.Context, cfg *config.Config, r *recipe) (*settings, error) {
	base, err := c.address(cfg)
	if err != nil {
		return nil, err
	}
	s := &settings{Agent: r.name, Title: r.title, API: r.api, URL: base, Key: c.Key, Env: []setting{}, Notes: append([]string{}, r.notes...)}
	if s.Key == "" {
		s.Key = r.name
	}
	k := c.keyNamed(ctx, cfg, s.Key)
	s.Made = k != nil
	if err := s.names(route.New(cfg), c.Model, k); err != nil {
		return nil, err
	}
	fill := strings.NewReplacer("{url}", s.URL, "{base}", s.URL+"/v1", "{model}", s.Model, "{models}", modelObject(s.Models), "{key}", "KEY")
	for _, e := range r.env {
		s.Env = append(s.Env, setting{e.Name, fill.Replace(e.Value)})
	}
	s.File, s.Needs, s.Text, s.Run = r.file, r.program, fill.Replace(r.text), r.run
	return s, nil
}

// address returns the base URL without /v1 under which clients reach the Weir of the config.
func (c *Agents) address(cfg *config.Config) (string, error) {
	if c.URL != "" {
		u, err := url.Parse(c.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return "", usageError(fmt.Sprintf("--url %s: must begin with http:// or https:// and name a host", c.URL))
		}
		return strings.TrimSuffix(strings.TrimRight(c.URL, "/"), "/v1"), nil
	}
	addr := dialable(cfg.Listen)
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "0" {
		return "", fmt.Errorf("listen: %s has no port that clients could be told; name the address with --url", cfg.Listen)
	}
	// Beyond loopback Weir answers for the names in hosts alone, and a certificate is made out to one of them.
	if own := cfg.Hosts; len(own) > 0 && own[0] != "*" && (cfg.TLS != nil || addr != cfg.Listen) {
		host = own[0]
	}
	scheme, usual := "http", "80"
	if cfg.TLS != nil {
		scheme, usual = "https", "443"
	}
	if port == usual && !strings.Contains(host, ":") {
		return scheme + "://" + host, nil
	}
	return scheme + "://" + net.JoinHostPort(host, port), nil
}

// keyNamed returns the usable key of that name, nil where there is none or the store cannot be read: the settings are
// the same.
func (c *Agents) keyNamed(ctx context.Context, cfg *config.Config, name string) *key.Key {
	st, err := store.Open(ctx, cfg.Beside(cfg.Data), store.Options{ReadOnly: true})
	if err != nil {
		return nil
	}
	defer st.Close()
	keys, err := key.List(ctx, st)
	if err != nil {
		return nil
	}
	now := time.Now()
	i := slices.IndexFunc(keys, func(k key.Key) bool { return k.Name == name && k.Usable(now) })
	if i < 0 {
		return nil
	}
	return &keys[i]
}

// names chooses the model's name and lists what else may be asked for: aliases, or, where there are none that can be
// written out, POOL/MODEL ids. A key that exists limits both.
func (s *settings) names(t *route.Table, model string, k *key.Key) error {
	var ids []string
	s.Models = []string{}
	for _, id := range t.IDs() {
		if k != nil && (!k.Allows(id.Name) || k.Boundary == key.Local && !id.Local) {
			continue
		}
		if ids = append(ids, id.Name); id.OwnedBy == "weir" {
			s.Models = append(s.Models, id.Name)
		}
	}
	if len(s.Models) == 0 {
		s.Models = append(s.Models, ids...)
	}
	if s.Model = model; model != "" {
		if _, ok := t.Find(model); !ok || k != nil && !k.Allows(model) {
			return fmt.Errorf("--model %s: there is no such name for the key %s; it may ask for %s", model, s.Key, strings.Join(s.Models, ", "))
		}
		if !slices.Contains(s.Models, model) {
			s.Models = append(s.Models, model)
		}
		return nil
	}
	switch {
	case len(s.Models) == 0:
		return errors.New("no alias of the config can be written out: name what to ask for with --model")
	case slices.Contains(s.Models, "auto"):
		s.Model = "auto"
	default:
		s.Model = s.Models[0]
	}
	return nil
}

// modelObject writes names as the members of a JSON object, each without settings of its own.
func modelObject(names []string) string {
	var b strings.Builder
	for i, name := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		quoted, _ := json.Marshal(name) // a string always encodes
		fmt.Fprintf(&b, "%s: {}", quoted)
	}
	return "{" + b.String() + "}"
}

// print writes the settings for a person, so that each block can be copied as it stands.
func (s *settings) print(w io.Writer, file string, open bool) {
	fmt.Fprintf(w, "# %s: %s at %s, model %s\n", s.Title, s.API, s.URL, s.Model)
	switch {
	case open:
		fmt.Fprintln(w, "\n# Keys are off: any text will do for KEY.")
	case s.Made:
		fmt.Fprintf(w, "\n# KEY is the key %s. It was shown when it was made; for a new one: weir keys rotate %[1]s --config %s\n", s.Key, file)
	default:
		fmt.Fprintf(w, "\n# There is no key %s yet. This makes it and shows it once; put it where KEY stands.\nweir keys add %[1]s --config %s\n", s.Key, file)
	}
	if len(s.Env) > 0 {
		fmt.Fprintln(w, "\n# In the shell that it runs in:")
	}
	for _, e := range s.Env {
		fmt.Fprintf(w, "export %s=%s\n", e.Name, e.Value)
	}
	if s.File != "" {
		fmt.Fprintf(w, "\n# In %s:\n%s", s.File, s.Text)
	}
	if s.Needs != "" {
		fmt.Fprintf(w, "\n# A program, after %s:\n%s", s.Needs, s.Text)
	}
	if s.Run != "" {
		fmt.Fprintf(w, "\n# Then:\n%s\n", s.Run)
	}
	fmt.Fprintf(w, "\n# Names it may ask for: %s\n", strings.Join(s.Models, ", "))
	for _, n := range s.Notes {
		fmt.Fprintln(w, "# "+n)
	}
}

// printJSON prints a value as JSON for people and programs.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
