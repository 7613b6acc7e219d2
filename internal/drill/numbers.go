package drill

import (
	"context"
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
	"weir/internal/sim"
)

// numbersYAML is the configuration that is measured. Its limits are a thirtieth of the defaults: 15 s are 500 ms.
const numbersYAML = `
listen: 127.0.0.1:0
admin: 127.0.0.1:0
auth: {keys: "off"}
limits: {connect: 250ms, first_content: 500ms, idle: 1s, answer: 2s, wait: 1s}
backends:
  bad:  {url: "http://BAD", tier: cloud, outside: false}
  good: {url: "http://GOOD", tier: cloud, outside: false}
pools:
  bad:   {backend: bad, cap: 500, queue: 0, models: [m]}
  good:  {backend: good, cap: 500, models: [m]}
  small: {backend: good, cap: 2, queue: 2, models: [few]}
routes:
  both: {steps: [bad/m, good/m]}
  late: {steps: [bad/m, good/m], limits: {first_content: 4s, answer: 4s}}
  none: {steps: [bad/m], limits: {first_content: 4s, answer: 4s}}
  hang: {steps: [bad/m], limits: {first_content: 1m}}
  well: {steps: [good/m]}
  few:  {steps: [small/few]}
aliases: {both: both, late: late, none: none, hang: hang, well: well, few: few}
`

// bench is a gateway with a server that fails and one that does not, over loopback.
type bench struct {
	bad, good *sim.Server
	behave    atomic.Pointer[behave] // of bad
	app       *app.App
	client    *http.Client
	ended     chan error
	serving   sync.WaitGroup
	folder    string
	hole      atomic.Bool // packets to bad are lost
	prompt    atomic.Bool // good answers at once: at 200 requests a second its own work would be what is measured
	number    []Number
}

// Numbers measures what the fault catalogue has numbers for: how fast a request comes past a server that does not answer,
// whether a pool that hangs slows others, what falling back is worth, what a storm of failures does to the server. It
// takes about a minute, half as long again where it must measure twice, and speaks to nothing but its own servers on loopback.
func Numbers(ctx context.Context) ([]Number, error) {
	begun := time.Now()
	var all []Number
	for _, m := range []measure{blackHole, silentServer, fullQueue, goodput, isolation, fallback, failureStorm} {
		list, err := m.take(ctx)
		if err == nil && slices.ContainsFunc(list, isFailed) && time.Since(begun) < time.Minute {
			if list, err = m.take(ctx); err == nil { // the machine may have been busy with other things
				for i := range list {
					list[i].Got += " (measured twice)"
				}
			}
		}
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

func isFailed(n Number) bool { return n.Result == Fail }

// measure is one measurement.
type measure func(context.Context, *bench)

// take builds everything anew, so that no measurement stands on what another one left.
func (m measure) take(ctx context.Context) ([]Number, error) {
	b := &bench{ended: make(chan error, 1)}
	if err := b.open(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	m(ctx, b)
	return b.number, errors.Join(b.close(), ctx.Err())
}

// open starts servers and gateway.
func (b *bench) open(ctx context.Context) (err error) {
	if b.folder, err = os.MkdirTemp("", "weir-numbers-"); err != nil {
		return err
	}
	b.set(well)
	b.bad = sim.New(sim.Options{Name: "bad", KeepBody: 1 << 10, Choose: func(a sim.Attempt) *sim.Behaviour { r := (*b.behave.Load())(&a); return &r }})
	b.good = sim.New(sim.Options{Name: "good", KeepBody: 1 << 10, Choose: b.well})
	text := numbersYAML
	bad, text, err := b.listen(b.bad, text, "BAD")
	if err != nil {
		return err
	}
	if _, text, err = b.listen(b.good, text, "GOOD"); err != nil {
		return err
	}
	c, report := config.Parse([]byte(text), filepath.Join(b.folder, "numbers.yaml"))
	if err := report.Err(); err != nil {
		return err
	}
	c.Data = b.folder
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == bad && b.hole.Load() {
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Net: network, Err: context.Cause(ctx)}
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	a, err := app.New(ctx, app.Options{Config: c, Version: "drill", Dial: dial})
	if err != nil {
		return err
	}
	b.app = a
	b.client = &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 512}}
	go func() { b.ended <- a.Run(context.WithoutCancel(ctx)) }()
	return nil
}

// well is how the good server answers.
func (b *bench) well(a sim.Attempt) *sim.Behaviour {
	r := paced(&a)
	if b.prompt.Load() {
		r = sim.Behaviour{Deltas: []string{answerText}, SSE: sim.SSE{OneBlob: true}}
	}
	return &r
}

// paced is a healthy server that takes 30 ms, and 100 ms for the model few.
func paced(a *sim.Attempt) sim.Behaviour {
	b := sim.Behaviour{Text: answerText, FirstDelay: 15 * time.Millisecond, Gap: 3 * time.Millisecond}
	if a.Model == "few" {
		b.FirstDelay = 85 * time.Millisecond
	}
	return b
}

func (b *bench) set(f behave) { b.behave.Store(&f) }

func (b *bench) listen(s *sim.Server, text, name string) (addr, out string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", text, err
	}
	b.serving.Go(func() { _ = s.Serve(l) })
	addr = l.Addr().String()
	return addr, strings.ReplaceAll(text, name, addr), nil
}

