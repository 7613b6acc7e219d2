package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Flavour is the kind of server a Server passes itself off as: its discovery paths,
// its errors and the fields of its answers.
type Flavour string

// The flavours. The empty one is OpenAI.
const (
	OpenAI    Flavour = "openai"
	LlamaCPP  Flavour = "llamacpp"
	Ollama    Flavour = "ollama"
	VLLM      Flavour = "vllm"
	SGLang    Flavour = "sglang"
	LMStudio  Flavour = "lmstudio"
	Anthropic Flavour = "anthropic"
)

// Script is what a Server does: what it is, and how it behaves for each model.
type Script struct {
	Server  Flavour       `json:"server,omitempty"`  // the kind of server; OpenAI when empty
	Models  []string      `json:"models,omitempty"`  // the models it lists; those of On when empty
	APIs    []API         `json:"apis,omitempty"`    // the APIs it has; those of its kind when empty
	Strict  bool          `json:"strict,omitempty"`  // unknown models are refused
	Refuse  []string      `json:"refuse,omitempty"`  // for every model what Behaviour.Refuse is for one
	Slots   int           `json:"slots,omitempty"`   // calls at once, the rest waits in line; 0 is no limit
	Context int           `json:"context,omitempty"` // tokens; 0 is no limit
	Key     string        `json:"key,omitempty"`     // the key it demands
	Loading time.Duration `json:"-"`                 // every path says "loading" this long

	// On holds behaviours by model name, else by path ("/health"), else "*".
	On map[string]Sequence `json:"on,omitempty"`
}

// Sequence is the behaviours of one model's attempts: the first attempt takes the
// first, and so on; the last stays. In JSON it is a list, or one behaviour alone.
type Sequence []Behaviour

// UnmarshalJSON reads a list of behaviours or a single one.
func (q *Sequence) UnmarshalJSON(data []byte) error {
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '{' {
		var b Behaviour
		if err := b.UnmarshalJSON(data); err != nil {
			return err
		}
		*q = Sequence{b}
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil || len(list) == 0 {
		return errors.New("must be a behaviour or a list of at least one")
	}
	out := make(Sequence, len(list))
	for i, raw := range list {
		if err := out[i].UnmarshalJSON(raw); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	*q = out
	return nil
}

// at returns the behaviour of the i-th attempt, counted from 0.
func (q Sequence) at(i int) Behaviour {
	for _, b := range q {
		if i -= max(b.Times, 1); i < 0 {
			return b
		}
	}
	return q[len(q)-1]
}

// ParseScript reads a script file. It reports every fault with its place.
func ParseScript(data []byte) (Script, error) {
	var file struct {
		Script
		Loading string                     `json:"loading"`
		On      map[string]json.RawMessage `json:"on"`
	}
	if err := decodeStrict(data, &file); err != nil {
		return Script{}, fmt.Errorf("sim script: %w (docs/sim.md lists the fields)", err)
	}
	s := file.Script
	s.On = map[string]Sequence{}
	var faults []error
	if file.Loading != "" {
		d, err := time.ParseDuration(file.Loading)
		if err != nil || d < 0 {
			faults = append(faults, fmt.Errorf("loading: %q is not a duration such as \"5s\"", file.Loading))
		}
		s.Loading = d
	}
	for _, name := range slices.Sorted(maps.Keys(file.On)) {
		var q Sequence
		if err := q.UnmarshalJSON(file.On[name]); err != nil {
			faults = append(faults, fmt.Errorf("on.%s: %w", name, err))
		}
		s.On[name] = q
	}
	faults = append(faults, s.Check())
	if err := errors.Join(faults...); err != nil {
		return Script{}, fmt.Errorf("sim script: %w (docs/sim.md lists the fields)", err)
	}
	return s, nil
}

// Check returns every fault of s, joined, or nil.
func (s *Script) Check() error {
	var faults []error
	known := []Flavour{"", OpenAI, LlamaCPP, Ollama, VLLM, SGLang, LMStudio, Anthropic}
	if !slices.Contains(known, s.Server) {
		faults = append(faults, fmt.Errorf("server: %q is not one of openai, llamacpp, ollama, vllm, sglang, lmstudio, anthropic", s.Server))
	}
	apis := slices.Sorted(maps.Values(paths))
	for _, api := range s.APIs {
		if !slices.Contains(apis, api) {
			faults = append(faults, fmt.Errorf("apis: %q is not one of %v", api, apis))
		}
	}
	for _, what := range s.Refuse {
		if !slices.Contains(refusals, what) {
			faults = append(faults, fmt.Errorf("refuse: %q is not one of %s", what, strings.Join(refusals, ", ")))
		}
	}
	if s.Slots < 0 || s.Context < 0 || s.Loading < 0 {
		faults = append(faults, errors.New("slots, context and loading must not be negative"))
	}
	for _, name := range slices.Sorted(maps.Keys(s.On)) {
		for i := range s.On[name] {
			if err := s.On[name][i].Check(); err != nil {
				faults = append(faults, fmt.Errorf("on.%s[%d]: %w", name, i, err))
			}
		}
	}
	return errors.Join(faults...)
}

// models returns the models to list, in a steady order.
func (s *Script) models() []string {
	if len(s.Models) > 0 {
		return s.Models
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.On)) {
		if name != "*" && !strings.HasPrefix(name, "/") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return []string{"sim-model"}
	}
	return names
}

func (s *Script) flavour() Flavour {
	if s.Server == "" {
		return OpenAI
	}
	return s.Server
}

// Transcript turns a pasted answer, as the case files write them, into a behaviour:
// an optional status line and headers, a blank line, and the body, which ends at
// <RST>, <FIN> or <END OF BODY>, or with the text. Chunks that lack id, object,
// created and model are given constants. It never fails: what it cannot read is body.
func Transcript(text string) Behaviour {
	b := Behaviour{Fill: true}
	text = strings.TrimLeft(text, "\n")
	if strings.HasPrefix(text, "HTTP/1.1 ") {
		head, body, _ := strings.Cut(text, "\n\n")
		text = body
		lines := strings.Split(head, "\n")
		_, _ = fmt.Sscanf(lines[0], "HTTP/1.1 %d", &b.Status)
		for _, line := range lines[1:] {
			if k, v, ok := strings.Cut(line, ":"); ok {
				if b.Headers == nil {
					b.Headers = map[string]string{}
				}
				b.Headers[strings.TrimSpace(k)] = strings.TrimSpace(v)
			}
		}
	}
	for marker, how := range map[string]string{"<RST>": "rst", "<FIN>": "fin", "<END OF BODY>": "end"} {
		if body, _, ok := strings.Cut(text, marker); ok {
			text = body
			b.Cut = &Cut{After: len(body), How: how}
		}
	}
	if b.Cut != nil {
		b.Cut.After = endOfBody // filling makes the body longer than the text
	}
	if text == "" {
		b.NoBody = b.Cut == nil
	}
	b.Body = Bytes(text)
	return b
}

// endOfBody as Cut.After is a place behind every end.
const endOfBody = 1 << 50
