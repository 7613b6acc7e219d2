// Package drill tries a configuration against the faults that upstreams have: every backend is replaced by a simulated
// server that fails in a known way, each fault is brought to each route, and what the client sees is judged. The same
// faults can be brought to a gateway that somebody else built.
package drill

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/internal/config"
)

// Options say what is tried. Config or Against must be set.
type Options struct {
	Config   *config.Config // the operator's own; it is not changed, and nothing that it names is touched
	Against  *Target        // another gateway, in place of Config
	Aliases  []string       // only these; empty: one for each different route
	Only     []string       // only these faults, such as F06; empty: all
	Parallel int            // cases at a time; 0: a few
	Progress func(Progress) // called after each case, one at a time; nil: nobody asks
	// Front stands between the client and the gateway: tests break there what the drill must find.
	Front func(http.RoundTripper) http.RoundTripper
}

// Progress is how far a drill is.
type Progress struct {
	Done, Total, Failed int
	Last                *Row
}

// drill is one run.
type drill struct {
	Options
	tamed   *config.Config // what each gateway is built of
	lanes   []*lane
	folder  string // for the data of each gateway
	papers  *papers
	heavy   sync.Mutex // held by cases that take much memory
	mu      sync.Mutex // guards the field below
	started int
}

// job is one case: a fault brought to an alias, by a client who streams or does not.
type job struct {
	lane   *lane
	fault  *fault
	stream bool
}

// Run carries the drill out. The error says why it could not be; faults that were found are in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	begun := time.Now()
	if o.Parallel == 0 {
		o.Parallel = 6
	}
	faults, err := chosen(o.Only)
	if err != nil {
		return nil, err
	}
	d := &drill{Options: o}
	report := &Report{Time: begun.UTC().Truncate(time.Second)}
	if o.Against != nil {
		err = d.foreign(ctx, faults, report)
	} else {
		err = d.own(ctx, faults, report)
	}
	if err != nil {
		return nil, err
	}
	report.count()
	report.Took = Span(time.Since(begun))
	return report, nil
}

// chosen returns the faults of a list of ids.
func chosen(only []string) ([]*fault, error) {
	all := catalogue()
	if len(only) == 0 {
		return all, nil
	}
	var list []*fault
	for _, id := range only {
		n := len(list)
		for _, f := range all {
			if strings.EqualFold(f.id, strings.TrimSpace(id)) {
				list = append(list, f)
			}
		}
		if len(list) == n {
			return nil, fmt.Errorf("there is no fault %q; the catalogue has %s", id, strings.Join(IDs(), ", "))
		}
	}
	return list, nil
}

// IDs returns the numbers of all faults, in order.
func IDs() []string {
	var ids []string
	for _, f := range catalogue() {
		if !slices.Contains(ids, f.id) {
			ids = append(ids, f.id)
		}
	}
	return ids
}

// own tries the configuration: a gateway of its own for each case, since a fault leaves traces.
func (d *drill) own(ctx context.Context, faults []*fault, report *Report) (err error) {
	if d.folder, err = os.MkdirTemp("", "weir-drill-"); err != nil {
		return fmt.Errorf("a folder for the drill: %w", err)
	}
	defer os.RemoveAll(d.folder)
	if d.papers, err = newPapers(d.folder); err != nil {
		return fmt.Errorf("certificates for the drill: %w", err)
	}
	if d.tamed, err = tame(d.Config, d.folder); err != nil {
		return err
	}
	if d.lanes, err = lanesOf(d.tamed, d.Aliases); err != nil {
		return err
	}
	report.Subject, report.Notes = filepath.Base(d.Config.File), notes(d.Config)
	jobs := jobsOf(d.lanes, faults)
	report.Rows = make([]Row, len(jobs))
	d.all(ctx, jobs, report.Rows)
	d.again(ctx, jobs, report.Rows)
	return ctx.Err()
}

// all plays every case, several at a time.
func (d *drill) all(ctx context.Context, jobs []job, rows []Row) {
	next, told := make(chan int), make(chan int, len(jobs))
	var workers, telling sync.WaitGroup
	for range d.Parallel {
		workers.Go(func() {
			for i := range next {
				rows[i] = d.try(ctx, jobs[i])
				told <- i
			}
		})
	}
	telling.Go(func() { d.tell(told, rows) })
	for i := 0; i < len(jobs) && ctx.Err() == nil; i++ {
		next <- i
	}
	close(next)
	workers.Wait()
	close(told)
	telling.Wait()
}

func jobsOf(lanes []*lane, faults []*fault) (jobs []job) {
	for _, l := range lanes {
		for _, f := range faults {
			for _, stream := range []bool{true, false} {
				jobs = append(jobs, job{l, f, stream})
			}
		}
	}
	return jobs
}

func (d *drill) tell(told <-chan int, rows []Row) {
	p := Progress{Total: len(rows)}
	for i := range told {
		p.Done++
		p.Last = &rows[i]
		if rows[i].Result == Fail {
			p.Failed++
		}
		if d.Progress != nil {
			d.Progress(p)
		}
	}
}

// try plays one case on a new gateway.
func (d *drill) try(ctx context.Context, j job) Row {
	if why := j.fault.missing(j.lane, j.stream); why != "" {
		return j.row(&trial{na: why})
	}
	return j.row(d.play(ctx, j))
}

// again plays the cases that failed once more, one after the other: the machine may have been busy with the others. What
// one failed by at first stays in its row.
func (d *drill) again(ctx context.Context, jobs []job, rows []Row) {
	for i := range rows {
		if rows[i].Result != Fail || ctx.Err() != nil {
			continue
		}
		row := d.try(ctx, jobs[i])
		if row.Result == Pass {
			row.Reason = "played twice; at first: " + rows[i].Reason
		}
		rows[i] = row
	}
}

// play plays one case and judges it.
func (d *drill) play(ctx context.Context, j job) *trial {
	if j.fault.heavy {
		d.heavy.Lock()
		defer d.heavy.Unlock()
	}
	t := &trial{fault: j.fault, stream: j.stream, begun: time.Now()}
	r, err := d.newRig(ctx, j)
	if err != nil {
		t.failf("no gateway could be built: %v", err)
		return t
	}
	t.rig = r
	ctx, cancel := context.WithTimeout(ctx, playMost)
	defer cancel()
	t.play(ctx)
	t.settle(ctx)
	if err := r.stop(); err != nil {
		t.failf("%v", err)
	}
	t.referee()
	return t
}

// playMost bounds one case, whatever the gateway does.
const playMost = 30 * time.Second

// row says what became of the case.
func (j job) row(t *trial) Row {
	r := Row{Fault: j.fault.id, Name: j.fault.name, Alias: j.lane.alias, Route: j.lane.route, Mode: "whole", Saw: t.saw,
		Attempts: t.attempts, Took: Span(t.took), Result: Pass}
	if j.stream {
		r.Mode = "streamed"
	}
	switch {
	case len(t.faults) > 0:
		r.Result, r.Reason = Fail, strings.Join(t.faults, "; ")
	case t.na != "":
		r.Result, r.Reason = NotApplicable, t.na
	}
	return r
}

var errNoRoute = errors.New("the configuration has no route that a drill could try")
