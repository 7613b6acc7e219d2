package sim

import (
	"bytes"
	"compress/gzip"
	"net/http"
)

// squeezer compresses a body piece by piece; without a mode it passes it on.
type squeezer struct {
	cut bool
	buf bytes.Buffer
	zip *gzip.Writer
}

func newSqueezer(mode string) *squeezer {
	q := &squeezer{cut: mode == "cut"}
	if mode == "ok" || mode == "cut" { // a bomb is compressed already
		q.zip = gzip.NewWriter(&q.buf)
	}
	return q
}

func (q *squeezer) add(data []byte) []byte {
	if q.zip == nil {
		return data
	}
	if q.cut {
		data = data[:len(data)/2]
	}
	_, _ = q.zip.Write(data) // into memory
	_ = q.zip.Flush()
	return q.take()
}

func (q *squeezer) end() []byte {
	if q.zip == nil || q.cut {
		return nil
	}
	_ = q.zip.Close()
	zip := q.take()
	q.zip = nil
	return zip
}

func (q *squeezer) take() []byte {
	out := bytes.Clone(q.buf.Bytes())
	q.buf.Reset()
	return out
}

// bombSize is what a bomb inflates to, a thousand times its size.
const bombSize = 64 << 20

// bomb is a small gzip body that inflates to 64 MiB of JSON. It is one mebibyte,
// compressed once and repeated, which costs the server nothing.
func bomb(api API) answer {
	head, tail := `{"id":"chatcmpl-bomb","object":"chat.completion","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"`, `"}}]}`
	switch api {
	case Messages:
		head, tail = `{"id":"msg_bomb","type":"message","role":"assistant","stop_reason":"end_turn","content":[{"type":"text","text":"`, `"}]}`
	case Responses:
		head, tail = `{"id":"resp_bomb","object":"response","status":"completed","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"`, `"}]}]}`
	}
	ans := answer{status: http.StatusOK, header: http.Header{"Content-Type": {"application/json"}}}
	ans.pieces = func(yield func(piece) bool) {
		ok := yield(piece{data: zipped([]byte(head)), content: true})
		for charge, n := zipped(bytes.Repeat([]byte("x"), 1<<20)), 0; ok && n < bombSize; n += 1 << 20 {
			ok = yield(piece{data: charge})
		}
		_ = ok && yield(piece{data: zipped([]byte(tail)), over: true})
	}
	return ans
}

func zipped(data []byte) []byte {
	q := newSqueezer("ok")
	return append(q.add(data), q.end()...)
}
