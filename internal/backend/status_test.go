package backend

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"weir/internal/llm"
)

// The shapes of errors that real servers send, from facts/servers.md and facts/protocols.md §1.3, §2.4 and §4.2.
var shapes = []struct {
	name   string
	status int
	body   string
	kind   llm.Kind
	msg    string // a part of it
	gets   int    // the status a client gets; 0: the kind's
	code   string // the code a client gets; empty: the kind's
}{
	// llama-server
	{"llama: loading", 503, `{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`, llm.Loading, "Loading model", 0, ""},
	{"llama: no slot", 503, `{"error":{"message":"no slot available","type":"unavailable_error","code":503}}`, llm.Unavailable, "no slot", 0, ""},
	{"llama: bad key", 401, `{"error":{"message":"Invalid API Key","type":"authentication_error","code":401}}`, llm.Denied, "Invalid API Key", 0, ""},
	{"llama: invalid JSON", 500, `{"error":{"code":500,"message":"[json.exception.parse_error.101] parse error at line 1, column 5: syntax error","type":"server_error"}}`, llm.Invalid, "parse error", 0, ""},
	{"llama: no messages", 400, `{"error":{"code":400,"message":"'messages' is required","type":"invalid_request_error"}}`, llm.Invalid, "'messages' is required", 400, ""},
	{"llama: unknown part", 400, `{"error":{"code":400,"message":"unsupported content[].type","type":"invalid_request_error"}}`, llm.Invalid, "unsupported", 400, ""},
	{"llama: an image it cannot read", 500, `{"error":{"code":500,"message":"image input is not supported - hint: if this is unexpected, you may need to provide the mmproj","type":"server_error"}}`, llm.Invalid, "image input", 0, ""},
	{"llama: bad arguments in history", 500, `{"error":{"code":500,"message":"Failed to parse tool call arguments as JSON: [json.exception.parse_error.101]","type":"server_error"}}`, llm.Invalid, "Failed to parse", 0, ""},
	{"llama: a tool that is no function", 500, `{"error":{"code":500,"message":"Failed to parse tools: Unsupported tool type: web_search","type":"server_error"}}`, llm.Invalid, "Unsupported tool type", 0, ""},
	{"llama: its own output that it cannot parse", 500, `{"error":{"code":500,"message":"Failed to parse input at pos 12: <tool_call>","type":"server_error"}}`, llm.Refused, "Failed to parse input", 0, ""},
	{"llama: bad grammar", 400, `{"error":{"code":400,"message":"failed to parse grammar","type":"invalid_request_error"}}`, llm.Invalid, "grammar", 400, ""},
	{"llama: too long", 400, `{"error":{"code":400,"message":"request (10085 tokens) exceeds the available context size (4096 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":10085,"n_ctx":4096}}`, llm.TooLong, "10085 tokens", 400, "context_length_exceeded"},
	{"llama: an embedding beyond the batch", 500, `{"error":{"code":500,"message":"input (1234 tokens) is too large to process. increase the physical batch size (current batch size: 512)","type":"server_error"}}`, llm.TooLong, "1234 tokens", 400, "context_length_exceeded"},
	{"llama: embeddings are not enabled", 501, `{"error":{"code":501,"message":"This server does not support embeddings. Start it with --embeddings","type":"not_supported_error"}}`, llm.Invalid, "--embeddings", 400, ""},
	{"llama: an unknown path", 404, `{"error":{"message":"File Not Found","type":"not_found_error","code":404}}`, llm.Gone, "File Not Found", 0, ""},
	{"llama router: unknown model", 400, `{"error":{"code":400,"message":"model 'x' not found","type":"invalid_request_error"}}`, llm.Gone, "not found", 0, ""},
	{"llama router: not loaded", 400, `{"error":{"code":400,"message":"model is not loaded","type":"invalid_request_error"}}`, llm.Gone, "not loaded", 0, ""},
	{"llama router: no model named", 400, `{"error":{"code":400,"message":"model name is missing from the request","type":"invalid_request_error"}}`, llm.Invalid, "missing", 400, ""},
	{"llama router: the model does not load", 500, `{"error":{"code":500,"message":"model name=broken failed to load","type":"server_error"}}`, llm.Gone, "failed to load", 0, ""},
	{"llama: a fault of its own", 500, `{"error":{"code":500,"message":"failed to decode","type":"server_error"}}`, llm.Refused, "failed to decode", 0, ""},

	// vLLM
	{"vLLM: too long", 400, `{"error":{"message":"This model's maximum context length is 32768 tokens. However, you requested 33077 tokens","type":"BadRequestError","param":"messages","code":400}}`, llm.TooLong, "33077", 400, "context_length_exceeded"},
	{"vLLM: too long, flat", 400, `{"object":"error","message":"This model's maximum context length is 32768 tokens. However, you requested 33077 tokens","code":400}`, llm.TooLong, "33077", 400, "context_length_exceeded"},
	{"vLLM: a bad request", 400, `{"object":"error","message":"top_p must be in (0, 1]","type":"BadRequestError","param":"top_p","code":400}`, llm.Invalid, "top_p must", 400, ""},
	{"vLLM: no base64", 400, `{"object":"error","message":"base64 encoding is not currently supported","type":"BadRequestError","code":400}`, llm.Invalid, "base64", 400, ""},
	{"vLLM: unknown model", 404, `{"error":{"message":"The model ` + "`x`" + ` does not exist.","type":"NotFoundError","param":"model","code":404}}`, llm.Gone, "does not exist", 0, ""},
	{"vLLM: the engine died", 500, `{"error":{"message":"EngineCore encountered an issue. See stack trace for the root cause.","type":"InternalServerError","code":500}}`, llm.Refused, "EngineCore", 0, ""},
	{"vLLM: out of memory", 500, `{"error":{"message":"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB","type":"InternalServerError","code":500}}`, llm.Refused, "CUDA out of memory", 0, ""},
	{"FastAPI: a list of faults", 422, `{"detail":[{"type":"missing","loc":["body","model"],"msg":"Field required","input":{}},{"msg":"other"}]}`, llm.Invalid, "Field required", 422, ""},
	{"FastAPI: a text", 422, `{"detail":"bad thing"}`, llm.Invalid, "bad thing", 422, ""},

	// SGLang
	{"SGLang: too long", 400, `{"object":"error","message":"The input (9000 tokens) is longer than the model's context length (8192 tokens).","type":"BadRequestError","param":null,"code":400}`, llm.TooLong, "9000", 400, "context_length_exceeded"},
	{"SGLang: full", 503, `{"object":"error","message":"The request queue is full.","type":"ServiceUnavailable","code":503}`, llm.Unavailable, "queue is full", 0, ""},

	// Ollama
	{"Ollama: unknown model", 404, `{"error":{"message":"model 'nope' not found","type":"api_error","param":null,"code":null}}`, llm.Gone, "nope", 0, ""},
	{"Ollama: full", 503, `{"error":"server busy, please try again.  maximum pending requests exceeded"}`, llm.Unavailable, "server busy", 0, ""},
	{"Ollama: too long", 400, `{"error":"prompt too long; exceeded max context length by 12 tokens"}`, llm.TooLong, "12 tokens", 400, "context_length_exceeded"},
	{"Ollama: no tools", 400, `{"error":{"message":"registry.ollama.ai/library/x:latest does not support tools","type":"invalid_request_error"}}`, llm.Invalid, "does not support tools", 400, ""},
	{"Ollama: a runner's death", 500, `{"error":"llama runner process has terminated: signal: killed"}`, llm.Refused, "terminated", 0, ""},

	// LM Studio
	{"LM Studio: too long", 400, `{"error":"The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 9000>= n_ctx: 4096)"}`, llm.TooLong, "9000", 400, "context_length_exceeded"},
	{"LM Studio: nothing loaded", 400, `{"error":{"message":"No models loaded. Please load a model in the developer page.","type":"invalid_request_error"}}`, llm.Gone, "No models loaded", 0, ""},
	{"LM Studio: does not load", 500, `{"error":"Failed to load model \"x\". Error: out of memory"}`, llm.Gone, "Failed to load model", 0, ""},

	// TGI
	{"TGI: overloaded", 429, `{"error":"Model is overloaded","error_type":"overloaded"}`, llm.Busy, "overloaded", 0, ""},
	{"TGI: validation", 422, `{"error":"Input validation error: top_k must be strictly positive","error_type":"validation"}`, llm.Invalid, "top_k", 422, ""},
	{"TGI: generation", 424, `{"error":"Request failed during generation: Server error: out of memory","error_type":"generation"}`, llm.Refused, "out of memory", 0, ""},
	{"TGI: unhealthy", 503, `{"error":"unhealthy","error_type":"healthcheck"}`, llm.Unavailable, "unhealthy", 0, ""},

	// LocalAI
	{"LocalAI: loading", 503, `{"error":{"code":503,"message":"x is being fetched","type":"model_loading"},"loading":{"progress":3}}`, llm.Loading, "fetched", 0, ""},
	{"LocalAI: admission", 503, `{"error":{"code":"admission_rejected","message":"too many","type":"server_error"}}`, llm.Unavailable, "too many", 0, ""},
	{"LocalAI: a user's quota", 429, `{"error":{"code":429,"message":"per-user limit","type":"rate_limit"}}`, llm.Busy, "per-user", 0, ""},

	// OpenAI and its kin
	{"C083 OpenAI: too long", 400, `{"error":{"code":"context_length_exceeded","message":"x"}}`, llm.TooLong, "x", 400, "context_length_exceeded"},
	{"OpenAI: a bad value", 400, `{"error":{"message":"Invalid value","type":"invalid_request_error","param":"messages[1].content","code":"invalid_value"}}`, llm.Invalid, "Invalid value", 400, "invalid_value"},
	{"OpenAI: a bad key", 401, `{"error":{"message":"Incorrect API key provided: sk-abcdefgh12345678","type":"invalid_request_error","code":"invalid_api_key"}}`, llm.Denied, "Incorrect API key provided: [removed]", 0, ""},
	{"OpenAI: rate", 429, `{"error":{"message":"Rate limit reached for gpt-5 in organization o on tokens per min (TPM): Limit 30000. Request too large: context length 1","type":"tokens","code":"rate_limit_exceeded"}}`, llm.Busy, "Rate limit", 0, ""},
	{"OpenAI: slow down", 429, `{"error":{"message":"slow down","code":"slow_down"}}`, llm.Busy, "slow down", 0, ""},
	{"OpenAI: quota", 429, `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","code":"insufficient_quota"}}`, llm.Denied, "quota", 0, ""},
	{"OpenAI: credit", 429, `{"error":{"message":"x","type":"y","code":"credit_balance_exhausted"}}`, llm.Denied, "x", 0, ""},
	{"OpenAI: a limit of spending", 429, `{"error":{"message":"Billing hard limit has been reached: spend limit","code":"billing_hard_limit_reached"}}`, llm.Denied, "limit", 0, ""},
	{"OpenAI: country", 403, `{"error":{"message":"Country, region, or territory not supported","type":"request_forbidden","code":"unsupported_country_region_territory"}}`, llm.Denied, "not supported", 0, ""},
	{"OpenAI: no such model", 404, `{"error":{"message":"The model ` + "`x`" + ` does not exist or you do not have access to it.","type":"invalid_request_error","code":"model_not_found"}}`, llm.Gone, "does not exist", 0, ""},
	{"OpenAI: a body too large", 413, `{"error":{"message":"too large"}}`, llm.Invalid, "too large", 413, ""},
	{"OpenAI: overloaded", 503, `{"error":{"message":"The server is overloaded","type":"server_error"}}`, llm.Unavailable, "overloaded", 0, ""},
	{"Google: a bad key", 400, `{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}`, llm.Denied, "API key not valid", 0, ""},
	{"Anthropic's words: credit", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API."}}`, llm.Denied, "credit balance", 0, ""},
	{"Anthropic's words: too long", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}`, llm.TooLong, "210000", 400, "context_length_exceeded"},
	{"Anthropic's words: too large", 413, `{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}`, llm.Invalid, "maximum size", 413, ""},
	{"Anthropic's words: no money", 402, `{"type":"error","error":{"type":"billing_error","message":"Your account is past due"}}`, llm.Denied, "past due", 0, ""},
	{"Anthropic's words: its own fault", 500, `{"type":"error","error":{"type":"api_error","message":"Internal server error"},"request_id":"req_1"}`, llm.Refused, "Internal", 0, ""},
	{"Anthropic's words: a key that is wrong", 401, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`, llm.Denied, "invalid", 0, ""},
	{"Anthropic's words: no such model", 404, `{"type":"error","error":{"type":"not_found_error","message":"model: claude-x"}}`, llm.Gone, "claude-x", 0, ""},
	{"Anthropic's words: overloaded", 529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, llm.Busy, "Overloaded", 0, ""},
	{"a router: no credit", 402, `{"error":{"message":"Insufficient credits","code":402}}`, llm.Denied, "Insufficient credits", 0, ""},
	{"a router: moderation", 403, `{"error":{"message":"Your chosen model requires moderation and your input was flagged","code":403}}`, llm.Invalid, "flagged", 403, ""},
	{"a router: not a model", 400, `{"error":{"message":"foo/bar is not a valid model ID","code":400}}`, llm.Gone, "not a valid model", 0, ""},
	{"a content filter", 400, `{"error":{"message":"The response was filtered due to the prompt triggering the content management policy","code":"content_filter"}}`, llm.Invalid, "filtered", 400, "content_filter"},

	// A client's own words must take nothing out.
	{"a tool's name that speaks of accounts", 400, `{"error":{"message":"Invalid schema for function 'get_account_balance': billing, insufficient_quota","code":"invalid_function_parameters"}}`, llm.Invalid, "Invalid schema", 400, "invalid_function_parameters"},
	{"a member that speaks of models", 400, `{"error":{"message":"this model accepts no member 'unknown'; tool not found"}}`, llm.Invalid, "accepts no member", 400, ""},

	// Proxies in front, and nothing at all
	{"a gateway's page", 502, `<html><head><title>502 Bad Gateway</title></head></html>`, llm.Refused, "status 502", 0, ""},
	{"a forbidding page", 403, `<html>403 Forbidden</html>`, llm.Denied, "status 403", 0, ""},
	{"a page that is not there", 404, `404 page not found`, llm.Gone, "status 404", 0, ""},
	{"a wrong method", 405, ``, llm.Gone, "status 405", 0, ""},
	{"a timeout in front", 504, ``, llm.Refused, "status 504", 0, ""},
	{"a timeout of the request", 408, ``, llm.Refused, "status 408", 0, ""},
	{"a conflict", 409, `{"error":{"message":"lock"}}`, llm.Refused, "lock", 0, ""},
	{"nothing at 429", 429, ``, llm.Busy, "status 429", 0, ""},
	{"nothing at 503", 503, ``, llm.Unavailable, "status 503", 0, ""},
	{"nothing at 500", 500, ``, llm.Refused, "status 500", 0, ""},
	{"nothing at 400", 400, ``, llm.Invalid, "status 400", 400, ""},
	{"an unprocessable request", 422, `{"message":"bad","statusCode":422,"error":"Unprocessable Entity"}`, llm.Invalid, "bad", 422, ""},
	{"a name before the message", 400, `{"statusCode":400,"error":"Bad Request","message":"the real reason"}`, llm.Invalid, "the real reason", 400, ""},
	{"a redirect", 302, ``, llm.Refused, "status 302", 0, ""},
	{"a status that is none", 999, ``, llm.Refused, "status 999", 0, ""},
	{"a hostile body", 500, `{"error":{"message":` + strings.Repeat("[", 1000), llm.Refused, "status 500", 0, ""},
	{"a body cut off", 400, `{"error":{"message":"half`, llm.Invalid, "status 400", 400, ""},
}

