package server

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"weir/internal/llm"
)

func TestTheKeyOfARequest(t *testing.T) {
	for name, c := range map[string]struct {
		auth, plain []string
		want        string
		ok          bool
	}{
		"a bearer":                     {[]string{"Bearer k"}, nil, "k", true},
		"in any case, with spaces":     {[]string{"bearer   k"}, nil, "k", true},
		"x-api-key":                    {nil, []string{"k"}, "k", true},
		"both the same":                {[]string{"Bearer k"}, []string{"k"}, "k", true},
		"both and different":           {[]string{"Bearer k"}, []string{"l"}, "", false},
		"none":                         {nil, nil, "", false},
		"another scheme":               {[]string{"Basic a2V5"}, nil, "", false},
		"a scheme alone":               {[]string{"Bearer"}, nil, "", false},
		"another scheme beside a key":  {[]string{"Basic a2V5"}, []string{"k"}, "", false},
		"two of one kind":              {[]string{"Bearer k", "Bearer k"}, nil, "", false},
		"two x-api-keys":               {nil, []string{"k", "k"}, "", false},
		"a space after the key counts": {[]string{"Bearer k "}, nil, "k ", true},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			if c.auth != nil {
				h["Authorization"] = c.auth
			}
			if c.plain != nil {
				h["X-Api-Key"] = c.plain
			}
			got, ok := token(h)
			if ok != c.ok || ok && got != c.want {
				t.Errorf("got %q, %v; want %q, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

func TestHostsThatAreAnswered(t *testing.T) {
	allowed := map[string]bool{"weir.example": true}
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST:8484": true, "localhost.": true, "a.localhost": true, "127.0.0.1:8484": true, "127.1.2.3": true,
		"[::1]:8484": true, "::1": true, "[::ffff:127.0.0.1]:80": true, "weir.example": true, "Weir.Example:443": true,
		"": false, "evil.example": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false, "10.0.0.1": false,
		"0.0.0.0": false, "weir.example.evil": false, "2130706433": false,
	} {
		if got := hostAllowed(host, allowed); got != want {
			t.Errorf("host %q: %v, want %v", host, got, want)
		}
	}
}

// S21: who a client is is believed of trusted proxies alone, and of them from the right.
func TestTheClientsAddress(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.1/32")}
	for name, c := range map[string]struct {
		peer, forwarded, want string
		trusted               []netip.Prefix
	}{
		"no proxy is trusted":             {"127.0.0.1:5", "9.9.9.9", "127.0.0.1", nil},
		"the peer is none":                {"8.8.8.8:5", "9.9.9.9", "8.8.8.8", trusted},
		"a trusted peer":                  {"127.0.0.1:5", "9.9.9.9", "9.9.9.9", trusted},
		"a chain of trusted ones":         {"127.0.0.1:5", "1.1.1.1, 9.9.9.9, 10.0.0.2", "9.9.9.9", trusted},
		"what is no address ends it":      {"127.0.0.1:5", "9.9.9.9, junk", "127.0.0.1", trusted},
		"all trusted: the farthest":       {"127.0.0.1:5", "10.0.0.3, 10.0.0.2", "10.0.0.3", trusted},
		"a mapped address is unwrapped":   {"[::ffff:127.0.0.1]:5", "::ffff:9.9.9.9", "9.9.9.9", trusted},
		"a trusted peer that says nobody": {"127.0.0.1:5", "", "127.0.0.1", trusted},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Server{Options: Options{Trusted: c.trusted}}
			r := &http.Request{RemoteAddr: c.peer, Header: http.Header{}}
			if c.forwarded != "" {
				r.Header.Set("X-Forwarded-For", c.forwarded)
			}
			if got := s.remote(r); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestHintsToRetry(t *testing.T) {
	for name, c := range map[string]struct {
		err              llm.Error
		should, sec, mil string
	}{
		"a final kind":            {llm.Error{Kind: llm.Invalid}, "false", "", ""},
		"a final error":           {llm.Error{Kind: llm.None, Final: true, RetryAfter: time.Second}, "false", "", ""},
		"seconds are rounded up":  {llm.Error{Kind: llm.Busy, RetryAfter: 1500 * time.Millisecond}, "", "2", "1500"},
		"a hint stays in bounds":  {llm.Error{Kind: llm.Busy, RetryAfter: time.Hour}, "", "60", "60000"},
		"none known is a second":  {llm.Error{Kind: llm.Unavailable}, "", "1", "1000"},
		"a moment is not nothing": {llm.Error{Kind: llm.Full, RetryAfter: time.Microsecond}, "", "1", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			retryHeaders(h, &c.err)
			if h.Get("X-Should-Retry") != c.should || h.Get("Retry-After") != c.sec || h.Get("Retry-After-Ms") != c.mil {
				t.Errorf("got %v, want %q %q %q", h, c.should, c.sec, c.mil)
			}
		})
	}
}

func TestRequestIDsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 100_000 {
		id := newID()
		if len(id) != 24 || seen[id] {
			t.Fatalf("id %q stands twice or has another length", id)
		}
		seen[id] = true
	}
}
