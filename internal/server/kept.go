package server

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/event"
	"weir/internal/llm"
)

// Kept is one response that is kept for later requests of the same key.
type Kept struct {
	Key     string // the key's name; empty where no key is asked for
	ID      string
	Local   bool // what continues from it may not leave the machines you own
	Created time.Time
	Expires time.Time
	Input   []byte // the list of all items that were asked with, raw
	Answer  []byte // the response object, raw
}

// Keeper keeps responses, and knows where in requests and answers the parts of them stand. It is safe for concurrent use.
type Keeper interface {
	// Input returns the items that r asks with, a raw list that shares no bytes with r.
	Input(r *llm.Request) []byte
	// Answer finds the response that ended well, in a whole answer or in a piece of a stream of whole events. It shares
	// the bytes of piece.
	Answer(piece []byte, whole bool) (id string, answer []byte, ok bool)
	// Continue returns r's body with all of k before its input, and no word of k's id.
	Continue(r *llm.Request, k *Kept) ([]byte, error)
	// Save writes k, in place of what its key has under the same id. It keeps none of k's bytes.
	Save(ctx context.Context, k *Kept) error
	// Load reads what is kept of a key under an id; nil where that is nothing, or its time is over.
	Load(ctx context.Context, key, id string) (*Kept, error)
	// Delete deletes it and reports whether there was anything.
	Delete(ctx context.Context, key, id string) (bool, error)
}

const (
	maxKept    = 4 << 20     // bytes of one response with all that it answered
	maxKeptID  = 256         // bytes
	keepWithin = time.Second // an answer's end waits no longer for the store
)

// recall makes a request of the Responses API independent of what was kept, and sees to it that its own response is kept
// where a route or the key says so. What it returns is the request to go on with.
func (x *exchange) recall(req *llm.Request) (*llm.Request, error) {
	if x.dialect != x.Responses {
		return req, nil
	}
	keep, local := x.Relay.Keeps(req.Model, &x.caller)
	keep = max(keep, x.keep)
	store := string(req.Value("store"))
	id := string(llm.Unquote(req.Value("previous_response_id")))
	switch {
	case keep == 0 && id != "":
		req.Release()
		return nil, notKept()
	case keep == 0:
		if store == "true" {
			x.dropStore("setting")
		}
		return req, nil
	case id != "":
		var err error
		if req, err = x.resume(req, id); err != nil {
			return nil, err
		}
	}
	if req.Op == llm.Chat && store != "false" {
		req.Keeps = true
		x.keepAnswer(req, keep, local || x.caller.Local)
	}
	return req, nil
}

func notKept() error {
	e := llm.Errorf(llm.Invalid, "previous_response_id is not served here, because responses are not kept: send the conversation so far in input, "+
		"or have them kept, by responses: {keep: 24h} at the route in Weir's configuration or by a key made with --keep-responses 24h")
	e.Param, e.Code = "previous_response_id", "unsupported_parameter"
	return e
}

// resume puts what was kept under id before req's input.
func (x *exchange) resume(req *llm.Request, id string) (*llm.Request, error) {
	defer req.Release()
	k, err := x.load(id)
	if err != nil {
		return nil, err
	}
	if k == nil {
		e := llm.Errorf(llm.Invalid, "there is no response %q to continue from: it was not kept for this key, was deleted, or its time is over", short(id))
		e.Param, e.Code = "previous_response_id", "previous_response_not_found"
		return nil, e
	}
	body, err := x.Keeper.Continue(req, k)
	if err != nil {
		return nil, err
	}
	next, err := x.dialect.Decode(req.Op, body, x.MaxDepth)
	if err != nil {
		return nil, err
	}
	next.After = id
	x.caller.Local = x.caller.Local || k.Local
	return next, nil
}

// load reads what is kept of the caller's key.
func (x *exchange) load(id string) (*Kept, error) {
	ctx, cancel := context.WithTimeout(x.r.Context(), keepWithin)
	defer cancel()
	k, err := x.Keeper.Load(ctx, x.caller.Key, id)
	if err != nil {
		return nil, x.noStore(err)
	}
	return k, nil
}

func (x *exchange) noStore(err error) error {
	x.Log.Error("kept responses cannot be reached", "request", x.id, "err", err)
	e := llm.Errorf(llm.Unavailable, "the responses that are kept cannot be reached now; the log of this Weir says why")
	e.Err = err
	return e
}

// keepAnswer sees to it that the response is kept before its end leaves, so that who has read it finds it.
func (x *exchange) keepAnswer(req *llm.Request, keep time.Duration, local bool) {
	input := x.Keeper.Input(req)
	if len(input) > maxKept {
		x.dropStore("size")
		return
	}
	x.reply.tap = func(piece []byte, whole bool) {
		id, answer, ok := x.Keeper.Answer(piece, whole)
		switch {
		case !ok:
			return
		case len(input)+len(answer) > maxKept || len(id) > maxKeptID:
			x.dropStore("size")
			return
		}
		now := time.Now()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(x.r.Context()), keepWithin)
		defer cancel()
		err := x.Keeper.Save(ctx, &Kept{Key: x.caller.Key, ID: id, Local: local, Created: now, Expires: now.Add(keep), Input: input, Answer: answer})
		if err != nil {
			x.Log.Error("a response was not kept", "request", x.id, "err", err)
			x.dropStore("store")
		}
	}
}

// dropStore records that a response is not kept although the client wants it, and why: no setting says so, it is too
// large, or the store does not take it.
func (x *exchange) dropStore(reason string) {
	x.Emit(event.Event{Name: event.Drop, Request: x.id, Reason: reason, Detail: "store"})
}

