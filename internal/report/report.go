// Package report sums up what the store has of a period: how many requests went well, how long they took, what they cost
// and would have cost elsewhere, and what happened to the pools meanwhile. A Report is data, with stable names as JSON; it
// makes its own page (HTML). What is unknown is null in it, never zero.
package report

import (
	"context"
	"time"

	"weir/internal/store"
)

// How many of each list a report has at most.
const (
	mostGroups  = 100 // names of routes, classes, pools; of more, the last is "(others)"
	mostSlow    = 10
	mostFailed  = 20
	mostNotes   = 50
	mostOutages = 2000
	mostMarks   = 200
)

// others is the group of what found no place in a full list.
const others = "(others)"

// Tokens counts one call; negative numbers are unknown. Cached and Written are parts of In.
type Tokens struct{ In, Out, Cached, Written int64 }

// Price returns what tokens cost in nano-dollars, and whether that is known. Nil is an unknown price.
type Price func(Tokens) (nanos int64, known bool)

// Options say what is reported.
type Options struct {
	Since     time.Time      // zero: all that is kept
	Until     time.Time      // now: required
	Location  *time.Location // of days and hours on the page; nil: UTC
	Reference string         // the model that all is compared with; empty: the dearest one seen with a known price
	Price     Price          // of the reference, where it is named
	Prices    func(pool, model string) Price
}

// Source is what a report reads: the store.
type Source interface {
	Outline(ctx context.Context, since time.Time) (store.Outline, error)
	Work(ctx context.Context, since time.Time) ([]store.Work, error)
	WalkRequests(ctx context.Context, since time.Time, f func(*store.Request) error) error
	WalkFacts(ctx context.Context, since time.Time, f func(*store.Fact) error) error
}

var _ Source = (*store.Store)(nil)

// Report is what happened in a period.
type Report struct {
	Since       *time.Time `json:"since"` // null: all that is kept
	Until       time.Time  `json:"until"`
	First       *time.Time `json:"first"`       // of the earliest request or fact; null: nothing was recorded
	Approximate bool       `json:"approximate"` // percentiles are within 1 %, else exact
	Ahead       int64      `json:"ahead"`       // requests that began after until: a clock was set back

	Requests  Requests    `json:"requests"`
	Latency   Latency     `json:"latency"`
	Gate      *struct{}   `json:"gate"`   // null: no data
	Triage    *struct{}   `json:"triage"` // null: no data
	Total     Use         `json:"total"`
	Work      []ClassTier `json:"class_tier"`
	Pools     []PoolUse   `json:"pools"`
	Reference Reference   `json:"reference"`

	Effort   Effort    `json:"effort"`
	Reroutes []Reroute `json:"reroutes"`

	Lanes         []Lane   `json:"health"`
	Outages       []Outage `json:"outages"`
	Alerts        []Tally  `json:"alerts"`
	Swaps         []Tally  `json:"swaps"`
	Loops         []Tally  `json:"loops"`
	Interventions Notes    `json:"interventions"`
	Versions      Notes    `json:"versions"`

	Slowest  []Sample `json:"slowest"`
	Failed   []Sample `json:"last_failed"`
	Timeline Timeline `json:"timeline"`

	location *time.Location
}

// Requests says how requests ended. The failure rate leaves out what its client caused: a bad or unknown request, a wrong
// key, a limit of the key, and clients that left.
type Requests struct {
	Total    int64    `json:"total"`
	Answered int64    `json:"answered"`
	Failed   int64    `json:"failed"`
	Client   int64    `json:"client_caused"`
	Rate     *float64 `json:"failure_rate"` // failed ÷ (answered + failed)
	Kinds    []Kind   `json:"kinds"`        // most first
}

// Kind is how many requests ended with one kind of failure.
type Kind struct {
	Kind   string `json:"kind"`
	Client bool   `json:"client_caused"`
	Count  int64  `json:"count"`
}

// clientKinds are the kinds of failure that the client caused.
var clientKinds = map[string]bool{
	"invalid": true, "too_long": true, "unknown": true, "unauthorized": true, "limited": true, "canceled": true,
}

// Latency is how long answers took: of requests that a pool answered without a failure, without those that count tokens.
type Latency struct {
	All     Timing   `json:"all"`
	Routes  []Timing `json:"routes"`  // most requests first
	Classes []Timing `json:"classes"` // likewise
}

// Timing is a group's percentiles. Queue and overhead are those of all requests for which a step was tried.
type Timing struct {
	Name       Name   `json:"name"`
	Requests   int64  `json:"requests"`
	P50        Millis `json:"p50_ms"`
	P95        Millis `json:"p95_ms"`
	P99        Millis `json:"p99_ms"`
	First50    Millis `json:"first_content_p50_ms"`
	First95    Millis `json:"first_content_p95_ms"`
	Queue95    Millis `json:"queue_p95_ms"`
	Overhead50 Millis `json:"overhead_p50_ms"`
	Overhead99 Millis `json:"overhead_p99_ms"`
}

