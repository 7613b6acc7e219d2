// Package internal_test holds the shape of the whole project: who may import whom, and the rules of the house that a
// machine can see. It reads the source itself and runs nothing of it.
package internal_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// floors says what each package may import of ours, by its folder under internal. It is the table of the design's
// chapter 9: whoever adds a package or an edge changes both, with the reason in the commit. "*" is every package.
var floors = map[string]string{
	"llm": "", "config": "", "event": "", "store": "",

	"llm/openai": "llm", "llm/anthropic": "llm", "llm/responses": "llm", "llm/tokens": "llm", "llm/llmtest": "llm",
	"key": "store", "spend": "config store", "backend": "llm", "route": "config llm", "triage": "llm", "gate": "llm",
	"probe": "event", "alert": "event", "swap": "event", "smoke": "llm", "sim": "llm",
	"version": "config store", "report": "config store", "discover": "config",

	"pool": "backend event llm", "server": "event key llm",
	"swap/portainer": "swap", "swap/docker": "swap", "swap/process": "swap", "swap/llamacpp": "swap", "swap/swaptest": "swap",
	"eval": "llm gate triage", "triage/train": "llm gate triage",

	"relay": "backend event gate llm pool route triage", // backend: the call and answer that a lease is used with
	"admin": "alert config event key pool report spend store swap version",
	"app":   "*",
	"drill": "app config event llm sim swap", // config: the operator's own is changed before it is built

	"../cmd/weir": "*", "../bench": "", "../scripts/gotest": "",
}

// testsMay is what test files may import from every floor.
var testsMay = []string{"sim", "llm/llmtest", "swap/swaptest"}

// testsMayToo is what the tests of single packages import beside that: the house mocks none of its own packages.
var testsMayToo = map[string][]string{
	"backend": {"llm/openai", "llm/anthropic"}, // a call needs a dialect; one has headers of its own
	"pool":    {"llm/openai"},                  // and so does a backend
}

// tops may be imported by nobody but those named: "*" in floors does not reach them.
var tops = map[string][]string{"app": {"drill", "../cmd/weir"}, "drill": {"../cmd/weir"}, "llm/llmtest": nil, "swap/swaptest": nil}

// noExec are the packages that touch what clients send: none of them may start a program (S39).
var noExec = []string{"server", "admin", "relay", "backend", "pool", "llm"}

// bareGo are the goroutines started outside sync.WaitGroup.Go in packages of a request's path, each with the
// reason why no fault in it can end the process (S46). The key is folder and function.
var bareGo = map[string]string{
	"app.finish": "waits and closes a channel: runs nothing of a request",
}

// requestPath are the packages in which a goroutine may belong to a request.
var requestPath = []string{"app", "server", "admin", "relay", "route", "triage", "gate", "pool", "backend", "llm", "key", "spend"}

const (
	maxFile = 800 // lines
	maxFunc = 80
)

// source is one Go file.
type source struct {
	dir  string // its folder seen from internal: "llm/openai", "../cmd/weir"
	name string
	text string
	file *ast.File
	fset *token.FileSet
}

func (s *source) isTest() bool { return strings.HasSuffix(s.name, "_test.go") }

// at names a place for a person.
func (s *source) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", path.Join("internal", s.dir, s.name), s.fset.Position(n.Pos()).Line)
}

// under reports whether the file's package is one of the folders or below one.
func (s *source) under(dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return s.dir == d || strings.HasPrefix(s.dir, d+"/") })
}

// parse reads one file's text.
func parse(t *testing.T, dir, name, text string) *source {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("%s/%s: %v", dir, name, err)
	}
	return &source{dir: dir, name: name, text: text, file: file, fset: fset}
}

