package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test binary stand in for the two programs that "bench all"
// starts: itself, and a Weir.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"mock", "revproxy", "load", "check", "keys", "run"}, os.Args[1]) {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if code, ok := standIn(ctx, os.Args[1:]); ok {
			os.Exit(code)
		}
		os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

const testKey = "weir_test-key"

// standIn acts as the words of Weir that the benchmark uses.
func standIn(ctx context.Context, args []string) (code int, ok bool) {
	switch args[0] {
	case "check":
		return 0, true
	case "keys":
		fmt.Printf("key bench added, shown once:\n\n%s\n", testKey)
		return 0, true
	case "run":
		if err := standInRun(ctx, args[len(args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

func standInRun(ctx context.Context, file string) error {
	config, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	listen := regexp.MustCompile(`(?m)^listen: (.*)$`).FindSubmatch(config)
	upstream := regexp.MustCompile(`url: "http://([^"]*)"`).FindSubmatch(config)
	if listen == nil || upstream == nil {
		return errors.New("the configuration lacks listen or url")
	}
	proxy := fullDuplex(newRevproxy(string(upstream[1])))
	always := bytes.Contains(config, []byte("stream: always"))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+testKey:
			w.WriteHeader(http.StatusUnauthorized)
		case always:
			_, _ = fmt.Fprintf(w, `{"object":"chat.completion","choices":[{"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],`+
				`"usage":{"completion_tokens":%d}}`, wholeText(defaultChunks), defaultChunks)
		default:
			proxy.ServeHTTP(w, r)
		}
	})
	return serve(ctx, string(listen[1]), mux)
}

func TestAllMeasuresTheThreeSubjects(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cores, err := allowedCores()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out.json")
	var stdout, stderr bytes.Buffer
	err = runAll(t.Context(), []string{"-weir", self, "-rounds", "1", "-duration", "200ms", "-cases", "small,assembled,start", "-out", out}, &stdout, &stderr)
	if len(cores) < 2 {
		if err == nil || !strings.Contains(err.Error(), "two processors") {
			t.Fatalf("on one processor it must say what it needs, got %v", err)
		}
		return
	}
	if err != nil && !errors.Is(err, errMiss) { // a stand-in may be slower than the limits
		t.Fatalf("%v\n%s", err, &stderr)
	}
	for _, want := range []string{"small: ", "assembled: ", "CPU per small request", "first proxied 200", "Fewer than 5 rounds"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("the tables lack %q:\n%s", want, &stdout)
		}
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Runs []result }
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range doc.Runs {
		got = append(got, r.Case+" "+r.Subject)
		if r.Requests == 0 || r.bad() != 0 || r.CPURequest <= 0 {
			t.Errorf("%s on %s: %d whole, %d not (%s), %.1f µs of processor time", r.Case, r.Subject, r.Requests, r.bad(), r.FirstError, r.CPURequest)
		}
	}
	slices.Sort(got)
	want := []string{"assembled direct", "assembled revproxy", "assembled weir-assembled", "small direct", "small revproxy", "small weir"}
	if !slices.Equal(got, want) {
		t.Errorf("runs: got %q, want %q", got, want)
	}
}

func TestWordsRefuseWhatTheyCannotDo(t *testing.T) {
	tests := []struct {
		name string
		args string
		says string
	}{
		{"no word", "", "usage:"},
		{"an unknown word", "fly", "unknown word"},
		{"an unknown flag", "load -speed 9", "not defined"},
		{"an argument too many", "mock now", "unexpected argument"},
		{"load on another machine", "load -addr 192.0.2.1:80", "not a loopback"},
		{"load on a name", "load -addr localhost:80", "not a loopback"},
		{"a mock that others could reach", "mock -listen 0.0.0.0:0", "not a loopback"},
		{"a proxy to another machine", "revproxy -upstream 192.0.2.1:80", "not a loopback"},
		{"too many connections", "load -connections 100000", "connections must be"},
		{"a run without end", "load -duration 24h", "duration must be"},
		{"an unknown body", "load -body huge", "unknown body"},
		{"an unknown case", "all -cases small,large", `unknown case "large"`},
		{"too many rounds", "all -rounds 1000", "rounds must be"},
		{"a Weir that is not there", "all -weir ./no-such-weir", "build it first"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if got := run(t.Context(), strings.Fields(tt.args), &stdout, &stderr); got != exitUsage {
				t.Errorf("exit %d, want %d", got, exitUsage)
			}
			if !strings.Contains(stderr.String(), tt.says) {
				t.Errorf("stderr %q does not say %q", &stderr, tt.says)
			}
		})
	}
}

func TestHelpIsNotAMistake(t *testing.T) {
	for _, word := range []string{"mock", "revproxy", "load", "all"} {
		var stdout, stderr bytes.Buffer
		if got := run(t.Context(), []string{word, "-h"}, &stdout, &stderr); got != exitOK {
			t.Errorf("%s -h: exit %d", word, got)
		}
	}
}

func TestStartSaysWhyAProgramDidNotServe(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	cores, err := allowedCores()
	if err != nil {
		t.Fatal(err)
	}
	p, err := start(program{name: "mock", path: self, args: []string{"mock", "-listen", ln.Addr().String()},
		core: cores[0], addr: "127.0.0.1:1", ready: "/health", logs: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	err = p.await(t.Context())
	if err == nil || !strings.Contains(err.Error(), "ended before it served") || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v, want the reason from its stderr", err)
	}
}
