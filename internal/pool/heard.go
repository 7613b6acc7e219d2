package pool

import (
	"sync"
	"time"

	"weir/internal/backend"
)

// Heard is what the vendor last said of its limits.
type Heard struct {
	backend.Rates
	Time time.Time
}

// heard keeps it. It is safe for concurrent use.
type heard struct {
	mu   sync.Mutex // guards the field below
	last Heard
}

// Hear notes what an answer said of the vendor's limits. It is shown and changes nothing.
func (p *Pool) Hear(r backend.Rates) {
	now := time.Now()
	p.said.mu.Lock()
	defer p.said.mu.Unlock()
	p.said.last = Heard{r, now}
}

// Heard returns what the vendor last said of its limits, false when it never did.
func (p *Pool) Heard() (Heard, bool) {
	p.said.mu.Lock()
	defer p.said.mu.Unlock()
	return p.said.last, !p.said.last.Time.IsZero()
}
