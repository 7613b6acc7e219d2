package app

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"weir/internal/backend"
	"weir/internal/llm"
	"weir/internal/llm/openai"
	"weir/internal/pool"
	"weir/internal/spend"
)

// How a return probe is made: a tiny real call, since nothing else shows that a model answers again.
const (
	lookEvery = time.Second
	askWithin = 20 * time.Second
	forProbe  = "probe" // what its cost is booked as
)

// probeBodies are the smallest requests that real servers take. Sixteen tokens: some vendors refuse fewer.
var probeBodies = map[llm.Op]string{
	llm.Chat:        `{"model":"x","messages":[{"role":"user","content":"Say OK."}],"max_tokens":16}`,
	llm.Completions: `{"model":"x","prompt":"Say OK.","max_tokens":16}`,
	llm.Embeddings:  `{"model":"x","input":"OK"}`,
	llm.Rerank:      `{"model":"x","query":"OK","documents":["OK"]}`,
}

// returns asks, with growing gaps, whether models that were gone and accounts that were refused are back, until ctx ends.
func (a *App) returns(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var probes sync.WaitGroup
	defer probes.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, p := range a.graph.pools {
				for _, probe := range p.Due(now) {
					probes.Go(func() { a.ask(ctx, p, probe) })
				}
			}
		}
	}
}

func (a *App) ask(ctx context.Context, p *pool.Pool, probe pool.Probe) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	req, err := openai.Dialect{}.Decode(probe.Op, []byte(probeBodies[probe.Op]), 8)
	if err != nil {
		a.log.Error("a return probe cannot be written", "pool", p.Name, "err", err)
		return
	}
	req.ID = "probe_" + rand.Text() // so that its upstream's log tells it from a client's
	err = a.small(ctx, p, probe.Backend, forProbe, &backend.Call{
		Request: req, Model: probe.Model, Quoted: llm.AppendQuoted(nil, probe.Model),
		Limits: backend.Limits{FirstContent: askWithin, Idle: askWithin, Total: askWithin, Answer: askWithin},
	})
	if err != nil {
		a.log.Debug("return probe failed", "pool", p.Name, "backend", probe.Backend.Name, "model", probe.Model, "err", err)
		return
	}
	p.Passed(probe.Backend, probe.Model)
}

// small makes one call of Weir's own and books what it cost apart from clients, under its purpose. One that the ceilings of pool
// or total leave no money for is not made.
func (a *App) small(ctx context.Context, p *pool.Pool, b *backend.Backend, purpose string, c *backend.Call) error {
	shape := c.Request.Shape
	hold, refused := a.book.Reserve(spend.Charge{
		Pool: p.Name, Price: a.prices.For(p.Name, c.Model, c.Model), Most: spend.Usage{In: int64(shape.TokensEst), Out: shape.MaxTokens},
	})
	if refused != nil {
		return refused
	}
	told, err := p.Ask(ctx, b, c)
	if err != nil && !llm.AsError(err).Sent {
		hold.Cancel()
		return err
	}
	used := spend.Usage{In: told.Usage.In, Out: told.Usage.Out, Cached: told.Usage.Cached, Written: told.Usage.Written}
	if used.In < 0 {
		used.In = int64(shape.TokensEst)
	}
	if used.Out < 0 {
		used.Out = 0
	}
	hold.Settle(used, purpose)
	return err
}
