package sim

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// maxSchemaDepth ends schemas that refer to themselves.
const maxSchemaDepth = 32

// instance returns the smallest JSON value it can make that a JSON Schema accepts: the
// required members, the first of an enum, the first branch of a choice, the shortest
// string and list. It knows the keywords that structured output allows, and answers {}
// for a schema it cannot read.
func instance(schema json.RawMessage) json.RawMessage {
	var root any
	d := json.NewDecoder(bytes.NewReader(schema))
	d.UseNumber()
	if len(schema) == 0 || d.Decode(&root) != nil {
		return json.RawMessage("{}")
	}
	return encode(sample(root, root, 0))
}

func sample(root, schema any, depth int) any {
	s, ok := schema.(map[string]any)
	if !ok || depth > maxSchemaDepth {
		return object{}
	}
	if ref, ok := s["$ref"].(string); ok {
		return sample(root, follow(root, ref), depth+1)
	}
	if v, ok := s["const"]; ok {
		return v
	}
	if list, ok := s["enum"].([]any); ok && len(list) > 0 {
		return list[0]
	}
	for _, word := range []string{"anyOf", "oneOf", "allOf"} {
		if list, ok := s[word].([]any); ok && len(list) > 0 {
			return sample(root, list[0], depth+1)
		}
	}
	switch kind(s) {
	case "object":
		return sampleObject(root, s, depth)
	case "array":
		items := make([]any, int(number(s["minItems"])))
		for i := range items {
			items[i] = sample(root, s["items"], depth+1)
		}
		return items
	case "string":
		return sampleString(s)
	case "integer", "number":
		if n := number(s["minimum"]); n > 0 {
			return n
		}
		return number(s["exclusiveMinimum"]) + 1
	case "boolean":
		return true
	}
	return nil
}

func sampleObject(root any, s map[string]any, depth int) any {
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	o := object{}
	for _, r := range required {
		if name, ok := r.(string); ok {
			o = append(o, member{name, sample(root, properties[name], depth+1)})
		}
	}
	return o
}

func sampleString(s map[string]any) any {
	switch s["format"] {
	case "date":
		return "2026-01-01"
	case "date-time":
		return "2026-01-01T00:00:00Z"
	case "time":
		return "00:00:00Z"
	case "email":
		return "sim@example.com"
	case "uuid":
		return "00000000-0000-4000-8000-000000000000"
	case "uri":
		return "https://example.com/"
	}
	text := "simulated"
	if n := int(number(s["minLength"])); n > len(text) {
		text += strings.Repeat("-", n-len(text))
	}
	if n, ok := s["maxLength"]; ok && int(number(n)) < len(text) {
		text = text[:int(number(n))]
	}
	return text
}

// kind returns the type of a schema: the first that is not null when it has several,
// and a guess from its keywords when it has none.
func kind(s map[string]any) string {
	switch t := s["type"].(type) {
	case string:
		return t
	case []any:
		i := slices.IndexFunc(t, func(v any) bool { return v != "null" })
		if i >= 0 {
			name, _ := t[i].(string)
			return name
		}
		return "null"
	}
	if s["items"] != nil {
		return "array"
	}
	return "object"
}

func number(v any) float64 {
	n, ok := v.(json.Number)
	if !ok {
		return 0
	}
	f, _ := n.Float64()
	return min(max(f, -1e6), 1e6) // a schema cannot ask for a gigabyte
}

// follow resolves a reference inside the same schema, "#/$defs/x".
func follow(root any, ref string) any {
	at := root
	for _, step := range strings.Split(strings.TrimPrefix(ref, "#"), "/") {
		if step == "" {
			continue
		}
		m, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]
	}
	return at
}
