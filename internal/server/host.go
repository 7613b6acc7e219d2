package server

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// hostAllowed reports whether a Host header names this machine's loopback or one of allowed, which holds lower-case
// names. A port is passed over, and so is one trailing dot.
func hostAllowed(host string, allowed map[string]bool) bool {
	if allowed[strings.ToLower(host)] {
		return true
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || allowed[host] {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}

// remote returns the client's address: the connection's, or what a trusted proxy says it is.
func (s *Server) remote(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	ip := peer.Addr().Unmap()
	if len(s.Trusted) == 0 || !s.trusted(ip) {
		return ip.String()
	}
	// From the right: the first address that is not a trusted proxy's own was written by a trusted one.
	list := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(list) - 1; i >= 0; i-- {
		next, err := netip.ParseAddr(strings.TrimSpace(list[i]))
		if err != nil {
			break
		}
		if ip = next.Unmap(); !s.trusted(ip) {
			break
		}
	}
	return ip.String()
}

func (s *Server) trusted(ip netip.Addr) bool {
	for _, p := range s.Trusted {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}
