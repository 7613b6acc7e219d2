package discover

import "testing"

func TestUseIsReadFromAName(t *testing.T) {
	tests := map[string]Use{
		"qwen3-4b": Chat, "nomic-embed-text:latest": Embedding, "text-embedding-3-small": Embedding, "BAAI/bge-m3": Embedding,
		"intfloat/multilingual-e5-large": Embedding, "thenlper/gte-small": Embedding, "all-MiniLM-L6-v2": Embedding,
		"bge-reranker-v2-m3": Rerank, "Qwen3-Reranker-0.6B": Rerank, "Qwen3-Embedding-0.6B": Embedding,
		"size5-chat": Chat, "integte-7b": Chat, "gemma3:4b": Chat,
	}
	for id, want := range tests {
		if got := useOf(id); got != want {
			t.Errorf("useOf(%q) = %v, want %v", id, got, want)
		}
	}
}

func TestParamsAreReadFromANameOrASize(t *testing.T) {
	tests := map[string]int64{
		"4.3B": 4.3e9, "137M": 137e6, "qwen3-4b": 4e9, "gemma3:27b-it-q4_K_M": 27e9, "mixtral-8x7b-instruct": 56e9, "Qwen3-30B-A3B": 30e9,
		"Qwen/Qwen2.5-0.5B-Instruct": 5e8, "gpt-oss-20b": 20e9, "phi-4": 0, "tiny:latest": 0, "bge-m3": 0, "abc4b": 0, "": 0, "llama3.3:70b": 70e9, "4bit": 0,
	}
	for s, want := range tests {
		if got := paramsIn(s); got != want {
			t.Errorf("paramsIn(%q) = %d, want %d", s, got, want)
		}
	}
}
