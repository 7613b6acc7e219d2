package llm

// special returns a bit for each byte of p that is a quote, a backslash, a control character or beyond ASCII.
//
//go:noescape
func special(p *[64]byte) uint64