// Use is what a group of requests used, and its shares of all. Counting tokens counts as a request, but uses none.
type Use struct {
	Requests     int64    `json:"requests"`
	TokensIn     int64    `json:"tokens_in"`
	TokensCached int64    `json:"tokens_cached"`
	TokensOut    int64    `json:"tokens_out"`
	Cost         Cost     `json:"cost"`
	RequestShare *float64 `json:"request_share"`
	TokenShare   *float64 `json:"token_share"` // of in and out together
	CostShare    *float64 `json:"cost_share"`  // of all that is known
}

// ClassTier is what the requests of one class used on one tier.
type ClassTier struct {
	Class Name `json:"class"`
	Tier  Name `json:"tier"` // null: nobody answered
	Use
}

// PoolUse is what the requests that a pool answered used.
type PoolUse struct {
	Pool Name `json:"pool"`
	Tier Name `json:"tier"`
	Use
}

// Reference says what the same tokens would have cost, all on one model.
type Reference struct {
	Model    Name   `json:"model"`    // null: no model seen has a known price
	Named    bool   `json:"named"`    // it was asked for, not chosen as the dearest
	Known    bool   `json:"known"`    // its price is
	Cost     Cost   `json:"cost"`     // of all requests that used tokens
	Compared int64  `json:"compared"` // requests whose cost is known on both sides; the fields below are of these
	Was      Nanos  `json:"compared_cost_usd"`
	Would    Nanos  `json:"compared_reference_usd"`
	Saved    *Nanos `json:"saved_usd"` // negative: it cost more
}

// Effort is what answering took.
type Effort struct {
	Attempts    int64    `json:"attempts"`    // steps that were called, or refused without a call
	Generations int64    `json:"generations"` // of these, what an upstream may have worked on
	Retries     int64    `json:"retries"`     // the same step once more
	Fallbacks   int64    `json:"fallbacks"`   // requests that another than the first step answered
	PerRequest  *float64 `json:"generations_per_request"`
}

// Reroute is how often answers came from elsewhere for one reason.
type Reroute struct {
	Reason string `json:"reason"`
	From   Name   `json:"from"` // pool/model; null: the first step was left out before it was tried
	To     Name   `json:"to"`
	Count  int64  `json:"count"`
}

// Tally is how often something happened, and how it was told last.
type Tally struct {
	Reason Name      `json:"reason"`
	Pool   Name      `json:"pool"`
	From   Name      `json:"from"`
	To     Name      `json:"to"`
	Count  int64     `json:"count"`
	Last   time.Time `json:"last"`
	Detail string    `json:"detail"`
}

// Notes are things that happened, the newest of them.
type Notes struct {
	Count int64  `json:"count"`
	List  []Note `json:"list"` // oldest first
}

// Note is one thing that happened.
type Note struct {
	Time   time.Time `json:"time"`
	Reason Name      `json:"reason"`
	Actor  Name      `json:"actor"`
	To     Name      `json:"to"`
	Detail string    `json:"detail"`
}

// Sample is one request.
type Sample struct {
	Time     time.Time `json:"time"`
	Request  string    `json:"request"`
	Class    Name      `json:"class"`
	Route    Name      `json:"route"`
	Pool     Name      `json:"pool"`
	Model    Name      `json:"model"`
	Status   int       `json:"status"`
	Kind     Name      `json:"kind"`
	Message  string    `json:"message"`
	Reroute  Name      `json:"reroute"`
	First    Millis    `json:"first_ms"`
	Total    Millis    `json:"total_ms"`
	Attempts []string  `json:"attempts"` // pool/model and how it ended, in order

	raw string // the attempts as they are stored
}

// New reads the period from src and sums it up. It reads beside a running Weir and keeps no writer waiting. Its memory is
// bounded, whatever the store holds. Errors are those of the source.
func New(ctx context.Context, src Source, o Options) (*Report, error) {
	if o.Location == nil {
		o.Location = time.UTC
	}
	outline, err := src.Outline(ctx, o.Since)
	if err != nil {
		return nil, err
	}
	g := newGather(o, outline)
	if err := g.choose(ctx, src); err != nil {
		return nil, err
	}
	// Facts first: what traffic shows of an outage ends it.
	if err := src.WalkFacts(ctx, o.Since, func(f *store.Fact) error { g.fact(f); return nil }); err != nil {
		return nil, err
	}
	g.health.seal(o.Until)
	if err := src.WalkRequests(ctx, o.Since, func(r *store.Request) error { g.request(r); return nil }); err != nil {
		return nil, err
	}
	return g.report(), nil
}

// Empty reports whether nothing at all was recorded in the period.
func (r *Report) Empty() bool { return r.First == nil && len(r.Outages) == 0 }
