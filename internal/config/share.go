package config

import (
	"regexp"
	"strconv"
)

var shareForm = regexp.MustCompile(`^([1-9][0-9]{0,3})/([1-9][0-9]{0,3})$`)

// parseShare reads N/M with 0 < N ≤ M ≤ 1000.
func parseShare(text string) (n, m int, ok bool) {
	parts := shareForm.FindStringSubmatch(text)
	if parts == nil {
		return 0, 0, false
	}
	n, errN := strconv.Atoi(parts[1])
	m, errM := strconv.Atoi(parts[2])
	return n, m, errN == nil && errM == nil && n <= m && m <= 1000
}

// Share returns this Weir's part of a pool's cap: the cap of a pool outside times cap_share, rounded down and at least 1.
// Pools on the machines you own are not shared so: their cap is theirs.
func (c *Config) Share(size int, outside bool) int {
	n, m, ok := parseShare(c.CapShare)
	if !ok || !outside || size < 1 {
		return size
	}
	return max(size*n/m, 1)
}
