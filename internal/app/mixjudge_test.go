package app

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

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
	kinds, did := map[string][]string{}, map[string][]picked{}
	for _, a := range e.Attempts {
		if a.Backend != "" && a.Backend != "gone" {
			kinds[a.Backend] = append(kinds[a.Backend], a.Kind)
			continue
		}
		// A pool may go out between the plan and the slot.
		if !slices.Contains([]string{"full", "canceled", "refused", "none", "gone", "denied", "busy", "unavailable", "loading"}, a.Kind) {
			m.t.Errorf("I12: no server was asked, and the attempt is recorded as %q", a.Kind)
		}
	}
	for _, p := range m.picked[q.n] {
		did[p.server] = append(did[p.server], p)
	}
	for _, name := range []string{"a", "b", "c"} {
		if !q.explains(kinds[name], did[name]) {
			m.t.Errorf("I12: server %s did %v, which is recorded as %q", name, did[name], kinds[name])
		}
	}
}

// explains reports whether the kinds of the attempts at a server fit what it did, in order. A stale connection may have
// ended before the server saw anything, and so may a canceled call. A server that refuses to stream is asked again within
// the same attempt. What a client did not wait for need not be recorded.
func (q *asked) explains(kinds []string, did []picked) bool {
	left := q.leaves > 0 || q.slow
	if len(kinds) == 0 {
		return len(did) == 0 || left
	}
	kind := kinds[0]
	fits := func(p picked) bool {
		return kind == "canceled" && left || slices.Contains(strings.Split(p.kinds, "|"), kind)
	}
	switch {
	case (kind == "stale" || kind == "canceled") && q.explains(kinds[1:], did):
		return true
	case len(did) == 0:
		return false
	case fits(did[0]) && q.explains(kinds[1:], did[1:]):
		return true
	}
	return did[0].name == "no streams" && len(did) > 1 && fits(did[1]) && q.explains(kinds[1:], did[2:])
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
