package config

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// The types that are a scalar in the file although Go sees another kind.
var (
	durationType = reflect.TypeFor[Duration]()
	bytesType    = reflect.TypeFor[Bytes]()
	usdType      = reflect.TypeFor[USD]()
	secretType   = reflect.TypeFor[Secret]()
	anyType      = reflect.TypeFor[any]()
)

// nameForms are the shapes of names by the tag keys, with what to say about others.
var nameForms = map[string]struct {
	form *regexp.Regexp
	hint string
}{
	"name":  {regexp.MustCompile(`^[A-Za-z0-9._:-]+$`), "may have letters, digits and . _ : - only"},
	"alias": {regexp.MustCompile(`^([^\s*\x00-\x1f\x7f]+\*?|\*)$`), "must have no spaces, and * only as its last character"},
	"model": {regexp.MustCompile(`^[^\s*\x00-\x1f\x7f]+$`), "must be a model id without spaces or *"},
	"param": {regexp.MustCompile(`^[a-z][a-z0-9_]*$`), "must be the name of a request field such as temperature"},
}

// plainKey are names that stand in a path without quotes.
var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// field is one field of a struct as the file sees it.
type field struct {
	key       string
	index     int
	typ       reflect.Type
	doc       string
	keys      string
	min, max  string
	enum      []string
	omitEmpty bool
	required  bool
	short     bool
	later     bool
}

// fieldsOf returns the fields of a struct type that are in the file, in the order of the type.
func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		sf := t.Field(i)
		key, option, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		if key == "" || key == "-" {
			continue
		}
		out = append(out, field{
			key: key, index: i, typ: sf.Type, omitEmpty: option == "omitempty",
			doc: sf.Tag.Get("doc"), keys: sf.Tag.Get("keys"), min: sf.Tag.Get("min"), max: sf.Tag.Get("max"),
			enum:     list(sf.Tag.Get("enum")),
			required: sf.Tag.Get("required") != "", short: sf.Tag.Get("short") != "", later: sf.Tag.Get("later") != "",
		})
	}
	return out
}

// list splits a tag at its commas.
func list(tag string) []string {
	if tag == "" {
		return nil
	}
	return strings.Split(tag, ",")
}

// shortOf returns the field that a plain value stands for, if the type has one.
func shortOf(t reflect.Type) (field, bool) {
	for _, f := range fieldsOf(t) {
		if f.short {
			return f, true
		}
	}
	return field{}, false
}

// isScalar reports whether the type is written as one plain value.
func isScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		return t == secretType
	case reflect.Map, reflect.Slice, reflect.Interface:
		return false
	case reflect.Pointer:
		return isScalar(t.Elem())
	}
	return true
}

// laterWords are words of the design that have no field yet, by the type in which they will stand.
var laterWords = map[reflect.Type][]string{
	reflect.TypeFor[Config](): {"devices", "alerts", "triage", "version"},
	reflect.TypeFor[Pool]():   {"probe", "cap_share", "same_as"},
	reflect.TypeFor[Route]():  {"gate", "nudge"},
	reflect.TypeFor[Alias]():  {"triage"},
}

// isLater reports whether key is a word of the design that this version does not do yet in type t.
func isLater(t reflect.Type, key string) bool {
	if slices.Contains(laterWords[t], key) {
		return true
	}
	return slices.ContainsFunc(fieldsOf(t), func(f field) bool { return f.later && f.key == key })
}

// homesOf returns where a key stands in the file, as patterns such as pools.NAME, without the type it was found in.
func homesOf(key string, except reflect.Type) []string {
	found := map[string]bool{}
	var walk func(t reflect.Type, at string)
	walk = func(t reflect.Type, at string) {
		switch t.Kind() {
		case reflect.Pointer:
			walk(t.Elem(), at)
		case reflect.Map:
			walk(t.Elem(), at+".NAME")
		case reflect.Slice:
			walk(t.Elem(), at+"[]")
		case reflect.Struct:
			for _, f := range fieldsOf(t) {
				if f.key == key && t != except && !f.later {
					found[strings.TrimPrefix(at, ".")] = true
				}
				walk(f.typ, at+"."+f.key)
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
	return slices.Sorted(maps.Keys(found))
}
