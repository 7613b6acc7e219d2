package openai

import (
	"bytes"
	"encoding/json"
	goflag "flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"weir/internal/llm"
)

var update = goflag.Bool("update", false, "write what the golden files want anew")

// aim reads a target: lines of a name and a value.
func aim(text string) *llm.Target {
	t := &llm.Target{Model: "up", Quoted: []byte(`"up"`), Usage: true}
	for line := range strings.Lines(text) {
		name, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		what, raw, _ := strings.Cut(v, " ")
		switch name {
		case "max_tokens":
			t.MaxTokens = v
		case "developer":
			t.Developer = v
		case "system_turns":
			t.SystemTurns = v
		case "reasoning":
			t.Reasoning = v
		case "null":
			t.NullContent = v
		case "strip":
			t.Sampling = append(t.Sampling, llm.Sampling{Name: what, Strip: true})
		case "force":
			t.Sampling = append(t.Sampling, llm.Sampling{Name: what, Force: []byte(raw)})
		case "default":
			t.Sampling = append(t.Sampling, llm.Sampling{Name: what, Default: []byte(raw)})
		}
	}
	return t
}

// carry takes a request through the neutral form.
func carry(r *llm.Request, t *llm.Target) ([]byte, *llm.Conversation, error) {
	c, err := Dialect{}.Conversation(r)
	if err != nil {
		return nil, nil, err
	}
	c.Mend()
	t.Stream = r.Stream
	out, err := Dialect{}.Compose(c, r, t)
	return out, c, err
}

// oneLine takes the line ends out that make golden files readable.
func oneLine(s []byte) string { return strings.ReplaceAll(strings.TrimSpace(string(s)), "\n", "") }

func TestCompose(t *testing.T) {
	files, err := filepath.Glob("testdata/compose/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			in := map[string][]byte{}
			for _, f := range a.Files {
				in[f.Name] = f.Data
			}
			got := map[string]string{}
			out, c, err := carry(decode(t, llm.Chat, oneLine(in["request"])), aim(string(in["target"])))
			if err != nil {
				got["error"] = refusal(t, err).Param
			} else if got["want"] = string(out); len(c.Lost) > 0 {
				got["lost"] = strings.Join(c.Lost, "\n")
			}
			want := map[string]string{}
			for _, name := range []string{"error", "want"} {
				if in[name] != nil {
					want[name] = oneLine(in[name])
				}
			}
			if in["lost"] != nil {
				want["lost"] = strings.TrimSpace(string(in["lost"]))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if out != nil && !json.Valid(out) {
				t.Errorf("no JSON: %s", out)
			}
			if *update && out != nil {
				for i := range a.Files {
					if a.Files[i].Name == "want" {
						a.Files[i].Data = append(bytes.Clone(out), '\n')
					}
				}
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
