package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration written as 250ms, 30s, 4m, 1h or 30d.
type Duration time.Duration

// D returns the duration as the standard library's type.
func (d Duration) D() time.Duration { return time.Duration(d) }

// String writes the duration in its largest whole unit: 90s, 4m, 30d. ParseDuration reads it back.
func (d Duration) String() string {
	const day = 24 * time.Hour
	units := []struct {
		size time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "us"}}
	if d == 0 {
		return "0s"
	}
	for _, u := range units {
		if d.D()%u.size == 0 {
			return strconv.FormatInt(int64(d.D()/u.size), 10) + u.name
		}
	}
	return d.D().String()
}

// MarshalText writes the duration as String does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// dayForm is what time.ParseDuration does not read. It stays far below what a Duration can hold.
var dayForm = regexp.MustCompile(`^[0-9]{1,5}d$`)

// ParseDuration reads 250ms, 30s, 1h30m or 30d. A number without a unit is an error that says so.
func ParseDuration(text string) (Duration, error) {
	if dayForm.MatchString(text) {
		days, err := strconv.Atoi(strings.TrimSuffix(text, "d"))
		return Duration(time.Duration(days) * 24 * time.Hour), err
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, fmt.Errorf("needs a unit: write %ss for seconds, or one of ms, s, m, h, d", text)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("must be a duration such as 250ms, 30s, 4m, 1h or 30d")
	}
	return Duration(d), nil
}

// Bytes is a size written as 64KiB, 32MiB, 1GiB or a plain number of bytes.
type Bytes int64

// byteUnits are the units of Bytes, largest first. The decimal ones are read but never written.
var byteUnits = []struct {
	name string
	size int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3}, {"B", 1},
}

// String writes the size in its largest whole binary unit, or as a plain number. ParseBytes reads it back.
func (b Bytes) String() string {
	for _, u := range byteUnits[:4] {
		if b != 0 && int64(b)%u.size == 0 {
			return strconv.FormatInt(int64(b)/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// MarshalText writes the size as String does.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// ParseBytes reads 64KiB, 32MiB, 1GiB, 10MB or a plain number of bytes.
func ParseBytes(text string) (Bytes, error) {
	digits, unit := text, int64(1)
	for _, u := range byteUnits {
		if n, ok := strings.CutSuffix(text, u.name); ok {
			digits, unit = strings.TrimSuffix(n, " "), u.size
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || digits[0] == '+' {
		return 0, errors.New("must be a size such as 64KiB, 32MiB or 1GiB, or a plain number of bytes")
	}
	if int64(n) > math.MaxInt64/unit {
		return 0, errors.New("is larger than any size")
	}
	return Bytes(int64(n) * unit), nil
}
