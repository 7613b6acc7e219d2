// Package discover finds the model servers that run on this machine and writes a first weir.yaml from what it found.
// It tells servers apart by what they answer, never by their port, asks only with GET routes that neither wake nor
// load a model, and treats every answer as hostile: bounded, never redirected, cleaned before it is shown or written.
package discover

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// The limits of a look-up. Two rounds of answers and their connects fit into the whole.
const (
	connectLimit     = 300 * time.Millisecond // to a loopback address
	connectLimitAway = time.Second            // to a host the user named
	answerLimit      = 1400 * time.Millisecond
	wholeLimit       = 3 * time.Second
	bodyLimit        = 1 << 20
	headerLimit      = 64 << 10
)

// Kind is a kind of server, spelled as the field server of a backend in weir.yaml.
type Kind string

// The kinds that Look tells apart. OpenAI is any other server that lists its models as OpenAI does.
const (
	LlamaCPP Kind = "llamacpp"
	Ollama   Kind = "ollama"
	VLLM     Kind = "vllm"
	SGLang   Kind = "sglang"
	LMStudio Kind = "lmstudio"
	OpenAI   Kind = "openai"
)

// Use is what a model is for.
type Use int

// The uses of a model. Where the server does not say, the model's name decides; Chat is the default.
const (
	Chat Use = iota
	Embedding
	Rerank
)

// State says how far a server could be read.
type State int

// The states of a server. Ready may have no models. Loading is a llama.cpp server whose model's name is not known yet.
// Locked wants a key before it says anything.
const (
	Ready State = iota
	Loading
	Locked
)

// Model is one model a server offers. Zero values of Window and Params mean unknown.
type Model struct {
	ID     string // never empty, printable, safe to quote
	Use    Use
	Window int   // tokens a prompt may have as the server runs now, not what the model was trained for
	Params int64 // parameters, as the server or the model's name says
	Loaded bool  // in memory, as far as the server says
	Failed bool  // not usable now: its last load failed or it is still being downloaded
}

// Server is one server that Look found.
type Server struct {
	Addr    string // host:port
	Own     bool   // on a loopback address, so surely a machine of the user's
	Kind    Kind
	Version string // empty when the server does not say
	State   State
	Router  bool    // llama.cpp in router mode: it loads models on demand
	Slots   int     // how many calls it runs at once; zero means it does not say
	Models  []Model // the first of each use is the one to use: loaded ones first, then the server's order
	Left    []string
	// Left tells, one line each, what the server offered and Weir does not use.
}

// Step is one look-up that has ended. Line is for people and holds no control characters and no secret.
type Step struct {
	What  string // the address or the name of the environment variable
	Line  string
	Found bool // something that goes into the config
}

// Port is a port of 127.0.0.1 to look at and the server that usually stands there, which is shown and never believed.
type Port struct {
	Number int
	Usual  string
}

// UsualPorts are the ports Look tries when Options names none.
func UsualPorts() []Port {
	return []Port{
		{8080, "llama.cpp"}, {8081, "llama.cpp"}, {9931, "llama.cpp"},
		{11434, "Ollama"}, {8000, "vLLM"}, {30000, "SGLang"}, {1234, "LM Studio"},
	}
}

// Options says where Look looks. Its zero value means the usual ports, the process's environment and no display.
type Options struct {
	// Look holds what the user named: host:port of any host, a port, or a loopback host for all its usual ports.
	// localhost means 127.0.0.1; [::1] has to be named.
	Look []string
	// Ports are looked at on 127.0.0.1; nil means UsualPorts, empty means none.
	Ports []Port
	// Env reads the environment; nil means os.Getenv.
	Env func(string) string
	// Dial opens connections; nil means a net.Dialer. It must return when its context ends.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Progress, when set, is called once per look-up as it ends, never concurrently, and only before Look returns.
	Progress func(Step)
}

// Result is what Look found. Servers are in the order of looking, the usual ports first.
type Result struct {
	Servers []Server
	Clouds  []Cloud
	// Notes are lines about the environment that the user should know, such as a key that is not used.
	Notes []string
}

// Look asks every address at once and reads the environment. It takes at most three seconds, sends no request beyond
// the addresses named, and ends every dial and connection it began. It returns an error only for an Options.Look
// that cannot be read or when ctx ends; finding nothing is not an error (see Result.Simulated).
func Look(ctx context.Context, o Options) (Result, error) {
	targets, err := o.targets()
	if err != nil {
		return Result{}, err
	}
	found := o.ask(ctx, targets)
	if ctx.Err() != nil {
		return Result{}, fmt.Errorf("looking for model servers: %w", context.Cause(ctx))
	}
	r := Result{}
	for _, s := range found {
		if s != nil {
			r.Servers = append(r.Servers, *s)
		}
	}
	env := o.Env
	if env == nil {
		env = os.Getenv
	}
	r.Clouds, r.Notes = clouds(env, o.tell)
	return r, nil
}

// ask probes all targets at once and gives the servers in the order of targets, nil where none is.
func (o Options) ask(ctx context.Context, targets []target) []*Server {
	ctx, cancel := context.WithTimeout(ctx, wholeLimit)
	defer cancel()
	type ended struct {
		i     int
		s     *Server
		words string
	}
	c := newClient(ctx, o.Dial)
	out := make(chan ended)
	var wg sync.WaitGroup
	for i, t := range targets {
		wg.Go(func() {
			s, words := c.probe(ctx, t)
			out <- ended{i, s, words}
		})
	}
	found := make([]*Server, len(targets))
	for range targets {
		e := <-out
		found[e.i] = e.s
		addr := targets[e.i].addr
		o.tell(Step{What: addr, Line: "looking at " + addr + " ... " + e.words, Found: e.s != nil && e.s.usable()})
	}
	wg.Wait()
	return found
}

func (o Options) tell(s Step) {
	if o.Progress != nil {
		o.Progress(s)
	}
}

// first gives the model of a use that a route should take, or nil. Failed ones are never taken.
func (s Server) first(u Use) *Model {
	for i := range s.Models {
		if s.Models[i].Use == u && !s.Models[i].Failed {
			return &s.Models[i]
		}
	}
	return nil
}

// chats tells whether the server can answer chat requests, now or once it has loaded.
func (s Server) chats() bool { return s.State == Loading || s.first(Chat) != nil }

// usable tells whether the server gets a backend in the config.
func (s Server) usable() bool {
	return s.State == Loading || slices.ContainsFunc(s.Models, func(m Model) bool { return !m.Failed })
}
