package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"weir/internal/event"
	"weir/internal/store"
)

// Events is the word that shows what was recorded. It reads the store beside a running Weir.
type Events struct {
	configFlag
	Follow  bool   `short:"f" help:"Go on, showing what comes, until interrupted."`
	Request string `help:"One request, whole: its attempts over time." placeholder:"ID"`
	Event   string `help:"Only this event: end (requests), reroute, skip, health, alert, swap, shift or audit." enum:",end,reroute,skip,health,alert,swap,shift,audit" default:"" placeholder:"NAME"`
	Since   string `help:"Only the last so long, such as 30m." placeholder:"TIME"`
	Reason  string `help:"Only with this reason." placeholder:"WORD"`
	Kind    string `help:"Only failures of this kind." placeholder:"WORD"`
	Key     string `help:"Only requests under this key: its name or prefix." placeholder:"NAME"`
	Session string `help:"Only requests of this conversation, as lines name it." placeholder:"ID"`
	Tag     string `help:"Only requests with this label (X-Weir-Tag)." placeholder:"TAG"`
	Limit   int    `help:"At most so many, the newest." default:"50" placeholder:"N"`
	Count   bool   `help:"Print how many there are and nothing else."`
	Reasons bool   `help:"Print how many there are by pool and reason."`
	JSON    bool   `name:"json" help:"Print the event lines of the log, one JSON object each."`
}

// Help shows how it is used.
func (Events) Help() string {
	return `Events are written in batches: what has just happened may take a second to show.

Example:
  weir events --since 30m
  weir events -f --event reroute
  weir events --request req_u3afq2utx2wjqynkgrr2 --config weir.yaml
  weir events --event reroute --since 24h --count
  weir events --event reroute --since 30m --reasons`
}

const followEvery = 500 * time.Millisecond

// Run shows the events that match.
func (c *Events) Run(ctx context.Context, std *Streams) error {
	q, err := c.query(time.Now())
	if err != nil {
		return err
	}
	dir, err := c.dataFolder()
	if err != nil {
		return err
	}
	st, err := store.Open(ctx, dir, store.Options{ReadOnly: true})
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("nothing was recorded yet: %w", err)
	}
	if err != nil {
		return err
	}
	defer st.Close()
	switch {
	case c.Count:
		return c.printCount(ctx, std, st, q)
	case c.Reasons:
		return c.printReasons(ctx, std, st, q)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return c.show(ctx, std, st, q)
}

func (c *Events) query(now time.Time) (store.Query, error) {
	q := store.Query{Request: c.Request, Event: c.Event, Reason: c.Reason, Kind: c.Kind, Key: c.Key, Session: c.Session, Tag: c.Tag, Limit: c.Limit}
	since, err := span("--since", c.Since)
	switch {
	case err != nil:
		return q, err
	case c.Limit < 1:
		return q, usageError("--limit: must be at least 1")
	case c.Count && c.Follow:
		return q, usageError("--count and --follow exclude each other")
	case c.Reasons && (c.Count || c.Follow):
		return q, usageError("--reasons excludes --count and --follow")
	}
	if since > 0 {
		q.Since = now.Add(-since)
	}
	return q, nil
}

// requests and facts say which of the two tables can match.
func (c *Events) requests() bool {
	return slices.Contains([]string{"", "end", "reroute", "skip"}, c.Event)
}

func (c *Events) facts() bool {
	return c.Key+c.Session+c.Tag == "" && (c.Event == "" || !c.requests())
}

func (c *Events) printCount(ctx context.Context, std *Streams, st *store.Store, q store.Query) error {
	var total int64
	if c.requests() {
		n, err := st.CountRequests(ctx, q)
		if err != nil {
			return err
		}
		total += n
	}
	if c.facts() {
		n, err := st.CountFacts(ctx, q)
		if err != nil {
			return err
		}
		total += n
	}
	if c.JSON {
		return json.NewEncoder(std.Out).Encode(map[string]int64{"count": total})
	}
	fmt.Fprintln(std.Out, total)
	return nil
}

func (c *Events) printReasons(ctx context.Context, std *Streams, st *store.Store, q store.Query) error {
	var all []store.ReasonCount
	if c.requests() {
		counts, err := st.RequestReasons(ctx, q)
		if err != nil {
			return err
		}
		all = append(all, counts...)
	}
	if c.facts() {
		counts, err := st.FactReasons(ctx, q)
		if err != nil {
			return err
		}
		all = append(all, counts...)
	}
	slices.SortStableFunc(all, func(a, b store.ReasonCount) int { return cmp.Compare(b.Count, a.Count) })
	if c.JSON {
		for _, n := range all {
			if err := json.NewEncoder(std.Out).Encode(map[string]any{"pool": n.Pool, "reason": n.Reason, "count": n.Count}); err != nil {
				return err
			}
		}
		return nil
	}
	rows := [][]string{{"COUNT", "POOL", "REASON"}}
	for _, n := range all {
		rows = append(rows, []string{fmt.Sprint(n.Count), or(n.Pool, "-"), or(n.Reason, "-")})
	}
	printTable(std.Out, rows)
	return nil
}

