package discover

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// proc writes a fake /proc with the given listening sockets; uid 4294967294 has no name anywhere.
func proc(t *testing.T, v4, v6 []string) procTree {
	t.Helper()
	root := t.TempDir()
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	write(t, filepath.Join(root, "net", "tcp"), head+strings.Join(v4, ""))
	write(t, filepath.Join(root, "net", "tcp6"), head+strings.Join(v6, ""))
	return procTree(root)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// line is a row of /proc/net/tcp for a socket at addr in state st.
func line(addr, st, inode string) string {
	at := netip.MustParseAddrPort(addr)
	raw := at.Addr().AsSlice()
	for i := 0; i < len(raw); i += 4 {
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	return fmt.Sprintf("   0: %X:%04X 00000000:0000 %s 00000000:00000000 00:00000000 00000000 4294967294        0 %s 1 0 100 0 0 10 0\n", raw, at.Port(), st, inode)
}

// process adds a process with a command line and sockets to a fake /proc.
func (t procTree) process(tb testing.TB, pid string, args []string, inodes ...string) {
	tb.Helper()
	fds := filepath.Join(string(t), pid, "fd")
	if err := os.MkdirAll(fds, 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(string(t), pid, "cmdline"), []byte(strings.Join(args, "\x00")+"\x00"), 0o644); err != nil {
		tb.Fatal(err)
	}
	for i, inode := range inodes {
		if err := os.Symlink("socket:["+inode+"]", filepath.Join(fds, fmt.Sprint(i+3))); err != nil {
			tb.Fatal(err)
		}
	}
}

func TestHolderNamesTheProcess(t *testing.T) {
	tests := []struct {
		name, addr string
		args       []string
		want       string
	}{
		{"by program and word", "127.0.0.1:8484", []string{"/usr/local/bin/weir", "run", "--config", "x"}, "held by weir run (pid 42)"},
		{"by module of an interpreter", "127.0.0.1:8484", []string{"python3", "-m", "vllm.server", "--api-key", "sk-1"}, "held by python3 -m vllm.server (pid 42)"},
		{"never by the value of a flag", "127.0.0.1:8484", []string{"llama-server", "--api-key", "sk-1"}, "held by llama-server (pid 42)"},
		{"never by an address with a user", "127.0.0.1:8484", []string{"proxy", "http://u:sk-1@host"}, "held by proxy (pid 42)"},
		{"for every address", ":8484", []string{"x"}, "held by x (pid 42)"},
		{"for a name", "localhost:8484", []string{"x"}, "held by x (pid 42)"},
		{"without control characters", "127.0.0.1:8484", []string{"x\x1b[2J"}, "held by x[2J (pid 42)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree := proc(t, []string{line("127.0.0.1:8484", "01", "6"), line("127.0.0.1:8484", "0A", "7"), line("127.0.0.1:8485", "0A", "8")}, nil)
			tree.process(t, "41", []string{"other"}, "6", "8")
			tree.process(t, "42", tt.args, "5", "7")
			if got := tree.holder(tt.addr, "linux"); got != tt.want {
				t.Errorf("holder = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestHolderKnowsWhichAddressesClash(t *testing.T) {
	tests := []struct {
		name, addr string
		v4, v6     []string
		held       bool
	}{
		{"the same address", "127.0.0.1:8484", []string{line("127.0.0.1:8484", "0A", "7")}, nil, true},
		{"another address", "127.0.0.1:8484", []string{line("10.0.0.1:8484", "0A", "7")}, nil, false},
		{"a listener on every address", "127.0.0.1:8484", nil, []string{line("[::]:8484", "0A", "7")}, true},
		{"IPv6", "[::1]:8484", nil, []string{line("[::1]:8484", "0A", "7")}, true},
		{"IPv4 in IPv6", "127.0.0.1:8484", nil, []string{line("[::ffff:127.0.0.1]:8484", "0A", "7")}, true},
		{"another port", "127.0.0.1:8484", []string{line("127.0.0.1:8080", "0A", "7")}, nil, false},
		{"rows that are none", "127.0.0.1:8484", []string{"x\n", "0: zz:1 0 0A 0 0 0 0 0 7\n", "0: 0100007F 0 0A 0 0 0 0 0 7\n"}, nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree := proc(t, tt.v4, tt.v6)
			tree.process(t, "42", []string{"x"}, "7")
			if got := strings.Contains(tree.holder(tt.addr, "linux"), "pid 42"); got != tt.held {
				t.Errorf("held = %v, want %v", got, tt.held)
			}
		})
	}
}

func TestHolderSaysHowToFindOut(t *testing.T) {
	hidden := proc(t, []string{line("127.0.0.1:8484", "0A", "7")}, nil)
	tests := []struct {
		name, addr, system string
		tree               procTree
		want               []string
	}{
		{"a process of another user", "127.0.0.1:8484", "linux", hidden, []string{"a process of user id 4294967294", "sudo ss -ltnp 'sport = :8484'"}},
		{"nothing to see", "127.0.0.1:9", "linux", hidden, []string{"cannot be seen", "ss -ltnp 'sport = :9'"}},
		{"another system", "127.0.0.1:9", "darwin", procTree(t.TempDir()), []string{"lsof -nP -iTCP:9 -sTCP:LISTEN"}},
		{"no address", "8484", "linux", hidden, []string{`"8484" is not host:port`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.tree.holder(tt.addr, tt.system)
			for _, w := range tt.want {
				if !strings.Contains(got, w) {
					t.Errorf("holder = %q, want %q in it", got, w)
				}
			}
		})
	}
}

func TestHolderFindsThisProcess(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := os.Stat("/proc/net/tcp"); err != nil {
		if got := Holder(l.Addr().String()); !strings.Contains(got, "lsof") {
			t.Errorf("Holder = %q, want how to find out", got)
		}
		return
	}
	if got, want := Holder(l.Addr().String()), fmt.Sprintf("(pid %d)", os.Getpid()); !strings.Contains(got, want) {
		t.Errorf("Holder = %q, want %q in it", got, want)
	}
}
