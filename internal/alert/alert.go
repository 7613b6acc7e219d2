// Package alert tells people and machines outside what an operator must know: it reads the recorded facts, damps them into
// alerts, and delivers those to sinks, at least once. It stands beside the requests: a dead sink slows none of them, and
// no other sink.
package alert

import (
	"context"
	"crypto/rand"
	"strings"
	"time"
	"unicode/utf8"

	"weir/internal/event"
)

// The states of an alert.
const (
	Firing   = "firing"
	Resolved = "resolved"
)

// The severities, from the least. An alert keeps the severity of its name, whatever its state.
const (
	Info     = "info"
	Warning  = "warning"
	Critical = "critical"
)

// Alert is one thing that is told. Name and Subject together are its identity. Its texts are Weir's own words and names of the
// configuration, cleaned: never what an upstream or a client wrote, but for the names of models.
type Alert struct {
	ID       string    `json:"id"`       // of this telling: the same over retries and restarts
	Name     string    `json:"name"`     // ejected, denied, gone, merged, spend, shift, swap, out, …
	Subject  string    `json:"subject"`  // what it is about
	State    string    `json:"state"`    // firing or resolved
	Severity string    `json:"severity"` // info, warning or critical
	Summary  string    `json:"summary"`  // one line
	Detail   string    `json:"detail,omitempty"`
	Flapping bool      `json:"flapping,omitempty"` // it comes and goes: nothing more is told until it is calm
	Pool     string    `json:"pool,omitempty"`
	Backend  string    `json:"backend,omitempty"`
	Model    string    `json:"model,omitempty"`
	Level    int       `json:"level,omitempty"` // spend: the percentage that is reached
	Time     time.Time `json:"time"`            // when it was told
	Since    time.Time `json:"since"`           // when it began
	Notice   bool      `json:"notice,omitempty"`
	Until    time.Time `json:"until,omitzero"` // when a notice is over by itself
}

// Row is an alert as a store keeps it.
type Row struct {
	ID    int64 // given by the store
	Alert Alert
}

// Delivery is an alert that a sink has to get yet.
type Delivery struct {
	Row
	Sink  string
	Tries int
	Next  time.Time
}

// Store keeps alerts over a restart. Its methods may block for a moment; where they fail, alerts go out from memory.
type Store interface {
	// PutAlert keeps an alert together with the sinks that have to get it, and returns its number.
	PutAlert(ctx context.Context, a Alert, sinks []string) (int64, error)
	// PutDelivery keeps how a delivery stands; one that is done is forgotten.
	PutDelivery(ctx context.Context, d Delivery, done bool) error
	// Open returns the newest row of each identity where that is firing, and what was not delivered, the oldest first.
	Open(ctx context.Context) ([]Row, []Delivery, error)
}

// Bounds of texts, in bytes, so that a message stays small whatever names hold.
const (
	mostName   = 100
	mostLine   = 300
	mostDetail = 500
)

// clean makes a text fit for one line that people read, and bounds it.
func clean(s string, most int) string {
	s = event.Escape(strings.TrimSpace(s))
	if len(s) <= most {
		return s
	}
	for s = s[:most]; !utf8.ValidString(s); {
		s = s[:len(s)-1]
	}
	return s + "…"
}

// newID makes the id of a telling.
func newID() string { return "al_" + strings.ToLower(rand.Text()[:20]) }

// rank orders severities.
func rank(severity string) int {
	switch severity {
	case Critical:
		return 2
	case Info:
		return 0
	}
	return 1
}