func (b *bench) close() (err error) {
	if b.app != nil {
		b.client.CloseIdleConnections()
		b.app.Halt()
		select {
		case err = <-b.ended:
		case <-time.After(10 * time.Second):
			err = errors.New("the gateway did not end within 10 s")
		}
		b.app = nil
	}
	for _, s := range []*sim.Server{b.bad, b.good} {
		if s != nil {
			_ = s.Close()
		}
	}
	b.serving.Wait()
	return errors.Join(err, os.RemoveAll(b.folder))
}

// ask sends one streamed request and reads it to its end.
func (b *bench) ask(ctx context.Context, alias string) *view {
	return send(ctx, b.client, "http://"+b.app.Addr().String(), "", ask{model: alias, stream: true})
}

// load sends n requests, so many a second, and returns how long each took.
func (b *bench) load(ctx context.Context, alias string, n, perSecond int) []time.Duration {
	took := make([]time.Duration, n)
	var all sync.WaitGroup
	begun := time.Now()
	for i := range n {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
		all.Go(func() { took[i] = b.ask(ctx, alias).took })
	}
	all.Wait()
	return took
}

// part returns the value below which so many hundredths of a list lie.
func part(list []time.Duration, hundredths int) time.Duration {
	if len(list) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(list))
	return s[min(len(s)-1, len(s)*hundredths/100)]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

func (b *bench) add(ok bool, name, got, bound string) {
	n := Number{Name: name, Got: got, Bound: bound, Result: Pass}
	if !ok {
		n.Result = Fail
	}
	b.number = append(b.number, n)
}

// ordinary is what a request without any fault takes.
func (b *bench) ordinary(ctx context.Context) time.Duration {
	b.ask(ctx, "well")
	return part(b.load(ctx, "well", 40, 40), 50)
}

// blackHole is F02: the first requests pay the connect limit, those after the breaker opened nothing.
func blackHole(ctx context.Context, b *bench) {
	const connect = 250 * time.Millisecond
	base := b.ordinary(ctx)
	b.hole.Store(true)
	defer b.hole.Store(false)
	var first []time.Duration
	for range 5 {
		first = append(first, b.ask(ctx, "both").took-base)
	}
	after := part(b.load(ctx, "both", 60, 60), 50) - base
	b.add(part(first, 100) <= connect+50*time.Millisecond, "F02: packets to the server are lost, added to each of the first five requests", ms(part(first, 100)), "≤ connect limit (250 ms) + 50 ms")
	b.add(after <= 5*time.Millisecond, "F02: the same once the breaker is open, median", ms(after), "≤ 5 ms")
}

// silentServer is F17: the switch to the next step comes at the limit for the first content.
func silentServer(ctx context.Context, b *bench) {
	const limit = 500 * time.Millisecond
	base := b.ordinary(ctx)
	b.set(always(sim.Behaviour{Hang: true}))
	var added []time.Duration
	for range 4 { // a fifth would open the breaker
		added = append(added, b.ask(ctx, "both").took-base)
	}
	worst := part(added, 100)
	b.add(worst >= limit && worst <= limit+100*time.Millisecond, "F17: the server says nothing, added until the next step answers, longest of four", ms(worst), "≤ first_content (500 ms) + 100 ms")
}

// fullQueue is F50: at ten times what a pool serves the refusals are fast.
func fullQueue(ctx context.Context, b *bench) {
	const perSecond = 10 * 2 * 10 // ten times what two slots at 100 ms serve
	var refused []time.Duration
	var mu sync.Mutex
	var all sync.WaitGroup
	answered, n := 0, 3*perSecond
	begun := time.Now()
	for i := range n {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Second / perSecond)))
		all.Go(func() {
			v := b.ask(ctx, "few")
			mu.Lock()
			defer mu.Unlock()
			if v.whole() {
				answered++
			} else if v.code == "queue_full" && v.retryAfter() > 0 {
				refused = append(refused, v.took)
			}
		})
	}
	all.Wait()
	p99 := part(refused, 99)
	b.add(p99 < 20*time.Millisecond, fmt.Sprintf("F50: the queue is full, p99 of %d refusals at ten times the load", len(refused)), ms(p99), "< 20 ms")
	b.add(answered+len(refused) == n, "F50: each request was answered or refused with Retry-After", fmt.Sprintf("%d of %d", answered+len(refused), n), "all")
}

