// Package app builds a whole Weir of a configuration, runs it and stops it. It is the only package that knows all the
// others; its lists of dialects and readers are explicit.
package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"weir/internal/admin"
	"weir/internal/config"
	"weir/internal/event"
	"weir/internal/key"
	"weir/internal/llm/anthropic"
	"weir/internal/llm/openai"
	"weir/internal/llm/responses"
	"weir/internal/relay"
	"weir/internal/server"
	"weir/internal/spend"
	"weir/internal/store"
)

// Options say how an App is made. Config must be valid; the rest has sensible zero values.
type Options struct {
	Config  *config.Config
	Version string       // of the program
	Log     *slog.Logger // nil is silent
	Events  io.Writer    // one line per event; nil is none
	Format  event.Format // of those lines
	// Listener and Admin replace the listeners of the configuration, Dial the network, Today the calendar: for tests.
	Listener net.Listener
	Admin    net.Listener
	Dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	Today    func() time.Time // says which day and month it is for what is spent; nil: time.Now
}

// App is one Weir. Make it with New, then call Run once.
type App struct {
	opts     Options
	ordering sync.Mutex // orders by hand follow each other
	cfg      *config.Config
	log      *slog.Logger
	lock     *store.Folder
	store    *store.Store
	keys     *key.Set
	recorder *event.Recorder
	metrics  *event.Metrics
	relay    *relay.Relay
	server   *server.Server
	admin    *admin.Admin
	graph    *graph
	capacity
	prices   *spend.Prices
	book     *spend.Book
	loops    *relay.Loops
	sims     *sims
	cert     *certificate
	public   net.Listener
	private  net.Listener
	started  time.Time
	halt     chan struct{}
	stop     sync.Once
	drain    chan struct{}
	draining sync.Once
}

