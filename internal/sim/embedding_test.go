package sim

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEmbeddings(t *testing.T) {
	s := New(Options{}).Start(t)
	h := rawAsk(t, s, "/v1/embeddings", `{"model":"m","input":["x","y"],"encoding_format":"base64","dimensions":3}`)
	text, _ := dig(t, h.body, "data", 1, "embedding").(string)
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float32, len(raw)/4)
	for i := range got {
		got[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	if d := cmp.Diff(Vector("m", "y", 3), got); d != "" {
		t.Errorf("base64 (-want +got):\n%s", d)
	}
	h = rawAsk(t, s, "/v1/embeddings", `{"model":"m","input":"x"}`)
	list, _ := dig(t, h.body, "data", 0, "embedding").([]any)
	if len(list) != defaultDimensions || list[3] != float64ed(Vector("m", "x", defaultDimensions)[3]) {
		t.Errorf("floats %v", list)
	}
	if cmp.Equal(Vector("m", "x", 3), Vector("m", "y", 3)) || cmp.Equal(Vector("m", "x", 3), Vector("n", "x", 3)) {
		t.Error("vectors do not depend on text and model")
	}
}

// float64ed is how a float32 reads after a trip through JSON.
func float64ed(f float32) float64 {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', -1, 32), 64)
	return v
}

func TestRerank(t *testing.T) {
	s := New(Options{}).Start(t)
	h := rawAsk(t, s, "/rerank", `{"model":"m","query":"red fox","documents":["a dog",{"text":"the red fox"},"fox"],"top_n":2,"return_documents":true}`)
	got := []any{dig(t, h.body, "results", 0, "index"), dig(t, h.body, "results", 0, "relevance_score"), dig(t, h.body, "results", 0, "document", "text"), dig(t, h.body, "results", 1, "index"), dig(t, h.body, "results", 2)}
	if want := []any{1.0, 1.0, "the red fox", 2.0, nil}; !cmp.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
