package config

import (
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// kind is what a YAML reader takes a scalar for.
type kind int

const (
	isText kind = iota
	isNull
	isBool  // true, false
	isYesNo // no, off, y: a word in YAML 1.2, a boolean in YAML 1.1
	isInt   // plain digits
	isFloat // as JSON writes it
	isOdd   // 010, 0x1F, 1_000, .5, .inf: a number to some readers
)

var (
	intForm   = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	floatForm = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
	oddForm   = regexp.MustCompile(`^[-+]?(0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|\.[0-9][0-9_]*([eE][-+]?[0-9]+)?|\.(inf|Inf|INF|nan|NaN|NAN))$`)
)

// kindOf returns what a scalar is. Quoted ones are text whatever they hold.
func kindOf(n *yaml.Node) kind {
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return isText
	}
	switch strings.ToLower(n.Value) {
	case "", "~", "null":
		return isNull
	case "true", "false":
		return isBool
	case "y", "n", "yes", "no", "on", "off":
		return isYesNo
	}
	switch {
	case intForm.MatchString(n.Value):
		return isInt
	case floatForm.MatchString(n.Value):
		return isFloat
	case oddForm.MatchString(n.Value):
		return isOdd
	}
	return isText
}

// word names the kind for people.
func (k kind) word() string {
	switch k {
	case isNull:
		return "nothing"
	case isBool:
		return "true or false"
	case isYesNo:
		return "yes or no"
	case isInt, isFloat, isOdd:
		return "a number"
	}
	return "text"
}

// form names what a node is, for people.
func form(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	return kindOf(n).word()
}

var (
	// looseRef finds ${KEY}, ${KEY:-x} and $KEY as a word of its own. A dollar after a letter, a digit or another dollar is
	// no reference: bcrypt hashes ($2a$10$N9…) and $$ stay as they are.
	looseRef = regexp.MustCompile(`(?:^|[^$A-Za-z0-9])\$(?:\{|[A-Za-z_][A-Za-z0-9_]*(?:[^$A-Za-z0-9_]|$))`)
	braceRef = regexp.MustCompile(`(?:^|[^$])\$\{`)
	// literalKey finds what looks like a vendor's API key or token.
	literalKey = regexp.MustCompile(`(?:^|[^A-Za-z0-9])(?:sk-[A-Za-z0-9_-]{12,}|sk_[A-Za-z0-9_]{12,}|hf_[A-Za-z0-9]{16,}|gh[opsru]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|gsk_[A-Za-z0-9]{16,}|xai-[A-Za-z0-9]{16,}|nvapi-[\w-]{16,}|AIza[\w-]{30,}|AKIA[A-Z0-9]{16}|eyJ[\w-]{8,}\.eyJ[\w-]{8,}|[Bb]earer +[^\s$]{8,})`)
	// placeholder finds what stands in examples in place of a secret.
	placeholder = regexp.MustCompile(`(?i)^(?:<.*>|\$\{.*\}|\$[a-z_]+|\[.*\]|x{3,}|\*+|\.+|todo|fixme|tbd|change[-_ ]?(?:me|this|it)|replace[-_ ]?(?:me|this|with.*)|placeholder|example|secret|password|(?:your|insert|put|enter)[-_ ].*|(?:sk-)?(?:your|my)?[-_]?api[-_ ]?key(?:[-_ ]here)?|sk-(?:x+|\.+|\*+))$`)
)

// show quotes a value for a fault. It is cut when long, and hidden when it could be a secret.
func show(value string) string {
	if literalKey.MatchString(value) {
		return hidden
	}
	if runes := []rune(value); len(runes) > 40 {
		value = string(runes[:40]) + "…"
	}
	return quote(value)
}

// quote writes a value as a double-quoted YAML scalar of one line.
func quote(value string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range value {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f || r == 0xfffd || (r >= 0x80 && r < 0xa0) || r == 0x2028 || r == 0x2029 || (r >= 0x202a && r <= 0x202e):
			b.WriteString("?")
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// plainText are texts that no YAML reader takes for anything else when they stand without quotes, kindOf permitting.
var plainText = regexp.MustCompile(`^[A-Za-z0-9_./][A-Za-z0-9_./:+*@-]*[A-Za-z0-9_./*]$|^[A-Za-z]$`)
