package event

import (
	"encoding/binary"
	"math/rand/v2"
)

// sampledFlag is the one flag of W3C trace context that is read.
const sampledFlag = 0x01

// ParseTraceparent reads a traceparent header: the caller's trace, its span, and whether it is sampled. ok is false
// for what is not valid; then a new trace is to be begun.
func ParseTraceparent(s string) (trace TraceID, parent SpanID, sampled, ok bool) {
	const size = 2 + 1 + 32 + 1 + 16 + 1 + 2
	if len(s) < size || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return TraceID{}, SpanID{}, false, false
	}
	var version, flags [1]byte
	if !unhex(version[:], s[:2]) || !unhex(trace[:], s[3:35]) || !unhex(parent[:], s[36:52]) || !unhex(flags[:], s[53:55]) {
		return TraceID{}, SpanID{}, false, false
	}
	switch {
	case version[0] == 0xff, trace == TraceID{}, parent == SpanID{}:
		return TraceID{}, SpanID{}, false, false
	case len(s) > size && (version[0] == 0 || s[size] != '-'): // a later version may add fields, this one may not
		return TraceID{}, SpanID{}, false, false
	}
	return trace, parent, flags[0]&sampledFlag != 0, true
}

// AppendTraceparent appends the header's value for a call made within span.
func AppendTraceparent(b []byte, trace TraceID, span SpanID, sampled bool) []byte {
	b = appendHex(append(b, "00-"...), trace[:])
	b = appendHex(append(b, '-'), span[:])
	if sampled {
		return append(b, "-01"...)
	}
	return append(b, "-00"...)
}

// NewTraceID makes a random id. It is unguessable by chance only: ids are no secrets.
func NewTraceID() (id TraceID) {
	binary.BigEndian.PutUint64(id[:8], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()|1) // never zero
	return id
}

// NewSpanID makes a random id.
func NewSpanID() (id SpanID) {
	binary.BigEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}

// unhex reads lower case hex, the only case the standard allows.
func unhex(to []byte, s string) bool {
	for i := range to {
		hi, lo := nibble(s[2*i]), nibble(s[2*i+1])
		if hi > 15 || lo > 15 {
			return false
		}
		to[i] = hi<<4 | lo
	}
	return true
}

func nibble(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// ParseTraceID reads 32 lower case hex digits; the zero id is not valid.
func ParseTraceID(s string) (id TraceID, ok bool) {
	if len(s) != 32 || !unhex(id[:], s) || id == (TraceID{}) {
		return TraceID{}, false
	}
	return id, true
}

// String is the id in hex, empty for the zero id.
func (id TraceID) String() string {
	if id == (TraceID{}) {
		return ""
	}
	return string(appendHex(nil, id[:]))
}
