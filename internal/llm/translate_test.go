package llm

import (
	"strings"
	"testing"
)

// told is a source that puts what its events say.
type told struct{}

func (told) Event(f *Frame, put func(*Delta)) error {
	switch s := string(f.Data); {
	case s == "stop":
		put(&Delta{Kind: DeltaFinish, Stop: StopEnd})
	case s == "fault":
		return &Fault{Data: f.Data}
	case s == "[DONE]":
		put(&Delta{Kind: DeltaDone})
	default:
		put(&Delta{Kind: DeltaText, Text: Text(f.Data)})
	}
	return nil
}

func (told) Whole(body []byte, put func(*Delta)) error {
	for _, w := range strings.Fields(string(body)) {
		if err := (told{}).Event(&Frame{Data: []byte(w)}, put); err != nil {
			return err
		}
	}
	return nil
}

// plainWriter writes the texts.
type plainWriter struct{ out, given []byte }

func (w *plainWriter) Put(d *Delta) { w.out = append(w.out, d.Text...) }

func (w *plainWriter) Take() []byte {
	w.given, w.out = w.out, nil
	return w.given
}

func (w *plainWriter) End() []byte { return append(w.Take(), '.') }

func follow(s Stream, text string) (out string, err error) {
	for len(text) > 0 {
		space := s.Space()
		n := copy(space, text)
		text = text[n:]
		got, err := s.Feed(n)
		if out += string(got); err != nil {
			return out, err
		}
	}
	got, err := s.End()
	return out + string(got), err
}

func TestTranslatedKeepsAccountOfTheAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		stream   bool
		text     string
		want     string
		kind     Kind
		finished bool
	}{
		"a stream goes out piece by piece":                    {true, "data: a\n\ndata: b\n\ndata: stop\n\n", "ab.", 0, true},
		"an answer is gathered until its end":                 {false, "data: a\n\ndata: b\n\ndata: stop\n\n", "ab.", 0, true},
		"what follows the end mark is dropped":                {true, "data: a\n\ndata: stop\n\ndata: [DONE]\n\ndata: z\n\n", "a.", 0, true},
		"an end without a finish is a broken answer":          {true, "data: a\n\n", "a", Stalled, false},
		"an end before anything is no answer":                 {true, ": comment\n\n", "", Refused, false},
		"a fault is told":                                     {true, "data: a\n\ndata: fault\n\n", "a", Internal, false},
		"a fault after the finish changes nothing":            {true, "data: a\n\ndata: stop\n\ndata: fault\n\n", "a.", 0, true},
		"a finish alone is an answer":                         {true, "data: stop\n\n", ".", 0, true},
		"half an event at the end tells nothing":              {true, "data: a\n\ndata: st", "a", Stalled, false},
		"an end mark that lacks its empty line is one (C010)": {true, "data: a\n\ndata: stop\n\ndata: [DONE]", "a.", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := Translated(told{}, &plainWriter{}, c.stream)
			got, err := follow(s, c.text)
			kind := KindOf(err)
			if got != c.want || kind != c.kind || s.Seen().Finished != c.finished {
				t.Errorf("got %q, %v, finished %v; want %q, %v, %v", got, err, s.Seen().Finished, c.want, c.kind, c.finished)
			}
		})
	}
}

func TestTranslatedBoundsWhatItGathers(t *testing.T) {
	s := Translated(told{}, &plainWriter{}, false).(*translated)
	s.size = maxGathered
	n := copy(s.Space(), "data: a\n\n")
	if _, err := s.Feed(n); KindOf(err) != Refused {
		t.Errorf("got %v, want refused", err)
	}
}

func TestTranslateWholeNeedsAFinish(t *testing.T) {
	if out, seen, err := TranslateWhole(told{}, &plainWriter{}, []byte("a b stop")); err != nil || string(out) != "ab." || !seen.Finished {
		t.Errorf("got %q, %+v, %v", out, seen, err)
	}
	if _, _, err := TranslateWhole(told{}, &plainWriter{}, []byte("a")); KindOf(err) != Refused {
		t.Errorf("got %v, want refused", err)
	}
	if _, _, err := TranslateWhole(told{}, &plainWriter{}, []byte("fault")); err == nil {
		t.Error("a fault was passed over")
	}
}

func TestLaterUsageReplacesWhatItNames(t *testing.T) { // C149
	u := NoUsage
	u.Add(Usage{25, 1, -1, -1, -1})
	u.Add(Usage{-1, 8, -1, -1, -1})
	u.Add(Usage{25, 15, 3, -1, -1})
	if want := (Usage{25, 15, 3, -1, -1}); u != want {
		t.Errorf("got %+v, want %+v", u, want)
	}
}

func TestBalanceKnowsWhenAnObjectIsWhole(t *testing.T) {
	for _, c := range []struct {
		pieces string // separated by |
		want   bool
	}{
		{``, false}, {`{`, false}, {`{}`, true}, {`{\"a\":1}`, true}, {`{\"a|\":{\"b\":[1,2|]}`, false}, {`{\"a\":{\"b\":[1,2]}|}`, true},
		{`{\"a\":\"}\"`, false}, {`{\"a\":\"}\"}`, true}, {`{\"a\":\"\\\"}\"`, false}, {`{\"a\":\"\\\|"}\"}`, true}, {`{\"a\|":\"\\\\\"}`, true},
		{`{\"a\":\"\n}`, false}, {`{\n}`, true}, {`{\"a\":\"\\u007d\"}`, true},
	} {
		var b Balance
		for _, p := range strings.Split(c.pieces, "|") {
			b.Add(Text(p))
		}
		if b.Whole() != c.want {
			t.Errorf("%s: whole %v, want %v", c.pieces, b.Whole(), c.want)
		}
	}
}
