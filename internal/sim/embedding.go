package sim

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
)

// defaultDimensions is the length of an embedding that nobody asked another length of.
const defaultDimensions = 16

// embeddings answers /embeddings with vectors that depend on model and text alone.
func (c *call) embeddings() answer {
	size := defaultDimensions
	for _, n := range []int{c.b.Dimensions, c.q.Dimensions} {
		if n > 0 {
			size = n
		}
	}
	data := []any{}
	for i, text := range stringsOf(c.q.Input) {
		vector := Vector(c.model, text, size)
		var shown any = vector
		if c.q.encoding() == "base64" {
			shown = base64.StdEncoding.EncodeToString(littleEndian(vector))
		}
		data = append(data, object{{"object", "embedding"}, {"index", i}, {"embedding", shown}}.without(c.b.Omit))
	}
	o := object{{"object", "list"}, {"model", c.model}, {"data", data}}
	if c.usage() != nil {
		o = append(o, member{"usage", object{{"prompt_tokens", c.prompt}, {"total_tokens", c.prompt}}})
	}
	return c.pace(jsonAnswer(http.StatusOK, encode(o.without(c.b.Omit))))
}

// Vector is the embedding of a text that every Server gives under a model's name: of
// length 1, the same in each run.
func Vector(model, text string, size int) []float32 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(model + "\x00" + text))
	r := rand.New(rand.NewPCG(h.Sum64(), uint64(size)))
	v := make([]float32, size)
	sum := 0.0
	for i := range v {
		v[i] = float32(r.NormFloat64())
		sum += float64(v[i]) * float64(v[i])
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(sum))
	}
	return v
}

func littleEndian(v []float32) []byte {
	out := make([]byte, 0, 4*len(v))
	for _, f := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(f))
	}
	return out
}

// rerank answers /rerank: a document's score is its share of the query's words.
func (c *call) rerank() answer {
	type scored struct {
		index int
		score float64
		text  string
	}
	var list []scored
	for i, raw := range c.q.Documents {
		text := documentText(raw)
		list = append(list, scored{i, overlap(c.q.Query, text), text})
	}
	slices.SortStableFunc(list, func(a, b scored) int { return cmp.Compare(b.score, a.score) })
	if n := c.q.TopN; n != nil && *n >= 0 && *n < len(list) {
		list = list[:*n]
	}
	results := []any{}
	for _, d := range list {
		o := object{{"index", d.index}, {"relevance_score", d.score}}
		if c.q.ReturnDocuments {
			o = append(o, member{"document", object{{"text", d.text}}})
		}
		results = append(results, o)
	}
	o := object{{"id", "rerank-" + c.a.Nonce}, {"object", "list"}, {"model", c.model}, {"results", results},
		{"usage", object{{"prompt_tokens", c.prompt}, {"total_tokens", c.prompt}}}}
	return c.pace(jsonAnswer(http.StatusOK, encode(o.without(c.b.Omit))))
}

// documentText reads a document, a string or an object with a text.
func documentText(raw json.RawMessage) string {
	var d struct{ Text string }
	if json.Unmarshal(raw, &d.Text) != nil {
		_ = json.Unmarshal(raw, &d) // anything else has no text
	}
	return d.Text
}

func overlap(query, text string) float64 {
	words, hits := strings.Fields(strings.ToLower(query)), 0
	text = strings.ToLower(text)
	for _, w := range words {
		if strings.Contains(text, w) {
			hits++
		}
	}
	return float64(hits) / float64(max(len(words), 1))
}
