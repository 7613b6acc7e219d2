package drill

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"weir/internal/config"
	"weir/internal/sim"
)

// catalogue returns all faults, in order.
func catalogue() []*fault {
	var all []*fault
	for _, list := range [][]*fault{connection(), refusals(), oddities(), silence(), streams(), windows(), clients(), crowds(), limits()} {
		all = append(all, list...)
	}
	slices.SortStableFunc(all, func(a, b *fault) int { return cmp.Compare(a.id, b.id) })
	return all
}

// always answers every attempt alike.
func always(b sim.Behaviour) behave { return func(*sim.Attempt) sim.Behaviour { return b } }

// either answers attempts that ask for a stream with one behaviour, others with another one.
func either(stream, whole sim.Behaviour) behave {
	return func(a *sim.Attempt) sim.Behaviour {
		if a.Stream {
			return stream
		}
		return whole
	}
}

// What one failing step may take.
func connecting(l config.Limits, _ bool) time.Duration { return l.Connect.D() }

// prefill is what the gateway grants the drill's short prompts beside the limit, on the slowest tier.
const prefill = 400 * time.Millisecond

func beginning(l config.Limits, stream bool) time.Duration {
	if stream {
		return max(l.FirstContent.D(), l.Answer.D()) + prefill
	}
	return l.Answer.D() + prefill
}

func idling(l config.Limits, stream bool) time.Duration { return max(l.Idle.D(), beginning(l, stream)) }

func lasting(l config.Limits, _ bool) time.Duration { return l.Total.D() }

// connection are the faults of which no server ever hears.
func connection() []*fault {
	refused := []string{"upstream_refused"}
	return []*fault{
		{id: "F01", name: "nobody listens on the port", way: closed, codes: refused},
		{id: "F02", name: "packets to the server are lost", way: hole, codes: refused, cost: connecting},
		{id: "F03", name: "the server's name has no address", way: noName, codes: refused},
		{id: "F03", name: "the look-up of the name hangs", way: hole, codes: refused, cost: connecting},
		{id: "F04", name: "a certificate that nobody vouches for", way: selfSigned, codes: []string{"upstream_tls"}},
		{id: "F04", name: "a certificate that has expired", way: expired, codes: []string{"upstream_tls"}},
		{id: "F04", name: "a certificate for another name", way: wrongName, codes: []string{"upstream_tls"}},
		{id: "F05", name: "the TLS handshake hangs", way: mute, codes: refused, cost: connecting},
		{id: "F16", name: "the connection is reset as the request arrives", do: always(sim.Behaviour{Drop: "rst"}), tries: 2},
		{id: "F16", name: "the connection is closed as the request arrives", do: always(sim.Behaviour{Drop: "fin"}), tries: 2},
		{id: "F18", name: "used connections are closed under the next request", do: always(sim.Behaviour{Stale: true, Text: answerText}), must: fine, play: reuse, here: true},
		{id: "F19", name: "nobody listens, behind any step", way: closed, all: true, codes: refused},
	}
}