func TestErrorsBecomeKinds(t *testing.T) { // C083
	b := &Backend{}
	for _, c := range shapes {
		t.Run(c.name, func(t *testing.T) {
			e := llm.AsError(b.classify(c.status, http.Header{}, []byte(c.body)))
			if e.Kind != c.kind || e.Upstream != c.status || !strings.Contains(e.Msg, c.msg) {
				t.Fatalf("got %v, %d: %s\nwant %v: … %s …", e.Kind, e.Upstream, e.Msg, c.kind, c.msg)
			}
			gets, code := c.gets, c.code
			if gets == 0 {
				gets = c.kind.Status()
			}
			if code == "" {
				code = c.kind.Code()
			}
			if e.HTTPStatus() != gets || e.ErrorCode() != code {
				t.Errorf("the client gets %d %s, want %d %s", e.HTTPStatus(), e.ErrorCode(), gets, code)
			}
			if want := c.status >= 500 && c.status != 503 && c.status != 529; e.Sent != want {
				t.Errorf("it counts as a generation: %v", e.Sent)
			}
			if e.Kind == llm.Invalid && (e.Kind.Blames() || e.Kind.FallsBack()) {
				t.Error("a client's fault lowers a backend's health")
			}
		})
	}
}

func TestErrorsInsideAStreamBecomeKinds(t *testing.T) { // C009
	b := &Backend{}
	for _, c := range []struct {
		name, data string
		kind       llm.Kind
		upstream   int
		gets       int
	}{
		{"SGLang: full", `{"error":{"message":"The request queue is full.","type":"x","code":503},"code":503}`, llm.Unavailable, 503, 503},
		{"SGLang: full, the code outside", `{"error":{"message":"The request queue is full."},"code":503}`, llm.Unavailable, 503, 503},
		{"vLLM: not multimodal", `{"error":{"object":"error","message":"The model is not multimodal.","type":"BadRequestError","param":null,"code":400}}`, llm.Invalid, 400, 400},
		{"too long", `{"error":{"message":"The input (9000 tokens) is longer than the model's context length (8192 tokens).","code":400}}`, llm.TooLong, 400, 400},
		{"too long without a code", `{"error":{"message":"context length exceeded"}}`, llm.TooLong, 500, 400},
		{"a code that is a word", `{"error":{"message":"x","code":"rate_limit_exceeded"}}`, llm.Busy, 429, 429},
		{"money", `{"error":{"message":"x","code":"insufficient_quota"}}`, llm.Denied, 402, 502},
		{"a type that is a word", `{"error":{"message":"x","type":"overloaded_error"}}`, llm.Busy, 529, 429},
		{"a code in quotes", `{"error":{"message":"x","code":"429"}}`, llm.Busy, 429, 429},
		{"a text", `{"error":"boom"}`, llm.Refused, 500, 502},
		{"flat", `{"object":"error","message":"m","type":"BadRequestError","code":400}`, llm.Invalid, 400, 400},
		{"Messages: overloaded", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, llm.Busy, 529, 429}, // C065
		{"Messages: its own fault", `{"type":"error","error":{"type":"api_error","message":"boom"}}`, llm.Refused, 500, 502},
		{"Responses: failed", `{"type":"response.failed","sequence_number":3,"response":{"id":"r","status":"failed","error":{"code":"server_error","message":"m"}}}`, llm.Refused, 500, 502},
		{"Responses: too long", `{"type":"response.failed","response":{"output":[],"error":{"code":"context_length_exceeded","message":"m"}}}`, llm.TooLong, 500, 400},
		{"Responses: at its rate", `{"type":"error","code":"rate_limit_exceeded","message":"m","param":null,"sequence_number":1}`, llm.Busy, 429, 429},
		{"a code that is no status", `{"error":{"message":"m","code":17}}`, llm.Refused, 500, 502},
		{"nothing", `{"error":{}}`, llm.Refused, 500, 502},
	} {
		e := b.classifyFault([]byte(c.data))
		if e.Kind != c.kind || e.Upstream != c.upstream || e.HTTPStatus() != c.gets || e.Msg == "" {
			t.Errorf("%s: got %v, %d, %d: %q; want %v, %d, %d", c.name, e.Kind, e.Upstream, e.HTTPStatus(), e.Msg, c.kind, c.upstream, c.gets)
		}
	}
}

