package backend

import "strings"

// maxServed bounds the name of a model in a header: what is longer names none.
const maxServed = 256

// served returns the model that a header of the answer names; empty where the backend has no such header, the answer
// does not carry it, or what it holds cannot be a name.
func (b *Backend) served(h Header) string {
	if b.ServedIn == "" {
		return ""
	}
	name := strings.TrimSpace(h.Get(b.ServedIn))
	if len(name) > maxServed || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }) {
		return ""
	}
	return name
}