// goodput is F52: the answers of a pool whose slots are all in use do not become fewer when more is asked of it.
func goodput(ctx context.Context, b *bench) {
	const capacity, seconds = 2 * 10, 4 // answers a second that two slots at 100 ms give
	rate := func(times int) float64 {
		var answered atomic.Int64
		var all sync.WaitGroup
		begun := time.Now()
		for i := range times * capacity * seconds {
			time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Second / time.Duration(times*capacity))))
			all.Go(func() {
				if v := b.ask(ctx, "few"); v.whole() && time.Since(begun) <= seconds*time.Second {
					answered.Add(1)
				}
			})
		}
		all.Wait()
		return float64(answered.Load()) / seconds
	}
	peak, texts := rate(1), ""
	worst := peak
	for _, times := range []int{2, 5, 10} {
		got := rate(times)
		peak, worst = max(peak, got), got // the last is at ten times
		texts += fmt.Sprintf(", %.1f at %d ×", got, times)
	}
	b.add(worst >= 0.9*peak, "F52: whole answers a second under overload", fmt.Sprintf("peak %.1f%s", peak, texts), "at 10 × ≥ 90 % of the peak")
}

// isolation has a pool hang for good and measures a route that does not use it, in turns with and without the hang.
func isolation(ctx context.Context, b *bench) {
	var without, with []time.Duration // p95 of each turn: the median of them bears a machine that stalls now and then
	const turns, requests, perSecond = 12, 50, 100
	rest := func() { time.Sleep(150 * time.Millisecond) } // coming and going of the fifty is not what is measured
	for range turns {
		rest()
		without = append(without, part(b.load(ctx, "well", requests, perSecond), 95))
		b.set(always(sim.Behaviour{Hang: true}))
		hanging, free := context.WithCancel(ctx)
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { b.ask(hanging, "hang") })
		}
		_ = b.bad.WaitActive(ctx, 50) // ctx ends it
		rest()
		with = append(with, part(b.load(ctx, "well", requests, perSecond), 95))
		free()
		all.Wait()
		b.set(well)
	}
	base, got := part(without, 50), part(with, 50)
	b.add(float64(got) <= 1.2*float64(base), "isolation: p95 of a route while another pool hangs with 50 clients in it, median of twelve turns", ms(got)+", without the hang "+ms(base), "≤ 1.2 ×")
}

// fallback compares p95 of all requests when every tenth call hangs: with another step after 15 s, with another step
// after 120 s, and without one. All times are a thirtieth of that.
func fallback(ctx context.Context, b *bench) {
	var n atomic.Int64
	b.set(func(a *sim.Attempt) sim.Behaviour {
		if n.Add(1)%10 == 0 {
			return sim.Behaviour{Hang: true}
		}
		return paced(a)
	})
	soon := part(b.load(ctx, "both", 300, 60), 95)
	late := part(b.load(ctx, "late", 300, 60), 95)
	none := part(b.load(ctx, "none", 300, 60), 95)
	b.add(soon < late && soon < none, "p95 of all requests while a tenth of the calls hang, limits at a thirtieth: fallback after 15 s",
		ms(soon)+"; after 120 s "+ms(late)+"; no fallback, 120 s "+ms(none), "the first is the least")
}

// failureStorm is F47: all calls of a server fail at 200 requests a second.
func failureStorm(ctx context.Context, b *bench) {
	const requests, perSecond, floor = 1000, 200, 3
	b.prompt.Store(true)
	defer b.prompt.Store(false)
	for _, c := range []struct{ alias, name string }{{"both", "with another step"}, {"none", "without one"}} {
		b.bad.Reset()
		b.set(always(sim.Behaviour{Status: 503}))
		took := b.load(ctx, c.alias, requests, perSecond)
		calls := len(b.bad.Calls(""))
		most := requests*11/10 + floor
		b.add(calls <= most, "F47: all calls fail at 200 requests a second, calls to the server for 1,000 requests, "+c.name, fmt.Sprintf("%d, p95 of all requests %s", calls, ms(part(took, 95))), fmt.Sprintf("≤ %d", most))
	}
}
