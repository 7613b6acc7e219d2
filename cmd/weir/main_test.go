package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

// leakless runs the tests and then looks for goroutines that they left behind.
type leakless struct{ *testing.M }

func (m leakless) Run() int {
	code := m.M.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func TestMain(m *testing.M) {
	testscript.Main(leakless{m}, map[string]func(){"weir": main})
}

// TestScripts runs each script in testdata/script in a folder of its own, with weir as a program.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", RequireExplicitExec: true, RequireUniqueNames: true, Cmds: scriptWords})
}

// TestEveryWordHelpsWithAnExample walks every word, those added later too.
func TestEveryWordHelpsWithAnExample(t *testing.T) {
	var out bytes.Buffer
	parser, err := newParser(t.Context(), &CLI{}, &Streams{Out: &out, Err: &out})
	if err != nil {
		t.Fatal(err)
	}
	words := parser.Model.Leaves(true)
	if len(words) == 0 {
		t.Fatal("no words")
	}
	for _, word := range words {
		t.Run(word.Path(), func(t *testing.T) {
			if word.Help == "" || !strings.HasSuffix(word.Help, ".") {
				t.Errorf("help is %q, want a sentence", word.Help)
			}
			if !strings.Contains(word.Detail, "Example:\n  weir "+strings.TrimPrefix(commandOf(word), "weir ")) {
				t.Errorf("%s --help has no example of %q:\n%s", word.FullPath(), commandOf(word), word.Detail)
			}
		})
	}
}

// commandOf returns the words of a node as they are typed, without arguments.
func commandOf(n *kong.Node) string {
	if n.Type == kong.ApplicationNode {
		return ""
	}
	return strings.TrimSpace(commandOf(n.Parent) + " " + n.Name)
}

func TestExitCodes(t *testing.T) {
	tests := map[string]struct {
		args   []string
		want   int
		stderr string
	}{
		"an unknown word is a fault of usage":       {[]string{"chek"}, exitUsage, `did you mean "check"`},
		"an unknown flag is a fault of usage":       {[]string{"check", "--frob"}, exitUsage, "see weir check --help"},
		"an unknown agent is a fault of usage":      {[]string{"agents", "emacs"}, exitUsage, `no agent is called "emacs"`},
		"a missing file is a failure":               {[]string{"check", "absent.yaml"}, exitFailed, "weir: absent.yaml: cannot be read"},
		"two forms at once are a fault of usage":    {[]string{"check", "--json", "--defaults"}, exitUsage, "can't be used together"},
		"a word that succeeds says nothing of kind": {[]string{"schema"}, exitOK, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			got := run(context.Background(), test.args, &Streams{Out: &out, Err: &errs})
			if got != test.want || !strings.Contains(errs.String(), test.stderr) || test.stderr == "" && errs.Len() > 0 {
				t.Errorf("got %d, %s; want %d, %s", got, errs.String(), test.want, test.stderr)
			}
		})
	}
}
