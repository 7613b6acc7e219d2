package alert

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Message is what goes to a sink in one request.
type Message struct {
	ID     string // the same over retries
	Weir   string // the name of this Weir
	Time   time.Time
	Alerts []Alert
	Sum    bool // too many for one message each: they are summed up
}

// Call is a message in a receiver's form.
type Call struct {
	URL    string
	Header http.Header
	Body   []byte
}

// Habits are what a receiver can do.
type Habits struct {
	Batch int           // alerts in one message that is no sum; 0 or 1: one
	Renew time.Duration // how often what fires is sent again; 0: once is enough. It needs a Batch
}

// Sink writes messages for one kind of receiver. Its methods are safe for concurrent use; an error of Write is about a secret
// that cannot be read, and never holds it.
type Sink interface {
	Write(m *Message) (*Call, error)
	Habits() Habits
}

// Value reads a setting that may change: a secret that is given by reference.
type Value func() (string, error)

// Fixed is the Value that is always s.
func Fixed(s string) Value { return func() (string, error) { return s, nil } }

// title is the message in a few words.
func (m *Message) title() string {
	if m.Sum {
		return fmt.Sprintf("and %d more alerts", len(m.Alerts))
	}
	a := &m.Alerts[0]
	word := a.State
	if a.Flapping {
		word = "flapping"
	}
	return a.Name + " " + word
}

// text is the message in one or two lines.
func (m *Message) text() string {
	if m.Sum {
		return m.counts() + "\nEach of them: weir alert list"
	}
	a := &m.Alerts[0]
	if a.Detail == "" {
		return a.Summary
	}
	return a.Summary + "\n" + a.Detail
}

// counts says of which kinds a sum is.
func (m *Message) counts() string {
	n := map[string]int{}
	var words []string
	for i := range m.Alerts {
		word := m.Alerts[i].Name + " " + m.Alerts[i].State
		if n[word]++; n[word] == 1 {
			words = append(words, word)
		}
	}
	slices.SortFunc(words, func(a, b string) int { return cmp.Or(n[b]-n[a], cmp.Compare(a, b)) })
	const most = 8
	for i, w := range words {
		words[i] = fmt.Sprintf("%d %s", n[w], w)
	}
	if len(words) > most {
		words = append(words[:most], fmt.Sprintf("and %d other kinds", len(words)-most))
	}
	return strings.Join(words, ", ")
}

// severity is the worst of the message.
func (m *Message) severity() string {
	worst := slices.MaxFunc(m.Alerts, func(a, b Alert) int { return rank(a.Severity) - rank(b.Severity) })
	return worst.Severity
}

// resolved reports whether all of it is over.
func (m *Message) resolved() bool {
	return !slices.ContainsFunc(m.Alerts, func(a Alert) bool { return a.State == Firing })
}