func TestRetryAfter(t *testing.T) { // C084
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	for _, c := range []struct {
		after, ms string
		want      time.Duration
	}{
		{"120", "", 120 * time.Second},
		{"1.5", "", 1500 * time.Millisecond},
		{" 2 ", "", 2 * time.Second},
		{"0", "", time.Millisecond},
		{"Mon, 30 Nov 2026 12:00:30 GMT", "", 30 * time.Second},
		{"Wed, 21 Oct 2099 07:28:00 GMT", "", day},
		{"Wed, 21 Oct 2015 07:28:00 GMT", "", time.Millisecond},
		{"-3", "", 0}, {"soon", "", 0}, {"", "", 0}, {"NaN", "", 0}, {"1s", "", 0},
		{"99999999999", "", day}, {"1e300", "", day}, {"Inf", "", day},
		{"7", "250", 250 * time.Millisecond},
		{"", "0", time.Millisecond}, {"", "0.5", time.Millisecond}, {"", "1e300", day}, {"7", "-1", 7 * time.Second}, {"7", "NaN", 7 * time.Second}, {"7", "soon", 7 * time.Second},
	} {
		h := http.Header{}
		if c.after != "" {
			h.Set("Retry-After", c.after)
		}
		if c.ms != "" {
			h.Set("Retry-After-Ms", c.ms)
		}
		if got := retryAfter(h, now); got != c.want {
			t.Errorf("Retry-After %q, ms %q: got %v, want %v", c.after, c.ms, got, c.want)
		}
	}
	b := &Backend{}
	for status, want := range map[int]time.Duration{429: 7 * time.Second, 503: 7 * time.Second, 529: 7 * time.Second, 500: 0, 400: 0, 404: 0, 401: 0} {
		e := llm.AsError(b.classify(status, http.Header{"Retry-After": {"7"}}, nil))
		if e.RetryAfter != want {
			t.Errorf("status %d: got %v, want %v", status, e.RetryAfter, want)
		}
	}
}

