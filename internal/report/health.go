package report

import (
	"cmp"
	"slices"
	"time"

	"weir/internal/store"
)

// Lane is the history of one backend of a pool, or of the pool as a whole.
type Lane struct {
	Pool     Name    `json:"pool"`
	Backend  Name    `json:"backend"` // null: the whole pool
	Ejected  int64   `json:"ejected"`
	Returned int64   `json:"returned"` // after an ejection
	Denied   int64   `json:"denied"`   // the account was refused
	Gone     int64   `json:"gone"`     // a model was no longer there
	ByHand   int64   `json:"by_hand"`
	Merged   int64   `json:"merged"` // the vendor was found to serve another pool's model
	Down     Seconds `json:"down_s"` // of the period; without the times in which only a model was gone
	Longest  Seconds `json:"longest_s"`
	Now      Name    `json:"now"` // why it is out at the end of the period; null: it is not
}

// Outage is one time in which a backend, or one model of it, got no calls.
type Outage struct {
	Pool    Name      `json:"pool"`
	Backend Name      `json:"backend"`
	Model   Name      `json:"model"` // only this one, where the cause is gone
	Cause   string    `json:"cause"` // ejected, denied, gone, out (by hand)
	From    time.Time `json:"from"`  // it may have begun before the period
	To      time.Time `json:"to"`    // the end of the period, where it lasts
	Lasts   bool      `json:"lasts"`
	End     string    `json:"end"` // returned; answer: a request was answered, so it had ended; unknown; empty: it lasts
	Detail  string    `json:"detail"`

	bound time.Time // it ended by then
}

// opening and closing are the reasons of facts that begin and end an outage, with its cause.
var (
	opening = map[string]string{"ejected": "ejected", "out": "out", "denied": "denied", "gone": "gone"}
	closing = map[string]string{"returned": "ejected", "in": "out", "denied resolved": "denied", "gone resolved": "gone"}
)

// at names what an outage is of.
type at struct{ pool, backend, model, cause string }

type laneAt struct{ pool, backend string }

// health follows the outages of pools.
type health struct {
	since time.Time
	lanes groups[Lane]
	open  map[at]*Outage
	list  []*Outage
	loose map[laneAt][]*Outage // without an end that was told
}

func newHealth(since time.Time) *health {
	return &health{since: since, open: map[at]*Outage{}, loose: map[laneAt][]*Outage{}}
}

func (h *health) lane(pool, backend string) *Lane {
	return h.lanes.get(pool+"\x00"+backend, func(other bool) Lane {
		if other {
			return Lane{Pool: others}
		}
		return Lane{Pool: Name(pool), Backend: Name(backend)}
	})
}

// fact takes one row of health or alert, in the order of time.
func (h *health) fact(f *store.Fact) {
	if f.Event != "health" && f.Event != "alert" || f.Pool == "" {
		return
	}
	in := !f.Time.Before(h.since)
	if f.Reason == "merged" && in {
		h.lane(f.Pool, "").Merged++
		return
	}
	key := at{pool: f.Pool, backend: f.To}
	if cause, opens := opening[f.Reason]; opens {
		key.cause = cause
		if cause == "gone" {
			key.model = f.Model
		}
		if in {
			*h.lane(f.Pool, f.To).counter(cause)++
		}
		h.begin(key, f)
	} else if cause, closes := closing[f.Reason]; closes {
		if in && cause == "ejected" {
			h.lane(f.Pool, f.To).Returned++
		}
		h.end(cause, f)
	}
}

// end closes what a fact says is over: of one backend, or where it names none of all of the pool.
func (h *health) end(cause string, f *store.Fact) {
	for key, o := range h.open {
		if key.pool == f.Pool && key.cause == cause && (f.To == "" || key.backend == f.To) && (key.model == "" || key.model == f.Model) {
			o.To, o.End = f.Time, "returned"
			delete(h.open, key)
		}
	}
}

func (l *Lane) counter(cause string) *int64 {
	switch cause {
	case "ejected":
		return &l.Ejected
	case "denied":
		return &l.Denied
	case "gone":
		return &l.Gone
	}
	return &l.ByHand
}

