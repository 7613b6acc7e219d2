package app

import (
	"context"
	"encoding/hex"
	"log/slog"
	"time"

	"weir/internal/event"
	"weir/internal/store"
)

// rows is the reader that keeps events in the store: a row per request, a row per fact without one.
type rows struct {
	store    *store.Store
	log      *slog.Logger
	requests []store.Request
	facts    []store.Fact
	told     time.Time // of the last warning
}

func wantsRow(e *event.Event) bool {
	return e.Name == event.End && e.Record != nil || e.Request == ""
}

// Read writes the batch. What cannot be written is lost and said, at most every ten seconds: requests go on.
func (r *rows) Read(ctx context.Context, batch []event.Event) {
	r.requests, r.facts = r.requests[:0], r.facts[:0]
	for i := range batch {
		if e := &batch[i]; e.Name == event.End {
			r.requests = append(r.requests, request(e))
		} else {
			r.facts = append(r.facts, fact(e))
		}
	}
	r.tell(r.store.WriteRequests(ctx, r.requests), len(r.requests))
	r.tell(r.store.WriteFacts(ctx, r.facts), len(r.facts))
	clear(r.requests)
	clear(r.facts)
}

func (r *rows) tell(err error, n int) {
	if err == nil || n == 0 || time.Since(r.told) < 10*time.Second {
		return
	}
	r.told = time.Now()
	r.log.Error("events could not be stored; requests go on", "lost", n, "err", err)
}

func request(e *event.Event) store.Request {
	r := e.Record
	row := store.Request{
		Time: r.Start, Request: e.Request, Op: r.Op, Dialect: r.Dialect, Alias: r.Alias, Class: r.Class, Route: r.Route,
		Tier: r.Tier, Pool: r.Pool, Backend: r.Backend, Model: r.Model, Served: r.Served, Status: r.Status, Kind: r.Kind,
		Message: r.Message, Reroute: r.Reroute, Attempts: string(event.AppendAttempts(nil, r.Attempts)),
		Queue: r.Queue, First: r.First, Total: r.Total, Overhead: r.Overhead,
		TokensIn: r.Tokens.In, TokensOut: r.Tokens.Out, TokensCached: r.Tokens.Cached, TokensReasoning: r.Tokens.Reasoning, TokensWritten: r.Tokens.Written,
		TokensEstimated: r.Tokens.Estimated, Cost: r.Cost,
		Key: r.KeyName, KeyID: r.KeyID, Session: r.Session, Tag: r.Tag, Version: r.Version,
		Bytes: r.Shape.Bytes, TokensEst: r.Shape.TokensEst, Messages: r.Shape.Messages, Tools: r.Shape.Tools,
		Images: r.Shape.Images, Stream: r.Shape.Stream, MaxTokens: r.Shape.MaxTokens,
	}
	if r.Trace != (event.TraceID{}) {
		row.Trace = hex.EncodeToString(r.Trace[:])
	}
	return row
}

func fact(e *event.Event) store.Fact {
	return store.Fact{
		Time: e.Time, Event: string(e.Name), Request: e.Request, Route: e.Route, Tier: e.Tier, Pool: e.Pool, Model: e.Model,
		Kind: e.Kind, Reason: e.Reason, From: e.From, To: e.To, Actor: e.Actor, Detail: e.Detail,
	}
}
