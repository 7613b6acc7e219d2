// Package config holds Weir's configuration: the types, their defaults, their rules and the schema made from them.
// One YAML file is the source of truth; it is decoded strictly and every fault is reported at once.
//
// The struct tags are the one description of a field, read by the decoder, the writer and the schema alike:
//
//	yaml      the key; omitempty: not written down while zero
//	doc       one line for people, in the schema
//	required  the key must be there and must not be empty
//	enum      the texts allowed
//	min, max  the bounds of a number, duration or size, in the notation of the file; a duration is above 0 when it has no min
//	keys      what the names in a map look like: name, alias or param
//	short     the field that a plain value stands for: models: [m] is models: [{id: m}]
//	later     a word of the design that this version does not do yet: refused by name
//
// References (${env:NAME}, ${file:PATH}) are expanded in secret fields only, after the YAML has been parsed, and only as
// the whole value; there is no default syntax. Nothing else is expanded, so nothing needs an escape: text that looks
// like a reference elsewhere is a fault, and any other dollar sign is kept as it is.
package config

// Config is one whole configuration. The zero value is not usable: start from Default.
type Config struct {
	// File is where it was read from; relative paths in it are taken from its folder. Empty means the working folder.
	File string `yaml:"-"`

	Listen         string              `yaml:"listen" doc:"address of the public listener"`
	Admin          string              `yaml:"admin" doc:"address of the admin listener: metrics, admin API and page"`
	Data           string              `yaml:"data" doc:"folder for the store, the admin token and locks; relative to this file"`
	Hosts          []string            `yaml:"hosts,omitempty" doc:"accepted Host names beside the loopback names; needed to listen beyond loopback, or \"*\""`
	TLS            *TLS                `yaml:"tls,omitempty" doc:"certificate of the public listener; re-read when the files change"`
	TrustedProxies []string            `yaml:"trusted_proxies,omitempty" doc:"addresses or CIDR ranges whose X-Forwarded-For is believed"`
	Auth           Auth                `yaml:"auth" doc:"who may call"`
	Server         Server              `yaml:"server" doc:"limits of the public listener"`
	Limits         Limits              `yaml:"limits" doc:"limits of every call; a pool, route or step can set its own"`
	Attempts       Attempts            `yaml:"attempts" doc:"how often a request may be tried"`
	CommitAfter    Duration            `yaml:"commit_after" doc:"streaming clients get headers and comments after this time without content"`
	Drain          Duration            `yaml:"drain" min:"0s" doc:"how long running requests may go on after SIGTERM"`
	Log            Log                 `yaml:"log" doc:"event lines on standard output"`
	Events         Events              `yaml:"events" doc:"how long events are kept in the store"`
	Traces         Traces              `yaml:"traces" doc:"OTLP/HTTP export of spans"`
	Requests       Requests            `yaml:"requests" doc:"the most that one request may ask for; 0 means no bound"`
	LoopGuard      LoopGuard           `yaml:"loop_guard,omitempty" doc:"the same request from one session again and again is slowed, then refused; off by default"`
	Spend          Ceiling             `yaml:"spend,omitempty" doc:"the most that all pools together may cost; then priced pools are skipped"`
	Prices         Prices              `yaml:"prices,omitempty" doc:"prices by model id, for pools without their own"`
	CapShare       string              `yaml:"cap_share,omitempty" doc:"this Weir's part of every cloud pool's cap, such as 1/2, where several share the accounts"`
	Backends       map[string]*Backend `yaml:"backends" required:"true" keys:"name" doc:"upstream base URLs"`
	Pools          map[string]*Pool    `yaml:"pools" required:"true" keys:"name" doc:"capacity that is counted together"`
	Routes         map[string]*Route   `yaml:"routes,omitempty" keys:"name" doc:"named policies: ordered steps and limits"`
	Aliases        map[string]Alias    `yaml:"aliases,omitempty" keys:"alias" doc:"names that clients ask for, exact before the longest prefix* before *"`
}

// TLS names the certificate of the public listener.
type TLS struct {
	Cert string `yaml:"cert" required:"true" doc:"PEM file with the certificate chain"`
	Key  string `yaml:"key" required:"true" doc:"PEM file with the private key"`
}

