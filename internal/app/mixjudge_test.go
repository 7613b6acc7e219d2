package app

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"weir/internal/event"
	"weir/internal/sim"
)

var mixNonce = regexp.MustCompile(`\b[abc]-\d{6}\b`)

// judge checks every request of a batch, once all is quiet.
func (m *mix) judge(list []*asked) {
	m.t.Helper()
	attempts := map[int][]sim.Attempt{}
	nonces := map[string]int{}
	for _, s := range []string{"a", "b", "c"} {
		for _, a := range m.sims[s].Calls("") {
			n := number(a.Body)
			attempts[n] = append(attempts[n], a)
			if nonces[a.Nonce] = n; a.End == sim.Running && n >= 0 { // a return probe may be under way at any time
				m.t.Errorf("I8: the attempt %s of request %d still runs: answered %+v, %+v", a.Nonce, n, m.picked[n], a)
			}
		}
	}
	ends := map[string]record{}
	for _, e := range m.lines.all() {
		if e.Event == "end" {
			ends[e.Request] = e
		}
	}
	for _, q := range list {
		was := m.t.Failed()
		m.judgeOne(q, attempts[q.n], nonces, ends)
		if m.t.Failed() && !was {
			m.t.Logf("request %d: %+v\nanswered %+v\nreply %+v", q.n, q, m.picked[q.n], q.reply)
			return
		}
	}
}

func (m *mix) judgeOne(q *asked, attempts []sim.Attempt, nonces map[string]int, ends map[string]record) {
	m.t.Helper()
	slices.SortFunc(attempts, func(a, b sim.Attempt) int { return a.Arrived.Compare(b.Arrived) })
	m.judgeAttempts(q, attempts)
	id := ""
	if len(attempts) > 0 {
		id = attempts[0].Header.Get("X-Request-Id")
	}
	if q.reply != nil {
		id = q.reply.id()
	}
	e, ended := ends[id]
	if id != "" && !ended {
		m.t.Errorf("I2: request %s has no end", id)
	}
	if id != "" {
		m.judgeKinds(q, &e)
	}
	left := q.leaves > 0 && q.end.Sub(q.start) >= q.leaves
	if q.reply == nil {
		if !left {
			m.t.Errorf("I4: no answer, after %v: %v", q.end.Sub(q.start), q.refused)
		}
		return
	}
	m.judgeReply(q, attempts, nonces, &e, left)
}

// judgeAttempts holds what the servers saw against the bounds (I3, I4, I7).
func (m *mix) judgeAttempts(q *asked, attempts []sim.Attempt) {
	m.t.Helper()
	generations, perServer := 0, map[string]int{}
	for i, a := range attempts {
		if refused := a.Status >= 300 && a.Status < 500 || a.Status == 503 || a.Status == 529; !refused {
			generations++
		}
		perServer[a.Nonce[:1]+"/"+a.Model]++
		if got := a.Header.Get("Authorization"); got != "Bearer "+mixSecret {
			m.t.Errorf("a backend got the key %q", got)
		}
		if a.Header.Get("X-Request-Id") != attempts[0].Header.Get("X-Request-Id") {
			m.t.Error("I7: two requests share a number")
		}
		gone := a.Ended
		if !a.Left.IsZero() {
			gone = a.Left
		}
		limit := mixTotal
		if a.FirstContent.IsZero() {
			limit = max(mixFirst, mixAnswer) + mixPrefill
		}
		if took := gone.Sub(a.Arrived); took > limit+250*time.Millisecond {
			m.t.Errorf("I4: attempt %d was closed after %v, the limit is %v", i, took, limit)
		}
		if over := gone.Sub(q.end); over > 100*time.Millisecond {
			m.t.Errorf("attempt %d was closed %v after its client had the end", i, over)
		}
	}
	if generations > 3 {
		m.t.Errorf("I3: %d generations", generations)
	}
	for s, n := range perServer {
		if n > 3 { // twice, and once more without a stream where that was refused
			m.t.Errorf("I3: the step %s was tried %d times", s, n)
		}
	}
	if q.want != 0 && len(attempts) > 0 {
		m.t.Errorf("a request that is refused went upstream %d times", len(attempts))
	}
}

