package sim

import (
	"bytes"
	"compress/gzip"
)

// squeezer compresses a body piece by piece; without a mode it passes it on.
type squeezer struct {
	cut bool
	buf bytes.Buffer
	zip *gzip.Writer
}

func newSqueezer(mode string) *squeezer {
	q := &squeezer{cut: mode == "cut"}
	if mode != "" {
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