// New takes the data folder, opens the store, binds both listeners and builds everything; it serves nothing yet and
// starts no goroutine. On an error all that was taken is given back.
func New(ctx context.Context, o Options) (*App, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	a := &App{opts: o, cfg: o.Config, log: o.Log, started: time.Now(), halt: make(chan struct{}), drain: make(chan struct{})}
	if err := a.build(ctx); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

func (a *App) build(ctx context.Context) (err error) {
	data := a.cfg.Beside(a.cfg.Data)
	if a.lock, err = store.Lock(data); err != nil {
		return err
	}
	a.store, err = store.Open(ctx, data, store.Options{
		KeepCorrupt: true, Log: a.log, Keep: a.cfg.Events.Keep.D(), MaxSize: int64(a.cfg.Events.MaxSize),
	})
	if err != nil {
		return err
	}
	if a.keys, err = key.NewSet(ctx, a.store, a.log); err != nil {
		return err
	}
	if err := a.keys.Recover(ctx, time.Now()); err != nil {
		a.log.Warn("what keys used in the last minute cannot be read: their windows begin anew", "err", err)
	}
	if err := a.refuseOpen(); err != nil {
		return err
	}
	if err := a.record(); err != nil {
		return err
	}
	if err := a.listen(); err != nil {
		return err
	}
	a.sims = newSims(a.cfg)
	a.knownCapacity(ctx)
	if err := a.openBook(ctx); err != nil {
		return err
	}
	lg := a.cfg.LoopGuard
	a.loops = relay.NewLoops(lg.Slow, lg.Refuse, lg.Window.D(), lg.Wait.D())
	hop := rand.Text()
	if a.graph, err = a.newGraph(ctx, hop); err != nil {
		return err
	}
	a.relay = relay.New(a.graph.relay(a), a.recorder.Emit)
	if err := a.serverFor(hop, data); err != nil {
		return err
	}
	a.metrics.Registerer().MustRegister(gauges{a}, purse{a})
	return a.adminFor(data)
}

// refuseOpen refuses to listen beyond loopback while no key exists: whoever comes first would own the machine.
func (a *App) refuseOpen() error {
	if a.opts.Listener != nil || isLoopback(a.cfg.Listen) {
		return nil
	}
	if a.cfg.Auth.Keys == "off" || a.keys.Len(time.Now()) == 0 {
		return fmt.Errorf("listen: %s is beyond loopback and there is no key; make one first with `weir keys add NAME --config %s`", a.cfg.Listen, a.cfg.File)
	}
	return nil
}

func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// gatherRows is how long rows are gathered for one transaction: a commit costs as much as some ten rows.
const gatherRows = 250 * time.Millisecond

// record sets up the recorder and its readers.
func (a *App) record() error {
	a.metrics = event.NewMetrics(a.opts.Version)
	o := event.Options{
		Observers: []event.Observer{a.metrics},
		Readers:   []event.Source{{Name: "store", Reader: &rows{store: a.store, log: a.log}, Wants: wantsRow, Pause: gatherRows}},
		Log:       a.log,
	}
	if a.opts.Events != nil {
		o.Readers = append(o.Readers, event.Source{Name: "log", Reader: event.NewLog(a.opts.Events, a.opts.Format)})
	}
	if a.cfg.Traces.URL != "" {
		t, err := event.NewTraces(event.TraceOptions{URL: a.cfg.Traces.URL, GenAI: a.cfg.Traces.GenAI, Version: a.opts.Version, Log: a.log, Provider: a.provider})
		if err != nil {
			return err
		}
		o.Readers = append(o.Readers, event.Source{Name: "traces", Reader: t, Wants: t.Wants})
	}
	a.recorder = event.New(o)
	a.metrics.WatchDrops(a.recorder)
	a.metrics.SetNames(names(a.cfg))
	return nil
}

// provider names a backend's server in traces.
func (a *App) provider(backend string) string {
	if b := a.cfg.Backends[backend]; b != nil {
		return b.Server
	}
	return backend
}

func (a *App) serverFor(hop, data string) error {
	if err := server.SweepUploads(data); err != nil {
		a.log.Warn("files of uploads were left behind", "err", err)
	}
	trusted, err := prefixes(a.cfg.TrustedProxies)
	if err != nil {
		return err
	}
	a.public = newPerAddress(a.public, a.cfg.Server.MaxPerAddress, trusted)
	keys := a.keys
	if a.cfg.Auth.Keys == "off" {
		keys = nil
	}
	s := a.cfg.Server
	a.server = server.New(server.Options{
		Relay: a.relay, OpenAI: openai.Dialect{}, Anthropic: anthropic.Dialect{}, Responses: responses.Dialect{}, Keeper: keeper{a.store}, Keys: keys, Emit: a.recorder.Emit, Log: a.log, Hosts: a.cfg.Hosts, Trusted: trusted,
		MaxBody: int64(s.MaxBody), MaxDepth: s.MaxDepth, Uploads: data, BodyTimeout: s.BodyTimeout.D(), WriteTimeout: s.WriteTimeout.D(),
		Bounds: server.Bounds{
			MaxTokens: int64(a.cfg.Requests.MaxTokens), Choices: int64(a.cfg.Requests.Choices), Tools: a.cfg.Requests.Tools,
			ToolBytes: int64(a.cfg.Requests.ToolBytes), TopLogprobs: int64(a.cfg.Requests.TopLogprobs),
		},
		Hop: hop, Trace: a.cfg.Traces.URL != "", Sample: sample(a.cfg),
	})
	return nil
}

func sample(c *config.Config) float64 {
	if c.Traces.Sample == nil {
		return 1
	}
	return *c.Traces.Sample
}

func (a *App) adminFor(data string) (err error) {
	a.admin, err = admin.New(admin.Options{
		Data: data, Metrics: a.metrics.Handler(), Emit: a.recorder.Emit, HostOK: a.server.HostOK, Ready: a.server.Ready,
		Open: isLoopback(a.cfg.Admin) || a.opts.Admin != nil, Status: a.status, Drain: a.Drain,
		Pools: a.poolStates, OutPool: a.outPool, InPool: a.inPool, Merges: a.merges.List, ConfirmMerge: a.merges.Confirm, UndoMerge: a.merges.Undo,
		Reroutes: a.reroutes,
	})
	return err
}

// Addr returns the address of the public listener.
func (a *App) Addr() net.Addr { return a.public.Addr() }

// AdminAddr returns the address of the admin listener.
func (a *App) AdminAddr() net.Addr { return a.private.Addr() }

// Keys returns the keys that the running Weir knows.
func (a *App) Keys() *key.Set { return a.keys }

// Store returns the open store.
func (a *App) Store() *store.Store { return a.store }

// Drain begins the shutdown: not ready, no new requests, running ones may finish within the limit.
func (a *App) Drain() { a.draining.Do(func() { close(a.drain) }) }

// Halt ends the App now: running requests get an error.
func (a *App) Halt() { a.stop.Do(func() { close(a.halt) }) }

// Run serves until ctx ends or Drain is called, then drains: running requests have the configured time, after that, or
// when Halt is called, they get an error in their stream. It returns once everything has ended, and gives everything
// back that New took. It may be called once.
func (a *App) Run(ctx context.Context) error {
	defer a.close()
	// What serves requests outlives ctx: the drain goes on after it.
	work, endWork := context.WithCancel(context.WithoutCancel(ctx))
	defer endWork()
	requests, endRequests := context.WithCancel(work)
	defer endRequests()

	var tasks sync.WaitGroup
	recording, endRecording := context.WithCancel(work)
	tasks.Go(func() { a.recorder.Run(recording) })
	tasks.Go(func() { a.keys.Watch(recording) })
	tasks.Go(func() { a.store.Run(recording) })
	tasks.Go(func() { a.saveRates(recording) })
	tasks.Go(func() { a.returns(recording) })
	tasks.Go(func() { a.windows(recording) })
	tasks.Go(func() { a.expire(recording) })
	tasks.Go(func() { a.book.Run(recording) })
	a.sims.start(&tasks)

	failed := make(chan error, 2)
	public, private := a.httpServers(requests)
	var listening sync.WaitGroup
	listening.Go(func() { failed <- a.serve(public, a.public) })
	listening.Go(func() { failed <- private.Serve(a.private) })
	a.log.Info("serving", "addr", a.public.Addr().String(), "admin", a.private.Addr().String())

	var err error
	select {
	case <-ctx.Done():
	case <-a.drain:
	case <-a.halt:
	case err = <-failed:
		if !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("a listener failed", "err", err)
		}
	}
	a.finish(public, endRequests)
	hangUp(public, private)
	listening.Wait()
	a.server.Wait()
	a.sims.close()
	endRecording()
	tasks.Wait()
	a.lastPage()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// finish drains: readiness first, then the running requests, then an end to what is left.
func (a *App) finish(public *http.Server, endRequests func()) {
	a.server.Drain()
	a.log.Info("draining", "running", a.server.Running(), "limit", a.cfg.Drain.D())
	public.SetKeepAlivesEnabled(false)
	idle := make(chan struct{})
	go func() {
		a.server.Wait()
		close(idle)
	}()
	limit := time.NewTimer(a.cfg.Drain.D())
	defer limit.Stop()
	select {
	case <-idle:
		return
	case <-limit.C:
		a.log.Warn("the time to drain is over", "running", a.server.Running())
	case <-a.halt:
	}
	a.server.Halt()
	endRequests()
	// Each running request now writes one error; a client that does not read is cut.
	select {
	case <-idle:
	case <-time.After(time.Second):
		public.Close()
		<-idle
	}
}

// hangUp closes servers whose handlers are done. Their last bytes may not have left yet, such as the answer to a drain:
// they get a moment for that.
func hangUp(servers ...*http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), 250*time.Millisecond)
	defer cancel()
	for _, s := range servers {
		_ = s.Shutdown(ctx)
		s.Close()
	}
}

