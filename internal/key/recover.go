package key

import (
	"context"
	"time"
)

// Recover counts again what the requests of the last minute used, as the store has it, so that a restart opens no window.
// It counts only what keys with a limit per minute need, and reads the store; call it once, before the first Admit. On an error the
// windows hold what could be read: they begin empty where that is nothing.
func (s *Set) Recover(ctx context.Context, now time.Time) error {
	requests, tokens := map[string]*usage{}, map[string]*usage{}
	for _, k := range *s.keys.Load() {
		if k.RPM > 0 {
			requests[k.Name] = k.usage
		}
		if k.TPM > 0 {
			tokens[k.Name] = k.usage
		}
	}
	if len(requests)+len(tokens) == 0 {
		return nil
	}
	rows, err := s.store.Recent(ctx, now.Add(-minute))
	for i := range rows {
		r := &rows[i]
		if r.Kind == "limited" || r.Kind == "unauthorized" { // refused requests count for nothing
			continue
		}
		// The store has the wall's time. Where that was set back meanwhile, a row of the future counts as one of now.
		age := min(max(now.Sub(r.Time), 0), minute)
		if u := requests[r.Key]; u != nil {
			u.recover(&u.requests, 1, age, now)
		}
		if u := tokens[r.Key]; u != nil {
			used := Tokens{
				Prompt: r.TokensEst, Max: r.MaxTokens, Generates: r.Op == "chat" || r.Op == "completions", In: r.TokensIn, Out: r.TokensOut,
				Sent: r.Sent, Answered: r.Kind == "" || r.Kind == "canceled",
			}.Used()
			u.recover(&u.tokens, used, age, now)
		}
	}
	return err
}

// recover counts what came before now.
func (u *usage) recover(w *window, n int64, age time.Duration, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := u.since(now) - age
	if len(w.list) > 0 {
		at = max(at, w.list[len(w.list)-1].at)
	}
	if n > 0 {
		w.add(n, at, w == &u.tokens)
	}
}