func (c *Events) show(ctx context.Context, std *Streams, st *store.Store, q store.Query) error {
	lastRequest, lastFact, err := st.LastRows(ctx) // first: what comes meanwhile is shown twice rather than never
	if err != nil {
		return err
	}
	found, err := c.read(ctx, st, q, q)
	if err != nil {
		return err
	}
	if len(found) == 0 && !c.Follow {
		if c.JSON {
			return nil
		}
		return fmt.Errorf("no event matches%s", c.hint())
	}
	p := printer{std: std, json: c.JSON, whole: c.Request != ""}
	p.print(found[max(0, len(found)-c.Limit):])
	for c.Follow {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followEvery):
		}
		qr, qf := q, q
		qr.Follow, qr.After = true, max(lastRequest, p.lastRequest)
		qf.Follow, qf.After = true, max(lastFact, p.lastFact)
		if found, err = c.read(ctx, st, qr, qf); ctx.Err() != nil {
			return nil // an interrupt ends following: that is no failure
		}
		if err != nil {
			return err
		}
		p.print(found)
	}
	return nil
}

func (c *Events) hint() string {
	if c.Request != "" {
		return ": the id is in the X-Weir-Request header and in each event line; events are kept for the time of `events.keep`"
	}
	return ""
}

// read returns requests and facts by time.
func (c *Events) read(ctx context.Context, st *store.Store, requests, facts store.Query) ([]row, error) {
	var all []row
	if c.requests() {
		rs, err := st.Requests(ctx, requests)
		if err != nil {
			return nil, err
		}
		for i := range rs {
			all = append(all, row{request: &rs[i], event: requestEvent(&rs[i])})
		}
	}
	if c.facts() {
		fs, err := st.Facts(ctx, facts)
		if err != nil {
			return nil, err
		}
		for i := range fs {
			all = append(all, row{fact: fs[i].ID, event: factEvent(&fs[i])})
		}
	}
	slices.SortStableFunc(all, func(a, b row) int { return a.event.Time.Compare(b.event.Time) })
	return all, nil
}

// row is one line to show: a request or a fact.
type row struct {
	request *store.Request
	fact    int64
	event   event.Event
}

// requestEvent makes the end event again from its row.
func requestEvent(r *store.Request) event.Event {
	var attempts []event.Attempt
	if err := json.Unmarshal([]byte(r.Attempts), &attempts); err != nil {
		attempts = nil // an odd row is shown without them
	}
	rec := &event.Record{
		Start: r.Time, Op: r.Op, Dialect: r.Dialect, Alias: r.Alias, Class: r.Class, Route: r.Route, Tier: r.Tier, Pool: r.Pool,
		Backend: r.Backend, Model: r.Model, Served: r.Served, Status: r.Status, Kind: r.Kind, Message: r.Message, Attempts: attempts,
		Reroute: r.Reroute, Queue: r.Queue, First: r.First, Total: r.Total, Overhead: r.Overhead, Cost: r.Cost,
		KeyName: r.Key, KeyID: r.KeyID, Session: r.Session, Tag: r.Tag, Version: r.Version,
		Tokens: event.Tokens{In: r.TokensIn, Out: r.TokensOut, Cached: r.TokensCached, Reasoning: r.TokensReasoning, Written: r.TokensWritten, Estimated: r.TokensEstimated},
		Shape: event.Shape{Bytes: r.Bytes, TokensEst: r.TokensEst, Messages: r.Messages, Tools: r.Tools, Images: r.Images, Stream: r.Stream,
			MaxTokens: r.MaxTokens},
	}
	rec.Trace, _ = event.ParseTraceID(r.Trace)
	return event.Event{Time: r.Time.Add(max(r.Total, 0)), Name: event.End, Request: r.Request, Record: rec}
}

func factEvent(f *store.Fact) event.Event {
	return event.Event{
		Time: f.Time, Name: event.Name(f.Event), Request: f.Request, Route: f.Route, Tier: f.Tier, Pool: f.Pool, Model: f.Model, Kind: f.Kind,
		Reason: f.Reason, From: f.From, To: f.To, Actor: f.Actor, Detail: f.Detail,
	}
}
