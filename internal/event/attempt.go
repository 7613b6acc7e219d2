package event

import (
	"encoding/json"
	"time"
)

// MarshalJSON writes the attempt as event lines and the store do.
func (a Attempt) MarshalJSON() ([]byte, error) { return appendAttempt(nil, &a), nil }

// UnmarshalJSON reads what MarshalJSON writes; times are exact to a microsecond.
func (a *Attempt) UnmarshalJSON(b []byte) error {
	var v struct {
		Pool, Backend, Model, Tier, Kind, Message, Served string
		Status, Place                                     int
		Guess                                             *float64 `json:"guess_ms"`
		Sent                                              bool
		At                                                *float64 `json:"at_ms"`
		Queue                                             *float64 `json:"queue_ms"`
		First                                             *float64 `json:"first_ms"`
		Took                                              *float64 `json:"took_ms"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*a = Attempt{
		Pool: v.Pool, Backend: v.Backend, Model: v.Model, Tier: v.Tier, Kind: v.Kind, Message: v.Message, Served: v.Served, Status: v.Status,
		Sent: v.Sent, Place: v.Place, Guess: max(fromMS(v.Guess), 0), At: fromMS(v.At), Queue: fromMS(v.Queue), First: fromMS(v.First), Took: fromMS(v.Took),
	}
	return nil
}

func fromMS(ms *float64) time.Duration {
	if ms == nil {
		return -1
	}
	return time.Duration(*ms*1000+0.5) * time.Microsecond
}
