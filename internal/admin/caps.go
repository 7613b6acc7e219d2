package admin

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"weir/internal/pool"
	"weir/internal/store"
)

// Caps is what is known of capacity: caps, what vendors say, pools that merged.
type Caps struct {
	Pools   []Cap   `json:"pools"`
	Merges  []Merge `json:"merges"`
	Warning string  `json:"warning,omitempty"` // something of it is missing
}

// Cap is the capacity of one pool.
type Cap struct {
	Pool        string           `json:"pool"`
	Tier        string           `json:"tier"`
	Vendor      string           `json:"vendor"`
	Cap         int              `json:"cap"`  // as configured
	Live        int              `json:"live"` // what the vendor's refusals leave of it now
	InFlight    int              `json:"in_flight"`
	Measured    *int             `json:"measured"` // by calibrating; null: never
	Limits      *VendorLimits    `json:"vendor_limits"`
	MergedInto  string           `json:"merged_into,omitempty"`
	Reroutes30m map[string]int64 `json:"reroutes_30m"` // requests that this pool answered and that were reroutes, by reason
	Reroutes24h map[string]int64 `json:"reroutes_24h"`
}

// VendorLimits is what the vendor's last answers said of its limits. It is shown and never trusted above the cap.
type VendorLimits struct {
	Requests      *int64    `json:"requests"` // in the vendor's window; null: not told
	RequestsLeft  *int64    `json:"requests_left"`
	RequestsReset time.Time `json:"requests_reset,omitzero"` // when they are whole again
	Tokens        *int64    `json:"tokens"`
	TokensLeft    *int64    `json:"tokens_left"`
	TokensReset   time.Time `json:"tokens_reset,omitzero"`
	Heard         time.Time `json:"heard"`
}

// LimitsOf returns what a pool has heard of its vendor; nil for nothing.
func LimitsOf(p *pool.Pool) *VendorLimits {
	h, said := p.Heard()
	if !said {
		return nil
	}
	told := func(n int64) *int64 {
		if n < 0 {
			return nil
		}
		return &n
	}
	reset := func(d time.Duration) time.Time {
		if d <= 0 {
			return time.Time{}
		}
		return h.Time.Add(d)
	}
	return &VendorLimits{
		Requests: told(h.Requests.Limit), RequestsLeft: told(h.Requests.Remaining), RequestsReset: reset(h.Requests.Reset),
		Tokens: told(h.Tokens.Limit), TokensLeft: told(h.Tokens.Remaining), TokensReset: reset(h.Tokens.Reset), Heard: h.Time,
	}
}

// Merge is a pool whose calls are served by another one.
type Merge struct {
	Asked    string    `json:"asked"`
	Serving  string    `json:"serving"`
	Vendor   string    `json:"vendor"`
	State    string    `json:"state"` // learnt, confirmed, undone
	Time     time.Time `json:"time"`
	Evidence string    `json:"evidence"`
}

// MergeChanged is the answer to a change of a merge: how it stands now.
type MergeChanged struct {
	Merge Merge `json:"merge"`
}

func (a *Admin) caps(w http.ResponseWriter, r *http.Request) error {
	c := Caps{Pools: []Cap{}, Merges: []Merge{}}
	for _, m := range a.Merges() {
		c.Merges = append(c.Merges, Merge(m))
	}
	now := time.Now()
	half, err := a.Reroutes(r.Context(), now.Add(-30*time.Minute))
	var day []store.ReasonCount
	if err == nil {
		day, err = a.Reroutes(r.Context(), now.Add(-24*time.Hour))
	}
	if err != nil {
		c.Warning = "reroutes could not be counted: " + err.Error()
	}
	for _, p := range a.Pools() {
		c.Pools = append(c.Pools, Cap{
			Pool: p.Name, Tier: p.Tier, Vendor: p.Vendor, Cap: p.Cap, Live: p.Live, InFlight: p.InFlight, Limits: p.Limits, MergedInto: p.MergedInto,
			Reroutes30m: byReason(half, p.Name), Reroutes24h: byReason(day, p.Name),
		})
	}
	answer(w, http.StatusOK, c)
	return nil
}

func byReason(counts []store.ReasonCount, pool string) map[string]int64 {
	m := map[string]int64{}
	for _, c := range counts {
		if c.Pool == pool {
			m[c.Reason] = c.Count
		}
	}
	return m
}

func (a *Admin) confirmMerge(w http.ResponseWriter, r *http.Request) error {
	return a.changeMerge(w, r, pool.Confirmed)
}

func (a *Admin) undoMerge(w http.ResponseWriter, r *http.Request) error {
	return a.changeMerge(w, r, pool.Undone)
}

// changeMerge brings the merge of the asked pool to a state, records it, and answers how it stands then.
func (a *Admin) changeMerge(w http.ResponseWriter, r *http.Request, state string) error {
	var in struct {
		Pool string `json:"pool"`
	}
	if err := body(w, r, &in); err != nil {
		return err
	}
	if _, err := a.handed(in.Pool, ""); err != nil {
		return err
	}
	m, err := a.merge(in.Pool)
	if err != nil {
		return err
	}
	if m.State == state {
		return &failure{http.StatusConflict, "already_" + state, fmt.Sprintf("the merge of pool %s into %s is %s already", m.Asked, m.Serving, state)}
	}
	do := a.ConfirmMerge
	if state == pool.Undone {
		do = a.UndoMerge
	}
	if err := do(in.Pool); err != nil {
		return &failure{http.StatusConflict, "conflict", err.Error()}
	}
	a.audit(r, "pool "+in.Pool, fmt.Sprintf("merge into %s %s", m.Serving, state))
	if m, err = a.merge(in.Pool); err != nil {
		return err
	}
	answer(w, http.StatusOK, MergeChanged{m})
	return nil
}

func (a *Admin) merge(asked string) (Merge, error) {
	all := a.Merges()
	i := slices.IndexFunc(all, func(m pool.Merge) bool { return m.Asked == asked })
	if i < 0 {
		return Merge{}, &failure{http.StatusConflict, "not_merged", fmt.Sprintf("pool %s is merged into no other one", asked)}
	}
	return Merge(all[i]), nil
}
