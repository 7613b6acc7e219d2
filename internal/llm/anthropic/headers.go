package anthropic

import "weir/internal/llm"

// version is sent where the client named none: one of another API, or a call of Weir's own.
const version = "2023-06-01"

// Headers returns the header lines of a call: the client's own version and betas, whatever they are, where it speaks this
// dialect.
func (Dialect) Headers(r *llm.Request) []llm.Header {
	if r.Dialect != (Dialect{}).Name() {
		return []llm.Header{{Name: "anthropic-version", Value: version}}
	}
	for _, h := range r.Up {
		if h.Name == "anthropic-version" {
			return r.Up
		}
	}
	return append([]llm.Header{{Name: "anthropic-version", Value: version}}, r.Up...)
}
