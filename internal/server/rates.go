package server

import (
	"strconv"
	"time"

	"weir/internal/key"
	"weir/internal/llm"
)

// The headers that tell a client what its key has left: the limit, what remains, and when all of it is there again.
var (
	openAIRates = [2][3]string{
		{"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
		{"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"},
	}
	messagesRates = [2][3]string{
		{"Anthropic-Ratelimit-Requests-Limit", "Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"},
		{"Anthropic-Ratelimit-Tokens-Limit", "Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"},
	}
)

// limit counts a request against the limits per minute of its key, and those of requests at a time.
func (x *exchange) limit(k *key.Key, now time.Time) (err error) {
	x.admission, err = x.Keys.Admit(k, now)
	if k.RPM > 0 || k.TPM > 0 {
		x.metered = k
		x.rates(now)
	}
	return refusal(err)
}

// reserve counts the tokens that a request may use, before it goes on.
func (x *exchange) reserve(r *llm.Request) error {
	if x.metered == nil || x.metered.TPM <= 0 || r.Op == llm.Count { // counting uses none
		return nil
	}
	now := time.Now()
	err := x.admission.Reserve(x.tokens(r).Estimate(), now)
	x.rates(now)
	return refusal(err)
}

// settle corrects what was reserved by what was used, and ends the admission. Requests that were refused for a limit count
// for nothing.
func (x *exchange) settle() {
	switch {
	case x.rec.Kind == llm.Limited.String():
		x.admission.Withdraw()
	case x.req != nil:
		x.admission.Settle(x.tokens(x.req).Used())
	}
	x.admission.Release()
}

func (x *exchange) tokens(r *llm.Request) key.Tokens {
	t := key.Tokens{
		Prompt: int64(r.Shape.TokensEst), Max: r.Shape.MaxTokens, Choices: r.Choices, Generates: r.Op.Generates(),
		In: x.rec.Tokens.In, Out: x.rec.Tokens.Out, Answered: x.rec.Kind == "" || x.rec.Kind == llm.Canceled.String(),
	}
	for i := range x.rec.Attempts {
		t.Sent = t.Sent || x.rec.Attempts[i].Sent
	}
	return t
}

// rates names what the key has left in the headers of the client's API.
func (x *exchange) rates(now time.Time) {
	names := &openAIRates
	if x.dialect == x.Anthropic {
		names = &messagesRates
	}
	s := x.metered.Standing(now)
	h, values := x.w.Header(), make([]string, 0, 6)
	for i, l := range [2]key.Left{s.Requests, s.Tokens} {
		if l.Limit == 0 {
			continue
		}
		reset := (l.Reset + time.Millisecond - 1).Truncate(time.Millisecond).String()
		if names == &messagesRates {
			reset = now.Add(l.Reset + time.Second - 1).UTC().Format(time.RFC3339)
		}
		for j, v := range [3]string{strconv.FormatInt(l.Limit, 10), strconv.FormatInt(l.Remaining, 10), reset} {
			values = append(values, v)
			h[names[i][j]] = values[len(values)-1 : len(values) : len(values)]
		}
	}
}
