package discover

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// pathModels is the one path that every kind answers.
const pathModels = "/v1/models"

// kind is one row of the table of servers: how it is known, what it is asked, and how its answers are read.
type kind struct {
	name   Kind
	title  string
	paths  []string // safe to GET: none wakes or loads a model (facts: /slots does, so it is not here)
	claims func(list modelList, a answers) bool
	fill   func(s *Server, a answers)
	cap    int // proposed when the server does not say how many calls it runs at once
}

// kinds in the order they are tried: those that are known by a member of their own first. Ollama comes last because
// others imitate its API; it alone greets on /.
var kinds = []kind{
	{LlamaCPP, "llama.cpp", []string{pathProps}, claimsLlamaCPP, fillLlamaCPP, 1},
	{VLLM, "vLLM", []string{pathVersion}, claimsOwner("vllm"), fillVLLM, 8},
	{SGLang, "SGLang", []string{pathModelInfo, pathModelInfoOld}, claimsSGLang, fillSGLang, 8},
	{LMStudio, "LM Studio", []string{pathStudio, pathStudioOld}, claimsLMStudio, fillLMStudio, 1},
	{Ollama, "Ollama", []string{pathRoot, pathOllamaVersion, pathTags, pathRunning}, claimsOllama, fillOllama, 1},
	{OpenAI, "OpenAI-compatible server", nil, func(modelList, answers) bool { return true }, func(*Server, answers) {}, 2},
}

func kindOf(k Kind) kind {
	for _, row := range kinds {
		if row.name == k {
			return row
		}
	}
	return kinds[len(kinds)-1]
}

func detailPaths() []string {
	var all []string
	for _, k := range kinds {
		all = append(all, k.paths...)
	}
	return all
}

// modelList is an OpenAI list of models with the members servers add to it.
type modelList struct {
	Object string          `json:"object"`
	Data   json.RawMessage `json:"data"`

	entries []listEntry
}

type listEntry struct {
	ID          string `json:"id"`
	OwnedBy     string `json:"owned_by"`
	MaxModelLen int    `json:"max_model_len"` // vLLM, SGLang
	Meta        struct {
		Window int   `json:"n_ctx"`
		Params int64 `json:"n_params"`
	} `json:"meta"` // llama.cpp
	Status struct {
		Value  string `json:"value"`
		Failed bool   `json:"failed"`
	} `json:"status"` // llama.cpp in router mode
}

// isList tells whether an answer is a list of models, which may be empty.
func isList(a answer) bool {
	_, ok := listOf(a)
	return ok
}

func listOf(a answer) (modelList, bool) {
	var l modelList
	if a.err != nil || a.status != http.StatusOK || !decode(a.body, &l) || len(l.Data) == 0 {
		return l, false
	}
	if string(l.Data) != "null" && (l.Data[0] != '[' || !decode(l.Data, &l.entries)) {
		return l, false
	}
	named := slices.ContainsFunc(l.entries, func(e listEntry) bool { return e.ID != "" })
	return l, named || l.Object == "list"
}

// owned tells whether the first model is said to belong to owner.
func (l modelList) owned(owner string) bool {
	return len(l.entries) > 0 && l.entries[0].OwnedBy == owner
}

func claimsOwner(owner string) func(modelList, answers) bool {
	return func(l modelList, _ answers) bool { return l.owned(owner) }
}

// read finds the kind in the answers and fills s from them.
func (s *Server) read(a answers) {
	list, _ := listOf(a[pathModels])
	for _, e := range list.entries {
		if !safeID(e.ID) {
			s.leave("a model whose name cannot stand in a config")
			continue
		}
		if s.model(e.ID).ID != "" {
			continue // listed twice
		}
		s.Models = append(s.Models, Model{
			ID:     e.ID,
			Use:    useOf(e.ID),
			Window: window(max(e.MaxModelLen, e.Meta.Window)),
			Params: max(e.Meta.Params, paramsIn(e.ID)),
			Loaded: e.Status.Value == "loaded" || e.Status.Value == "sleeping",
			Failed: e.Status.Failed || e.Status.Value == "downloading",
		})
	}
	for _, k := range kinds {
		if k.claims(list, a) {
			s.Kind = k.name
			k.fill(s, a)
			break
		}
	}
	s.settle()
}

// model gives the model with that name for filling in. An unknown name gives one that is thrown away.
func (s *Server) model(id string) *Model {
	for i := range s.Models {
		if s.Models[i].ID == id {
			return &s.Models[i]
		}
	}
	return &Model{}
}

func (s *Server) leave(what string) {
	if !slices.Contains(s.Left, what) {
		s.Left = append(s.Left, what)
	}
}

// settle puts the models to use first in front and bounds their number.
func (s *Server) settle() {
	rank := func(m Model) int {
		switch {
		case m.Failed:
			return 2
		case m.Loaded:
			return 0
		}
		return 1
	}
	slices.SortStableFunc(s.Models, func(a, b Model) int { return cmp.Compare(rank(a), rank(b)) })
	if over := len(s.Models) - maxModels; over > 0 {
		s.Models = s.Models[:maxModels]
		s.leave(fmt.Sprintf("%d more models", over))
	}
}

// words describe the server in one line.
func (s *Server) words() string {
	name := kindOf(s.Kind).title
	if s.Router {
		name += " router"
	}
	if s.Version != "" {
		name += " " + s.Version
	}
	switch {
	case s.State == Loading:
		return name + ", loading its model"
	case s.State == Locked:
		return name + ", wants a key"
	case len(s.Models) == 0:
		return name + ", no models"
	case len(s.Models) == 1:
		return name + ", 1 model"
	}
	return fmt.Sprintf("%s, %d models", name, len(s.Models))
}

// capable sets the use from what a server says a model can do, in the words of LM Studio's types and of Ollama's
// capabilities. What the server says outranks the name; words of neither kind change nothing.
func (m *Model) capable(words ...string) {
	for _, w := range words {
		switch {
		case strings.HasPrefix(w, "embed"):
			m.Use = Embedding
		case strings.HasPrefix(w, "rerank"):
			m.Use = Rerank
		case w == "completion" || w == "llm" || w == "vlm":
			m.Use = Chat
			return
		}
	}
}
