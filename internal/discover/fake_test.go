package discover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// page is one answer of a fake server.
type page struct {
	status int
	body   string
	header map[string]string
}

// pages are a fake server's answers by path; "*" stands for every other path, else those are 404.
type pages map[string]page

func ok(body string) page { return page{status: http.StatusOK, body: body} }

// lab is a network of fake servers in memory. Looking at it runs in the test's clock, so a busy machine changes nothing.
type lab struct{ fakes map[string]*fake }

// fake is a server that remembers what it was asked.
type fake struct {
	addr   string
	handle http.HandlerFunc
	mu     sync.Mutex // guards seen
	seen   []string
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.seen = append(f.seen, r.Method+" "+r.URL.RequestURI())
	f.mu.Unlock()
	f.handle(w, r)
}

func (f *fake) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.seen...)
}

// serve adds a server that gives the pages.
func (l *lab) serve(p pages) *fake { return l.serveFunc(p.handle) }

func (p pages) handle(w http.ResponseWriter, r *http.Request) {
	a, there := p[r.URL.Path]
	if !there {
		if a, there = p["*"]; !there {
			a = page{status: http.StatusNotFound, body: "404 page not found"}
		}
	}
	for k, v := range a.header {
		w.Header().Set(k, v)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write([]byte(a.body))
}

func (l *lab) serveFunc(h http.HandlerFunc) *fake {
	if l.fakes == nil {
		l.fakes = map[string]*fake{}
	}
	f := &fake{addr: fmt.Sprintf("127.0.0.1:%d", 5001+len(l.fakes)), handle: h}
	l.fakes[f.addr] = f
	return f
}

// look runs Look at the given addresses and nowhere else, and gives the lines shown too.
func (l *lab) look(t *testing.T, env map[string]string, addrs ...string) (Result, []Step) {
	t.Helper()
	var r Result
	var steps []Step
	synctest.Test(t, func(t *testing.T) {
		wires := map[string]wire{}
		for addr, f := range l.fakes {
			s := httptest.NewUnstartedServer(f)
			s.Listener.Close()
			wires[addr] = wire{conns: make(chan net.Conn), closed: make(chan struct{}), end: new(sync.Once)}
			s.Listener = wires[addr]
			s.Start()
			defer s.Close()
		}
		var err error
		r, err = Look(t.Context(), Options{
			Look: addrs, Ports: []Port{},
			Env:      func(name string) string { return env[name] },
			Progress: func(s Step) { steps = append(steps, s) },
			Dial: func(ctx context.Context, _, addr string) (net.Conn, error) {
				w, there := wires[addr]
				if !there {
					return nil, errors.New("connection refused")
				}
				return w.dial(ctx)
			},
		})
		if err != nil {
			t.Errorf("Look: %v", err)
		}
	})
	return r, steps
}

// wire is a listener whose connections are pipes.
type wire struct {
	conns  chan net.Conn
	closed chan struct{}
	end    *sync.Once // http closes a listener more than once
}

func (w wire) dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case w.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

func (w wire) Close() error   { w.end.Do(func() { close(w.closed) }); return nil }
func (w wire) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

const loadingBody = `{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`

const fileNotFound = `{"error":{"message":"File Not Found","type":"not_found_error","code":404}}`

// The answers of real servers, from facts/servers.md and facts/protocols.md §4.
var (
	llamaSingle = pages{
		pathModels: ok(`{"models":[{"name":"qwen3-4b","model":"qwen3-4b","capabilities":["completion"]}],"object":"list",
			"data":[{"id":"qwen3-4b","aliases":[],"tags":[],"object":"model","created":1,"owned_by":"llamacpp",
			"meta":{"vocab_type":2,"n_vocab":151936,"n_ctx":4096,"n_ctx_train":40960,"n_embd":2560,"n_params":4022468096,"size":1,"ftype":"Q4"}}]}`),
		pathProps: ok(`{"default_generation_settings":{"n_ctx":4096,"params":{}},"total_slots":2,"model_path":"/m.gguf","is_sleeping":false,"build_info":"b1-80fb11a"}`),
		"/":       ok("<html>llama.cpp UI</html>"),
		"*":       {status: 404, body: fileNotFound},
	}
	llamaRouter = pages{
		pathModels: ok(`{"object":"list","data":[
			{"id":"gemma-3-1b","object":"model","owned_by":"llamacpp","status":{"value":"unloaded","args":["llama-server","--api-key","hidden"]}},
			{"id":"broken","object":"model","owned_by":"llamacpp","status":{"value":"unloaded","failed":true,"exit_code":1}},
			{"id":"qwen3-8b","object":"model","owned_by":"llamacpp","status":{"value":"loaded"},"meta":{"n_ctx":8192,"n_params":8190735360}}]}`),
		pathProps: ok(`{"role":"router","max_instances":4,"models_autoload":true,"build_info":"b1-80fb11a"}`),
		"*":       {status: 404, body: fileNotFound},
	}
	llamaLoading = pages{"*": {status: 503, body: loadingBody}}
	llamaLocked  = pages{"*": {status: 401, body: `{"error":{"code":401,"message":"Invalid API Key","type":"authentication_error"}}`}}
	ollamaThree  = pages{
		pathModels: ok(`{"object":"list","data":[{"id":"tiny:latest","object":"model","created":1,"owned_by":"library"},
			{"id":"nomic-embed-text:latest","object":"model","created":1,"owned_by":"library"},
			{"id":"gemma3:12b","object":"model","created":1,"owned_by":"library"},
			{"id":"gpt-oss:120b-cloud","object":"model","created":1,"owned_by":"library"},
			{"id":"faraway:latest","object":"model","created":1,"owned_by":"library"}]}`),
		pathRoot:          ok("Ollama is running"),
		pathOllamaVersion: ok(`{"version":"0.17.4"}`),
		pathTags: ok(`{"models":[{"name":"tiny:latest","model":"tiny:latest","details":{"family":"llama","parameter_size":"1.2B"}},
			{"name":"nomic-embed-text:latest","details":{"family":"nomic-bert","parameter_size":"137M"}},
			{"name":"gemma3:12b","details":{"family":"gemma3","parameter_size":"12.2B"}},
			{"name":"gpt-oss:120b-cloud","details":{}},
			{"name":"faraway:latest","remote_host":"https://ollama.com:443","details":{}}]}`),
		pathRunning: ok(`{"models":[{"name":"gemma3:12b","size_vram":9,"context_length":16384}]}`),
	}
	ollamaEmpty = pages{
		pathModels:        ok(`{"object":"list","data":null}`),
		pathRoot:          ok("Ollama is running"),
		pathOllamaVersion: ok(`{"version":"0.17.4"}`),
		pathTags:          ok(`{"models":[]}`),
		pathRunning:       ok(`{"models":[]}`),
	}
	vllmOne = pages{
		pathModels: ok(`{"object":"list","data":[{"id":"Qwen/Qwen3-32B-AWQ","object":"model","created":1,"owned_by":"vllm","root":"Qwen/Qwen3-32B-AWQ","parent":null,"max_model_len":32768}]}`),
		"/health":  ok(""), pathVersion: ok(`{"version":"0.12.1"}`), "*": {status: 404, body: `{"detail":"Not Found"}`},
	}
	sglangOne = pages{
		pathModels:    ok(`{"object":"list","data":[{"id":"zai/glm-9b","object":"model","created":1,"owned_by":"sglang","root":"zai/glm-9b","max_model_len":65536}]}`),
		pathModelInfo: ok(`{"model_path":"zai/glm-9b","tokenizer_path":"zai/glm-9b","is_generation":true}`),
		"*":           {status: 404, body: `{"detail":"Not Found"}`},
	}
	sglangVectors = pages{ // served under a name that says nothing, by a build with the older path
		pathModels:       ok(`{"object":"list","data":[{"id":"vectors","object":"model","created":1,"owned_by":"me"}]}`),
		pathModelInfoOld: ok(`{"model_path":"some/model","is_generation":false}`),
		"*":              {status: 404, body: `{"detail":"Not Found"}`},
	}
	studioNew = pages{ // it answers 200 to what it does not know
		pathModels: ok(`{"object":"list","data":[{"id":"openai/gpt-oss-20b","object":"model","owned_by":"organization_owner"},
			{"id":"qwen/qwen3-4b","object":"model","owned_by":"organization_owner"},
			{"id":"text-vectors-v1.5","object":"model","owned_by":"organization_owner"}]}`),
		pathStudio: ok(`{"models":[{"type":"llm","key":"openai/gpt-oss-20b","params_string":"20B","loaded_instances":[],"max_context_length":131072},
			{"type":"llm","key":"qwen/qwen3-4b","params_string":"4B","loaded_instances":[{"id":"qwen/qwen3-4b","config":{"context_length":8192}}],"max_context_length":262144},
			{"type":"embedding","key":"text-vectors-v1.5","params_string":null,"loaded_instances":[],"max_context_length":2048}]}`),
		"*": ok(`{"error":"Unexpected endpoint or method."}`),
	}
	studioOld = pages{
		pathModels:    ok(`{"object":"list","data":[{"id":"phi-4","object":"model","owned_by":"organization_owner"}]}`),
		pathStudioOld: ok(`{"object":"list","data":[{"id":"phi-4","object":"model","type":"llm","compatibility_type":"gguf","state":"loaded","max_context_length":16384,"loaded_context_length":4096}]}`),
		"*":           ok(`{"error":"Unexpected endpoint or method."}`),
	}
	plainOne = pages{pathModels: ok(`{"object":"list","data":[{"id":"house-model","object":"model","created":1,"owned_by":"me"}]}`)}
)
