package sim

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// answer is what to send: a status, headers, and the body piece by piece. The pieces are
// made while they are sent, so an endless answer is one too.
type answer struct {
	status int
	header http.Header
	pieces iter.Seq[piece]
	whole  bool   // one piece, sent with a content-length
	stream bool   // comments may be sent while waiting
	ping   []byte // sent in place of a comment
	early  bool   // headers go out before the first piece is due
}

// piece is a part of a body that is written and flushed at once.
type piece struct {
	wait    time.Duration // before it
	data    []byte
	content bool // counts as a content chunk
	over    bool // the work is done when it is written
}

// Why a play ended early.
var (
	errLeft    = errors.New("the peer left")
	errCut     = errors.New("cut by the script")
	errStopped = errors.New("the server was closed")
)

// player writes one answer as a behaviour says.
type player struct {
	s      *Server
	a      *Attempt
	b      Behaviour
	w      http.ResponseWriter
	r      *http.Request
	ctx    context.Context // ends when the peer leaves
	out    io.Writer       // w, or the connection itself
	flush  func() error
	status int
	sent   int64 // bytes of the body
	chunks int
	headed bool
	pings  bool
	ping   []byte
	slot   chan struct{} // the slot it holds, or nil
}

func newPlayer(s *Server, a *Attempt, b Behaviour, w http.ResponseWriter, r *http.Request) *player {
	return &player{s: s, a: a, b: b, w: w, r: r, ctx: r.Context(), out: w, flush: http.NewResponseController(w).Flush}
}

// finish plays an answer and names the end.
func (p *player) finish(ans answer) End { return p.result(p.play(ans)) }

// result names the end of a play.
func (p *player) result(err error) End {
	switch {
	case errors.Is(err, errCut):
		return CutOff
	case errors.Is(err, errStopped):
		return Stopped
	case errors.Is(err, errLeft) || p.ctx.Err() != nil && p.b.Ghost:
		p.s.peerLeft(p.a)
		return Left
	}
	return Completed
}

// takeSlot waits in line for one of the script's slots. settle gives it back.
func (p *player) takeSlot() error {
	p.s.mu.Lock()
	slots := p.s.slots
	p.s.mu.Unlock()
	if slots == nil || !p.a.Call() {
		return nil
	}
	select {
	case slots <- struct{}{}:
		p.slot = slots
		return nil
	case <-p.ctx.Done():
		return errLeft
	case <-p.s.done:
		return errStopped
	}
}

// settle says that the work is done: the slot is free and the call is no longer counted.
// It comes before the last write, so that a peer that asks again at once, having read the
// answer, is never counted twice. Later calls do nothing.
func (p *player) settle() {
	if p.slot != nil {
		<-p.slot
		p.slot = nil
	}
	p.s.note(p.a, p.s.rest)
}

func (p *player) play(ans answer) error {
	if p.b.Stale && p.a.Reuse > 0 {
		return p.sever("fin")
	}
	if p.b.Drop != "" {
		return p.sever(p.b.Drop)
	}
	if err := p.wait(p.b.HeaderDelay); err != nil {
		return err
	}
	switch {
	case p.b.Hang:
		return p.hold()
	case p.b.Raw != "":
		return p.raw([]byte(strings.ReplaceAll(string(p.b.Raw), "{nonce}", p.a.Nonce)))
	case p.b.Do != nil:
		return p.do()
	}
	p.head(ans)
	if ans.early {
		if err := p.sendHead(); err != nil {
			return err
		}
	}
	p.pings, p.ping = ans.stream && p.b.Ping > 0, ans.ping
	if p.ping == nil {
		p.ping = []byte(": ping\n\n")
	}
	return p.body(ans)
}

// do lets a test's own function answer.
func (p *player) do() error {
	w := &counter{ResponseWriter: p.w, p: p}
	p.b.Do(w, p.r)
	if p.ctx.Err() != nil {
		return errLeft
	}
	return nil
}

// counter keeps the record while a test's own function answers.
type counter struct {
	http.ResponseWriter
	p *player
}

// Unwrap lets http.ResponseController reach the writer beneath.
func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *counter) WriteHeader(status int) {
	c.p.headSent(status)
	c.ResponseWriter.WriteHeader(status)
}

func (c *counter) Write(data []byte) (int, error) {
	c.p.headSent(http.StatusOK)
	n, err := c.ResponseWriter.Write(data)
	c.p.s.note(c.p.a, func(a *Attempt) { a.BytesSent += int64(n) })
	return n, err
}

