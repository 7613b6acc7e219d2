package llm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// happening is one event as the standard sees it.
type happening struct {
	Name, Data string
}

// standard reads a whole stream by the letter of the HTML standard; with rest, the end of the body is an empty line.
func standard(stream string, rest bool) (list []happening) {
	stream = strings.TrimPrefix(stream, "\ufeff")
	stream = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(stream)
	if rest {
		stream += "\n\n"
	}
	lines := strings.Split(stream, "\n")
	var name string
	var data []string
	for _, line := range lines[:len(lines)-1] {
		field, v, _ := strings.Cut(line, ":")
		v = strings.TrimPrefix(v, " ")
		switch {
		case line == "":
			if data != nil {
				list = append(list, happening{name, strings.Join(data, "\n")})
			}
			name, data = "", nil
		case field == "data":
			data = append(data, v)
		case field == "event":
			name = v
		}
	}
	return list
}

// feed gives p to f in reads of at most size bytes, and calls each with every frame.
func feed(t *testing.T, f *Frames, p []byte, each func(Frame)) {
	t.Helper()
	for len(p) > 0 {
		room := f.Space()
		if len(room) == 0 {
			t.Fatal("no room")
		}
		n := copy(room, p)
		f.Took(n)
		p = p[n:]
		for {
			fr, ok := f.Next()
			if !ok {
				break
			}
			each(fr)
		}
	}
}

// events cuts the pieces of a stream into events. It returns those with data, and all the bytes that frames covered.
func events(t *testing.T, rest bool, pieces ...[]byte) (list []happening, raw string) {
	t.Helper()
	var f Frames
	take := func(fr Frame) {
		raw += string(f.Raw(fr.At))
		if fr.Empty != (fr.Data == nil) && fr.Empty {
			t.Errorf("an empty frame has data %q", fr.Data)
		}
		if !fr.Empty {
			list = append(list, happening{string(fr.Name), string(fr.Data)})
		}
		if whole := string(f.Raw(fr.At)); fr.Plain && !fr.Empty {
			if strings.Contains(whole, "\r") || !strings.HasSuffix(whole, "\n\n") || bytes.Contains(fr.Data, []byte("\n")) {
				t.Errorf("%q is called plain", whole)
			}
		}
	}
	for _, p := range pieces {
		feed(t, &f, p, take)
	}
	if rest {
		if fr, ok := f.Rest(); ok {
			if fr.Plain {
				t.Errorf("the unfinished %q is called plain", fr.Data)
			}
			take(fr)
		}
	}
	return list, raw
}

// transcripts are streams in every style, short enough to be split everywhere.
var transcripts = map[string]string{
	"line feeds":               "data: a\n\ndata: b\n\ndata: [DONE]\n\n",
	"carriage returns":         "data: a\r\rdata: b\r\rdata: [DONE]\r\r",
	"both":                     "data: a\r\n\r\ndata: b\r\n\r\n",
	"C011 mixed":               "data: a\r\n\r\ndata: b\r\rdata: c\n\r\ndata: [DONE]\n\n",
	"mixed more":               "data: a\n\rdata: b\r\n\ndata: c\r\n\rdata: d\r\r\n\ndata: e\n\n\r\n\rdata: f\r\n\n",
	"a mark at the start":      "\ufeffdata: a\n\ndata: \ufeffb\n\n",
	"a mark and a return":      "\ufeff\r\ndata: a\r\n\r\n",
	"half a mark":              "\xef\xbbdata: a\n\ndata: b\n\n",
	"comments":                 ":\n\n: ping\n\ndata: a\n: inside\n\n:x\r\n\r\ndata: b\n\n",
	"C025 several data lines":  "data: {\"a\":1,\ndata: \"b\":2}\n\ndata: x\rdata: y\r\ndata:\ndata: z\n\n",
	"names and other fields":   "event: e\nid: 1\nretry: 5\ndata: a\n\ndata: b\nevent: f\n\nevent: lost\n\ndata: c\n\n",
	"odd fields":               "data\n\ndata:\n\ndata:  two\n\ndata:no space\n\nDATA: upper\n\n data: space\n\ndatax: y\n\nevent\ndata: e\n\n: data: c\n\n",
	"C017 split characters":    "data: 北京 🌍 é\n\ndata: 京\r\n\r\n",
	"empty lines":              "\n\n\ndata: a\n\n\n\n\r\r\r\n\r\ndata: b\n\n",
	"no end":                   "data: a\n\ndata: b\n",
	"no line end":              "data: a\n\ndata: b",
	"a return at the end":      "data: a\n\ndata: b\r",
	"C010 end mark without":    "data: a\n\ndata: [DONE]",
	"a name without an end":    "data: a\n\nevent: x",
	"a field without an end":   "data: a\n\ndata",
	"several lines, no end":    "data: a\ndata: b\r\ndata: c",
	"nothing":                  "",
	"only returns":             "\r\r\r\r",
	"only a mark":              "\ufeff",
	"a return before the feed": "data: a\r\r\ndata: b\r\n\r\r\n\r\n",
}