// sources reads every Go file of the project.
func sources(t *testing.T) []*source {
	t.Helper()
	var all []*source
	for _, root := range []string{".", "../cmd", "../bench", "../scripts"} {
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(p) != ".go" || strings.Contains(p, "testdata") {
				return err
			}
			text, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			all = append(all, parse(t, filepath.ToSlash(filepath.Dir(p)), d.Name(), string(text)))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(all) < 50 {
		t.Fatalf("only %d Go files found", len(all))
	}
	return all
}

// rule looks at one file and tells what is wrong, a line each.
type rule func(*source) []string

// rules are the rules of single files by the sentence that each holds.
var rules = map[string]rule{
	"every import of ours stands in the table of floors":          importsOnFloors,
	"exported names have a comment that begins with the name":     documented,
	"there is no init function":                                   noInit,
	"nothing below cmd prints to standard output":                 noPrint,
	"no program is started where client data goes (S39)":          noExecution,
	"no goroutine of a request can end the process (S46)":         noBareGo,
	"files and functions stay short":                              short,
	"no test is skipped":                                          noSkip,
	"no path of one machine and no host of a registry is in code": noMachine,
}

func TestHouseRules(t *testing.T) {
	all := sources(t)
	for sentence, check := range rules {
		t.Run(sentence, func(t *testing.T) {
			for _, s := range all {
				for _, fault := range check(s) {
					t.Error(fault)
				}
			}
		})
	}
	t.Run("every package has one comment", func(t *testing.T) {
		for _, fault := range packageComments(all) {
			t.Error(fault)
		}
	})
	t.Run("every goroutine excused is there", func(t *testing.T) {
		for _, fault := range staleExcuses(all) {
			t.Error(fault)
		}
	})
}

// TestFloorsGoDown holds the table itself: no cycle, no package that nobody described.
func TestFloorsGoDown(t *testing.T) {
	var visit func(pkg string, trail []string)
	visit = func(pkg string, trail []string) {
		if slices.Contains(trail, pkg) {
			t.Fatalf("a cycle: %s", strings.Join(append(trail, pkg), " → "))
		}
		list, known := floors[pkg]
		if !known {
			t.Fatalf("%s is allowed to %s and stands nowhere", pkg, trail[len(trail)-1])
		}
		if list == "*" {
			return
		}
		for _, next := range strings.Fields(list) {
			visit(next, append(slices.Clone(trail), pkg))
		}
	}
	for pkg := range floors {
		visit(pkg, nil)
	}
}

// importsOnFloors tells imports of ours that the table does not allow. In tests the package itself, what it may import
// and the fakes are allowed.
func importsOnFloors(s *source) (faults []string) {
	if s.dir == "." {
		return nil // this test
	}
	list, known := floors[s.dir]
	if !known {
		return []string{s.at(s.file) + ": the package is not in the table of floors"}
	}
	for _, spec := range s.file.Imports {
		target, ours := folder(strings.Trim(spec.Path.Value, `"`))
		if !ours || allowed(s, list, target) {
			continue
		}
		faults = append(faults, fmt.Sprintf("%s: %s may not import %s (it may: %s)", s.at(spec), s.dir, target, list))
	}
	return faults
}

func allowed(s *source, list, target string) bool {
	if s.isTest() && (target == s.dir || slices.Contains(testsMay, target) || slices.Contains(testsMayToo[s.dir], target)) {
		return true
	}
	if above, limited := tops[target]; limited {
		return slices.Contains(above, s.dir)
	}
	return list == "*" && !strings.HasPrefix(target, "../") || slices.Contains(strings.Fields(list), target)
}

// folder turns an import path into a folder seen from internal; ours is false for packages of others.
func folder(importPath string) (dir string, ours bool) {
	rest, ours := strings.CutPrefix(importPath, "weir/")
	if below, ok := strings.CutPrefix(rest, "internal/"); ok {
		return below, ours
	}
	return "../" + rest, ours
}

// documented tells exported names without a comment that begins with the name.
func documented(s *source) (faults []string) {
	if s.isTest() {
		return nil
	}
	want := func(n ast.Node, name string, doc *ast.CommentGroup) {
		text := strings.TrimSpace(doc.Text())
		for _, article := range []string{"A ", "An ", "The "} {
			text = strings.TrimPrefix(text, article)
		}
		if !strings.HasPrefix(text, name+" ") && !strings.HasPrefix(text, name+"'s ") && !strings.HasPrefix(text, name+",") {
			faults = append(faults, fmt.Sprintf("%s: %s needs a comment: a full sentence that begins with its name", s.at(n), name))
		}
	}
	for _, decl := range s.file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))) {
				want(d, d.Name.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if ts, ok := spec.(*ast.TypeSpec); ok && ts.Name.IsExported() {
					want(ts, ts.Name.Name, firstDoc(ts.Doc, d.Doc))
				}
				if vs, ok := spec.(*ast.ValueSpec); ok && exported(vs) && vs.Doc == nil && vs.Comment == nil && d.Doc == nil {
					faults = append(faults, fmt.Sprintf("%s: %s needs a comment, on its line or on its block", s.at(vs), vs.Names[0]))
				}
			}
		}
	}
	return faults
}

