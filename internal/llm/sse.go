package llm

import "bytes"

// MaxEvent is the largest server-sent event that is taken from an upstream; one more byte is a failure, not a wait.
const MaxEvent = 4 << 20

// readSize is the room a stream asks for at first: a paced chunk is about 250 bytes, a burst fills the transport's 4 KiB.
const readSize = 8 << 10

// Frame is one server-sent event. Its bytes are valid until the next Space, those of Data until the next event.
type Frame struct {
	At    Span   // where it stands in the buffer, with the empty line at its end; see Frames.Raw
	Data  []byte // the data lines, joined by line feeds
	Name  []byte // the event field, nil when there was none
	Plain bool   // it may be forwarded as it is: line feeds only, at most one data line, properly ended
	Empty bool   // no data: comments and other fields alone
}

// Frames cuts a stream of bytes into server-sent events as the HTML standard says: LF, CR and CRLF end a line, several
// data lines are joined, comments and unknown fields are kept, a byte order mark is passed over. It sees bytes in any
// split and owns the buffer that they are read into: Space, read, Took, then Next until it is false.
type Frames struct {
	buf   []byte
	at    int  // start of the current event
	line  int  // start of the current line
	look  int  // up to here the current line was searched for its end
	skip  bool // a CR ended the last event: a LF that follows belongs to it
	began bool // the first bytes were looked at for a byte order mark

	data  []byte
	first Span // the only data line so far
	lines int  // data lines so far
	name  Span
	odd   bool // a CR was seen in this event
}

// Space returns room for the next read. Frames handed out before are no longer valid. It returns nil when MaxEvent bytes
// are there and their event has not ended.
func (f *Frames) Space() []byte {
	if f.at > 0 {
		n := copy(f.buf, f.buf[f.at:])
		f.buf = f.buf[:n]
		f.line, f.look = f.line-f.at, f.look-f.at
		f.first.From, f.first.To = f.first.From-f.at, f.first.To-f.at
		if !f.name.IsZero() {
			f.name.From, f.name.To = f.name.From-f.at, f.name.To-f.at
		}
		f.at = 0
	}
	if len(f.buf) >= MaxEvent {
		return nil
	}
	if len(f.buf) == 0 && cap(f.buf) > 8*readSize {
		f.buf = nil // a rare huge event must not hold its memory for the rest of the stream
	}
	if free := cap(f.buf) - len(f.buf); free < readSize/4 {
		grown := make([]byte, len(f.buf), max(readSize, 2*cap(f.buf)))
		copy(grown, f.buf)
		f.buf = grown
	}
	return f.buf[len(f.buf):min(cap(f.buf), MaxEvent)]
}

// Took says how many bytes of Space were filled.
func (f *Frames) Took(n int) {
	f.buf = f.buf[:len(f.buf)+n]
	if !f.began {
		f.mark()
	}
}

// mark passes over a byte order mark at the very start.
func (f *Frames) mark() {
	const bom = "\xef\xbb\xbf"
	if len(f.buf) < len(bom) && bom[:len(f.buf)] == string(f.buf) {
		return
	}
	f.began = true
	if bytes.HasPrefix(f.buf, []byte(bom)) {
		f.at, f.line, f.look = len(bom), len(bom), len(bom)
	}
}

// Raw returns the bytes of the buffer from one frame's start to another's end.
func (f *Frames) Raw(at Span) []byte { return at.Of(f.buf) }

// Next returns the next whole event.
func (f *Frames) Next() (Frame, bool) {
	if !f.began {
		return Frame{}, false
	}
	if f.skip && f.line < len(f.buf) {
		f.skip = false
		if f.buf[f.line] == '\n' {
			f.at, f.line, f.look = f.at+1, f.line+1, f.line+1
		}
	}
	for f.line < len(f.buf) {
		n := bytes.IndexByte(f.buf[f.look:], '\n')
		end := len(f.buf)
		if n >= 0 {
			end = f.look + n
		}
		next := end + 1
		if cr := bytes.IndexByte(f.buf[f.look:end], '\r'); cr >= 0 {
			cr += f.look
			if cr+1 == len(f.buf) && cr > f.line {
				f.look = cr
				return Frame{}, false // a LF may follow; the event does not end here, so nothing is late
			}
			end, next, f.odd = cr, cr+1, true
			switch {
			case next == len(f.buf):
				f.skip = true
			case f.buf[next] == '\n':
				next++
			}
		} else if n < 0 {
			f.look = len(f.buf)
			return Frame{}, false
		}
		line := Span{f.line, end}
		f.line, f.look = next, next
		if line.From == line.To {
			return f.end(), true
		}
		f.field(line)
	}
	return Frame{}, false
}

// field takes one line of the current event.
func (f *Frames) field(at Span) {
	name, value, ok := bytes.Cut(at.Of(f.buf), []byte{':'})
	at.From += len(name)
	if ok {
		at.From++
		if len(value) > 0 && value[0] == ' ' {
			at.From++
		}
	}
	switch string(name) {
	case "data":
		if f.lines++; f.lines == 1 {
			f.first = at
			return
		}
		if f.lines == 2 {
			f.data = append(f.data[:0], f.first.Of(f.buf)...)
		}
		f.data = append(append(f.data, '\n'), at.Of(f.buf)...)
	case "event":
		f.name = at
	}
}

// end closes the current event, whose last line has just been passed.
func (f *Frames) end() Frame {
	fr := Frame{At: Span{f.at, f.line}, Plain: !f.odd && f.lines <= 1, Empty: f.lines == 0}
	switch f.lines {
	case 0:
	case 1:
		fr.Data = f.first.Of(f.buf)
	default:
		fr.Data = f.data
	}
	if !f.name.IsZero() {
		fr.Name = f.name.Of(f.buf)
	}
	f.at, f.lines, f.odd, f.name = f.line, 0, false, Span{}
	return fr
}

// Rest returns the event that the end of the body left without its empty line, if it has data. The standard discards
// it; real servers end so, and the caller decides by its data.
func (f *Frames) Rest() (Frame, bool) {
	f.began = true
	if f.line < len(f.buf) {
		line := Span{f.line, f.line + len(bytes.TrimRight(f.buf[f.line:], "\r"))}
		f.line, f.look = len(f.buf), len(f.buf)
		f.field(line)
	}
	if f.lines == 0 {
		return Frame{}, false
	}
	f.odd = true
	return f.end(), true
}
