package responses

import (
	"fmt"
	"strings"
	"testing"

	"weir/internal/llm"
)

// checkStream fails where a stream breaks the protocol: see violations.
func checkStream(t testing.TB, stream string, begun bool) []string {
	t.Helper()
	names, err := violations(stream, begun)
	if err != nil {
		t.Fatalf("%v in\n%s", err, stream)
	}
	return names
}

// violations reads a stream as a strict client does and returns the names of its events, with the first breach of the
// protocol: an event without its name, a number that does not rise by one, a delta of an item or part that is not open,
// an end that does not say what its deltas said, an output of the end that is not what the items were, events behind it.
// begun says that it must begin with its start.
func violations(stream string, begun bool) ([]string, error) {
	c := checker{items: map[string]*checked{}}
	var names []string
	for _, chunk := range strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		if strings.HasPrefix(chunk, ":") {
			continue
		}
		head, data, ok := strings.Cut(chunk, "\ndata: ")
		name, named := strings.CutPrefix(head, "event: ")
		if !ok || !named || strings.Contains(data, "\n") {
			return names, fmt.Errorf("not an event of two lines: %q", chunk)
		}
		if !llm.IsObject([]byte(data)) {
			return names, fmt.Errorf("no JSON object: %s", data)
		}
		names = append(names, name)
		c.begun = c.begun || !begun
		if err := c.event(name, []byte(data)); err != nil {
			return names, fmt.Errorf("%s: %w", data, err)
		}
	}
	if !c.over {
		return names, fmt.Errorf("the stream has no end")
	}
	return names, nil
}

type checker struct {
	seq   int64
	begun bool
	over  bool
	id    string
	items map[string]*checked // by output_index
	order []string
}

type checked struct {
	id, kind string
	part     string // type of the open part, if any
	text     string
	done     string
	parts    int
}

func str(data []byte, name string) string { return string(llm.Inside(member(data, name))) }

func (c *checker) event(name string, data []byte) error {
	if c.over {
		return fmt.Errorf("stands behind the end")
	}
	if str(data, "type") != name {
		return fmt.Errorf("is named %s", name)
	}
	if n, ok := llm.Int(member(data, "sequence_number")); !ok || c.begun && c.seq > 0 && n != c.seq {
		return fmt.Errorf("has number %d, want %d", n, c.seq)
	} else {
		c.seq = n + 1
	}
	switch name {
	case "response.created", "response.in_progress":
		return c.start(name, member(data, "response"))
	case "response.completed", "response.incomplete", "response.failed":
		c.over = true
		return c.end(strings.TrimPrefix(name, "response."), member(data, "response"))
	}
	if !c.begun {
		return fmt.Errorf("stands before the start")
	}
	index := string(member(data, "output_index"))
	if index == "" {
		return fmt.Errorf("has no output_index")
	}
	item := member(data, "item")
	if name == "response.output_item.added" {
		if c.items[index] != nil || index != fmt.Sprint(len(c.order)) {
			return fmt.Errorf("takes a number that is not the next")
		}
		c.items[index] = &checked{id: str(item, "id"), kind: str(item, "type")}
		c.order = append(c.order, index)
		return nil
	}
	it := c.items[index]
	if it == nil || it.done != "" {
		return fmt.Errorf("is about an item that is not open")
	}
	if name == "response.output_item.done" {
		if str(item, "id") != it.id || str(item, "type") != it.kind || it.part != "" {
			return fmt.Errorf("ends another item, or one with an open part")
		}
		it.done = string(item)
		return nil
	}
	if str(data, "item_id") != it.id {
		return fmt.Errorf("has another item_id than %s", it.id)
	}
	return it.event(name, data)
}

func (c *checker) start(name string, response []byte) error {
	id := str(response, "id")
	if name == "response.created" {
		c.begun, c.id = true, id
	}
	if !c.begun || id != c.id || str(response, "status") != "in_progress" || string(member(response, "output")) != "[]" {
		return fmt.Errorf("is no start")
	}
	return nil
}

func (c *checker) end(status string, response []byte) error {
	if str(response, "status") != status || c.id != "" && str(response, "id") != c.id || str(response, "object") != "response" {
		return fmt.Errorf("is the end of another response")
	}
	var done []string
	for _, index := range c.order {
		if d := c.items[index].done; d != "" {
			done = append(done, d)
		} else if status != "failed" {
			return fmt.Errorf("item %s has not ended", index)
		}
	}
	if got, want := string(member(response, "output")), "["+strings.Join(done, ",")+"]"; got != want {
		return fmt.Errorf("has the output %s, want %s", got, want)
	}
	if status != "failed" && member(response, "usage") == nil {
		return fmt.Errorf("has no usage")
	}
	return nil
}

// event takes an event about a piece of the item.
func (it *checked) event(name string, data []byte) error {
	index := string(member(data, "content_index"))
	if it.kind == "reasoning" {
		index = string(member(data, "summary_index"))
	}
	call := it.kind == "function_call" || it.kind == "custom_tool_call"
	if !call && index == "" {
		return fmt.Errorf("says no part")
	}
	verb := name[strings.LastIndexByte(name, '.')+1:]
	kind := strings.TrimSuffix(strings.TrimPrefix(name, "response."), "."+verb)
	owner := map[string]string{"content_part": "message", "output_text": "message", "refusal": "message", "reasoning_summary_part": "reasoning",
		"reasoning_summary_text": "reasoning", "function_call_arguments": "function_call", "custom_tool_call_input": "custom_tool_call"}[kind]
	if owner != it.kind {
		return fmt.Errorf("is about an item of the type %s", it.kind)
	}
	switch {
	case strings.HasSuffix(kind, "_part") && verb == "added":
		if it.part != "" || index != fmt.Sprint(it.parts) {
			return fmt.Errorf("begins a part beside another, or out of turn")
		}
		it.part, it.text = str(member(data, "part"), "type"), ""
		it.parts++
	case strings.HasSuffix(kind, "_part"):
		part := member(data, "part")
		if it.part == "" || str(part, "text")+str(part, "refusal") != it.text {
			return fmt.Errorf("ends a part with another text")
		}
		it.part = ""
	case verb == "delta":
		if !call && it.part == "" {
			return fmt.Errorf("is of a part that is not open")
		}
		it.text += str(data, "delta")
	case str(data, "text")+str(data, "refusal")+str(data, "arguments")+str(data, "input") != it.text:
		return fmt.Errorf("says another text than %s", it.text)
	}
	return nil
}