func exported(vs *ast.ValueSpec) bool {
	return slices.ContainsFunc(vs.Names, func(n *ast.Ident) bool { return n.IsExported() })
}

func firstDoc(docs ...*ast.CommentGroup) *ast.CommentGroup {
	for _, d := range docs {
		if d != nil {
			return d
		}
	}
	return nil
}

// receiver returns the name of a method's type, "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	expr := d.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

// noInit tells init functions: whatever a program needs is wired in app.
func noInit(s *source) (faults []string) {
	for _, decl := range s.file.Decls {
		if d, ok := decl.(*ast.FuncDecl); ok && d.Recv == nil && d.Name.Name == "init" {
			faults = append(faults, s.at(d)+": no init functions: wire it in app")
		}
	}
	return faults
}

// noPrint tells output that no caller chose.
func noPrint(s *source) (faults []string) {
	if strings.HasPrefix(s.dir, "../") || s.isTest() {
		return nil
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch e := n.(type) {
		case *ast.CallExpr:
			if id, ok := e.Fun.(*ast.Ident); ok && (id.Name == "println" || id.Name == "print") {
				faults = append(faults, s.at(n)+": print with the logger that is passed in")
			}
		case *ast.SelectorExpr:
			switch name := selector(e); name {
			case "fmt.Print", "fmt.Printf", "fmt.Println", "log.Print", "log.Printf", "log.Println", "os.Stdout", "os.Stderr":
				faults = append(faults, s.at(n)+": "+name+": write to the logger or writer that is passed in")
			}
		}
		return true
	})
	return faults
}

// selector returns package and name of an expression such as fmt.Println.
func selector(e *ast.SelectorExpr) string {
	if id, ok := e.X.(*ast.Ident); ok {
		return id.Name + "." + e.Sel.Name
	}
	return ""
}

// noExecution tells imports that start programs or load code.
func noExecution(s *source) (faults []string) {
	if s.isTest() || !s.under(noExec) {
		return nil
	}
	for _, spec := range s.file.Imports {
		switch spec.Path.Value {
		case `"os/exec"`, `"plugin"`, `"text/template"`, `"html/template"`:
			if s.dir == "admin" && spec.Path.Value == `"html/template"` {
				continue // its templates are compiled in
			}
			faults = append(faults, s.at(spec)+": "+spec.Path.Value+" is not for a package that reads what clients send")
		}
	}
	return faults
}

// noBareGo tells go statements in packages of a request's path. sync.WaitGroup.Go is for those of an owner that waits.
func noBareGo(s *source) (faults []string) {
	for name, n := range goStatements(s) {
		if _, excused := bareGo[s.dir+"."+name]; !excused {
			faults = append(faults, fmt.Sprintf("%s: a bare go statement in %s: a panic in it ends the process; let an owner run and wait for it, or excuse it in bareGo with the reason", s.at(n), name))
		}
	}
	return faults
}

// goStatements returns the go statements of a file by the function around them.
func goStatements(s *source) map[string]ast.Node {
	found := map[string]ast.Node{}
	if s.isTest() || !s.under(requestPath) {
		return found
	}
	for _, decl := range s.file.Decls {
		d, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(d, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				found[d.Name.Name] = g
			}
			return true
		})
	}
	return found
}