// keptPath splits /v1/responses/ID and what is below it.
func keptPath(path string) (id, below string, ok bool) {
	rest, ok := strings.CutPrefix(path, "/v1/responses/")
	id, below, _ = strings.Cut(rest, "/")
	return id, below, ok && id != "" && id != "compact" && !strings.HasSuffix(rest, "/")
}

// keptEndpoint returns the endpoint of a path of what is kept.
func (s *Server) keptEndpoint(r *http.Request) (endpoint, bool) {
	_, below, ok := keptPath(r.URL.Path)
	if !ok || r.URL.RawPath != "" {
		return endpoint{}, false
	}
	switch {
	case below == "" && r.Method == http.MethodDelete:
		return endpoint{http.MethodDelete, (*Server).deleteKept, s.Responses}, true
	case below == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		return endpoint{http.MethodGet, (*Server).getKept, s.Responses}, true
	case below == "":
		return endpoint{"GET, DELETE", nil, s.Responses}, true // no method is both: refused with what is taken
	case below == "input_items":
		return endpoint{http.MethodGet, (*Server).getItems, s.Responses}, true
	case below == "cancel":
		return endpoint{http.MethodPost, (*Server).cancelKept, s.Responses}, true
	}
	return endpoint{}, false
}

// found returns what the path names of the caller's key.
func (x *exchange) found() (*Kept, error) {
	x.rec.Op = "responses"
	id, _, _ := keptPath(x.r.URL.Path)
	k, err := x.load(id)
	if err == nil && k == nil {
		err = x.noResponse(id)
	}
	return k, err
}

func (x *exchange) noResponse(id string) error {
	e := llm.Errorf(llm.Unknown, "there is no response %q here: it was not kept for this key, was deleted, or its time is over", short(id))
	e.Code = "response_not_found"
	return e
}

// getKept answers with a response as it was.
func (*Server) getKept(x *exchange) error {
	if v := x.r.URL.Query().Get("stream"); v != "" && v != "false" {
		e := llm.Errorf(llm.Invalid, "a response that is kept is given whole; leave stream out")
		e.Param = "stream"
		return e
	}
	k, err := x.found()
	if err != nil {
		return err
	}
	return x.Answer(k.Answer)
}

// deleteKept deletes a response.
func (*Server) deleteKept(x *exchange) error {
	x.rec.Op = "responses"
	id, _, _ := keptPath(x.r.URL.Path)
	ctx, cancel := context.WithTimeout(x.r.Context(), keepWithin)
	defer cancel()
	gone, err := x.Keeper.Delete(ctx, x.caller.Key, id)
	switch {
	case err != nil:
		return x.noStore(err)
	case !gone:
		return x.noResponse(id)
	}
	return x.Answer(append(llm.AppendQuoted([]byte(`{"id":`), id), `,"object":"response","deleted":true}`...))
}

// cancelKept refuses: what is kept has ended.
func (*Server) cancelKept(x *exchange) error {
	if _, err := x.found(); err != nil {
		return err
	}
	return llm.Errorf(llm.Invalid, "this response has ended: only one that runs in the background could be cancelled, and Weir runs none there")
}

// getItems answers with one page of the items that a response was asked with: ?limit=20&order=desc&after=ID.
func (*Server) getItems(x *exchange) error {
	q := x.r.URL.Query()
	limit, err := within(q.Get("limit"), 20, 100)
	if err != nil {
		return err
	}
	k, err := x.found()
	if err != nil {
		return err
	}
	list := items(k.Input)
	if q.Get("order") != "asc" { // the newest first, as the API has it
		slices.Reverse(list)
	}
	if after := q.Get("after"); after != "" {
		list = list[slices.IndexFunc(list, func(it keptItem) bool { return it.id == after })+1:]
	}
	page := list[:min(limit, len(list))]
	out := []byte(`{"object":"list","data":[`)
	for i, it := range page {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, it.raw...)
	}
	out = strconv.AppendBool(append(out, `],"has_more":`...), len(page) < len(list))
	if len(page) == 0 {
		return x.Answer(append(out, `,"first_id":null,"last_id":null}`...))
	}
	out = llm.AppendQuoted(append(out, `,"first_id":`...), page[0].id)
	out = llm.AppendQuoted(append(out, `,"last_id":`...), page[len(page)-1].id)
	return x.Answer(append(out, '}'))
}

// within reads a page's limit, from 1 to most.
func within(v string, usual, most int) (int, error) {
	if v == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > most {
		e := llm.Errorf(llm.Invalid, "limit must be a whole number from 1 to %d", most)
		e.Param = "limit"
		return 0, e
	}
	return n, nil
}

// keptItem is one item of a list, raw, with its id.
type keptItem struct {
	id  string
	raw []byte
}

// items returns the items of a raw list. Those that the client sent without an id get one by their place.
func items(list []byte) (out []keptItem) {
	const depth = 1 << 20 // it was bounded when it came
	s := llm.NewScanner(list, depth)
	_ = s.Elements(func(i int) error {
		at, err := s.Value()
		if err != nil {
			return err
		}
		it := keptItem{raw: at.Of(list)}
		in, named := llm.NewScanner(it.raw, depth), false
		_ = in.Members(func(name []byte) error {
			at, err := in.Value()
			if err == nil && string(name) == "id" {
				it.id, named = string(llm.Unquote(at.Of(it.raw))), true
			}
			return err
		})
		if !named {
			it.id = "item_" + strconv.Itoa(i)
			it.raw = append(append(llm.AppendQuoted([]byte(`{"id":`), it.id), ','), it.raw[1:]...)
		}
		out = append(out, it)
		return nil
	})
	return out
}
