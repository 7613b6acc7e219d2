package event

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// AppendJSON appends e as one JSON object on one line, without the line's end. Whatever a client or an upstream wrote
// into a field stays inside its string: control characters, terminal escapes, line and direction marks are escaped and
// bytes that are not UTF-8 become U+FFFD. Unknown values are null.
func AppendJSON(b []byte, e *Event) []byte {
	b = append(b, `{"time":"`...)
	b = appendTime(b, e.Time)
	b = append(b, `","event":`...)
	b = appendString(b, string(e.Name))
	b = append(b, `,"request":`...)
	b = appendText(b, e.Request)
	if e.Name == End && e.Record != nil {
		b = appendRecord(b, e.Record)
	} else {
		b = appendFact(b, e)
	}
	return append(b, '}')
}

// appendFact appends the members that are known. reroute and skip always have their reason.
func appendFact(b []byte, e *Event) []byte {
	for _, f := range [...]struct{ name, value string }{
		{`,"alias":`, e.Alias}, {`,"route":`, e.Route}, {`,"tier":`, e.Tier}, {`,"pool":`, e.Pool}, {`,"model":`, e.Model},
		{`,"kind":`, e.Kind}, {`,"from":`, e.From}, {`,"to":`, e.To}, {`,"actor":`, e.Actor}, {`,"detail":`, e.Detail},
	} {
		if f.value != "" {
			b = appendString(append(b, f.name...), f.value)
		}
	}
	if e.Reason != "" || e.Name == Reroute || e.Name == Skip || e.Name == Drop || e.Name == Repair {
		b = appendText(append(b, `,"reason":`...), e.Reason)
	}
	return b
}

func appendRecord(b []byte, r *Record) []byte {
	b = appendTexts(b, [...]member{
		{`,"alias":`, r.Alias}, {`,"class":`, r.Class}, {`,"route":`, r.Route}, {`,"tier":`, r.Tier}, {`,"pool":`, r.Pool},
		{`,"backend":`, r.Backend}, {`,"model":`, r.Model}, {`,"served":`, r.Served},
	})
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(r.Status), 10)
	b = appendText(append(b, `,"kind":`...), r.Kind)
	b = AppendAttempts(append(b, `,"attempts":`...), r.Attempts)
	b = appendMS(append(b, `,"queue_ms":`...), r.Queue)
	b = appendMS(append(b, `,"first_ms":`...), r.First)
	b = appendMS(append(b, `,"total_ms":`...), r.Total)
	b = appendMS(append(b, `,"overhead_ms":`...), r.Overhead)
	b = appendTokens(append(b, `,"tokens":`...), &r.Tokens)
	b = appendNanos(append(b, `,"cost_usd":`...), r.Cost)
	b = appendTexts(b, [...]member{
		{`,"key":`, r.KeyName}, {`,"key_id":`, r.KeyID}, {`,"session":`, r.Session}, {`,"tag":`, r.Tag}, {`,"version":`, r.Version},
		{`,"op":`, r.Op}, {`,"dialect":`, r.Dialect}, {`,"reroute":`, r.Reroute},
	})
	b = append(b, `,"gate":null,"nudge":null,"shape":`...)
	b = appendShape(b, &r.Shape)
	if r.Purpose != "" && r.Purpose != "client" {
		b = appendString(append(b, `,"purpose":`...), r.Purpose)
	}
	if r.Message != "" {
		b = appendString(append(b, `,"message":`...), r.Message)
	}
	if r.Remote != "" {
		b = appendString(append(b, `,"remote":`...), r.Remote)
	}
	if r.Trace != (TraceID{}) {
		b = append(appendHex(append(b, `,"trace":"`...), r.Trace[:]), '"')
	}
	return b
}

// AppendAttempts appends attempts as a JSON array, the form of event lines and of the store.
func AppendAttempts(b []byte, attempts []Attempt) []byte {
	b = append(b, '[')
	for i := range attempts {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendAttempt(b, &attempts[i])
	}
	return append(b, ']')
}

func appendAttempt(b []byte, a *Attempt) []byte {
	b = appendText(append(b, `{"pool":`...), a.Pool)
	b = appendText(append(b, `,"backend":`...), a.Backend)
	b = appendText(append(b, `,"model":`...), a.Model)
	b = appendText(append(b, `,"tier":`...), a.Tier)
	b = appendText(append(b, `,"kind":`...), a.Kind)
	b = append(b, `,"status":`...)
	if a.Status != 0 {
		b = strconv.AppendInt(b, int64(a.Status), 10)
	} else {
		b = append(b, null...)
	}
	b = appendMS(append(b, `,"at_ms":`...), a.At)
	b = appendMS(append(b, `,"queue_ms":`...), a.Queue)
	if a.Place > 0 {
		b = strconv.AppendInt(append(b, `,"place":`...), int64(a.Place), 10)
		b = appendMS(append(b, `,"guess_ms":`...), a.Guess)
	}
	b = appendMS(append(b, `,"first_ms":`...), a.First)
	b = appendMS(append(b, `,"took_ms":`...), a.Took)
	b = strconv.AppendBool(append(b, `,"sent":`...), a.Sent)
	if a.Served != "" {
		b = appendString(append(b, `,"served":`...), a.Served)
	}
	if a.Message != "" {
		b = appendString(append(b, `,"message":`...), a.Message)
	}
	return append(b, '}')
}

