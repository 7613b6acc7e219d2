package tokens

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/llm"
)

func text(s string) llm.Part { return llm.Part{Kind: llm.PartText, Text: llm.Escaped(s)} }

func turn(role llm.Role, parts ...llm.Part) llm.Turn { return llm.Turn{Role: role, Parts: parts} }

func count(t *testing.T, c *Counter, conv llm.Conversation) int {
	t.Helper()
	n, err := c.Count(&conv)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// What a part adds is its own tokens and the marks around it.
func TestEachPartCounts(t *testing.T) {
	c := New()
	words := func(s string) int { return c.CountText([]byte(s)) }
	empty := count(t, c, llm.Conversation{Turns: []llm.Turn{turn(llm.User)}})
	if want := perRequest + perTurn; empty != want {
		t.Errorf("an empty turn is %d tokens, want %d", empty, want)
	}
	const object, schema = `{"city":"Köln","days":3}`, `{"type":"object","properties":{"city":{"type":"string"}}}`
	for name, row := range map[string]struct {
		part llm.Part
		want int
	}{
		"a text":                            {text("Wie wird das Wetter?"), words("Wie wird das Wetter?")},
		"a text with escapes":               {llm.Part{Kind: llm.PartText, Text: llm.Text(`a\n\tb \u00e9\ud83d\ude00 "`)}, words("a\n\tb é😀 \"")},
		"a refusal":                         {llm.Part{Kind: llm.PartRefusal, Text: llm.Text("No.")}, words("No.")},
		"thinking, without its signature":   {llm.Part{Kind: llm.PartThinking, Text: llm.Text("Hm."), Signature: llm.Text(strings.Repeat("x", 999))}, words("Hm.")},
		"sealed thinking is not counted":    {llm.Part{Kind: llm.PartThinking, Redacted: llm.Text(strings.Repeat("x", 999))}, 0},
		"an image, whatever its size":       {llm.Part{Kind: llm.PartImage, Data: llm.Text(strings.Repeat("A", 1<<20))}, perImage},
		"a small image":                     {llm.Part{Kind: llm.PartImage, Detail: llm.Text("low")}, perLowImage},
		"a document":                        {llm.Part{Kind: llm.PartDocument, Name: llm.Text("a.pdf"), Data: llm.Text("AAAA")}, words("a.pdf") + perDocument},
		"a plain document":                  {llm.Part{Kind: llm.PartDocument, Text: llm.Text("all of it")}, words("all of it")},
		"audio":                             {llm.Part{Kind: llm.PartAudio, Data: llm.Text("AAAA")}, perAudio},
		"a call":                            {llm.Part{Kind: llm.PartCall, Name: llm.Text("weather"), Input: llm.Input{Object: llm.Raw(object)}}, perCall + words("weather") + words(object)},
		"a call whose arguments are spelt":  {llm.Part{Kind: llm.PartCall, Name: llm.Text("weather"), Input: llm.Input{Spelt: llm.Escaped(object)}}, perCall + words("weather") + words(object)},
		"a result":                          {llm.Part{Kind: llm.PartResult, Parts: []llm.Part{text("12 °C"), {Kind: llm.PartImage}}}, perResult + words("12 °C") + perImage},
		"what only its own dialect knows":   {llm.Part{Kind: llm.PartOther, Raw: llm.Raw(`{"type":"x","n":1}`)}, words(`{"type":"x","n":1}`)},
		"a part of a kind without a number": {llm.Part{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := count(t, c, llm.Conversation{Turns: []llm.Turn{turn(llm.User, row.part)}}) - empty
			if got != row.want {
				t.Errorf("%d tokens, want %d", got, row.want)
			}
		})
	}

	tool := llm.Tool{Kind: llm.ToolFunction, Name: llm.Text("weather"), Description: llm.Text(`Tells the \"weather\".`), Schema: llm.Raw(schema)}
	got := count(t, c, llm.Conversation{Tools: []llm.Tool{tool}, Turns: []llm.Turn{turn(llm.User)}}) - empty
	if want := perTool + words("weather") + words(`Tells the "weather".`) + words(schema); got != want {
		t.Errorf("a tool is %d tokens, want %d", got, want)
	}
	got = count(t, c, llm.Conversation{Output: llm.Output{Schema: llm.Raw(schema)}})
	if want := perRequest + words(schema); got != want {
		t.Errorf("a schema of the answer is %d tokens, want %d", got, want)
	}
}

// A vocabulary costs nothing before it is needed: Weir's idle memory is that of a program without one.
func TestNothingIsLoadedBeforeTheFirstCount(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c := New().For("qwen3")
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 16<<10 {
		t.Errorf("New and For took %d bytes", n)
	}
	runtime.KeepAlive(c)
}

// A long run of one kind of characters is quadratic for a plain tokenizer. One MiB of it is counted within a second, and
// one that does not repeat itself in a few.
func TestLongRunsAreFast(t *testing.T) {
	c := New()
	c.CountText([]byte("load"))
	size := 1 << 20
	if race {
		size >>= 4 // it takes many times longer
	}
	check := func(name string, text []byte, limit time.Duration) {
		t.Helper()
		start := time.Now()
		n := c.CountText(text)
		took := time.Since(start)
		if race {
			took /= 10
		}
		t.Logf("%d bytes of %s: %d tokens in %v", size, name, n, took)
		if took > limit {
			t.Errorf("%d bytes of %s took %v", size, name, took)
		}
		if n < size/1000 || n > size {
			t.Errorf("%d bytes of %s are %d tokens", size, name, n)
		}
	}
	for _, piece := range []string{"a", "A", " ", "😀", "字", "1", "-", "\n", "\t", "ab", " \n", "ü", "\xff", "é́"} {
		check(strconv.Quote(piece), bytes.Repeat([]byte(piece), size/len(piece)), time.Second)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, alphabet := range []string{"ab", " \n", " \t\r\n", "01", "-/\n", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"} {
		text := make([]byte, size)
		for i := range text {
			text[i] = alphabet[random.IntN(len(alphabet))]
		}
		check("any of "+strconv.Quote(alphabet), text, 6*time.Second)
	}
}

// What is beyond the bound is taken to be like what is within, so that the work is bounded and the number is not.
func TestTextBeyondTheBoundIsExtrapolated(t *testing.T) {
	piece := "The harbour master kept two books, 17 maps and a lamp.\n"
	part := strings.Repeat(piece, exact/len(piece)/4)
	conv := llm.Conversation{}
	for range 20 { // five times the bound
		conv.Turns = append(conv.Turns, turn(llm.User, text(part)))
	}
	c := New()
	start := time.Now()
	got := count(t, c, conv)
	took := time.Since(start)
	if want := 20*(c.CountText([]byte(part))+perTurn) + perRequest; off(got, want) > 0.01 {
		t.Errorf("%d tokens, want about %d", got, want)
	}
	t.Logf("%d MiB: %d tokens in %v", 20*len(part)>>20, got, took)
	if limit := 3 * time.Second; !race && took > limit {
		t.Errorf("took %v", took)
	}
}

// Where a text is cut does not change its count by more than a token for each cut.
func TestChunksAddUpToTheWhole(t *testing.T) {
	c := New()
	_, truth := table(t)
	for name := range truth {
		whole := bytes.Repeat(read(t, name), 20)
		n, err := c.words.o200k().Count(string(whole))
		if err != nil {
			t.Fatal(err)
		}
		cuts := 0
		for s := whole; len(s) > 0; cuts++ {
			s = s[chunk(s):]
		}
		if got := c.CountText(whole); got < n || got > n+cuts-1 {
			t.Errorf("%s: %d tokens in %d chunks, %d in one", name, got, cuts, n)
		}
	}
}

func TestCountersAreSafeForConcurrentUse(t *testing.T) {
	c := New()
	var wg sync.WaitGroup
	for _, model := range []string{"", "gpt-4", "qwen3", "claude", "gemma", "llama3"} {
		wg.Go(func() {
			want := c.For(model).CountText([]byte("Привет, 12345 мир 世界!\n"))
			for range 20 {
				if got := c.For(model).CountText([]byte("Привет, 12345 мир 世界!\n")); got != want || got < 5 {
					t.Errorf("%q: %d tokens, then %d", model, want, got)
				}
			}
		})
	}
	wg.Wait()
}

// No bytes fail or are worth more tokens than there are bytes, but for what is weighed.
func FuzzCountText(f *testing.F) {
	for _, s := range []string{"", "a", "\xff\xfe", "\xed\xa0\x80", "\ufeff", "1234", "世界 мир", "a\r\n \n//", "\u2028", "'s 'LL 'ſ"} {
		f.Add([]byte(s))
	}
	c := New()
	all := []*Counter{c, c.For("gpt-4"), c.For("qwen3"), c.For("llama-2")}
	f.Fuzz(func(t *testing.T, s []byte) {
		for _, c := range all {
			if n := c.CountText(s); n < 0 || n > 3*len(s) || n == 0 && len(s) > 3 {
				t.Errorf("%q is %d tokens", s, n)
			}
			if _, err := c.Count(&llm.Conversation{Turns: []llm.Turn{{Parts: []llm.Part{text(string(s))}}}}); err != nil {
				t.Errorf("%q: %v", s, err)
			}
		}
		for rest := append(bytes.Repeat([]byte("x"), chunkSize-len(s)%chunkSize/2), s...); len(rest) > 0; {
			n := chunk(rest)
			if n < 1 || n > len(rest) || n > chunkSize {
				t.Fatalf("%q: a chunk of %d bytes of %d", s, n, len(rest))
			}
			rest = rest[n:]
		}
	})
}

func BenchmarkCount(b *testing.B) {
	var parts []llm.Part
	for _, name := range []string{"agent.txt", "code.go.txt", "english.txt", "json.txt", "logs.txt"} {
		t := &testing.T{}
		parts = append(parts, text(string(read(t, name))))
	}
	conv := llm.Conversation{}
	size := 0
	for size < 131<<10 {
		for _, p := range parts {
			size += len(p.Text)
		}
		conv.Turns = append(conv.Turns, turn(llm.User, parts...))
	}
	for _, model := range []string{"gpt-4o", "qwen3"} {
		c := New().For(model)
		c.CountText([]byte("load"))
		b.Run(model, func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Count(&conv); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
