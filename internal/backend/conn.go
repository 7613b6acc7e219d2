package backend

import (
	"bytes"
	"io"
	"net"
)

// conn is a connection that takes a body which is in memory in one write. Without it, what does not fit Transport's
// write buffer is copied through a fresh 32 KiB buffer, piece by piece.
type conn struct{ net.Conn }

// ReadFrom writes all of r. Transport calls it with the rest of a body, limited to the announced length.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	if l, ok := r.(*io.LimitedReader); ok {
		if b, ok := l.R.(*bytes.Reader); ok && int64(b.Len()) <= l.N {
			n, err := b.WriteTo(c.Conn)
			l.N -= n
			return n, err
		}
	}
	return io.Copy(struct{ io.Writer }{c.Conn}, r)
}
