package backend

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	maxHead   = 256 << 10
	max1xx    = 8
	maxLine   = 4 << 10 // of a chunk's size line or a trailer
	maxFields = 512
)

// errHTTP is wrapped by every fault in what an upstream sends as HTTP.
var errHTTP = errors.New("malformed HTTP")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errHTTP}, args...)...)
}

// plainHead is the head of one answer (RFC 9112). Its fields share one string.
type plainHead struct {
	status  int
	fields  []field
	length  int64
	chunked bool
	keep    bool
}

type field struct{ name, value string }

// Get returns the first value of a header, whatever its case.
func (h *plainHead) Get(name string) string {
	for i := range h.fields {
		if strings.EqualFold(h.fields[i].name, name) {
			return h.fields[i].value
		}
	}
	return ""
}

// head reads the head of an answer and passes over informational ones.
func (w *wire) head() (*plainHead, error) {
	for range max1xx {
		raw, err := w.block()
		if err != nil {
			return nil, err
		}
		h, err := parseHead(string(raw))
		if err != nil {
			return nil, err
		}
		if h.status == 101 {
			return nil, malformed("101 without a request for it")
		}
		if h.status >= 200 {
			return h, nil
		}
	}
	return nil, malformed("more than %d informational answers", max1xx)
}

// block reads up to the empty line that ends a head and returns what stands before it. The bytes are valid until the
// next read.
func (w *wire) block() ([]byte, error) {
	for from := w.at; ; {
		if i := headEnd(w.buf[from:w.end]); i >= 0 {
			raw := w.buf[w.at : from+i]
			if len(raw) > maxHead { // it may have come in one read
				return nil, malformed("a head of over %d bytes", maxHead)
			}
			w.at = from + i
			return raw, nil
		}
		from = max(w.at, w.end-3)
		if w.end-w.at > maxHead {
			return nil, malformed("a head of over %d bytes", maxHead)
		}
		shift := w.at
		if err := w.more(); err != nil {
			return nil, err
		}
		if w.at != shift {
			from -= shift
		}
	}
}

// headEnd returns the index after the first empty line, or -1. Lines may end with LF alone, as real servers' do.
func headEnd(b []byte) int {
	for i := 0; ; {
		n := bytes.IndexByte(b[i:], '\n')
		if n < 0 {
			return -1
		}
		i += n + 1
		switch {
		case i < len(b) && b[i] == '\n':
			return i + 1
		case i+1 < len(b) && b[i] == '\r' && b[i+1] == '\n':
			return i + 2
		}
	}
}

// more reads further bytes behind those that were not used yet.
func (w *wire) more() error {
	if w.at > 0 {
		w.end = copy(w.buf, w.buf[w.at:w.end])
		w.at = 0
	}
	if w.end == len(w.buf) {
		grown := make([]byte, 2*len(w.buf))
		copy(grown, w.buf)
		w.buf = grown
	}
	n, err := w.Conn.Read(w.buf[w.end:])
	w.end += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

func parseHead(raw string) (*plainHead, error) {
	line, rest, _ := strings.Cut(raw, "\n")
	line = strings.TrimSuffix(line, "\r")
	if len(line) < 12 || line[:7] != "HTTP/1." || line[7] != '0' && line[7] != '1' || line[8] != ' ' || len(line) > 12 && line[12] != ' ' {
		return nil, malformed("status line %.40q", line)
	}
	status, err := strconv.Atoi(line[9:12])
	if err != nil || status < 100 {
		return nil, malformed("status line %.40q", line)
	}
	h := &plainHead{status: status, fields: make([]field, 0, 12), length: -1, keep: line[7] == '1'}
	for rest != "" {
		line, rest, _ = strings.Cut(rest, "\n")
		if line = strings.TrimSuffix(line, "\r"); line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return nil, malformed("header line %.40q", line) // a folded line, too: it can hide a header from one of two readers
		}
		if len(h.fields) == maxFields {
			return nil, malformed("more than %d headers", maxFields)
		}
		h.fields = append(h.fields, field{name, strings.Trim(value, " \t")})
	}
	return h, h.frame()
}

// frame finds where the body ends. Whatever two readers could understand in two ways is refused.
func (h *plainHead) frame() error {
	lengths := 0
	for _, f := range h.fields {
		switch {
		case strings.EqualFold(f.name, "Content-Length"):
			n, err := strconv.ParseUint(f.value, 10, 62)
			if err != nil || lengths > 0 && int64(n) != h.length {
				return malformed("Content-Length %.40q", f.value)
			}
			h.length = int64(n)
			lengths++
		case strings.EqualFold(f.name, "Transfer-Encoding"):
			if !strings.EqualFold(f.value, "chunked") || h.chunked {
				return malformed("Transfer-Encoding %.40q", f.value)
			}
			h.chunked = true
		case strings.EqualFold(f.name, "Connection"):
			h.keep = h.keep && !hasToken(f.value, "close") || hasToken(f.value, "keep-alive")
		}
	}
	switch {
	case h.chunked && lengths > 0:
		return malformed("both Content-Length and Transfer-Encoding")
	case h.status == 204 || h.status == 304:
		h.length, h.chunked = 0, false
	case !h.chunked && lengths == 0:
		h.keep = false // the body ends with the connection
	}
	return nil
}

