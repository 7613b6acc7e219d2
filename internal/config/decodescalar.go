package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// What is said about references that would never be expanded.
const (
	misplacedRef = "references are expanded in secret fields only (key), as \"${env:NAME}\" or \"${file:PATH}\": write the value itself here"
	literalRef   = "looks like a secret: secrets are never written into the file; set the key of the backend by reference, \"${env:NAME}\" or \"${file:PATH}\""
)

// wanted names what a scalar type takes, for people.
func wanted(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Pointer:
		return wanted(t.Elem())
	case t == durationType:
		return "a duration such as 30s"
	case t == bytesType:
		return "a size such as 32MiB"
	case t == usdType:
		return "an amount in USD such as 0.40"
	case t == secretType:
		return "a reference such as \"${env:NAME}\""
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int:
		return "a whole number"
	case t.Kind() == reflect.Float64:
		return "a number"
	}
	return "text"
}

// scalar decodes one plain value.
func (d *decoder) scalar(n *yaml.Node, v reflect.Value, p *path, f field) {
	switch {
	case v.Type() == secretType:
		d.secret(n, v, p)
	case v.Type() == durationType:
		d.measure(n, v, p, f, func(text string) (int64, error) {
			got, err := ParseDuration(text)
			return int64(got), err
		})
	case v.Type() == bytesType:
		d.measure(n, v, p, f, func(text string) (int64, error) {
			got, err := ParseBytes(text)
			return int64(got), err
		})
	case v.Type() == usdType:
		d.usd(n, v, p)
	case v.Kind() == reflect.String:
		d.str(n, v, p, f)
	case v.Kind() == reflect.Bool:
		if kindOf(n) != isBool {
			d.add(p, fmt.Sprintf("must be true or false, not %s", show(n.Value)), "")
			return
		}
		v.SetBool(strings.EqualFold(n.Value, "true"))
	default:
		d.number(n, v, p, f)
	}
}

// measure decodes a duration or a size and checks its bounds.
func (d *decoder) measure(n *yaml.Node, v reflect.Value, p *path, f field, parse func(string) (int64, error)) {
	got, err := parse(n.Value)
	if err != nil {
		d.add(p, err.Error(), "")
		return
	}
	low, lowErr := parse(f.min)
	high, highErr := parse(f.max)
	switch {
	case lowErr != nil && got <= 0:
		d.add(p, "must be more than 0", "")
	case lowErr == nil && got < low:
		d.add(p, "must be at least "+f.min, "")
	case highErr == nil && got > high:
		d.add(p, "must be at most "+f.max, "")
	default:
		v.SetInt(got)
	}
}

// number decodes a whole or a decimal number and checks its bounds.
func (d *decoder) number(n *yaml.Node, v reflect.Value, p *path, f field) {
	kind, whole := kindOf(n), v.Kind() == reflect.Int
	switch {
	case kind == isInt || kind == isFloat && !whole:
	case kind == isFloat, kind == isOdd:
		d.add(p, fmt.Sprintf("must be %s in plain digits, not %s", wanted(v.Type()), n.Value), "")
		return
	case intForm.MatchString(n.Value):
		d.add(p, fmt.Sprintf("must be %s, not text: take the quotes off", wanted(v.Type())), "")
		return
	default:
		d.add(p, fmt.Sprintf("must be %s, not %s", wanted(v.Type()), show(n.Value)), "")
		return
	}
	x, err := strconv.ParseFloat(n.Value, 64)
	if err != nil || whole && math.Abs(x) > 1<<53 {
		d.add(p, "is too large a number", "")
		return
	}
	if low, err := strconv.ParseFloat(f.min, 64); err == nil && x < low {
		d.add(p, "must be at least "+f.min, "")
		return
	}
	if high, err := strconv.ParseFloat(f.max, 64); err == nil && x > high {
		d.add(p, "must be at most "+f.max, "")
		return
	}
	if whole {
		v.SetInt(int64(x))
		return
	}
	v.SetFloat(x)
}

// str decodes a text. What another YAML reader could take for something else must be quoted.
func (d *decoder) str(n *yaml.Node, v reflect.Value, p *path, f field) {
	kind := kindOf(n)
	known := kind == isText || kind == isYesNo && len(f.enum) > 0 // YAML 1.2 reads on and off as text
	switch {
	case literalKey.MatchString(n.Value):
		d.add(p, literalRef, "")
		return
	case !known:
		d.add(p, unquoted(n), "")
		return
	case len(f.enum) > 0 && !slices.Contains(f.enum, n.Value):
		d.add(p, fmt.Sprintf("must be one of %s, not %s", strings.Join(f.enum, ", "), show(n.Value)), nearest(n.Value, f.enum))
		return
	}
	if d.text(n, p, looseRef.MatchString(n.Value)) {
		v.SetString(n.Value)
	}
}

// text checks what holds for every text: no secret, no reference, not empty, one line.
func (d *decoder) text(n *yaml.Node, p *path, isRef bool) bool {
	msg := ""
	switch {
	case literalKey.MatchString(n.Value):
		msg = literalRef
	case isRef:
		msg = misplacedRef
	case n.Value == "":
		msg = "is empty: give it a value, or take the key out"
	case strings.ContainsAny(n.Value, "\x00\n\r"):
		msg = "must be one line"
	default:
		return true
	}
	d.add(p, msg, "")
	return false
}

// unquoted says why a value that is meant as text must be quoted.
func unquoted(n *yaml.Node) string {
	return fmt.Sprintf("%s without quotes is read as %s: write %s", n.Value, kindOf(n).word(), quote(n.Value))
}

// secret decodes a reference. The value of the node is never shown: it may be a secret.
func (d *decoder) secret(n *yaml.Node, v reflect.Value, p *path) {
	got, err := NewSecret(n.Value, d.dir)
	if err == nil {
		v.Set(reflect.ValueOf(got))
		return
	}
	switch {
	case strings.Contains(n.Value, ":-") && strings.Contains(n.Value, "${"):
		d.add(p, "a reference has no default: write \"${env:NAME}\" and set the variable", "")
	case strings.Contains(n.Value, "$"):
		d.add(p, "is no reference that Weir knows: write \"${env:NAME}\" or \"${file:PATH}\" as the whole value", "")
	default:
		d.add(p, "must be a reference: secrets are never written into the file; write \"${env:NAME}\" or \"${file:PATH}\"", "")
	}
}