func staleExcuses(all []*source) (faults []string) {
	found := map[string]bool{}
	for _, s := range all {
		for name := range goStatements(s) {
			found[s.dir+"."+name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(bareGo)) {
		if !found[name] {
			faults = append(faults, "bareGo excuses "+name+", which is gone")
		}
	}
	return faults
}

// short tells files and functions that are too long to be read at once. The rows of a test's table are data, read one by
// one: they do not count.
func short(s *source) (faults []string) {
	if n := strings.Count(s.text, "\n"); n > maxFile {
		faults = append(faults, fmt.Sprintf("%s: %d lines, at most %d", s.at(s.file), n, maxFile))
	}
	for _, decl := range s.file.Decls {
		d, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		n := s.lines(d) + 1
		if s.isTest() {
			n -= s.rows(d)
		}
		if n > maxFunc {
			faults = append(faults, fmt.Sprintf("%s: %s has %d lines, at most %d", s.at(d), d.Name, n, maxFunc))
		}
	}
	return faults
}

// lines returns over how many lines a node goes on.
func (s *source) lines(n ast.Node) int {
	return s.fset.Position(n.End()).Line - s.fset.Position(n.Pos()).Line
}

// rows counts the lines of the tables in a function: its outermost composite literals, less the functions in them.
func (s *source) rows(d *ast.FuncDecl) (n int) {
	inTable := false
	var visit func(ast.Node) bool
	visit = func(node ast.Node) bool {
		switch e := node.(type) {
		case *ast.CompositeLit:
			if !inTable {
				n += s.lines(e)
				inTable = true
				for _, elt := range e.Elts {
					ast.Inspect(elt, visit)
				}
				inTable = false
				return false
			}
		case *ast.FuncLit:
			if inTable {
				n -= s.lines(e)
				return false
			}
		}
		return true
	}
	ast.Inspect(d, visit)
	return n
}

// noSkip tells tests that may not run. Long ones are made longer by WEIR_LONG=1, never left out. (A rapid.T skips an
// action that does not fit its state, that is no test.)
func noSkip(s *source) (faults []string) {
	if !s.isTest() {
		return nil
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if e, ok := n.(*ast.SelectorExpr); ok {
			switch name := selector(e); name {
			case "t.Skip", "t.Skipf", "t.SkipNow", "b.Skip", "f.Skip", "testing.Short":
				faults = append(faults, s.at(n)+": "+name+": a test that cannot run must fail")
			}
		}
		return true
	})
	return faults
}

// machine matches what holds on one machine only, or names a registry. It is put together so as not to match itself.
var machine = regexp.MustCompile(`(^|[^A-Za-z0-9_.])/(ho` + `me|ro` + `ot|wo` + `rk|Us` + `ers)/[A-Za-z]|registry\.npm` + `js|proxy\.gol` + `ang|registry\.yarn` + `pkg`)

// noMachine tells paths and hosts that other machines do not have.
func noMachine(s *source) (faults []string) {
	for i, line := range strings.Split(s.text, "\n") {
		if found := machine.FindString(line); found != "" {
			faults = append(faults, fmt.Sprintf("%s:%d: %q holds on one machine only", path.Join("internal", s.dir, s.name), i+1, strings.TrimSpace(found)))
		}
	}
	return faults
}

// packageComments tells packages without a comment, or with more than one.
func packageComments(all []*source) (faults []string) {
	count := map[string]int{}
	for _, s := range all {
		if s.isTest() || s.dir == "." {
			continue
		}
		n := count[s.dir]
		if doc := s.file.Doc.Text(); doc != "" {
			n++
			if want := "Package " + s.file.Name.Name + " "; s.file.Name.Name != "main" && !strings.HasPrefix(doc, want) {
				faults = append(faults, s.at(s.file)+": the comment of the package must begin with "+want)
			}
		}
		count[s.dir] = n
	}
	for _, dir := range slices.Sorted(maps.Keys(count)) {
		if n := count[dir]; n != 1 {
			faults = append(faults, fmt.Sprintf("%s: %d package comments, want one", dir, n))
		}
	}
	return faults
}

// TestNothingButCodeIsTied looks for machine paths and registry hosts in what is not Go.
func TestNothingButCodeIsTied(t *testing.T) {
	files, err := filepath.Glob("../*")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"../scripts/*", "../.ci/*", "../docs/*", "../examples/*", "../test/sdk/*", "../test/sdk/.npmrc", "../test/agents/*", "../test/agents/recorded/*"} {
		more, err := filepath.Glob(pattern)
		if err != nil || len(more) == 0 {
			t.Fatalf("%s: %v, %d files", pattern, err, len(more))
		}
		files = append(files, more...)
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if !info.Mode().IsRegular() || info.Size() > 1<<20 {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := machine.FindString(string(text)); found != "" {
			t.Errorf("%s: %q holds on one machine only", file, strings.TrimSpace(found))
		}
	}
}
