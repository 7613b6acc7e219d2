package spend

import (
	"fmt"
	"strings"
	"time"

	"weir/internal/config"
)

// Refusal says which ceiling does not let a call through. Amounts are nano-dollars.
type Refusal struct {
	Scope, Name string // key, pool, total; empty for the total
	Period      string // day, month
	Ceiling     int64
	Spent, Held int64 // Held for calls that run
	// Until is when the ceiling begins anew or, where the store cannot be written, when to try again.
	Until time.Time
	// Passing says that the call would fit if the calls that run cost nothing: it may be let through once they have ended,
	// long before Until.
	Passing bool
	// Unwritten says that the store has not taken what was spent for more than 10 s, so that no ceiling could be kept.
	Unwritten bool
}

func (d *day) refusal(p period, most int64) *Refusal {
	return &Refusal{
		Scope: d.sheet.scope, Name: d.sheet.name, Period: p.name, Ceiling: p.ceiling, Spent: p.sum.spent, Held: p.sum.held,
		Until: ends(d.date, p.name), Passing: p.sum.spent <= p.ceiling-min(most, p.ceiling),
	}
}

// Error says what happened and what to do, for people: how much was spent of what, until when, and what to change.
func (r *Refusal) Error() string {
	if r.Unwritten {
		return fmt.Sprintf("what %s spends cannot be written to the store, so its ceiling cannot be kept: free its disk or mend it (the log says what is wrong)", r.who())
	}
	var held string
	if r.Held > 0 {
		held = fmt.Sprintf(" and holds $%s for calls that run", config.USD(r.Held))
	}
	wait := "until " + r.Until.Format("2006-01-02 15:04 UTC")
	if r.Passing {
		wait = "until they have ended"
	}
	return fmt.Sprintf("%s has spent $%s of the $%s that it may in a %s%s, which is too little left for this call: wait %s, or %s",
		r.who(), config.USD(r.Spent), config.USD(r.Ceiling), r.Period, held, wait, r.change())
}

func (r *Refusal) who() string {
	if r.Scope == Total {
		return "all of Weir"
	}
	return strings.TrimSpace(r.Scope + " " + r.Name)
}

func (r *Refusal) change() string {
	switch r.Scope {
	case Key:
		return "have the key's ceiling raised"
	case Pool:
		return "raise spend." + r.Period + " of the pool"
	}
	return "raise spend." + r.Period + " in the configuration"
}
