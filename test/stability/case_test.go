package stability

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// call is one tool call. Its arguments are what the model wrote, to the byte.
type call struct{ id, name, args string }

// message is one message of a conversation. Its text is the inside of a JSON string, as it stands in the file.
type message struct {
	role    string // system, user, assistant; empty for results
	text    string
	calls   []call
	results []call // by id; args is what the tool said
}

// step is what is said to the model next, and what it answers: calls or a text.
type step struct {
	say   []message // none: the results of the calls before; without calls the step falls out
	calls []call
	text  string
}

// tool is one tool, in raw JSON.
type tool struct{ raw, name, description, parameters json.RawMessage }

// talk is one conversation.
type talk struct {
	id    string
	tools []tool
	steps []step
}

// talks returns the fixtures, and all entries of the folder WEIR_BFCL where it is set.
func talks(t *testing.T) []talk {
	t.Helper()
	list := fixtures(t)
	folder := os.Getenv("WEIR_BFCL")
	if folder == "" {
		return list
	}
	files, err := filepath.Glob(filepath.Join(folder, "BFCL_v*.json*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("WEIR_BFCL=%s: no BFCL_v*.json or .json.gz is there (%v)", folder, err)
	}
	own := len(list)
	for _, f := range files {
		list = append(list, bfcl(t, folder, filepath.Base(f))...)
	}
	t.Logf("%d fixtures, %d entries in %d files of %s", own, len(list)-own, len(files), folder)
	return list
}

// lines calls do with each line of a file, which may be packed with gzip.
func lines(t *testing.T, path string, do func(line []byte)) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<20)
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		in = bufio.NewReaderSize(z, 1<<20)
	}
	s := bufio.NewScanner(in)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		if line := bytes.TrimSpace(s.Bytes()); len(line) > 0 {
			do(bytes.Clone(line))
		}
	}
	if err := s.Err(); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func parse(t *testing.T, raw []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("%.200s: %v", raw, err)
	}
}

// fixtures reads our own cases: the arguments in them are spelt as models spell them.
func fixtures(t *testing.T) (list []talk) {
	t.Helper()
	lines(t, filepath.Join("testdata", "fixtures.jsonl"), func(line []byte) {
		var f struct {
			ID       string
			Question json.RawMessage
			Tools    []json.RawMessage
			Calls    []struct{ Name, Arguments string }
		}
		parse(t, line, &f)
		var calls []call
		for _, c := range f.Calls {
			calls = append(calls, call{name: c.Name, args: c.Arguments})
		}
		list = append(list, talk{f.ID, toolsOf(t, f.Tools), withEnd(step{say: []message{{role: "user", text: inside(f.Question)}}, calls: calls, text: "Hello."})})
	})
	if len(list) < 50 {
		t.Fatalf("%d fixtures, want 50", len(list))
	}
	return list
}

// withEnd adds the answers to the results of calls, and one more turn of the user.
func withEnd(s step) []step {
	return []step{s, {text: "Done: “ok” <b>&</b> \\ é\u2028"}, {say: []message{{role: "user", text: `Thanks, \"all\" fine. \ud83d\ude00`}}, text: "Gern."}}
}

func toolsOf(t *testing.T, raw []json.RawMessage) (list []tool) {
	t.Helper()
	for _, r := range raw {
		r = bytes.ReplaceAll(r, []byte(`"type": "dict"`), []byte(`"type": "object"`)) // as the leaderboard does before it asks
		var m map[string]json.RawMessage
		parse(t, r, &m)
		if name := plain(inside(m["name"])); name != inside(m["name"]) {
			r = bytes.Replace(r, m["name"], []byte(`"`+name+`"`), 1)
			m["name"] = []byte(`"` + name + `"`)
		}
		list = append(list, tool{r, m["name"], m["description"], m["parameters"]})
	}
	return list
}

// plain returns a tool's name as all APIs take it: dots become lines, as they do in the leaderboard.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z' {
			return r
		}
		return '_'
	}, name)
}

// inside returns what stands between the quotes of a JSON string.
func inside(raw json.RawMessage) string { return string(raw[1 : len(raw)-1]) }

// entry is one line of the leaderboard.
type entry struct {
	ID       string
	Question [][]spoken
	Function []json.RawMessage
	Classes  []string `json:"involved_classes"`
}

