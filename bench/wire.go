package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// wireBuffer is the read buffer of one connection; a head line must fit.
const wireBuffer = 8 << 10

var errLongLine = errors.New("a line of the answer is longer than the buffer")

// wire reads HTTP/1.1 answers off one keep-alive connection. It allocates
// nothing per answer and is strict: what is not properly framed is an error. It
// is not safe for concurrent use.
type wire struct {
	src      io.Reader
	buf      []byte
	from, to int // unread bytes
}

func newWire(src io.Reader) *wire { return &wire{src: src, buf: make([]byte, wireBuffer)} }

// reset starts over on a new connection.
func (w *wire) reset(src io.Reader) { w.src, w.from, w.to = src, 0, 0 }

// head is what the benchmark needs to know of an answer's head. length is -1
// when the body comes in chunks.
type head struct {
	status int
	length int64
	close  bool
}

// fill reads once, after moving what is unread to the front where it would not fit.
func (w *wire) fill() error {
	if w.from == w.to {
		w.from, w.to = 0, 0
	}
	if w.to == len(w.buf) {
		if w.from == 0 {
			return errLongLine
		}
		w.to = copy(w.buf, w.buf[w.from:w.to])
		w.from = 0
	}
	n, err := w.src.Read(w.buf[w.to:])
	w.to += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// line returns the next line without its CR LF; it is valid until the next read.
func (w *wire) line() ([]byte, error) {
	seen := 0
	for {
		if i := bytes.IndexByte(w.buf[w.from+seen:w.to], '\n'); i >= 0 {
			line := w.buf[w.from : w.from+seen+i]
			w.from += seen + i + 1
			if n := len(line); n > 0 && line[n-1] == '\r' {
				return line[:n-1], nil
			}
			return nil, fmt.Errorf("line %.40q does not end in CR LF", line)
		}
		seen = w.to - w.from
		if err := w.fill(); err != nil {
			if errors.Is(err, io.EOF) && seen > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// readHead returns the next final head; informational answers are passed over.
// A connection closed before the first byte is io.EOF.
func (w *wire) readHead() (head, error) {
	for {
		h, err := w.oneHead()
		if err != nil || h.status >= 200 {
			return h, err
		}
	}
}

func (w *wire) oneHead() (head, error) {
	line, err := w.line()
	if err != nil {
		return head{}, err
	}
	h := head{length: -1}
	if h.status, err = statusOf(line); err != nil {
		return h, err
	}
	chunked := false
	for {
		if line, err = w.line(); err != nil {
			return h, midway(err)
		}
		if len(line) == 0 {
			break
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			return h, fmt.Errorf("header line %.40q has no colon", line)
		}
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if h.length >= 0 {
				return h, errors.New("content-length is given twice")
			}
			if h.length, err = number(value, 10); err != nil {
				return h, fmt.Errorf("content-length: %w", err)
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			if chunked = bytes.EqualFold(value, []byte("chunked")); !chunked {
				return h, fmt.Errorf("transfer-encoding %.40q", value)
			}
		case bytes.EqualFold(name, []byte("Connection")):
			h.close = bytes.EqualFold(value, []byte("close"))
		}
	}
	if h.status >= 200 && chunked == (h.length >= 0) {
		return h, errors.New("the answer must have either a content-length or chunks")
	}
	return h, nil
}

func statusOf(line []byte) (int, error) {
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) || (len(line) > 12 && line[12] != ' ') {
		return 0, fmt.Errorf("status line %.40q", line)
	}
	n, err := number(line[9:12], 10)
	if err != nil || n < 100 {
		return 0, fmt.Errorf("status line %.40q", line)
	}
	return int(n), nil
}

// readBody hands the body to sink piece by piece as it arrives; the pieces are
// valid only during the call. It returns nil only for a complete body.
func (w *wire) readBody(h head, sink func([]byte)) error {
	if h.length >= 0 {
		return w.pass(h.length, sink)
	}
	for {
		line, err := w.line()
		if err != nil {
			return midway(err)
		}
		digits, _, _ := bytes.Cut(line, []byte(";"))
		n, err := number(bytes.TrimRight(digits, " \t"), 16)
		if err != nil {
			return fmt.Errorf("chunk size: %w", err)
		}
		if n == 0 {
			return w.trailer()
		}
		if err := w.pass(n, sink); err != nil {
			return err
		}
		if line, err = w.line(); err != nil {
			return midway(err)
		}
		if len(line) != 0 {
			return fmt.Errorf("%.40q follows a chunk", line)
		}
	}
}

// pass hands exactly n bytes to sink.
func (w *wire) pass(n int64, sink func([]byte)) error {
	for n > 0 {
		if w.from == w.to {
			if err := w.fill(); err != nil {
				return midway(err)
			}
		}
		k := int(min(n, int64(w.to-w.from)))
		sink(w.buf[w.from : w.from+k])
		w.from += k
		n -= int64(k)
	}
	return nil
}

func (w *wire) trailer() error {
	for {
		line, err := w.line()
		if err != nil {
			return midway(err)
		}
		if len(line) == 0 {
			return nil
		}
	}
}

// midway turns the end of the connection inside an answer into what it is.
func midway(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// number reads a non-negative number without signs, spaces or underscores.
func number(b []byte, base int64) (int64, error) {
	if len(b) == 0 || len(b) > 15 {
		return 0, fmt.Errorf("%.40q is not a number", b)
	}
	var n int64
	for _, c := range b {
		d := int64(99)
		switch {
		case c >= '0' && c <= '9':
			d = int64(c - '0')
		case c >= 'a' && c <= 'f':
			d = int64(c-'a') + 10
		case c >= 'A' && c <= 'F':
			d = int64(c-'A') + 10
		}
		if d >= base {
			return 0, fmt.Errorf("%.40q is not a number", b)
		}
		n = n*base + d
	}
	return n, nil
}
