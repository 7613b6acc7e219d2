package alert

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/internal/event"
)

// configuration is what a shift is about.
const configuration = "the configuration"

// noticed is how long a notice stands that nothing ends.
const noticed = 24 * time.Hour

const (
	resolved  = " resolved"   // ends the reason of a fact that says so
	mergeWord = "merge into " // begins the detail of an audit row about a merge
)

// Wants reports whether a fact can change an alert; for event.Source.
func Wants(e *event.Event) bool {
	switch e.Name {
	case event.Health, event.Alert, event.Shift, event.Swap:
		return true
	case event.Audit:
		return strings.HasPrefix(e.Detail, mergeWord)
	}
	return false
}

// read makes of a fact the alert that it begins or ends.
func read(e *event.Event) (Alert, bool) {
	a := Alert{
		State: Firing, Severity: Warning, Since: e.Time, Pool: clean(e.Pool, mostName), Backend: clean(e.To, mostName), Model: clean(e.Model, mostName),
	}
	ok := true
	switch e.Name {
	case event.Health:
		ok = a.health(e)
	case event.Alert:
		a.alert(e)
	case event.Shift, event.Swap:
		ok = a.change(e)
	case event.Audit:
		a.settled(e)
	default:
		ok = false
	}
	a.Subject, a.Summary, a.Detail = clean(a.Subject, mostLine), clean(a.Summary, mostLine), clean(a.Detail, mostDetail)
	return a, ok && a.Name != ""
}

// health reads what happened to a backend of a pool.
func (a *Alert) health(e *event.Event) bool {
	a.Subject = "pool " + a.Pool
	if a.Backend != "" {
		a.Subject += " backend " + a.Backend
	}
	a.Model = ""
	switch e.Reason {
	case "ejected":
		a.Name, a.Summary = "ejected", fmt.Sprintf("backend %s of pool %s is out: it failed again and again", a.Backend, a.Pool)
		if e.Kind != "" {
			a.Detail = "The kind of failure: " + e.Kind + "."
		}
	case "returned":
		a.Name, a.State, a.Summary = "ejected", Resolved, fmt.Sprintf("backend %s of pool %s is back", a.Backend, a.Pool)
	case "out":
		a.Name, a.Severity, a.Summary, a.Detail = "out", Info, a.Subject+" was taken out by hand", e.Detail
	case "in":
		a.Name, a.Severity, a.State, a.Summary = "out", Info, Resolved, a.Subject+" is not out by hand any more"
	default:
		return false
	}
	return true
}

// alert reads a fact that is an alert already.
func (a *Alert) alert(e *event.Event) {
	a.Name = e.Reason
	if name, over := strings.CutSuffix(a.Name, resolved); over {
		a.Name, a.State = name, Resolved
	}
	over := a.State == Resolved
	switch a.Name {
	case "denied":
		a.Severity, a.Subject = Critical, "backend "+a.Backend // the account is the backend's: other pools share it
		a.Summary = fmt.Sprintf("the account of backend %s is refused: key, quota or credit", a.Backend)
		if over {
			a.Summary = fmt.Sprintf("the account of backend %s is taken again", a.Backend)
		}
		a.Pool, a.Model = "", ""
		a.Detail = "What the vendor said: weir events --event alert --reason denied."
	case "gone":
		a.Severity, a.Subject, a.Backend = Critical, fmt.Sprintf("pool %s model %s", a.Pool, a.Model), ""
		a.Summary = fmt.Sprintf("pool %s does not have model %s any more", a.Pool, a.Model)
		if over {
			a.Summary = fmt.Sprintf("pool %s has model %s again", a.Pool, a.Model)
		}
	case "merged":
		a.notice(e.Time.Add(noticed))
		a.Subject, a.Backend, a.Model = "pool "+a.Pool, "", ""
		a.Summary = fmt.Sprintf("what is asked of pool %s is answered from pool %s: its calls count against that cap now", a.Pool, e.To)
		a.Detail = fmt.Sprintf("If that is so: weir caps confirm %s. If not: weir caps undo %s.", a.Pool, a.Pool)
	case "spend":
		a.spend(e)
	case "shift":
		a.unwanted(e, over)
	default:
		a.other(e)
	}
	if over {
		a.Detail = ""
	}
}

// notice makes it an alert that nothing but time ends.
func (a *Alert) notice(until time.Time) { a.Notice, a.Until = true, until }

// spend reads that a part of a ceiling is reached: Kind is the period, To the holder, From the percentage.
func (a *Alert) spend(e *event.Event) {
	a.notice(periodEnd(e.Time, e.Kind))
	a.Subject, a.Backend, a.Model = fmt.Sprintf("%s in a %s", e.To, e.Kind), "", ""
	a.Level, _ = strconv.Atoi(e.From)
	a.Summary = e.Detail
}

// unwanted reads that another configuration serves than someone wanted; To is its version.
func (a *Alert) unwanted(e *event.Event, over bool) {
	a.notice(e.Time.Add(noticed))
	a.Severity, a.Subject, a.Backend = Critical, configuration, ""
	a.Summary = "the configuration is not what someone wanted: version " + clean(e.To, mostName) + " serves"
	a.Detail = "Why: weir events --event alert --reason shift."
	if over {
		a.Summary = "version " + clean(e.To, mostName) + " of the configuration serves"
	}
}

// periodEnd is the end of the day or month of UTC that t is in.
func periodEnd(t time.Time, period string) time.Time {
	y, m, d := t.UTC().Date()
	if period == "month" {
		return time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC)
	}
	return time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
}

// other reads a fact that this package has no words for: it says them itself.
func (a *Alert) other(e *event.Event) {
	a.Name = clean(a.Name, mostName)
	for _, part := range []struct{ word, name string }{{"pool", a.Pool}, {"backend", a.Backend}, {"model", a.Model}} {
		if part.name != "" {
			a.Subject += " " + part.word + " " + part.name
		}
	}
	if a.Subject = strings.TrimSpace(a.Subject); a.Subject == "" {
		a.Subject = "weir"
	}
	a.Summary = e.Detail
	if a.Summary == "" {
		a.Summary = a.Name + " " + a.Subject
	}
	if a.State == Firing {
		a.notice(e.Time.Add(noticed))
	}
}

// change reads what became of a shift or swap: a failed one fires, the next one that did not fail ends it.
func (a *Alert) change(e *event.Event) bool {
	what := string(e.Name)
	a.Name, a.Severity, a.Backend, a.Model = what, Critical, "", ""
	a.Subject = configuration
	if e.Name == event.Swap {
		a.Severity, a.Subject = Warning, "device "+a.Pool
		if a.Pool == "" {
			a.Subject = "a device"
		}
	}
	switch e.Reason {
	case "failed":
		a.notice(e.Time.Add(noticed))
		a.Summary, a.Detail = "a "+what+" failed: what served before serves on", "Why: weir events --event "+what+"."
	case "shifted", "rolled_back", "swapped":
		a.State, a.Summary = Resolved, "a later "+what+" did not fail"
	default:
		return false // nothing changed
	}
	return true
}

// settled reads that an operator has said what is so about a merge.
func (a *Alert) settled(e *event.Event) {
	pool := strings.TrimPrefix(e.To, "pool ")
	a.Name, a.State, a.Pool, a.Backend = "merged", Resolved, clean(pool, mostName), ""
	a.Subject = "pool " + a.Pool
	a.Summary = fmt.Sprintf("an operator has said what is so about pool %s: %s", a.Pool, e.Detail)
}