// begin opens an outage. One that is open already was ended by something that told nothing, such as a restart; but what is
// out by hand stays so, and is only taken out again.
func (h *health) begin(key at, f *store.Fact) {
	if o := h.open[key]; o != nil {
		if key.cause == "out" {
			return
		}
		o.bound = f.Time
		h.loosen(o)
	} else if len(h.open) >= mostOutages {
		return // so many models at once are no outages to tell of
	}
	o := &Outage{Pool: Name(key.pool), Backend: Name(key.backend), Model: Name(key.model), Cause: key.cause, From: f.Time, Detail: f.Detail}
	h.open[key] = o
	if h.list = append(h.list, o); len(h.list) > 2*mostOutages {
		h.forget()
	}
}

// forget makes room: of what is over, the oldest half goes.
func (h *health) forget() {
	over := 0
	h.list = slices.DeleteFunc(h.list, func(o *Outage) bool {
		if h.open[at{string(o.Pool), string(o.Backend), string(o.Model), o.Cause}] == o || over == mostOutages {
			return false
		}
		over++
		return true
	})
}

// loosen notes an outage that has no end. Of many only the newest may still find one: each request looks at all.
func (h *health) loosen(o *Outage) {
	if o.bound.Before(h.since) {
		return
	}
	const most = 50
	lane := laneAt{string(o.Pool), string(o.Backend)}
	list := append(h.loose[lane], o)
	h.loose[lane] = list[max(0, len(list)-most):]
}

// seal ends the facts: what is open lasts until the end of the period, unless a request shows that it does not.
func (h *health) seal(until time.Time) {
	for key, o := range h.open {
		o.Lasts, o.bound = true, until
		if key.cause != "out" {
			h.loosen(o)
		}
	}
}

// request ends outages that had no end, where it was answered during them: a restart forgets that a backend was out, and
// tells nothing.
func (h *health) request(r *store.Request) {
	if len(h.loose) == 0 || r.Kind != "" || r.Pool == "" {
		return
	}
	for _, o := range h.loose[laneAt{r.Pool, r.Backend}] {
		if r.Time.After(o.From) && r.Time.Before(o.bound) && (o.Model == "" || string(o.Model) == r.Model) && (o.End == "" || r.Time.Before(o.To)) {
			o.To, o.End, o.Lasts = r.Time, "answer", false
		}
	}
}

// report returns lanes and outages of the period.
func (h *health) report(until time.Time) ([]Lane, []Outage) {
	outages := []Outage{}
	for _, o := range h.list {
		switch {
		case o.End != "":
		case o.Lasts:
			o.To = until
		default:
			o.To, o.End = o.bound, "unknown"
		}
		if o.To.Before(o.From) {
			o.To = o.From // a clock was set back
		}
		if o.To.After(h.since) {
			h.lane(string(o.Pool), string(o.Backend))
			o.From, o.To = o.From.UTC(), o.To.UTC()
			outages = append(outages, *o)
		}
	}
	slices.SortStableFunc(outages, func(a, b Outage) int { return a.From.Compare(b.From) })
	lanes := h.lanes.sorted(func(*Lane) int64 { return 0 })
	slices.SortStableFunc(lanes, func(a, b Lane) int { return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Backend, b.Backend)) })
	for i := range lanes {
		lanes[i].sum(outages, h.since, until)
	}
	return lanes, outages[max(0, len(outages)-mostOutages):]
}

// sum adds up the outages of a lane. Those that overlap count once.
func (l *Lane) sum(outages []Outage, since, until time.Time) {
	end := since
	for i := range outages {
		o := &outages[i]
		if o.Pool != l.Pool || o.Backend != l.Backend {
			continue
		}
		if o.Lasts && (l.Now == "" || o.Cause != "gone") {
			l.Now = Name(o.Cause)
		}
		if o.Cause == "gone" {
			continue
		}
		from, to := o.From, o.To
		if from.Before(since) {
			from = since
		}
		if to.After(until) {
			to = until
		}
		l.Longest = max(l.Longest, Seconds(to.Sub(from)))
		if from.Before(end) {
			from = end
		}
		if to.After(from) {
			l.Down += Seconds(to.Sub(from))
			end = to
		}
	}
}
