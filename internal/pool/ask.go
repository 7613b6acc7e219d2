package pool

import (
	"context"
	"io"
	"time"

	"weir/internal/backend"
	"weir/internal/llm"
)

// Told is what one of Weir's own calls brought.
type Told struct {
	Answer []byte // whole, in the dialect of the request; nil where there was a failure
	Served string // the model that it names
	Usage  llm.Usage
	First  time.Duration // to its first content; negative: there was none
	Took   time.Duration
}

// Ask makes one small call of Weir's own, of a request that does not stream: it takes a slot, waits behind every client, leaves a
// full queue to them, and returns the answer, or why there is none. What was used is told in both cases. It does not touch the
// breaker, and is in no client's metrics. Errors are *llm.Error.
func (p *Pool) Ask(ctx context.Context, b *backend.Backend, c *backend.Call) (t Told, err error) {
	t = Told{Usage: llm.NoUsage, First: -1}
	if err := p.Slots.Acquire(ctx, weirsOwn, 0); err != nil {
		return t, err
	}
	defer p.Slots.Release()
	ans, err := b.Call(ctx, c)
	if err != nil {
		return t, err
	}
	defer func() {
		t.First, t.Took = ans.First(), ans.Took()
		ans.Close()
	}()
	if !ans.IsStream() {
		body, seen, err := ans.Whole()
		t.Answer, t.Served, t.Usage = body, seen.Served, seen.Usage
		return t, err
	}
	for err == nil {
		_, err = ans.Next()
	}
	if err == io.EOF {
		t.Answer, err = ans.Finish()
	}
	t.Served, t.Usage = ans.Seen().Served, ans.Seen().Usage
	if err != nil {
		t.Answer = nil
	}
	return t, err
}
