package internal_test

import (
	"strings"
	"testing"
)

// planted is one fault of each rule, and a neighbour that is right.
var planted = map[string]struct {
	rule      rule
	dir, name string
	bad, good string
}{
	"a floor that reaches up": {
		rule: importsOnFloors, dir: "llm",
		bad:  "package llm\nimport _ \"weir/internal/relay\"",
		good: "package llm\nimport _ \"strings\"",
	},
	"a sibling that the table does not name": {
		rule: importsOnFloors, dir: "server",
		bad:  "package server\nimport _ \"weir/internal/store\"",
		good: "package server\nimport _ \"weir/internal/key\"",
	},
	"a package that stands in no table": {
		rule: importsOnFloors, dir: "util",
		bad: "package util",
	},
	"a program imported as a package": {
		rule: importsOnFloors, dir: "app",
		bad:  "package app\nimport _ \"weir/bench\"",
		good: "package app\nimport _ \"weir/internal/sim\"",
	},
	"the composition root below": {
		rule: importsOnFloors, dir: "../bench",
		bad: "package main\nimport _ \"weir/internal/app\"",
	},
	"a fake outside tests": {
		rule: importsOnFloors, dir: "pool",
		bad: "package pool\nimport _ \"weir/internal/sim\"",
	},
	"a test that reaches up": {
		rule: importsOnFloors, dir: "pool", name: "x_test.go",
		bad:  "package pool_test\nimport _ \"weir/internal/app\"",
		good: "package pool_test\nimport (\n_ \"weir/internal/sim\"\n_ \"weir/internal/pool\"\n)",
	},
	"an exported function without a comment": {
		rule: documented, dir: "llm",
		bad:  "package llm\nfunc F() {}",
		good: "package llm\n// F does it.\nfunc F() {}\nfunc g() {}\ntype t int\nfunc (t) M() {}",
	},
	"a method whose comment speaks of something else": {
		rule: documented, dir: "llm",
		bad:  "package llm\n// T is one.\ntype T int\n// Does it.\nfunc (t *T) M() {}",
		good: "package llm\n// T is one.\ntype T int\n// M does it.\nfunc (t *T) M() {}",
	},
	"an exported constant without a comment": {
		rule: documented, dir: "llm",
		bad:  "package llm\nconst A = 1",
		good: "package llm\n// The letters.\nconst (\n\tA = 1\n\tB = 2\n)\nvar C = 3 // of the letters",
	},
	"an init function": {
		rule: noInit, dir: "llm",
		bad:  "package llm\nfunc init() {}",
		good: "package llm\ntype t int\nfunc (t) init() {}",
	},
	"a print below cmd": {
		rule: noPrint, dir: "llm",
		bad:  "package llm\nimport \"fmt\"\nfunc f() { fmt.Println() }",
		good: "package llm\nimport \"fmt\"\nfunc f() string { return fmt.Sprint() }",
	},
	"a program started by the server": {
		rule: noExecution, dir: "llm/openai",
		bad:  "package openai\nimport _ \"os/exec\"",
		good: "package openai\nimport _ \"os\"",
	},
	"a bare go statement in the relay": {
		rule: noBareGo, dir: "relay",
		bad:  "package relay\nfunc f() { go f() }",
		good: "package relay\nimport \"sync\"\nfunc f() { var g sync.WaitGroup; g.Go(f) }",
	},
	"a function that is too long": {
		rule: short, dir: "llm",
		bad:  "package llm\nfunc f() {\n" + strings.Repeat("\n", maxFunc) + "}",
		good: "package llm\nfunc f() {\n" + strings.Repeat("\n", maxFunc-2) + "}",
	},
	"a test whose code is too long": {
		rule: short, dir: "llm", name: "x_test.go",
		bad:  "package llm\nfunc f() {\n" + strings.Repeat("\n", maxFunc) + "}",
		good: "package llm\nfunc f() {\n_ = []int{\n" + strings.Repeat("1,\n", maxFunc) + "}\n}",
	},
	"a file that is too long": {
		rule: short, dir: "llm",
		bad:  "package llm\n" + strings.Repeat("\n", maxFile),
		good: "package llm\n" + strings.Repeat("\n", maxFile-1),
	},
	"a skipped test": {
		rule: noSkip, dir: "llm", name: "x_test.go",
		bad:  "package llm\nimport \"testing\"\nfunc TestX(t *testing.T) { t." + "Skip() }",
		good: "package llm\nimport \"testing\"\nfunc TestX(t *testing.T) { t.Log() }",
	},
	"a path of one machine": {
		rule: noMachine, dir: "llm",
		bad:  "package llm\nconst p = \"/ro" + "ot/x\"",
		good: "package llm\nconst p = \"/v1/work/x\"",
	},
}

// TestPlantedFaultsAreFound wants each planted fault told, and nothing said of its neighbour.
func TestPlantedFaultsAreFound(t *testing.T) {
	for name, test := range planted {
		t.Run(name, func(t *testing.T) {
			file := "x.go"
			if test.name != "" {
				file = test.name
			}
			if got := test.rule(parse(t, test.dir, file, test.bad)); len(got) != 1 {
				t.Errorf("got %q of the planted fault, want one", got)
			}
			if test.good == "" {
				return
			}
			if got := test.rule(parse(t, test.dir, file, test.good)); len(got) != 0 {
				t.Errorf("got %q of what is right, want nothing", got)
			}
		})
	}
}

func TestPackageWithoutCommentIsFound(t *testing.T) {
	bare := []*source{parse(t, "llm", "a.go", "package llm"), parse(t, "llm", "b.go", "package llm")}
	if got := packageComments(bare); len(got) != 1 {
		t.Errorf("got %q, want one fault", got)
	}
	right := append(bare, parse(t, "llm", "doc.go", "// Package llm is one.\npackage llm"))
	if got := packageComments(right); len(got) != 0 {
		t.Errorf("got %q, want none", got)
	}
}
