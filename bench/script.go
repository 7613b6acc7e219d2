package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Model names the load uses. A name "bench-NxP" streams N chunks P apart; any
// other name behaves as modelPlain.
const (
	modelPlain = "bench"          // 100 chunks without a pause
	modelPaced = "bench-100x50ms" // a fast model
	modelOpen  = "bench-20x250ms" // open streams, without keeping the machine busy
	modelMany  = "bench-40x500ms" // thousands of them on one core
)

const (
	defaultChunks = 100
	maxChunks     = 9999 // a part carries its number in four digits
	partTag       = " part-"
	partSize      = len(partTag) + 4
)

// script is what a model name asks of the mock.
type script struct {
	chunks int
	pause  time.Duration
}

// parseModel reads the behaviour out of a model name.
func parseModel(name string) script {
	s := script{chunks: defaultChunks}
	rest, ok := strings.CutPrefix(name, modelPlain+"-")
	if !ok {
		return s
	}
	count, pause, ok := strings.Cut(rest, "x")
	if !ok {
		return s
	}
	n, err := strconv.Atoi(count)
	d, err2 := time.ParseDuration(pause)
	if err != nil || err2 != nil || n < 0 || n > maxChunks || d < 0 {
		return s
	}
	return script{chunks: n, pause: d}
}

const answerText = "A gateway takes a request from a client, picks the server that should answer it, " +
	"keeps an eye on the limits of that server, and hands the answer back unchanged."

// answer is the body of a plain reply: about 600 bytes, the same each time, so
// that the load can compare it byte for byte.
func answer(model string) []byte {
	return fmt.Appendf(nil, `{"id":"chatcmpl-bench0000000000000001","object":"chat.completion","created":1780000000,"model":%q,`+
		`"system_fingerprint":"fp_bench","choices":[{"index":0,"message":{"role":"assistant","content":%q,"refusal":null},`+
		`"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":41,"completion_tokens":33,"total_tokens":74,`+
		`"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}`, model, answerText)
}

// appendPart appends the text of content chunk i. Each part is numbered, so that
// a lost, doubled or swapped chunk is seen.
func appendPart(dst []byte, i int) []byte {
	dst = append(dst, partTag...)
	return append(dst, byte('0'+i/1000%10), byte('0'+i/100%10), byte('0'+i/10%10), byte('0'+i%10))
}

// isPart reports whether b starts with the text of content chunk i.
func isPart(b []byte, i int) bool {
	var want [partSize]byte
	return bytes.HasPrefix(b, appendPart(want[:0], i))
}

// wholeText is what all parts of a stream of n chunks say together.
func wholeText(n int) []byte {
	var out []byte
	for i := range n {
		out = appendPart(out, i)
	}
	return out
}

// frames builds the events of one stream; lead is the part all of them share.
type frames struct{ lead []byte }

func newFrames(model string) frames {
	return frames{fmt.Appendf(nil, `data: {"id":"chatcmpl-bench0000000000000001","object":"chat.completion.chunk","created":1780000000,`+
		`"model":%q,"system_fingerprint":"fp_bench","choices":[`, model)}
}

func (f frames) appendRole(dst []byte) []byte {
	dst = append(dst, f.lead...)
	return append(dst, `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`+"\n\n"...)
}

func (f frames) appendContent(dst []byte, i int) []byte {
	dst = append(dst, f.lead...)
	dst = append(dst, `{"index":0,"delta":{"content":"`...)
	dst = appendPart(dst, i)
	return append(dst, `"},"logprobs":null,"finish_reason":null}]}`+"\n\n"...)
}

// appendEnd appends the finish chunk, the usage chunk if it was asked for, and [DONE].
func (f frames) appendEnd(dst []byte, n int, usage bool) []byte {
	dst = append(dst, f.lead...)
	dst = append(dst, `{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}`+"\n\n"...)
	if usage {
		dst = append(dst, f.lead...)
		dst = fmt.Appendf(dst, `],"usage":{"prompt_tokens":41,"completion_tokens":%d,"total_tokens":%d}}`+"\n\n", n, 41+n)
	}
	return append(dst, "data: [DONE]\n\n"...)
}
