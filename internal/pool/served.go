package pool

import (
	"slices"
	"strings"
)

// Served notes the model that the answer named, empty where it named none, and returns the "pool/model" that really
// served where that is another pool of the same vendor, else nothing. Enough of such answers in a row merge the pools
// (Merges). It is to be called once with each answer, before or after Done.
func (l *Lease) Served(named string) (by string) {
	if l.pool == nil {
		return ""
	}
	return l.pool.seat.served(l.model, named)
}

// served takes what an answer to asked named, and returns the pool and model that served it where that is another pool.
func (s *seat) served(asked, named string) string {
	if named == "" { // it says nothing, for or against: counts, sound, images
		return ""
	}
	if s == nil {
		return ""
	}
	serving := ""
	if !s.serves(asked, named) {
		serving = (*s.merges.index.Load())[id{s.vendor, named}]
	}
	if serving == "" || serving == s.name {
		if s.row.Load() != nil {
			s.merges.disperse(s)
		}
		return ""
	}
	s.merges.witness(s, serving, asked, named)
	return serving + "/" + named
}

// serves reports whether an answer that names a model may be the pool's own: none is named, or an id of the pool, or one
// with a date behind it, or the file that a server has it in.
func (s *seat) serves(asked, named string) bool {
	if named == "" || named == asked || isFile(named) {
		return true
	}
	bare := undated(named)
	return slices.ContainsFunc(s.ids, func(id string) bool {
		return strings.EqualFold(id, named) || strings.EqualFold(strings.TrimSuffix(id, "-latest"), bare)
	})
}

// isFile reports whether a name is a file's, as local servers tell it.
func isFile(name string) bool {
	for _, p := range []string{"/", "./", "../", "~", "file:"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	for _, end := range []string{".gguf", ".ggml", ".safetensors", ".bin", ".pt"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return strings.Contains(name, `\`)
}

// dates are the forms in which vendors add the date or the build of a model, longest first: 0 stands for any digit, - for
// what separates it.
var dates = []string{"-0000-00-00", "-00000000", "-0000-00", "-000000", "-00-00", "-0000", "-000"}

// undated returns a model's id without the date or build at its end.
func undated(id string) string {
	for _, form := range dates {
		if cut := len(id) - len(form); cut > 0 && fits(id[cut:], form) {
			return id[:cut]
		}
	}
	return strings.TrimSuffix(id, "-latest")
}

func fits(s, form string) bool {
	for i := range len(s) {
		if digit := s[i] >= '0' && s[i] <= '9'; digit != (form[i] == '0') || !digit && !strings.Contains("-_@:", s[i:i+1]) {
			return false
		}
	}
	return true
}
