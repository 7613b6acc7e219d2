package drill

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"weir/internal/sim"
)

// Target is a gateway that somebody else built, or runs.
type Target struct {
	URL    string        // its base URL
	Key    string        // a key for it; empty: none
	Model  string        // the name that it sends to the drill's server
	Listen string        // where that server listens
	Force  bool          // also beyond loopback
	Wait   time.Duration // until it sends the name there
	Say    func(string)  // what a person needs to know meanwhile
}

// own is the name of the one simulated server behind a foreign gateway.
const ownServer = "drill"

// Check says why a target cannot be used.
func (g *Target) Check() error {
	u, err := url.Parse(g.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q is no URL such as http://127.0.0.1:4000", g.URL)
	}
	if g.Model == "" {
		return errors.New("the name of the model is missing that the gateway sends to the drill's server")
	}
	for _, host := range []string{u.Hostname(), hostOf(g.Listen)} {
		ip := net.ParseIP(host)
		if host != "localhost" && (ip == nil || !ip.IsLoopback()) && !g.Force {
			return fmt.Errorf("%s is not on loopback: a drill makes a gateway fail for everybody who uses it; force it if that is meant", host)
		}
	}
	return nil
}

func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}

// foreign brings the faults to another gateway, one after the other: it keeps its state between them.
func (d *drill) foreign(ctx context.Context, faults []*fault, report *Report) error {
	g := d.Against
	if err := g.Check(); err != nil {
		return err
	}
	base := strings.TrimSuffix(strings.TrimRight(g.URL, "/"), "/v1")
	report.Subject = base
	report.Notes = []string{"the gateway runs elsewhere: its limits are its own, and only what client and server can see is judged"}
	l := &lane{alias: g.Model, model: g.Model, route: base, group: map[string]bool{ownServer: true}}
	l.steps = []step{{pool: ownServer, model: g.Model, sent: g.Model, backends: []string{ownServer}, cap: 2}}
	r := &rig{lane: l, url: base, key: g.Key, sims: map[string]*sim.Server{},
		client: &http.Client{Transport: d.front(&http.Transport{DisableCompression: true, DisableKeepAlives: true}), CheckRedirect: noRedirect}}
	defer r.client.CloseIdleConnections()
	r.set(well)
	if err := r.listen(g.Listen); err != nil {
		return err
	}
	defer r.unlisten()
	if err := g.await(ctx, r); err != nil {
		return err
	}
	jobs := jobsOf([]*lane{l}, faults)
	p := Progress{Total: len(jobs)}
	for _, j := range jobs {
		row := d.abroad(ctx, j, r)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		report.Rows = append(report.Rows, row)
		p.Done++
		if p.Last = &row; row.Result == Fail {
			p.Failed++
		}
		if d.Progress != nil {
			d.Progress(p)
		}
	}
	return nil
}

// listen starts the one server.
func (r *rig) listen(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("the drill's server: %w", err)
	}
	s := sim.New(sim.Options{Name: ownServer, Script: sim.Script{Models: []string{r.lane.model}}, KeepBody: 1 << 10,
		Choose: func(a sim.Attempt) *sim.Behaviour { return r.choose(&a, true) }})
	r.sims[ownServer] = s
	r.serving.Go(func() { _ = s.Serve(l) })
	return nil
}

func (r *rig) unlisten() {
	for _, s := range r.sims {
		_ = s.Close()
	}
	r.serving.Wait()
}

// await waits until the gateway answers from the drill's server.
func (g *Target) await(ctx context.Context, r *rig) error {
	g.Say(fmt.Sprintf("the drill's server listens on http://%s/v1: the gateway at %s must send the model %q there", g.Listen, g.URL, g.Model))
	v := &view{}
	for begun := time.Now(); ctx.Err() == nil && time.Since(begun) < g.Wait; {
		if v = r.send(ctx, ask{model: r.lane.model}); v.whole() && v.server() == ownServer {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("the gateway did not answer from the drill's server within %v: %s %s", g.Wait, v.saw(), short(v.message))
}

// abroad plays one case there, and waits until the gateway is well again.
func (d *drill) abroad(ctx context.Context, j job, r *rig) Row {
	f := j.fault
	switch {
	case f.here || f.all:
		return j.row(&trial{na: "needs a configuration of the drill's own"})
	case f.way != open && f.way != closed:
		return j.row(&trial{na: "nothing can be done to the network between the gateway and the server"})
	}
	t := &trial{rig: r, fault: f, stream: j.stream, begun: time.Now()}
	r.sims[ownServer].Reset()
	if f.do != nil {
		r.set(f.do)
	}
	if f.way == closed {
		r.unlisten()
	}
	playing, cancel := context.WithTimeout(ctx, playMost)
	defer cancel()
	t.play(playing)
	if f.way == closed {
		if err := r.listen(d.Against.Listen); err != nil {
			t.failf("%v", err)
		}
	}
	r.set(well)
	t.settle(ctx)
	if err := r.recovered(ctx); err != nil {
		t.failf("%v", err)
	}
	return j.row(t)
}

// recovered asks until the gateway answers again.
func (r *rig) recovered(ctx context.Context) error {
	const most = 90 * time.Second
	for begun := time.Now(); time.Since(begun) < most; {
		if r.send(ctx, ask{model: r.lane.model}).whole() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("the gateway does not answer healthy requests within %v after the fault", most)
}
