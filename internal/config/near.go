package config

import "strings"

// Nearest returns the candidate that word was probably meant to be, empty for none. Ties go to the first.
func Nearest(word string, candidates []string) string { return nearest(word, candidates) }

// nearest returns the candidate that word was probably meant to be, or "". Ties go to the first.
func nearest(word string, candidates []string) string {
	best, bound := "", max(1, min(3, len(word)/3))
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d <= bound {
			best, bound = c, d-1
		}
		if bound < 0 {
			break
		}
	}
	return best
}

// distance counts the letters to insert, remove, change or swap with their neighbour to get from a to b.
// It is bounded: words that are far longer than each other are simply far.
func distance(a, b string) int {
	const far = 100
	if len(a) > 64 || len(b) > 64 {
		return far
	}
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
