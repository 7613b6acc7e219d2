package route

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"weir/internal/config"
	"weir/internal/llm"
)

// Near returns up to three names that model may have been meant to be, among those that may shows.
func (t *Table) Near(model string, may func(string) bool) []string {
	type guess struct {
		name string
		far  int
	}
	var list []guess
	for _, id := range t.ids {
		if d := distance(strings.ToLower(model), strings.ToLower(id.Name)); may(id.Name) && d <= 1+len(id.Name)/3 {
			list = append(list, guess{id.Name, d})
		}
	}
	slices.SortStableFunc(list, func(a, b guess) int { return cmp.Compare(a.far, b.far) })
	var names []string
	for _, g := range list[:min(3, len(list))] {
		names = append(names, g.name)
	}
	return names
}

// distance is the number of single-byte changes between a and b, over their first 64 bytes.
func distance(a, b string) int {
	a, b = a[:min(len(a), 64)], b[:min(len(b), 64)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// sampling turns a pool's parameters into raw JSON, in the order of their names.
func sampling(params map[string]*config.Param) []llm.Sampling {
	var out []llm.Sampling
	for _, name := range slices.Sorted(maps.Keys(params)) {
		p := params[name]
		out = append(out, llm.Sampling{Name: name, Strip: p.Strip, Force: raw(p.Force), Default: raw(p.Default)})
	}
	return out
}

func raw(v any) []byte {
	if v == nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil // values come from YAML scalars and lists: they can all be written
	}
	return b
}
