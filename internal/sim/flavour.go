package sim

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// state answers the paths that tell what a server is and how it fares.
func (s *Server) state(r *http.Request, script *Script, v voice) answer {
	ans, ok := answer{}, false
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		if ans, ok = s.own(r, script, v); !ok {
			ans, ok = shared(r.URL.Path, script)
		}
	}
	if !ok {
		ans = s.unknown(r, v)
	}
	if v.flavour == LlamaCPP {
		ans.header.Set("Server", "llama.cpp")
	}
	return ans
}

// unknown answers a path that the server does not have.
func (s *Server) unknown(r *http.Request, v voice) answer {
	f := fault{status: http.StatusNotFound, message: "simulated: no such path: " + r.Method + " " + r.URL.Path}
	switch v.flavour {
	case LlamaCPP:
		f.message = "File Not Found"
	case LMStudio: // a real trap for whoever takes any 200 for a sign of health
		return jsonAnswer(http.StatusOK, encode(object{{"error", "Unexpected endpoint or method. (" + r.Method + " " + r.URL.Path + ")"}}))
	case Ollama:
		return textAnswer(http.StatusNotFound, "404 page not found")
	}
	return failure(v, f)
}

func textAnswer(status int, text string) answer {
	ans := jsonAnswer(status, []byte(text))
	ans.header.Set("Content-Type", "text/plain; charset=utf-8")
	return ans
}

func ok(o object) (answer, bool) { return jsonAnswer(http.StatusOK, encode(o)), true }

// shared answers the paths that all flavours have.
func shared(path string, script *Script) (answer, bool) {
	flavour := script.flavour()
	if path == "/health" {
		return ok(object{{"status", "ok"}})
	}
	if path == "/v1/models" || path == "/models" && flavour == LlamaCPP {
		return ok(modelList(script))
	}
	id, one := strings.CutPrefix(path, "/v1/models/")
	if one && flavour != LlamaCPP && slices.Contains(script.models(), id) {
		return ok(modelObject(script, id))
	}
	return answer{}, false
}

func modelList(script *Script) object {
	data := []any{}
	for _, m := range script.models() {
		data = append(data, modelObject(script, m))
	}
	o := object{{"object", "list"}, {"data", data}}
	if script.flavour() == LlamaCPP { // it has Ollama's list beside OpenAI's
		o = append(object{{"models", tags(script)}}, o...)
	}
	return o
}

// created is the birthday of all simulated models.
const created = 1790000000

func modelObject(script *Script, id string) object {
	owner := map[Flavour]string{OpenAI: "simulated", LlamaCPP: "llamacpp", Ollama: "library", VLLM: "vllm", SGLang: "sglang", LMStudio: "organization_owner"}
	flavour := script.flavour()
	o := object{{"id", id}, {"object", "model"}, {"created", created}, {"owned_by", owner[flavour]}}
	switch flavour {
	case LlamaCPP:
		o = append(o, member{"aliases", []string{}}, member{"tags", []string{}}, member{"meta", object{
			{"vocab_type", 2}, {"n_vocab", 32000}, {"n_ctx", window(script)}, {"n_ctx_train", 131072}, {"n_embd", 1024}, {"n_params", 1000000}, {"size", 4000000}, {"ftype", "Q4_K - Medium"}}})
	case VLLM:
		o = append(o, member{"root", id}, member{"parent", nil}, member{"max_model_len", window(script)})
	case SGLang:
		o = append(o, member{"root", id}, member{"max_model_len", window(script)})
	case LMStudio:
		return o.without([]string{"created"})
	}
	return o
}

// window is the context that a server says it has.
func window(script *Script) int {
	if script.Context > 0 {
		return script.Context
	}
	return 32768
}