// Auth says who may call.
type Auth struct {
	// Keys is on by default; off is accepted on loopback listeners only.
	Keys string `yaml:"keys" enum:"on,off" doc:"on: every call needs a key; off: none does, on loopback only"`
}

// Server bounds what the public listener takes.
type Server struct {
	MaxBody       Bytes    `yaml:"max_body" min:"1KiB" doc:"largest request body"`
	MaxDepth      int      `yaml:"max_depth" min:"1" max:"1000" doc:"deepest nesting of a JSON body"`
	HeaderTimeout Duration `yaml:"header_timeout" doc:"time to read a request's headers"`
	BodyTimeout   Duration `yaml:"body_timeout" doc:"time in which body bytes must keep coming"`
	IdleTimeout   Duration `yaml:"idle_timeout" doc:"time a connection may stay unused"`
	WriteTimeout  Duration `yaml:"write_timeout" doc:"time a client may take for one write before it counts as gone"`
	MaxPerAddress int      `yaml:"max_per_address" min:"0" doc:"open connections per client address; 0 means no bound"`
}

// Limits bound one call. A zero field means "not set here". The first of step, route, pool, backend and top level that has
// one wins: see Limits.Or. After Resolve a backend always has connect and idle, and the top level has all others.
type Limits struct {
	Connect      Duration `yaml:"connect,omitempty" doc:"time to open a connection (default 2s, cloud 5s)"`
	FirstContent Duration `yaml:"first_content,omitempty" doc:"time to the first content, beside a known prefill"`
	Idle         Duration `yaml:"idle,omitempty" doc:"longest silence after the first content (default 30s, floor 60s)"`
	Total        Duration `yaml:"total,omitempty" doc:"longest call"`
	Answer       Duration `yaml:"answer,omitempty" doc:"whole answer of embeddings, rerank and calls that do not stream upstream"`
	Wait         Duration `yaml:"wait,omitempty" doc:"longest wait for a slot"`
	SwapWait     Duration `yaml:"swap_wait,omitempty" doc:"longest wait for a stack to be swapped in"`
}

// Attempts bounds how often one request is tried.
type Attempts struct {
	Generations int `yaml:"generations" min:"1" max:"10" doc:"generations per client request"`
}

// Log shapes the event lines on standard output.
type Log struct {
	Format string `yaml:"format" enum:"json,text" doc:"json: one object a line; text: for people"`
	Level  string `yaml:"level" enum:"debug,info,warn,error" doc:"least level of the log on standard error"`
}

// Events says how long events are kept.
type Events struct {
	Keep    Duration `yaml:"keep" min:"1m" doc:"oldest event kept"`
	MaxSize Bytes    `yaml:"max_size" min:"1MiB" doc:"largest store of events"`
}

// Traces says where spans go. An empty URL means no export.
type Traces struct {
	URL    string   `yaml:"url,omitempty" doc:"OTLP/HTTP endpoint, such as http://127.0.0.1:4318/v1/traces"`
	GenAI  string   `yaml:"genai" enum:"1.41,0.1" doc:"vocabulary of the GenAI attribute names"`
	Sample *float64 `yaml:"sample" min:"0" max:"1" doc:"share of new traces that are exported, 0 to 1"`
}

