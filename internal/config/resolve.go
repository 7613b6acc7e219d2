package config

import (
	"path/filepath"
	"strings"
	"time"
)

// traits are what is known about a kind of server. Sources: facts seen by running it, else its documented behaviour.
type traits struct {
	dialect   string // what it speaks, if nothing else is said
	stream    string // always: it streams every chat and completion that it can answer at all
	usage     string // ask: it takes stream_options.include_usage
	null      string // empty: some versions refuse content: null in history
	developer string // system: its chat templates often do not know the role developer
	reasoning string // the member of a message in which its templates look for thinking of the history
	system    string // user: its templates often refuse system turns behind the start
	line      string // strip: its prefix cache is spoilt by the changing line of Claude Code's system prompt
	idle      time.Duration
}

// How long an unused connection is kept: a little less than the server keeps it, or a request meets a closing socket.
const (
	longIdle  = 90 * time.Second
	shortIdle = 4 * time.Second // uvicorn (vllm, sglang), cpp-httplib (llamacpp) and Node (lmstudio) close after 5 s
)

// servers is the table behind the per-server defaults; openai is any server that only says it speaks that API.
// tgi and localai are not known to take stream_options; tgi refuses null content as an unknown variant.
var servers = map[string]traits{
	"openai":    {"openai", "auto", "ask", "keep", "keep", "drop", "keep", "keep", longIdle},
	"anthropic": {"anthropic", "auto", "leave", "keep", "keep", "drop", "keep", "keep", longIdle},
	"llamacpp":  {"openai", "always", "ask", "empty", "keep", "reasoning_content", "user", "strip", shortIdle},
	"ollama":    {"openai", "always", "ask", "keep", "system", "drop", "user", "strip", longIdle},
	"vllm":      {"openai", "always", "ask", "keep", "system", "drop", "user", "strip", shortIdle},
	"sglang":    {"openai", "always", "ask", "keep", "system", "reasoning_content", "user", "strip", shortIdle},
	"lmstudio":  {"openai", "always", "ask", "empty", "system", "reasoning_content", "user", "strip", shortIdle},
	"tgi":       {"openai", "always", "leave", "empty", "system", "drop", "user", "strip", longIdle},
	"localai":   {"openai", "always", "leave", "keep", "system", "drop", "user", "strip", longIdle},
}

// Resolve fills in what depends on a backend's server and tier, so that no reader has to know: every choice of a backend
// is set afterwards, and so are its connect and idle limits. Load and Parse have done it; it may be called again.
func (c *Config) Resolve() {
	for _, b := range c.Backends {
		b.resolve(c.Limits)
	}
}

// resolve fills in one backend; top are the limits of the top level.
func (b *Backend) resolve(top Limits) {
	fill(&b.Server, "openai")
	fill(&b.Proxy, "none")
	fill(&b.MaxTokens, "keep")
	fill(&b.Base64, "keep")
	t := servers[b.Server]
	fill(&b.Dialect, t.dialect)
	fill(&b.Stream, t.stream)
	fill(&b.Usage, t.usage)
	fill(&b.NullContent, t.null)
	fill(&b.Developer, t.developer)
	fill(&b.Reasoning, t.reasoning)
	fill(&b.SystemTurns, t.system)
	fill(&b.Attribution, t.line)
	if b.Outside == nil {
		outside := b.IsOutside()
		b.Outside = &outside
	}
	fill(&b.IdleConn, Duration(t.idle))
	connect, idle := 2*time.Second, 30*time.Second
	switch b.Tier {
	case "cloud":
		connect = 5 * time.Second
	case "floor":
		idle = time.Minute
	}
	fill(&b.Limits.Connect, top.Connect)
	fill(&b.Limits.Connect, Duration(connect))
	fill(&b.Limits.Idle, top.Idle)
	fill(&b.Limits.Idle, Duration(idle))
}

// fill sets a field that is not set yet.
func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// IsOutside reports whether requests to the backend leave the machines you own.
func (b *Backend) IsOutside() bool {
	if b.Outside != nil {
		return *b.Outside
	}
	return b.Tier == "cloud"
}

// Base returns the URL without a trailing slash or /v1: paths such as /v1/chat/completions are added to it.
func (b *Backend) Base() string {
	return strings.TrimRight(strings.TrimSuffix(strings.TrimRight(b.URL, "/"), "/v1"), "/")
}

// Or returns the limits with each that is not set taken from next. The order of a call is
// step.Or(route).Or(pool).Or(backend).Or(top level).
func (l Limits) Or(next Limits) Limits {
	fill(&l.Connect, next.Connect)
	fill(&l.FirstContent, next.FirstContent)
	fill(&l.Idle, next.Idle)
	fill(&l.Total, next.Total)
	fill(&l.Answer, next.Answer)
	fill(&l.Wait, next.Wait)
	fill(&l.SwapWait, next.SwapWait)
	return l
}

// Names returns the names of the pool's backends, whether it has one or several.
func (p *Pool) Names() []string {
	if p.Backend != "" {
		return []string{p.Backend}
	}
	return p.Backends
}

// Sent returns the id that is sent to the backend for an id that clients or steps name, and whether the pool serves it.
func (p *Pool) Sent(id string) (string, bool) {
	for _, m := range p.Models {
		switch {
		case m.ID == id && m.ServedAs != "":
			return m.ServedAs, true
		case m.ID == id || m.ID == "*":
			return id, true
		}
	}
	return "", false
}

// Split returns the pool and the model of a step: POOL has the model "", POOL/* has "*". A model may hold slashes.
func (s Step) Split() (pool, model string) {
	pool, model, _ = strings.Cut(s.Use, "/")
	return pool, model
}

// Beside returns where a path of the file leads: relative ones start in the folder of the file.
func (c *Config) Beside(file string) string {
	if file == "" || filepath.IsAbs(file) || c.File == "" {
		return file
	}
	return filepath.Join(filepath.Dir(c.File), file)
}
