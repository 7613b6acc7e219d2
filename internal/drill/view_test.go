package drill

import (
	"io"
	"net/http"
	"testing"
)

// The judge itself: what counts as whole, broken and refused.
func TestAViewIsReadStrictly(t *testing.T) {
	const text = `data: {"choices":[{"index":0,"delta":{"content":"answer a-000001 one"},"finish_reason":null}]}` + "\n\n"
	const finish = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	const failure = `data: {"error":{"message":"lost","code":"incomplete_stream"}}` + "\n\n"
	const done = "data: [DONE]\n\n"
	for name, c := range map[string]struct {
		body                   string
		status                 int
		json                   bool
		cut                    error
		whole, broken, refused bool
		wrong                  int
	}{
		"a whole stream":             {body: text + finish + done, whole: true},
		"without its end mark":       {body: text + finish},
		"without a finish":           {body: text + done},
		"one error":                  {body: text + failure, cut: io.ErrUnexpectedEOF, broken: true},
		"an error and the end mark":  {body: text + failure + done, wrong: 1, broken: true},
		"a finish and an error":      {body: text + finish + failure},
		"two errors":                 {body: text + failure + failure, wrong: 1, broken: true},
		"nothing after the text":     {body: text},
		"cut after the end":          {body: text + finish + done, cut: io.ErrUnexpectedEOF},
		"content after the end":      {body: text + finish + done + text, wrong: 1, whole: true},
		"two finishes":               {body: text + finish + finish + done, wrong: 1, whole: true},
		"broken JSON":                {body: "data: {\"cho\n\n" + finish + done, wrong: 1, whole: true},
		"a whole answer":             {json: true, body: `{"choices":[{"message":{"content":"answer a-000001"},"finish_reason":"stop"}]}`, whole: true},
		"half of it":                 {json: true, body: `{"choices":[{"mess`, wrong: 1},
		"an error":                   {json: true, status: 502, body: `{"error":{"message":"lost","code":"x"}}`, refused: true},
		"an error as text":           {json: true, status: 502, body: `{"error":"lost"}`, refused: true},
		"an error with status 200":   {json: true, body: `{"error":{"message":"lost"}}`, wrong: 1},
		"a status and no error":      {json: true, status: 500, body: `{}`, wrong: 1},
		"a page":                     {json: true, status: 500, body: `<html>`, wrong: 2},
		"an error that says nothing": {json: true, status: 500, body: `{"error":{}}`, wrong: 1, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			v := &view{status: c.status, header: http.Header{}, body: []byte(c.body), stream: !c.json, cut: c.cut}
			if v.status == 0 {
				v.status = 200
			}
			v.parse()
			if v.whole() != c.whole || v.broken() != c.broken || v.refused() != c.refused || len(v.wrong) != c.wrong {
				t.Errorf("whole %v, broken %v, refused %v, wrong %q", v.whole(), v.broken(), v.refused(), v.wrong)
			}
		})
	}
}
