package discover

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// The paths of round two, all GET.
const (
	pathProps         = "/props" // does not wake a sleeping llama.cpp; without ?model= a router loads nothing
	pathVersion       = "/version"
	pathModelInfo     = "/model_info"
	pathModelInfoOld  = "/get_model_info"
	pathStudio        = "/api/v1/models"
	pathStudioOld     = "/api/v0/models"
	pathRoot          = "/"
	pathOllamaVersion = "/api/version"
	pathTags          = "/api/tags"
	pathRunning       = "/api/ps"
)

// props is what llama.cpp says of itself.
type props struct {
	Role     string          `json:"role"`
	Build    string          `json:"build_info"`
	Slots    int             `json:"total_slots"`
	Settings json.RawMessage `json:"default_generation_settings"`
}

func claimsLlamaCPP(l modelList, a answers) bool {
	var p props
	a.decode(pathProps, &p)
	return p.Role == "router" || len(p.Settings) > 0 || l.owned("llamacpp")
}

func fillLlamaCPP(s *Server, a answers) {
	var p props
	a.decode(pathProps, &p)
	s.Version, s.Router, s.Slots = plain(p.Build, maxWord), p.Role == "router", slots(p.Slots)
	if s.Router {
		return // its models' windows stand in the list, for those that are loaded
	}
	var set struct {
		Window int `json:"n_ctx"`
	}
	decode(p.Settings, &set)
	for i := range s.Models {
		m := &s.Models[i]
		m.Loaded = true
		if m.Window == 0 {
			m.Window = window(set.Window)
		}
	}
}

func fillVLLM(s *Server, a answers) {
	var v struct {
		Version string `json:"version"`
	}
	a.decode(pathVersion, &v)
	s.Version = plain(v.Version, maxWord)
	s.allLoaded()
}

// sglangInfo is SGLang's description of its one model. Generation is a pointer to tell false from absent.
type sglangInfo struct {
	Path       string `json:"model_path"`
	Generation *bool  `json:"is_generation"`
}

func sglangOf(a answers) sglangInfo {
	var v sglangInfo
	if a.decode(pathModelInfo, &v); v.Generation == nil {
		a.decode(pathModelInfoOld, &v)
	}
	return v
}

func claimsSGLang(l modelList, a answers) bool {
	v := sglangOf(a)
	return l.owned("sglang") || v.Path != "" && v.Generation != nil
}

func fillSGLang(s *Server, a answers) {
	s.allLoaded()
	v := sglangOf(a)
	if v.Generation == nil || *v.Generation {
		return
	}
	for i := range s.Models {
		if s.Models[i].Use == Chat { // a reranker is no generation model either, and keeps its use
			s.Models[i].Use = Embedding
		}
	}
}

// allLoaded marks every model as in memory: these servers hold what they list.
func (s *Server) allLoaded() {
	for i := range s.Models {
		s.Models[i].Loaded = true
	}
}

// studioModel is a model of LM Studio in its newer and its older list.
type studioModel struct {
	Key       string `json:"key"`
	ID        string `json:"id"` // older
	Type      string `json:"type"`
	Params    string `json:"params_string"`
	State     string `json:"state"`                 // older
	Format    string `json:"compatibility_type"`    // older
	Window    int    `json:"loaded_context_length"` // older
	Instances []struct {
		ID     string `json:"id"`
		Config struct {
			Window int `json:"context_length"`
		} `json:"config"`
	} `json:"loaded_instances"`
}

// studioModels gives LM Studio's own list; nil says that the server is another. It answers 200 with an error to paths
// it does not know, so the shape counts and not the status.
func studioModels(a answers) []studioModel {
	var now, old struct {
		Models []studioModel `json:"models"`
		Data   []studioModel `json:"data"`
	}
	a.decode(pathStudio, &now)
	if slices.ContainsFunc(now.Models, func(m studioModel) bool { return m.Key != "" && m.Type != "" }) {
		return now.Models
	}
	a.decode(pathStudioOld, &old)
	if slices.ContainsFunc(old.Data, func(m studioModel) bool { return m.ID != "" && m.State != "" && m.Format != "" }) {
		return old.Data
	}
	return nil
}

func claimsLMStudio(l modelList, a answers) bool {
	return studioModels(a) != nil || l.owned("organization_owner")
}

func fillLMStudio(s *Server, a answers) {
	for _, sm := range studioModels(a) {
		names := []string{sm.Key, sm.ID}
		loaded, size := sm.State == "loaded", sm.Window
		for _, in := range sm.Instances {
			names = append(names, in.ID)
			loaded, size = true, in.Config.Window
		}
		for _, name := range names {
			m := s.model(name)
			m.Loaded = m.Loaded || loaded
			if loaded {
				m.Window = window(size) // the length it was loaded with; the largest possible says nothing about now
			}
			m.Params = max(m.Params, paramsIn(sm.Params))
			m.capable(sm.Type)
		}
	}
}

// ollamaModel is a model in Ollama's lists of what it has and of what is running.
type ollamaModel struct {
	Name         string   `json:"name"`
	Remote       string   `json:"remote_host"`
	Window       int      `json:"context_length"`
	Capabilities []string `json:"capabilities"`
	Details      struct {
		Family string `json:"family"`
		Params string `json:"parameter_size"`
	} `json:"details"`
}

func claimsOllama(_ modelList, a answers) bool {
	root := a[pathRoot]
	return root.status == http.StatusOK && strings.TrimSpace(string(root.body)) == "Ollama is running"
}

func fillOllama(s *Server, a answers) {
	var v struct {
		Version string `json:"version"`
	}
	var tags, running struct {
		Models []ollamaModel `json:"models"`
	}
	a.decode(pathOllamaVersion, &v)
	a.decode(pathTags, &tags)
	a.decode(pathRunning, &running)
	s.Version = plain(v.Version, maxWord)
	remote := map[string]bool{}
	for _, t := range tags.Models {
		m := s.model(t.Name)
		m.Params = max(m.Params, paramsIn(t.Details.Params))
		if strings.Contains(t.Details.Family, "bert") {
			m.capable("embedding")
		}
		m.capable(t.Capabilities...)
		remote[t.Name] = t.Remote != ""
	}
	for _, r := range running.Models {
		m := s.model(r.Name)
		m.Loaded, m.Window = true, window(r.Window)
	}
	s.dropRemote(remote)
}

// dropRemote takes out the models that Ollama only passes on to its maker's machines: on a local backend they would
// carry prompts out of the house past every boundary.
func (s *Server) dropRemote(remote map[string]bool) {
	s.Models = slices.DeleteFunc(s.Models, func(m Model) bool {
		_, tag, _ := strings.Cut(m.ID, ":")
		away := remote[m.ID] || tag == "cloud" || strings.HasSuffix(tag, "-cloud")
		if away {
			s.leave(m.ID + ": runs on machines of ollama.com, not here")
		}
		return away
	})
}
