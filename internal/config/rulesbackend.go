package config

import (
	"net"
	"net/netip"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// backend checks one backend.
func (r *rules) backend(b *Backend, p *path) {
	u := r.url(b, p.key("url"))
	r.keyHeader(b, p)
	r.servedHeader(b, p.key("served_header"))
	r.limits(b.Limits, p.key("limits"))
	if u == nil {
		return
	}
	host := strings.ToLower(u.Hostname())
	if u.Scheme == "sim" {
		if !b.Key.IsZero() || b.CA != "" {
			r.warn(p, "a simulated backend needs no key and no ca")
		}
		return
	}
	if u.Scheme == "http" && !isLoopback(host) && !b.Key.IsZero() {
		r.warn(p.key("url"), "the key of this backend travels unencrypted to %s: use https", show(host))
	}
	if b.CA != "" && u.Scheme != "https" {
		r.fault(p.key("ca"), "is for https only: the url is %s", u.Scheme)
	}
	r.itself(u, p.key("url"))
	r.inside(b, host, p)
}

// inside looks at a backend that counts as one of your own machines: whether it is one, and what stands on the way to it.
// What is said in so many words (outside: false) is believed.
func (r *rules) inside(b *Backend, host string, p *path) {
	if b.IsOutside() {
		return
	}
	if b.Outside == nil && b.Tier != "" && isPublic(host) {
		r.warn(p.key("url"), "%s is a public host, but a backend of tier %s counts as one of your own machines, so local requests go there: "+
			"write outside: true, or outside: false if it is yours", show(host), b.Tier)
	}
	if b.Proxy == "env" && !isLoopback(host) {
		r.warn(p.key("proxy"), "a proxy of the environment would see what goes to one of your own machines: "+
			"unless it runs on this machine, local requests are refused here")
	}
}

// ownNames are the endings of names that no public DNS has.
var ownNames = []string{".local", ".localhost", ".lan", ".internal", ".home", ".home.arpa", ".corp", ".intranet", ".localdomain", ".private"}

// carrierRange is shared address space (RFC 6598), which private networks such as Tailscale's use.
var carrierRange = netip.MustParsePrefix("100.64.0.0/10")

// isPublic reports whether a host name or address looks like one of the public network.
func isPublic(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap()
		return !ip.IsLoopback() && !ip.IsPrivate() && !ip.IsLinkLocalUnicast() && !carrierRange.Contains(ip)
	}
	host = strings.TrimSuffix(host, ".")
	own := slices.ContainsFunc(ownNames, func(end string) bool { return strings.HasSuffix(host, end) })
	return strings.Contains(host, ".") && !own
}

// url checks a backend's base URL and returns it, nil after a fault. Faults never show user, password or query.
func (r *rules) url(b *Backend, p *path) *url.URL {
	if b.URL == "" {
		return nil
	}
	u, err := url.Parse(b.URL)
	msg := ""
	switch {
	case err != nil || u.Opaque != "" || u.Host == "":
		msg = "must be a base URL such as http://127.0.0.1:8080 or https://api.vendor.example"
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "sim":
		msg = "must begin with http://, https:// or sim://, not " + show(u.Scheme+"://")
	case u.User != nil:
		msg = "must not hold a user or password: give the key by reference"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(b.URL, "#"):
		msg = "must be a base URL without a query or fragment"
	case u.Scheme == "sim":
		if strings.Trim(u.Path, "/") != "" || u.Port() != "" || !nameForms["name"].form.MatchString(u.Host) {
			msg = "must be sim://NAME: a name alone"
		}
	case strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/chat/completions"):
		msg = "must be the base URL: leave out /chat/completions"
	default:
		msg = refusedHost(u)
	}
	if msg != "" {
		r.fault(p, "%s", msg)
		return nil
	}
	return u
}

// metadata are the names and addresses under which clouds hand out credentials (S26); link-local is refused as a whole.
var metadata = []string{
	"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal",
	"100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254",
}

// numericHost finds hosts that resolvers read as an address although they are not written as one: 2852039166, 0xa9fea9fe, 127.1.
var numericHost = regexp.MustCompile(`(?i)^(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*\.?$`)

// refusedHost says why a host is no backend, or "".
func refusedHost(u *url.URL) string {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	ip, err := netip.ParseAddr(host)
	ip = ip.Unmap().WithZone("")
	switch {
	case host == "":
		return "names no host"
	case slices.Contains(metadata, host) || err == nil && slices.Contains(metadata, ip.String()):
		return "is a cloud's metadata service, never a backend"
	case err == nil && ip.IsLinkLocalUnicast():
		return "is a link-local address, never a backend (cloud metadata services live there)"
	case err == nil && (ip.IsUnspecified() || ip.IsMulticast()):
		return "is no address of a machine: for this machine write 127.0.0.1"
	case err != nil && numericHost.MatchString(host):
		return "must write an IP address in full, such as 127.0.0.1"
	case strings.ContainsAny(host, "*$ ,"):
		return "names no host"
	}
	if port := u.Port(); port == "0" || strings.HasSuffix(u.Host, ":") || len(port) > 5 || len(port) == 5 && port > "65535" {
		return "has no usable port"
	}
	return ""
}

// itself refuses a backend that is this Weir: every call would come back.
func (r *rules) itself(u *url.URL, p *path) {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	at, okURL := r.address(net.JoinHostPort(strings.ToLower(u.Hostname()), port), p)
	for _, own := range []struct{ key, text string }{{"listen", r.c.Listen}, {"admin", r.c.Admin}} {
		listener, ok := r.address(own.text, root(own.key))
		if ok && okURL && at.meets(listener) && (at.loopback() || at.host == listener.host) {
			r.fault(p, "is Weir's own address (%s): a backend must be another server", own.key)
		}
	}
}

// headerName is what HTTP allows as the name of a header.
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// ownHeaders are headers that a key cannot travel in, since HTTP itself or Weir sets them.
var ownHeaders = []string{
	"Accept-Encoding", "Connection", "Content-Length", "Content-Type", "Expect", "Host", "Keep-Alive", "Proxy-Authenticate",
	"Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// servedHeader checks the header that names the model.
func (r *rules) servedHeader(b *Backend, p *path) {
	if b.ServedIn != "" && !headerName.MatchString(b.ServedIn) {
		r.fault(p, "must be the name of a header such as x-served-model, and nothing else")
	}
}

// keyHeader checks the header that carries the key.
func (r *rules) keyHeader(b *Backend, p *path) {
	at, name := p.key("key_header"), b.KeyHeader
	switch {
	case name == "":
	case !headerName.MatchString(name):
		r.fault(at, "must be the name of a header such as x-api-key, and nothing else")
	case slices.Contains(ownHeaders, textproto.CanonicalMIMEHeaderKey(name)):
		r.fault(at, "cannot be %s: HTTP itself uses that header", textproto.CanonicalMIMEHeaderKey(name))
	case b.Key.IsZero():
		r.fault(at, "names a header for the key, but there is no key")
	}
}
