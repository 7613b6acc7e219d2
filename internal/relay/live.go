package relay

import (
	"errors"
	"io"
	"time"

	"weir/internal/backend"
	"weir/internal/event"
	"weir/internal/llm"
	"weir/internal/pool"
	"weir/internal/route"
)

// live passes a stream on piece by piece, held until its first content; or gathers it for a client who wants one answer.
// The slot is given back when the upstream's body has ended, before the client's last bytes are written.
func (x *run) live(ans *backend.Answer, lease *pool.Lease, s *route.Step, a *event.Attempt, p *pool.Pool) error {
	var held []byte
	for {
		out, err := ans.Next()
		if !x.committed && len(out) > 0 {
			held = append(held, out...)
			out = nil
		}
		if !x.committed && x.req.Stream && ans.Seen().Content {
			x.commit(ans, lease, s, a, ans.Seen().Served)
			out, held = held, nil
		}
		if len(out) > 0 {
			if serr := x.out.Send(out); serr != nil {
				err = left(serr)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			x.served(ans, a)
			x.used(ans, err)
			return err
		}
	}
	last, err := ans.Finish()
	x.served(ans, a)
	if err != nil {
		if x.committed && x.req.Stream && len(last) > 0 { // whole events that came before the break: they are counted in what follows
			if serr := x.out.Send(last); serr != nil {
				err = left(serr)
			}
		}
		x.used(ans, err)
		return err
	}
	a.First = ans.First()
	x.learn(ans, p)
	p.Rate.LearnOutput(ans.Seen().Usage.Out, ans.Took()-ans.First())
	ans.Close()
	lease.Done(nil)
	defer x.tail(time.Now())
	if !x.committed {
		x.commit(ans, lease, s, a, ans.Seen().Served)
	}
	x.usage(ans.Seen().Usage, int64(ans.Seen().Events))
	if !x.req.Stream {
		return left(x.out.Answer(last))
	}
	if len(held) > 0 {
		last = append(held, last...)
	}
	return left(x.out.Last(last))
}

// commit marks the point after which no other step may follow: what the client gets is this answer or an error.
// The model that the answer names may tell that another pool has served it.
func (x *run) commit(ans *backend.Answer, lease *pool.Lease, s *route.Step, a *event.Attempt, named string) {
	x.committed = true
	a.First = ans.First()
	x.rec.First = a.At + a.Queue + max(a.First, 0)
	x.rec.Backend = a.Backend
	x.won(s, lease.Served(named), ans.Header.Get("X-Weir-Simulated") == "true")
	ans.Free()
}

// whole passes an answer on that came in one piece.
func (x *run) whole(ans *backend.Answer, lease *pool.Lease, s *route.Step, a *event.Attempt) error {
	body, seen, err := ans.Whole()
	if err != nil {
		return err
	}
	ans.Close()
	lease.Done(nil)
	defer x.tail(time.Now())
	a.Served, x.rec.Served = seen.Served, seen.Served
	x.commit(ans, lease, s, a, seen.Served)
	x.usage(seen.Usage, int64(seen.Events))
	if x.req.Stream {
		return left(x.out.Last(body)) // never reached: a stream that came whole is refused by the backend
	}
	return left(x.out.Answer(body))
}

// served notes whose answer it was.
func (x *run) served(ans *backend.Answer, a *event.Attempt) {
	a.Served = ans.Seen().Served
	x.rec.Served = a.Served
	a.First = ans.First()
}

// tail adds the time since the upstream's end to what Weir itself took.
func (x *run) tail(ended time.Time) { x.rec.Overhead += time.Since(ended) }

// used takes the tokens of an answer that was not finished, where the client had some of it or left.
func (x *run) used(ans *backend.Answer, err error) {
	if x.committed || llm.KindOf(err) == llm.Canceled {
		x.usage(ans.Seen().Usage, int64(ans.Seen().Events))
	}
}

// learn takes the prefill rate that the answer showed: from the server's own timings, else from the first content of
// a prompt that is long enough for the rest not to matter.
func (x *run) learn(ans *backend.Answer, p *pool.Pool) {
	const long = 1000 // tokens
	seen := ans.Seen()
	if seen.Prefill > 0 {
		p.Learn(seen.PromptN, seen.Prefill)
		return
	}
	fresh := seen.Usage.In - max(seen.Usage.Cached, 0)
	if fresh >= long && ans.First() > 0 {
		p.Learn(fresh, float64(fresh)/ans.First().Seconds())
	}
}

// left turns a failed write into the client's leaving.
func left(err error) error {
	if err == nil {
		return nil
	}
	return &llm.Error{Kind: llm.Canceled, Op: "relay.live", Msg: "the client left", Sent: true, Err: err}
}
