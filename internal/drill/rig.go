package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/app"
	"weir/internal/config"
	"weir/internal/event"
	"weir/internal/sim"
)

// rig is a gateway under test with the simulated servers behind it and the drill's client before it.
type rig struct {
	lane   *lane
	cfg    *config.Config // nil: somebody else's gateway
	url    string
	key    string
	client *http.Client
	sims   map[string]*sim.Server
	ways   *ways

	behave  atomic.Pointer[behave]
	net     *sim.Net
	app     *app.App
	ended   chan error
	admin   string
	token   string
	data    string
	lines   lines
	serving sync.WaitGroup
}

// behave is how the servers that fail answer an attempt.
type behave func(a *sim.Attempt) sim.Behaviour

func well(*sim.Attempt) sim.Behaviour { return sim.Behaviour{Text: answerText} }

// newRig builds and starts a gateway for one case, all on a network in memory.
func (d *drill) newRig(ctx context.Context, j job) (*rig, error) {
	d.mu.Lock()
	d.started++
	n := d.started
	d.mu.Unlock()
	c := *d.tamed
	c.Data = filepath.Join(d.folder, fmt.Sprint(n))
	r := &rig{lane: j.lane, cfg: &c, net: sim.NewNet(), sims: map[string]*sim.Server{}, ended: make(chan error, 1), data: c.Data}
	r.ways = &ways{way: j.fault.way, from: j.fault.from(j.stream), dial: r.net.DialContext, hosts: map[string]bool{}, dialed: map[string]int{}}
	if err := r.servers(d, j); err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, errors.Join(r.start(ctx, d))
}

// servers starts a simulated server for each backend.
func (r *rig) servers(d *drill, j job) error {
	hit := map[string]bool{}
	for name := range r.cfg.Backends {
		hit[name] = j.fault.all || j.lane.group[name]
		r.ways.hosts[name] = hit[name]
	}
	secure := d.papers.of(j.fault.way)
	if secure != nil {
		backends := map[string]*config.Backend{}
		for name, b := range r.cfg.Backends {
			backends[name] = b
			if hit[name] {
				b := *b
				b.URL, b.CA = "https://"+name+domain, secure.ca
				backends[name] = &b
			}
		}
		r.cfg.Backends = backends
	}
	do := j.fault.do
	if do == nil {
		do = well
	}
	r.set(do)
	for name, b := range r.cfg.Backends {
		s := sim.New(sim.Options{Name: name, Script: sim.Script{Server: flavour(b.Server), Models: modelsOf(r.cfg, name)}, KeepBody: 1 << 10,
			Choose: func(a sim.Attempt) *sim.Behaviour { return r.choose(&a, hit[name]) }})
		port := ":80"
		if secure != nil && hit[name] {
			port = ":443"
		}
		var l net.Listener
		l, err := r.net.Listen(name + domain + port)
		if err != nil {
			return err
		}
		if secure != nil && hit[name] {
			l = secure.listener(l)
		}
		r.sims[name] = s
		r.serving.Go(func() { _ = s.Serve(l) })
	}
	return nil
}