func (a *App) httpServers(base context.Context) (public, private *http.Server) {
	quiet := slog.NewLogLogger(a.log.Handler(), slog.LevelDebug)
	s := a.cfg.Server
	public = &http.Server{
		Handler: oneRequest(a.server), ReadHeaderTimeout: s.HeaderTimeout.D(), IdleTimeout: s.IdleTimeout.D(), MaxHeaderBytes: 64 << 10,
		ErrorLog: quiet, BaseContext: func(net.Listener) context.Context { return base }, Protocols: http1(),
	}
	private = &http.Server{
		Handler: oneRequest(a.admin), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: quiet, Protocols: http1(),
	}
	return public, private
}

// http1 keeps cleartext HTTP/2 off; TLS clients may use it.
func http1() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	return p
}

// serve serves on l, with TLS where the configuration has a certificate.
func (a *App) serve(s *http.Server, l net.Listener) error {
	if a.cert == nil {
		return s.Serve(l)
	}
	s.TLSConfig = a.cert.config()
	return s.ServeTLS(l, "", "")
}

// close gives back what New took; it may be called after a failed New.
func (a *App) close() {
	for _, l := range []net.Listener{a.public, a.private} {
		if l != nil {
			l.Close()
		}
	}
	if a.graph != nil {
		a.graph.close()
	}
	if a.store != nil {
		if err := a.store.Close(); err != nil {
			a.log.Warn("closing the store", "err", err)
		}
	}
	if a.lock != nil {
		_ = a.lock.Unlock()
	}
}