// Backend is one upstream base URL with a dialect and credentials.
type Backend struct {
	URL         string   `yaml:"url" required:"true" doc:"base URL; a trailing /v1 is accepted; sim://NAME is a simulated backend"`
	Server      string   `yaml:"server,omitempty" enum:"openai,anthropic,llamacpp,ollama,vllm,sglang,lmstudio,tgi,localai" doc:"what answers there: decides its defaults and how its errors are read"`
	Dialect     string   `yaml:"dialect,omitempty" enum:"openai,anthropic,responses" doc:"the API spoken there: Chat Completions and kin, Messages or Responses (default openai; anthropic for that server)"`
	Tier        string   `yaml:"tier" required:"true" enum:"floor,gpu,cloud" doc:"floor: CPU, always on; gpu: the resident stack; cloud: outside"`
	Outside     *bool    `yaml:"outside,omitempty" doc:"whether requests leave the machines you own (default: tier cloud)"`
	Key         Secret   `yaml:"key,omitempty" doc:"API key, by reference: ${env:NAME} or ${file:PATH}"`
	KeyHeader   string   `yaml:"key_header,omitempty" doc:"header that carries the key (default Authorization: Bearer; x-api-key for the dialect anthropic)"`
	CA          string   `yaml:"ca,omitempty" doc:"PEM file with the only authorities trusted for this backend"`
	Proxy       string   `yaml:"proxy,omitempty" enum:"none,env" doc:"env: use HTTPS_PROXY and kin (default: none)"`
	Stream      string   `yaml:"stream,omitempty" enum:"always,auto,as_asked" doc:"whether Weir streams upstream for clients who did not ask (default: always for known local servers, else auto)"`
	Usage       string   `yaml:"usage,omitempty" enum:"ask,leave" doc:"ask: add stream_options.include_usage (default for servers known to take it)"`
	NullContent string   `yaml:"null_content,omitempty" enum:"keep,empty,null,omit" doc:"what becomes of content: null in history (default per server)"`
	Developer   string   `yaml:"developer,omitempty" enum:"keep,system" doc:"system: send developer turns as system and merge the leading ones"`
	Reasoning   string   `yaml:"reasoning,omitempty" enum:"drop,reasoning_content,reasoning" doc:"what becomes of thinking in a translated history: the member of a message that takes it (default per server)"`
	SystemTurns string   `yaml:"system_turns,omitempty" enum:"keep,user" doc:"user: system turns behind the start of a translated conversation become the user's words in their place (default for local servers, whose templates often refuse them)"`
	Attribution string   `yaml:"attribution,omitempty" enum:"keep,strip" doc:"strip: leave out the changing line at the head of Claude Code's system prompt, which spoils prefix caches (default for local servers)"`
	MaxTokens   string   `yaml:"max_tokens_name,omitempty" enum:"keep,max_tokens,max_completion_tokens" doc:"the one name of the limit that this backend takes"`
	ServedIn    string   `yaml:"served_header,omitempty" doc:"response header that names the model that really answered (default: the answer's model)"`
	Base64      string   `yaml:"base64,omitempty" enum:"keep,float" doc:"float: ask for plain numbers and encode base64 embeddings here"`
	IdleConn    Duration `yaml:"idle_conn,omitempty" doc:"how long an unused connection is kept (default 90s; 4s where the server itself closes after 5s: llamacpp, lmstudio, sglang, vllm)"`
	Limits      Limits   `yaml:"limits,omitempty" doc:"limits of calls to this backend"`
}

// Pool is capacity that is counted together.
type Pool struct {
	Backend  string            `yaml:"backend,omitempty" doc:"its backend; a pool has this or backends"`
	Backends []string          `yaml:"backends,omitempty" doc:"its backends, which serve the same models"`
	Cap      int               `yaml:"cap" required:"true" min:"1" max:"100000" doc:"slots: how many calls at most"`
	Queue    Queue             `yaml:"queue" doc:"who may wait for a slot: a number, or {size}"`
	Window   int               `yaml:"window,omitempty" min:"0" doc:"context window in tokens; 0 means unknown"`
	Models   []Model           `yaml:"models" required:"true" doc:"ids served: an id, {id, served_as} or \"*\""`
	Stack    string            `yaml:"stack,omitempty" later:"true" doc:"the stack that must be serving"`
	Price    *Price            `yaml:"price,omitempty" doc:"USD per million tokens, before those of prices; absent means unknown, never zero"`
	Spend    Ceiling           `yaml:"spend,omitempty" doc:"the most that this pool may cost; then it is skipped"`
	Sampling map[string]*Param `yaml:"sampling,omitempty" keys:"param" doc:"sampling parameters to default, force or strip"`
	Limits   Limits            `yaml:"limits,omitempty" doc:"limits of calls of this pool"`
}

// Queue bounds who waits for a slot. It also accepts a plain number for Size.
type Queue struct {
	Size int `yaml:"size" short:"true" min:"0" max:"100000" doc:"how many requests may wait (default 32)"`
}

// Model is one id that a pool serves. In YAML it is a plain id or {id, served_as}.
type Model struct {
	ID       string `yaml:"id" short:"true" required:"true" doc:"the id that clients and steps name"`
	ServedAs string `yaml:"served_as,omitempty" doc:"the id that is sent to the backend"`
}

