package store

import (
	"context"
	"database/sql"
	"time"
)

// Alert is one telling of an alert. Name and Subject together are its identity.
type Alert struct {
	ID      int64 // given by the store; they rise
	Time    time.Time
	Name    string
	Subject string
	State   string // firing, resolved
	Body    string // JSON of what is told
}

// Delivery is an alert that a sink has to get yet.
type Delivery struct {
	Alert
	Sink  string
	Tries int
	Next  time.Time // when it is tried again
}

// PutAlert keeps an alert and, in one transaction, that the sinks have to get it. It returns the alert's number.
func (s *Store) PutAlert(ctx context.Context, a *Alert, sinks []string) (id int64, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, "INSERT INTO alerts (time, name, subject, state, body) VALUES (?,?,?,?,?)",
			a.Time.UnixMicro(), a.Name, a.Subject, a.State, a.Body)
		if err != nil {
			return err
		}
		if id, err = r.LastInsertId(); err != nil {
			return err
		}
		for _, sink := range sinks {
			if _, err := tx.ExecContext(ctx, "INSERT INTO deliveries (alert, sink, tries, next) VALUES (?,?,0,?)", id, sink, a.Time.UnixMicro()); err != nil {
				return err
			}
		}
		return nil
	})
	return id, s.wrap("keeping an alert in", err)
}

// PutDelivery keeps how a delivery stands. One that is not there any more stays so.
func (s *Store) PutDelivery(ctx context.Context, d *Delivery) error {
	_, err := s.db.ExecContext(ctx, "UPDATE deliveries SET tries = ?, next = ? WHERE alert = ? AND sink = ?", d.Tries, d.Next.UnixMicro(), d.ID, d.Sink)
	return s.wrap("keeping an alert's delivery in", err)
}

// DeleteDelivery forgets a delivery: it is done, or given up.
func (s *Store) DeleteDelivery(ctx context.Context, alert int64, sink string) error {
	_, err := s.db.ExecContext(ctx, "DELETE FROM deliveries WHERE alert = ? AND sink = ?", alert, sink)
	return s.wrap("forgetting an alert's delivery in", err)
}

const alertColumns = "a.id, a.time, a.name, a.subject, a.state, a.body"

// Firing reads the newest alert of each identity, where that fires, the oldest first.
func (s *Store) Firing(ctx context.Context) ([]Alert, error) {
	return s.alerts(ctx, "SELECT "+alertColumns+` FROM alerts a JOIN (SELECT max(id) AS id FROM alerts GROUP BY name, subject) newest USING (id)
		WHERE a.state = 'firing' ORDER BY a.id`)
}

// Alerts reads the newest alerts since a time, at most limit, the oldest first.
func (s *Store) Alerts(ctx context.Context, since time.Time, limit int) ([]Alert, error) {
	return s.alerts(ctx, "SELECT * FROM (SELECT "+alertColumns+" FROM alerts a WHERE a.time >= ? ORDER BY a.id DESC LIMIT ?) ORDER BY 1", since.UnixMicro(), limit)
}

func (s *Store) alerts(ctx context.Context, query string, args ...any) ([]Alert, error) {
	var all []Alert
	err := s.rows(ctx, query, func(rows *sql.Rows) error {
		var a Alert
		var at int64
		err := rows.Scan(&a.ID, &at, &a.Name, &a.Subject, &a.State, &a.Body)
		a.Time = time.UnixMicro(at)
		all = append(all, a)
		return err
	}, args...)
	return all, s.wrap("reading alerts of", err)
}

// Deliveries reads what was not delivered, the oldest alert first.
func (s *Store) Deliveries(ctx context.Context) ([]Delivery, error) {
	var all []Delivery
	err := s.rows(ctx, "SELECT "+alertColumns+", d.sink, d.tries, d.next FROM deliveries d JOIN alerts a ON a.id = d.alert ORDER BY a.id, d.sink",
		func(rows *sql.Rows) error {
			var d Delivery
			var at, next int64
			err := rows.Scan(&d.ID, &at, &d.Name, &d.Subject, &d.State, &d.Body, &d.Sink, &d.Tries, &next)
			d.Time, d.Next = time.UnixMicro(at), time.UnixMicro(next)
			all = append(all, d)
			return err
		})
	return all, s.wrap("reading alerts' deliveries of", err)
}

// pruneDeliveries forgets deliveries whose alert is gone.
func (s *Store) pruneDeliveries(ctx context.Context) error {
	_, err := s.deleteStep(ctx, "DELETE FROM deliveries WHERE alert NOT IN (SELECT id FROM alerts)")
	return err
}
