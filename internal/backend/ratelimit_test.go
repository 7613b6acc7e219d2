package backend

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRatesOfVendors(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	untold := Rate{Limit: -1, Remaining: -1}
	for _, c := range []struct {
		name string
		h    map[string]string
		want Rates
		ok   bool
	}{
		{"nothing is said", map[string]string{"Retry-After": "1"}, Rates{untold, untold}, false},
		{"OpenAI", map[string]string{
			"x-ratelimit-limit-requests": "5000", "x-ratelimit-remaining-requests": "4999", "x-ratelimit-reset-requests": "12ms",
			"x-ratelimit-limit-tokens": "400000", "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s",
		}, Rates{Rate{5000, 4999, 12 * time.Millisecond}, Rate{400000, 0, 6 * time.Minute}}, true},
		{"Anthropic", map[string]string{
			"anthropic-ratelimit-requests-limit": "50", "anthropic-ratelimit-requests-remaining": "49", "anthropic-ratelimit-requests-reset": "2026-12-01T12:00:30Z",
			"anthropic-ratelimit-tokens-limit": "80000", "anthropic-ratelimit-tokens-remaining": "79000", "anthropic-ratelimit-tokens-reset": "2026-12-01T13:00:01+01:00",
		}, Rates{Rate{50, 49, 30 * time.Second}, Rate{80000, 79000, time.Second}}, true},
		{"one limit without a name, in milliseconds since 1970", map[string]string{
			"X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "1796126460000",
		}, Rates{Rate{20, 3, time.Minute}, untold}, true},
		{"seconds since 1970", map[string]string{"X-RateLimit-Reset-Tokens": "1796126401"}, Rates{untold, Rate{-1, -1, time.Second}}, true},
		{"plain seconds", map[string]string{"x-ratelimit-reset-requests": "1.5"}, Rates{Rate{-1, -1, 1500 * time.Millisecond}, untold}, true},
		{"remaining alone", map[string]string{"x-ratelimit-remaining-tokens": "7"}, Rates{untold, Rate{-1, 7, 0}}, true},
		{"odd numbers", map[string]string{"x-ratelimit-limit-requests": "1e3", "x-ratelimit-remaining-requests": "60.0", "x-ratelimit-limit-tokens": "100, 100;w=60"},
			Rates{Rate{1000, 60, 0}, Rate{100, -1, 0}}, true},
		{"nonsense", map[string]string{"x-ratelimit-limit-requests": "many", "x-ratelimit-remaining-requests": "-3", "x-ratelimit-reset-requests": "soon", "x-ratelimit-limit-tokens": "NaN", "x-ratelimit-reset-tokens": "Inf"},
			Rates{untold, untold}, false},
		{"a past and a far reset", map[string]string{"x-ratelimit-limit-requests": "1", "x-ratelimit-reset-requests": "2020-01-01T00:00:00Z", "x-ratelimit-limit-tokens": "1", "x-ratelimit-reset-tokens": "9000h"},
			Rates{Rate{1, -1, 0}, Rate{1, -1, 0}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, plain := http.Header{}, &plainHead{}
			for name, value := range c.h {
				h.Set(name, value)
				plain.fields = append(plain.fields, field{name, value})
			}
			for _, from := range []Header{h, plain} {
				got, ok := readRates(from, now)
				if diff := cmp.Diff(c.want, got); diff != "" || ok != c.ok {
					t.Errorf("told %v, want %v (-want +got):\n%s", ok, c.ok, diff)
				}
			}
		})
	}
}

func FuzzReadRates(f *testing.F) {
	for _, v := range []string{"6m0s", "250ms", "1.5s", "60", "1e400", "2026-12-01T12:00:30Z", "1796126460000", "100, 100;w=60", "-1", "NaN", ""} {
		f.Add(v, v, v)
	}
	f.Fuzz(func(t *testing.T, limit, remaining, reset string) {
		for _, names := range [][3]string{
			{"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"},
			{"Anthropic-Ratelimit-Tokens-Limit", "Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"},
		} {
			r, ok := ReadRates(http.Header{names[0]: {limit}, names[1]: {remaining}, names[2]: {reset}})
			if x := r.Tokens; x.Limit < -1 || x.Remaining < -1 || x.Reset < 0 || x.Reset > 31*24*time.Hour {
				t.Errorf("%q, %q, %q: got %+v", limit, remaining, reset, x)
			}
			if ok != (r != untold) {
				t.Errorf("told is %v of %+v", ok, r)
			}
		}
	})
}
