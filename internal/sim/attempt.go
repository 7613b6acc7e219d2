package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

// End says how an attempt ended.
type End string

// The ends of an attempt.
const (
	Running   End = "running"   // not yet
	Completed End = "completed" // the answer was written whole
	Left      End = "left"      // the peer left before that; Attempt.Left says when
	CutOff    End = "cut"       // the script broke it off
	Stopped   End = "stopped"   // the Server was closed
)

// Attempt is the record of one request that reached a Server.
type Attempt struct {
	ID     int    `json:"id"`    // counts from 1 in order of arrival
	Nonce  string `json:"nonce"` // in the answer's id and text, and in no other answer's
	Conn   int64  `json:"conn"`  // the connection; 0 when ServeHTTP runs in another server
	Reuse  int    `json:"reuse"` // how many requests the connection carried before
	Method string `json:"method"`
	Path   string `json:"path"`
	Query  string `json:"query,omitempty"`
	API    API    `json:"api,omitempty"`   // "" for what reads the state of the server
	Model  string `json:"model,omitempty"` // as asked
	Stream bool   `json:"stream"`

	Header    http.Header `json:"header"`     // do not modify
	Body      []byte      `json:"-"`          // the first Options.KeepBody bytes; do not modify
	BodyBytes int64       `json:"body_bytes"` // of the whole body

	Arrived      time.Time `json:"arrived"`
	FirstByte    time.Time `json:"first_byte,omitzero"`    // the status was written
	FirstContent time.Time `json:"first_content,omitzero"` // the first content was written
	Left         time.Time `json:"left,omitzero"`          // the peer was seen to leave
	Ended        time.Time `json:"ended,omitzero"`
	End          End       `json:"end"`

	Status    int   `json:"status"` // 0: none was sent
	Chunks    int   `json:"chunks"` // content chunks written
	BytesSent int64 `json:"bytes_sent"`
	InFlight  int   `json:"in_flight"` // calls of this model at its arrival, itself included

	working bool // counted in byModel
}

// Call reports whether the attempt asked for work (a conversation, completion, embedding
// or rerank) and not for the state of the server or a count of tokens.
func (a *Attempt) Call() bool { return a.API.work() }

// MarshalJSON adds the body as text.
func (a Attempt) MarshalJSON() ([]byte, error) {
	type bare Attempt
	return json.Marshal(struct {
		bare
		Body string `json:"body"`
	}{bare(a), string(a.Body)})
}

// Attempts returns every attempt that is kept, in order of arrival, those that read the
// state of the server (models, health) too.
func (s *Server) Attempts() []Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Attempt, len(s.attempts))
	for i, a := range s.attempts {
		out[i] = *a
	}
	return out
}

// Calls returns the attempts that asked for work: those of one model, or all when model is "".
func (s *Server) Calls(model string) []Attempt {
	return slices.DeleteFunc(s.Attempts(), func(a Attempt) bool {
		return !a.Call() || model != "" && a.Model != model
	})
}

// Active returns how many attempts have not ended.
func (s *Server) Active() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active
}

// ActiveOf returns how many calls of a model are at work, those that wait for a slot too.
// A call is at work until the moment before its last content, its cut, or its peer's
// leaving is seen: whoever has the whole answer never sees it counted.
func (s *Server) ActiveOf(model string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byModel[model].active
}

// Peak returns the most calls of a model that were ever at work at once since Reset.
func (s *Server) Peak(model string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byModel[model].peak
}

// WaitQuiet waits until no attempt is active. It returns the context's error when that ends first.
func (s *Server) WaitQuiet(ctx context.Context) error {
	return s.wait(ctx, func() bool { return s.active == 0 })
}

// WaitArrived waits until n attempts have arrived since Reset.
func (s *Server) WaitArrived(ctx context.Context, n int) error {
	return s.wait(ctx, func() bool { return s.arrived >= n })
}

// WaitActive waits until n attempts are active.
func (s *Server) WaitActive(ctx context.Context, n int) error {
	return s.wait(ctx, func() bool { return s.active == n })
}

// WaitEnded waits until n attempts have ended since Reset.
func (s *Server) WaitEnded(ctx context.Context, n int) error {
	return s.wait(ctx, func() bool { return s.arrived-s.active >= n })
}

// wait is woken at each change of an attempt and asks done under the Server's lock,
// until it says yes or the context ends.
func (s *Server) wait(ctx context.Context, done func() bool) error {
	for {
		s.mu.Lock()
		ok, changed := done(), s.changed
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Reset forgets the attempts that have ended, the peaks and the places in the sequences.
// Attempts that run go on and stay in the record.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts = slices.DeleteFunc(s.attempts, func(a *Attempt) bool { return a.End != Running })
	s.arrived = len(s.attempts)
	s.bodyBytes = 0
	for _, a := range s.attempts {
		s.bodyBytes += len(a.Body)
	}
	for model, c := range s.byModel {
		s.byModel[model] = count{active: c.active, peak: c.active}
	}
	clear(s.place)
	s.wake()
}

// count is the calls of one model.
type count struct{ active, peak int }

// arrive records a new attempt.
func (s *Server) arrive(r *http.Request) *Attempt {
	a := &Attempt{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, API: apiOf(r.Method, r.URL.Path),
		Header: r.Header.Clone(), Arrived: time.Now(), End: Running,
	}
	a.Header.Set("Host", r.Host)
	if c, ok := r.Context().Value(connKey{}).(*connection); ok {
		a.Conn, a.Reuse = c.id, int(c.requests.Add(1))-1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sequence++
	s.arrived++
	s.active++
	a.ID = s.sequence
	a.Nonce = nonce(s.opt.Name, a.ID)
	s.attempts = append(s.attempts, a)
	s.forget()
	s.wake()
	return a
}

// forget drops the oldest ended attempts beyond what is kept.
func (s *Server) forget() {
	for len(s.attempts) > s.opt.KeepAttempts || s.bodyBytes > keptBodies {
		i := slices.IndexFunc(s.attempts, func(a *Attempt) bool { return a.End != Running })
		if i < 0 {
			return
		}
		s.bodyBytes -= len(s.attempts[i].Body)
		s.attempts = slices.Delete(s.attempts, i, i+1)
	}
}

// read records what the request's body said, and counts the call for its model.
func (s *Server) read(a *Attempt, q *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.Model, a.Stream = q.Model, q.Stream
	a.BodyBytes = int64(len(q.body))
	a.Body = q.body
	if len(a.Body) > s.opt.KeepBody {
		a.Body = bytes.Clone(a.Body[:s.opt.KeepBody]) // the rest is not to stay in memory
	}
	s.bodyBytes += len(a.Body)
	if a.Call() {
		c := s.byModel[a.Model]
		c.active++
		c.peak = max(c.peak, c.active)
		s.byModel[a.Model] = c
		a.InFlight, a.working = c.active, true
	}
	s.wake()
}

// note changes an attempt's record under the lock.
func (s *Server) note(a *Attempt, change func(*Attempt)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(a)
	s.wake()
}

// end closes an attempt's record.
func (s *Server) end(a *Attempt, how End) {
	s.note(a, func(a *Attempt) {
		a.Ended, a.End = time.Now(), how
		s.active--
		s.rest(a)
	})
}

// rest takes a call out of those at work, once; s.mu is held.
func (s *Server) rest(a *Attempt) {
	if !a.working {
		return
	}
	a.working = false
	c := s.byModel[a.Model]
	c.active--
	s.byModel[a.Model] = c
}

// wake tells everyone in wait; s.mu is held.
func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}