func TestFramesFollowTheStandardAtEverySplit(t *testing.T) { // F27, C010, C011, C017, C025
	for name, stream := range transcripts {
		t.Run(name, func(t *testing.T) {
			for _, rest := range []bool{false, true} {
				want := standard(stream, rest)
				check := func(pieces ...[]byte) {
					got, _ := events(t, rest, pieces...)
					if !slices.Equal(want, got) {
						t.Fatalf("split %q: %s", pieces, cmp.Diff(want, got))
					}
				}
				b := []byte(stream)
				for i := 0; i <= len(b); i++ {
					for j := i; j <= len(b) && (j == i || len(b) <= 64); j++ { // two cuts where that stays quick
						check(b[:i], b[i:j], b[j:])
					}
				}
				check(slices.Collect(slices.Chunk(b, 1))...)
			}
		})
	}
}

func TestFramesCoverEveryByte(t *testing.T) {
	for name, stream := range transcripts {
		b := []byte(stream)
		for i := range b {
			// The feed after a return at the end of a read belongs to an event that has gone out: it alone is not covered.
			_, raw := events(t, true, b[:i], b[i:])
			want := strings.TrimPrefix(stream, "\ufeff")
			if i > 0 && b[i-1] == '\r' && b[i] == '\n' && len(raw) < len(want) {
				at := i - (len(stream) - len(want))
				want = want[:at] + want[at+1:]
			}
			if !strings.HasPrefix(want, raw) {
				t.Errorf("%s split at %d: the frames cover %q of %q", name, i, raw, want)
			}
		}
	}
}

func TestEventIsNotHeldBackForALineFeed(t *testing.T) { // C011
	var f Frames
	var got []string
	take := func(fr Frame) {
		if !fr.Empty {
			got = append(got, fmt.Sprintf("%s %v %q", fr.Data, fr.Plain, f.Raw(fr.At)))
		}
	}
	for _, step := range []struct {
		read string
		want []string
	}{
		{"data: a\r", nil},
		{"\r", []string{`a false "data: a\r\r"`}}, // at once
		{"\n", nil},                               // belongs to it: no event, and the next one is clean
		{"data: b\n\n", []string{`b true "data: b\n\n"`}},
		{"data: c\r\n\r", []string{`c false "data: c\r\n\r"`}},
		{"\ndata: d\n\n", []string{`d true "data: d\n\n"`}},
		{"data: e\r\n\r", []string{`e false "data: e\r\n\r"`}},
		{"data: f\n\n", []string{`f true "data: f\n\n"`}},
	} {
		got = nil
		feed(t, &f, []byte(step.read), take)
		if d := cmp.Diff(step.want, got); d != "" {
			t.Errorf("after %q: %s", step.read, d)
		}
	}
}

func TestPlainFramesMayBeForwarded(t *testing.T) {
	for _, c := range []struct {
		stream string
		want   bool
	}{
		{"data: a\n\n", true},
		{"data:a\n\n", true},
		{"id: 1\nevent: x\n: c\ndata: a\n\n", true},
		{": ping\n\n", true},
		{"data: a\r\n\r\n", false},
		{"data: a\n\r\n", false},
		{"data: a\r\n\n", false},
		{"data: a\r\r", false},
		{"data: a\ndata: b\n\n", false},
		{": ping\r\n\r\n", false},
	} {
		var f Frames
		n := 0
		feed(t, &f, []byte(c.stream), func(fr Frame) {
			if n++; fr.Plain != c.want {
				t.Errorf("%q is plain = %v, want %v", c.stream, fr.Plain, c.want)
			}
		})
		if n != 1 {
			t.Errorf("%q has %d events, want 1", c.stream, n)
		}
	}
}

