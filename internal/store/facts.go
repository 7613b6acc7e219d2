package store

import (
	"context"
	"database/sql/driver"
	"time"
)

// Fact is the row of an event without a row of its own request: health, swap, alert, shift, audit. Empty strings are
// stored as NULL.
type Fact struct {
	ID      int64 // row number, rising with time of writing; ignored when written
	Time    time.Time
	Event   string
	Request string
	Route   string
	Tier    string
	Pool    string
	Model   string
	Kind    string
	Reason  string
	From    string
	To      string
	Actor   string
	Detail  string
}

const factColumns = "time, event, request, route, tier, pool, model, kind, reason, origin, target, actor, detail"

const (
	insertFact = "INSERT INTO facts (" + factColumns + ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)"
	factWidth  = 13
)

// WriteFacts writes the rows in one transaction: all or none.
func (s *Store) WriteFacts(ctx context.Context, rows []Fact) error {
	if len(rows) == 0 {
		return nil
	}
	return s.wrap("writing facts to", s.inRaw(ctx, func(in *inserts) error {
		for i := range rows {
			args := in.args[:factWidth]
			for j, v := range factValues(&rows[i]) {
				args[j].Value = v
			}
			if err := exec(in.fact, args); err != nil {
				return err
			}
		}
		return nil
	}))
}

func factValues(f *Fact) [factWidth]driver.Value {
	return [factWidth]driver.Value{f.Time.UnixMicro(), f.Event, text(f.Request), text(f.Route), text(f.Tier), text(f.Pool),
		text(f.Model), text(f.Kind), text(f.Reason), text(f.From), text(f.To), text(f.Actor), text(f.Detail)}
}
