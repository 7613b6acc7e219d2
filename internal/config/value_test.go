package config

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseDuration(t *testing.T) {
	tests := map[string]struct {
		want time.Duration
		err  string
	}{
		"250ms": {want: 250 * time.Millisecond}, "30s": {want: 30 * time.Second}, "4m": {want: 4 * time.Minute}, "1h": {want: time.Hour},
		"1h30m": {want: 90 * time.Minute}, "1.5s": {want: 1500 * time.Millisecond}, "30d": {want: 720 * time.Hour}, "0s": {}, "-1s": {want: -time.Second},
		"5": {err: "needs a unit: write 5s"}, "0": {err: "needs a unit"}, "1.5": {err: "needs a unit"}, "1e3": {err: "needs a unit"},
		"fast": {err: "must be a duration"}, "": {err: "must be a duration"}, "5 s": {err: "must be a duration"}, "1d12h": {err: "must be a duration"},
		"999999d": {err: "must be a duration"}, "3000000h": {err: "must be a duration"}, "5min": {err: "must be a duration"},
	}
	for text, test := range tests {
		t.Run(text, func(t *testing.T) {
			got, err := ParseDuration(text)
			if got.D() != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, %v; want %v, %q", got.D(), err, test.want, test.err)
			}
		})
	}
}

func TestParseBytes(t *testing.T) {
	tests := map[string]struct {
		want Bytes
		bad  bool
	}{
		"0": {}, "1": {want: 1}, "64KiB": {want: 64 << 10}, "32MiB": {want: 32 << 20}, "1GiB": {want: 1 << 30}, "2TiB": {want: 2 << 40}, "10MB": {want: 10e6},
		"5kB": {want: 5000}, "7B": {want: 7}, "32 MiB": {want: 32 << 20},
		"": {bad: true}, "MiB": {bad: true}, "-1": {bad: true}, "+1": {bad: true}, "1.5GiB": {bad: true}, "1e3": {bad: true}, "lots": {bad: true},
		"32M": {bad: true}, "99999999TiB": {bad: true}, "9223372036854775808": {bad: true},
	}
	for text, test := range tests {
		t.Run(text, func(t *testing.T) {
			got, err := ParseBytes(text)
			if got != test.want || (err != nil) != test.bad {
				t.Errorf("got %d, %v; want %d, bad %v", got, err, test.want, test.bad)
			}
		})
	}
}

func TestDurationsAndSizesReadBackAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "duration"))
		if rapid.Bool().Draw(t, "whole") {
			d -= d % Duration(time.Minute)
		}
		if got, err := ParseDuration(d.String()); err != nil || got != d {
			t.Fatalf("%d is written as %s and read back as %d (%v)", d, d, got, err)
		}
		b := Bytes(rapid.Int64Range(0, math.MaxInt64).Draw(t, "bytes")) >> rapid.IntRange(0, 62).Draw(t, "shift") << rapid.IntRange(0, 20).Draw(t, "unit")
		if b < 0 {
			return
		}
		if got, err := ParseBytes(b.String()); err != nil || got != b {
			t.Fatalf("%d is written as %s and read back as %d (%v)", b, b, got, err)
		}
	})
}

func TestNearestFindsWhatWasMeant(t *testing.T) {
	keys := []string{"listen", "admin", "data", "hosts", "limits", "backends", "pools", "cap", "url"}
	tests := map[string]string{
		"lisen": "listen", "Listen": "listen", "listne": "listen", "backend": "backends", "pool": "pools", "ulr": "url", "capp": "cap", "limit": "limits",
		"x": "", "frobnicate": "", "": "", strings.Repeat("l", 1000): "",
	}
	for word, want := range tests {
		if got := nearest(word, keys); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
