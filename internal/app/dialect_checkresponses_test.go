package app

import (
	"encoding/json"
	"fmt"
	"strings"
)

// item is an output item of Responses.
type item struct {
	ID, Type, Status, Name, Arguments string
	CallID                            string `json:"call_id"`
	Content, Summary                  []struct{ Type, Text string }
	Sealed                            string `json:"encrypted_content"`
}

func (i *item) said() string {
	var b strings.Builder
	for _, c := range i.Content {
		b.WriteString(c.Text)
	}
	for _, c := range i.Summary {
		b.WriteString(c.Text)
	}
	return b.String() + i.Arguments
}

func (t *told) item(i *item) {
	t.blocks = append(t.blocks, i.Type)
	switch i.Type {
	case "message":
		t.text += i.said()
	case "reasoning":
		t.thinking += i.said()
	case "function_call":
		t.calls = append(t.calls, toldCall{i.CallID, i.Name, i.Arguments})
	}
}

// responseObject is the answer of Responses, as far as clients read it.
type responseObject struct {
	ID, Object, Status, Model string
	Output                    []item
	Error                     *failure
	Incomplete                *struct{ Reason string } `json:"incomplete_details"`
	Usage                     *struct {
		In      int `json:"input_tokens"`
		Out     int `json:"output_tokens"`
		Total   int `json:"total_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"input_tokens_details"`
	}
}

// toldResponse reads a response that has ended well.
func (r *reply) toldResponse(t *told, body []byte) {
	r.t.Helper()
	var o responseObject
	if err := json.Unmarshal(body, &o); err != nil || o.ID == "" || o.Object != "response" || o.Output == nil {
		r.t.Errorf("I5: no response: %.500q, %v", body, err)
		return
	}
	for i := range o.Output {
		if it := &o.Output[i]; it.ID == "" || it.Type == "function_call" && (it.CallID == "" || it.Name == "" || !json.Valid([]byte(it.Arguments))) {
			r.t.Errorf("the item %+v lacks an id, or is no whole call", it)
		}
		t.item(&o.Output[i])
	}
	t.ended(&o)
}

// ended takes how the response ended.
func (t *told) ended(o *responseObject) {
	t.finish = o.Status
	if o.Incomplete != nil {
		t.finish += ": " + o.Incomplete.Reason
	}
	if o.Usage != nil {
		t.in, t.out, t.cached = o.Usage.In, o.Usage.Out, o.Usage.Details.Cached
	}
}

// responseReader reads a stream of Responses.
type responseReader struct {
	*told
	r     *reply
	id    string
	next  int // sequence number
	ends  int
	items []*item
	open  *item
	part  bool   // a part of the open item is open
	got   string // the deltas of the open item
}

type responseEvent struct {
	Type          string
	Sequence      *int   `json:"sequence_number"`
	Output        *int   `json:"output_index"`
	Content       *int   `json:"content_index"`
	Summary       *int   `json:"summary_index"`
	ItemID        string `json:"item_id"`
	Delta         string
	Text          *string
	Arguments     *string
	Item          *item
	Response      *responseObject
	Code, Message string
}

func (p *responseReader) read() {
	p.r.t.Helper()
	for _, n := range p.r.named(p.told) {
		var e responseEvent
		if err := json.Unmarshal([]byte(n.data), &e); err != nil {
			p.r.t.Errorf("I5: %.300q: %v", n.data, err)
		}
		if fault := p.event(n.name, &e); fault != "" {
			p.r.t.Errorf("%s: %.300s", fault, n.data)
		}
	}
	p.r.closed(p.told, p.ends)
	if p.failure == nil { // the items say more than the deltas
		p.text, p.thinking = "", ""
		for _, it := range p.items {
			p.told.item(it)
		}
	}
}

