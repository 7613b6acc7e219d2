package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// maxFile bounds a config file: a larger one is a mistake, such as the path of a model.
const maxFile = 1 << 20

// Load reads the file, checks it and what it refers to (secrets, certificates), and returns the effective configuration
// with its warnings. The error is Faults when the file was read: all of them at once.
func Load(file string) (*Config, Faults, error) {
	data, err := readRegular(file, maxFile)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: cannot be read: %w", file, err)
	}
	c, found := parse(data, file)
	found.outside(c)
	report := found.done()
	if err := report.Err(); err != nil {
		return nil, report.Warnings, err
	}
	c.Resolve()
	return c, report.Warnings, nil
}

// Parse checks the text of a config file and returns the effective configuration, nil when there is a fault. file names
// it in faults, and its folder is where relative paths start. Nothing outside the text is read: not the secrets, no other file.
func Parse(data []byte, file string) (*Config, *Report) {
	c, found := parse(data, file)
	report := found.done()
	if report.Err() != nil {
		return nil, report
	}
	c.Resolve()
	return c, report
}

// parse decodes the text over the defaults and applies every rule that needs nothing but the text.
func parse(data []byte, file string) (*Config, *findings) {
	c, found := Default(), newFindings(file)
	c.File = file
	top := found.syntax(data)
	if top == nil {
		return c, found
	}
	d := &decoder{findings: found, dir: filepath.Dir(file)}
	d.structure(top, reflect.ValueOf(c).Elem(), nil)
	(&rules{findings: found, c: c}).all()
	return c, found
}

// syntax parses the one document of a file. It returns nil after a fault that leaves nothing to decode.
func (f *findings) syntax(data []byte) *yaml.Node {
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		f.add(nil, "is no UTF-8 text", "")
		return nil
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		f.add(nil, err.Error(), "")
		return nil
	}
	var doc, second yaml.Node
	err = loader.Load(&doc)
	if errors.Is(err, io.EOF) || err == nil && (len(doc.Content) == 0 || isEmpty(doc.Content[0])) {
		f.add(nil, "is empty: it needs backends and pools at least", "")
		return nil
	}
	if err != nil {
		f.unreadable(data, err)
		return nil
	}
	top := doc.Content[0]
	switch err := loader.Load(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		f.unreadable(data, err)
	default:
		f.misread(second.Line, 0, "a second document begins here: one file is one configuration, take the --- out")
	}
	if top.Kind != yaml.MappingNode || top.Anchor != "" || top.Style&yaml.TaggedStyle != 0 {
		f.misread(top.Line, top.Column, "must be a plain mapping of keys to values, not "+form(top))
		return nil
	}
	return top
}

// isEmpty reports whether a document holds nothing.
func isEmpty(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Value == "" && kindOf(n) == isNull
}

// misread records a fault at a line, of no path.
func (f *findings) misread(line, column int, msg string) {
	f.report.Faults = append(f.report.Faults, Fault{File: f.file, Line: line, Column: column, Msg: msg})
}

// unreadable records what the YAML parser could not read, with a hint where the line shows a common mistake.
func (f *findings) unreadable(data []byte, err error) {
	var load *yaml.LoadError
	if !errors.As(err, &load) {
		f.misread(0, 0, "is no YAML: "+err.Error())
		return
	}
	line, msg := load.Mark.Line, load.Message
	lines := strings.Split(string(data), "\n")
	text := ""
	if line >= 1 && line <= len(lines) {
		text = lines[line-1]
	}
	switch indent := text[:len(text)-len(strings.TrimLeft(text, " \t"))]; {
	case strings.Contains(indent, "\t"):
		msg = "a tab indents this line: YAML takes spaces only"
	case starValue(text):
		msg += ": a text that begins with * must be quoted, as in models: [\"*\"]"
	case strings.Contains(msg, "mapping values"):
		msg += ": a text with a colon and a space must be quoted"
	}
	f.misread(line, load.Mark.Column, "is no YAML: "+msg)
}

// starValue reports whether an unquoted star begins a key or value on the line.
func starValue(line string) bool {
	at := strings.IndexByte(line, '*')
	if at < 0 {
		return false
	}
	before := strings.TrimRight(line[:at], " \t")
	return before == "" || strings.ContainsRune("[{,:-", rune(before[len(before)-1]))
}
