// Package llm is Weir's vocabulary: requests, answers, failures and their kinds, the strict JSON scan, splicing of
// bytes and server-sent events. It knows no provider's words; those stand in the packages below it, one a dialect.
package llm