func TestMessagesAreCleaned(t *testing.T) { // S11, S13
	for _, c := range []struct{ in, want string }{
		{"a plain message, with 10085 tokens (4096 of them) and top_p=0.5", "a plain message, with 10085 tokens (4096 of them) and top_p=0.5"},
		{"'messages[1].content' is required; see 3.14 and v1.2.3", "'messages[1].content' is required; see 3.14 and v1.2.3"},
		{"use and/or; code:400; 12:30; a/b", "use and/or; code:400; 12:30; a/b"},
		{"dial http://10.0.0.7:8000/v1/chat failed", "dial [removed] failed"},
		{"see https://user:pw@host.example/x?key=1.", "see [removed]"},
		{"dial tcp 10.0.0.7:8000: refused", "dial tcp [removed]: refused"},
		{"from 192.168.1.20", "from [removed]"},
		{"dial tcp [fe80::1]:8000: no route", "dial tcp [removed]: no route"},
		{"localhost:11434 is down", "[removed] is down"},
		{"lookup gpu-7.lan on 10.0.0.1:53", "lookup [removed] on [removed]"},
		{"connect to llm.prod.svc.cluster.local:8080 failed", "connect to [removed] failed"},
		{"api.vendor.example:443 said no", "[removed] said no"},
		{"Incorrect API key provided: sk-proj-abcdefgh1234. Find", "Incorrect API key provided: [removed]. Find"},
		{"key weir_0123456789abcdef and gsk_abcdefghij", "key [removed] and [removed]"},
		{"key AIzaSyA1234567890123456789012345", "key [removed]"},
		{"header Authorization: Bearer abc.def", "header Authorization: [removed]"},
		{"open /models/foo.gguf: no such file", "open [removed]: no such file"},
		{"open:/srv/llm/m.gguf", "open:[removed]"},
		{`in "/srv/me/x.py", line 3`, `in "[removed]", line 3`},
		{"(~/models/x/y.gguf)", "([removed])"},
		{`C:\models\x.gguf is bad`, "[removed] is bad"},
		{"path=/opt/app/run `/opt/app/run` [/opt/app/run] </opt/app/run>", "path=[removed] `[removed]` [[removed]] <[removed]>"},
		{"sk-\x00abcdefgh1234", "[removed]"},
		{"sk-\u200babcdefgh1234", "[removed]"},
		{"10.0\x1b.0.7", "[removed]"},
		{"two\nlines\tand\r\nmore\x1b[31m", "two lines and  more[31m"},
		{"  padded  ", "padded"},
		{"bad \xff byte", "bad  byte"},
		{"", ""},
	} {
		if got := clean(c.in); got != c.want {
			t.Errorf("clean(%q) = %q, want %q", c.in, got, c.want)
		}
	}
	long := clean(strings.Repeat("é", 10_000))
	if len(long) > 510 || !utf8.ValidString(long) || !strings.HasSuffix(long, "…") {
		t.Errorf("a long message has %d bytes", len(long))
	}
}