func appendTokens(b []byte, t *Tokens) []byte {
	b = appendCount(append(b, `{"in":`...), t.In)
	b = appendCount(append(b, `,"out":`...), t.Out)
	b = appendCount(append(b, `,"cached":`...), t.Cached)
	b = appendCount(append(b, `,"reasoning":`...), t.Reasoning)
	b = appendCount(append(b, `,"written":`...), t.Written)
	return append(strconv.AppendBool(append(b, `,"estimated":`...), t.Estimated), '}')
}

func appendShape(b []byte, s *Shape) []byte {
	b = strconv.AppendInt(append(b, `{"bytes":`...), int64(s.Bytes), 10)
	b = strconv.AppendInt(append(b, `,"tokens_est":`...), int64(s.TokensEst), 10)
	b = strconv.AppendInt(append(b, `,"messages":`...), int64(s.Messages), 10)
	b = strconv.AppendInt(append(b, `,"tools":`...), int64(s.Tools), 10)
	b = strconv.AppendInt(append(b, `,"images":`...), int64(s.Images), 10)
	b = strconv.AppendBool(append(b, `,"stream":`...), s.Stream)
	b = append(b, `,"max_tokens":`...)
	if s.MaxTokens > 0 {
		return append(strconv.AppendInt(b, s.MaxTokens, 10), '}')
	}
	return append(b, `null}`...)
}

const null = "null"

type member struct{ name, value string }

func appendTexts(b []byte, members [8]member) []byte {
	for i := range members {
		b = appendText(append(b, members[i].name...), members[i].value)
	}
	return b
}

// appendText is appendString with null for what is empty.
func appendText(b []byte, s string) []byte {
	if s == "" {
		return append(b, null...)
	}
	return appendString(b, s)
}

// appendMS appends milliseconds with three decimals, null for a negative duration.
func appendMS(b []byte, d time.Duration) []byte {
	if d < 0 {
		return append(b, null...)
	}
	us := d.Microseconds()
	b = append(strconv.AppendInt(b, us/1000, 10), '.')
	us %= 1000
	return append(b, byte('0'+us/100), byte('0'+us/10%10), byte('0'+us%10))
}

func appendCount(b []byte, n int64) []byte {
	if n < 0 {
		return append(b, null...)
	}
	return strconv.AppendInt(b, n, 10)
}

// appendNanos appends nano-dollars as dollars, exactly and without an exponent; null for what is unknown.
func appendNanos(b []byte, n int64) []byte {
	const dollar = 1e9
	if n < 0 {
		return append(b, null...)
	}
	b = strconv.AppendInt(b, n/dollar, 10)
	if n %= dollar; n == 0 {
		return b
	}
	b = append(b, '.')
	for digit := int64(dollar / 10); n > 0; digit /= 10 {
		b = append(b, byte('0'+n/digit))
		n %= digit
	}
	return b
}

const hexDigits = "0123456789abcdef"

func appendHex(b, id []byte) []byte {
	for _, c := range id {
		b = append(b, hexDigits[c>>4], hexDigits[c&15])
	}
	return b
}

// appendTime appends RFC 3339 in UTC with six decimals, at a third of the cost of AppendFormat.
func appendTime(b []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	us := t.Nanosecond() / 1000
	b = strconv.AppendInt(b, int64(year), 10)
	return append(b, '-', tens(int(month)), ones(int(month)), '-', tens(day), ones(day), 'T', tens(hour), ones(hour), ':', tens(minute), ones(minute),
		':', tens(second), ones(second), '.', tens(us/10000), ones(us/10000), tens(us/100%100), ones(us/100%100), tens(us%100), ones(us%100), 'Z')
}

func tens(n int) byte { return byte('0' + n/10) }
func ones(n int) byte { return byte('0' + n%10) }

// appendString appends s quoted.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	i := 0
	for i < len(s) && plain[s[i]] {
		i++
	}
	if i < len(s) {
		b = appendEscaped(b, s[:i], s[i:])
	} else {
		b = append(b, s...)
	}
	return append(b, '"')
}

// appendEscaped appends head as it is and the rest with its escapes.
func appendEscaped(b []byte, head, rest string) []byte {
	b = append(b, head...)
	for i := 0; i < len(rest); {
		c := rest[i]
		switch {
		case plain[c]:
			b = append(b, c)
			i++
		case c < utf8.RuneSelf:
			b = appendEscape(b, rune(c))
			i++
		default:
			r, n := utf8.DecodeRuneInString(rest[i:])
			if r == utf8.RuneError && n <= 1 || hidden(r) {
				b = appendEscape(b, r)
			} else {
				b = append(b, rest[i:i+n]...)
			}
			i += n
		}
	}
	return b
}

// plain are the bytes that stand for themselves.
var plain = func() (t [256]bool) {
	for c := ' '; c < 0x7f; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// hidden are characters that steer a terminal or the eye: C1 controls, line and paragraph separators, direction
// marks, zero width and byte order marks.
func hidden(r rune) bool {
	return r >= 0x80 && r < 0xa0 || r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2060 && r <= 0x206f || r == 0xfeff
}

func appendEscape(b []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(b, '\\', byte(r))
	case '\n':
		return append(b, '\\', 'n')
	case '\t':
		return append(b, '\\', 't')
	case '\r':
		return append(b, '\\', 'r')
	}
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// Escape makes s fit for one line of a terminal: what AppendJSON escapes is escaped, without the quotes.
func Escape(s string) string {
	for i := 0; i < len(s); i++ {
		if !plain[s[i]] {
			return string(bare(nil, s))
		}
	}
	return s
}
