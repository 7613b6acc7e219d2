package server

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"weir/internal/key"
	"weir/internal/llm"
)

// boundaryHeader lets a client narrow where its request may go. It never widens.
const boundaryHeader = "X-Weir-Boundary"

// authenticate finds the key and counts the request against its limits.
func (x *exchange) authenticate() error {
	if x.Keys == nil {
		return x.narrow()
	}
	token, ok := token(x.r.Header)
	if !ok {
		token = "" // none, or two that differ: checked like any wrong one, so that all look the same
	}
	now := time.Now()
	addr, _ := netip.ParseAddr(x.rec.Remote)
	k, err := x.guard.Check(x.Keys, token, addr, now)
	if err != nil {
		return refusal(err)
	}
	x.rec.KeyName, x.rec.KeyID = k.Name, k.Prefix
	x.caller = llm.Caller{
		Key: k.Name, Prefix: k.Prefix, Priority: k.Priority, SpendDay: k.SpendDay, SpendMonth: k.SpendMonth,
		Local: k.Boundary == key.Local, May: k.Allows,
	}
	x.keep = k.KeepResponses
	if len(k.Aliases) == 0 {
		x.caller.May = nil
	}
	if err := x.limit(k, now); err != nil {
		return err
	}
	return x.narrow()
}

// narrow takes the client's own wish that the request stays on the machines you own. Of several lines, such as one that a
// proxy adds, each that says local narrows.
func (x *exchange) narrow() error {
	for _, v := range x.r.Header[boundaryHeader] {
		switch v {
		case "", "any":
		case "local":
			x.caller.Local = true
		default:
			e := llm.Errorf(llm.Invalid, "%s must be local or any, not %q", boundaryHeader, short(v))
			e.Code = "invalid_header"
			return e
		}
	}
	return nil
}

// token returns the one key of a request: a bearer, or x-api-key, or both when they are the same.
func token(h http.Header) (string, bool) {
	auth, plain := h["Authorization"], h["X-Api-Key"]
	if len(auth) > 1 || len(plain) > 1 || len(auth)+len(plain) == 0 {
		return "", false
	}
	var bearer string
	if len(auth) == 1 {
		scheme, rest, ok := strings.Cut(auth[0], " ")
		if !ok || !strings.EqualFold(scheme, "Bearer") {
			return "", false
		}
		if bearer = strings.TrimLeft(rest, " "); len(plain) == 0 {
			return bearer, true
		}
	}
	return plain[0], len(auth) == 0 || bearer == plain[0]
}

// refusal gives an error of the key its kind.
func refusal(err error) error {
	e, ok := errors.AsType[*key.Error](err)
	if !ok {
		return err
	}
	kind := llm.Unauthorized
	if e.Kind == key.Limited {
		kind = llm.Limited
	}
	return &llm.Error{Kind: kind, Msg: e.Msg, RetryAfter: e.RetryAfter}
}
