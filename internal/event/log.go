package event

import (
	"context"
	"io"
	"strconv"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// Format is how a Log writes facts.
type Format uint8

// The formats of a Log.
const (
	JSON   Format = iota // one object a line
	Text                 // short and aligned, for people
	Colour               // Text with the colours of a terminal
)

const logFlush = 64 << 10 // bytes of one write: many lines share a system call

// Log is the reader that writes facts to w, one line each. A writer that blocks stops only this reader; a line that
// cannot be written is counted and gone.
type Log struct {
	w      io.Writer
	format Format
	buf    []byte
	failed atomic.Uint64
}

var _ Reader = (*Log)(nil)

// NewLog makes a Log. Nobody else may write to w meanwhile.
func NewLog(w io.Writer, f Format) *Log { return &Log{w: w, format: f} }

// Failed is how many writes failed: a full disk, a closed pipe.
func (l *Log) Failed() uint64 { return l.failed.Load() }

// Read writes the batch.
func (l *Log) Read(ctx context.Context, batch []Event) {
	for i := range batch {
		if l.format == JSON {
			l.buf = AppendJSON(l.buf, &batch[i])
		} else {
			l.buf = AppendText(l.buf, &batch[i], l.format == Colour)
		}
		l.buf = append(l.buf, '\n')
		if len(l.buf) >= logFlush {
			l.write()
		}
	}
	l.write()
	if cap(l.buf) > 2*logFlush { // one absurd line is not kept for good
		l.buf = nil
	}
}

func (l *Log) write() {
	if len(l.buf) == 0 {
		return
	}
	if _, err := l.w.Write(l.buf); err != nil {
		l.failed.Add(1)
	}
	l.buf = l.buf[:0]
}

// AppendText appends e as one short line for people, without the line's end. Foreign text is escaped as in AppendJSON.
func AppendText(b []byte, e *Event, colour bool) []byte {
	b = e.Time.Local().AppendFormat(b, "15:04:05.000 ")
	b = painted(b, nameColour(e), colour, pad(nil, string(e.Name), 8))
	if e.Name == End && e.Record != nil {
		return appendEndText(b, e, colour)
	}
	b = appendWord(b, "", e.Request)
	b = appendWord(b, "alias=", e.Alias)
	b = appendWord(b, "route=", e.Route)
	if e.Pool != "" {
		b = bare(append(b, ' '), e.Pool)
		if e.Model != "" {
			b = bare(append(b, '/'), e.Model)
		}
	}
	if e.From != "" || e.To != "" {
		b = bare(append(b, ' '), e.From)
		b = bare(append(b, " → "...), e.To)
	}
	b = appendWord(b, "reason=", e.Reason)
	b = appendWord(b, "kind=", e.Kind)
	b = appendWord(b, "by=", e.Actor)
	return appendWord(b, "", e.Detail)
}

func appendEndText(b []byte, e *Event, colour bool) []byte {
	r := e.Record
	b = append(b, ' ')
	b = painted(b, statusColour(r.Status), colour, strconv.AppendInt(nil, int64(r.Status), 10))
	b = pad(append(b, ' '), span(r.Total), 7)
	b = appendWord(b, "", e.Request)
	b = bare(append(b, ' '), or(r.Alias, "-"))
	if r.Pool != "" {
		b = bare(append(b, " → "...), r.Pool)
		b = bare(append(b, '/'), r.Model)
	}
	if r.First >= 0 {
		b = append(append(b, " first="...), span(r.First)...)
	}
	if r.Queue > 0 {
		b = append(append(b, " queue="...), span(r.Queue)...)
	}
	if len(r.Attempts) > 1 {
		b = strconv.AppendInt(append(b, " attempts="...), int64(len(r.Attempts)), 10)
	}
	if r.Tokens.In >= 0 && r.Tokens.Out >= 0 {
		b = strconv.AppendInt(append(b, " tokens="...), r.Tokens.In, 10)
		b = strconv.AppendInt(append(b, '/'), r.Tokens.Out, 10)
	}
	b = appendWord(b, "key=", r.KeyName)
	b = appendWord(b, "tag=", r.Tag)
	b = appendWord(b, "session=", r.Session)
	b = appendWord(b, "reroute=", r.Reroute)
	b = appendWord(b, "kind=", r.Kind)
	return appendWord(b, "", r.Message)
}

func appendWord(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return bare(append(append(b, ' '), name...), value)
}

// bare appends s escaped as in a JSON string, without the quotes.
func bare(b []byte, s string) []byte {
	n := len(b)
	b = appendString(b, s)
	copy(b[n:], b[n+1:])
	return b[:len(b)-2]
}

func pad(b []byte, s string, width int) []byte {
	b = append(b, s...)
	for n := utf8.RuneCountInString(s); n < width; n++ {
		b = append(b, ' ')
	}
	return b
}

func or(s, instead string) string {
	if s == "" {
		return instead
	}
	return s
}

// span is a duration with three digits at most, as people read it.
func span(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + "µs"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) + "s"
	}
	return d.Round(time.Second).String()
}

// Colours of a terminal.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
	grey   = "90"
)

func painted(b []byte, code string, colour bool, text []byte) []byte {
	if !colour {
		return append(b, text...)
	}
	b = append(append(append(b, "\x1b["...), code...), 'm')
	return append(append(b, text...), "\x1b[0m"...)
}

func nameColour(e *Event) string {
	switch e.Name {
	case Reroute, Skip, Drop, Repair:
		return yellow
	case Alert:
		return red
	case Start, Routing:
		return grey
	}
	return blue
}

func statusColour(status int) string {
	switch {
	case status >= 500:
		return red
	case status >= 400:
		return yellow
	}
	return green
}
