package anthropic

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"weir/internal/llm"
)

// TestConversation holds how requests are read: each archive has one, and its neutral form.
func TestConversation(t *testing.T) {
	golden(t, "conversation", func(t *testing.T, in map[string]string) string {
		c, err := Dialect{}.Conversation(decode(t, in["request"]))
		if err != nil {
			e := refusal(t, err)
			return fmt.Sprintf("%s %s: %s", e.Kind, e.Param, e.Msg)
		}
		return told(c)
	})
}

// TestCompose holds how requests are written for a backend of this dialect: each archive has one in Messages, taken as if
// it were another dialect's.
func TestCompose(t *testing.T) {
	golden(t, "compose", func(t *testing.T, in map[string]string) string {
		r := decode(t, in["request"])
		c, err := Dialect{}.Conversation(r)
		if err != nil {
			t.Fatal(err)
		}
		c.Lost = nil
		r.Dialect = "openai"
		tg := target()
		if strings.Contains(in["target"], "system_turns: user") {
			tg.SystemTurns = "user"
		}
		tg.Attribution = strings.Contains(in["target"], "attribution")
		body, err := Dialect{}.Compose(c, r, tg)
		if err != nil {
			e := refusal(t, err)
			return fmt.Sprintf("%s %s: %s", e.Kind, e.Param, e.Msg)
		}
		return indented(t, body) + lost(c)
	})
}

func target() *llm.Target { return &llm.Target{Model: "m", Quoted: []byte(`"m"`)} }

func lost(c *llm.Conversation) (s string) {
	for _, l := range c.Lost {
		s += "\nlost " + l
	}
	return s
}

// TestSource holds how answers of this dialect are read: each archive has a stream or a whole answer, and its deltas.
func TestSource(t *testing.T) {
	golden(t, "source", func(t *testing.T, in map[string]string) string {
		var lines []string
		put := func(d *llm.Delta) { lines = append(lines, line(d)) }
		s := Dialect{}.Source()
		var err error
		if whole := in["whole"]; whole != "" {
			err = s.Whole([]byte(whole), put)
		} else {
			var fr llm.Frames
			body := in["stream"] + "\n\n"
			fr.Took(copy(fr.Space(), body))
			for f, ok := fr.Next(); ok && err == nil; f, ok = fr.Next() {
				if !f.Empty {
					err = s.Event(&f, put)
				}
			}
		}
		if err != nil {
			lines = append(lines, fmt.Sprintf("error %T: %v", err, err))
		}
		return strings.Join(lines, "\n")
	})
}

// madeID is an id that was made up.
var madeID = regexp.MustCompile(`(toolu|msg)_[A-Z2-7]{26}`)

// TestWriter holds how answers are written: each archive has deltas, and the stream and the message that they make.
func TestWriter(t *testing.T) {
	golden(t, "writer", func(t *testing.T, in map[string]string) string {
		list := deltas(t, in["deltas"])
		out := ""
		for _, stream := range []bool{true, false} {
			r := &llm.Request{Stream: stream, Shape: llm.Shape{TokensEst: 100}}
			w := Dialect{}.Writer(r, "shown")
			var got []byte
			for i := range list {
				w.Put(&list[i])
				if stream {
					got = append(got, w.Take()...)
				}
			}
			got = append(got, w.End()...)
			if stream {
				if err := wellFormed(got); err != nil {
					t.Error(err)
				}
				out = strings.TrimSuffix(strings.ReplaceAll(string(got), "\n\n", "\n"), "\n")
			} else {
				out += "\n" + indented(t, got)
			}
		}
		return madeID.ReplaceAllString(out, "${1}_MADE")
	})
}

var roleNames = []string{"", "system", "developer", "user", "assistant"}

// told writes a conversation for people to read.
func told(c *llm.Conversation) string {
	var b strings.Builder
	for _, t := range c.Turns {
		fmt.Fprintf(&b, "%s %d\n", roleNames[t.Role], t.N)
		parts(&b, t.Parts, "  ")
	}
	for _, t := range c.Tools {
		fmt.Fprintf(&b, "tool %d %s %q schema=%s strict=%s cache=%s type=%s\n", t.Kind, t.Name, t.Description, t.Schema, t.Strict, t.Cache, t.Type)
	}
	fmt.Fprintf(&b, "choice mode=%d name=%s parallel=%s\n", c.Choice.Mode, c.Choice.Name, c.Parallel)
	fmt.Fprintf(&b, "taste max=%s temperature=%s top_p=%s top_k=%s stop=%q\n", c.Taste.MaxTokens, c.Taste.Temperature, c.Taste.TopP, c.Taste.TopK, c.Taste.Stop)
	fmt.Fprintf(&b, "think off=%t on=%t budget=%s effort=%s shown=%s\n", c.Think.Off, c.Think.On, c.Think.Budget, c.Think.Effort, c.Think.Shown)
	fmt.Fprintf(&b, "output schema=%s\nuser=%s tier=%s", c.Output.Schema, c.Settings.User, c.Settings.Tier)
	return b.String() + lost(c)
}

var partNames = []string{"", "text", "refusal", "thinking", "image", "document", "audio", "call", "result", "other"}

func parts(b *strings.Builder, list []llm.Part, indent string) {
	for _, p := range list {
		fmt.Fprint(b, indent, partNames[p.Kind])
		for _, f := range []struct {
			name string
			v    []byte
		}{
			{"", p.Text}, {"id", p.ID}, {"name", p.Name}, {"input", p.Input.Object}, {"media", p.Media}, {"data", p.Data}, {"url", p.URL},
			{"file", p.FileID}, {"signature", p.Signature}, {"redacted", p.Redacted}, {"cache", p.Cache}, {"raw", p.Raw},
		} {
			if f.v != nil {
				fmt.Fprintf(b, " %s=%s", f.name, f.v)
			}
		}
		if p.Failed {
			b.WriteString(" failed")
		}
		b.WriteByte('\n')
		parts(b, p.Parts, indent+"  ")
	}
}
