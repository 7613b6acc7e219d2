package config

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// TestDocsNameEveryKey holds docs/config.md to the types: each key that may stand in the file has its row.
func TestDocsNameEveryKey(t *testing.T) {
	text := readDocs(t)
	places := strings.Join(regexp.MustCompile(`(?m)^(\| [^|]*|##.*)`).FindAllString(text, -1), "\n") // first columns and titles
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Map || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ == secretType || seen[typ] {
			return
		}
		seen[typ] = true
		for _, f := range fieldsOf(typ) {
			if !f.later && !inWords[typ] && !regexp.MustCompile("[`.]"+regexp.QuoteMeta(f.key)+"[`.]").MatchString(places) {
				t.Errorf("docs/config.md has no row or section for %s of %v", f.key, typ)
			}
			walk(f.typ)
		}
	}
	walk(reflect.TypeFor[Config]())
}

// inWords are the types that docs/config.md explains in the row of what holds them.
var inWords = map[reflect.Type]bool{
	reflect.TypeFor[Queue](): true, reflect.TypeFor[Model](): true, reflect.TypeFor[Param](): true,
	reflect.TypeFor[Step](): true, reflect.TypeFor[Alias](): true,
}

// TestDocsHaveTheServersDefaults holds the table of servers in docs/config.md to the code.
func TestDocsHaveTheServersDefaults(t *testing.T) {
	text := readDocs(t)
	for _, name := range sorted(servers) {
		s := servers[name]
		want := "| `" + strings.Join([]string{
			name, s.dialect, s.stream, s.usage, s.null, s.developer, s.reasoning, s.system, s.line, Duration(s.idle).String(),
		}, "` | `") + "` |"
		if !strings.Contains(text, want) {
			t.Errorf("docs/config.md lacks the row\n%s", want)
		}
	}
}

// TestDocsHaveTheDefaults holds the defaults of the top levels in docs/config.md to Default.
func TestDocsHaveTheDefaults(t *testing.T) {
	text := readDocs(t)
	c := Default()
	for key, value := range map[string]any{
		"listen": c.Listen, "admin": c.Admin, "data": c.Data, "commit_after": c.CommitAfter, "drain": c.Drain,
		"attempts.generations": c.Attempts.Generations, "max_body": c.Server.MaxBody, "max_depth": c.Server.MaxDepth,
		"header_timeout": c.Server.HeaderTimeout, "body_timeout": c.Server.BodyTimeout, "idle_timeout": c.Server.IdleTimeout,
		"write_timeout": c.Server.WriteTimeout, "max_per_address": c.Server.MaxPerAddress, "first_content": c.Limits.FirstContent,
		"total": c.Limits.Total, "answer": c.Limits.Answer, "wait": c.Limits.Wait, "swap_wait": c.Limits.SwapWait,
		"log.format": c.Log.Format, "log.level": c.Log.Level, "events.keep": c.Events.Keep, "events.max_size": c.Events.MaxSize,
		"max_tokens": c.Requests.MaxTokens, "choices": c.Requests.Choices, "tools": c.Requests.Tools, "tool_bytes": c.Requests.ToolBytes,
		"top_logprobs": c.Requests.TopLogprobs, "traces.sample": *c.Traces.Sample, "queue": defaultQueue,
	} {
		if want := fmt.Sprintf("| `%s` | `%v` |", key, value); !strings.Contains(text, want) {
			t.Errorf("docs/config.md lacks a row that begins with %s", want)
		}
	}
}

func readDocs(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
