package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"

	"go.yaml.in/yaml/v4"
)

// YAML writes the effective configuration with every default written down. The text can be read again and means the
// same; equal configurations give equal bytes. Secrets appear as their references.
func (c *Config) YAML() ([]byte, error) {
	node, err := encode(reflect.ValueOf(c).Elem())
	if err != nil {
		return nil, err
	}
	return yaml.Dump(node, yaml.WithIndent(2), yaml.WithLineWidth(-1))
}

// encode turns a value into YAML, in the order of the types and of sorted names.
func encode(v reflect.Value) (*yaml.Node, error) {
	switch {
	case v.Kind() == reflect.Pointer:
		return encode(v.Elem())
	case v.Type() == anyType:
		return encodeFree(v.Interface())
	case isScalar(v.Type()):
		return encodeScalar(v), nil
	case v.Kind() == reflect.Struct:
		return encodeStruct(v)
	case v.Kind() == reflect.Map:
		return encodeMap(v)
	}
	out := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range v.Len() {
		item, err := encode(v.Index(i))
		if err != nil {
			return nil, err
		}
		out.Content = append(out.Content, item)
	}
	if !v.IsZero() && isScalar(v.Type().Elem()) {
		out.Style = yaml.FlowStyle
	}
	return out, nil
}

// encodeStruct writes the fields that are set, or the plain value when only the short field is.
func encodeStruct(v reflect.Value) (*yaml.Node, error) {
	out := &yaml.Node{Kind: yaml.MappingNode}
	var alone *yaml.Node
	for _, f := range fieldsOf(v.Type()) {
		field := v.Field(f.index)
		if f.omitEmpty && isEmptyValue(field) {
			continue
		}
		node, err := encode(field)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.key, err)
		}
		if f.omitEmpty && node.Kind == yaml.MappingNode && len(node.Content) == 0 {
			continue
		}
		if f.short {
			alone = node
		}
		out.Content = append(out.Content, text(f.key), node)
	}
	if alone != nil && len(out.Content) == 2 {
		return alone, nil
	}
	return out, nil
}

// isEmptyValue reports whether a field that may be left out is left out.
func isEmptyValue(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v.Len() == 0
	}
	return v.IsZero()
}

// encodeMap writes entries in the order of their names.
func encodeMap(v reflect.Value) (*yaml.Node, error) {
	out := &yaml.Node{Kind: yaml.MappingNode}
	names := map[string]bool{}
	for _, key := range v.MapKeys() {
		names[key.String()] = true
	}
	for _, name := range sorted(names) {
		node, err := encode(v.MapIndex(reflect.ValueOf(name)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out.Content = append(out.Content, text(name), node)
	}
	return out, nil
}

// encodeScalar writes one plain value.
func encodeScalar(v reflect.Value) *yaml.Node {
	switch x := v.Interface().(type) {
	case Duration:
		return text(x.String())
	case Bytes:
		node := text(x.String())
		node.Style = 0 // a plain number stays one
		return node
	case USD:
		return plain(x.String())
	case Secret:
		return text(x.Ref())
	}
	switch v.Kind() {
	case reflect.Pointer:
		return encodeScalar(v.Elem())
	case reflect.Bool:
		return plain(strconv.FormatBool(v.Bool()))
	case reflect.Int:
		return plain(strconv.FormatInt(v.Int(), 10))
	case reflect.Float64:
		return plain(strconv.FormatFloat(v.Float(), 'g', -1, 64))
	}
	return text(v.String())
}

// text is a scalar that stays text: quoted where a YAML reader could take it for something else.
func text(value string) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
	if !plainText.MatchString(value) || kindOf(node) != isText {
		node.Style = yaml.DoubleQuotedStyle
	}
	return node
}

// plain is a number or a boolean.
func plain(value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: value} }

// encodeFree writes what a sampling parameter is set to. JSON is YAML, and its floats read back as they were.
func encodeFree(x any) (*yaml.Node, error) {
	switch x := x.(type) {
	case string:
		return text(x), nil
	case map[string]any:
		return encodeMap(reflect.ValueOf(x))
	case []any:
		out := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, item := range x {
			node, err := encodeFree(item)
			if err != nil {
				return nil, err
			}
			out.Content = append(out.Content, node)
		}
		return out, nil
	}
	data, err := json.Marshal(x)
	if err != nil {
		return nil, err
	}
	return plain(string(data)), nil
}
