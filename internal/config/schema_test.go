package config

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

func TestSchemaIsTheCommittedOne(t *testing.T) {
	golden(t, filepath.Join("..", "..", "docs", "weir.schema.json"), string(Schema()))
}

func TestSchemaIsStable(t *testing.T) {
	first := Schema()
	for range 20 {
		if !bytes.Equal(first, Schema()) {
			t.Fatal("two schemas of the same types differ")
		}
	}
}

// TestSchemaAgreesWithTheParser holds the schema to the types: what Parse takes is valid, what has a bad form is not, and
// files that break only a rule between values are valid, since no schema can see that.
func TestSchemaAgreesWithTheParser(t *testing.T) {
	schema := compiled(t)
	tests := []struct {
		pattern string
		valid   bool
	}{
		{"testdata/good/*.yaml", true},
		{examples, true},
		{"testdata/bad/rule-*.yaml", true},
		{"testdata/bad/shape-*.yaml", false},
		{"testdata/bad/secret-literal*.yaml", false},
		{"testdata/bad/secret-forms.yaml", false},
	}
	for _, test := range tests {
		for _, file := range files(t, test.pattern) {
			t.Run(filepath.Base(file), func(t *testing.T) {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				err = schema.Validate(asJSON(t, text))
				if (err == nil) != test.valid {
					t.Errorf("valid: %v, want %v: %v", err == nil, test.valid, err)
				}
			})
		}
	}
}

func TestEffectiveConfigIsValidToo(t *testing.T) {
	schema := compiled(t)
	for _, file := range append(files(t, "testdata/good/*.yaml"), files(t, examples)...) {
		_, effective := parsed(t, file)
		if err := schema.Validate(asJSON(t, effective)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestSchemaSaysWhatEachKeyIs makes sure that no field is added without its line for people.
func TestSchemaSaysWhatEachKeyIs(t *testing.T) {
	var walk func(at string, node any)
	walk = func(at string, node any) {
		object, ok := node.(map[string]any)
		if !ok {
			return
		}
		properties, _ := object["properties"].(map[string]any)
		for key, value := range properties {
			if description, _ := value.(map[string]any)["description"].(string); description == "" {
				t.Errorf("%s.%s has no doc tag", at, key)
			}
		}
		for key, value := range object {
			walk(at+"/"+key, value)
		}
	}
	var schema any
	if err := json.Unmarshal(Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	walk("", schema)
}

// compiled compiles the schema, which checks it against its own meta-schema.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("weir.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("weir.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// asJSON reads YAML 1.2 as an editor does before it applies a schema.
func asJSON(t *testing.T, text []byte) any {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Load(text, &doc); err != nil {
		t.Fatal(err)
	}
	var convert func(n *yaml.Node) any
	convert = func(n *yaml.Node) any {
		switch n.Kind {
		case yaml.MappingNode:
			out := map[string]any{}
			for i := 0; i < len(n.Content); i += 2 {
				out[n.Content[i].Value] = convert(n.Content[i+1])
			}
			return out
		case yaml.SequenceNode:
			out := []any{}
			for _, item := range n.Content {
				out = append(out, convert(item))
			}
			return out
		}
		switch kindOf(n) {
		case isNull:
			return nil
		case isBool:
			return strings.EqualFold(n.Value, "true")
		case isInt, isFloat:
			return json.Number(n.Value)
		case isOdd:
			return json.Number("10")
		}
		return n.Value
	}
	return convert(doc.Content[0])
}
