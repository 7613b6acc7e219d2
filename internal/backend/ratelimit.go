package backend

import (
	"strconv"
	"strings"
	"time"
)

// Rate is what a vendor says of one limit. A negative number is not told; a Reset of zero is not told or past.
type Rate struct {
	Limit, Remaining int64
	Reset            time.Duration // until the limit is whole again
}

// Rates are what a vendor says of its limits. They are shown beside the measured cap and never trusted above it: vendors
// count over other windows, and for other callers of the same account.
type Rates struct {
	Requests, Tokens Rate
}

// ReadRates reads what the head of an answer says of the vendor's limits; false where it says nothing that can be read.
// What is absurd counts as not told.
func ReadRates(h Header) (Rates, bool) { return readRates(h, time.Now()) }

func readRates(h Header, now time.Time) (Rates, bool) {
	r := Rates{
		Requests: rate(now, h.Get("X-Ratelimit-Limit-Requests"), h.Get("X-Ratelimit-Remaining-Requests"), h.Get("X-Ratelimit-Reset-Requests")),
		Tokens:   rate(now, h.Get("X-Ratelimit-Limit-Tokens"), h.Get("X-Ratelimit-Remaining-Tokens"), h.Get("X-Ratelimit-Reset-Tokens")),
	}
	if r.Requests == untold.Requests { // OpenRouter and others have one limit
		r.Requests = rate(now, h.Get("X-Ratelimit-Limit"), h.Get("X-Ratelimit-Remaining"), h.Get("X-Ratelimit-Reset"))
	}
	if r != untold {
		return r, true
	}
	r = Rates{ // Anthropic tells input and output tokens apart as well; their sum is what stands here
		Requests: rate(now, h.Get("Anthropic-Ratelimit-Requests-Limit"), h.Get("Anthropic-Ratelimit-Requests-Remaining"), h.Get("Anthropic-Ratelimit-Requests-Reset")),
		Tokens:   rate(now, h.Get("Anthropic-Ratelimit-Tokens-Limit"), h.Get("Anthropic-Ratelimit-Tokens-Remaining"), h.Get("Anthropic-Ratelimit-Tokens-Reset")),
	}
	return r, r != untold
}

// untold is what is known of limits that no header names.
var untold = Rates{Requests: Rate{Limit: -1, Remaining: -1}, Tokens: Rate{Limit: -1, Remaining: -1}}

// rate reads the three headers of one limit.
func rate(now time.Time, limit, remaining, reset string) Rate {
	return Rate{Limit: amount(limit), Remaining: amount(remaining), Reset: resetIn(reset, now)}
}

// amount reads a count; -1 where it is none. Some vendors write 1e6 or 60.0, and some a list whose first item counts:
// "100, 100;w=60".
func amount(v string) int64 {
	v, _, _ = strings.Cut(v, ",")
	v, _, _ = strings.Cut(v, ";")
	v = strings.TrimSpace(v)
	if n, err := strconv.ParseInt(v, 10, 64); err == nil {
		return max(n, -1)
	}
	if n, err := strconv.ParseFloat(v, 64); err == nil && n >= 0 && n <= 1e15 {
		return int64(n)
	}
	return -1
}

// epoch is what tells a time from a number of seconds: no limit takes 30 years to come back.
const epoch = 1e9

// resetIn reads when a limit comes back: 6m0s, 250ms, plain seconds, a time of RFC 3339, or seconds or milliseconds since
// 1970. Zero is not told, past or absurd.
func resetIn(v string, now time.Time) time.Duration {
	v = strings.TrimSpace(v)
	if v == "" {
		return 0
	}
	if d, err := time.ParseDuration(v); err == nil {
		return sensible(d)
	}
	if n, err := strconv.ParseFloat(v, 64); err == nil {
		switch {
		case !(n >= 0) || n > 1e13:
			return 0
		case n >= epoch*1000:
			return sensible(time.UnixMilli(int64(n)).Sub(now))
		case n >= epoch:
			return sensible(time.Unix(int64(n), 0).Sub(now))
		}
		return sensible(time.Duration(n * float64(time.Second)))
	}
	if at, err := time.Parse(time.RFC3339, v); err == nil {
		return sensible(at.Sub(now))
	}
	return 0
}

// sensible drops what is past or more than a month away.
func sensible(d time.Duration) time.Duration {
	if d < 0 || d > 31*24*time.Hour {
		return 0
	}
	return d
}