// event takes one event and says what is wrong with it.
func (p *responseReader) event(name string, e *responseEvent) string {
	switch {
	case p.ends > 0:
		return "I2: it came after the end"
	case e.Sequence == nil || *e.Sequence != p.next:
		return fmt.Sprintf("the sequence number is not %d", p.next)
	}
	p.next++
	switch name {
	case "response.created":
		if p.id != "" || e.Response == nil || e.Response.ID == "" || e.Response.Status != "in_progress" {
			return "a second start, or one that is not whole"
		}
		p.id = e.Response.ID
		return ""
	case "response.failed":
		p.ends++
		if e.Response == nil || e.Response.Error == nil || e.Response.Status != "failed" || e.Response.ID == "" || p.id != "" && e.Response.ID != p.id {
			return "C007: a failure without its response, or of another one"
		}
		p.failure = e.Response.Error
		return ""
	case "error":
		p.ends++
		p.failure = &failure{Message: e.Message, Code: e.Code}
		return ""
	}
	if p.id == "" {
		return "it came before response.created"
	}
	switch name {
	case "response.completed", "response.incomplete":
		return p.end(name, e)
	case "response.output_item.added", "response.output_item.done":
		return p.itemEvent(name, e)
	case "response.in_progress", "response.queued":
		return ""
	}
	return p.piece(name, e)
}

func (p *responseReader) end(name string, e *responseEvent) string {
	p.ends++
	o := e.Response
	if o == nil || o.ID != p.id || "response."+o.Status != name || p.open != nil || len(o.Output) != len(p.items) {
		return "the end is not of this response, or an item is open or missing"
	}
	for i := range o.Output {
		if o.Output[i].ID != p.items[i].ID || o.Output[i].said() != p.items[i].said() {
			return fmt.Sprintf("the end's item %d is not what was streamed, %+v", i, p.items[i])
		}
	}
	p.ended(o)
	return ""
}

func (p *responseReader) itemEvent(name string, e *responseEvent) string {
	switch {
	case e.Item == nil || e.Item.ID == "" || e.Output == nil:
		return "an item without id or index"
	case name == "response.output_item.added":
		if p.open != nil || *e.Output != len(p.items) {
			return "items overlap, or one's index is wrong"
		}
		p.open, p.got = e.Item, ""
		p.items = append(p.items, e.Item)
		return ""
	case p.open == nil || p.part || e.Item.ID != p.open.ID || *e.Output != len(p.items)-1:
		return "the end of an item that is not open, or has an open part"
	case e.Item.said() != p.got:
		return fmt.Sprintf("the item's deltas said %q", p.got)
	case e.Item.Type == "function_call" && !json.Valid([]byte(e.Item.Arguments)):
		return "F28: a call that is done without whole arguments"
	}
	*p.items[len(p.items)-1] = *e.Item
	p.open = nil
	return ""
}

// piece takes an event of the open item.
func (p *responseReader) piece(name string, e *responseEvent) string {
	if p.open == nil || e.ItemID != p.open.ID || e.Output == nil || *e.Output != len(p.items)-1 {
		return "C067: a piece of no open item"
	}
	call := strings.HasPrefix(name, "response.function_call_arguments") || strings.HasPrefix(name, "response.custom_tool_call")
	if !call && e.Content == nil && e.Summary == nil {
		return "a piece without the index of its part"
	}
	switch {
	case strings.HasSuffix(name, "part.added"):
		again := p.part
		if p.part = true; again {
			return "parts overlap"
		}
	case strings.HasSuffix(name, "part.done"):
		was := p.part
		if p.part = false; !was {
			return "the end of no open part"
		}
	case strings.HasSuffix(name, ".delta"):
		p.got += e.Delta
		if !call && !p.part && !strings.Contains(name, "reasoning_text") {
			return "C067: text of no open part"
		}
		switch p.open.Type { // what an answer that breaks has told so far
		case "message":
			p.text += e.Delta
		case "reasoning":
			p.thinking += e.Delta
		}
	case e.Text != nil && *e.Text != p.got, e.Arguments != nil && *e.Arguments != p.got:
		return fmt.Sprintf("the deltas said %q", p.got)
	}
	return ""
}
