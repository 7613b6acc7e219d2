package app

import (
	"context"
	"fmt"
	"time"

	"weir/internal/config"
	"weir/internal/event"
	"weir/internal/llm"
	"weir/internal/relay"
	"weir/internal/spend"
)

// openBook reads what was spent before.
func (a *App) openBook(ctx context.Context) (err error) {
	a.prices = spend.NewPrices(a.cfg)
	a.book, err = spend.Open(ctx, spend.Options{Store: a.store, Warn: a.spendWarning, Log: a.log, Now: a.today})
	if err != nil {
		return fmt.Errorf("what was spent cannot be read, so no ceiling could be kept: %w", err)
	}
	c := spend.Ceilings{Total: a.cfg.Spend, Pools: map[string]config.Ceiling{}}
	for name, p := range a.cfg.Pools {
		c.Pools[name] = p.Spend
	}
	a.book.SetCeilings(c)
	return nil
}

func (a *App) spendWarning(w spend.Warning) {
	e := event.Event{Name: event.Alert, Reason: "spend"}
	what := w.Scope + " " + w.Name
	switch w.Scope {
	case spend.Pool:
		e.Pool = w.Name
	case spend.Total:
		what = "all of Weir"
	}
	e.Detail = fmt.Sprintf("%d %% of the $%s that %s may spend in a %s is reached: $%s", w.Percent, config.USD(w.Ceiling), what, w.Period, config.USD(w.Spent))
	a.recorder.Emit(e)
}

// lastPage writes what the last calls cost, once nothing runs any more: what is held in the store counts as spent at the next
// start.
func (a *App) lastPage() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = a.book.Flush(ctx) // it logs
}

// today is the calendar of what is spent.
func (a *App) today() time.Time {
	if a.opts.Today == nil {
		return time.Now()
	}
	return a.opts.Today()
}

// ledger is the relay's side of the book.
type ledger struct {
	book   *spend.Book
	prices *spend.Prices
	today  func() time.Time
}

// Hold holds the most that a call may cost back.
func (l ledger) Hold(c relay.Charge) (relay.Hold, *llm.Error) {
	s := c.Step
	h, refused := l.book.Reserve(spend.Charge{
		Key: c.Caller.Key, KeyDay: c.Caller.SpendDay, KeyMonth: c.Caller.SpendMonth, Pool: s.Pool, Price: l.prices.For(s.Pool, s.Model, s.Sent),
		Most: spend.Usage{In: c.In, Out: c.Out},
	})
	if refused == nil {
		return held{h}, nil
	}
	e := llm.Errorf(llm.None, "%s", refused.Error())
	if e.Code = "spend"; refused.Scope == spend.Key {
		e.Kind, e.Code = llm.Limited, "insufficient_quota" // what clients know as: there is no money left
	}
	if e.RetryAfter = refused.Until.Sub(l.today()); refused.Passing {
		e.RetryAfter = time.Second
	}
	return nil, e
}

type held struct{ *spend.Hold }

// Settle books what a call used.
func (h held) Settle(t event.Tokens, purpose string) int64 {
	nanos, known := h.Hold.Settle(spend.Usage{In: t.In, Out: max(t.Out, 0), Cached: t.Cached, Written: t.Written}, purpose)
	if !known {
		return -1
	}
	return nanos
}
