package discover

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Holder says in words who holds, or could hold, the TCP port of addr (host:port, as given to listen), ready to stand
// after "address in use: ". On Linux it names the process, or the user where the process may not be seen; otherwise it
// says how to find out. It reads /proc only, asks nobody, and never shows arguments that could be secrets.
func Holder(addr string) string {
	return procTree("/proc").holder(addr, runtime.GOOS)
}

// procTree is the folder where the kernel shows processes and sockets.
type procTree string

// socket is a listening TCP socket.
type socket struct {
	inode string
	uid   string
}

func (t procTree) holder(addr, system string) string {
	host, port, err := net.SplitHostPort(addr)
	n, errPort := strconv.ParseUint(port, 10, 16)
	if err != nil || errPort != nil {
		return fmt.Sprintf("%q is not host:port", addr)
	}
	found := t.listening(host, uint16(n))
	inodes := map[string]bool{}
	var uids []string
	for _, s := range found {
		inodes["socket:["+s.inode+"]"] = true
		if !slices.Contains(uids, s.uid) {
			uids = append(uids, s.uid)
		}
	}
	if names := t.owners(inodes); len(names) > 0 {
		return "held by " + strings.Join(names, " and ")
	}
	if len(uids) > 0 {
		return fmt.Sprintf("held by a process of %s; `sudo ss -ltnp 'sport = :%d'` names it", userOf(uids[0]), n)
	}
	if system == "linux" {
		return fmt.Sprintf("held by a process that cannot be seen from here, perhaps in another container or gone by now; `sudo ss -ltnp 'sport = :%d'` on the host names it", n)
	}
	return fmt.Sprintf("`lsof -nP -iTCP:%d -sTCP:LISTEN` names who holds it", n)
}

// listening gives the listening sockets that stand in the way of host:port.
func (t procTree) listening(host string, port uint16) []socket {
	var all []socket
	for _, name := range []string{"net/tcp", "net/tcp6"} {
		f, err := os.Open(filepath.Join(string(t), name))
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			// sl local rem st tx:rx tr:when retrnsmt uid timeout inode …
			c := strings.Fields(lines.Text())
			if len(c) < 10 || c[3] != "0A" {
				continue
			}
			at, ok := procAddr(c[1])
			if ok && at.Port() == port && clash(host, at.Addr()) {
				all = append(all, socket{inode: c[9], uid: c[7]})
			}
		}
		f.Close()
	}
	return all
}

// procAddr reads an address as /proc/net prints it: the words of the address in the machine's byte order, in hex.
func procAddr(s string) (netip.AddrPort, bool) {
	ip, port, ok := strings.Cut(s, ":")
	raw, err := hex.DecodeString(ip)
	n, errPort := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || errPort != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	at, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(at.Unmap(), uint16(n)), true
}

// clash tells whether a listener on at keeps others from host. A host that is a name may mean any address.
func clash(host string, at netip.Addr) bool {
	want, err := netip.ParseAddr(host)
	return err != nil || want.IsUnspecified() || at.IsUnspecified() || want.Unmap() == at
}

// owners names the processes that hold one of the sockets. Those of other users cannot be seen and are passed over.
func (t procTree) owners(sockets map[string]bool) []string {
	if len(sockets) == 0 {
		return nil
	}
	var names []string
	entries, _ := os.ReadDir(string(t))
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		fds := filepath.Join(string(t), e.Name(), "fd")
		open, _ := os.ReadDir(fds)
		if slices.ContainsFunc(open, func(fd os.DirEntry) bool {
			to, err := os.Readlink(filepath.Join(fds, fd.Name()))
			return err == nil && sockets[to]
		}) {
			names = append(names, fmt.Sprintf("%s (pid %s)", t.command(e.Name()), e.Name()))
		}
	}
	return names
}

// command gives what a process runs: its program and one word that tells programs of an interpreter or of many words
// apart, as in "ollama serve" or "python3 -m vllm.entrypoints.openai.api_server". Flags, assignments and addresses with
// a user are left out, as they could hold a key.
func (t procTree) command(pid string) string {
	raw, _ := os.ReadFile(filepath.Join(string(t), pid, "cmdline"))
	args := strings.Split(string(bytes.TrimRight(raw, "\x00")), "\x00")
	name := plain(filepath.Base(args[0]), maxWord)
	if args[0] == "" {
		comm, _ := os.ReadFile(filepath.Join(string(t), pid, "comm"))
		return plain(string(comm), maxWord)
	}
	switch {
	case len(args) > 2 && args[1] == "-m":
		return name + " -m " + plain(args[2], 2*maxWord)
	case len(args) > 1 && !strings.HasPrefix(args[1], "-") && !strings.ContainsAny(args[1], "=@"):
		return name + " " + plain(args[1], 2*maxWord)
	}
	return name
}

func userOf(uid string) string {
	if u, err := user.LookupId(uid); err == nil {
		return "user " + plain(u.Username, maxWord)
	}
	return "user id " + plain(uid, maxWord)
}
