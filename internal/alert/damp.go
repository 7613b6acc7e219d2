package alert

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// How alerts are damped.
const (
	calm        = 10 * time.Minute // without a change, after which flapping is over
	mostChanges = 5                // within calm: from so many on it flaps
	mostHold    = 6                // times calm: the longest wait before an end is told
	mostStates  = 2000             // identities that are followed
)

// state is what is known of one identity.
type state struct {
	Alert          // as it was seen last; State is what is so, which may not be told yet
	told     bool  // that it fires is what was told last
	shown    Alert // what was told then
	toldAt   time.Time
	due      time.Time   // when it is told that it fires; zero: nothing waits
	hold     time.Time   // when its end is told; zero: nothing waits
	again    int         // how often it fired again soon
	changes  []time.Time // the last ones
	flapping bool
	unsure   time.Time // it fired in an earlier run; unless it is seen again it is over then
}

// note takes what a fact says.
func (d *Desk) note(ctx context.Context, a *Alert) {
	now := time.Now()
	if a.Name == "out" && a.State == Resolved && a.Backend == "" { // the pool and all of its backends
		for _, s := range d.states {
			if s.Name == "out" && s.Pool == a.Pool && s.State == Firing {
				d.end(ctx, s, a.Summary, now)
			}
		}
		return
	}
	s := d.states[identity{a.Name, a.Subject}]
	switch {
	case a.State == Firing:
		d.fire(ctx, s, a, now)
	case s != nil && s.State == Firing:
		d.end(ctx, s, a.Summary, now)
	}
}

// fire takes that something fires, whether it did before or not. s is nil for what is new.
func (d *Desk) fire(ctx context.Context, s *state, a *Alert, now time.Time) {
	if s == nil {
		if len(d.states) >= mostStates {
			d.o.Log.Warn("too many alerts at once: this one is not told", "alert", a.Name, "subject", a.Subject)
			d.o.Count("", "dropped")
			return
		}
		s = &state{Alert: *a}
		s.State = Resolved
		d.states[identity{a.Name, a.Subject}] = s
	}
	if s.State == Firing { // still
		rises := a.Level > s.Level
		since := s.Since
		s.Alert, s.unsure = *a, time.Time{}
		if s.Since = since; rises {
			d.tell(ctx, s, now)
		}
		return
	}
	s.Alert = *a
	switch {
	case s.turn(now):
		d.flaps(ctx, s, now)
	case s.flapping:
	case s.told: // its end was not told yet
		s.again++
	default:
		if s.again++; s.toldAt.IsZero() || now.Sub(s.toldAt) >= d.now.Load().Repeat {
			s.again = 0
		}
		if wait := d.now.Load().For; wait > 0 && !s.Notice {
			s.due = now.Add(wait)
		} else {
			d.tell(ctx, s, now)
		}
	}
}

// end takes that what fired does not any more.
func (d *Desk) end(ctx context.Context, s *state, summary string, now time.Time) {
	s.State, s.Summary, s.Detail = Resolved, summary, ""
	s.due, s.unsure = time.Time{}, time.Time{}
	switch {
	case s.turn(now):
		d.flaps(ctx, s, now)
	case s.flapping || !s.told:
	case s.again > 0 && !s.Notice:
		s.hold = now.Add(time.Duration(min(s.again, mostHold)) * calm)
	default:
		d.tell(ctx, s, now)
	}
}

// turn notes a change, and reports whether it flaps from now on.
func (s *state) turn(now time.Time) bool {
	s.changes = append(s.changes, now)
	if n := len(s.changes); n > mostChanges {
		s.changes = s.changes[n-mostChanges:]
	}
	if s.flapping || s.Notice || len(s.changes) < mostChanges || now.Sub(s.changes[0]) > calm {
		return false
	}
	s.flapping = true
	return true
}

// flaps tells once that something comes and goes.
func (d *Desk) flaps(ctx context.Context, s *state, now time.Time) {
	s.due, s.hold = time.Time{}, time.Time{}
	is := s.Alert
	s.State, s.Flapping = Firing, true
	s.Summary = fmt.Sprintf("%s: %s is flapping", s.Name, s.Subject)
	s.Detail = fmt.Sprintf("%d changes in %v. The next message comes when it has been calm for %v.", mostChanges, now.Sub(s.changes[0]).Round(time.Second), calm)
	d.tell(ctx, s, now)
	s.Alert = is
}

// tick does what is due by time alone.
func (d *Desk) tick(ctx context.Context, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	order := func(a, b identity) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.subject, b.subject)) }
	for _, id := range slices.SortedFunc(maps.Keys(d.states), order) {
		s := d.states[id]
		d.age(ctx, s, now)
		if s.State == Resolved && !s.told && !s.flapping && now.Sub(s.toldAt) > d.now.Load().Repeat && now.Sub(s.changes[len(s.changes)-1]) > calm {
			delete(d.states, id)
		}
	}
}

func (d *Desk) age(ctx context.Context, s *state, now time.Time) {
	passed := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	firing := s.State == Firing
	switch {
	case s.flapping:
		if now.Sub(s.changes[len(s.changes)-1]) >= calm {
			s.flapping, s.changes = false, s.changes[len(s.changes)-1:]
			d.tell(ctx, s, now)
		}
	case firing && passed(s.due):
		s.due = time.Time{}
		d.tell(ctx, s, now)
	case firing && passed(s.Until):
		d.end(ctx, s, s.expired(), now)
	case firing && passed(s.unsure):
		d.end(ctx, s, fmt.Sprintf("%s: %s: Weir started anew, and it was not seen again in %v", s.Name, s.Subject, calm), now)
	case !firing && passed(s.hold):
		s.hold = time.Time{}
		d.tell(ctx, s, now)
	case firing && s.told && !s.Notice && s.Name != "out" && now.Sub(s.toldAt) >= d.now.Load().Repeat:
		d.tell(ctx, s, now)
	}
}

// expired is what is said of a notice whose time is over.
func (s *state) expired() string {
	if s.Name == "spend" {
		return s.Subject + ": the period is over"
	}
	return fmt.Sprintf("%s: %s: nothing more was heard of it", s.Name, s.Subject)
}
