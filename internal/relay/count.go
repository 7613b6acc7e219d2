package relay

import (
	"context"

	"weir/internal/llm"
	"weir/internal/route"
)

// counter is a dialect that can answer with a number of tokens.
type counter interface {
	AppendCount(dst []byte, tokens int) []byte
}

// count answers how many tokens the prompt has: by the counter of the step that would serve it, where it has one, else by
// an estimate that is marked as one. A counter that fails costs nobody anything: the estimate is there.
func (x *run) count(ctx context.Context, s *route.Step) error {
	if x.Pools[s.Pool].Serves(x.req) {
		if _, out := x.passed(s); !out {
			e := x.once(ctx, s, how{})
			if e == nil || x.committed || e.Kind == llm.Canceled || e.Kind == llm.Invalid {
				return asError(e)
			}
			x.skip(s, "failed", e)
		}
	}
	return x.estimate(s)
}

func asError(e *llm.Error) error {
	if e == nil {
		return nil
	}
	return e
}

// estimate counts without asking anyone.
func (x *run) estimate(s *route.Step) error {
	api, ok := x.req.Speaks.(counter)
	if !ok || x.Tokens == nil {
		return llm.Errorf(llm.Unknown, "this API has no counter of tokens")
	}
	c, err := x.req.Speaks.Conversation(x.req)
	if err != nil {
		return err
	}
	n, err := x.Tokens(c, s.Sent)
	if err != nil {
		return err
	}
	x.rec.Tokens.In, x.rec.Tokens.Estimated = int64(n), true
	x.out.Head("X-Weir-Estimated", "true")
	x.tried()
	return left(x.out.Answer(api.AppendCount(nil, n)))
}
