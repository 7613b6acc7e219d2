package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// decoder puts parsed YAML into the types, strictly: whatever does not fit is a fault, and decoding goes on.
type decoder struct {
	*findings
	dir string // folder of the file, for secrets
}

// value decodes n into v, whose field says what is allowed there.
func (d *decoder) value(n *yaml.Node, v reflect.Value, p *path, f field) {
	if !d.usable(n, p) {
		return
	}
	switch {
	case v.Kind() == reflect.Pointer:
		v.Set(fresh(v.Type().Elem()))
		d.value(n, v.Elem(), p, f)
	case v.Type() == anyType:
		v.Set(reflect.ValueOf(d.free(n, p)))
	case isScalar(v.Type()):
		if n.Kind != yaml.ScalarNode {
			d.add(p, fmt.Sprintf("must be %s, not %s", wanted(v.Type()), form(n)), "")
			return
		}
		d.scalar(n, v, p, f)
	case v.Kind() == reflect.Struct:
		d.structure(n, v, p)
	case v.Kind() == reflect.Map:
		d.names(n, v, p, f)
	case v.Kind() == reflect.Slice:
		d.items(n, v, p, f)
	}
}

// usable refuses what this file may not use: anchors, aliases, tags and keys without a value.
func (d *decoder) usable(n *yaml.Node, p *path) bool {
	msg := ""
	switch {
	case n.Kind == yaml.AliasNode:
		msg = "YAML aliases (*name) are not used here: write the value out; a text that begins with * must be quoted"
	case n.Anchor != "":
		msg = "YAML anchors (&name) are not used here: write the value out where it is needed; a text that begins with & must be quoted"
	case n.Style&yaml.TaggedStyle != 0:
		msg = "YAML tags (!name) are not used here; a text that begins with ! must be quoted"
	case n.Kind == yaml.ScalarNode && kindOf(n) == isNull:
		msg = "has no value: give it one, or take the key out"
	default:
		return true
	}
	d.add(p, msg, "")
	return false
}

// fresh returns a pointer to a new value with the defaults of entries in maps and lists.
func fresh(t reflect.Type) reflect.Value {
	v := reflect.New(t)
	if pool, ok := v.Interface().(*Pool); ok {
		pool.Queue.Size = defaultQueue
	}
	return v
}

// structure decodes a mapping into a struct, or a plain value into the field it stands for.
func (d *decoder) structure(n *yaml.Node, v reflect.Value, p *path) {
	if n.Kind != yaml.MappingNode {
		if short, ok := shortOf(v.Type()); ok && n.Kind == yaml.ScalarNode {
			d.value(n, v.Field(short.index), p, short)
			return
		}
		d.add(p, "must be a mapping of keys to values, not "+form(n), "")
		return
	}
	fields := fieldsOf(v.Type())
	given := map[string]bool{}
	d.pairs(n, p, func(key *yaml.Node, value *yaml.Node, at *path) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == key.Value })
		if i < 0 || fields[i].later {
			if meant := d.unknown(v.Type(), key.Value, at); meant != "" {
				given[meant] = true // told already: not missing beside
			}
			return
		}
		given[key.Value] = true
		d.value(value, v.Field(fields[i].index), at, fields[i])
	})
	for _, f := range fields {
		if f.required && !given[f.key] {
			d.fault(p.key(f.key), "is missing: %s", f.doc)
		}
	}
}

// pairs calls do for each key of a mapping, in the order of the file, and refuses keys that are no text or come twice.
func (d *decoder) pairs(n *yaml.Node, p *path, do func(key, value *yaml.Node, at *path)) {
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.Anchor != "" || key.Style&yaml.TaggedStyle != 0 {
			at := p.key("?")
			d.marks[at.text] = mark{key.Line, key.Column}
			d.add(at, "a key must be plain text; one that begins with *, & or ! must be quoted", "")
			continue
		}
		at := p.key(key.Value)
		if line, twice := first[key.Value]; twice {
			was := d.marks[at.text]
			d.marks[at.text] = mark{key.Line, key.Column}
			d.add(at, fmt.Sprintf("is given twice, first on line %d: keep one", line), "")
			d.marks[at.text] = was
			continue
		}
		first[key.Value] = key.Line
		d.marks[at.text] = mark{key.Line, key.Column}
		do(key, value, at)
	}
}

