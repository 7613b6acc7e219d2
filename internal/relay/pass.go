package relay

import (
	"strings"
	"time"

	"weir/internal/backend"
	"weir/internal/event"
	"weir/internal/llm"
	"weir/internal/pool"
	"weir/internal/route"
)

// pass hands an answer on as it comes, whatever it is. Until its first bytes another step may follow; after them what
// breaks off is cut at the client too, since nothing within it could say so.
func (x *run) pass(ans *backend.Answer, lease *pool.Lease, s *route.Step, a *event.Attempt) error {
	piece, usage, err := ans.Begin()
	if err != nil {
		return err
	}
	if x.tokens(usage); strings.HasPrefix(ans.Type(), "text/event-stream") {
		x.rec.Shape.Stream = true
	}
	x.commit(ans, lease, s, a, "")
	x.out.Pass(ans.Type(), ans.Length())
	for {
		ended := ans.Ended()
		if ended {
			ans.Close()
			lease.Done(nil)
			defer x.tail(time.Now())
		}
		if len(piece) > 0 {
			if serr := x.out.Send(piece); serr != nil {
				return left(serr)
			}
		}
		if ended {
			return nil
		}
		if err != nil {
			return err
		}
		piece, err = ans.More()
	}
}

// tokens takes what the answer said of them. Sound and images are not estimated.
func (x *run) tokens(u llm.Usage) {
	x.rec.Tokens.In, x.rec.Tokens.Out = u.In, u.Out
}
