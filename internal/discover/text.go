package discover

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Layout says where the Weir of a new config listens and keeps its data. Empty fields take the usual values.
type Layout struct {
	Listen string // 127.0.0.1:8484
	Admin  string // 127.0.0.1:8485
	Data   string // ./data
}

// Config gives the text of a commented weir.yaml for what was found, or for three simulated backends when nothing was.
// The same result gives the same text. It holds no secret: keys are references to the environment.
func (r Result) Config(l Layout) string {
	p := r.plan()
	w := &writer{}
	w.head(p)
	w.line("")
	w.field("listen", cmp.Or(l.Listen, "127.0.0.1:8484"), "clients; beyond loopback it needs a key and hosts")
	w.field("admin", cmp.Or(l.Admin, "127.0.0.1:8485"), "status, metrics and admin API")
	w.field("data", cmp.Or(l.Data, "./data"), "keys and events")

	section(w, "backends", backendNotes(p), p.backends, p.backendHints)
	section(w, "pools", []string{"What is counted together: cap is how many calls run at once, the rest waits in a bounded queue.",
		"Every model can be asked for as POOL/MODEL. Routes use the first one: one in memory, else the server's first."}, p.pools, nil)
	section(w, "routes", []string{"The steps of a request, tried in this order."}, p.routes, p.routeHints)
	section(w, "aliases", []string{"The names that clients ask for, and the route each one takes."}, p.aliases, p.aliasHints)
	return w.String()
}

// width is where lists are broken.
const width = 118

type writer struct{ strings.Builder }

func (w *writer) line(s string) {
	w.WriteString(s)
	w.WriteByte('\n')
}

// comment writes a line of a comment. Whatever s holds, it stays one line and a comment.
func (w *writer) comment(indent, s string) {
	if s = strings.TrimRight(keepSpaces(s), " "); s == "" {
		w.line(indent + "#")
		return
	}
	w.line(indent + "# " + s)
}

func keepSpaces(s string) string {
	return strings.Repeat(" ", len(s)-len(strings.TrimLeft(s, " "))) + plain(s, math.MaxInt)
}

func (w *writer) field(name, value, note string) {
	w.line(fmt.Sprintf("%-32s# %s", name+": "+scalar(value)+" ", note))
}

func (w *writer) head(p plan) {
	say := func(lines ...string) {
		for _, l := range lines {
			w.comment("", l)
		}
	}
	say("The config of Weir, written by `weir run` because there was none. It is yours now: edit it as you like.",
		"`weir check FILE` tells what is wrong with it. To have Weir look again, remove this file and start `weir run`.")
	if p.simulated {
		say(simulatedHead...)
	}
	list := func(title string, lines []string) {
		if len(lines) > 0 {
			say("", title)
		}
		for _, l := range lines {
			say("  " + l)
		}
	}
	list("Found:", p.found)
	list("To know:", p.notes)
}

var simulatedHead = []string{
	"",
	"THESE ARE SIMULATIONS, NOT MODELS. Weir found no model server it can use and no key of a vendor, so the three backends",
	"below run inside Weir itself and answer with made-up text, to try Weir out. Each of their answers carries the header",
	"X-Weir-Simulated: true. To replace them, either",
	"  - start a real server (llama.cpp, Ollama, vLLM, SGLang, LM Studio) or export OPENAI_API_KEY or OPENROUTER_API_KEY,",
	"    remove this file, and start `weir run`: it looks again; a server on an unusual port is named by --look HOST:PORT; or",
	"  - edit: put the server's address in place of sim://..., add its kind, as in",
	"      floor: {url: \"http://127.0.0.1:8080\", server: llamacpp, tier: floor}",
	"    then write the names of its models in place of sim-... in pools and routes, and take out the tiers you do not have.",
}

func backendNotes(p plan) []string {
	notes := []string{"One row per server. tier: floor is always there (CPU), gpu is the large model of your own, cloud is a vendor's."}
	if p.simulated {
		return append(notes, "sim:// is a simulation inside Weir, not a model.")
	}
	return append(notes,
		"Nobody can see from outside whether a server uses a GPU. The guess: of two or more servers, the one whose model has the",
		"most parameters is gpu and the others are floor; one alone is floor, as are all when none is the largest.")
}

// row is a row of a section, in YAML's flow form and without indent.
type row interface {
	text() string
	about() []string
}

func section[R row](w *writer, name string, notes []string, rows []R, hints []string) {
	w.line("")
	for _, n := range notes {
		w.comment("", n)
	}
	if len(rows) == 0 {
		w.line(name + ": {}")
	} else {
		w.line(name + ":")
	}
	for _, r := range rows {
		for _, n := range r.about() {
			w.comment("  ", n)
		}
		w.line("  " + r.text())
	}
	if len(rows) == 0 && len(hints) > 0 {
		w.comment("  ", "Take the {} away as well when you add a row.")
	}
	for _, h := range hints {
		w.comment("  ", h)
	}
}

func (b backendRow) about() []string { return b.notes }
func (p poolRow) about() []string    { return p.notes }
func (r routeRow) about() []string   { return r.notes }
func (a aliasRow) about() []string   { return a.notes }

func (b backendRow) text() string {
	s := fmt.Sprintf("%s: {url: %s", b.name, strconv.Quote(b.url))
	if b.server != "" {
		s += ", server: " + b.server
	}
	s += ", tier: " + b.tier
	if b.key != "" {
		s += ", key: " + strconv.Quote(b.key)
	}
	if b.outside {
		s += ", outside: true"
	}
	return s + "}"
}

func (p poolRow) text() string {
	s := fmt.Sprintf("%s: {backend: %s, cap: %d", p.name, p.backend, p.cap)
	if p.window > 0 {
		s += ", window: " + strconv.Itoa(p.window)
	}
	return list(s+", models: [", p.models) + "]}"
}

func (r routeRow) text() string { return list(r.name+": {steps: [", r.steps) + "]}" }

func (a aliasRow) text() string { return scalar(a.name) + ": " + a.route }

// list writes quoted items behind start and breaks the line where it gets too long.
func list(start string, items []string) string {
	const indent = "\n      "
	s, column := start, len(start)
	for i, item := range items {
		q := strconv.Quote(item)
		if i > 0 {
			s += ","
			if column+len(q) > width {
				s, column = s+indent, len(indent)
			} else {
				s += " "
			}
		}
		s += q
		column += len(q) + 2
	}
	return s
}

// bare are the scalars that YAML reads as text without quotes, as a name, a path or host:port.
var bare = regexp.MustCompile(`^[a-z./][a-z0-9._/-]*$|^\d+\.\d+\.\d+\.\d+:\d+$|^[a-z][a-z0-9.-]*:\d+$`)

func scalar(s string) string {
	switch s {
	case "null", "true", "false", "yes", "no", "on", "off", "y", "n", ".", "..", ".inf", ".nan":
		return strconv.Quote(s)
	}
	if bare.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}