type spoken struct {
	Role    string
	Content json.RawMessage
}

// bfcl reads one file of the leaderboard with its answers.
func bfcl(t *testing.T, folder, name string) (list []talk) {
	t.Helper()
	answers := map[string][]json.RawMessage{}
	if path := filepath.Join(folder, "possible_answer", name); exists(path) {
		lines(t, path, func(line []byte) {
			var a struct {
				ID     string
				Ground []json.RawMessage `json:"ground_truth"`
			}
			parse(t, line, &a)
			answers[a.ID] = a.Ground
		})
	}
	lines(t, filepath.Join(folder, name), func(line []byte) {
		var e entry
		if bytes.Contains(line, []byte(`"function": ""`)) { // a question alone
			var q struct{ Question json.RawMessage }
			parse(t, line, &q)
			e.ID, e.Question = "chatable", [][]spoken{{{"user", q.Question}}}
		} else {
			parse(t, line, &e)
		}
		for _, c := range e.Classes {
			e.Function = append(e.Function, class(t, folder, c)...)
		}
		k := talk{id: e.ID, tools: toolsOf(t, e.Function)}
		truth := answers[e.ID]
		for i, q := range e.Question {
			var say []message
			for _, m := range q {
				say = append(say, message{role: m.Role, text: inside(m.Content)})
			}
			s := step{say: say, text: "None of the tools fits."}
			if i < len(truth) && truth[i][0] == '[' {
				s.calls = spelt(t, truth[i])
			} else if i == 0 {
				s.calls = golden(t, truth, len(e.ID))
			}
			k.steps = append(k.steps, withEnd(s)[:2]...)
		}
		list = append(list, k)
	})
	return list
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// class reads the tools of one class of the long conversations; none where its file has another name.
func class(t *testing.T, folder, name string) (list []json.RawMessage) {
	files := map[string]string{"GorillaFileSystem": "gorilla_file_system", "MathAPI": "math_api", "MessageAPI": "message_api", "TwitterAPI": "posting_api",
		"PostingAPI": "posting_api", "TicketAPI": "ticket_api", "TradingBot": "trading_bot", "TravelAPI": "travel_booking", "VehicleControlAPI": "vehicle_control"}
	path := filepath.Join(folder, "multi_turn_func_doc", files[name]+".json")
	if files[name] != "" && exists(path) {
		lines(t, path, func(line []byte) { list = append(list, line) })
	}
	return list
}

// golden takes the first allowed value of each argument. The spelling differs from entry to entry, as it does from model
// to model.
func golden(t *testing.T, truth []json.RawMessage, style int) (calls []call) {
	t.Helper()
	comma, colon := ",", ":"
	if style%2 == 1 {
		comma, colon = ", ", ": "
	}
	for _, raw := range truth {
		var one map[string]map[string][]json.RawMessage
		parse(t, raw, &one)
		for name, args := range one {
			var members []string
			for _, arg := range slices.Sorted(maps.Keys(args)) {
				if v := args[arg]; len(v) > 0 && string(v[0]) != `""` {
					members = append(members, fmt.Sprintf("%q%s%s", arg, colon, v[0]))
				}
			}
			calls = append(calls, call{name: plain(name), args: "{" + strings.Join(members, comma) + "}"})
		}
	}
	return calls
}

// spelt takes calls that are spelt as in Python: name(arguments).
func spelt(t *testing.T, raw json.RawMessage) (calls []call) {
	t.Helper()
	var list []string
	parse(t, raw, &list)
	for _, s := range list {
		name, args, _ := strings.Cut(s, "(")
		quoted := quote(strings.TrimSuffix(args, ")"), false)
		calls = append(calls, call{name: name, args: `{"arguments": ` + quoted + `}`})
	}
	return calls
}

// quote spells s as a JSON string, in ASCII or not.
func quote(s string, ascii bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string cannot fail
	out := strings.TrimSuffix(b.String(), "\n")
	if !ascii {
		return out
	}
	var a strings.Builder
	for _, r := range out {
		switch {
		case r < 0x80:
			a.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&a, `\u%04x`, r)
		default:
			r -= 0x10000
			fmt.Fprintf(&a, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		}
	}
	return a.String()
}