// judgeKinds holds what Weir recorded against what the servers did (I12): a client's fault is never a backend's, and a
// backend's never hidden.
func (m *mix) judgeKinds(q *asked, e *record) {
	m.t.Helper()
	did := slices.Clone(m.picked[q.n])
	for n, a := range e.Attempts {
		if a.Backend == "" || a.Backend == "gone" {
			// A pool may go out between the plan and the slot.
			if !slices.Contains([]string{"full", "canceled", "refused", "none", "gone", "denied", "busy", "unavailable", "loading"}, a.Kind) {
				m.t.Errorf("I12: no server was asked, and the attempt is recorded as %q", a.Kind)
			}
			continue
		}
		i := slices.IndexFunc(did, func(p picked) bool { return p.server == a.Backend })
		if i < 0 {
			if a.Kind != "canceled" && a.Kind != "stale" {
				m.t.Errorf("an attempt at %s, recorded as %q, reached no server", a.Backend, a.Kind)
			}
			continue
		}
		p := did[i]
		if a.Kind == "stale" && unseen(p, later(e.Attempts[n:], a.Backend), count(did, a.Backend)) {
			continue
		}
		did = slices.Delete(did, i, i+1)
		if p.name == "no streams" && a.Kind != "invalid" { // asked again without: two calls in one attempt
			if j := slices.IndexFunc(did, func(p picked) bool { return p.server == a.Backend }); j >= 0 {
				p = did[j]
				did = slices.Delete(did, j, j+1)
			}
		}
		if a.Kind == "canceled" && (q.leaves > 0 || q.slow) {
			continue
		}
		if !slices.Contains(strings.Split(p.kinds, "|"), a.Kind) {
			m.t.Errorf("I12: server %s did %q, which is recorded as %q, want %q", a.Backend, p.name, a.Kind, p.kinds)
		}
	}
}

// unseen reports a stale attempt whose connection had ended before, so that no server saw it: what the server did next, p,
// belongs to a later attempt. Where it refused to stream, two calls are one attempt.
func unseen(p picked, attempts, calls int) bool {
	if p.name == "no streams" {
		return attempts > calls-1
	}
	return !strings.Contains(p.kinds, "stale") || attempts > calls
}

// later counts the attempts at a backend.
func later(list []event.Attempt, backend string) (n int) {
	for _, a := range list {
		if a.Backend == backend {
			n++
		}
	}
	return n
}

// count counts what a server did.
func count(list []picked, server string) (n int) {
	for _, p := range list {
		if p.server == server {
			n++
		}
	}
	return n
}

// judgeReply checks what the client got (I2, I4, I5, I6, I7, I9, I11).
func (m *mix) judgeReply(q *asked, attempts []sim.Attempt, nonces map[string]int, e *record, left bool) {
	m.t.Helper()
	r := q.reply
	for _, n := range mixNonce.FindAllString(string(r.body), -1) {
		if nonces[n] != q.n {
			m.t.Errorf("I7: the answer holds %s, which belongs to request %d", n, nonces[n])
		}
	}
	for _, secret := range []string{mixSecret, mixPrompt, ".sim", "10.0.0.7", m.keys[q.key]} {
		if strings.Contains(string(r.body), secret) || strings.Contains(e.Raw, secret) {
			m.t.Errorf("I11: %q is in the answer or in the event %s", secret, e.Raw)
		}
	}
	if left && r.err != nil {
		if e.Kind != "canceled" && e.Kind != "" && r.status == 200 && len(r.body) == 0 {
			m.t.Errorf("the client left, and the request is recorded as %q", e.Kind)
		}
		return
	}
	if took := q.end.Sub(q.start); took > 3*(mixWait+2*(mixFirst+mixPrefill+2*time.Second))+mixTotal {
		m.t.Errorf("I4: the client had its end after %v", took)
	}
	s := r.said()
	switch {
	case q.want != 0:
		if r.status != q.want && r.status != 429 {
			m.t.Errorf("status %d, want %d: %s", r.status, q.want, r.body)
		}
		return
	case s.failure != nil:
		if len(s.finish) > 0 || s.done {
			m.t.Error("I2: a finish and an error")
		}
		if e.Kind == "" {
			m.t.Errorf("the client got an error, and the event says success: %s", e.Raw)
		}
		if r.status == 200 {
			m.prefix(s, attempts)
		}
		return
	}
	if e.Kind != "" || e.Status != 200 {
		m.t.Errorf("the client got an answer, and the event says %s", e.Raw)
	}
	m.exact(s, attempts, e)
}