// Price is in USD per million tokens. A nil field is unknown.
type Price struct {
	In      *USD `yaml:"in,omitempty" min:"0" doc:"prompt tokens"`
	Out     *USD `yaml:"out,omitempty" min:"0" doc:"completion tokens"`
	Cached  *USD `yaml:"cached,omitempty" min:"0" doc:"prompt tokens read from a cache (default: as in)"`
	Written *USD `yaml:"written,omitempty" min:"0" doc:"prompt tokens written to a cache (default: as in)"`
}

// Prices are what models cost where their pool says nothing.
type Prices struct {
	AsOf   string            `yaml:"as_of,omitempty" doc:"the day of these prices, such as 2026-11-30"`
	Models map[string]*Price `yaml:"models,omitempty" keys:"model" doc:"prices by the model id that goes to the backend, or that steps name"`
}

// Ceiling is the most that may be spent, in USD. Days and months are those of UTC. A zero field is no ceiling.
type Ceiling struct {
	Day   USD `yaml:"day,omitempty" doc:"in a day"`
	Month USD `yaml:"month,omitempty" doc:"in a month"`
}

// Requests bounds what one request may ask for (S44).
type Requests struct {
	MaxTokens   int   `yaml:"max_tokens" min:"0" doc:"largest max_tokens; a larger one is lowered to it"`
	Choices     int   `yaml:"choices" min:"0" doc:"largest n; more is refused"`
	Tools       int   `yaml:"tools" min:"0" doc:"most tools; more are refused"`
	ToolBytes   Bytes `yaml:"tool_bytes" min:"0" doc:"largest list of tools; a larger one is refused"`
	TopLogprobs int   `yaml:"top_logprobs" min:"0" doc:"largest top_logprobs; more is refused"`
}

// LoopGuard slows and then refuses the same request of one session. A zero Slow is off.
type LoopGuard struct {
	Slow   int      `yaml:"slow,omitempty" min:"0" doc:"from so many same requests within the window on, each waits"`
	Refuse int      `yaml:"refuse,omitempty" min:"0" doc:"from so many on, each is refused with 429 (default: twice slow)"`
	Window Duration `yaml:"window,omitempty" doc:"how long a request is remembered (default 5m)"`
	Wait   Duration `yaml:"wait,omitempty" doc:"how long a slowed request waits (default 2s)"`
}

// Param says what happens to one sampling parameter. Exactly one field is set.
type Param struct {
	Default any  `yaml:"default,omitempty" doc:"used when the client sends none"`
	Force   any  `yaml:"force,omitempty" doc:"used whatever the client sends"`
	Strip   bool `yaml:"strip,omitempty" doc:"never sent"`
}

// Route is a named policy.
type Route struct {
	Steps     []Step     `yaml:"steps" required:"true" doc:"pools and models to try, in order"`
	Limits    Limits     `yaml:"limits,omitempty" doc:"limits of this route"`
	Boundary  string     `yaml:"boundary,omitempty" enum:"any,local" doc:"local: never leaves the machines you own"`
	Responses *Responses `yaml:"responses,omitempty" doc:"what is kept of the Responses API (default: nothing)"`
}

// Responses says what is kept of the Responses API. It is the one setting that makes Weir store prompts and answers.
type Responses struct {
	Keep Duration `yaml:"keep" required:"true" min:"1m" max:"365d" doc:"how long prompts and answers are stored for previous_response_id, GET and DELETE"`
}

// Step is one pool and model to try. In YAML it is POOL, POOL/MODEL, POOL/* or {use: …}.
type Step struct {
	Use    string `yaml:"use" short:"true" required:"true" doc:"POOL (its first model), POOL/MODEL, or POOL/* for the client's own model name"`
	Want   string `yaml:"want,omitempty" later:"true" enum:"serving,swap" doc:"serving: skip unless the stack is serving; swap: ask for it"`
	Limits Limits `yaml:"limits,omitempty" doc:"limits of this step"`
}

// Alias is what a client's model name stands for. In YAML it is a route's name or a POOL/MODEL step.
type Alias struct {
	Route    string `yaml:"route" short:"true" required:"true" doc:"the route, or POOL/MODEL"`
	Priority int    `yaml:"priority,omitempty" min:"-1000" max:"1000" doc:"added to the key's priority in queues; heartbeats want a negative one"`
}
