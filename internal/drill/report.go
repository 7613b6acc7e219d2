package drill

import (
	"strconv"
	"time"
)

// Result says how a case ended.
type Result string

// The results. What cannot apply is named, and counts as neither of the others.
const (
	Pass          Result = "pass"
	Fail          Result = "fail"
	NotApplicable Result = "n/a"
)

// Span is a duration that JSON has in milliseconds.
type Span time.Duration

// MarshalJSON writes milliseconds.
func (s Span) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(time.Duration(s).Microseconds())/1000, 'f', -1, 64), nil
}

// String writes seconds with two places.
func (s Span) String() string {
	return strconv.FormatFloat(time.Duration(s).Seconds(), 'f', 2, 64) + " s"
}

// Row is one line of the conformance table: a fault, an alias, and a client who streams or does not.
type Row struct {
	Fault    string `json:"fault"`
	Name     string `json:"name"`
	Alias    string `json:"alias"`
	Route    string `json:"route"`
	Mode     string `json:"mode"`     // streamed or whole
	Saw      string `json:"saw"`      // what the client saw
	Attempts int    `json:"attempts"` // as the simulated servers counted them
	Took     Span   `json:"took_ms"`
	Result   Result `json:"result"`
	Reason   string `json:"reason,omitempty"` // of a failure, or why it cannot apply
}

// Number is one measurement and the bound it is held against.
type Number struct {
	Name   string `json:"name"`
	Got    string `json:"got"`
	Bound  string `json:"bound"`
	Result Result `json:"result"`
}

// Report is the outcome of a drill.
type Report struct {
	Subject       string    `json:"subject"` // the file, or the gateway
	Time          time.Time `json:"time"`
	Took          Span      `json:"took_ms"`
	Notes         []string  `json:"notes"`
	Passed        int       `json:"passed"`
	Failed        int       `json:"failed"`
	NotApplicable int       `json:"not_applicable"`
	Rows          []Row     `json:"rows"`
	Numbers       []Number  `json:"numbers,omitempty"`
}

// Add adds measurements to the report and to its counts.
func (r *Report) Add(list []Number) {
	r.Numbers = append(r.Numbers, list...)
	r.count()
}

func (r *Report) count() {
	r.Passed, r.Failed, r.NotApplicable = 0, 0, 0
	one := func(res Result) {
		switch res {
		case Pass:
			r.Passed++
		case Fail:
			r.Failed++
		default:
			r.NotApplicable++
		}
	}
	for i := range r.Rows {
		one(r.Rows[i].Result)
	}
	for i := range r.Numbers {
		one(r.Numbers[i].Result)
	}
}
