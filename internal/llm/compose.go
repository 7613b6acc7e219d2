package llm

import "strings"

// Body gathers the small members of a request that is being composed, in order. The zero value is ready.
type Body struct{ list []added }

// Set gives the member name the raw value; nil is no value, and sets nothing.
func (b *Body) Set(name string, raw []byte) {
	if raw == nil {
		return
	}
	for i := range b.list {
		if b.list[i].name == name {
			b.list[i].raw = raw
			return
		}
	}
	b.list = append(b.list, added{name, raw})
}

// Text sets the member name to a string.
func (b *Body) Text(name string, t Text) {
	if len(t) > 0 {
		b.Set(name, append(append([]byte{'"'}, t...), '"'))
	}
}

// Value returns the raw value of a member, nil when there is none.
func (b *Body) Value(name string) []byte {
	for i := range b.list {
		if b.list[i].name == name {
			return b.list[i].raw
		}
	}
	return nil
}

// Remove takes a member out.
func (b *Body) Remove(name string) {
	for i := range b.list {
		if b.list[i].name == name {
			b.list = append(b.list[:i], b.list[i+1:]...)
			return
		}
	}
}

// Rule applies a pool's rules on sampling parameters. limit is the dialect's name for the limit of tokens, which the
// rules may call by any of the names in limits.
func (b *Body) Rule(rules []Sampling, limit string, limits ...string) {
	for i := range rules {
		p := &rules[i]
		name := p.Name
		for _, l := range limits {
			if name == l {
				name = limit
			}
		}
		switch {
		case p.Strip:
			b.Remove(name)
		case p.Force != nil:
			b.Set(name, p.Force)
		case p.Default != nil && b.Value(name) == nil:
			b.Set(name, p.Default)
		}
	}
}

// AppendOpen appends the opening bracket and all members, each with a comma behind it: the caller goes on with the large
// ones and the closing bracket.
func (b *Body) AppendOpen(dst []byte) []byte {
	dst = append(dst, '{')
	for _, m := range b.list {
		dst = append(AppendQuoted(dst, m.name), ':')
		dst = append(append(dst, m.raw...), ',')
	}
	return dst
}

// AttributionLine is how the changing line begins that Claude Code puts at the head of its system prompt. It differs from
// version to version, and with it every prefix cache behind it.
const AttributionLine = "x-anthropic-billing-header:"

// IsAttribution reports whether a system text is that line.
func IsAttribution(t Text) bool {
	return strings.HasPrefix(string(t[:min(len(t), len(AttributionLine))]), AttributionLine)
}
