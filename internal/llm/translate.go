package llm

// Translated returns the stream that turns an answer of one dialect into another's: from reads it, to writes it. stream
// says whether the client streams; the answer to one who does not is gathered until the end.
func Translated(from Source, to Writer, stream bool) Stream {
	t := &translated{from: from, to: to, stream: stream}
	t.seen.Usage = NoUsage
	return t
}

type translated struct {
	frames Frames
	from   Source
	to     Writer
	stream bool
	seen   Seen
	begun  bool // an answer has begun, if only by its start
	size   int  // bytes read, of an answer that is gathered
}

// maxGathered bounds the events from which one answer is gathered.
const maxGathered = 64 << 20

// Space returns room for the next read.
func (t *translated) Space() []byte { return t.frames.Space() }

// Seen tells what the stream has shown so far.
func (t *translated) Seen() *Seen { return &t.seen }

// Feed takes the n bytes read.
func (t *translated) Feed(n int) ([]byte, error) {
	t.frames.Took(n)
	if t.size += n; !t.stream && t.size > maxGathered {
		return nil, &Error{Kind: Refused, Op: "llm.Feed", Sent: true,
			Msg: "the model's server sent an answer larger than Weir takes (64 MiB of events)"}
	}
	for !t.seen.Done {
		f, ok := t.frames.Next()
		if !ok {
			break
		}
		if err := t.event(&f); err != nil {
			return t.take(), err
		}
	}
	return t.take(), nil
}

func (t *translated) event(f *Frame) error {
	if f.Empty {
		return nil
	}
	finished := t.seen.Finished
	err := t.from.Event(f, t.put)
	if err != nil && finished { // what is lost after the finish does not matter
		t.seen.Done = true
		return nil
	}
	return err
}

func (t *translated) take() []byte {
	if !t.stream {
		return nil
	}
	return t.to.Take()
}

// put passes a piece on and keeps account.
func (t *translated) put(d *Delta) {
	t.seen.note(d)
	t.begun = true
	if d.Kind != DeltaDone && d.Kind != DeltaPrefill {
		t.to.Put(d)
	}
}

// note takes what a piece tells of the answer as a whole.
func (s *Seen) note(d *Delta) {
	switch d.Kind {
	case DeltaStart:
		if s.Served == "" && len(d.Model) > 0 {
			s.Served = string(Unescaped(d.Model))
		}
	case DeltaText, DeltaThinking, DeltaRefusal, DeltaInput, DeltaSealed:
		if len(d.Text) > 0 {
			s.Content = true
			s.Events++
		}
	case DeltaCall:
		s.Content = true
		s.Events++
	case DeltaFinish:
		s.Content, s.Finished = true, true // a proper finish without content is an answer
	case DeltaUsage:
		s.Usage.Add(d.Usage)
	case DeltaPrefill:
		s.Prefill, s.PromptN = d.Prefill, d.PromptN
	case DeltaDone:
		s.Done = true
	}
}

// Add takes totals that came later: what they say replaces what was known, what they do not say stays (C149).
func (u *Usage) Add(v Usage) {
	set := func(dst *int64, n int64) {
		if n >= 0 {
			*dst = n
		}
	}
	set(&u.In, v.In)
	set(&u.Out, v.Out)
	set(&u.Cached, v.Cached)
	set(&u.Written, v.Written)
	set(&u.Reasoning, v.Reasoning)
}

// End takes the end of the body.
func (t *translated) End() ([]byte, error) {
	if f, ok := t.frames.Rest(); ok && !t.seen.Done {
		if data := trim(f.Data); string(data) == "[DONE]" || IsObject(data) { // half an event tells nothing (C010)
			if err := t.event(&f); err != nil {
				return t.take(), err
			}
		}
	}
	switch {
	case t.seen.Finished:
		return t.to.End(), nil
	case !t.begun:
		return nil, &Error{Kind: Refused, Op: "llm.End", Msg: "the model's server ended its answer before it began", Sent: true}
	}
	return t.take(), &Error{Kind: Stalled, Op: "llm.End", Code: "incomplete_stream", Sent: true,
		Msg: "the answer broke off: the model's server ended it without saying why it stopped"}
}

// TranslateWhole turns an answer that came in one piece into another dialect's. An error object in body is a *Fault.
func TranslateWhole(from Source, to Writer, body []byte) ([]byte, Seen, error) {
	t := &translated{from: from, to: to}
	t.seen.Usage = NoUsage
	if err := from.Whole(body, t.put); err != nil {
		return nil, t.seen, err
	}
	if !t.seen.Finished {
		return nil, t.seen, &Error{Kind: Refused, Op: "llm.TranslateWhole", Sent: true,
			Msg: "the model's server answered without saying why it stopped"}
	}
	return to.End(), t.seen, nil
}