// modelsOf lists the ids that a backend is asked for.
func modelsOf(c *config.Config, backend string) (ids []string) {
	for _, p := range c.Pools {
		if !slices.Contains(p.Names(), backend) {
			continue
		}
		for _, m := range p.Models {
			if sent, _ := p.Sent(m.ID); sent != "*" && !slices.Contains(ids, sent) {
				ids = append(ids, sent)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// set changes how the servers that fail answer from now on.
func (r *rig) set(b behave) { r.behave.Store(&b) }

func (r *rig) choose(a *sim.Attempt, hit bool) *sim.Behaviour {
	b := well(a)
	if hit {
		b = (*r.behave.Load())(a)
	}
	return &b
}

// start builds the gateway and lets it serve.
func (r *rig) start(ctx context.Context, d *drill) (err error) {
	o := app.Options{Config: r.cfg, Version: "drill", Events: &r.lines, Format: event.JSON, Dial: r.ways.dialContext}
	public, err := r.net.Listen(r.cfg.Listen)
	if err != nil {
		return err
	}
	private, err := r.net.Listen(r.cfg.Admin)
	if err != nil {
		return err
	}
	o.Listener, o.Admin = public, private
	if r.app, err = app.New(ctx, o); err != nil {
		return errors.Join(err, r.stop())
	}
	r.url, r.admin = "http://"+r.cfg.Listen, "http://"+r.cfg.Admin
	token, err := os.ReadFile(filepath.Join(r.data, "admin-token"))
	if err != nil {
		return errors.Join(err, r.stop())
	}
	r.token = strings.TrimSpace(string(token))
	r.client = &http.Client{Transport: d.front(&http.Transport{DialContext: r.net.DialContext, DisableCompression: true, DisableKeepAlives: true}), CheckRedirect: noRedirect}
	go func() { r.ended <- r.app.Run(context.WithoutCancel(ctx)) }()
	return nil
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (d *drill) front(t http.RoundTripper) http.RoundTripper {
	if d.Front == nil {
		return t
	}
	return d.Front(t)
}

// stop ends everything and frees the gateway's folder.
func (r *rig) stop() (err error) {
	if r.client != nil {
		r.client.CloseIdleConnections()
		r.app.Halt()
		select {
		case err = <-r.ended:
		case <-time.After(10 * time.Second):
			err = errors.New("I8: the gateway did not end within 10 s")
		}
	}
	for _, s := range r.sims {
		_ = s.Close()
	}
	r.serving.Wait()
	if r.data != "" {
		err = errors.Join(err, os.RemoveAll(r.data))
	}
	return err
}

// send asks the gateway.
func (r *rig) send(ctx context.Context, a ask) *view { return send(ctx, r.client, r.url, r.key, a) }

// poolState is a pool as the gateway's admin API tells it.
type poolState struct {
	Name     string
	InFlight int `json:"in_flight"`
	Waiting  int
}

// pools asks the gateway how its pools stand.
func (r *rig) pools(ctx context.Context) ([]poolState, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.admin+"/api/v1/status", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	c := &http.Client{Transport: &http.Transport{DialContext: r.net.DialContext, DisableKeepAlives: true}}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var s struct{ Pools []poolState }
	return s.Pools, json.NewDecoder(resp.Body).Decode(&s)
}

// pool returns how the first step's pool stands.
func (r *rig) pool(ctx context.Context) (poolState, error) {
	list, err := r.pools(ctx)
	for _, p := range list {
		if p.Name == r.lane.steps[0].pool {
			return p, err
		}
	}
	return poolState{}, err
}

// calls returns what reached the servers that fail, or all of them; the gateway's own probes are left out.
func (r *rig) calls(group bool) (list []sim.Attempt) {
	for name, s := range r.sims {
		if group && r.cfg != nil && !r.lane.group[name] {
			continue
		}
		for _, a := range s.Calls("") {
			if !strings.HasPrefix(a.Header.Get("X-Request-Id"), "probe_") {
				list = append(list, a)
			}
		}
	}
	slices.SortFunc(list, func(a, b sim.Attempt) int { return a.Arrived.Compare(b.Arrived) })
	return list
}

// active returns how many attempts the servers that fail have at work.
func (r *rig) active() (n int) {
	for name, s := range r.sims {
		if r.cfg == nil || r.lane.group[name] {
			n += s.Active()
		}
	}
	return n
}

// fact is what the drill reads of an event line.
type fact struct {
	Event, Request, Reason, Kind string
	Status                       int
	Pool                         string
	Attempts                     []struct{ Pool, Kind string }
	Tokens                       struct {
		In, Out   *int64
		Estimated bool
	}
}

// lines takes the event lines.
type lines struct {
	mu   sync.Mutex // guards the field below
	text []byte
}

// Write keeps the bytes.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

// facts reads the lines.
func (l *lines) facts() (list []fact, bad int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(string(l.text)) {
		var f fact
		if json.Unmarshal([]byte(line), &f) != nil {
			bad++
			continue
		}
		list = append(list, f)
	}
	return list, bad
}

func (l *lines) contains(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(string(l.text), s)
}