func TestLargestEvent(t *testing.T) {
	event := func(n int) []byte {
		b := bytes.Repeat([]byte{'x'}, n)
		copy(b, "data: ")
		copy(b[n-2:], "\n\n")
		return b
	}
	for _, read := range []int{1 << 12, 100_000, 8 << 20} {
		var f Frames
		n := 0
		// The largest that is taken passes, behind a small one too, and the memory of it is not kept.
		stream := append(append(event(100), event(MaxEvent)...), event(100)...)
		for p := range slices.Chunk(stream, read) {
			feed(t, &f, p, func(fr Frame) { n++ })
		}
		if n != 3 {
			t.Errorf("reads of %d: %d events came, want 3", read, n)
		}
		if f.Space(); cap(f.buf) > 8*readSize {
			t.Errorf("reads of %d: %d bytes are held after a large event", read, cap(f.buf))
		}

		f = Frames{}
		sent := event(MaxEvent + 1)
		for len(sent) > 0 {
			room := f.Space()
			if room == nil {
				break
			}
			k := copy(room, sent[:min(read, len(sent))])
			f.Took(k)
			sent = sent[k:]
			if fr, ok := f.Next(); ok {
				t.Fatalf("reads of %d: an event of %d bytes was taken", read, fr.At.To-fr.At.From)
			}
		}
		if len(sent) != 1 {
			t.Errorf("reads of %d: refused with %d bytes left, want 1", read, len(sent))
		}
	}
}

func TestSpaceMovesAnUnfinishedEvent(t *testing.T) {
	long := strings.Repeat("y", readSize)
	stream := "event: one\ndata: " + long + "\ndata: 2\n\nevent: two\ndata: " + long + "\n\n"
	for _, size := range []int{100, 1000, readSize - 1, readSize, readSize + 1} {
		got, raw := events(t, false, slices.Collect(slices.Chunk([]byte(stream), size))...)
		if d := cmp.Diff(standard(stream, false), got); d != "" {
			t.Errorf("reads of %d: %s", size, d)
		}
		if raw != stream {
			t.Errorf("reads of %d: the frames do not cover the stream", size)
		}
	}
}

func TestRandomStreamsFollowTheStandard(t *testing.T) { // F27
	const rounds = 5_000
	r := rand.New(rand.NewPCG(5, 6))
	pieces := []string{"data: ", "data:", "data", "event: ", "id: 7", ":", ": c", "a", "北", "🌍", " ", "\n", "\n", "\n\n", "\r", "\r\n", "\r\n", "\r\r", "[DONE]", "\ufeff"}
	for range rounds {
		var stream []byte
		for range 1 + r.IntN(24) {
			stream = append(stream, pieces[r.IntN(len(pieces))]...)
		}
		checkFrames(t, stream, r)
	}
}

func checkFrames(t *testing.T, stream []byte, r *rand.Rand) {
	t.Helper()
	for _, rest := range []bool{false, true} {
		want := standard(string(stream), rest)
		var pieces [][]byte
		for p := stream; len(p) > 0; {
			n := 1 + r.IntN(min(len(p), 9))
			pieces, p = append(pieces, p[:n]), p[n:]
		}
		for _, split := range [][][]byte{{stream}, pieces, slices.Collect(slices.Chunk(stream, 1))} {
			got, _ := events(t, rest, split...)
			if !slices.Equal(want, got) {
				t.Fatalf("%q split as %q: %s", stream, split, cmp.Diff(want, got))
			}
		}
	}
}

func FuzzFrames(f *testing.F) {
	for _, stream := range transcripts {
		f.Add([]byte(stream), uint64(len(stream)))
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		if len(stream) > 1<<12 {
			return // long inputs only cost time
		}
		checkFrames(t, stream, rand.New(rand.NewPCG(seed, 1)))
	})
}
