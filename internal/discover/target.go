package discover

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

const loopback = "127.0.0.1"

// target is one address to look at.
type target struct {
	addr  string // host:port, an IPv6 host in brackets
	own   bool   // a loopback address
	usual string // the server that usually stands there, for display
}

// targets lists what to look at, each address once, the usual ports first.
func (o Options) targets() ([]target, error) {
	ports := o.Ports
	if ports == nil {
		ports = UsualPorts()
	}
	all := onPorts(loopback, ports)
	for _, s := range o.Look {
		more, err := named(strings.TrimSpace(s))
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	var kept []target
	seen := map[string]bool{}
	for _, t := range all {
		if !seen[t.addr] {
			seen[t.addr] = true
			kept = append(kept, t)
		}
	}
	return kept, nil
}

func onPorts(host string, ports []Port) []target {
	var all []target
	for _, p := range ports {
		all = append(all, target{addr: net.JoinHostPort(host, strconv.Itoa(p.Number)), own: true, usual: p.Usual})
	}
	return all
}

// named reads one thing the user gave to look at.
func named(s string) ([]target, error) {
	fault := func(what string) error { return fmt.Errorf("look %q: %s", s, what) }
	if s == "" {
		return nil, fault("name a host and a port, such as 127.0.0.1:8080")
	}
	if strings.Contains(s, "/") {
		return nil, fault("give host:port alone, without a scheme or a path, such as 127.0.0.1:8080")
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		if n, err := strconv.Atoi(s); err == nil {
			host, port = loopback, strconv.Itoa(n)
		} else if ip, ok := ownHost(strings.Trim(s, "[]")); ok {
			return onPorts(ip, UsualPorts()), nil
		} else {
			return nil, fault("name the port too, such as 127.0.0.1:8080")
		}
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return nil, fault("the port must be a number from 1 to 65535")
	} else {
		port = strconv.Itoa(n)
	}
	if ip, ok := ownHost(host); ok {
		return []target{{addr: net.JoinHostPort(ip, port), own: true}}, nil
	}
	if !hostName(host) {
		return nil, fault("the host is neither a name nor an IP address without a zone")
	}
	return []target{{addr: net.JoinHostPort(host, port)}}, nil
}

// ownHost gives the loopback address that host means. An unspecified address means this machine too.
func ownHost(host string) (string, bool) {
	if host == "" || strings.EqualFold(host, "localhost") {
		return loopback, true
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil || ip.Zone() != "":
		return "", false
	case ip.IsUnspecified() && ip.Is4():
		return loopback, true
	case ip.IsUnspecified():
		return "::1", true
	}
	return ip.Unmap().String(), ip.Unmap().IsLoopback()
}

// hostName tells whether host can stand in a URL as it is.
func hostName(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Zone() == ""
	}
	return !strings.ContainsFunc(host, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '-' && r != '_'
	})
}
