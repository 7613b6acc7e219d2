package sim

import (
	"net/http"
	"slices"
	"strings"
)

// API is one of the ways to ask a server for work. Its text is its name in a script
// (apis) and in an Attempt.
type API string

// The APIs.
const (
	Chat        API = "chat"         // POST /v1/chat/completions
	Completions API = "completions"  // POST /v1/completions
	Embeddings  API = "embeddings"   // POST /v1/embeddings
	Rerank      API = "rerank"       // POST /v1/rerank
	Messages    API = "messages"     // POST /v1/messages, Anthropic's
	CountTokens API = "count_tokens" // POST /v1/messages/count_tokens
	Responses   API = "responses"    // POST /v1/responses
)

// paths holds the path of each API, less the /v1 that may stand before it.
var paths = map[string]API{
	"/chat/completions":      Chat,
	"/completions":           Completions,
	"/embeddings":            Embeddings,
	"/rerank":                Rerank,
	"/messages":              Messages,
	"/messages/count_tokens": CountTokens,
	"/responses":             Responses,
}

// served holds what each kind of server offers, unless its script says so itself.
var served = map[Flavour][]API{
	OpenAI:    {Chat, Completions, Embeddings, Rerank, Responses},
	Anthropic: {Messages, CountTokens},
	LlamaCPP:  {Chat, Completions, Embeddings, Rerank, Responses, Messages, CountTokens},
	Ollama:    {Chat, Completions, Embeddings, Rerank, Responses, Messages},
	VLLM:      {Chat, Completions, Embeddings, Rerank, Responses, Messages},
	SGLang:    {Chat, Completions, Embeddings, Rerank, Messages},
	LMStudio:  {Chat, Completions, Embeddings, Rerank, Responses, Messages},
}

// apiOf returns the API that a request asks, or "" when it reads the server's state.
func apiOf(method, path string) API {
	if method != http.MethodPost {
		return ""
	}
	return paths[strings.TrimPrefix(path, "/v1")]
}

// work reports whether the API makes a model work: such a request takes a slot.
func (a API) work() bool { return a != "" && a != CountTokens }

// converses reports whether the API carries a conversation with tools.
func (a API) converses() bool { return a == Chat || a == Messages || a == Responses }

// serves reports whether the server has the API.
func (s *Script) serves(api API) bool {
	if s.APIs != nil {
		return slices.Contains(s.APIs, api)
	}
	return slices.Contains(served[s.flavour()], api)
}

// voice is how a server words what it tells in one answer: by its kind, and by the API.
type voice struct {
	flavour Flavour
	api     API
	nonce   string
}

func (s *Server) voice(a *Attempt) voice { return voice{s.flavour(), a.API, a.Nonce} }

// anthropic reports whether errors have Anthropic's shape. Those of llama.cpp never have.
func (v voice) anthropic() bool {
	return v.flavour == Anthropic || v.flavour != LlamaCPP && (v.api == Messages || v.api == CountTokens)
}

// requestID is what Anthropic calls one request by.
func (v voice) requestID() string { return "req_" + v.nonce }

// wrap puts an error object into its body.
func (v voice) wrap(inner any) []byte {
	if v.anthropic() {
		return encode(object{{"type", "error"}, {"error", inner}, {"request_id", v.requestID()}})
	}
	return encode(object{{"error", inner}})
}
