package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
)

// hidden is what a secret prints as, everywhere.
const hidden = "<secret>"

// maxSecret bounds a secret file, so that a reference to a large file or a device is an error and no hang.
const maxSecret = 64 << 10

var (
	envRef  = regexp.MustCompile(`^\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}$`)
	fileRef = regexp.MustCompile(`^\$\{file:([^{}$\x00-\x1f]+)\}$`)
)

// Secret is a value given by reference only, ${env:NAME} or ${file:PATH}. The zero value is "no secret".
// It prints as <secret> in every form: fmt, JSON, YAML, slog. Copies share what was read; it is safe for concurrent use.
type Secret struct {
	src *source
}

// source is where a secret comes from, and what was read there last.
type source struct {
	ref  string // as written
	env  string // name of the variable, or
	file string // path of the file, relative ones already joined with the folder of the config file

	mu    sync.Mutex // guards the fields below
	read  bool
	raw   string    // of a variable: as it was when value was made of it
	mtime time.Time // of a file, likewise
	size  int64
	value string
}

// NewSecret makes a secret from a reference. A relative file is taken from dir, the folder of the config file.
// The reference is checked for its form only: Value reads it.
func NewSecret(ref, dir string) (Secret, error) {
	if m := envRef.FindStringSubmatch(ref); m != nil {
		return Secret{&source{ref: ref, env: m[1]}}, nil
	}
	if m := fileRef.FindStringSubmatch(ref); m != nil {
		file := m[1]
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		return Secret{&source{ref: ref, file: file}}, nil
	}
	return Secret{}, errors.New("a secret is given by reference: write \"${env:NAME}\" or \"${file:PATH}\" and nothing beside it")
}

// IsZero reports whether no secret is set.
func (s Secret) IsZero() bool { return s.src == nil }

// Ref returns the reference as written, which is no secret itself; "" when none is set.
func (s Secret) Ref() string {
	if s.src == nil {
		return ""
	}
	return s.src.ref
}

// Equal reports whether both refer to the same place. It reads nothing.
func (s Secret) Equal(t Secret) bool {
	if s.src == nil || t.src == nil {
		return s.src == t.src
	}
	return s.src.ref == t.src.ref && s.src.file == t.src.file
}

// Value returns the current value without a trailing newline. An environment variable is read as it is; a file is
// read again when its time or size has changed, else this costs one stat. The zero secret is "". It is an error
// when the variable is unset, the file cannot be read, or the value is empty; the error never holds the value.
func (s Secret) Value() (string, error) {
	switch {
	case s.src == nil:
		return "", nil
	case s.src.env != "":
		return s.src.variable()
	}
	return s.src.content()
}

// variable returns the value of the environment variable, checking it only when it has changed.
func (s *source) variable() (string, error) {
	raw, ok := os.LookupEnv(s.env)
	if !ok {
		return "", fmt.Errorf("the environment variable %s is not set", s.env)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read && raw == s.raw {
		return s.value, nil
	}
	value, err := checked(raw, "the environment variable "+s.env)
	if err != nil {
		return "", err
	}
	s.read, s.raw, s.value = true, raw, value
	return value, nil
}

// content returns the value of the file, reading it only when it has changed.
func (s *source) content() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(s.file)
	if err != nil {
		return "", fmt.Errorf("the secret file %s cannot be read: %w", s.file, cause(err))
	}
	if s.read && info.ModTime().Equal(s.mtime) && info.Size() == s.size {
		return s.value, nil
	}
	value, err := readSecret(s.file)
	if err != nil {
		return "", err
	}
	s.read, s.mtime, s.size, s.value = true, info.ModTime(), info.Size(), value
	return value, nil
}

// readSecret reads the value in a file.
func readSecret(file string) (string, error) {
	data, err := readRegular(file, maxSecret)
	if err != nil {
		return "", fmt.Errorf("the secret file %s cannot be read: %w", file, err)
	}
	return checked(string(data), "the secret file "+file)
}

// readRegular reads a regular file of at most limit bytes. Devices and pipes are refused: they could hang or never end.
func readRegular(file string, limit int64) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, cause(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, cause(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, cause(err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("it is larger than %s", Bytes(limit))
	}
	return data, nil
}

// checked returns the value as it is sent: without its last newline, and refused when it cannot be a secret.
func checked(value, where string) (string, error) {
	value = strings.TrimSuffix(strings.TrimSuffix(value, "\n"), "\r")
	switch {
	case strings.TrimSpace(value) == "":
		return "", fmt.Errorf("%s is empty", where)
	case strings.IndexFunc(value, unicode.IsControl) >= 0:
		return "", fmt.Errorf("%s holds a line break or another control character, which no header can carry", where)
	case placeholder.MatchString(strings.TrimSpace(value)):
		return "", fmt.Errorf("%s holds a placeholder, no secret: set the real value", where)
	}
	return value, nil
}

// cause strips the operation and path that os puts before an error: the caller names the file already.
func cause(err error) error {
	var pathErr *os.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// String returns <secret>, or "" for the zero secret.
func (s Secret) String() string {
	if s.src == nil {
		return ""
	}
	return hidden
}

// GoString returns what String returns.
func (s Secret) GoString() string { return s.String() }

// LogValue returns what String returns.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns what String returns; JSON uses it too.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML returns what String returns. Config.YAML writes the reference instead, so that it can be read again.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }
