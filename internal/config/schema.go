package config

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
)

// Texts that the schema accepts for the types that are a scalar in the file.
const (
	durationPattern = `^(([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+|[0-9]{1,5}d)$`
	bytesPattern    = `^[0-9]+ ?([KMGT]i?B|kB|B)?$`
	secretPattern   = `^\$\{(env:[A-Za-z_][A-Za-z0-9_]*|file:[^{}$]+)\}$`
)

// object is a JSON object; encoding/json writes its members in the order of their names.
type object = map[string]any

// Schema returns the JSON Schema (2020-12) of the config file, made from the types and their tags. It holds for the form
// of each value; what must hold between values is checked by Parse alone.
func Schema() []byte {
	s := schemas{defs: object{}}
	top := s.structure(reflect.TypeFor[Config](), reflect.ValueOf(Default()).Elem())
	top["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	top["title"] = "Weir configuration"
	top["$defs"] = s.defs
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(top); err != nil {
		return nil // only strings, numbers, lists and maps: cannot fail
	}
	return out.Bytes()
}

// schemas collects the definition of each type that is used more than once.
type schemas struct{ defs object }

// of returns the schema of a type; def is its default, not valid when there is none.
func (s *schemas) of(t reflect.Type, f field, def reflect.Value) object {
	switch {
	case t.Kind() == reflect.Pointer:
		if def.IsValid() && !def.IsNil() {
			return s.of(t.Elem(), f, def.Elem())
		}
		return s.of(t.Elem(), f, reflect.Value{})
	case t == anyType:
		return object{}
	case isScalar(t):
		return s.scalar(t, f, def)
	case t.Kind() == reflect.Map:
		return s.named(t, f)
	case t.Kind() == reflect.Slice:
		out := object{"type": "array", "items": s.of(t.Elem(), field{}, reflect.Value{})}
		if f.required {
			out["minItems"] = 1
		}
		return out
	case def.IsValid():
		return s.structure(t, def)
	}
	return s.shared(t)
}

// shared returns a reference to the definition of a struct, which is made at its first use.
func (s *schemas) shared(t reflect.Type) object {
	name := strings.ToLower(t.Name())
	if _, ok := s.defs[name]; !ok {
		s.defs[name] = object{} // holds the place while it is being made
		s.defs[name] = s.structure(t, fresh(t).Elem())
	}
	return object{"$ref": "#/$defs/" + name}
}

// structure returns the schema of a struct: its keys and no others, or the plain value it can be written as.
func (s *schemas) structure(t reflect.Type, def reflect.Value) object {
	properties, required := object{}, []string{}
	var plain object
	for _, f := range fieldsOf(t) {
		if f.later {
			continue
		}
		value := def.Field(f.index)
		if isScalar(f.typ) && value.IsZero() && !(f.min == "0" && !f.omitEmpty && !f.required) {
			value = reflect.Value{} // a zero is no default: the field is not set
		}
		if !isScalar(f.typ) && (f.typ.Kind() != reflect.Struct || value.IsZero()) {
			value = reflect.Value{}
		}
		one := s.of(f.typ, f, value)
		if f.short {
			plain = copied(one)
		}
		one["description"] = f.doc
		properties[f.key] = one
		if f.required {
			required = append(required, f.key)
		}
	}
	out := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	if plain != nil {
		return object{"anyOf": []any{plain, out}}
	}
	return out
}

// copied returns a copy of an object, one level deep.
func copied(o object) object {
	out := object{}
	for k, v := range o {
		out[k] = v
	}
	return out
}

// named returns the schema of a map of names.
func (s *schemas) named(t reflect.Type, f field) object {
	out := object{"type": "object", "additionalProperties": s.of(t.Elem(), field{}, reflect.Value{})}
	if rule, ok := nameForms[f.keys]; ok {
		out["propertyNames"] = object{"pattern": rule.form.String()}
	}
	if f.required {
		out["minProperties"] = 1
	}
	return out
}

// scalar returns the schema of a plain value.
func (s *schemas) scalar(t reflect.Type, f field, def reflect.Value) object {
	out := object{}
	switch {
	case t == durationType:
		out = object{"type": "string", "pattern": durationPattern}
	case t == bytesType:
		out = object{"type": []any{"string", "integer"}, "pattern": bytesPattern}
	case t == usdType:
		out = object{"type": "number", "minimum": 0}
	case t == secretType:
		return object{"type": "string", "pattern": secretPattern}
	case t.Kind() == reflect.Bool:
		out["type"] = "boolean"
	case t.Kind() == reflect.Int:
		out["type"] = "integer"
	case t.Kind() == reflect.Float64:
		out["type"] = "number"
	case len(f.enum) > 0:
		out = object{"type": "string", "enum": f.enum}
	default:
		out = object{"type": "string", "minLength": 1}
	}
	if low, err := strconv.Atoi(f.min); err == nil {
		out["minimum"] = low
	}
	if high, err := strconv.Atoi(f.max); err == nil {
		out["maximum"] = high
	}
	if def.IsValid() {
		out["default"] = defaultOf(def)
	}
	return out
}

// defaultOf returns a default as the file would have it.
func defaultOf(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case Duration:
		return x.String()
	case Bytes:
		return x.String()
	case USD:
		return json.Number(x.String())
	}
	return v.Interface()
}
