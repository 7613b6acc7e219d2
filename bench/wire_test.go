package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestWireReadsWholeAnswers(t *testing.T) {
	tests := []struct {
		name, raw, body string
		head            head
	}{
		{"a body with its length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", head{status: 200, length: 5}},
		{"an empty body", "HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n", "", head{status: 200}},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n", "hello", head{status: 200, length: -1}},
		{"chunks with a trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n0123456789\r\n0\r\nX: 1\r\n\r\n", "0123456789", head{status: 200, length: -1}},
		{"an informational answer first", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", "", head{status: 204}},
		{"an error that closes", "HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno", "no", head{status: 503, length: 2, close: true}},
	}
	readers := map[string]func(io.Reader) io.Reader{"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "with data and EOF together": iotest.DataErrReader}
	for _, tt := range tests {
		for how, reader := range readers {
			t.Run(tt.name+" "+how, func(t *testing.T) {
				w := newWire(reader(strings.NewReader(tt.raw + tt.raw))) // keep-alive: the next answer follows
				for range 2 {
					h, body, err := readAnswer(w)
					if err != nil || h != tt.head || body != tt.body {
						t.Fatalf("got %+v %q %v, want %+v %q", h, body, err, tt.head, tt.body)
					}
				}
				if _, _, err := readAnswer(w); !errors.Is(err, io.EOF) {
					t.Errorf("at the end: got %v, want EOF", err)
				}
			})
		}
	}
}

func readAnswer(w *wire) (head, string, error) {
	h, err := w.readHead()
	if err != nil {
		return h, "", err
	}
	var body strings.Builder
	err = w.readBody(h, func(p []byte) { body.Write(p) })
	return h, body.String(), err
}

func TestWireRefusesBadFraming(t *testing.T) {
	const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	tests := []struct{ name, raw string }{
		{"a cut status line", "HTTP/1.1 20"},
		{"a cut head", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n"},
		{"a cut body", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"},
		{"a cut chunk", chunked + "5\r\nhel"},
		{"no last chunk", chunked + "5\r\nhello\r\n"},
		{"no end after the last chunk", chunked + "0\r\n"},
		{"a chunk that is too long", chunked + "5\r\nhello!\r\n0\r\n\r\n"},
		{"a chunk size that is not a number", chunked + "0x5\r\nhello\r\n0\r\n\r\n"},
		{"a negative chunk size", chunked + "-5\r\nhello\r\n0\r\n\r\n"},
		{"a chunk size beyond all bounds", chunked + "fffffffffffffffff\r\n"},
		{"no framing at all", "HTTP/1.1 200 OK\r\n\r\nhello"},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello"},
		{"a length and chunks", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		{"a length with a sign", "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello"},
		{"another encoding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n"},
		{"a bare line feed", "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n"},
		{"a header without a colon", "HTTP/1.1 200 OK\r\nnonsense\r\nContent-Length: 0\r\n\r\n"},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"},
		{"a status of two digits", "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n"},
		{"an endless line", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", wireBuffer)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, body, err := readAnswer(newWire(strings.NewReader(tt.raw))); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("got body %q and error %v, want an error that is not a clean end", body, err)
			}
		})
	}
}

func FuzzWire(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
	f.Add("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n")
	f.Fuzz(func(t *testing.T, raw string) {
		h, body, err := readAnswer(newWire(strings.NewReader(raw)))
		h2, body2, err2 := readAnswer(newWire(iotest.OneByteReader(strings.NewReader(raw))))
		if h != h2 || body != body2 || (err == nil) != (err2 == nil) {
			t.Errorf("at once: %+v %q %v; byte by byte: %+v %q %v", h, body, err, h2, body2, err2)
		}
	})
}