// head sets the headers of an answer.
func (p *player) head(ans answer) {
	h := p.w.Header()
	for i := range p.b.EarlyHints {
		h.Set("Link", "</hint"+strconv.Itoa(i)+">; rel=preload")
		p.w.WriteHeader(http.StatusEarlyHints)
	}
	h.Del("Link")
	for k, v := range ans.header {
		h[k] = v
	}
	if p.b.HeaderBytes > 0 {
		h.Set("X-Sim-Filler", strings.Repeat("x", p.b.HeaderBytes))
	}
	if p.b.RetryAfter != "" {
		h.Set("Retry-After", p.b.RetryAfter)
	}
	if p.b.RetryAfterMS != "" {
		h.Set("Retry-After-Ms", p.b.RetryAfterMS)
	}
	if p.b.Gzip != "" {
		h.Set("Content-Encoding", "gzip")
	}
	for k, v := range p.b.Headers {
		h.Set(k, v)
	}
	p.status = ans.status
}

// sendHead writes the status and headers, once.
func (p *player) sendHead() error {
	if p.headed {
		return nil
	}
	p.headSent(p.status)
	p.w.WriteHeader(p.status)
	if err := p.flush(); err != nil && !p.b.Ghost {
		return errLeft
	}
	return nil
}

func (p *player) headSent(status int) {
	if p.headed {
		return
	}
	p.headed = true
	p.s.note(p.a, func(a *Attempt) { a.Status, a.FirstByte = status, time.Now() })
}

// body sends the pieces.
func (p *player) body(ans answer) error {
	squeeze := newSqueezer(p.b.Gzip)
	for pc := range ans.pieces {
		if pc.content && p.cutHere() {
			return p.cut()
		}
		if err := p.wait(pc.wait); err != nil {
			return err
		}
		data := squeeze.add(pc.data)
		if ans.whole && p.b.cut().How != "end" {
			data = append(data, squeeze.end()...)
			p.w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		}
		if pc.over && p.b.Cut == nil {
			p.settle()
		}
		if err := p.sendHead(); err != nil {
			return err
		}
		if err := p.write(data); err != nil {
			return err
		}
		if pc.content {
			p.contentSent()
		}
	}
	if p.b.Cut == nil {
		p.settle()
	}
	if err := p.sendHead(); err != nil {
		return err
	}
	if err := p.write(squeeze.end()); err != nil {
		return err
	}
	if p.b.Cut != nil {
		return p.cut()
	}
	return nil
}

func (p *player) contentSent() {
	p.chunks++
	p.s.note(p.a, func(a *Attempt) {
		a.Chunks++
		if a.FirstContent.IsZero() {
			a.FirstContent = time.Now()
		}
	})
}

// cutHere reports whether the answer is to be cut at this place.
func (p *player) cutHere() bool {
	c := p.b.Cut
	switch {
	case c == nil:
		return false
	case c.Of == "chunks":
		return p.chunks >= c.After
	}
	return p.sent >= int64(c.After)
}

// write sends bytes of the body, in slices, and stops where the cut is.
func (p *player) write(data []byte) error {
	for first := true; len(data) > 0; first = false {
		n := len(data)
		if p.b.Slice > 0 {
			n = min(n, p.b.Slice)
		}
		if c := p.b.Cut; c != nil && c.Of != "chunks" {
			if p.cutHere() {
				return p.cut()
			}
			n = int(min(int64(n), int64(c.After)-p.sent))
		}
		if !first {
			if err := p.wait(p.b.SliceGap); err != nil {
				return err
			}
		}
		if err := p.put(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func (p *player) put(data []byte) error {
	_, err := p.out.Write(data)
	if err == nil {
		err = p.flush()
	}
	p.sent += int64(len(data))
	p.s.note(p.a, func(a *Attempt) { a.BytesSent += int64(len(data)) })
	if err != nil && !p.b.Ghost {
		return errLeft
	}
	return nil
}

// wait sleeps, sending comments where the stream is open, until d has passed, the peer
// leaves (a ghost does not mind) or the server is closed.
func (p *player) wait(d time.Duration) error {
	end := time.Now().Add(d)
	for {
		left := time.Until(end)
		if p.pings {
			left = min(left, p.b.Ping)
		}
		if err := p.sleep(left); err != nil {
			return err
		}
		if !time.Now().Before(end) {
			return nil
		}
		if err := p.sendHead(); err != nil {
			return err
		}
		if err := p.put(p.ping); err != nil {
			return err
		}
	}
}

func (p *player) sleep(d time.Duration) error {
	left := p.ctx.Done()
	if p.b.Ghost {
		left = nil
	} else if p.ctx.Err() != nil {
		return errLeft
	}
	if d <= 0 {
		select {
		case <-p.s.done:
			return errStopped
		default:
			return nil
		}
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-left:
		return errLeft
	case <-p.s.done:
		return errStopped
	}
}

// hold keeps the connection open and silent until the peer leaves.
func (p *player) hold() error {
	select {
	case <-p.ctx.Done():
		return errLeft
	case <-p.s.done:
		return errStopped
	}
}

// cut ends the answer as the script's cut says.
func (p *player) cut() error {
	if err := p.sendHead(); err != nil {
		return err
	}
	switch how := p.b.Cut.How; how {
	case "end":
		p.settle()
		return errCut
	case "stall":
		return p.hold()
	default:
		return p.sever(how)
	}
}
