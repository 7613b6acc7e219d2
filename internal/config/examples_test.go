package config

import (
	"os"
	"path/filepath"
	"testing"
)

// examples are the config files that are shown to users.
const examples = "../../examples/*.yaml"

// TestExamplesLoad loads each example as a user would, with its variables set and its certificates beside it.
func TestExamplesLoad(t *testing.T) {
	for _, file := range files(t, examples) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"VENDOR_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"} {
				t.Setenv(name, "canary-0123456789")
			}
			c, warnings, err := Load(home(t, string(text)))
			if err != nil {
				t.Fatal(err)
			}
			if len(warnings) > 0 {
				t.Errorf("warnings:\n%v", warnings)
			}
			if len(c.Aliases) == 0 {
				t.Errorf("no alias: a user could ask for nothing by name")
			}
		})
	}
}