// unknown records a key that the type does not have, and returns the key that was probably meant.
func (d *decoder) unknown(t reflect.Type, key string, at *path) string {
	if isLater(t, key) {
		d.add(at, "is not built yet in this version: take it out", "")
		short, _ := shortOf(t)
		return short.key // it stands in the place of the plain form
	}
	var known []string
	for _, f := range fieldsOf(t) {
		if !f.later {
			known = append(known, f.key)
		}
	}
	if key == "<<" {
		d.add(at, "YAML merge keys (<<) are not used here: write the values out", "")
		return ""
	}
	msg, meant := "unknown key", nearest(key, known)
	if homes := homesOf(key, t); len(homes) > 0 {
		for i, home := range homes {
			if home == "" {
				homes[i] = "the top level"
			}
		}
		msg += fmt.Sprintf(": %s belongs in %s", show(key), either(homes))
	} else if meant == "" && len(known) <= 12 {
		msg += ": known here are " + strings.Join(known, ", ")
	}
	d.add(at, msg, meant)
	return meant
}

// either joins alternatives, three at most.
func either(words []string) string {
	if len(words) > 3 {
		words = append(words[:3:3], "others")
	}
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// names decodes a mapping of names into a map.
func (d *decoder) names(n *yaml.Node, v reflect.Value, p *path, f field) {
	if n.Kind != yaml.MappingNode {
		d.add(p, "must be a mapping of names, not "+form(n), "")
		return
	}
	if f.required && len(n.Content) == 0 {
		d.add(p, "is empty: give it one entry at least", "")
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(n.Content)/2))
	d.pairs(n, p, func(key, value *yaml.Node, at *path) {
		d.name(key, at, f)
		elem := fresh(v.Type().Elem()).Elem()
		d.value(value, elem, at, field{})
		if elem.Kind() == reflect.Pointer && elem.IsNil() {
			elem.Set(fresh(elem.Type().Elem())) // a fault already; others may still name it
		}
		v.SetMapIndex(reflect.ValueOf(key.Value), elem)
	})
}

// name checks the key of an entry: quoted where YAML would read something else, and of the form its map asks for.
func (d *decoder) name(key *yaml.Node, at *path, f field) {
	rule, ok := nameForms[f.keys]
	switch {
	case kindOf(key) != isText:
		d.add(at, unquoted(key), "")
	case ok && !rule.form.MatchString(key.Value):
		d.add(at, "is no name: it "+rule.hint, "")
	case looseRef.MatchString(key.Value):
		d.add(at, misplacedRef, "")
	}
}

// items decodes a list.
func (d *decoder) items(n *yaml.Node, v reflect.Value, p *path, f field) {
	if n.Kind != yaml.SequenceNode {
		d.add(p, "must be a list, not "+form(n)+": write it in brackets, [a, b]", "")
		return
	}
	if f.required && len(n.Content) == 0 {
		d.add(p, "is empty: give it one entry at least", "")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		at := p.at(i)
		d.marks[at.text] = mark{item.Line, item.Column}
		d.value(item, v.Index(i), at, field{})
	}
}

// free decodes a value of any form: what a sampling parameter is set to.
func (d *decoder) free(n *yaml.Node, p *path) any {
	switch {
	case n.Kind == yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for i, item := range n.Content {
			at := p.at(i)
			d.marks[at.text] = mark{item.Line, item.Column}
			if d.usable(item, at) {
				list = append(list, d.free(item, at))
			}
		}
		return list
	case n.Kind == yaml.MappingNode:
		m := map[string]any{}
		d.pairs(n, p, func(key, value *yaml.Node, at *path) {
			if d.usable(value, at) {
				m[key.Value] = d.free(value, at)
			}
		})
		return m
	}
	return d.freeScalar(n, p)
}

// freeScalar decodes one value as JSON would have it, and refuses what YAML readers disagree on.
func (d *decoder) freeScalar(n *yaml.Node, p *path) any {
	switch kindOf(n) {
	case isBool:
		return strings.EqualFold(n.Value, "true")
	case isInt:
		if i, err := strconv.ParseInt(n.Value, 10, 64); err == nil {
			return i
		}
		fallthrough
	case isFloat:
		if x, err := strconv.ParseFloat(n.Value, 64); err == nil {
			return x
		}
		d.add(p, "is no number that JSON can carry", "")
	case isYesNo, isOdd:
		d.add(p, unquoted(n), "")
	default:
		d.text(n, p, braceRef.MatchString(n.Value))
	}
	return n.Value
}