// refusals are answers that say no.
func refusals() []*fault {
	status := func(n int, after string) behave { return always(sim.Behaviour{Status: n, RetryAfter: after}) }
	list := []*fault{
		{id: "F06", name: "status 500", do: status(500, ""), codes: []string{"upstream_refused"}},
		{id: "F06", name: "status 502", do: status(502, ""), codes: []string{"upstream_refused"}},
		{id: "F06", name: "status 503", do: status(503, ""), status: []int{503}, tries: 2},
		{id: "F06", name: "status 504", do: status(504, ""), codes: []string{"upstream_refused"}},
		{id: "F06", name: "status 500, behind every step", do: status(500, ""), all: true, codes: []string{"upstream_refused"}},
		{id: "F07", name: "status 429, no time named", do: status(429, ""), status: []int{429}, tries: 2},
		{id: "F07", name: "status 429, Retry-After in seconds", do: status(429, "20"), status: []int{429}, then: paused},
		{id: "F07", name: "status 429, Retry-After as a date", do: dated, status: []int{429}, then: paused},
		{id: "F07", name: "status 429, retry-after-ms", do: always(sim.Behaviour{Status: 429, RetryAfterMS: "20000"}), status: []int{429}, then: paused},
		{id: "F07", name: "status 429, behind every step", do: status(429, "20"), status: []int{429}, all: true},
		{id: "F08", name: "status 400: the request is wrong", do: status(400, ""), must: theirs, status: []int{400}, then: blameless},
		{id: "F08", name: "status 422: the request is wrong", do: status(422, ""), must: theirs, status: []int{422}, then: blameless},
		{id: "F09", name: "status 401: the key is refused", do: status(401, ""), codes: []string{"upstream_denied"}, then: denied},
		{id: "F09", name: "status 403: the account may not", do: status(403, ""), codes: []string{"upstream_denied"}, then: denied},
		{id: "F10", name: "status 529: overloaded", do: status(529, ""), status: []int{429}, tries: 2},
	}
	return list
}

// dated asks for a pause until a date.
func dated(*sim.Attempt) sim.Behaviour {
	return sim.Behaviour{Status: 429, RetryAfter: time.Now().Add(20 * time.Second).UTC().Format(http.TimeFormat)}
}

// oddities are answers that are none.
func oddities() []*fault {
	return []*fault{
		{id: "F11", name: "a page of HTML with status 200", do: always(sim.Behaviour{HTML: true}), codes: []string{"upstream_refused"}},
		{id: "F12", name: "status 200 without a body", do: always(sim.Behaviour{NoBody: true}), codes: []string{"upstream_refused"}},
		{id: "F13", name: "a redirect to another server", do: always(sim.Behaviour{Redirect: "http://elsewhere" + domain + "/v1/chat/completions"}), codes: []string{"upstream_refused"}, then: unfollowed},
		{id: "F14", name: "three early hints before the answer", do: always(sim.Behaviour{EarlyHints: 3, Text: answerText}), must: fine},
		{id: "F14", name: "a thousand early hints before the answer", do: always(sim.Behaviour{EarlyHints: 1000, Text: answerText}), must: fine, maybe: true},
		{id: "F14", name: "a header of 1 MiB", do: always(sim.Behaviour{HeaderBytes: 1 << 20, Text: answerText}), codes: []string{"upstream_refused"}},
		{id: "F15", name: "the answer's head comes byte by byte", do: raw, must: fine},
		{id: "F30", name: "a line of 64 MiB that does not end", do: always(sim.Behaviour{LineBytes: 64 << 20}), status: []int{502, 504}, heavy: true, then: stopped},
		{id: "F33", name: "a compressed answer that nobody asked for", do: always(sim.Behaviour{Gzip: "ok", Text: answerText}), must: fine},
		{id: "F33", name: "a compressed answer, cut off", do: always(sim.Behaviour{Gzip: "cut", Cut: &sim.Cut{}, Text: answerText}), status: []int{502, 504}},
		{id: "F33", name: "a compressed answer that grows to 64 MiB", do: always(sim.Behaviour{Gzip: "bomb"}), status: []int{502, 504}, heavy: true, cost: beginning},
	}
}

