package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// SetPrices returns the text of a config file with its section prices replaced, or put at the end where there is none.
// All other bytes stay as they are: comments, layout, line ends. A text whose prices are these already is returned as it
// is. file names it in faults, as in Parse. The result is checked: it must have no fault and mean the same but for the
// prices, else there is an error and no text.
func SetPrices(data []byte, file string, prices Prices) ([]byte, error) {
	before, report := Parse(data, file)
	if before == nil {
		return nil, report.Err()
	}
	if reflect.DeepEqual(before.Prices, prices) {
		return data, nil
	}
	top := newFindings(file).syntax(data)
	if top.Style&yaml.FlowStyle != 0 {
		return nil, fmt.Errorf("%s: is written in braces, which cannot be edited with its layout kept: put the prices there by hand", file)
	}
	section, err := prices.section()
	if err != nil {
		return nil, err
	}
	text := replaceTop(data, top, "prices", section)
	after, report := Parse(text, file)
	if after == nil {
		return nil, fmt.Errorf("the file would not check with these prices:\n%w", report.Err())
	}
	got := after.Prices
	before.Prices, after.Prices = Prices{}, Prices{}
	if !reflect.DeepEqual(got, prices) || !reflect.DeepEqual(before, after) {
		return nil, fmt.Errorf("%s: has a form that cannot be edited with all else kept: put the prices there by hand", file)
	}
	return text, nil
}

// section writes the prices as the lines of their section, a model on each.
func (p Prices) section() (string, error) {
	node, err := encode(reflect.ValueOf(p))
	if err != nil {
		return "", err
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if models := node.Content[i+1]; models.Kind == yaml.MappingNode {
			for j := 1; j < len(models.Content); j += 2 {
				models.Content[j].Style = yaml.FlowStyle
			}
		}
	}
	whole := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{text("prices"), node}}
	out, err := yaml.Dump(whole, yaml.WithIndent(2), yaml.WithLineWidth(-1))
	return string(out), err
}

// replaceTop puts a section in the place of the top-level key's, or at the end of the mapping. A section reaches to the
// next key, without the comments and empty lines before it.
func replaceTop(data []byte, top *yaml.Node, key, section string) []byte {
	lines, end := strings.SplitAfter(string(data), "\n"), "\n"
	if strings.HasSuffix(lines[0], "\r\n") {
		end = "\r\n"
	}
	if n := len(lines); lines[n-1] == "" {
		lines = lines[:n-1]
	} else {
		lines[n-1] += end
	}
	indent, last, from, to := top.Content[0].Column-1, 0, -1, len(lines)
	for i := 0; i+1 < len(top.Content); i += 2 {
		at := top.Content[i].Line - 1
		indent, last = min(indent, top.Content[i].Column-1), max(last, at)
		switch {
		case top.Content[i].Value == key:
			from = at
		case from >= 0:
			to = min(to, at)
		}
	}
	for i := last + 1; i < len(lines); i++ { // the end of the document, where it is marked
		if line := strings.TrimRight(lines[i], " \t\r\n"); line == "..." {
			to = min(to, i)
		}
	}
	var added []string
	if from < 0 {
		from = to
		if strings.TrimSpace(lines[from-1]) != "" {
			added = append(added, end)
		}
	} else {
		for to > from+1 && isRemark(lines[to-1], indent) {
			to--
		}
	}
	for line := range strings.Lines(section) {
		added = append(added, strings.Repeat(" ", indent)+strings.TrimSuffix(line, "\n")+end)
	}
	return []byte(strings.Join(slices.Concat(lines[:from], added, lines[to:]), ""))
}

// isRemark reports whether a line is empty, or a comment that stands no deeper than the top-level keys.
func isRemark(line string, indent int) bool {
	rest := strings.TrimLeft(line, " ")
	return strings.TrimSpace(rest) == "" || rest[0] == '#' && len(line)-len(rest) <= indent
}

// Save replaces a config file by data, whole or not at all: it is written beside the file and renamed. was is the text
// that data was made of: a file that holds another one by now is left alone. Mode and owner stay; a link stays one, and
// what it leads to is replaced. A file that may not be written is refused even where its folder would allow it.
func Save(file string, was, data []byte) error {
	target, err := filepath.EvalSymlinks(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file, cause(err))
	}
	info, err := os.Stat(target)
	if err != nil {
		return fmt.Errorf("%s: %w", file, cause(err))
	}
	if err := writable(target, info.Mode()); err != nil {
		return fmt.Errorf("%s: is read-only, so nothing was written: %w", file, err)
	}
	temp, err := os.CreateTemp(filepath.Dir(target), ".weir-*.yaml")
	if err != nil {
		return fmt.Errorf("%s: its folder takes no new file, so nothing was written: %w", file, cause(err))
	}
	defer os.Remove(temp.Name()) // fails once it is renamed
	_, err = temp.Write(data)
	err = errors.Join(err, sameAccess(temp, info), temp.Sync(), temp.Close())
	if err != nil {
		return fmt.Errorf("%s: nothing was written: %w", file, err)
	}
	now, err := os.ReadFile(target)
	if err != nil || !bytes.Equal(now, was) {
		return fmt.Errorf("%s: was changed by someone else meanwhile, so nothing was written: try again", file)
	}
	if err := os.Rename(temp.Name(), target); err != nil {
		return fmt.Errorf("%s: cannot be replaced, so nothing was written: %w", file, err)
	}
	return nil
}

// writable reports why a file may not be written; for those whom no mode stops, its mode says it all the same.
func writable(file string, mode fs.FileMode) error {
	if mode.Perm()&0o200 == 0 {
		return fmt.Errorf("mode %04o", mode.Perm())
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return cause(err)
	}
	return f.Close()
}
