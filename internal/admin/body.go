package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// mostBody bounds what a change may send.
const mostBody = 64 << 10

// body decodes a request's body, one JSON object whose members are all known, into out.
func body(w http.ResponseWriter, r *http.Request, out any) error {
	refuse := func(format string, args ...any) error {
		return &failure{http.StatusBadRequest, "invalid_request", fmt.Sprintf(format, args...)}
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return &failure{http.StatusRequestEntityTooLarge, "body_too_large", fmt.Sprintf("the body has more than %d bytes", mostBody)}
	}
	if err != nil {
		return refuse("the body broke off: %v", err)
	}
	if text = bytes.TrimSpace(text); len(text) == 0 || text[0] != '{' {
		return refuse("the body must be a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(out); err != nil {
		return refuse("the body cannot be read: %v", err)
	}
	if d.InputOffset() != int64(len(text)) {
		return refuse("the body must be one JSON object and nothing after it")
	}
	return nil
}
