package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// fewestRounds is what a median must rest on before its verdict counts.
const fewestRounds = 5

// options are the flags of "bench all".
type options struct {
	weir                  string // path of the binary; "" measures the others alone
	rounds                int
	cases                 string
	duration              time.Duration
	gatewayCore, loadCore int
	out                   string // JSON file; "" for none
	markdown              bool
	keep                  bool
}

// bench is one whole benchmark. It is used from one goroutine, which is locked to
// its thread, because children end with the thread that started them.
type bench struct {
	opts   options
	chosen map[string]bool
	self   string // this program, for the children
	dir    string // temporary folder
	log    io.Writer

	mock     *process
	programs map[string]program  // by subject
	running  map[string]*process // by subject
	book     book
}

func runAll(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	fs := flag.NewFlagSet("all", flag.ContinueOnError)
	fs.StringVar(&o.weir, "weir", "", "Weir binary; without it only direct and revproxy are measured")
	fs.IntVar(&o.rounds, "rounds", fewestRounds, "interleaved rounds, 1 to 50")
	fs.StringVar(&o.cases, "cases", "", "comma-separated cases (default: all but many)")
	fs.DurationVar(&o.duration, "duration", 2*time.Second, "measured time of one closed-loop run, 200ms to 30s")
	fs.IntVar(&o.gatewayCore, "gateway-core", -1, "core for the gateways (default: the first there is)")
	fs.IntVar(&o.loadCore, "load-core", -1, "core for mock and load (default: the second)")
	fs.StringVar(&o.out, "out", "", "write every run and the summary to this JSON file")
	fs.BoolVar(&o.markdown, "markdown", false, "print the tables as Markdown")
	fs.BoolVar(&o.keep, "keep", false, "keep the temporary folder (configuration, stderr of the programs)")
	if err := parseFlags(fs, args, stderr); err != nil {
		return err
	}
	runtime.LockOSThread()
	b, err := newBench(o, stderr)
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "weir-bench-"); err != nil {
		return err
	}
	defer b.cleanUp()
	err = b.measure(ctx)
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	missed := b.finish(stdout)
	if err != nil && errors.Is(missed, errMiss) {
		return err // half a run misses nothing
	}
	return errors.Join(err, missed)
}

// newBench checks everything that can be checked before a process is started.
func newBench(o options, log io.Writer) (*bench, error) {
	b := &bench{opts: o, log: log, programs: map[string]program{}, running: map[string]*process{}}
	var err error
	if b.chosen, err = chooseCases(o.cases, loadCases(o.duration)); err != nil {
		return nil, usageError{err}
	}
	if o.rounds < 1 || o.rounds > 50 || o.duration < 200*time.Millisecond || o.duration > 30*time.Second {
		return nil, usageError{errors.New("rounds must be 1 to 50 and duration 200ms to 30s")}
	}
	if o.weir != "" {
		path, err := exec.LookPath(o.weir)
		if err != nil {
			return nil, usageError{fmt.Errorf("weir binary: %w (build it first)", err)}
		}
		if b.opts.weir, err = filepath.Abs(path); err != nil {
			return nil, err
		}
	}
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if err := b.chooseCores(); err != nil {
		return nil, err
	}
	return b, raiseFiles(b.filesNeeded())
}

func (b *bench) chooseCores() error {
	cores, err := allowedCores()
	if err != nil {
		return err
	}
	if len(cores) < 2 {
		return fmt.Errorf("the benchmark needs two processors, one for the gateway and one for the load; there is %d", len(cores))
	}
	o := &b.opts
	if o.gatewayCore < 0 {
		o.gatewayCore = cores[0]
	}
	if o.loadCore < 0 {
		o.loadCore = cores[1]
	}
	if o.gatewayCore == o.loadCore || !slices.Contains(cores, o.gatewayCore) || !slices.Contains(cores, o.loadCore) {
		return usageError{fmt.Errorf("gateway and load need two different cores of %v", cores)}
	}
	return nil
}

// filesNeeded is two connections per stream in the gateway, and some room.
func (b *bench) filesNeeded() uint64 {
	most := 64
	for _, c := range loadCases(b.opts.duration) {
		if b.chosen[c.name] {
			most = max(most, c.plan.connections)
		}
	}
	return uint64(2*most + 256)
}

// prepare starts the mock and writes down how each subject is started.
func (b *bench) prepare(ctx context.Context) error {
	addrs := make([]string, 3)
	for i := range addrs {
		var err error
		if addrs[i], err = freeAddr(ctx); err != nil {
			return err
		}
	}
	o := b.opts
	mockOn := func(name, addr string, core int) program {
		return program{name: name, path: b.self, args: []string{"mock", "-listen", addr}, core: core, addr: addr, ready: "/health", logs: b.dir}
	}
	var err error
	if b.mock, err = b.launch(ctx, mockOn("mock", addrs[0], o.loadCore)); err != nil {
		return err
	}
	b.programs[direct] = mockOn(direct, addrs[1], o.gatewayCore)
	b.programs[revproxy] = program{name: revproxy, path: b.self, args: []string{"revproxy", "-listen", addrs[2], "-upstream", addrs[0]},
		core: o.gatewayCore, addr: addrs[2], ready: "/health", logs: b.dir}
	if o.weir == "" {
		return nil
	}
	if b.programs[weir], err = b.prepareWeir(ctx, weir, "as_asked"); err != nil {
		return err
	}
	b.programs[assembler], err = b.prepareWeir(ctx, assembler, "always")
	return err
}

