package tokens

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// own are the models whose vocabulary we carry: they are counted, not estimated.
var own = map[string]bool{"gpt-4o": true, "gpt-4": true}

// How far a count may be from the truth, for our own vocabularies and for those of others.
const (
	ownError    = 0.05
	othersError = 0.15
)

// Every text is counted within the limits for every vocabulary that somebody else could count for us.
func TestCountsAgreeWithOtherTokenizers(t *testing.T) {
	models, truth := table(t)
	c := New()
	for name, counts := range truth {
		text := read(t, name)
		for i, model := range models {
			limit := othersError
			if own[model] {
				limit = ownError
			}
			if got, want := c.For(model).CountText(text), counts[i]; off(got, want) > limit {
				t.Errorf("%s for %s: %d tokens, %d in truth: off by %.1f %%", name, model, got, want, 100*off(got, want))
			}
		}
	}
}

// All texts together, which is how a long conversation is mixed, are counted closer than each.
func TestErrorsOfAMixEvenOut(t *testing.T) {
	models, truth := table(t)
	for i, model := range models {
		var got, want int
		worst, worstAt := 0.0, ""
		for name, counts := range truth {
			n := New().For(model).CountText(read(t, name))
			got, want = got+n, want+counts[i]
			if o := off(n, counts[i]); o >= worst {
				worst, worstAt = o, name
			}
		}
		t.Logf("%-13s all %5d, in truth %5d: %.1f %%; worst %.1f %% (%s)", model, got, want, 100*off(got, want), 100*worst, worstAt)
		if off(got, want) > 0.05 {
			t.Errorf("%s: %d tokens in all, %d in truth", model, got, want)
		}
	}
}

// Claude's vocabulary is not public. What was published of it is how much longer texts of three kinds are than for GPT-4o.
func TestClaudeIsAsFarFromGPTAsPublished(t *testing.T) {
	models, truth := table(t)
	if models[0] != "gpt-4o" {
		t.Fatalf("the first column is %s", models[0])
	}
	for name, ratio := range map[string]float64{"english.txt": 1.16, "maths.txt": 1.21, "code.py.txt": 1.30} {
		want := int(ratio * float64(truth[name][0]))
		if got := New().For("claude-sonnet-4-5").CountText(read(t, name)); off(got, want) > othersError {
			t.Errorf("%s: %d tokens, %d by the published ratio", name, got, want)
		}
	}
}

func TestFamilyOfAModelsName(t *testing.T) {
	for model, like := range map[string]string{
		"Qwen/Qwen3-Coder-30B-A3B-Instruct":        "qwen",
		"hf.co/unsloth/gemma-3-27b-it-GGUF:Q4_K_M": "gemma",
		"meta-llama/Llama-3.1-8B-Instruct":         "llama",
		"ollama/mistral-small3.2":                  "mistral",
		"deepseek-r1-distill-llama-70b":            "llama-3",
		"gpt-4o-mini":                              "gpt-5",
		"gpt-4-turbo":                              "gpt-3.5-turbo",
		"openai/gpt-oss-120b":                      "o3-mini",
		"my-own-model":                             "",
	} {
		got, want := familyOf(model), familyOf(like)
		if *got.flat() != *want.flat() {
			t.Errorf("%s is counted as %v, want as %v", model, got.names, want.names)
		}
	}
}

// flat is what can be compared of a family.
func (f *family) flat() *[9]float64 {
	yes := map[bool]float64{true: 1}
	return &[9]float64{yes[f.cl100k], yes[f.own], f.base, f.digit, f.line, f.han, f.kana, f.hangul, f.others}
}

func off(got, want int) float64 { return math.Abs(float64(got)/float64(want) - 1) }

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "texts", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// table reads what others counted: models, and by text one number for each.
func table(t *testing.T) (models []string, truth map[string][]int) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "counts.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	truth = map[string][]int{}
	for line := range strings.Lines(string(raw)) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		switch {
		case strings.HasPrefix(line, "#") || cells[0] == "counted by":
		case cells[0] == "text":
			models = cells[1:]
		default:
			for _, c := range cells[1:] {
				n, err := strconv.Atoi(c)
				if err != nil {
					t.Fatal(err)
				}
				truth[cells[0]] = append(truth[cells[0]], n)
			}
			if len(truth[cells[0]]) != len(models) {
				t.Fatalf("counts.tsv: %s has %d numbers for %d models", cells[0], len(truth[cells[0]]), len(models))
			}
		}
	}
	files, err := os.ReadDir(filepath.Join("testdata", "texts"))
	if err != nil || len(files) != len(truth) || len(truth) < 12 {
		t.Fatalf("%d texts, %d rows of counts (%v)", len(files), len(truth), err)
	}
	return models, truth
}
