//go:build unix

package backend

import (
	"net"
	"syscall"
)

// peeker returns what looks, without waiting, whether an idle connection is open and quiet: one that the peer has closed,
// or on which it said something unasked, must not be used again.
func peeker(c net.Conn) func() bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	var quiet bool
	var one [1]byte
	look := func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
		return true
	}
	return func() bool {
		quiet = false
		return raw.Read(look) == nil && quiet
	}
}