// launch starts a program and waits until it serves.
func (b *bench) launch(ctx context.Context, p program) (*process, error) {
	pr, err := start(p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	if err := errors.Join(pinThread(b.opts.loadCore), pr.await(ctx)); err != nil {
		pr.stop()
		return nil, err
	}
	return pr, nil
}

// measure runs everything chosen. What was found so far stays in the book when it fails.
func (b *bench) measure(ctx context.Context) error {
	if err := b.prepare(ctx); err != nil {
		return err
	}
	if err := b.interleaved(ctx); err != nil {
		return err
	}
	b.stopAll()
	if err := b.freshRuns(ctx); err != nil {
		return err
	}
	return b.footprint(ctx)
}

// interleaved runs the cases on long-lived processes: in each round every case on
// every subject, in an order that rotates, so that a slow minute of the machine
// falls on all of them.
func (b *bench) interleaved(ctx context.Context) error {
	var cases []benchCase
	for _, c := range loadCases(b.opts.duration) {
		if b.chosen[c.name] && !c.fresh {
			cases = append(cases, c)
		}
	}
	for _, c := range cases {
		for _, s := range b.subjects(c) {
			if b.running[s] != nil {
				continue
			}
			p, err := b.launch(ctx, b.programs[s])
			if err != nil {
				return err
			}
			b.running[s] = p
		}
	}
	for round := range b.opts.rounds {
		for i, c := range cases {
			subjects := b.subjects(c)
			for k := range subjects {
				s := subjects[(k+round+i)%len(subjects)]
				if err := b.one(ctx, c, s, round, b.running[s]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// subjects are those that take part in a case, the reference first.
func (b *bench) subjects(c benchCase) []string {
	list := []string{direct, revproxy}
	if c.fresh {
		list = list[1:]
	}
	if b.opts.weir == "" {
		return list
	}
	if c.subject != "" {
		return append(list, c.subject)
	}
	return append(list, weir)
}

// freshRuns runs the cases about memory, each on a process of its own.
func (b *bench) freshRuns(ctx context.Context) error {
	for _, c := range loadCases(b.opts.duration) {
		if !b.chosen[c.name] || !c.fresh {
			continue
		}
		rounds := min(b.opts.rounds, 3)
		if c.optional {
			rounds = 1
		}
		for round := range rounds {
			for _, s := range b.subjects(c) {
				if err := b.onFresh(ctx, s, func(p *process) error { return b.one(ctx, c, s, round, p) }); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// onFresh starts a subject, lets it answer a few requests and settle, and stops it after use.
func (b *bench) onFresh(ctx context.Context, subject string, use func(*process) error) error {
	p, err := b.launch(ctx, b.programs[subject])
	if err != nil {
		return err
	}
	defer p.stop()
	if _, err := b.load(ctx, p, plan{model: modelPlain, body: bodySmall, connections: 1, requests: 100}); err != nil {
		return err
	}
	if err := settle(ctx, time.Second); err != nil {
		return err
	}
	return use(p)
}

// one is one load run of a case on a subject.
func (b *bench) one(ctx context.Context, c benchCase, subject string, round int, p *process) error {
	pl := c.plan
	if c.peer != nil && subject != c.subject {
		pl = *c.peer
	}
	r, err := b.load(ctx, p, pl)
	if err != nil {
		return fmt.Errorf("case %s, %s: %w", c.name, subject, err)
	}
	if r.Requests+r.bad() == 0 {
		return fmt.Errorf("case %s, %s: no request was answered in %.1f s", c.name, subject, r.Seconds)
	}
	r.Case, r.Round = c.name, round+1
	r.Subject = subject
	b.book.add(r)
	fmt.Fprintf(b.log, "round %d  %-10s %-15s %9.2f µs/request  %6.2f µs/chunk  p50 %7.0f µs  %d whole, %d not\n",
		r.Round, c.name, subject, r.CPURequest, r.CPUChunk, r.P50, r.Requests, r.bad())
	if r.FirstError != "" {
		fmt.Fprintf(b.log, "         first fault: %s\n", r.FirstError)
	}
	return nil
}

// load runs "bench load" on the load's core against a process and returns its result.
func (b *bench) load(ctx context.Context, p *process, pl plan) (result, error) {
	pl.addr, pl.key, pl.pid, pl.mockPID = p.addr, p.key, p.pid(), b.mock.pid()
	ctx, cancel := context.WithTimeout(ctx, pl.limit()+10*time.Second)
	defer cancel()
	if err := pinThread(b.opts.loadCore); err != nil {
		return result{}, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, b.self, append([]string{"load"}, pl.args()...)...)
	cmd.Stdout, cmd.Stderr, cmd.Env, cmd.SysProcAttr = &stdout, &stderr, plainEnv(), childAttr()
	if err := cmd.Run(); err != nil {
		return result{}, fmt.Errorf("load: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	var r result
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		return result{}, fmt.Errorf("load printed no result: %w", err)
	}
	select {
	case <-p.done:
		return r, fmt.Errorf("%s ended during the run; %s", p.name, p.tail())
	default:
		return r, nil
	}
}

func (b *bench) stopAll() {
	for name, p := range b.running {
		p.stop()
		delete(b.running, name)
	}
}

func (b *bench) cleanUp() {
	b.stopAll()
	b.mock.stop()
	if b.opts.keep {
		fmt.Fprintln(b.log, "kept", b.dir)
		return
	}
	if err := os.RemoveAll(b.dir); err != nil {
		fmt.Fprintln(b.log, err)
	}
}

// settle waits, so that collections and timers of the last load are over.
func settle(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