// own answers the paths that only one flavour has.
func (s *Server) own(r *http.Request, script *Script, v voice) (answer, bool) {
	path := r.URL.Path
	switch v.flavour {
	case Anthropic:
		return anthropicState(r, script, v)
	case OpenAI:
		if r.Header.Get("Anthropic-Version") != "" && strings.HasPrefix(path, "/v1/models") {
			return anthropicState(r, script, v)
		}
	case LlamaCPP:
		return s.llamacpp(path, script)
	case Ollama:
		return ollama(path, script)
	case VLLM:
		switch path {
		case "/health", "/ping":
			return jsonAnswer(http.StatusOK, nil), true
		case "/version":
			return ok(object{{"version", "0.20.0"}})
		}
	case SGLang:
		switch path {
		case "/health", "/health_generate":
			return jsonAnswer(http.StatusOK, nil), true
		case "/model_info", "/get_model_info":
			return ok(object{{"model_path", script.models()[0]}, {"tokenizer_path", script.models()[0]}, {"is_generation", true}})
		case "/server_info", "/get_server_info":
			return ok(object{{"model_path", script.models()[0]}, {"context_length", window(script)}, {"version", "0.6.0"}, {"status", "ready"}})
		}
	case LMStudio:
		return lmstudio(path, script)
	}
	return answer{}, false
}

func (s *Server) llamacpp(path string, script *Script) (answer, bool) {
	total := max(script.Slots, 1)
	switch path {
	case "/v1/health":
		return ok(object{{"status", "ok"}})
	case "/props":
		return ok(object{
			{"default_generation_settings", object{{"id", 0}, {"n_ctx", window(script)}, {"params", object{{"temperature", 0.8}, {"top_k", 40}}}}},
			{"total_slots", total}, {"model_alias", script.models()[0]}, {"model_path", "/models/" + script.models()[0] + ".gguf"},
			{"modalities", object{{"vision", false}, {"audio", false}}}, {"chat_template", "{{ messages }}"}, {"build_info", "b1-simulated"}, {"is_sleeping", false},
		})
	case "/slots":
		busy := s.working()
		slots := []any{}
		for i := range total {
			slots = append(slots, object{{"id", i}, {"n_ctx", window(script)}, {"speculative", false}, {"is_processing", i < busy}})
		}
		return jsonAnswer(http.StatusOK, encode(slots)), true
	}
	return answer{}, false
}

// working returns how many calls are active, those of all models.
func (s *Server) working() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.byModel {
		n += c.active
	}
	return n
}

func ollama(path string, script *Script) (answer, bool) {
	switch path {
	case "/":
		return textAnswer(http.StatusOK, "Ollama is running"), true
	case "/api/version":
		return ok(object{{"version", "0.17.4"}})
	case "/api/tags", "/api/ps":
		return ok(object{{"models", tags(script)}})
	case "/health": // it has none
		return textAnswer(http.StatusNotFound, "404 page not found"), true
	}
	return answer{}, false
}

func tags(script *Script) []any {
	list := []any{}
	for _, m := range script.models() {
		list = append(list, object{
			{"name", m}, {"model", m}, {"modified_at", time.Unix(created, 0).UTC().Format(time.RFC3339)}, {"size", 4000000},
			{"digest", strings.Repeat("0", 64)}, {"details", object{{"format", "gguf"}, {"family", "simulated"}, {"parameter_size", "1M"}, {"quantization_level", "Q4_K_M"}}},
		})
	}
	return list
}

func lmstudio(path string, script *Script) (answer, bool) {
	list := []any{}
	for _, m := range script.models() {
		switch path {
		case "/api/v1/models":
			list = append(list, object{{"type", "llm"}, {"key", m}, {"display_name", m}, {"max_context_length", window(script)},
				{"loaded_instances", []any{object{{"id", m}, {"config", object{{"context_length", window(script)}}}}}}})
		case "/api/v0/models":
			list = append(list, object{{"id", m}, {"object", "model"}, {"type", "llm"}, {"state", "loaded"}, {"max_context_length", window(script)}})
		}
	}
	switch path {
	case "/api/v1/models":
		return ok(object{{"models", list}})
	case "/api/v0/models":
		return ok(object{{"object", "list"}, {"data", list}})
	case "/health":
		return jsonAnswer(http.StatusOK, encode(object{{"error", "Unexpected endpoint or method. (GET /health)"}})), true
	}
	return answer{}, false
}
