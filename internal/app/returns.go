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
)

// How a return probe is made: a tiny real call, since nothing else shows that a model answers again.
const (
	lookEvery = time.Second
	askWithin = 20 * time.Second
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
	err = p.Ask(ctx, probe.Backend, &backend.Call{
		Request: req, Model: probe.Model, Quoted: llm.AppendQuoted(nil, probe.Model),
		Limits: backend.Limits{FirstContent: askWithin, Idle: askWithin, Total: askWithin, Answer: askWithin},
	})
	if err != nil {
		a.log.Debug("return probe failed", "pool", p.Name, "backend", probe.Backend.Name, "model", probe.Model, "err", err)
		return
	}
	p.Passed(probe.Backend, probe.Model)
}