func TestNothingOfThisSideReachesTheClient(t *testing.T) { // S13
	const canary = "sk-canary-0123456789"
	b := &Backend{}
	for _, status := range []int{400, 401, 403, 404, 413, 422, 429, 500, 501, 502, 503} {
		for _, shape := range []string{
			`{"error":{"message":"key %s at 10.9.8.7","type":"%[1]s","param":"%[1]s","code":"%[1]s"}}`, `{"error":"%s"}`, `{"detail":"%s"}`, `{"detail":[{"msg":"%s"}]}`, `{"message":"%s"}`, `%s`,
		} {
			e := llm.AsError(b.classify(status, http.Header{}, fmt.Appendf(nil, shape, canary)))
			for _, text := range []string{e.Msg, e.Param, e.ErrorCode()} {
				if strings.Contains(text, "canary") || strings.Contains(text, "10.9.8.7") {
					t.Errorf("status %d, %s: the client sees %q", status, shape, text)
				}
			}
		}
	}
}

func FuzzClassify(f *testing.F) {
	for _, c := range shapes {
		f.Add(c.status, c.body)
	}
	f.Fuzz(func(t *testing.T, status int, body string) {
		b := &Backend{}
		for _, e := range []*llm.Error{llm.AsError(b.classify(status, http.Header{}, []byte(body))), b.classifyFault([]byte(body))} {
			if e.Kind == 0 || e.Msg == "" || len(e.Msg) > 600 || !utf8.ValidString(e.Msg) || strings.ContainsAny(e.Msg+e.Code+e.Param, "\n\r\x1b\x00") {
				t.Errorf("%d %q: got %+v", status, body, e)
			}
			if s := e.HTTPStatus(); s < 400 || s > 599 || s == 401 {
				t.Errorf("%d %q: the client gets %d", status, body, s)
			}
		}
	})
}