// raw is a healthy answer of which every byte is a write of its own.
func raw(a *sim.Attempt) sim.Behaviour {
	chunk := func(delta, finish string) string {
		return `data: {"id":"chatcmpl-{nonce}","object":"chat.completion.chunk","created":1700000000,"model":` + quoted(a.Model) + `,"choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + "}]}\n\n"
	}
	kind, body := "text/event-stream", chunk(`{"role":"assistant","content":`+quoted(answerText)+`}`, "null")+chunk(`{}`, `"stop"`)+"data: [DONE]\n\n"
	if !a.Stream {
		kind = "application/json"
		body = `{"id":"chatcmpl-{nonce}","object":"chat.completion","created":1700000000,"model":` + quoted(a.Model) +
			`,"choices":[{"index":0,"message":{"role":"assistant","content":` + quoted(answerText) + `},"finish_reason":"stop"}]}`
	}
	return sim.Behaviour{Slice: 1, Raw: sim.Bytes("HTTP/1.1 200 OK\r\nContent-Type: " + kind + "\r\nConnection: close\r\n\r\n" + body)}
}

// silence is what takes time.
func silence() []*fault {
	slow := []string{"upstream_slow"}
	return []*fault{
		{id: "F17", name: "takes the request and says nothing", do: always(sim.Behaviour{Hang: true}), status: []int{504}, codes: slow, cost: beginning},
		{id: "F17", name: "sends comments and no content", do: either(sim.Behaviour{FirstDelay: time.Hour, Ping: 50 * time.Millisecond}, sim.Behaviour{Hang: true}), status: []int{504}, codes: slow, cost: beginning},
		{id: "F17", name: "says nothing, behind every step", do: always(sim.Behaviour{Hang: true}), all: true, status: []int{504}, codes: slow, cost: beginning},
		{id: "F31", name: "an answer that never ends", do: either(sim.Behaviour{Endless: true, Gap: 10 * time.Millisecond, Text: answerText}, sim.Behaviour{Hang: true}),
			must: broken, status: []int{504}, cost: lasting, play: endless},
	}
}

// answers are whole; what is cut of them is cut amid their bytes.
func cutWhole(how string) sim.Behaviour {
	return sim.Behaviour{Text: answerText, Cut: &sim.Cut{After: 120, How: how}}
}

// streams are the faults amid an answer.
func streams() []*fault {
	lost := []int{502, 504}
	cut := func(after int, how string) behave {
		return either(sim.Behaviour{Text: answerText, Cut: &sim.Cut{After: after, Of: "chunks", How: how}}, cutWhole("fin"))
	}
	list := []*fault{
		{id: "F20", name: "cut before the first word", do: cut(0, "fin"), status: lost},
		{id: "F20", name: "reset after the first word", do: cut(1, "rst"), must: broken, maybe: true, status: lost},
		{id: "F20", name: "cut after three words", do: cut(3, "fin"), must: broken, status: lost},
		{id: "F20", name: "the body ends properly after three words", do: cut(3, "end"), must: broken, status: lost},
		{id: "F20", name: "cut after the last word, before the end", do: either(sim.Behaviour{Text: answerText, SSE: sim.SSE{NoFinish: true, NoDone: true}, Cut: &sim.Cut{After: 1 << 40}}, cutWhole("fin")), must: broken, status: lost},
		{id: "F21", name: "silence before the first word", do: either(sim.Behaviour{Text: answerText, Cut: &sim.Cut{Of: "chunks", How: "stall"}}, cutWhole("stall")), status: []int{504}, cost: beginning},
		{id: "F21", name: "silence after three words", do: either(sim.Behaviour{Text: answerText, Cut: &sim.Cut{After: 3, Of: "chunks", How: "stall"}}, cutWhole("stall")), must: broken, status: []int{504}, cost: idling},
		{id: "F22", name: "an event that is not JSON", do: either(sim.Behaviour{Text: answerText, Insert: []sim.Insert{{After: 2, Raw: "data: {\"cho\n\n"}}}, sim.Behaviour{Body: `{"id":"x","choices":[{`}), must: broken, status: lost},
		{id: "F23", name: "no finish, and a clean end", do: either(sim.Behaviour{Text: answerText, SSE: sim.SSE{NoFinish: true, NoDone: true}}, sim.Behaviour{Body: `{"id":"x","object":"chat.completion","choices":[]}`}), must: broken, status: lost},
	}
	for _, n := range []int{429, 500, 529} {
		list = append(list, within(n, 0), within(n, 3))
	}
	return append(list,
		&fault{id: "F25", name: "cut after three words, no other step allowed", do: cut(3, "fin"), must: broken, direct: true, status: lost},
		&fault{id: "F25", name: "an error amid, no other step allowed", do: within(500, 3).do, must: broken, direct: true, status: lost},
		&fault{id: "F26", name: "the end comes twice", do: always(sim.Behaviour{Text: answerText, SSE: sim.SSE{Twice: true}}), must: fine},
		&fault{id: "F26", name: "content after the end", do: always(sim.Behaviour{Text: answerText, SSE: sim.SSE{AfterDone: true}}), must: fine},
		&fault{id: "F28", name: "cut amid the arguments of a tool call", tools: true, must: broken, status: lost, do: torn},
		&fault{id: "F32", name: "no usage", do: always(sim.Behaviour{Text: answerText, Usage: "none"}), must: fine},
		&fault{id: "F32", name: "half of a usage", do: always(sim.Behaviour{Text: answerText, Usage: "partial"}), must: fine},
		&fault{id: "F32", name: "a negative usage", do: always(sim.Behaviour{Text: answerText, Usage: "negative"}), must: fine},
		&fault{id: "F32", name: "a usage of astronomic size", do: always(sim.Behaviour{Text: answerText, Usage: "huge"}), must: fine},
	)
}

// within is an error event after so many words.
func within(status, after int) *fault {
	kinds := map[int]string{429: "rate_limit_error", 500: "server_error", 529: "overloaded_error"}
	e := json.RawMessage(fmt.Sprintf(`{"message":"simulated: status %d amid the answer","type":%q,"code":%d}`, status, kinds[status], status))
	f := &fault{id: "F24", name: fmt.Sprintf("an error %d within the answer, before the first word", status), status: []int{502},
		do: always(sim.Behaviour{Text: answerText, StreamError: &sim.StreamError{After: after, Error: e}})}
	if status != 500 {
		f.status, f.tries = []int{429}, 2
	}
	if after > 0 {
		f.name, f.must = fmt.Sprintf("an error %d within the answer, after three words", status), broken
	}
	return f
}

// torn is a tool call that breaks off amid its arguments.
func torn(a *sim.Attempt) sim.Behaviour {
	b := sim.Behaviour{Calls: []sim.Call{{Name: "weather", Arguments: `{"city":"Reykjavik","days":[1,2,3,4,5,6]}`}}, Cut: &sim.Cut{After: 3, Of: "chunks"}}
	if !a.Stream {
		b.Cut = &sim.Cut{After: 200}
	}
	return b
}

// windows are prompts that are too long.
func windows() []*fault {
	long := []string{"context_length_exceeded"}
	told := func(l *lane, _ bool) string {
		if l.steps[0].server == "ollama" {
			return "Ollama cuts a long prompt without a word"
		}
		return ""
	}
	return []*fault{
		{id: "F34", name: "the prompt is too long for the server, 400", do: always(sim.Behaviour{Context: 500, Text: answerText}), status: []int{400}, codes: long, pad: 4000, needs: told, then: blameless},
		{id: "F34", name: "the prompt is too long for the server, 500", do: always(sim.Behaviour{Context: 500, Text: answerText, ContextStatus: 500}), status: []int{400}, codes: long, pad: 4000, needs: told, then: blameless},
		{id: "F34", name: "the prompt is too long for the server, an error within a 200", do: always(sim.Behaviour{Context: 500, Text: answerText, ContextStatus: 200}), status: []int{400}, codes: long, pad: 4000, needs: told, then: blameless},
		{id: "F34", name: "the prompt is too long for every window, by the estimate", status: []int{400}, codes: long, here: true, play: oversized, needs: func(l *lane, _ bool) string {
			for i := range l.steps {
				if l.steps[i].window == 0 {
					return "the window of " + l.steps[i].pool + " is not in the configuration"
				}
			}
			return ""
		}},
	}
}