func hasToken(list, token string) bool {
	for part := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.TrimSpace(part), token) {
			return true
		}
	}
	return false
}

// plainBody reads an answer's body: of a known length, in chunks, or up to the end of the connection.
type plainBody struct {
	p       *plain
	w       *wire
	cancel  func() bool // stops the watch over the call's context
	keep    bool        // the connection may be used again
	chunked bool
	left    int64 // of the body or the current chunk; negative: up to the end of the connection
	begin   bool  // no chunk has been read yet
	done    bool
	closed  bool
}

// Read reads into p. It takes what is there: of a chunked body as many whole or partial chunks as were received.
func (b *plainBody) Read(p []byte) (int, error) {
	if b.closed {
		return 0, errors.New("the body is closed")
	}
	if b.done {
		return 0, io.EOF
	}
	if !b.chunked {
		return b.piece(p)
	}
	n := 0
	for n < len(p) {
		if b.left <= 0 || b.begin {
			if n > 0 && !b.sizeThere() {
				return n, nil
			}
			if err := b.size(); err != nil {
				return n, unexpected(err)
			}
			if b.done {
				if n > 0 {
					return n, nil
				}
				return 0, io.EOF
			}
		}
		if n > 0 && b.w.at == b.w.end {
			return n, nil
		}
		k, err := b.piece(p[n:])
		n += k
		if err != nil {
			return n, unexpected(err)
		}
	}
	return n, nil
}

// unexpected makes the end of the connection within a framed body an error: a cut answer must not look whole.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// piece reads of the body or the current chunk.
func (b *plainBody) piece(p []byte) (n int, err error) {
	if b.left >= 0 && int64(len(p)) > b.left {
		p = p[:b.left]
	}
	if w := b.w; w.at < w.end {
		n = copy(p, w.buf[w.at:w.end])
		w.at += n
	} else if n, err = w.Conn.Read(p); n > 0 {
		err = nil // it comes again with the next read
	}
	if b.left < 0 {
		return n, err // the end of the connection is the end
	}
	b.left -= int64(n)
	if b.left == 0 && !b.chunked {
		b.done = true
		return n, nil
	}
	return n, unexpected(err)
}

// sizeThere reports whether the next chunk's size line was received already.
func (b *plainBody) sizeThere() bool {
	rest := b.w.buf[b.w.at:b.w.end]
	if !b.begin {
		rest = rest[min(2, len(rest)):]
	}
	return bytes.IndexByte(rest, '\n') >= 0
}

// size reads the end of the last chunk and the size of the next one; after the last, the trailers.
func (b *plainBody) size() error {
	if !b.begin {
		if line, err := b.w.textLine(); err != nil || len(line) > 0 {
			return cmpErr(err, malformed("a chunk without its end"))
		}
	}
	b.begin = false
	line, err := b.w.textLine()
	if err != nil {
		return err
	}
	digits, _, _ := bytes.Cut(line, []byte{';'})
	digits = bytes.TrimRight(digits, " \t")
	if len(digits) == 0 || len(digits) > 15 {
		return malformed("chunk size %.40q", line)
	}
	n, err := strconv.ParseUint(string(digits), 16, 62)
	if err != nil || digits[0] == '+' || bytes.IndexByte(digits, '_') >= 0 {
		return malformed("chunk size %.40q", line)
	}
	b.left = int64(n)
	if n > 0 {
		return nil
	}
	for range maxFields {
		line, err := b.w.textLine()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			b.done = true
			return nil
		}
	}
	return malformed("more than %d trailers", maxFields)
}

func cmpErr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// textLine reads one line without its end. It is valid until the next read.
func (w *wire) textLine() ([]byte, error) {
	for {
		if i := bytes.IndexByte(w.buf[w.at:w.end], '\n'); i >= 0 {
			line := w.buf[w.at : w.at+i]
			w.at += i + 1
			return bytes.TrimSuffix(line, []byte{'\r'}), nil
		}
		if w.end-w.at > maxLine {
			return nil, malformed("a line of over %d bytes", maxLine)
		}
		if err := w.more(); err != nil {
			return nil, err
		}
	}
}

// Close gives the connection back where the body was read to its end, else closes it: that is how an upstream learns
// that nobody waits any more.
func (b *plainBody) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	// A watch that has fired, or is firing, leaves a deadline on the connection.
	if stopped := b.cancel(); stopped && b.done && b.keep && b.w.at == b.w.end {
		if cap(b.w.buf) > 8*wireBuffer {
			b.w.buf = make([]byte, wireBuffer)
		}
		b.w.at, b.w.end = 0, 0
		b.p.give(b.w)
		return nil
	}
	return b.w.Close()
}
