package sim

import (
	"encoding/json"
	"fmt"
	"slices"
)

// AgentWord is what the command of an agent's call prints, so that its result can be
// told from any other text.
const AgentWord = "weir-tool-ok"

// shells holds the names that coding agents give the tool that runs a command, and
// arguments the members that hold the command.
var (
	shells    = []string{"Bash", "bash", "exec_command", "shell", "local_shell", "run_shell_command"}
	arguments = []string{"command", "cmd"}
)

// act is one turn of an agent: a call of one tool while no tool has answered, and then
// the text that names what it answered.
func (c *call) act() string {
	if n := len(c.q.results); n > 0 {
		return fmt.Sprintf("Simulated agent done (nonce {nonce}). The tool said: %.200s", c.q.results[n-1])
	}
	list := slices.DeleteFunc(slices.Clone(c.q.Tools), func(t tool) bool { return t.Function.Name == "" })
	if len(list) == 0 {
		return "Simulated agent without tools (nonce {nonce})."
	}
	f := list[0].Function
	for _, name := range shells {
		if i := slices.IndexFunc(list, func(t tool) bool { return t.Function.Name == name }); i >= 0 {
			f = list[i].Function
			break
		}
	}
	args := instance(f.Parameters)
	if slices.Contains(shells, f.Name) {
		args = harmless(f.Parameters, args)
	}
	c.addCall(0, f.Name, string(args))
	return ""
}

// harmless puts a command that only prints into the arguments of a shell tool.
func harmless(schema, args json.RawMessage) json.RawMessage {
	var s struct {
		Properties map[string]struct {
			Type any `json:"type"`
		} `json:"properties"`
	}
	var values map[string]any
	if json.Unmarshal(schema, &s) != nil || json.Unmarshal(args, &values) != nil {
		return args
	}
	for _, name := range arguments {
		p, ok := s.Properties[name]
		if !ok {
			continue
		}
		values[name] = "echo " + AgentWord
		if p.Type == "array" {
			values[name] = []string{"echo", AgentWord}
		}
	}
	return encode(values)
}