// winner is the attempt whose answer the client got: its number is in the text and in the id.
func (m *mix) winner(s *said, attempts []sim.Attempt) *sim.Attempt {
	m.t.Helper()
	told := s.texts[0]
	for id := range s.ids {
		told += " " + id
	}
	i := slices.IndexFunc(attempts, func(a sim.Attempt) bool { return strings.Contains(told, a.Nonce) })
	if i < 0 {
		if len(attempts) == 0 || mixNonce.MatchString(told) || s.texts[0] != "" {
			m.t.Errorf("I6: the client got %q, which no attempt sent", told)
			return nil
		}
		i = len(attempts) - 1
	}
	return &attempts[i]
}

// prefix checks that a broken stream gave what its server sent, in order, and nothing else (I6).
func (m *mix) prefix(s *said, attempts []sim.Attempt) {
	m.t.Helper()
	if len(attempts) == 0 || s.texts[0] == "" {
		return
	}
	a := m.winner(s, attempts)
	if a == nil {
		return
	}
	want := strings.ReplaceAll("answer {nonce} one two three four", "{nonce}", a.Nonce)
	if !strings.HasPrefix(want, s.texts[0]) && !strings.HasPrefix(s.texts[0], want[:len(want)-5]) {
		m.t.Errorf("I6: the client got %q, which is not how %q begins", s.texts[0], want)
	}
}

// exact checks that an answer is what its server said, and that it was counted once (I6, I9).
func (m *mix) exact(s *said, attempts []sim.Attempt, e *record) {
	m.t.Helper()
	a := m.winner(s, attempts)
	if a == nil {
		return
	}
	text := strings.ReplaceAll(s.texts[0], a.Nonce, "{nonce}")
	if !slices.Contains([]string{"answer {nonce} one two three", "answer {nonce} one two three four", ""}, text) {
		m.t.Errorf("I6: the client got %q", s.texts[0])
	}
	if s.finish[0] != "stop" {
		m.t.Errorf("I2: finish %q", s.finish[0])
	}
	t := e.Tokens
	if t.Out == nil && t.Estimated && !a.Stream {
		return // what came whole and without usage has no events to count
	}
	if t.In == nil || t.Out == nil || *t.In < 0 || *t.Out < 0 || *t.In > 10_000 || *t.Out > 10_000 {
		m.t.Errorf("I9: tokens %s", e.Raw)
	} else if n := len(strings.Fields(text + " " + s.reasoning[0])); text != "" && !t.Estimated && a.Path != "/v1/completions" && int64(n) != *t.Out {
		m.t.Errorf("I9: %d tokens out are recorded for %d words", *t.Out, n)
	}
	if e.Backend == nil || *e.Backend != a.Nonce[:1] {
		m.t.Errorf("the event names another backend than %s: %s", a.Nonce[:1], e.Raw)
	}
}

// capsHeld checks the calls that the servers had at once against the pools' caps (I1). Time stands still while anything
// moves, so ends go before arrivals of the same moment.
func (m *mix) capsHeld() {
	m.t.Helper()
	for _, name := range []string{"a", "b", "c"} {
		type step struct {
			at time.Time
			by int
		}
		var steps []step
		for _, a := range m.sims[name].Calls("") {
			gone := a.Ended
			if !a.Left.IsZero() {
				gone = a.Left
			}
			steps = append(steps, step{a.Arrived, 1}, step{gone, -1})
		}
		slices.SortFunc(steps, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
		running, peak := 0, 0
		for _, s := range steps {
			running += s.by
			peak = max(peak, running)
		}
		if peak > mixCap {
			m.t.Errorf("I1: server %s had %d calls at once, the cap is %d", name, peak, mixCap)
		}
		if peak < mixCap {
			m.t.Logf("server %s had %d calls at once: the cap was not reached", name, peak)
		}
	}
}
